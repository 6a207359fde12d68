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
_TRUE_NEGATIVES = "Zhang et al., 2023 (arXiv 2212.00460): not looked up"
_TAGGING = ("MSRA", "OntoNotes", "Resume", "Weibo", "PKU", "CityU")


def _tacl(method: str, squad: tuple[float, ...], glue: float, tagging: tuple[float, ...]) -> Published:
    values = {
        ("SQuAD 1.1", "exact_match"): squad[0],
        ("SQuAD 1.1", "f1"): squad[1],
        ("SQuAD 2.0", "exact_match"): squad[2],
        ("SQuAD 2.0", "f1"): squad[3],
        ("GLUE", "average"): glue,
    }
    values |= {(task, "f1"): value for task, value in zip(_TAGGING, tagging, strict=True)}
    return Published(method, _TACL, values)


PUBLISHED = (
    _tacl("BERT-base", (80.8, 88.5, 73.4, 76.8), 79.6, (94.95, 80.14, 95.53, 68.20, 96.50, 97.60)),
    _tacl("BERT-base + TaCL", (81.6, 89.0, 74.4, 77.5), 81.2, (95.44, 82.42, 96.45, 69.54, 96.75, 98.16)),
    Published("BERT-base, HC and SR", _TRUE_NEGATIVES),
    Published("ELECTRA, HC and SR", _TRUE_NEGATIVES),
)
