"""A split that ``fairseq-tn prepare squad`` wrote: its windows as a data set, its questions for the answers."""

import functools
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils
from numpy.typing import NDArray

from fairseq_tn.data.by_length import ByLengthDataset
from fairseq_tn.data.corpus import Corpus
from fairseq_tn.data.squad_windows import METADATA, WINDOW
from fairseq_tn.errors import UserError
from fairseq_tn.files import read_json

_COMMAND = "fairseq-tn prepare squad"


@dataclass(frozen=True)
class SplitContext:
    """A context and the characters of its tokens (see :class:`~fairseq_tn.data.offsets.AlignedSymbols`)."""

    text: str
    begin: NDArray[np.int32]
    end: NDArray[np.int32]


@dataclass(frozen=True)
class SplitQuestion:
    """A question, its right answers (none if it is unanswerable or unlabelled), and the number of its context."""

    id: str
    text: str
    answers: tuple[str, ...]
    impossible: bool
    context: int


def read_metadata(folder: str | Path) -> dict[str, Any]:
    """The settings and counts of a data folder; UserError if it is none of SQuAD."""
    path = Path(folder) / METADATA
    if not path.is_file():
        raise UserError(f"{path} is missing: give a data folder that `{_COMMAND}` made")
    content = read_json(path)
    if not isinstance(content.get("splits"), dict) or content.get("version") not in ("1.1", "2.0"):
        raise UserError(f"{path} is not of `{_COMMAND}`; run it again")
    return content


