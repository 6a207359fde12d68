"""The official files of GLUE (Wang et al., 2019), with the quirks of each: columns, headers, labels, broken lines."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fairseq_tn.errors import UserError

_SPLITS = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}
# MRPC as its authors distribute it; GLUE's script makes train.tsv and dev.tsv of it by a list of pairs
_MRPC_ORIGINAL = {"train": "msr_paraphrase_train.txt", "test": "msr_paraphrase_test.txt"}
_MRPC_DEV_IDS = ("dev_ids.tsv", "mrpc_dev_ids.tsv")
_HELD_OUT = 0.1

# STS-B's scores go from 0 to this; the model learns them divided by it, as in fairseq's recipe for RoBERTa
HIGHEST_SCORE = 5.0


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE.

    Attributes:
        name: as in GLUE, which is the folder's name too.
        texts: columns of the sentence, or of both.
        label: column of the label or score.
        labels: the classes in their order; none: a score.
        metrics: what is reported, the main one first.
        files: split -> file. MNLI has two development and test sets, the mismatched ones are ``valid1`` and ``test1``,
            and ``test2`` is GLUE's diagnostic set (AX).
        submissions: split -> file that GLUE's server wants.
        columns: of files without a header.
        skips: whether lines with the wrong number of columns are left out, as everybody has to with QQP.
    """

    name: str
    texts: tuple[str, ...]
    label: str = "label"
    labels: tuple[str, ...] = ("0", "1")
    metrics: tuple[str, ...] = ("accuracy",)
    files: Mapping[str, str] = field(default_factory=lambda: _SPLITS)
    columns: tuple[str, ...] = ()
    skips: bool = False

    @property
    def submissions(self) -> dict[str, str]:
        if "test1" in self.files:
            return {"test": f"{self.name}-m.tsv", "test1": f"{self.name}-mm.tsv", "test2": "AX.tsv"}
        return {"test": f"{self.name}.tsv"}


_ENTAILMENT = ("entailment", "not_entailment")
TASKS = {
    task.name: task
    for task in (
        GlueTask(
            "CoLA",
            ("sentence",),
            metrics=("matthews", "accuracy"),
            columns=("source", "label", "original", "sentence"),
        ),
        GlueTask("SST-2", ("sentence",)),
        GlueTask("MRPC", ("#1 String", "#2 String"), label="Quality", metrics=("accuracy", "f1")),
        GlueTask(
            "STS-B", ("sentence1", "sentence2"), label="score", labels=(), metrics=("spearman", "pearson")
        ),
        GlueTask(
            "QQP", ("question1", "question2"), label="is_duplicate", metrics=("accuracy", "f1"), skips=True
        ),
        GlueTask(
            "MNLI",
            ("sentence1", "sentence2"),
            label="gold_label",
            labels=("entailment", "neutral", "contradiction"),
            files={
                "train": "train.tsv",
                "valid": "dev_matched.tsv",
                "valid1": "dev_mismatched.tsv",
                "test": "test_matched.tsv",
                "test1": "test_mismatched.tsv",
                "test2": "diagnostic.tsv",
            },
        ),
        GlueTask("QNLI", ("question", "sentence"), labels=_ENTAILMENT),
        GlueTask("RTE", ("sentence1", "sentence2"), labels=_ENTAILMENT),
        GlueTask("WNLI", ("sentence1", "sentence2")),
    )
}


class GlueExample(NamedTuple):
    """``row``: what GLUE's server calls it; ``label``: the class's name or the score, None in a test set."""

    row: str
    texts: tuple[str, ...]
    label: str | None


@dataclass
class GlueSplit:
    """A split as it was read.

    Attributes:
        source: the file, or how the split came about.
        examples: its rows.
        skipped: broken lines that were left out.
    """

    source: str
    examples: list[GlueExample]
    skipped: int = 0

    @property
    def labelled(self) -> bool:
        """Whether the right answers are known."""
        return self.examples[0].label is not None


