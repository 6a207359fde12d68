"""From the logits of windows to answers: the best spans of each window, and of each question over its windows."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairseq_tn.data.squad_split import SquadSplit

_NONE = -np.inf
# the odds for "no answer" where there is nothing to answer with: JSON knows no infinity
_CERTAIN = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Answer:
    """A candidate; ``text`` is a part of the context, or "" for "no answer"."""

    text: str
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """By which candidates are ranked."""
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class QuestionAnswers:
    """What a model answers a question.

    candidates: without "no answer", the best first, no text twice; none if the context has no token.
    null: the logits of ``<s>`` in the window that is least sure that there is no answer.
    """

    id: str
    candidates: tuple[Answer, ...]
    null: Answer

    @property
    def null_odds(self) -> float:
        """How much higher "no answer" scores than the best candidate (a difference of logits)."""
        return self.null.score - self.candidates[0].score if self.candidates else _CERTAIN

    def text(self, threshold: float) -> str:
        """The best candidate, or "" where the odds for "no answer" are above ``threshold``."""
        return "" if self.null_odds > threshold else self.candidates[0].text if self.candidates else ""


def best_spans(
    start: Tensor, end: Tensor, can_start: Tensor, can_end: Tensor, max_length: int, number: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The spans with the highest sums of logits, out of all of 1 to ``max_length`` tokens.

    Args:
        start, end: B x T logits.
        can_start, can_end: B x T bool.
        max_length: most tokens of a span.
        number: K, how many spans are wanted.

    Returns:
        B x K scores (float32, the best first, ``-inf`` where there is no further span), first and last tokens.
    """
    start = start.float().masked_fill(~can_start, _NONE)
    end = end.float().masked_fill(~can_end, _NONE)
    batch, width = start.shape
    max_length = min(max_length, width)
    padded = torch.cat([end, end.new_full((batch, max_length - 1), _NONE)], dim=1)
    # B x T x L: start at t, end at t + l
    scores = (start.unsqueeze(2) + padded.unfold(1, max_length, 1)).reshape(batch, -1)
    found, places = scores.topk(min(number, scores.size(1)), dim=1)
    if found.size(1) < number:
        missing = (batch, number - found.size(1))
        found = torch.cat([found, found.new_full(missing, _NONE)], dim=1)
        places = torch.cat([places, places.new_zeros(missing)], dim=1)
    first = places // max_length
    return found, first, first + places % max_length


def newest(found: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """What :meth:`AnswerSearch.add` has found, as one, by the windows' numbers; of each window what was found last."""
    numbers = np.concatenate([part["id"] for part in found])[::-1]
    _, places = np.unique(numbers, return_index=True)
    return {name: np.concatenate([part[name] for part in found])[::-1][places] for name in found[0]}


class AnswerSearch:
    """Collects the best spans of windows and joins those of a question.

    As in BERT's ``run_squad.py``: a span may start at a token only in the window that shows it with the most context,
    and lies within the context. Unlike there, all spans of a window are compared, not those of the 20 best starts and
    ends only.
    """

    def __init__(self, split: SquadSplit, max_answer_length: int, n_best: int):
        """Prepare for the windows of a split, to give ``n_best`` candidates of at most ``max_answer_length`` tokens."""
        self._split, self._max_length, self._n_best = split, max_answer_length, n_best

    def add(self, ids: Sequence[int] | NDArray[Any], start: Tensor, end: Tensor) -> dict[str, NDArray[Any]]:
        """The best spans of windows, for :meth:`join`.

        Args:
            ids: B numbers of windows
            start, end: B x T logits

        Returns:
            ``id`` (B), ``null`` (B x 2 logits), ``span`` (B x K x 2, tokens of the context), ``logits`` (B x K x 2)
        """
        split = self._split
        can_end = np.zeros(tuple(start.shape), bool)
        can_start = can_end.copy()
        offsets = np.zeros(len(ids), np.int64)
        for row, number in enumerate(ids):
            window = split.windows[number]
            context = split.contexts[split.questions[window["question"]].context]
            first, count, offset = (int(window[name]) for name in ("first", "number", "offset"))
            offsets[row] = offset - first
            inked = context.begin[first : first + count] < context.end[first : first + count]
            can_end[row, offset : offset + count] = inked
            mine = slice(*(split.own_tokens[number] - first))
            can_start[row, offset : offset + count][mine] = inked[mine]
        device = start.device
        scores, firsts, lasts = best_spans(
            start,
            end,
            torch.from_numpy(can_start).to(device),
            torch.from_numpy(can_end).to(device),
            self._max_length,
            self._n_best,
        )
        span = torch.stack([firsts, lasts], dim=2)
        logits = torch.stack([start.float().gather(1, firsts), end.float().gather(1, lasts)], dim=2)
        logits = logits.masked_fill(scores.eq(_NONE).unsqueeze(2), _NONE)
        null = torch.stack([start[:, 0], end[:, 0]], dim=1).float()
        return {
            "id": np.asarray(ids, np.int32),
            "null": null.cpu().numpy(),
            "span": (span.cpu().numpy() - offsets[:, None, None]).astype(np.int32),
            "logits": logits.cpu().numpy(),
        }

    def join(self, found: Sequence[Mapping[str, NDArray[Any]]]) -> list[QuestionAnswers]:
        """The answers of all questions that have a window among what :meth:`add` found, in the split's order.

        What was found last of a window counts.
        """
        split = self._split
        merged = newest(found)
        null, span, logits = merged["null"], merged["span"], merged["logits"]
        questions = np.asarray(split.windows["question"])[merged["id"]]
        edges = np.flatnonzero(np.diff(questions, prepend=-1, append=-1))
        answers = []
        for begin, end in itertools.pairwise(edges):
            question = split.questions[questions[begin]]
            context = split.contexts[question.context]
            pairs = logits[begin:end].reshape(-1, 2)
            spans = span[begin:end].reshape(-1, 2)
            scores = pairs.sum(1)
            candidates: dict[str, Answer] = {}
            for place in np.argsort(-scores, kind="stable"):
                if scores[place] == _NONE or len(candidates) == self._n_best:
                    break
                first, last = spans[place]
                text = context.text[context.begin[first] : context.end[last]]
                candidates.setdefault(text, Answer(text, *pairs[place].tolist()))
            nulls = null[begin:end]
            lowest = Answer("", *nulls[nulls.sum(1).argmin()].tolist())
            answers.append(QuestionAnswers(question.id, tuple(candidates.values()), lowest))
        return answers
