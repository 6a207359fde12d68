"""Encoding a corpus: one sentence a line, a blank line between documents, in and out."""

import contextlib
import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from fairseq_tn.data.dictionary import UNKNOWN, build_dict_text
from fairseq_tn.data.offsets import AlignedSymbols
from fairseq_tn.data.parallel import ordered_map
from fairseq_tn.data.segmented_text import WORDS, join_words, word_lengths
from fairseq_tn.data.streams import InputStream
from fairseq_tn.data.text import TextReader
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_path


class Encoder(Protocol):
    """A kind of tokenizer. It must pickle, and write neither fairseq's special symbols (but ``<unk>``) nor blanks."""

    def encode(self, lines: list[str]) -> list[list[str]]:
        """Return the symbols of each line."""

    def encode_with_offsets(self, lines: list[str]) -> list[AlignedSymbols]:
        """Return the same symbols, and the characters of the line that each stands for."""

    def dict_text(self) -> str | None:
        """The content of ``dict.txt``; None: the vocabulary is what the corpus turns out to hold."""

    def describe(self) -> str:
        """One line for people."""


@dataclasses.dataclass
class EncodingCounts:
    """What was written: sentences, documents, tokens, of them ``<unk>``, and lines without a token (left out).

    ``words`` are counted where the text is said to be segmented.
    """

    sentences: int = 0
    documents: int = 0
    tokens: int = 0
    unknown: int = 0
    dropped: int = 0
    words: int = 0


def encode_corpus(
    encoder: Encoder,
    inputs: Sequence[str | Path],
    output: str | Path,
    workers: int = 1,
    progress: Callable[[int], Any] = lambda position: None,
    reader: TextReader | None = None,
    threshold: int = 0,
    nwords: int = 0,
    segmented: bool = False,
) -> EncodingCounts:
    """Encode UTF-8 files (plain, gzip or bzip2) into ``output`` and write ``dict.txt`` beside it.

    Each sentence that ``reader`` gives (by default: each line) gives one line, symbols joined by spaces; blank
    lines stay. A line that has text but no token (control characters only) is left out, since an empty line
    would end the document. The end of a file ends its document. ``progress`` is told how many bytes of the
    inputs are read. ``threshold`` and ``nwords`` limit a dictionary that is built from the text (see
    :func:`~fairseq_tn.data.dictionary.build_dict_text`). ``segmented``: blanks part the text into words; how many
    tokens each word has is written to ``output`` + ``.words`` (see :mod:`fairseq_tn.data.segmented_text`).

    Raises UserError for a missing, empty or damaged file, for text that is not UTF-8 or that ``reader`` refuses
    (with the line), for a ``dict.txt`` of another vocabulary beside ``output``, and for limits that leave a built
    dictionary without a word. Nothing is left behind then.
    """
    output = Path(output)
    dictionary = output.parent / "dict.txt"
    words = output.with_name(output.name + WORDS) if segmented else None
    _check_output(output, dictionary, encoder, inputs)
    if words is not None:
        _check_is_no_input(words, inputs)
    counts = EncodingCounts()
    symbols: Counter[str] = Counter()
    context = _Context(encoder, reader or TextReader(), segmented)
    with contextlib.ExitStack() as written:
        # all appear, or none
        files = [
            written.enter_context(open(written.enter_context(atomic_path(path)), "wb"))
            for path in (output, words)
            if path is not None
        ]
        in_document = False
        path, found = Path(), 0
        for block in ordered_map(_encode_block, _blocks(inputs), workers, context):
            if block.starts_file:
                if path != Path():
                    _check_text(path, found)
                if in_document:
                    for file in files:
                        file.write(b"\n")
                    in_document = False
                path, found = block.path, 0
            found += block.counts.sentences
            _add(counts, block.counts)
            symbols.update(block.symbols)
            counts.documents += block.starts_inside and not in_document
            in_document = in_document if block.ends_inside is None else block.ends_inside
            for file, content in zip(files, (block.text, block.words), strict=False):
                file.write(content)
            progress(block.position)
        _check_text(path, found)
        text = encoder.dict_text()
        if text is None:
            text = build_dict_text(symbols, threshold, nwords)
            if not text:
                raise UserError(
                    "no word of the text is left for dict.txt; lower --threshold or raise --nwords (fairseq's four "
                    "special symbols count too)"
                )
            kept = {line.rsplit(" ", 1)[0] for line in text.split("\n")}
            counts.unknown = sum(count for symbol, count in symbols.items() if symbol not in kept)
        if not (dictionary.exists() and dictionary.read_text(encoding="utf-8") == text):
            temporary_dictionary = written.enter_context(atomic_path(dictionary))
            temporary_dictionary.write_text(text, encoding="utf-8", newline="\n")
    return counts


