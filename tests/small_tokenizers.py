"""Trains small tokenizers of every kind on given text: an importable helper of the tests."""

import io
import json
from collections.abc import Iterable
from pathlib import Path


def train_wordpiece(lines: Iterable[str], folder: Path, size: int = 200) -> Path:
    """Write a cased BERT vocabulary, ``vocab.txt``."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return path


def train_sentencepiece(lines: Iterable[str], folder: Path, size: int = 100, **options) -> Path:
    """Write ``small.model``."""
    import sentencepiece

    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_writer=content,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    path = folder / "small.model"
    path.write_bytes(content.getvalue())
    return path


def train_gpt2(lines: Iterable[str], folder: Path, size: int = 500) -> dict[str, int]:
    """Write ``encoder.json`` and ``vocab.bpe``; return token -> id."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    (folder / "encoder.json").write_text(json.dumps(model["vocab"]))
    merges = "".join(" ".join(merge) + "\n" for merge in model["merges"])
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    return model["vocab"]


def train_subword_nmt(lines: Iterable[str], folder: Path, merges: int = 500) -> tuple[Path, Path]:
    """Write ``codes`` and ``vocabulary`` as ``subword-nmt learn-bpe`` and ``get-vocab`` do."""
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.get_vocab import get_vocab
    from subword_nmt.learn_bpe import learn_bpe

    text = "\n".join(lines)
    codes, vocabulary = io.StringIO(), io.StringIO()
    learn_bpe(io.StringIO(text), codes, merges, min_frequency=2)
    segmented = BPE(io.StringIO(codes.getvalue())).segment_tokens(text.split())
    get_vocab(io.StringIO(" ".join(segmented)), vocabulary)
    for name, content in (("codes", codes), ("vocabulary", vocabulary)):
        (folder / name).write_text(content.getvalue(), encoding="utf-8")
    return folder / "codes", folder / "vocabulary"
