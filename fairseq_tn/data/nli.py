"""Triples of natural language inference, for supervised SimCSE: read, and binarised as three aligned splits."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, indexed_dataset

from fairseq_tn.data.dictionary import UNKNOWN
from fairseq_tn.data.encode import Encoder
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_folder

# premise, entailed and contradicting hypothesis, as the file of SimCSE's authors names them
COLUMNS = ("sent0", "sent1", "hard_neg")
# the same in the files of SNLI and MultiNLI, where each hypothesis has a line
PAIR_COLUMNS = ("gold_label", "sentence1", "sentence2")
# what stands behind the name of the premises' split
ENDINGS = ("", ".entailed", ".contradicting")
_AT_A_TIME = 2000

Triple = tuple[str, str, str]


@dataclass
class TripleCounts:
    """What was written of a split: ``triples``, sentences ``truncated``, ``tokens`` and how many are ``unknown``.

    ``incomplete``: premises of labelled pairs left out for want of an entailed or a contradicting hypothesis.
    """

    triples: int = 0
    incomplete: int = 0
    truncated: int = 0
    tokens: int = 0
    unknown: int = 0


def read_triples(path: str | Path, counts: TripleCounts | None = None) -> Iterator[tuple[int, Triple]]:
    """Yield (line, triple) of a UTF-8 file.

    ``.csv``: with the header ``sent0,sent1,hard_neg``, as SimCSE's authors publish theirs; ``.jsonl``: an object a
    line with these keys; else three columns separated by tabs, with this header or without. Blank lines are left out.

    Or labelled pairs, the official files of SNLI and MultiNLI (``.jsonl``, ``.txt``, GLUE's ``train.tsv``), told by
    ``gold_label`` in their first line: of each premise, the first entailed hypothesis makes a triple with the first
    contradicting one, the second with the second, and so on (Gao et al., 2021, section 4). The line is that of the
    entailed one.

    Args:
        path: the file.
        counts: ``incomplete`` is counted there.

    Raises:
        UserError: the file is missing, empty or not UTF-8, or a line has not three sentences
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = _rows(stream, path, counts or TripleCounts())
            number = 0
            for number, row in rows:
                sentences = tuple(" ".join(text.split()) for text in row)
                if len(sentences) != len(COLUMNS) or not all(sentences):
                    raise UserError(
                        f"{path}, line {number}: {sum(map(bool, sentences))} sentences where there must be a premise, "
                        "an entailed and a contradicting hypothesis"
                    )
                first, second, third = sentences
                yield number, (first, second, third)
            if not number:
                raise UserError(
                    f"{path} holds no triples: a premise with an entailed and a contradicting hypothesis"
                )
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8; convert it, for example with iconv") from None


def _rows(stream: Any, path: Path, counts: TripleCounts) -> Iterator[tuple[int, list[str]]]:
    if path.suffix == ".csv":
        return _csv_rows(stream, path)
    labelled = PAIR_COLUMNS[0] in stream.readline()
    stream.seek(0)
    if path.suffix == ".jsonl":
        return (
            _joined(_json_rows(stream, path, PAIR_COLUMNS), counts) if labelled else _json_rows(stream, path)
        )
    return _joined(_labelled_tab_rows(stream, path), counts) if labelled else _tab_rows(stream, path)


@dataclass
class _Hypotheses:
    """Of one premise, with their lines."""

    entailment: list[tuple[int, str]] = field(default_factory=list)
    contradiction: list[tuple[int, str]] = field(default_factory=list)


def _joined(pairs: Iterable[tuple[int, list[str]]], counts: TripleCounts) -> Iterator[tuple[int, list[str]]]:
    """Triples of labelled pairs, in the order of the premises.

    Annotators who did not agree (label ``-``) and neutral hypotheses give nothing, nor do empty sentences, of which
    MultiNLI has some.
    """
    premises: dict[str, _Hypotheses] = {}
    for number, (label, premise, hypothesis) in pairs:
        if premise.strip():
            found = premises.setdefault(premise, _Hypotheses())
            if label in ("entailment", "contradiction") and hypothesis.strip():
                getattr(found, label).append((number, hypothesis))
    for premise, found in premises.items():
        counts.incomplete += not (found.entailment and found.contradiction)
        for (number, entailed), (_, contradicting) in zip(
            found.entailment, found.contradiction, strict=False
        ):
            yield number, [premise, entailed, contradicting]


def _csv_rows(stream: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    # strict: a quote that is never closed must not swallow the lines after it
    reader = csv.reader(stream, strict=True)
    try:
        header = next(reader, [])
        if missing := [name for name in COLUMNS if name not in header]:
            raise UserError(
                f"{path} has no column {missing[0]!r}; its first line must be {','.join(COLUMNS)}"
            )
        places = [header.index(name) for name in COLUMNS]
        for row in reader:
            if row and len(row) != len(header):
                raise UserError(
                    f"{path}, line {reader.line_num}: {len(row)} columns where there must be {len(header)}; sentences "
                    "with commas need quotes"
                )
            if row:
                yield reader.line_num, [row[place] for place in places]
    except csv.Error as error:
        raise UserError(
            f"{path}, line {reader.line_num}: {error}; sentences with quotes need quotes around them, and each quote "
            "within twice"
        ) from None


def _json_rows(stream: Any, path: Path, keys: tuple[str, ...] = COLUMNS) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            row = [content[name] for name in keys]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}, line {number}: not an object with the keys {', '.join(keys)} ({error})"
            ) from None
        if strange := [name for name, text in zip(keys, row, strict=True) if not isinstance(text, str)]:
            raise UserError(f"{path}, line {number}: {strange[0]} is no text")
        yield number, row


