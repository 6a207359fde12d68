"""The synonym table: which predicted tokens are synonyms of which gold tokens.

A table is a UTF-8 text file with one line a token, ``token<TAB>synonym synonym ...``. Lines that start with
``# `` and hold no tab are its header or comments; ``# vocabulary: DIGEST`` binds it to one vocabulary. A
hand-made table needs no header.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_path
from fairseq_tn.synonyms.vocabularies import vocabulary_digest

logger = logging.getLogger(__name__)

_HEADER_FIELD = re.compile(r"# ([a-z]+): (.*)")
# a pair is the integer gold * 2^32 + predicted: ids outside the vocabulary make no pair of the table
_GOLD_SHIFT = 32
_HASH_MULTIPLIER = -7046029254386353131  # 2^64 / golden ratio, odd, as a signed integer (Fibonacci hashing)


class Dictionary(Protocol):
    """What a table needs of a fairseq dictionary."""

    symbols: list[str]


def read_table(path: str | Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Read a table file; returns its header fields and token -> synonyms in the file's order.

    Raises UserError that names the file, and the line where there is one, for a file that is missing, empty,
    not UTF-8 text or malformed.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot read the synonym table {path}: {error.strerror}; "
            "build one with fairseq-tn synonyms build"
        ) from None
    if data.startswith(b"\x1f\x8b"):
        raise UserError(f"the synonym table {path} is compressed; unpack it with gunzip")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"the synonym table {path}, line {bad}: not UTF-8 text; convert it to UTF-8"
        ) from None
    header: dict[str, str] = {}
    synonyms: dict[str, list[str]] = {}
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        if not line:
            continue
        token, tab, rest = line.partition("\t")
        if not tab and line.startswith("# "):
            if match := _HEADER_FIELD.fullmatch(line):
                header[match[1]] = match[2].strip()
            continue
        others = list(dict.fromkeys(filter(None, rest.split(" "))))
        problem = None
        if not tab or not token or " " in token or "\t" in rest or "\0" in line:
            problem = "expected 'token<TAB>synonym synonym ...'"
        elif not others:
            problem = f"{token!r} has no synonyms; remove the line"
        elif token in others:
            problem = f"{token!r} is listed as its own synonym; remove it"
        elif token in synonyms:
            problem = f"{token!r} has a line already; join the two"
        if problem:
            raise UserError(f"the synonym table {path}, line {number}: {problem}")
        synonyms[token] = others
    if not synonyms:
        raise UserError(f"the synonym table {path} is empty; build one with fairseq-tn synonyms build")
    return header, synonyms


class SynonymTable:
    """V[w] of hard correction: for each token of a vocabulary, the tokens that count as its synonyms.

    Args:
        symbols: the vocabulary in the order of its ids; ``<mask>`` and fillers at the end may be missing.
        synonyms: token -> its synonyms, all of them in ``symbols``, none its own synonym.
        header: fields that tell where the table comes from, such as ``source`` and ``options``.
    """

    def __init__(
        self,
        symbols: Iterable[str],
        synonyms: Mapping[str, Sequence[str]],
        header: Mapping[str, str] | None = None,
    ):
        symbols = list(symbols)
        self.header = {**(header or {}), "vocabulary": vocabulary_digest(symbols)}
        self._synonyms = {token: list(others) for token, others in synonyms.items()}
        ids = {symbol: index for index, symbol in enumerate(symbols)}
        pairs = [
            (ids[token] << _GOLD_SHIFT) + ids[other]
            for token, others in self._synonyms.items()
            for other in others
        ]
        self._bits = max(1, len(pairs).bit_length())
        buckets = self._fill_buckets(torch.tensor(pairs, dtype=torch.int64))
        self._buckets: dict[torch.device, Tensor] = {buckets.device: buckets}

    def _bucket(self, pairs: Tensor) -> Tensor:
        """The bucket of each pair: the upper bits of a product modulo 2^64."""
        return ((pairs * _HASH_MULTIPLIER) >> (64 - self._bits)) & ((1 << self._bits) - 1)

    def _fill_buckets(self, pairs: Tensor) -> Tensor:
        """A hash table, buckets x pairs of the fullest bucket; free places hold the impossible pair -1.

        One look at one short row answers a query, where a binary search would wait for memory 16 times.
        """
        bucket, order = self._bucket(pairs).sort()
        sizes = torch.bincount(bucket, minlength=1 << self._bits)
        place = torch.arange(len(pairs)) - (sizes.cumsum(0) - sizes)[bucket]
        table = torch.full((1 << self._bits, max(1, int(sizes.max()))), -1)
        table[bucket, place] = pairs[order]
        return table

    @classmethod
    def load(
        cls, path: str | Path, dictionary: Dictionary | Sequence[str], allow_mismatch: bool = False
    ) -> "SynonymTable":
        """Read a table for a vocabulary.

        Args:
            path: the table file.
            dictionary: a fairseq dictionary, or the symbols in the order of their ids.
            allow_mismatch: accept a table of another vocabulary and drop the tokens that this one lacks,
                with a line in the log; otherwise both are errors.

        Raises UserError for every fault of the file, see :func:`read_table`.
        """
        symbols = list(dictionary.symbols if hasattr(dictionary, "symbols") else dictionary)
        header, synonyms = read_table(path)
        remedy = (
            "build a table for this vocabulary with fairseq-tn synonyms build, "
            "or give --allow-vocabulary-mismatch"
        )
        recorded = header.pop("vocabulary", None)
        if recorded is not None and recorded != vocabulary_digest(symbols):
            if not allow_mismatch:
                raise UserError(f"the synonym table {path} was made for another vocabulary; {remedy}")
            logger.warning("the synonym table %s was made for another vocabulary", path)
        known = set(symbols)
        used = set(synonyms).union(*synonyms.values())
        lacking = used - known
        if lacking:
            examples = ", ".join(sorted(lacking)[:5])
            if not allow_mismatch:
                raise UserError(
                    f"the vocabulary lacks {len(lacking):,} of the {len(used):,} tokens of the synonym table "
                    f"{path} (such as {examples}); {remedy}"
                )
            before = sum(map(len, synonyms.values()))
            kept = ((token, [o for o in others if o in known]) for token, others in synonyms.items())
            synonyms = {token: others for token, others in kept if token in known and others}
            after = sum(map(len, synonyms.values()))
            logger.warning(
                "the vocabulary lacks %s of the %s tokens of the synonym table %s (such as %s); "
                "%s of its %s pairs are dropped",
                *(f"{len(lacking):,}", f"{len(used):,}", path, examples),
                *(f"{before - after:,}", f"{before:,}"),
            )
            if not synonyms:
                raise UserError(
                    f"no pair of the synonym table {path} lies in this vocabulary; "
                    "build a table for it with fairseq-tn synonyms build"
                )
        return cls(symbols, synonyms, header)

    def save(self, path: str | Path) -> None:
        """Write the table file, header first; nothing half-written is left behind."""
        try:
            with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"# {name}: {value}\n" for name, value in self.header.items())
                file.writelines(f"{token}\t{' '.join(others)}\n" for token, others in self._synonyms.items())
        except OSError as error:
            raise UserError(f"cannot write the synonym table {path}: {error.strerror}") from None

    def contains(self, gold: Tensor, predicted: Tensor) -> Tensor:
        """Whether each predicted token is a synonym of its gold token.

        Args:
            gold, predicted: integer ids of one shape and device; ids outside the vocabulary are allowed.

        Returns a bool tensor of the same shape and device. Nothing waits for the device, apart from the
        first call on it, which copies the table there.
        """
        table = self._buckets.get(gold.device)
        if table is None:
            table = self._buckets[gold.device] = next(iter(self._buckets.values())).to(gold.device)
        pairs = (gold.long() << _GOLD_SHIFT) + predicted.long()
        rows = table.index_select(0, self._bucket(pairs).reshape(-1)).view(*pairs.shape, table.shape[1])
        # a negative id would make a negative pair, of which -1 stands for free places
        return (rows == pairs.unsqueeze(-1)).any(-1) & (pairs >= 0)

    def synonyms(self, token: str) -> list[str]:
        """The synonyms of a token, the best first; empty when it has none."""
        return list(self._synonyms.get(token, ()))

    @property
    def tokens(self) -> list[str]:
        """The tokens that have synonyms."""
        return list(self._synonyms)

    @property
    def num_pairs(self) -> int:
        """The number of (gold, predicted) pairs."""
        return sum(map(len, self._synonyms.values()))

    def __len__(self) -> int:
        """The number of tokens that have synonyms."""
        return len(self._synonyms)
