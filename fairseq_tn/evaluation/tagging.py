"""Scores of tagging: entities as seqeval's strict mode counts them, words as SIGHAN's bakeoffs do.

A text is scored from two files in one form, so that a model's predictions and those of any other tagger go one way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_tn.data.examples import digest_of_examples
from fairseq_tn.data.tagged_text import TaggedText, TextFormat, read_tagged, spelled
from fairseq_tn.data.tagging_folder import WORDS, TaggingFacts, text_file
from fairseq_tn.data.tags import (
    SEGMENTATION,
    Spans,
    TagSet,
    detect_scheme,
    lenient_spans,
    repair,
    sequence_starts,
    strict_spans,
)
from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.evaluation.results import Result


@dataclass(frozen=True)
class Counts:
    """How many spans are right, predicted and in the gold text; precision, recall and F1 in points (0 of nothing)."""

    correct: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """Of the predicted, how many are right."""
        return _points(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        """Of the gold ones, how many are found."""
        return _points(self.correct, self.gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return _points(2 * self.correct, self.predicted + self.gold)


@dataclass(frozen=True)
class TaggingScores:
    """What a comparison of two tagged texts gives.

    total: of all entities or words.
    by_type: of the entities of each type.
    accuracy: tokens with the right tag, in points.
    oov, iv: of words of word segmentation that the training text lacks or has; None without such a text.
    sentences: S x 3, the counts of each sentence: correct, predicted, gold.
    """

    total: Counts
    by_type: dict[str, Counts]
    accuracy: float
    oov: Counts | None
    iv: Counts | None
    sentences: NDArray[np.int64]

    def metrics(self) -> dict[str, float]:
        """Names and values in points."""
        values = {
            "f1": self.total.f1,
            "precision": self.total.precision,
            "recall": self.total.recall,
            "accuracy": self.accuracy,
        }
        if self.oov is not None and self.iv is not None:
            values["oov_rate"] = _points(self.oov.gold, self.total.gold)
            values["oov_recall"] = self.oov.recall
            values["iv_recall"] = self.iv.recall
        for kind, counts in self.by_type.items():
            values[f"f1 {kind}"] = counts.f1
        return values


def _points(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def score_tags(
    gold: NDArray,
    predicted: NDArray,
    lengths: NDArray,
    tag_set: TagSet,
    lenient: bool = False,
    known: NDArray[np.bool_] | None = None,
) -> TaggingScores:
    """Compare the tags of sentences.

    Args:
        gold, predicted: N numbers of tags, sentence after sentence
        lengths: tokens of each sentence
        tag_set: what the numbers stand for
        lenient: read invalid sequences as ``conlleval`` does, in both; otherwise they are no entities
        known: of word segmentation: for each gold word, whether the training text has it
    """
    starts = sequence_starts(lengths)
    read = lenient_spans if lenient else strict_spans
    right, found = read(gold, starts, tag_set), read(predicted, starts, tag_set)
    hits = found.found_in(right)
    sentence = np.repeat(np.arange(len(lengths)), lengths)

    def count(spans: Spans, which: Any = slice(None)) -> NDArray[np.int64]:
        return np.bincount(sentence[spans.begin[which]], minlength=len(lengths))

    by_type = {}
    if tag_set.scheme != SEGMENTATION:
        size = len(tag_set.types)
        columns = [np.bincount(s.kind, minlength=size) for s in (found.select(hits), found, right)]
        by_type = {
            kind: Counts(*map(int, row))
            for kind, row in zip(tag_set.types, zip(*columns, strict=True), strict=True)
            if any(row)
        }
    oov = iv = None
    if known is not None:
        recalled = right.found_in(found)
        # no predicted word is of either kind: only recall is defined
        oov, iv = (Counts(int(recalled[kind].sum()), 0, int(kind.sum())) for kind in (~known, known))
    return TaggingScores(
        Counts(int(hits.sum()), len(found), len(right)),
        by_type,
        _points(int((gold == predicted).sum()), len(gold)),
        oov,
        iv,
        np.stack([count(found, hits), count(found), count(right)], axis=1),
    )


def score_texts(
    gold: TaggedText,
    predicted: TaggedText,
    scheme: str | None = None,
    lenient: bool = False,
    vocabulary: set[str] | None = None,
) -> TaggingScores:
    """Compare two texts.

    Args:
        gold: the right one
        predicted: the same sentences with other tags
        scheme: of the tags; None: detected
        lenient: see :func:`score_tags`
        vocabulary: of word segmentation: the words of the training text

    Raises:
        UserError: the texts are not the same, or their tags are of no one scheme
    """
    _check_same(gold, predicted)
    names = list(dict.fromkeys([*gold.names, *predicted.names]))
    scheme = scheme or detect_scheme(names)
    if scheme is None:
        raise UserError(
            f"the tags of {gold.path} and {predicted.path} are of no one scheme; name it with --scheme"
        )
    for text in (gold, predicted):
        text.check_tags(scheme)
    tag_set = TagSet.of(names, scheme)
    right, found = (
        np.array([names.index(name) for name in text.names], np.int64)[text.tags]
        for text in (gold, predicted)
    )
    known = None
    starts = sequence_starts(gold.lengths)
    if scheme == SEGMENTATION:
        # the tags that spell the same words: accuracy is then that of the words between blanks
        tag_set = tag_set.with_all_roles()
        right, found = (repair(tags, starts, tag_set) for tags in (right, found))
    if vocabulary is not None and scheme == SEGMENTATION:
        spans = lenient_spans(right, starts, tag_set)
        words = spelled(gold.sentences, spans.begin.tolist(), spans.end.tolist())
        known = np.fromiter(map(vocabulary.__contains__, words), bool, len(words))
    return score_tags(right, found, gold.lengths, tag_set, lenient, known)


def _check_same(gold: TaggedText, predicted: TaggedText) -> None:
    number = 0
    for first, second in zip(gold.sentences, predicted.sentences, strict=False):
        if first != second:
            place = next(
                (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
                min(len(first), len(second)),
            )
            token = number + min(place, len(second) - 1)
            raise UserError(
                f"{predicted.place(token)}: the text is not that of {gold.path}; predictions have the same tokens in "
                "the same sentences"
            )
        number += len(first)
    if len(gold.sentences) != len(predicted.sentences):
        raise UserError(
            f"{predicted.path} has {len(predicted.sentences):,} sentences, {gold.path} {len(gold.sentences):,}; "
            "predictions have the same ones"
        )


def training_words(path: str | Path, form: TextFormat) -> set[str]:
    """The words of a text of word segmentation."""
    text = read_tagged(path, form)
    text.check_tags(SEGMENTATION)
    spans = lenient_spans(text.tags, sequence_starts(text.lengths), TagSet.of(text.names, SEGMENTATION))
    return set(spelled(text.sentences, spans.begin.tolist(), spans.end.tolist()))


@dataclass(frozen=True)
class FolderText:
    """A split of a data folder: what it is about, its text, and the words of the training text."""

    facts: TaggingFacts
    text: TaggedText
    vocabulary: set[str] | None

    @classmethod
    def read(cls, folder: str | Path, split: str) -> "FolderText":
        """Raises UserError if the folder does not have the split."""
        facts = TaggingFacts.read(folder)
        if split not in facts.longest:
            raise UserError(f"{folder} has no split {split!r}, only {', '.join(facts.longest)}")
        words = Path(folder) / WORDS
        vocabulary = set(words.read_text(encoding="utf-8").split("\n")) if words.is_file() else None
        return cls(facts, read_tagged(text_file(folder, split), facts.form), vocabulary)


@dataclass(frozen=True)
class Predictions:
    """Tags of a text's tokens that a model gives, and what is known of the model."""

    tags: list[str]
    seed: int | None
    updates: int | None


