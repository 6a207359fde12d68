"""Small random RoBERTa and XLM-R folders as transformers writes them."""

import json
from pathlib import Path

import torch
import transformers
from small_tokenizers import train_gpt2, train_sentencepiece

transformers.logging.disable_progress_bar()

TEXT = [
    "the capital of France is Paris and the river is large",
    "a house near the river was built for the old king of France",
    "small houses and large rivers are what the king likes best",
]
# a second name of lm_head.bias, which files that are written hold too
COPY = "lm_head.decoder.bias"
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


def write_byte_level(folder, mask_last=True, size=290):
    """``vocab.json`` and ``merges.txt`` as roberta-base has them; returns the tokens in their order.

    As there, tokens do not come in GPT-2's order, and fillers stand before ``<mask>``.
    """
    scratch = Path(folder) / "scratch"
    scratch.mkdir(parents=True)
    ids = train_gpt2(TEXT, scratch, size)
    merges = (scratch / "vocab.bpe").read_text(encoding="utf-8")
    tokens = sorted(ids, key=lambda token: (len(token), token), reverse=True)
    if mask_last:
        tokens = [*SPECIALS, *tokens, "<|endoftext|>", "madeupword0000", "madeupword0001", "<mask>"]
    else:
        tokens = [*SPECIALS, "<mask>", *tokens]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))
    for path in scratch.iterdir():
        path.unlink()
    scratch.rmdir()
    return tokens


def write_sentencepiece(folder, size=80):
    """``sentencepiece.bpe.model`` as xlm-roberta-base has it; returns the tokens in Hugging Face's order."""
    import sentencepiece

    folder.mkdir(parents=True, exist_ok=True)
    path = train_sentencepiece(TEXT, folder, size)
    path.rename(folder / "sentencepiece.bpe.model")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizer"}))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    return [*SPECIALS, *(processor.IdToPiece(number) for number in range(3, len(processor))), "<mask>"]


def write_tokenizer_json(folder):
    """Replace a tokenizer's files by the ``tokenizer.json`` that transformers writes."""
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    for name in ("vocab.json", "merges.txt", "sentencepiece.bpe.model"):
        (folder / name).unlink(missing_ok=True)


def write_roberta(
    folder, architecture="RobertaForMaskedLM", seed=1, segments=False, mask_last=True, **config
):
    """Write a random model with its tokenizer; every parameter differs from its neutral value.

    ``segments``: whether the segment embedding is other than zero, as no published RoBERTa has it.
    """
    folder = Path(folder)
    cross_lingual = architecture.startswith("XLM")
    tokens = write_sentencepiece(folder) if cross_lingual else write_byte_level(folder, mask_last)
    torch.manual_seed(seed)
    settings = {
        "vocab_size": len(tokens),
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 34,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        **config,
    }
    kind = transformers.XLMRobertaConfig if cross_lingual else transformers.RobertaConfig
    arguments = {} if architecture.endswith("MaskedLM") else {"add_pooling_layer": False}
    model = getattr(transformers, architecture)(kind(**settings), **arguments).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
            if "token_type" in name and not segments:
                parameter.zero_()
    model.save_pretrained(folder)
    return model
