"""Predictions of a fine-tuned model on a task of GLUE, their metrics, and the files that GLUE's server takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import tasks
from fairseq.data import data_utils
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_tn.compat import unify_transformer_layers
from fairseq_tn.data.glue import HIGHEST_SCORE, GlueTask
from fairseq_tn.data.sentence_prediction import Prepared
from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.evaluation.aggregates import aggregate
from fairseq_tn.evaluation.results import Result
from fairseq_tn.files import atomic_path
from fairseq_tn.models.loading import read_checkpoint

TASK = "sentence_prediction"


@dataclass(frozen=True)
class Predictions:
    """Of one split.

    Attributes:
        split: as in :attr:`Prepared.splits`.
        predicted: N numbers of classes, or N scores from 0 to 5 or a little beyond.
        gold: the same of the right answers; None: the split has none.
    """

    split: str
    predicted: np.ndarray
    gold: np.ndarray | None


class GlueModel:
    """A fine-tuned checkpoint and the prepared data that it is for.

    Raises:
        UserError: the checkpoint is missing, of another task, of another number of classes, or of another vocabulary
    """

    def __init__(self, checkpoint: str | Path, data: str | Path, device: str | None = None):
        self.prepared = Prepared.load(data)
        self.checkpoint = Path(checkpoint)
        state = read_checkpoint(checkpoint, "--checkpoint")
        cfg = OmegaConf.create(state["cfg"]) if not OmegaConf.is_config(state["cfg"]) else state["cfg"]
        _check_task(cfg.task, self.prepared.task, self.checkpoint)
        with open_dict(cfg):
            cfg.task.data = str(self.prepared.folder)
            cfg.task.no_shuffle = True
        self.seed: int | None = OmegaConf.select(cfg, "common.seed")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._task = tasks.setup_task(cfg.task)
        self._head = cfg.task.classification_head_name
        self._model = _build(self._task, cfg.model, state["model"], self.checkpoint).to(self.device)

    def predict(
        self, split: str, batch_size: int = 64, progress: Callable[[int], Any] = lambda rows: None
    ) -> Predictions:
        """Predict a whole split, in its order.

        Raises:
            UserError: the split is missing, or has examples that are longer than the model reads
        """
        self.prepared_split(split)
        data = self._task.load_dataset(split)
        sizes, limit = data.sizes[0], self._task.max_positions()
        if sizes.max() > limit:
            raise UserError(
                f"{self.prepared.folder} has an example of {sizes.max()} tokens, but {self.checkpoint} reads at most "
                f"{limit}; prepare the data with --max-length {limit}"
            )
        logits: np.ndarray | None = None
        # long ones first: memory that suffices for the first batch suffices for all
        order = np.argsort(-sizes, kind="stable")
        for begin in range(0, len(order), batch_size):
            rows = order[begin : begin + batch_size]
            found = self._logits(data.collater([data[row] for row in rows]))
            if logits is None:
                logits = np.empty((len(order), found.shape[1]), dtype=np.float32)
            logits[rows] = found
            progress(len(rows))
        assert logits is not None
        if self.prepared.task.labels:
            return Predictions(split, logits.argmax(axis=1), self._gold_classes(split))
        scores = HIGHEST_SCORE * logits[:, 0].astype(np.float64)
        return Predictions(split, scores, self._gold_scores(split))

    def prepared_split(self, split: str) -> Any:
        """What is known of a split; UserError if there is no such split."""
        splits = self.prepared.splits
        if split not in splits:
            raise UserError(
                f"{self.prepared.folder} has no split {split} (but {', '.join(splits)}); prepare it from the official "
                "file, or give another --split"
            )
        return splits[split]

    @torch.no_grad()
    def _logits(self, batch: Mapping[str, Any]) -> np.ndarray:
        inputs = {
            name: value.to(self.device)
            for name, value in batch["net_input"].items()
            if isinstance(value, Tensor)
        }
        return (
            self._model(**inputs, features_only=True, classification_head_name=self._head)[0]
            .float()
            .cpu()
            .numpy()
        )

    def _gold_classes(self, split: str) -> np.ndarray | None:
        dictionary = self._task.label_dictionary
        prefix = self.prepared.folder / "label" / split
        if not self.prepared_split(split).labelled:
            return None
        labels = data_utils.load_indexed_dataset(str(prefix), dictionary)
        return np.array([int(labels[row][0]) for row in range(len(labels))]) - dictionary.nspecial

    def _gold_scores(self, split: str) -> np.ndarray | None:
        if not self.prepared_split(split).labelled:
            return None
        lines = (self.prepared.folder / "label" / f"{split}.label").read_text(encoding="utf-8").split()
        return HIGHEST_SCORE * np.array(lines, dtype=np.float64)


def _check_task(cfg: Any, task: GlueTask, checkpoint: Path) -> None:
    trained = OmegaConf.select(cfg, "_name") or OmegaConf.select(cfg, "task")
    if trained != TASK:
        raise UserError(
            f"--checkpoint {checkpoint} was trained with --task {trained}; give one that was fine-tuned with "
            f"--task {TASK}"
        )
    regression = bool(OmegaConf.select(cfg, "regression_target"))
    classes, wanted = cfg.num_classes, max(1, len(task.labels))
    if regression != (not task.labels) or classes != wanted:
        theirs = "a score" if regression else f"{classes} classes"
        ours = f"{wanted} classes" if task.labels else "a score"
        raise UserError(
            f"--checkpoint {checkpoint} predicts {theirs}, but {task.name} has {ours}; give a checkpoint that was "
            f"fine-tuned on {task.name}"
        )


def _build(task: Any, cfg: Any, state: dict[str, Tensor], checkpoint: Path) -> nn.Module:
    embedding = next((value for name, value in state.items() if name.endswith("embed_tokens.weight")), None)
    if embedding is not None and embedding.size(0) != len(task.source_dictionary):
        raise UserError(
            f"--checkpoint {checkpoint} has {embedding.size(0):,} symbols, the data {len(task.source_dictionary):,}: "
            "prepare the data with the dict.txt (--dict) and the tokenizer of the checkpoint"
        )
    try:
        model = task.build_model(cfg)
        unify_transformer_layers(model)
        model.load_state_dict(state, strict=True, model_cfg=cfg)
    except (CheckpointMismatch, RuntimeError) as error:
        raise UserError(f"--checkpoint {checkpoint} does not fit: {' '.join(str(error).split())}") from error
    return model.eval()


def metrics_of(task: GlueTask, predictions: Predictions) -> dict[str, float]:
    """The task's metrics in points, the main one first; the split must be labelled."""
    assert predictions.gold is not None
    values = {}
    for metric in task.metrics:
        name, columns = _columns(metric, predictions.predicted, predictions.gold)
        values[metric] = float(aggregate(name, columns).item())
    return values


