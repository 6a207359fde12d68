"""Synonyms from vectors: the nearest neighbours among a vocabulary's words, by cosine.

The vectors are those of a file (word2vec, GloVe, fastText) or a model's own input embedding.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms import MIN_COSINE, NEIGHBOURS
from fairseq_tn.synonyms.model_embeddings import read_embedding
from fairseq_tn.synonyms.table import SynonymTable
from fairseq_tn.synonyms.vector_files import WordVectors, read_word_vectors
from fairseq_tn.synonyms.vocabularies import (
    FEW_WORDS,
    choose_writing,
    detect_style,
    whole_words,
    words_with_letters,
)

logger = logging.getLogger(__name__)

_BLOCK_NUMBERS = 1 << 25  # float32 cosines at a time: 128 MiB
_PAIRS_AT_A_TIME = 1 << 16
_DECIMALS = 12
# more than the error of a float32 cosine: what is nearer to a limit is judged in float64
_MARGIN = 1e-4


class KeyedVectors(Protocol):
    """What is needed of gensim's ``KeyedVectors``."""

    index_to_key: Sequence[str]
    vectors: NDArray[Any]


def build_from_vectors(
    tokens: Iterable[str],
    vectors: str | Path | KeyedVectors,
    neighbours: int = NEIGHBOURS,
    min_cosine: float = MIN_COSINE,
    style: str | None = None,
    gpt2_tokens: Mapping[str, str] | None = None,
    progress: bool = False,
) -> SynonymTable:
    """The synonym table of a vocabulary: for each whole word, the words of the vocabulary that are nearest to it.

    A symbol has the vector of its word; where the file lacks this writing, of the first word in the file (the
    most frequent one) that differs from it in case only. Words without a letter, such as years and punctuation, take
    no part: vectors call all of them alike. Neither do words whose vector is zero.

    A word's synonyms are the ``neighbours`` words of largest cosine, the nearest first, as far as it is at least
    ``min_cosine``. The word itself does not count, nor does another capitalisation of it; of words that differ in
    case only the nearest one counts, and of symbols that share a vector the one that
    :func:`~fairseq_tn.synonyms.vocabularies.choose_writing` says. Of equally near words the first of the
    vocabulary comes first.

    Args:
        tokens: the symbols of the vocabulary in order, special symbols included (the table records their digest).
        vectors: a file, see :mod:`fairseq_tn.synonyms.vector_files`, or vectors that gensim has loaded.
        neighbours: most synonyms of a word, at least 1.
        min_cosine: from -1 to 1.
        style: how the vocabulary writes whole words (one of ``vocabularies.STYLES``); detected by default.
        gpt2_tokens: for vocabularies of GPT-2 ids, id -> token.
        progress: show a progress bar when it takes long.

    Raises UserError for options out of range, a file that cannot be read, and vectors of none of the words.
    """
    _check_options(neighbours, min_cosine)
    vocabulary = _Vocabulary.of(tokens, style, gpt2_tokens)
    wanted = _Wanted(vocabulary.words.values())
    if isinstance(vectors, (str, Path)):
        place, name = str(vectors), Path(vectors).name
        found = read_word_vectors(vectors, wanted, progress)
    else:
        place = name = "loaded by gensim"
        found = _take(vectors, wanted)
    rows = _rows_of_symbols(vocabulary.words, found.words)
    if not rows:
        raise UserError(
            f"none of the vocabulary's {len(vocabulary.words):,} words (style {vocabulary.style}) is among the "
            f"vectors {place}; give vectors of the vocabulary's language"
        )
    if len(rows) < FEW_WORDS * len(vocabulary.words):
        logger.warning(
            "only %s of the vocabulary's %s words have vectors; are these of another language?",
            f"{len(rows):,}",
            f"{len(vocabulary.words):,}",
        )
    named = _Named(rows, found.words, torch.from_numpy(found.vectors))
    return _build(vocabulary, named, f"vectors {name}", neighbours, min_cosine, progress)


