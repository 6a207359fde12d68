"""Turning SQuAD files into what ``--task squad`` reads: windows of contexts, each with its question.

The data folder holds ``dict.txt``, ``squad.json`` (settings and counts), and of each split

- ``SPLIT.bin``, ``SPLIT.idx``: the windows, ``<s> question </s> part of the context </s>``, in fairseq's memory-mapped
  form;
- ``SPLIT.windows.npy``: an array of :data:`WINDOW`, one for each;
- ``SPLIT.jsonl``: a line for each paragraph: ``context``, ``begin`` and ``end`` (the characters of its symbols, see
  :class:`~fairseq_tn.data.offsets.AlignedSymbols`) and ``questions`` (``id question answers impossible``).
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset

from fairseq_tn.data.dictionary import UNKNOWN
from fairseq_tn.data.encode import Encoder
from fairseq_tn.data.offsets import AlignedSymbols
from fairseq_tn.data.squad import Paragraph, Question, read_squad
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_folder

METADATA = "squad.json"
# question: number of the question in the split; offset: place of the first token of the context in the window;
# first, number: which tokens of the context it holds; start, end: places of the answer's first and last token in the
# window, 0 if the answer is not in it, -1 if it is not known
WINDOW = np.dtype([(name, np.int32) for name in ("question", "offset", "first", "number", "start", "end")])
# <s>, and the two </s>
SPECIALS = 3
_UNKNOWN_ANSWER = -1
# a file whose offsets count something else than characters goes wrong in most answers
_MISPLACED_SHARE = 0.1
_ENCODED_AT_A_TIME = 256
# a line of text never holds these
_LINE_BREAKS = str.maketrans("\r\n", "  ")


@dataclass(frozen=True)
class WindowSettings:
    """How contexts are cut.

    max_length: most tokens of a window, special tokens and question included.
    stride: by how many tokens of the context a window begins after the one before.
    max_query_length: most tokens of a question; longer ones are cut at their end.
    """

    max_length: int = 384
    stride: int = 128
    max_query_length: int = 64

    def check(self) -> None:
        """Raise UserError if windows would leave out a part of the context."""
        room = self.max_length - self.max_query_length - SPECIALS
        if room < 1:
            raise UserError(
                f"--max-length {self.max_length} leaves no room for the context beside --max-query-length "
                f"{self.max_query_length} and {SPECIALS} special tokens; raise it"
            )
        if self.stride > room:
            raise UserError(
                f"--stride {self.stride} is longer than the {room} tokens of a context that a window can hold "
                f"(--max-length {self.max_length} less --max-query-length {self.max_query_length} and {SPECIALS} "
                "special tokens): parts of it would be in no window; lower it"
            )


@dataclass
class SplitCounts:
    """What became of a split.

    impossible: unanswerable questions. windows: of all questions. longest: tokens of the longest window.
    cut_questions: longer than --max-query-length. misplaced: answers that do not stand at their offset.
    first_misplaced: the id of the first one's question. unaligned: answers without a token. dropped: questions left
    out because no answer was left (training only). inexact: answers that end within a token, so that their tokens
    say more. tokens, unknown: of the contexts.
    """

    paragraphs: int = 0
    questions: int = 0
    impossible: int = 0
    windows: int = 0
    longest: int = 0
    cut_questions: int = 0
    answers: int = 0
    misplaced: int = 0
    first_misplaced: str = ""
    unaligned: int = 0
    inexact: int = 0
    dropped: int = 0
    tokens: int = 0
    unknown: int = 0


def prepare_squad(
    files: Mapping[str, str | Path],
    encoder: Encoder,
    output: str | Path,
    settings: WindowSettings,
    version_2: bool,
    progress: Callable[[int], Any] = lambda paragraphs: None,
    unlabelled: Sequence[str] = ("test",),
) -> dict[str, SplitCounts]:
    """Write a data folder.

    Args:
        files: SQuAD file by the split's name; of ``train``, questions without a usable answer are left out
        encoder: the tokenizer
        output: the folder; all of it appears at once, or nothing
        settings: how contexts are cut
        version_2: questions may be unanswerable
        progress: is told how many more paragraphs are done
        unlabelled: splits whose questions may lack answers

    Returns:
        counts by split

    Raises:
        UserError: a file is broken (see :func:`~fairseq_tn.data.squad.read_squad`), more than a tenth of the answers
            of one do not stand at their offsets, the settings do not fit, or the tokenizer has no dictionary
    """
    settings.check()
    text = encoder.dict_text()
    if text is None:
        raise UserError("the dictionary of the model is needed: give its dict.txt with --dict")
    splits = {
        name: read_squad(path, version_2, labelled=name not in unlabelled) for name, path in files.items()
    }
    found = {}
    with atomic_folder(output) as folder:
        (folder / "dict.txt").write_text(text, encoding="utf-8", newline="\n")
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        dictionary.add_symbol("<mask>")
        for name, paragraphs in splits.items():
            writer = _SplitWriter(folder / name, dictionary, settings, train=name == "train")
            for encoded in _encoded(paragraphs, encoder):
                writer.add(*encoded)
                progress(1)
            found[name] = writer.finish()
            _check_offsets(found[name], files[name])
            if not found[name].questions:
                raise UserError(
                    f"{files[name]}: no question has an answer that tokens stand for; give another file"
                )
        metadata = {
            "version": "2.0" if version_2 else "1.1",
            **dataclasses.asdict(settings),
            "tokenizer": encoder.describe(),
            "splits": {name: dataclasses.asdict(counts) for name, counts in found.items()},
        }
        (folder / METADATA).write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return found


def _check_offsets(counts: SplitCounts, path: str | Path) -> None:
    if counts.misplaced > _MISPLACED_SHARE * counts.answers:
        raise UserError(
            f"{path}: {counts.misplaced:,} of {counts.answers:,} answers do not stand at their answer_start, as that "
            f"of question {counts.first_misplaced!r}; it must count characters of the context from 0"
        )


def _encoded(
    paragraphs: Sequence[Paragraph], encoder: Encoder
) -> Iterable[tuple[Paragraph, AlignedSymbols, list[list[str]]]]:
    """Paragraphs with the symbols of their contexts and questions."""
    for begin in range(0, len(paragraphs), _ENCODED_AT_A_TIME):
        part = paragraphs[begin : begin + _ENCODED_AT_A_TIME]
        contexts = encoder.encode_with_offsets([one.context.translate(_LINE_BREAKS) for one in part])
        queries = iter(
            encoder.encode(
                [question.text.translate(_LINE_BREAKS) for one in part for question in one.questions]
            )
        )
        for paragraph, context in zip(part, contexts, strict=True):
            yield paragraph, context, [next(queries) for _ in paragraph.questions]


class _SplitWriter:
    """Writes the files of a split, question by question."""

    def __init__(self, prefix: Path, dictionary: Dictionary, settings: WindowSettings, train: bool):
        self._prefix, self._dictionary, self._settings, self._train = prefix, dictionary, settings, train
        self._lines = open(f"{prefix}.jsonl", "w", encoding="utf-8", newline="\n")  # noqa: SIM115 (see finish)
        self._tokens = indexed_dataset.make_builder(
            indexed_dataset.data_file_path(str(prefix)), impl="mmap", vocab_size=len(dictionary)
        )
        self._windows: list[tuple[int, ...]] = []
        self._counts = SplitCounts()

    def add(self, paragraph: Paragraph, context: AlignedSymbols, queries: Sequence[list[str]]) -> None:
        """Write the windows of all questions of a paragraph."""
        counts = self._counts
        ids = self._ids(context.symbols)
        kept = []
        for question, symbols in zip(paragraph.questions, queries, strict=True):
            answer = self._answer_tokens(paragraph.context, question, context)
            if self._train and answer is None and not question.impossible:
                counts.dropped += 1
                continue
            counts.cut_questions += len(symbols) > self._settings.max_query_length
            query = self._ids(symbols[: self._settings.max_query_length])
            self._write_windows(counts.questions, query, ids, answer, question.impossible)
            counts.questions += 1
            counts.impossible += question.impossible
            kept.append(
                {
                    "id": question.id,
                    "question": question.text,
                    "answers": [given.text for given in question.answers],
                    "impossible": question.impossible,
                }
            )
        counts.paragraphs += 1
        counts.tokens += len(ids)
        counts.unknown += context.symbols.count(UNKNOWN)
        line = {
            "context": paragraph.context,
            "begin": context.begin.tolist(),
            "end": context.end.tolist(),
            "questions": kept,
        }
        self._lines.write(json.dumps(line, ensure_ascii=False) + "\n")

    def finish(self) -> SplitCounts:
        """Write what is left, and say what was written."""
        self._lines.close()
        self._tokens.finalize(indexed_dataset.index_file_path(str(self._prefix)))
        np.save(f"{self._prefix}.windows.npy", np.array(self._windows, dtype=WINDOW))
        self._counts.windows = len(self._windows)
        return self._counts

    def _ids(self, symbols: Sequence[str]) -> list[int]:
        return [self._dictionary.index(symbol) for symbol in symbols]

    def _answer_tokens(
        self, text: str, question: Question, context: AlignedSymbols
    ) -> tuple[int, int] | None:
        """The tokens of the first answer that has some."""
        counts = self._counts
        found = None
        for answer in question.answers:
            counts.answers += 1
            bare = answer.text.strip()
            begin = answer.begin + len(answer.text) - len(answer.text.lstrip())
            if not bare or begin < 0 or text[begin : begin + len(bare)] != bare:
                counts.misplaced += 1
                counts.first_misplaced = counts.first_misplaced or question.id
                continue
            cover = context.cover(begin, begin + len(bare))
            if cover is None:
                counts.unaligned += 1
                continue
            counts.inexact += text[context.begin[cover[0]] : context.end[cover[1]]] != bare
            found = found or cover
        return found

    def _write_windows(
        self, number: int, query: list[int], ids: list[int], answer: tuple[int, int] | None, impossible: bool
    ) -> None:
        bos, eos = self._dictionary.bos(), self._dictionary.eos()
        offset = len(query) + 2
        for first, length in window_places(
            len(ids), self._settings.max_length - offset - 1, self._settings.stride
        ):
            start = end = 0 if impossible else _UNKNOWN_ANSWER
            if answer is not None:
                inside = first <= answer[0] and answer[1] < first + length
                start, end = (offset + token - first if inside else 0 for token in answer)
            window = [bos, *query, eos, *ids[first : first + length], eos]
            self._tokens.add_item(torch.tensor(window))
            self._windows.append((number, offset, first, length, start, end))
            self._counts.longest = max(self._counts.longest, len(window))


def window_places(length: int, room: int, stride: int) -> list[tuple[int, int]]:
    """First token and number of tokens of each window of a context; an empty context has one.

    As in BERT's ``run_squad.py``: a window begins ``stride`` tokens after the one before, until one reaches the end.
    """
    last = max(0, -(-(length - room) // stride))
    return [(first * stride, min(room, length - first * stride)) for first in range(last + 1)]
