"""fairseq's ``dict.txt``: read for an encoder, checked against it, or built from what was counted."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vocabularies import FAIRSEQ_SPECIALS, MASK, is_special, parse_symbols

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
        text = _read_text(path)
        symbols = parse_symbols(text, path)[len(FAIRSEQ_SPECIALS) :]
        return cls(Path(path), tuple(symbols), text)

    @classmethod
    def of_counts(cls, path: str | Path, counts: Mapping[str, int]) -> "FairseqDictionary":
        """The dictionary of counted symbols; those that fairseq keeps for itself are left out."""
        kept = {symbol: count for symbol, count in counts.items() if can_be_symbol(symbol)}
        return cls(Path(path), tuple(kept), dict_text(kept.items()))

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


def read_counts(path: str | Path) -> dict[str, int]:
    """The lines ``symbol count`` of ``subword-nmt get-vocab``; raises UserError that names the file and the line."""
    counts: dict[str, int] = {}
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        fields = line.split()
        if fields and (len(fields) != 2 or not fields[1].isdecimal()):
            raise UserError(
                f"{path}, line {number}: expected 'symbol count', as subword-nmt get-vocab writes"
            )
        if fields:
            counts[fields[0]] = int(fields[1])
    if not counts:
        raise UserError(f"the vocabulary {path} is empty; give the output of subword-nmt get-vocab")
    return counts


def find_dictionary(given: str | Path | None, beside: str | Path) -> FairseqDictionary | None:
    """The dictionary that is given, or else the ``dict.txt`` in the folder of a tokenizer's file, or else None."""
    if given is not None:
        return FairseqDictionary.load(given)
    neighbour = Path(beside).parent / "dict.txt"
    return FairseqDictionary.load(neighbour) if neighbour.is_file() else None


def _read_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the vocabulary {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"the vocabulary {path} is not UTF-8 text; give a fairseq dict.txt") from None


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