def build_from_model(
    tokens: Iterable[str],
    checkpoint: str | Path,
    neighbours: int = NEIGHBOURS,
    min_cosine: float = MIN_COSINE,
    style: str | None = None,
    gpt2_tokens: Mapping[str, str] | None = None,
    progress: bool = False,
) -> SynonymTable:
    """As :func:`build_from_vectors`, with the rows of a model's input embedding as vectors of the symbols.

    Args:
        tokens: the symbols of the model's ``dict.txt`` in the order of their ids, fairseq's four specials included.
        checkpoint: of ``tn_bert``, ``tn_electra`` or fairseq's ``roberta``; the model is not built.

    The other arguments are those of :func:`build_from_vectors`. Raises UserError for a checkpoint that cannot be
    read or belongs to another vocabulary.
    """
    _check_options(neighbours, min_cosine)
    vocabulary = _Vocabulary.of(tokens, style, gpt2_tokens)
    ids = {symbol: number for number, symbol in enumerate(vocabulary.symbols)}
    embedding = read_embedding(checkpoint, vocabulary.symbols)[[ids[symbol] for symbol in vocabulary.words]]
    if not torch.isfinite(embedding).all():
        raise UserError(
            f"the input embedding of {checkpoint} holds infinite or undefined numbers; take a checkpoint from "
            "before the training diverged"
        )
    rows = {symbol: row for row, symbol in enumerate(vocabulary.words)}
    named = _Named(rows, [*vocabulary.words.values()], embedding)
    return _build(vocabulary, named, f"model {Path(checkpoint).name}", neighbours, min_cosine, progress)


def _check_options(neighbours: int, min_cosine: float) -> None:
    if neighbours < 1:
        raise UserError(f"--neighbours {neighbours}: give a number of synonyms, at least 1")
    if not -1 <= min_cosine <= 1:
        raise UserError(f"--min-cosine {min_cosine:g}: a cosine lies between -1 and 1")


@dataclass(frozen=True)
class _Vocabulary:
    """symbols: in order; words: symbol -> the word that it writes, for whole words with a letter in them."""

    symbols: list[str]
    style: str
    words: dict[str, str]

    @classmethod
    def of(
        cls, tokens: Iterable[str], style: str | None, gpt2_tokens: Mapping[str, str] | None
    ) -> "_Vocabulary":
        symbols = list(tokens)
        style = detect_style(symbols) if style is None else style
        return cls(symbols, style, words_with_letters(whole_words(symbols, style, gpt2_tokens)))


@dataclass(frozen=True)
class _Named:
    """rows: symbol -> its row in ``vectors``, in the vocabulary's order; writings: the word of each row."""

    rows: dict[str, int]
    writings: list[str]
    vectors: Tensor


class _Wanted:
    """Which words of a file have a vector that some word of the vocabulary needs, asked in the file's order."""

    def __init__(self, words: Iterable[str]):
        self._exact = set(words)
        self._folded = {word.lower() for word in self._exact}

    def __call__(self, word: str) -> bool:
        folded = word.lower()
        if folded in self._folded:
            # the first word in any case stands for all writings that the file lacks
            self._folded.remove(folded)
            return True
        return word in self._exact


def _take(vectors: KeyedVectors, wanted: _Wanted) -> WordVectors:
    kept = [number for number, word in enumerate(vectors.index_to_key) if wanted(word)]
    words = [vectors.index_to_key[number] for number in kept]
    chosen = np.asarray(vectors.vectors[kept], np.float32)
    for number in np.flatnonzero(~np.isfinite(chosen).all(1))[:1]:
        raise UserError(f"the vector of {words[number]!r} holds an infinite or undefined number")
    return WordVectors(words, chosen)


def _rows_of_symbols(words: Mapping[str, str], written: Sequence[str]) -> dict[str, int]:
    """Symbol -> the row of its vector, for the symbols that have one."""
    exact = {word: row for row, word in enumerate(written)}
    folded = {word.lower(): row for row, word in reversed([*enumerate(written)])}
    rows = {symbol: exact.get(word, folded.get(word.lower())) for symbol, word in words.items()}
    return {symbol: row for symbol, row in rows.items() if row is not None}


