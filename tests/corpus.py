"""Builds small data folders as fairseq-preprocess would: an importable helper of the tests."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset

Documents = Sequence[Sequence[Sequence[str]]]


def random_documents(
    number: int, seed: int = 0, words: int = 40, sentences: int = 12, length: int = 12
) -> list[list[list[str]]]:
    """Documents of sentences of words: ``w0`` to ``wN``, some followed by a piece ``##pN``, as WordPiece writes.

    A word is often followed by the next one by number, so that a model can learn something.
    """
    rng = np.random.default_rng(seed)
    documents = []
    for _ in range(number):
        document = []
        for _ in range(rng.integers(1, sentences + 1)):
            start, tokens = int(rng.integers(words)), []
            for step in range(rng.integers(1, length + 1)):
                tokens.append(f"w{(start + step) % words}")
                if rng.random() < 0.2:
                    tokens.append(f"##p{(start + step) % 5}")
            document.append(tokens)
        documents.append(document)
    return documents


def write_dict(folder: Path, symbols: Iterable[str]) -> Dictionary:
    """Write ``dict.txt`` and return what fairseq loads from it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "dict.txt"
    path.write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")
    return Dictionary.load(str(path))


def write_split(folder: Path, split: str, documents: Documents, dictionary: Dictionary) -> None:
    """Write ``split.bin`` and ``split.idx``: a sentence a line, and a blank line after every document but the last."""
    builder = indexed_dataset.make_builder(str(folder / f"{split}.bin"), "mmap", vocab_size=len(dictionary))
    for number, document in enumerate(documents):
        if number:
            builder.add_item(torch.tensor([dictionary.eos()]))
        for sentence in document:
            ids = [dictionary.index(token) for token in sentence]
            builder.add_item(torch.tensor([*ids, dictionary.eos()]))
    builder.finalize(str(folder / f"{split}.idx"))


def make_corpus(
    folder: Path, train: Documents | None = None, valid: Documents | None = None, symbols: Iterable[str] = ()
) -> Path:
    """Make a data folder with ``dict.txt`` and the splits ``train`` and ``valid``.

    Args:
        folder: made if missing
        train, valid: documents of sentences of tokens; default: random ones
        symbols: symbols of the dictionary beside the tokens of the documents

    Returns:
        ``folder``
    """
    train = random_documents(40, seed=1) if train is None else train
    valid = random_documents(8, seed=2) if valid is None else valid
    tokens = sorted(
        {token for split in (train, valid) for document in split for line in document for token in line}
    )
    dictionary = write_dict(folder, dict.fromkeys([*tokens, *symbols]))
    write_split(folder, "train", train, dictionary)
    write_split(folder, "valid", valid, dictionary)
    return folder
