"""fairseq's ``dict.txt``: read for an encoder, checked against it, or built from what was counted."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vocabularies import FAIRSEQ_SPECIALS, MASK, is_special, read_symbols

UNKNOWN = "<unk>"
# what text must never be written as
RESERVED = frozenset({*FAIRSEQ_SPECIALS, MASK})

# the official dictionaries of some models list a few symbols that their tokenizers never write
_STRANGER_SHARE = 0.01


@dataclass(frozen=True)
class FairseqDictionary:
    """A ``dict.txt`` on disk.

    path: for messages.
    symbols: in order, without the four specials that fairseq adds by itself.
    text: the file's content.
    """

    path: Path
    symbols: tuple[str, ...]
    text: str

    @classmethod
    def load(cls, path: str | Path) -> "FairseqDictionary":
        """Read the file; raises UserError that names the file and the line."""
        symbols = read_symbols(path)[len(FAIRSEQ_SPECIALS) :]
        return cls(Path(path), tuple(symbols), Path(path).read_text(encoding="utf-8"))

    def counts(self) -> dict[str, int]:
        """The count of each symbol."""
        fields = (line.split() for line in self.text.split("\n") if line)
        return {field[0]: int(field[1]) for field in fields}

    def check(self, writes: Callable[[str], bool], tokenizer: str) -> None:
        """Raise UserError unless the symbols (but for a few) are those that a tokenizer writes.

        Args:
            writes: whether the tokenizer can write a symbol
            tokenizer: its name for the message
        """
        ordinary = [symbol for symbol in self.symbols if not is_special(symbol)]
        strangers = [symbol for symbol in ordinary if not writes(symbol)]
        if len(strangers) > _STRANGER_SHARE * len(ordinary):
            raise UserError(
                f"{self.path} is of another vocabulary than {tokenizer}, which never writes {len(strangers):,} of "
                f"its {len(ordinary):,} symbols, such as {strangers[0]}; give the tokenizer's own with --dict"
            )


def find_dictionary(given: str | Path | None, beside: str | Path) -> FairseqDictionary | None:
    """The dictionary that is given, or else the ``dict.txt`` in the folder of a tokenizer's file, or else None."""
    if given is not None:
        return FairseqDictionary.load(given)
    neighbour = Path(beside).parent / "dict.txt"
    return FairseqDictionary.load(neighbour) if neighbour.is_file() else None


def can_be_symbol(text: str) -> bool:
    """Whether fairseq reads a symbol back as ordinary text: no blank in it, none of its special symbols."""
    return text not in RESERVED and text.split() == [text]


def build_dict_text(counts: Counter[str], threshold: int = 0, nwords: int = 0) -> str:
    """The ``dict.txt`` that ``fairseq-preprocess`` would build (with ``--padding-factor 1``).

    Args:
        counts: how often each symbol occurs
        threshold: fewest occurrences of a symbol
        nwords: most symbols, fairseq's four specials included; 0: all
    """
    ordinary = sorted((symbol for symbol in counts if symbol not in RESERVED), key=lambda s: (-counts[s], s))
    if nwords > 0:
        ordinary = ordinary[: max(0, nwords - len(FAIRSEQ_SPECIALS))]
    return dict_text((symbol, counts[symbol]) for symbol in ordinary if counts[symbol] >= threshold)


def dict_text(counts: Iterable[tuple[str, int]]) -> str:
    """Lines of ``symbol count``."""
    return "".join(f"{symbol} {count}\n" for symbol, count in counts)
