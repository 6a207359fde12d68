"""Reading and writing tagged text: CoNLL columns, or words separated by blanks (word segmentation, as in SIGHAN)."""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairseq_tn.data.tags import SEGMENTATION, SEGMENTATION_TAGS, TagError, split_tag
from fairseq_tn.errors import UserError

CONLL = "conll"
FORMATS = (CONLL, SEGMENTATION)

_BLANKS = " \t\r"
_DOCUMENT = "-DOCSTART-"
# one character, or several that are no digits, and the place in its word: the second release of Weibo NER
_PLACED = re.compile(r"(\D\D+|.)(\d+)", re.DOTALL)
_TAG = re.compile(r"O|[A-Z]-\S+")
_HALVES = re.compile("[\ud800-\udfff]")
_LOOKED_AT = 1000
# share of the lines; the reader tells where the others are
_MOST = 0.9


@dataclass(frozen=True)
class TextFormat:
    """How a file is written.

    name: one of :data:`FORMATS`.
    places: tokens carry a number, their place in a word, which is no part of them.
    """

    name: str
    places: bool = False


@dataclass
class TaggedText:
    """The sentences of a file.

    path: for messages.
    sentences: the tokens of each, one or more; of word segmentation a string, whose characters are the tokens.
    first_lines: the line of the file (from 1) that each begins in.
    names: the tags, in the order of their first occurrence.
    tags: the numbers of all tokens' tags, sentence after sentence.
    halves: how many lone halves of UTF-16 characters were read as U+FFFD.
    """

    path: Path
    sentences: list[Sequence[str]]
    first_lines: list[int]
    names: list[str]
    tags: NDArray[np.int64]
    halves: int = 0

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sentence."""
        return np.fromiter(map(len, self.sentences), np.int64, len(self.sentences))

    def place(self, position: int) -> str:
        """File and line of a token, given its number among all tokens of the file."""
        ends = np.cumsum(self.lengths)
        sentence = int(np.searchsorted(ends, position, side="right"))
        line = self.first_lines[sentence]
        if not isinstance(self.sentences[sentence], str):
            line += position - int(ends[sentence] - len(self.sentences[sentence]))
        return f"{self.path}, line {line}"

    def with_tags(self, tags: Sequence[str]) -> "TaggedText":
        """The same text with other tags, one for each token."""
        numbers: dict[str, int] = {}
        found = np.array([numbers.setdefault(tag, len(numbers)) for tag in tags], np.int64)
        return dataclasses.replace(self, names=list(numbers), tags=found)

    def check_tags(self, scheme: str) -> None:
        """Raise UserError, naming the line, if a tag is none of the scheme."""
        for number, name in enumerate(self.names):
            try:
                split_tag(name, scheme)
            except TagError as error:
                position = int(np.flatnonzero(self.tags == number)[0])
                raise UserError(f"{self.place(position)}: {error}") from None


def read_lines(path: str | Path) -> tuple[list[str], int]:
    """The lines of a UTF-8 text without their ends, and how many halves of characters were replaced by U+FFFD.

    Only line feeds end lines: other separators of Unicode may be tokens.

    Raises:
        UserError: missing, empty or not UTF-8
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    data = data.removeprefix(b"\xef\xbb\xbf")
    halves = 0
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        try:
            # the first release of Weibo NER has an emoji's two halves on lines of their own
            text, halves = _HALVES.subn("\N{REPLACEMENT CHARACTER}", data.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            number = 1 + data.count(b"\n", 0, error.start)
            raise UserError(
                f"{path}, line {number}: not UTF-8; convert the file, for example with iconv"
            ) from None
    lines = text.split("\n")
    if not any(line.strip() for line in lines):
        raise UserError(f"{path} is empty; give a file with tagged text")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines], halves


def detect_format(path: str | Path) -> TextFormat:
    """How a file is written, by its first lines.

    Raises:
        UserError: it cannot be told, or see :func:`read_lines`
    """
    lines, _ = read_lines(path)
    numbered = [
        (n, _fields(line)) for n, line in enumerate(lines[: 100 * _LOOKED_AT], 1) if not _is_blank(line)
    ]
    numbered = [(n, row) for n, row in numbered if row[0] != _DOCUMENT][:_LOOKED_AT]
    rows = [row for _, row in numbered]
    widths = Counter(len(row) for row in rows if len(row) > 1)
    if widths:
        ((width, _),) = widths.most_common(1)
        tags = [row[-1] for row in rows if len(row) == width]
        tagged = max(sum(map(bool, map(_TAG.fullmatch, tags))), sum(tag in SEGMENTATION_TAGS for tag in tags))
        if tagged > _MOST * len(rows):
            return TextFormat(CONLL, has_places(lines))
    if not any(_TAG.fullmatch(row[-1]) for row in rows):
        return TextFormat(SEGMENTATION)
    where = ""
    # columns that are ragged; of words between blanks there is no such number
    if widths and len(rows) < 2 * widths[width] and widths[width] < len(rows):
        odd, row = next(pair for pair in numbered if len(pair[1]) != width)
        where = f" (line {odd} has {len(row)} columns, most lines have {width})"
    raise UserError(
        f"{path} looks neither like CoNLL columns nor like words between blanks{where}; say which with --format"
    )


def has_places(lines: Iterable[str]) -> bool:
    """Whether every token of CoNLL lines ends in its place in a word, 0 at the beginning of each sentence."""
    first, found = True, False
    for line in lines:
        if _is_blank(line):
            first = True
            continue
        token = _fields(line)[0]
        if token == _DOCUMENT:
            continue
        match = _PLACED.fullmatch(token)
        if not match or (first and match[2] != "0"):
            return False
        first, found = False, True
    return found


