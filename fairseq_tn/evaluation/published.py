"""Figures of the papers that stand beside one's own; only those whose source was looked up."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Published:
    """A row of a paper.

    Attributes:
        method: what the paper calls the model.
        source: where the figures stand.
        values: (task, metric) -> points; the task ``GLUE`` and the metric ``average`` are the mean over its tasks.
    """

    method: str
    source: str
    values: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def value(self, task: str, metric: str) -> float | None:
        """The figure for a data set, whose name may hold more words than the paper's (``Weibo NER``)."""
        words = task.casefold()
        return next(
            (
                value
                for (name, measured), value in self.values.items()
                if measured == metric and re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", words)
            ),
            None,
        )


_TACL = "README of the authors' repository, github.com/yxuansu/TaCL (Su et al., 2022)"
_BERT = "tasks of GLUE: Devlin et al., 2019, Table 1, by GLUE's server on the test sets"
_TRUE_NEGATIVES = "Zhang et al., 2023 (arXiv 2212.00460): not looked up"
# its mean is the average that TaCL's authors print for BERT
_BERT_GLUE = {
    ("CoLA", "matthews"): 52.1,
    ("SST-2", "accuracy"): 93.5,
    ("MRPC", "f1"): 88.9,
    ("STS-B", "spearman"): 85.8,
    ("QQP", "f1"): 71.2,
    ("MNLI", "accuracy"): 84.6,
    ("MNLI", "accuracy_mismatched"): 83.4,
    ("QNLI", "accuracy"): 90.5,
    ("RTE", "accuracy"): 66.4,
}
_TAGGING = ("MSRA", "OntoNotes", "Resume", "Weibo", "PKU", "CityU")


def _tacl(
    method: str,
    squad: tuple[float, ...],
    glue: float,
    tagging: tuple[float, ...],
    others: Mapping[tuple[str, str], float] | None = None,
    source: str = _TACL,
) -> Published:
    values = {
        ("SQuAD 1.1", "exact_match"): squad[0],
        ("SQuAD 1.1", "f1"): squad[1],
        ("SQuAD 2.0", "exact_match"): squad[2],
        ("SQuAD 2.0", "f1"): squad[3],
        ("GLUE", "average"): glue,
    }
    values |= {(task, "f1"): value for task, value in zip(_TAGGING, tagging, strict=True)}
    return Published(method, source, {**values, **(others or {})})


PUBLISHED = (
    _tacl(
        "BERT-base",
        (80.8, 88.5, 73.4, 76.8),
        79.6,
        (94.95, 80.14, 95.53, 68.20, 96.50, 97.60),
        _BERT_GLUE,
        f"{_TACL}; {_BERT}",
    ),
    _tacl("BERT-base + TaCL", (81.6, 89.0, 74.4, 77.5), 81.2, (95.44, 82.42, 96.45, 69.54, 96.75, 98.16)),
    Published("BERT-base, HC and SR", _TRUE_NEGATIVES),
    Published("ELECTRA, HC and SR", _TRUE_NEGATIVES),
)
