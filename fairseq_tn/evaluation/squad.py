"""SQuAD: the answers of a fine-tuned checkpoint, and scores equal to those of the official scripts."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import utils

from fairseq_tn.criterions.span_extraction import SpanExtractionConfig, SpanExtractionCriterion
from fairseq_tn.data.answers import Answer, AnswerSearch, QuestionAnswers
from fairseq_tn.data.examples import digest_of_examples
from fairseq_tn.data.squad import read_squad
from fairseq_tn.data.squad_split import SquadDataset, SquadSplit
from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.evaluation.results import Result
from fairseq_tn.evaluation.squad_metrics import evaluate_1, evaluate_2, scores_of_questions
from fairseq_tn.files import read_json
from fairseq_tn.models.access import state_width
from fairseq_tn.models.loading import build_from_checkpoint, read_checkpoint
from fairseq_tn.tasks.fine_tuning import load_dictionary

# tokens of a batch, padding included
BATCH_TOKENS = 16384


@dataclass(frozen=True)
class SquadResult:
    """What a checkpoint answers.

    answers: of every question, in the data's order.
    scores: what the right answers say; None if the split has none.
    version_2: whether questions may be unanswerable.
    seed: of fine-tuning.
    """

    answers: list[QuestionAnswers]
    scores: "SquadScores | None"
    version_2: bool
    seed: int | None


@dataclass(frozen=True)
class SquadScores:
    """Scores equal to the official scripts'.

    means: what the script prints, in per cent.
    by_question: exact match and F1 (0 to 1) of each question that counts, by its id.
    golds: their right answers.
    version_2: which script.
    """

    means: dict[str, float]
    by_question: dict[str, tuple[float, float]]
    golds: Mapping[str, Sequence[str]]
    version_2: bool

    @classmethod
    def of(
        cls,
        golds: Mapping[str, Sequence[str]],
        predictions: Mapping[str, str],
        version_2: bool,
        null_odds: Mapping[str, float] | None = None,
        threshold: float = 1.0,
    ) -> "SquadScores":
        """The arguments are those of :func:`~fairseq_tn.evaluation.squad_metrics.evaluate_2`."""
        if version_2:
            means = evaluate_2(golds, predictions, null_odds, threshold)
        else:
            means = evaluate_1(golds, predictions)
        by_question = scores_of_questions(golds, predictions, version_2, null_odds, threshold)
        return cls(means, by_question, golds, version_2)

    def result(self, method: str, seed: int | None, split: str, details: Mapping[str, Any]) -> Result:
        """What ``fairseq-tn report --results`` reads; thresholds and numbers of questions are among the details."""
        others = {name: value for name, value in self.means.items() if name.endswith(("_thresh", "total"))}
        metrics = {name: value for name, value in self.means.items() if name not in others}
        # version 2.0's script has another name for it
        metrics["exact_match"] = metrics.pop("exact", metrics.get("exact_match", 0.0))
        return Result(
            kind="squad",
            task="SQuAD 2.0" if self.version_2 else "SQuAD 1.1",
            method=method,
            seed=seed,
            split=split,
            metrics=metrics,
            main_metric="f1",
            aggregate="mean",
            columns={"score": [overlap for _, overlap in self.by_question.values()]},
            examples=digest_of_examples(
                json.dumps([identity, *self.golds[identity]]) for identity in self.by_question
            ),
            details={**details, **others},
        )


def answer_questions(
    checkpoint: str | Path,
    data: str | Path,
    split: str = "valid",
    n_best: int = 20,
    max_answer_length: int = 30,
    threshold: float = 0.0,
    batch_tokens: int = BATCH_TOKENS,
    device: str | None = None,
    progress: Callable[[int], Any] = lambda windows: None,
) -> SquadResult:
    """Answer the questions of a split.

    Args:
        checkpoint: of ``--task squad --criterion span_extraction``
        data: folder of ``fairseq-tn prepare squad``
        split: of the data
        n_best: candidates kept for each question
        max_answer_length: most tokens of an answer
        threshold: of SQuAD 2.0: "no answer" is given where it scores higher than the best candidate by more than this
            (a difference of summed logits)
        batch_tokens: most tokens of a batch; changes time and memory only
        device: default: a GPU if there is one
        progress: is told how many more windows are done

    Raises:
        UserError: the checkpoint has no such head, or is of another vocabulary, or the data are missing, damaged or
            too long for it
    """
    dictionary = load_dictionary(str(data))
    windows = SquadSplit(data, split, dictionary)
    state = read_checkpoint(checkpoint, "--checkpoint")
    model = build_from_checkpoint(state, dictionary, checkpoint, "--checkpoint")
    criterion = _criterion(state, model, dictionary, checkpoint)
    limit = model.max_positions()  # type: ignore[operator]
    longest = int(windows.corpus.sizes.max())
    if isinstance(limit, int) and longest > limit:
        raise UserError(
            f"{data} has windows of {longest} tokens, and the model of --checkpoint has {limit} positions; prepare the "
            "data with a smaller --max-length"
        )
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    criterion.to(device)
    dataset = SquadDataset(
        windows, 1, dictionary.bos(), dictionary.pad(), dictionary.eos(), split, train=False
    )
    search = AnswerSearch(windows, max_answer_length, n_best)
    found = []
    with torch.no_grad():
        for rows in _batches(dataset, batch_tokens):
            batch = utils.apply_to_sample(
                lambda tensor: tensor.to(device), dataset.collater([dataset[int(row)] for row in rows])
            )
            start, end = criterion.logits(model, batch["net_input"])
            found.append(search.add(rows, start, end))
            progress(len(rows))
    answers = search.join(found)
    scores = None
    if windows.labelled:
        best = {answer.id: answer.text(math.inf) for answer in answers}
        odds = {answer.id: answer.null_odds for answer in answers}
        scores = SquadScores.of(windows.golds, best, windows.version_2, odds, threshold)
    return SquadResult(answers, scores, windows.version_2, state["cfg"].common.seed)


def _criterion(
    state: Mapping[str, Any], model: torch.nn.Module, dictionary: Any, path: str | Path
) -> SpanExtractionCriterion:
    class Task:
        """What the criterion reads of its task."""

        target_dictionary = dictionary
        model_width = state_width(model)

    criterion = SpanExtractionCriterion(SpanExtractionConfig(), Task())
    head = state.get("criterion")
    if not head:
        raise UserError(
            f"--checkpoint {path} has no head for answers; give one of a run with --criterion span_extraction"
        )
    try:
        criterion.load_state_dict(head)
    except CheckpointMismatch as error:
        raise UserError(
            f"--checkpoint {path} has a head of another task ({error}); give one of a run with --criterion "
            "span_extraction"
        ) from None
    return criterion.eval()


def _batches(dataset: SquadDataset, batch_tokens: int) -> list[Any]:
    order = dataset.ordered_indices()[::-1]
    batches = []
    begin = 0
    while begin < len(order):
        size = max(1, batch_tokens // dataset.num_tokens(int(order[begin])))
        batches.append(order[begin : begin + size])
        begin += size
    return batches


def score_predictions(
    file: str | Path,
    predictions: str | Path,
    version_2: bool,
    null_odds: str | Path | None = None,
    threshold: float = 1.0,
) -> tuple[SquadScores, list[str]]:
    """Score predictions without a model.

    Args:
        file: SQuAD file with the right answers
        predictions: JSON file, answer by question id
        version_2: of SQuAD 2.0
        null_odds: JSON file, number by question id; see :func:`~fairseq_tn.evaluation.squad_metrics.evaluate_2`
        threshold: of ``null_odds``

    Returns:
        The scores, and the ids of questions without a prediction.

    Raises:
        UserError: a file is broken, or is of other questions
    """
    golds = {
        question.id: tuple(answer.text for answer in question.answers)
        for paragraph in read_squad(file, version_2)
        for question in paragraph.questions
    }
    given = read_json(Path(predictions))
    for identity, text in given.items():
        if not isinstance(text, str):
            raise UserError(f"{predictions}: the answer to {identity!r} is not text")
    missing = [identity for identity in golds if identity not in given]
    if len(missing) == len(golds):
        raise UserError(
            f"{predictions} has no answer to any question of {file}; give predictions for this file"
        )
    odds = None
    if version_2 and null_odds is not None:
        odds = read_json(Path(null_odds))
        for identity in golds:
            if identity in given and not isinstance(odds.get(identity), (int, float)):
                raise UserError(f"{null_odds} has no number for question {identity!r}")
    return SquadScores.of(golds, given, version_2, odds, threshold), missing


def nbest_entry(answer: QuestionAnswers, version_2: bool) -> list[dict[str, Any]]:
    """The candidates of a question with their probabilities among themselves, as BERT's ``nbest_predictions.json``."""
    candidates: list[Answer] = list(answer.candidates)
    if version_2 or not candidates:
        candidates.append(answer.null)
        candidates.sort(key=lambda one: -one.score)
    probabilities = torch.tensor([one.score for one in candidates], dtype=torch.float64).softmax(0).tolist()
    return [
        {
            "text": one.text,
            "probability": probability,
            "start_logit": one.start_logit,
            "end_logit": one.end_logit,
        }
        for one, probability in zip(candidates, probabilities, strict=True)
    ]


def write_json(content: Any, path: Path) -> None:
    """Write JSON that the official scripts read."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