def _columns(metric: str, predicted: np.ndarray, gold: np.ndarray) -> tuple[str, dict[str, np.ndarray]]:
    """The aggregate that a metric is, and the columns that it reads."""
    if metric == "accuracy":
        return "mean", {"score": (predicted == gold).astype(int)}
    if metric == "f1":  # of class 1, the paraphrases
        found, right = (values == 1 for values in (predicted, gold))
        return "f1", {
            "correct": (found & right).astype(int),
            "predicted": found.astype(int),
            "gold": right.astype(int),
        }
    return metric, {"prediction": predicted, "gold": gold}


def result_of(
    model: GlueModel,
    predictions: Predictions,
    metrics: Mapping[str, float],
    method: str,
    seed: int | None,
) -> Result:
    """What ``--json`` writes; ``metrics`` are those of ``predictions`` and, of MNLI, of the mismatched set."""
    task = model.prepared.task
    assert predictions.gold is not None
    name, columns = _columns(task.metrics[0], predictions.predicted, predictions.gold)
    return Result(
        kind="glue",
        task=task.name,
        method=method,
        seed=seed,
        split=predictions.split,
        metrics=dict(metrics),
        main_metric=task.metrics[0],
        aggregate=name,
        columns={key: values.tolist() for key, values in columns.items()},
        examples=model.prepared.splits[predictions.split].examples,
        details={"checkpoint": str(model.checkpoint), "data": str(model.prepared.folder)},
    )


def write_submission(path: str | Path, prepared: Prepared, predictions: Predictions) -> None:
    """Write the predictions as GLUE's server takes them: ``index<TAB>prediction``, with the labels' words."""
    labels = prepared.task.labels
    if labels:
        words = [labels[number] for number in predictions.predicted]
    else:
        words = [f"{score:.3f}" for score in predictions.predicted.clip(0, HIGHEST_SCORE)]
    rows = zip(prepared.indices(predictions.split), words, strict=True)
    with atomic_path(path) as temporary:
        lines = ("index\tprediction\n", *(f"{index}\t{word}\n" for index, word in rows))
        temporary.write_text("".join(lines), encoding="utf-8", newline="\n")