def _tab_rows(stream: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(stream, start=1):
        row = line.rstrip("\r\n").split("\t")
        if line.strip() and not (number == 1 and tuple(row) == COLUMNS):
            yield number, row


def _labelled_tab_rows(stream: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    header = stream.readline().rstrip("\r\n").split("\t")
    if missing := [name for name in PAIR_COLUMNS if name not in header]:
        raise UserError(
            f"{path} has labels but no column {missing[0]!r}; its columns are {', '.join(header)}"
        )
    places = [header.index(name) for name in PAIR_COLUMNS]
    for number, line in enumerate(stream, start=2):
        row = line.rstrip("\r\n").split("\t")
        if not line.strip():
            continue
        if len(row) <= max(places):
            raise UserError(
                f"{path}, line {number}: {len(row)} columns where the first line has {len(header)}"
            )
        yield number, [row[place] for place in places]


def write_folder(
    files: Mapping[str, str],
    encoder: Encoder,
    output: str | Path,
    max_length: int,
    progress: Callable[[int], Any] = lambda triples: None,
) -> dict[str, TripleCounts]:
    """Write what ``--views nli`` reads: ``dict.txt`` and, of each split, three binarised files of as many lines.

    Args:
        files: split -> file of triples.
        encoder: writes the symbols of the model's dictionary.
        output: a new or empty folder.
        max_length: most tokens of a sentence, ``<s>`` and ``</s>`` included.
        progress: is told how many more triples are done.

    Raises:
        UserError: see :func:`read_triples`; the tokenizer has no dictionary or leaves nothing of a sentence, or
            ``output`` holds something
    """
    output = Path(output)
    if output.is_file() or (output.is_dir() and any(output.iterdir())):
        raise UserError(f"--output {output} is there already; name a new folder")
    text = encoder.dict_text()
    if text is None:
        raise UserError(
            "this tokenizer has no vocabulary of its own; give the dict.txt of the model with --dict"
        )
    found = {}
    with atomic_folder(output) as folder:
        (folder / "dict.txt").write_text(text, encoding="utf-8", newline="\n")
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        for split, path in files.items():
            found[split] = _write_split(folder / split, path, encoder, dictionary, max_length - 2, progress)
    return found


def _write_split(
    prefix: Path,
    path: str,
    encoder: Encoder,
    dictionary: Dictionary,
    room: int,
    progress: Callable[[int], Any],
) -> TripleCounts:
    counts, ids, end = TripleCounts(), dictionary.indices, [dictionary.eos()]
    names = [f"{prefix}{ending}" for ending in ENDINGS]
    builders = [
        indexed_dataset.make_builder(
            indexed_dataset.data_file_path(name), impl="mmap", vocab_size=len(dictionary)
        )
        for name in names
    ]
    triples = read_triples(path, counts)
    while part := list(islice(triples, _AT_A_TIME)):
        columns = zip(*(triple for _, triple in part), strict=True)
        for builder, column in zip(builders, columns, strict=True):
            for (number, _), symbols in zip(part, encoder.encode(list(column)), strict=True):
                if not symbols:
                    raise UserError(f"{path}, line {number}: the tokenizer leaves nothing of a sentence")
                kept = symbols[:room]
                builder.add_item(torch.IntTensor([ids[symbol] for symbol in kept] + end))
                counts.truncated += len(kept) < len(symbols)
                counts.tokens += len(kept)
                counts.unknown += kept.count(UNKNOWN)
        counts.triples += len(part)
        progress(len(part))
    for builder, name in zip(builders, names, strict=True):
        builder.finalize(indexed_dataset.index_file_path(name))
    return counts
