"""Files of word vectors: word2vec's text and binary format, GloVe's text, fastText's ``.vec``, plain or gzip.

Only the vectors that are asked for are kept while the file streams by. gensim, which reads the same files, holds
all of them and takes minutes for text, so that the vectors people use (3 million words, 300 dimensions) would need
more memory than many machines have for the sake of some ten thousand rows.
"""

import contextlib
import gzip
import io
import itertools
import logging
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fairseq_tn.errors import UserError

logger = logging.getLogger(__name__)

FORMATS = "word2vec's text or binary format, GloVe's text or fastText's .vec, plain or gzip"

_GZIP = b"\x1f\x8b"
# files that are often taken for vectors: their first bytes, and what to do
_OTHERS = {
    b"PK\x03\x04": "is a zip archive; unpack it and give the file in it (a checkpoint: with --source model)",
    b"BZh": "is compressed by bzip2; unpack it with bunzip2",
    b"\xba\x16\x4f\x2f": "is a model of fastText; give the .vec file that belongs to it",
    b"\x80": "is a pickled object, as gensim's save() writes; write it with gensim's save_word2vec_format()",
    b"\x89HDF": "is an HDF5 file; give a file of vectors",
    b"\x93NUMPY": "is a numpy array without words; give a file of vectors",
}
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r"))
_LINE_LIMIT = 1 << 20  # bytes; what is longer is no line of words and numbers
_WORD_LIMIT = 1 << 16
_CHUNK = 1 << 20


@dataclass(frozen=True)
class WordVectors:
    """Vectors of some words of a file.

    words: as the file writes them, in its order, each once; the files list frequent words first.
    vectors: len(words) x D, float32, finite, of any length.
    """

    words: list[str]
    vectors: NDArray[np.float32]