class SquadSplit:
    """The windows of a split (memory-mapped) and, read when they are asked for, its contexts and questions.

    Attributes:
        name: folder and split, for messages
        corpus: the windows' tokens
        windows: N records of :data:`~fairseq_tn.data.squad_windows.WINDOW`
        version_2: whether questions may be unanswerable
    """

    def __init__(self, folder: str | Path, split: str, dictionary: Any):
        """Open a split.

        Raises:
            UserError: the split is missing, or its files are damaged or do not belong together
        """
        metadata = read_metadata(folder)
        self.name = str(Path(folder) / split)
        if split not in metadata["splits"]:
            names = ", ".join(metadata["splits"])
            raise UserError(f"{folder} has no split {split}, only {names}; give its file to `{_COMMAND}` too")
        self.version_2 = metadata["version"] == "2.0"
        self.corpus = Corpus(self.name, dictionary, made_by=_COMMAND)
        self.windows = self._read_windows()

    def _read_windows(self) -> NDArray[Any]:
        path = f"{self.name}.windows.npy"
        try:
            windows = np.load(path, mmap_mode="r")
        except (OSError, ValueError, EOFError):
            raise UserError(f"{path} is missing or damaged; run {_COMMAND} again") from None
        if windows.dtype != WINDOW or len(windows) != len(self.corpus.sizes):
            raise UserError(f"{path} does not belong to {self.name}.bin; run {_COMMAND} again")
        return windows

    def __getstate__(self) -> dict[str, Any]:
        # workers of the loader read tokens and windows only, and map them again
        return {key: self.__dict__[key] for key in ("name", "version_2", "corpus")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.windows = self._read_windows()

    @functools.cached_property
    def _contents(self) -> tuple[list[SplitContext], list[SplitQuestion]]:
        contexts: list[SplitContext] = []
        questions: list[SplitQuestion] = []
        path = f"{self.name}.jsonl"
        try:
            with open(path, encoding="utf-8") as lines:
                for number, line in enumerate(lines):
                    entry = json.loads(line)
                    begin, end = (np.array(entry[key], np.int32) for key in ("begin", "end"))
                    contexts.append(SplitContext(entry["context"], begin, end))
                    questions += [
                        SplitQuestion(
                            one["id"], one["question"], tuple(one["answers"]), one["impossible"], number
                        )
                        for one in entry["questions"]
                    ]
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{path} is missing or damaged; run {_COMMAND} again") from None
        if len(questions) <= int(self.windows["question"].max()):
            raise UserError(f"{path} does not belong to {self.name}.bin; run {_COMMAND} again")
        return contexts, questions

    @property
    def contexts(self) -> list[SplitContext]:
        """The contexts."""
        return self._contents[0]

    @property
    def questions(self) -> list[SplitQuestion]:
        """The questions, in the order of their numbers."""
        return self._contents[1]

    @functools.cached_property
    def golds(self) -> dict[str, tuple[str, ...]]:
        """The right answers by the question's id."""
        return {question.id: question.answers for question in self.questions}

    @property
    def labelled(self) -> bool:
        """Whether every question has answers or is said to have none."""
        return all(question.answers or question.impossible for question in self.questions)

    @functools.cached_property
    def own_tokens(self) -> NDArray[np.int32]:
        """N x 2: the first and the last-plus-one token of the context that a window, of all of its question that hold
        it, shows with the most context (see :func:`most_context`)."""
        windows = np.asarray(self.windows)
        own = np.stack([windows["first"], windows["first"] + windows["number"]], axis=1)
        edges = np.flatnonzero(np.diff(windows["question"], prepend=-1, append=-1))
        for begin, end in itertools.pairwise(edges):
            if end - begin > 1:
                own[begin:end] = most_context(windows["first"][begin:end], windows["number"][begin:end])
        return own


def most_context(first: NDArray[np.int32], number: NDArray[np.int32]) -> NDArray[np.int32]:
    """Which tokens each of the windows of a context has for its own.

    As in BERT's ``run_squad.py``, a token is that of the window in which the smaller of its distances to both edges,
    plus a hundredth of the window's length, is the greatest; of the first of them.

    Args:
        first, number: W; first token and number of tokens of each window

    Returns:
        W x 2: first and last-plus-one token, equal if there is none
    """
    tokens = np.arange(int((first + number).max()))
    left = tokens - first[:, None]
    right = number[:, None] - 1 - left
    score = np.where((left >= 0) & (right >= 0), np.minimum(left, right) + 0.01 * number[:, None], -1)
    owner = score.argmax(axis=0)
    mine = owner == np.arange(len(first))[:, None]
    begin = np.where(mine.any(axis=1), mine.argmax(axis=1), first)
    return np.stack([begin, begin + mine.sum(axis=1)], axis=1).astype(np.int32)


class SquadDataset(ByLengthDataset):
    """Windows of a split; an item is the window's number, its tokens, and where the answer starts and ends."""

    def __init__(self, split: SquadSplit, seed: int, bos: int, pad: int, eos: int, name: str, train: bool):
        """Make the data set.

        Args:
            split: the windows
            seed: of the order of windows of one length
            bos, pad, eos: ids of ``<s>``, ``<pad>`` and ``</s>``
            name: of the split, for the batches
            train: whether the order changes with the epoch
        """
        super().__init__(seed, train=train)
        self.split = split
        self.bos, self.pad, self.eos = bos, pad, eos
        self.name = name
        self.sizes = split.corpus.sizes

    def __getitem__(self, index: int) -> dict[str, Any]:
        window = self.split.windows[index]
        size = int(self.sizes[index])
        tokens = np.append(self.split.corpus.read((index, 0, size - 1)), self.eos)
        return {
            "id": index,
            "tokens": torch.from_numpy(tokens),
            "start": int(window["start"]),
            "end": int(window["end"]),
        }

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch: ``id`` (B), ``net_input.src_tokens`` (B x T, right-padded), ``net_input.src_lengths`` (B),
        ``start`` and ``end`` (B; 0 if the window does not have the answer, -1 if it is not known), ``ntokens``,
        ``nsentences``, ``split`` (its name)."""
        if not samples:
            return {}
        tokens = data_utils.collate_tokens([sample["tokens"] for sample in samples], self.pad)
        lengths = torch.tensor([len(sample["tokens"]) for sample in samples])
        return {
            **{key: torch.tensor([sample[key] for sample in samples]) for key in ("id", "start", "end")},
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "ntokens": int(lengths.sum()),
            "nsentences": len(samples),
            "split": self.name,
        }
