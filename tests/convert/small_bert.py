"""Small random BERT folders as transformers writes them."""

import json
import random

import torch
import transformers

transformers.logging.disable_progress_bar()

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_tokenizer(folder, vocabulary_size=60, seed=None):
    """A cased WordPiece vocabulary; with a seed the ids of all tokens are shuffled."""
    # a line separator and an ideograph: real vocabularies hold them
    words = ["the", "capital", "\u2028", "France", "中", ".", *"abcdefghijklmnopqrstuvwxyz"]
    pieces = [f"##{word}" for word in words]
    tokens = [*SPECIALS, *words, *pieces]
    tokens = [*tokens, *(f"[unused{number}]" for number in range(vocabulary_size - len(tokens)))]
    tokens = tokens[:vocabulary_size]
    if seed is not None:
        random.Random(seed).shuffle(tokens)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    settings = {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def write_bert(folder, architecture="BertForPreTraining", seed=1, shuffle=None, vocabulary_size=60, **config):
    """Write a random model with its tokenizer; every parameter differs from its neutral value."""
    write_tokenizer(folder, vocabulary_size, shuffle)
    torch.manual_seed(seed)
    settings = {
        "vocab_size": vocabulary_size,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 32,
        **config,
    }
    model = getattr(transformers, architecture)(transformers.BertConfig(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def rewrite(folder, change):
    """Apply ``change`` to the dictionary of tensors in a folder's model.safetensors."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
