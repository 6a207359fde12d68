"""Token labels for plots: fonts that have their letters, and what to write where no font has."""

from collections.abc import Iterable
from dataclasses import dataclass

_PLAIN = "DejaVu Sans"  # comes with matplotlib
_LONGEST = 14
# parts of the names of fonts with many scripts, to be looked at before the others
_BROAD = (
    "cjk",
    "noto sans sc",
    "source han",
    "wenquanyi",
    "hei",
    "song",
    "ming",
    "gothic",
    "unicode",
    "unifont",
)


@dataclass(frozen=True)
class Lettering:
    """How labels are drawn.

    families: names of fonts, for matplotlib; a letter comes from the first that has it.
    missing: letters that no installed font has, in their order.
    """

    families: list[str]
    missing: str

    def label(self, token: str, number: int, longest: int = _LONGEST) -> str:
        """The label of a token or name, cut to ``longest`` letters; its ``number`` in brackets if no font has it."""
        shown = _printable(token)
        if any(letter in self.missing for letter in shown):
            return f"({number})"
        return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def lettering(tokens: Iterable[str]) -> Lettering:
    """Find installed fonts for the letters of ``tokens``; needs matplotlib."""
    from matplotlib.font_manager import findfont, fontManager

    missing = {letter for token in tokens for letter in _printable(token)}
    missing -= _covered(findfont(_PLAIN), missing)
    families = [_PLAIN]
    fonts = {font.fname: font.name for font in fontManager.ttflist}
    broad = {path: any(part in name.lower() for part in _BROAD) for path, name in fonts.items()}
    candidates = [
        path for path in sorted(fonts, key=lambda path: (not broad[path], path)) if "LastResort" not in path
    ]
    while missing:
        best, found = "", set[str]()
        for path in candidates:
            covered = _covered(path, missing)
            if len(covered) > len(found):
                best, found = path, covered
            if found == missing:
                break
        if not found:
            break
        families.append(fonts[best])
        missing -= found
    return Lettering(families, "".join(sorted(missing)))


def _covered(path: str, letters: set[str]) -> set[str]:
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)  # get_font's would borrow letters from others
    except (OSError, RuntimeError):  # moved or broken since matplotlib listed it
        return set()
    return {letter for letter in letters if font.get_char_index(ord(letter))}


def _printable(token: str) -> str:
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in token)