def read_word_vectors(path: str | Path, wanted: Callable[[str], bool], progress: bool = False) -> WordVectors:
    """Read the vectors of the words for which ``wanted``, asked in the file's order, is true.

    The format is seen from the content: a first line of two integers is a header, and what follows it is text if
    its first line consists of a word and numbers. Of a word that occurs twice the first vector counts; words that
    hold blanks (GloVe's 840B file has some) are skipped; both are told by one warning.

    Raises UserError, which names file and line, for a file in no such format or with an undefined number in a
    wanted vector, a line of another dimension, a header that promises another number of words.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw:
            head = raw.read(8)
            for magic, text in _OTHERS.items():
                if head.startswith(magic):
                    raise UserError(f"{path} {text}")
            raw.seek(0)
            bar = tqdm(
                total=path.stat().st_size,
                desc="vectors",
                unit="B",
                unit_scale=True,
                leave=False,
                delay=1,
                disable=not progress,
            )
            with bar:
                content = gzip.GzipFile(fileobj=raw) if head.startswith(_GZIP) else raw
                reader = _Reader(path, wanted, advance=lambda: bar.update(raw.tell() - bar.n))
                return reader.read(io.BufferedReader(cast(io.RawIOBase, content), _CHUNK))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path} is damaged or a part is missing; get the file again") from None
    except OSError as error:
        raise UserError(
            f"cannot read the vectors {path}: {error.strerror}; give a file in {FORMATS}"
        ) from None


class _Reader:
    """One pass through a file; collects what is wanted."""

    def __init__(self, path: Path, wanted: Callable[[str], bool], advance: Callable[[], object]):
        self.path = path
        self.wanted = wanted
        self.advance = advance
        # word -> its number in the file, a line or (in binary files) a record
        self.places: dict[str, int] = {}
        self.vectors: list[NDArray[np.float32]] = []
        self.duplicates = 0
        self.with_blanks = 0
        self.unit = "line"

    def read(self, file: io.BufferedReader) -> WordVectors:
        first = file.readline(_LINE_LIMIT).removeprefix(b"\xef\xbb\xbf")
        if not first:
            raise UserError(f"{self.path} is empty; give a file in {FORMATS}")
        header = first.split()
        if len(header) == 2 and all(field.isdigit() for field in header):
            count, dimension = map(int, header)
            if not count or not dimension:
                self._fail(1, f"a header of {count} words in {dimension} dimensions; give a file of vectors")
            if _is_text(file.peek(_CHUNK)):
                self._read_text(file, dimension, 2, count)
            else:
                self._read_binary(file, dimension, count)
        else:
            dimension = _dimension(first)
            if not dimension:
                self._fail(1, f"expected a word and its numbers; give a file in {FORMATS}")
            self._read_text(itertools.chain([first], file), dimension, 1, None)
        return self._finish(dimension)

    def _fail(self, number: int, problem: str) -> NoReturn:
        raise UserError(f"{self.path}, {self.unit} {number:,}: {problem}") from None

    def _read_text(self, lines: Iterable[bytes], dimension: int, start: int, count: int | None) -> None:
        found = 0
        number = start - 1
        for number, line in enumerate(lines, start):
            body = line.rstrip(b" \r\n")
            if not body:
                continue
            found += 1
            if body.count(b" ") == dimension:
                end = body.index(b" ")
                if self._wants(body[:end], number):
                    self.vectors.append(self._numbers(body[end + 1 :], number))
            elif _has_blank_in_word(body, dimension):
                self.with_blanks += 1
            else:
                self._fail(
                    number,
                    f"expected a word and {dimension} numbers, found {body.count(b' ')} fields after the word; "
                    "repair the line or get the file again",
                )
            if not number % 1024:
                self.advance()
        if count is not None and found != count:
            self._fail(
                number if found > count else number + 1,
                f"the file holds {found:,} words, its first line promises {count:,}; get the file again or "
                "correct that line",
            )

    def _read_binary(self, file: io.BufferedReader, dimension: int, count: int) -> None:
        self.unit = "word"
        buffer = b""
        size = np.dtype(np.float32).itemsize * dimension
        start = 0
        for number in range(1, count + 1):
            while True:
                blank = buffer.find(b" ", start)
                if blank >= 0 and len(buffer) - blank > size:
                    break
                more = file.read(_CHUNK)
                if not more or (blank < 0 and len(buffer) - start > _WORD_LIMIT):
                    self._fail(
                        number,
                        f"the file ends, its first line promises {count:,} words in {dimension} dimensions; get "
                        "the file again",
                    )
                self.advance()
                buffer, start = buffer[start:] + more, 0
            # the original tool ends every vector with a line break, others do not
            word = buffer[start:blank].lstrip(b"\n")
            if word.translate(None, _CONTROL) != word:
                self._fail(
                    number,
                    f"not a word but other bytes; the file is damaged or has not the {dimension} dimensions "
                    "that its first line promises",
                )
            start = blank + 1 + size
            if self._wants(word, number):
                self.vectors.append(np.frombuffer(buffer[blank + 1 : start], dtype="<f4"))
        if buffer[start:].strip(b"\n") or file.read(1).strip(b"\n"):
            self._fail(count, f"the file goes on, its first line promises {count:,} words; correct that line")

    def _wants(self, word: bytes, number: int) -> bool:
        # letters that the original tool cut in two match no word
        text = word.decode("utf-8", "replace")
        if text in self.places:
            self.duplicates += 1
            return False
        if not self.wanted(text):
            return False
        self.places[text] = number
        return True

    def _numbers(self, text: bytes, number: int) -> NDArray[np.float32]:
        values = text.split(b" ")
        with np.errstate(over="ignore"):
            try:
                return np.array([*map(float, values)]).astype(np.float32)
            except ValueError:
                wrong = next(value for value in values if not _is_number(value))
                self._fail(number, f"{wrong.decode('utf-8', 'replace')!r} is not a number; repair the line")

    def _finish(self, dimension: int) -> WordVectors:
        vectors = np.stack(self.vectors) if self.vectors else np.empty((0, dimension), np.float32)
        words = [*self.places]
        for index in np.flatnonzero(~np.isfinite(vectors).all(1))[:1]:
            self._fail(
                self.places[words[index]],
                f"the vector of {words[index]!r} holds an infinite or undefined number; get the file again",
            )
        if self.duplicates:
            logger.warning(
                "%s repeats %s of the vocabulary's words; their first vectors count",
                self.path,
                f"{self.duplicates:,}",
            )
        if self.with_blanks:
            logger.warning("%s: %s words with blanks are skipped", self.path, f"{self.with_blanks:,}")
        return WordVectors(words, vectors)


def _is_number(field: bytes) -> bool:
    with contextlib.suppress(ValueError):
        float(field)
        return True
    return False


def _dimension(line: bytes) -> int:
    """How many numbers end a line; its first field is a word even if it is a number."""
    fields = line.rstrip(b" \r\n").split(b" ")
    numbers = sum(1 for _ in itertools.takewhile(_is_number, reversed(fields)))
    return min(numbers, len(fields) - 1)


def _is_text(sample: bytes) -> bool:
    """Whether what follows a header is text; with a faulty first line it is, unless there are control characters."""
    fields = sample.partition(b"\n")[0].rstrip(b" \r").split(b" ")
    if len(fields) > 1 and all(map(_is_number, fields[1:])):
        return True
    return sample.translate(None, _CONTROL) == sample


def _has_blank_in_word(body: bytes, dimension: int) -> bool:
    """Whether a line of too many fields is a word with blanks and ``dimension`` numbers.

    If all that is too much are numbers, the line has another dimension.
    """
    fields = body.split(b" ")
    surplus, numbers = fields[1:-dimension], fields[-dimension:]
    return bool(surplus) and not all(map(_is_number, surplus)) and all(map(_is_number, numbers))