def read_tagged(path: str | Path, form: TextFormat) -> TaggedText:
    """Read a file.

    Raises:
        UserError: missing, empty, not UTF-8, without a sentence, or with a ragged line (names file and line)
    """
    lines, halves = read_lines(path)
    read = _read_segmentation if form.name == SEGMENTATION else _read_conll
    text = read(Path(path), lines, form)
    text.halves = halves
    if not text.sentences:
        raise UserError(f"{path} holds no sentence; give a file with tagged text")
    return text


def _is_blank(line: str) -> bool:
    return not line.strip(_BLANKS)


def _fields(line: str) -> list[str]:
    """The columns of a line: between tabs if it has one, else between blanks."""
    if "\t" in line:
        return line.rstrip(_BLANKS).split("\t")
    # other blanks of Unicode may be tokens
    return [field for field in line.split(" ") if field]


def _read_conll(path: Path, lines: list[str], form: TextFormat) -> TaggedText:
    sentences: list[Sequence[str]] = []
    first_lines: list[int] = []
    numbers: dict[str, int] = {}
    tags: list[int] = []
    current: list[str] = []
    columns = 0
    for number, line in enumerate(lines, start=1):
        if _is_blank(line):
            current = []
            continue
        fields = _fields(line)
        if fields[0] == _DOCUMENT:
            current = []
            continue
        if len(fields) < 2:
            raise UserError(
                f"{path}, line {number}: only one column; a line is a token, blanks or a tab, and its tag"
            )
        columns = columns or len(fields)
        if len(fields) != columns:
            raise UserError(
                f"{path}, line {number}: {len(fields)} columns, where the lines before have {columns}"
            )
        token = fields[0]
        if not token:
            raise UserError(f"{path}, line {number}: no token before the tab")
        if form.places:
            match = _PLACED.fullmatch(token)
            if not match:
                raise UserError(
                    f"{path}, line {number}: the token {token!r} lacks the number that the tokens of the training "
                    "file end in"
                )
            token = match[1]
        if not current:
            sentences.append(current)
            first_lines.append(number)
        current.append(token)
        tags.append(numbers.setdefault(fields[-1], len(numbers)))
    return TaggedText(path, sentences, first_lines, list(numbers), np.array(tags, np.int64))


def _read_segmentation(path: Path, lines: list[str], form: TextFormat) -> TaggedText:
    sentences: list[Sequence[str]] = []
    first_lines: list[int] = []
    lengths: list[int] = []
    for number, line in enumerate(lines, start=1):
        words = line.split()  # full-width spaces too
        if words:
            sentences.append("".join(words))
            first_lines.append(number)
            lengths += map(len, words)
    names = list(SEGMENTATION_TAGS)
    sizes = np.array(lengths, np.int64)
    tags = np.full(int(sizes.sum()), names.index("M"))
    ends = np.cumsum(sizes)
    tags[ends - 1] = names.index("E")
    tags[ends - sizes] = names.index("B")
    tags[ends[sizes == 1] - 1] = names.index("S")
    return TaggedText(path, sentences, first_lines, names, tags)


def with_tags(path: str | Path, form: TextFormat, tags: Sequence[str]) -> Iterator[str]:
    """The lines of a file, their ends included, with other tags: what the file would be if it said ``tags``.

    Args:
        path: a file that :func:`read_tagged` accepts
        form: how it is written
        tags: of all its tokens, one after the other
    """
    lines, _ = read_lines(path)
    if form.name == SEGMENTATION:
        yield from _segmented(lines, tags)
        return
    remaining = iter(tags)
    for line in lines:
        if not _is_blank(line) and _fields(line)[0] != _DOCUMENT:
            line = line.rstrip(_BLANKS)
            line = line[: 1 + max(line.rfind("\t"), -1 if "\t" in line else line.rfind(" "))] + next(
                remaining
            )
        yield line + "\n"


def _segmented(lines: list[str], tags: Sequence[str]) -> Iterator[str]:
    separators = Counter(re.findall(r"(?<=\S)\s+(?=\S)", "\n".join(lines[:_LOOKED_AT]).replace("\n", "")))
    # a file of one word a line shows none; SIGHAN's files have two blanks
    separator = separators.most_common(1)[0][0] if separators else "  "
    cursor = 0
    for line in lines:
        sentence = "".join(line.split())
        starts = [tag in "BS" for tag in tags[cursor : cursor + len(sentence)]]
        ends = [tag in "ES" for tag in tags[cursor : cursor + len(sentence)]]
        cursor += len(sentence)
        words: list[str] = []
        for place, letter in enumerate(sentence):
            if not place or starts[place] or ends[place - 1]:
                words.append(letter)
            else:
                words[-1] += letter
        yield separator.join(words) + "\n"


def spelled(sentences: Sequence[Sequence[str]], begin: Iterable[int], end: Iterable[int]) -> list[str]:
    """The words, tokens joined, between places ``begin`` and ``end`` (exclusive) among all tokens."""
    if all(isinstance(sentence, str) for sentence in sentences):
        letters = "".join(sentences)  # type: ignore[arg-type]
        return [letters[first:last] for first, last in zip(begin, end, strict=True)]
    tokens = list(itertools.chain.from_iterable(sentences))
    return ["".join(tokens[first:last]) for first, last in zip(begin, end, strict=True)]