def predict_tags(
    checkpoint: str | Path,
    folder: str | Path,
    split: str,
    batch_size: int = 32,
    device: str | None = None,
    progress: Callable[[int], Any] = lambda more: None,
) -> Predictions:
    """Tag a split of a data folder; the parts of sentences that were cut are joined again.

    Args:
        checkpoint: of ``--task token_tagging --criterion token_tagging``
        folder, split: the data
        batch_size: sequences read at once; changes time and memory only
        device: default: the GPU, if there is one
        progress: is told how many more sequences are done

    Raises:
        UserError: the checkpoint is none, of another task, vocabulary or labels, or has too few positions
    """
    import torch

    import fairseq_tn

    fairseq_tn.register()
    from fairseq.utils import apply_to_sample

    from fairseq_tn.analysis.held_out import by_length
    from fairseq_tn.criterions.token_tagging import TokenTaggingCriterion, TokenTaggingCriterionConfig
    from fairseq_tn.data.tagging import TaggingDataset
    from fairseq_tn.models.access import state_width
    from fairseq_tn.models.loading import build_from_checkpoint, read_checkpoint
    from fairseq_tn.tasks.fine_tuning import load_dictionary

    facts, dictionary = TaggingFacts.read(folder), load_dictionary(str(folder))
    dataset = TaggingDataset(str(folder), split, facts, dictionary, train=False)
    state = read_checkpoint(checkpoint, "--checkpoint")
    options = state["cfg"].get("criterion")
    if not state.get("criterion") or _option(options, "_name") != "token_tagging":
        raise UserError(
            f"--checkpoint {checkpoint} has no head for tags; give one of a run with --criterion token_tagging"
        )
    model = build_from_checkpoint(state, dictionary, checkpoint, "--checkpoint")
    limit, longest = model.max_positions(), facts.longest[split]  # type: ignore[operator]
    if isinstance(limit, int) and longest > limit:
        raise UserError(
            f"{folder} has sequences of {longest} tokens, and the model of --checkpoint has {limit} positions; prepare "
            f"the data with --max-tokens {limit}"
        )
    # what the criterion reads of its task
    task = SimpleNamespace(target_dictionary=dictionary, model_width=state_width(model), facts=facts)
    config = TokenTaggingCriterionConfig(tagging_loss=_option(options, "tagging_loss"))
    criterion = TokenTaggingCriterion(config, task)
    try:
        criterion.load_state_dict(state["criterion"])
    except CheckpointMismatch as error:
        raise UserError(f"--checkpoint {checkpoint} does not fit {folder}: {error}") from None
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    criterion.to(device).eval()
    order = by_length(dataset)
    labels: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * len(dataset)
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        batch = dataset.collater([dataset[index] for index in chosen])
        batch = apply_to_sample(lambda tensor: tensor.to(device), batch)
        for index, row in zip(chosen, criterion.predict(model, batch), strict=True):
            labels[index] = row[row >= 0]
        progress(len(chosen))
    names = facts.labels
    history = state.get("optimizer_history") or [{}]
    return Predictions(
        [names[number] for number in np.concatenate(labels).tolist()],
        _option(state["cfg"].get("common"), "seed"),
        history[-1].get("num_updates"),
    )