def _build(
    vocabulary: _Vocabulary, named: _Named, source: str, neighbours: int, min_cosine: float, progress: bool
) -> SynonymTable:
    words = vocabulary.words
    zero = (~named.vectors.any(1)).tolist()
    sharing: dict[int, list[str]] = {}
    for symbol, row in named.rows.items():
        if not zero[row]:
            sharing.setdefault(row, []).append(symbol)
    # in the order of the vocabulary, so that the first of equally near rows is the vocabulary's first
    used = [*sharing]
    with_vector = sum(map(len, sharing.values()))
    if with_vector < len(named.rows):
        logger.warning(
            "the vectors of %s words are zero; they have no synonyms", f"{len(named.rows) - with_vector:,}"
        )
    numbers: dict[str, int] = {}
    folds = [numbers.setdefault(named.writings[row].lower(), len(numbers)) for row in used]
    near = nearest(named.vectors[used], np.array(folds, np.int64), neighbours, min_cosine, progress)
    synonyms: dict[str, list[str]] = {symbol: [] for symbol in words}
    for gold, other in zip(*near, strict=True):
        candidates, writing = sharing[used[other]], named.writings[used[other]]
        for symbol in sharing[used[gold]]:
            synonyms[symbol].append(choose_writing(words[symbol], writing, candidates, words))
    header = {
        "source": " ".join(source.split()),
        "options": f"{neighbours} neighbours, cosine at least {min_cosine:g}, {vocabulary.style} vocabulary",
        "words": f"{with_vector:,} of {len(words):,} have vectors",
    }
    return SynonymTable(vocabulary.symbols, {s: others for s, others in synonyms.items() if others}, header)


def nearest(
    vectors: Tensor, folds: NDArray[np.int64], neighbours: int, min_cosine: float, progress: bool = False
) -> tuple[list[int], list[int]]:
    """The nearest neighbours of every row by cosine, as if all of it were computed in float64.

    float32 products, in blocks, find the few pairs that may count; their cosines are then computed in float64,
    so that neither the machine nor the size of the blocks decides between equals.

    Args:
        vectors: N x D, no row zero.
        folds: N numbers; rows of the same number are writings of one word.
        neighbours: the most for each row; of rows with the same number only the nearest counts.
        min_cosine: the least.
        progress: show a progress bar when it takes long.

    Returns rows and their neighbours, pair by pair: rows ascending, then cosines descending, then neighbours ascending.
    """
    exact = vectors.double()
    exact = exact / exact.norm(dim=1, keepdim=True)
    rough = exact.float()
    # rows of one word cannot fill more places than this
    places = min(len(rough), (neighbours + 1) * int(np.bincount(folds).max(initial=1)))
    size = max(1, _BLOCK_NUMBERS // max(1, len(rough)))
    rows: list[int] = []
    columns: list[int] = []
    with tqdm(
        total=len(rough), desc="neighbours", unit=" words", leave=False, delay=1, disable=not progress
    ) as bar:
        for start in range(0, len(rough), size):
            cosines = rough[start : start + size] @ rough.T
            least = cosines.topk(places, sorted=True).values[:, -1:].clamp(min=min_cosine)
            row, column = (cosines >= least - _MARGIN).nonzero(as_tuple=True)
            row = row + start
            cosine = torch.cat(
                [
                    (exact[r] * exact[c]).sum(1)
                    for r, c in zip(row.split(_PAIRS_AT_A_TIME), column.split(_PAIRS_AT_A_TIME), strict=True)
                ]
            )
            # vectors of one direction and several lengths are equally near: rounding hides their last bits
            cosine = cosine.round(decimals=_DECIMALS)
            best = _best(row.numpy(), column.numpy(), cosine.numpy(), folds, neighbours, min_cosine)
            rows.extend(best[0].tolist())
            columns.extend(best[1].tolist())
            bar.update(len(cosines))
    return rows, columns


def _best(
    row: NDArray[np.int64],
    column: NDArray[np.int64],
    cosine: NDArray[np.float64],
    folds: NDArray[np.int64],
    neighbours: int,
    min_cosine: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of pairs, those that count; see :func:`nearest`."""
    kept = (cosine >= min_cosine) & (folds[row] != folds[column])
    row, column, cosine = row[kept], column[kept], cosine[kept]
    # the nearest writing of each word
    order = np.lexsort((column, -cosine, folds[column], row))
    row, column, cosine = row[order], column[order], cosine[order]
    first = np.ones(len(row), bool)
    first[1:] = (row[1:] != row[:-1]) | (folds[column[1:]] != folds[column[:-1]])
    row, column, cosine = row[first], column[first], cosine[first]
    # the nearest words of each row
    order = np.lexsort((column, -cosine, row))
    row, column = row[order], column[order]
    starts = np.searchsorted(row, row)
    kept = np.arange(len(row)) - starts < neighbours
    return row[kept], column[kept]