def _check_output(output: Path, dictionary: Path, encoder: Encoder, inputs: Sequence[str | Path]) -> None:
    if output.is_dir():
        raise UserError(
            f"{output} is a folder; --output takes the name of a file, such as {output / 'train'}"
        )
    if output.name == dictionary.name:
        raise UserError(f"{output}: dict.txt is the dictionary's name; choose another --output")
    _check_is_no_input(output, inputs)
    text = encoder.dict_text()
    if dictionary.is_dir():
        raise UserError(
            f"{dictionary} is a folder, where the dictionary is to be written; choose another folder"
        )
    if text is None and dictionary.exists():
        raise UserError(
            f"{dictionary} exists; give it with --dict to write its words, or remove it to build a new one"
        )
    if text is not None and dictionary.is_file():
        try:
            present = [line.rsplit(" ", 1)[0] for line in dictionary.read_text(encoding="utf-8").split("\n")]
        except UnicodeDecodeError:
            present = []
        if present != [line.rsplit(" ", 1)[0] for line in text.split("\n")]:
            raise UserError(
                f"{dictionary} is of another vocabulary; choose another folder for --output, or remove it"
            )


def _check_is_no_input(written: Path, inputs: Sequence[str | Path]) -> None:
    for path in inputs:
        if written.exists() and os.path.exists(path) and os.path.samefile(written, path):
            raise UserError(f"{written} is an input too; choose another --output")


def _check_text(path: Path, sentences: int) -> None:
    if not sentences:
        raise UserError(f"{path} holds no text; give a file with one sentence a line")


def _add(total: EncodingCounts, more: EncodingCounts) -> None:
    for field in dataclasses.fields(EncodingCounts):
        setattr(total, field.name, getattr(total, field.name) + getattr(more, field.name))


@dataclasses.dataclass(frozen=True)
class _Context:
    """What every process gets once."""

    encoder: Encoder
    reader: TextReader
    segmented: bool


@dataclasses.dataclass
class _InputBlock:
    path: Path
    line: int
    data: bytes
    position: int


@dataclasses.dataclass
class _EncodedBlock:
    """``counts.documents`` are those that start after a blank line of this block."""

    path: Path
    text: bytes
    words: bytes  # of segmented text
    position: int
    starts_file: bool
    counts: EncodingCounts
    symbols: Counter[str]  # counted where the dictionary is built from the text
    starts_inside: bool  # the first line written is a sentence
    ends_inside: bool | None  # the last line written is a sentence; None: no line


def _blocks(inputs: Sequence[str | Path]) -> Iterator[_InputBlock]:
    done = 0
    for path in inputs:
        with InputStream(path) as stream:
            for line, data in stream.blocks():
                if line == 1:
                    data = data.removeprefix(b"\xef\xbb\xbf")
                yield _InputBlock(Path(path), line, data, done + stream.position())
            done += stream.size


def _encode_block(context: _Context, block: _InputBlock) -> _EncodedBlock:
    try:
        text = block.data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = block.line + block.data.count(b"\n", 0, error.start)
        raise UserError(
            f"{block.path}, line {number}: not UTF-8; convert the file, for example with iconv"
        ) from None
    lines = context.reader.lines(text, block.path, block.line)
    encoded = _encode_lines(context, list(filter(None, lines)))
    counts = EncodingCounts()
    seen: Counter[str] = Counter()
    counting = context.encoder.dict_text() is None
    written: list[str] = []
    words: list[str] = []
    for line in lines:
        if not line:
            written.append("")
            words.append("")
            continue
        symbols, lengths = next(encoded)
        if not symbols:
            counts.dropped += 1
            continue
        counts.sentences += 1
        counts.tokens += len(symbols)
        counts.unknown += symbols.count(UNKNOWN)
        if counting:
            seen.update(symbols)
        counts.documents += bool(written) and not written[-1]
        written.append(" ".join(symbols))
        counts.words += len(lengths)
        words.append(" ".join(map(str, lengths)))
    return _EncodedBlock(
        block.path,
        _to_bytes(written),
        _to_bytes(words),
        block.position,
        block.line == 1,
        counts,
        seen,
        starts_inside=bool(written and written[0]),
        ends_inside=bool(written[-1]) if written else None,
    )


def _encode_lines(context: _Context, lines: list[str]) -> Iterator[tuple[list[str], list[int]]]:
    """Yield the symbols of each line and, of segmented text, how many of them each word has."""
    if not context.segmented:
        yield from ((symbols, []) for symbols in context.encoder.encode(lines))
        return
    joined = list(map(join_words, lines))
    aligned = context.encoder.encode_with_offsets([text for text, _ in joined])
    for line, (_, begins) in zip(aligned, joined, strict=True):
        yield line.symbols, word_lengths(line, begins) if line.symbols else []


def _to_bytes(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()