def _option(options: Any, name: str) -> Any:
    """``options`` is a dictionary or a namespace, as the checkpoint was written."""
    return options.get(name) if hasattr(options, "get") else getattr(options, name, None)


def result_of(
    scores: TaggingScores,
    gold: TaggedText,
    task: str,
    method: str,
    split: str,
    seed: int | None,
    details: Mapping[str, Any],
) -> Result:
    """The scores as ``fairseq-tn report`` reads them; an example is a sentence."""
    correct, predicted, right = scores.sentences.T.tolist()
    by_type = {kind: vars(counts) for kind, counts in scores.by_type.items()}
    return Result(
        kind="tagging",
        task=task,
        method=method,
        seed=seed,
        split=split,
        metrics=scores.metrics(),
        main_metric="f1",
        aggregate="f1",
        columns={"correct": correct, "predicted": predicted, "gold": right},
        examples=digest_of_examples(_examples(gold)),
        details={**details, **({"by_type": by_type} if by_type else {})},
    )


def _examples(text: TaggedText) -> Sequence[str]:
    """Sentences with their tags as text."""
    names = [text.names[number] for number in text.tags.tolist()]
    edges = np.concatenate(([0], np.cumsum(text.lengths))).tolist()
    return [
        "\t".join(sentence) + "\n" + "\t".join(names[begin:end])
        for sentence, begin, end in zip(text.sentences, edges[:-1], edges[1:], strict=True)
    ]