def read_task(task: GlueTask, folder: str | Path, seed: int = 1) -> dict[str, GlueSplit]:
    """Read all splits that a folder has; training and development set must be there.

    ``seed`` draws the pairs that are held out where the original MRPC has no development set.

    Raises:
        UserError: a file is missing, or a line has the wrong columns or an unknown label (named with its line)
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"--data {folder} is no folder; give the one with the official files of {task.name}")
    if task.name == "MRPC" and not (folder / "train.tsv").is_file():
        return _read_original_mrpc(task, folder, seed)
    for split in ("train", *(s for s in task.files if s.startswith("valid"))):
        if not (folder / task.files[split]).is_file():
            raise UserError(
                f"{folder / task.files[split]} is missing; give --data the folder of {task.name}'s official files"
            )
    return {
        split: read_split(task, folder / name, must_be_labelled=not split.startswith("test"))
        for split, name in task.files.items()
        if (folder / name).is_file()
    }


def read_split(task: GlueTask, path: str | Path, must_be_labelled: bool = True) -> GlueSplit:
    """Read one file; see :func:`read_task`."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        bad = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {bad}: not UTF-8; get the official file again") from None
    # not splitlines(): it breaks at characters that stand inside sentences; quotes mean nothing in these files
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    header, first = _header(task, lines)
    missing = [name for name in task.texts if name not in header]
    if must_be_labelled and task.label not in header:
        missing.append(task.label)
    if missing:
        # the header may be anything, lone carriage returns included
        there = ", ".join(header).encode("unicode_escape").decode() or "nothing"
        raise UserError(
            f"{path} has no column {missing[0]!r} (but {there}); give the official file of {task.name}"
        )
    texts = [header.index(name) for name in task.texts]
    label = header.index(task.label) if task.label in header else None
    index = next((header.index(name) for name in ("index", "id") if name in header), None)
    found = GlueSplit(str(path), [])
    for number, line in enumerate(lines[first:], start=first + 1):
        columns = line.split("\t")
        if len(columns) != len(header):
            # a test set must keep every row: its predictions are counted
            if task.skips and label is not None:
                found.skipped += 1
                continue
            raise UserError(
                f"{path}, line {number}: {len(columns)} columns where {len(header)} are expected; get the official "
                f"file of {task.name} again"
            )
        row = columns[index] if index is not None else str(len(found.examples))
        answer = None if label is None else _checked(task, columns[label], path, number)
        found.examples.append(GlueExample(row, tuple(columns[place] for place in texts), answer))
    if not found.examples:
        raise UserError(f"{path} holds no examples; give the official file of {task.name}")
    return found


def _header(task: GlueTask, lines: list[str]) -> tuple[tuple[str, ...], int]:
    """The names of the columns, and how many lines they take."""
    names = tuple(lines[0].split("\t")) if lines else ()
    if task.columns and names[:1] != ("index",):  # which test sets begin with
        return task.columns, 0
    return names, 1


def _checked(task: GlueTask, label: str, path: Path, number: int) -> str:
    if task.labels:
        if label not in task.labels:
            raise UserError(
                f"{path}, line {number}: unknown label {label!r}; {task.name} has {', '.join(task.labels)}"
            )
        return label
    try:
        score = float(label)
    except ValueError:
        score = math.nan
    if not 0 <= score <= HIGHEST_SCORE:
        raise UserError(
            f"{path}, line {number}: the score is {label!r}, not a number from 0 to {HIGHEST_SCORE:g}"
        )
    return label


def _read_original_mrpc(task: GlueTask, folder: Path, seed: int) -> dict[str, GlueSplit]:
    train = folder / _MRPC_ORIGINAL["train"]
    if not train.is_file():
        raise UserError(
            f"{folder} holds neither train.tsv (GLUE's form of MRPC) nor {train.name} (the original corpus); give "
            "--data a folder with one of them"
        )
    everything = read_split(task, train)
    listed = next((folder / name for name in _MRPC_DEV_IDS if (folder / name).is_file()), None)
    if listed is not None:
        pairs = {tuple(line.split()) for line in listed.read_text(encoding="utf-8-sig").splitlines() if line}
        ids = _columns(train, ("#1 ID", "#2 ID"))
        held_out = {row for row, pair in enumerate(ids) if pair in pairs}
        source = f"the pairs of {train.name} that {listed.name} lists"
        if not held_out:
            raise UserError(
                f"{listed} lists no pair of {train.name}; its lines are '#1 ID<TAB>#2 ID', or remove it"
            )
    else:
        rows = range(len(everything.examples))
        held_out = set(random.Random(seed).sample(rows, max(1, round(_HELD_OUT * len(rows)))))
        source = f"{_HELD_OUT:.0%} of {train.name}, drawn with seed {seed}: the original corpus has no development set"
    parts: dict[bool, list[GlueExample]] = {True: [], False: []}
    for number, example in enumerate(everything.examples):
        parts[number in held_out].append(example)
    if not parts[False]:
        raise UserError(f"{train} leaves nothing to train on; get the corpus again")
    splits = {"train": GlueSplit(str(train), parts[False]), "valid": GlueSplit(source, parts[True])}
    test = folder / _MRPC_ORIGINAL["test"]
    if test.is_file():
        splits["test"] = read_split(task, test, must_be_labelled=False)
    return splits


def _columns(path: Path, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Columns of a file that :func:`read_split` has accepted."""
    lines = path.read_bytes().decode("utf-8-sig").rstrip().split("\n")
    header = lines[0].rstrip("\r").split("\t")
    if missing := [name for name in names if name not in header]:
        raise UserError(f"{path} has no column {missing[0]!r}; get the corpus again")
    places = [header.index(name) for name in names]
    return [tuple(line.split("\t")[place].strip() for place in places) for line in lines[1:]]
