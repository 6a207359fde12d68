"""The mean over GLUE's tasks, as different papers define it."""

from collections.abc import Mapping
from dataclasses import dataclass

_WITHOUT_WNLI = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")

# task -> metric -> points, as in results
Scores = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Average:
    """A mean of columns, each of which is the mean of some metrics of a task.

    Attributes:
        name: whose it is.
        columns: the task and its metrics.
        definition: in words.
    """

    name: str
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    definition: str

    def of(self, scores: Scores) -> float | None:
        """The average; None if a metric is missing."""
        values = []
        for task, metrics in self.columns:
            found = [scores.get(task, {}).get(metric) for metric in metrics]
            known = [value for value in found if value is not None]
            if len(known) < len(metrics):
                return None
            values.append(sum(known) / len(known))
        return sum(values) / len(values)


_ACCURACY = dict.fromkeys(_WITHOUT_WNLI, ("accuracy",))
_CORRELATIONS = {"CoLA": ("matthews",), "STS-B": ("spearman",)}
_BOTH = ("accuracy", "accuracy_mismatched")

AVERAGES = (
    Average(
        "BERT, TaCL",
        (
            *(
                (task, metrics)
                for task, metrics in (_ACCURACY | _CORRELATIONS | {"MRPC": ("f1",), "QQP": ("f1",)}).items()
            ),
            ("MNLI", ("accuracy_mismatched",)),
        ),
        "nine columns without WNLI: Matthews for CoLA, Spearman for STS-B, F1 for MRPC and QQP, accuracy otherwise, "
        "MNLI matched and mismatched apart (Devlin et al., 2019, Table 1; TaCL prints that table's 79.6 for BERT)",
    ),
    Average(
        "ELECTRA",
        tuple((_ACCURACY | _CORRELATIONS).items()),
        "eight tasks without WNLI: Matthews for CoLA, Spearman for STS-B, accuracy otherwise, MNLI matched (Clark et "
        "al., 2020)",
    ),
    Average(
        "leaderboard",
        tuple(
            (
                _ACCURACY
                | {
                    "CoLA": ("matthews",),
                    "STS-B": ("spearman", "pearson"),
                    "MNLI": _BOTH,
                    "WNLI": ("accuracy",),
                }
                | {"MRPC": ("accuracy", "f1"), "QQP": ("accuracy", "f1")}
            ).items()
        ),
        "nine tasks with WNLI; of a task with two metrics or two sets their mean (Wang et al., 2019)",
    ),
)
