"""The rows of the papers' tables and the tasks that judge them: what there is, and no logic."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_tn.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples" / "reproduce" / "config"
SMALL = ROOT / "examples" / "reproduce" / "small.yaml"


@dataclass(frozen=True)
class Row:
    """A pre-training row of a table.

    Attributes:
        name: of the row, and of its YAML file if it trains.
        method: in words.
        paper: whose table it is from.
        family: the section of ``small.yaml`` that makes it small.
        text: what it is trained on: ``en``, ``zh`` or ``owt``.
        start: the weights that it starts from, the folder's name; None: from scratch.
        trains: whether there is further pre-training at all.
        synonyms: source of its synonym table: ``wordnet``, ``vectors`` or None.
        small: the row that stands for it with ``--small``: of the same method, whatever the size.
        published: the method's name in :data:`fairseq_tn.evaluation.published.PUBLISHED`, if it is there.
    """

    name: str
    method: str
    paper: str
    family: str
    text: str
    start: str | None
    trains: bool = True
    synonyms: str | None = None
    small: str = ""
    published: str | None = None

    @property
    def config(self) -> Path:
        """The row's YAML file."""
        return CONFIG / f"{self.name}.yaml"

    @property
    def vocabulary(self) -> str:
        """The weights whose tokenizer the row's text was encoded with."""
        return self.start or "bert-base-uncased"


_TACL, _TN = "TaCL", "True Negatives"


def _tacl() -> list[Row]:
    rows = []
    for size in ("base", "large"):
        start, name = f"bert-{size}-uncased", f"bert-{size}"
        common = {"paper": _TACL, "family": "tacl", "text": "en", "start": start}
        known = ("BERT-base", "BERT-base + TaCL") if size == "base" else (None, None)
        rows += [
            Row(name, "BERT as it is", **common, trains=False, small="bert-base", published=known[0]),
            Row(f"{name}-mt", "masked LM + NSP for as long (+MT)", **common, small="bert-base-mt"),
            Row(
                f"{name}-tacl", "TaCL + masked LM + NSP", **common, small="bert-base-tacl", published=known[1]
            ),
        ]
    common = {"paper": _TACL, "family": "tacl", "text": "en", "start": "bert-base-uncased"}
    rows += [
        Row("bert-base-simcse", "SimCSE alone", **common),
        Row("bert-base-mirror", "Mirror-BERT alone", **common),
        Row("bert-base-declutr", "DeCLUTR: spans of documents + masked LM", **common),
        Row("model-1", "sentence contrast + masked LM + NSP", **common),
        Row("model-2", "TaCL alone, without masked LM and NSP", **common),
    ]
    common = {"paper": _TACL, "family": "chinese", "text": "zh", "start": "bert-base-chinese"}
    name = "bert-base-chinese"
    rows += [
        Row(name, "Chinese BERT as it is", **common, trains=False, published="BERT-base"),
        Row(f"{name}-mt", "masked LM + NSP for as long (+MT)", **common),
        Row(f"{name}-tacl", "TaCL + masked LM + NSP", **common, published="BERT-base + TaCL"),
    ]
    return rows


# ending of the name: (method, source of the synonyms)
_METHODS = {
    "-hc": ("hard correction, WordNet", "wordnet"),
    "-hc-vectors": ("hard correction, word vectors", "vectors"),
    "-sr": ("soft regularisation, word level", None),
    "-sr-sentence": ("soft regularisation, sentence level", None),
    "-hc-sr": ("hard correction (WordNet) + soft regularisation", "wordnet"),
}


def _true_negatives() -> list[Row]:
    rows = []
    for model, ending, baseline, text, start in (
        ("bert-base", "-mlm", "masked LM alone for as long", "en", "bert-base-uncased"),
        ("bert-large", "-mlm", "masked LM alone for as long", "en", "bert-large-uncased"),
        ("electra-small", "", "ELECTRA as it is", "owt", None),
        ("electra-base", "", "ELECTRA as it is, for as long", "en", "electra-base"),
    ):
        electra = model.startswith("electra")
        family, twin = ("electra", "electra-small") if electra else ("true_negatives", "bert-base")
        for end, (method, synonyms) in {ending: (baseline, None), **_METHODS}.items():
            rows.append(
                Row(
                    model + end, method, _TN, family, text, start, synonyms=synonyms, small=twin + end
                )
            )  # fmt: skip
    return rows


ROWS = {row.name: row for row in (*_tacl(), *_true_negatives())}


@dataclass(frozen=True)
class Task:
    """A downstream data set.

    Attributes:
        name: as ``--task``, ``--version`` and the tables call it.
        kind: ``glue``, ``squad`` or ``tagging``: the recipe that fine-tunes on it.
        language: ``en`` or ``zh``: the rows that it judges.
        folders: where it may lie below ``--data``.
        files: for each split, the patterns of its file's name; the first that is there counts. GLUE's recipe finds
            its files by itself, and only the training file is looked for.
        small: whether ``--small`` has time for it.
    """

    name: str
    kind: str
    language: str
    folders: tuple[str, ...]
    files: tuple[tuple[str, tuple[str, ...]], ...]
    small: bool = False

    def find(self, data: Path | None) -> dict[str, Path] | None:
        """The file of each split, or None if the training file is not there."""
        for folder in self.folders if data is not None else ():
            found = {
                split: path
                for split, patterns in self.files
                if (path := _first(data / folder, patterns)) is not None  # type: ignore[operator]
            }
            needed = ("train", "valid") if self.kind == "squad" else ("train",)
            if all(split in found for split in needed):
                return found
        return None

    def missing(self) -> str:
        """Where its training file was looked for, in words."""
        patterns = dict(self.files)["train"]
        return " or ".join(f"{folder}/{pattern}" for folder in self.folders for pattern in patterns[:1])


def _first(folder: Path, patterns: Sequence[str]) -> Path | None:
    return next((path for pattern in patterns for path in sorted(folder.glob(pattern))), None)


def _glue(name: str, small: bool = False) -> Task:
    patterns = ("train.tsv", "msr_paraphrase_train.txt")
    return Task(name, "glue", "en", (f"glue/{name}", name), (("train", patterns),), small)


def _squad(version: str) -> Task:
    files = (("train", (f"train-v{version}.json",)), ("valid", (f"dev-v{version}.json",)))
    return Task(f"SQuAD {version}", "squad", "en", ("squad", "."), files, small=True)


def _tagging(name: str, folder: str, small: bool = False, **patterns: tuple[str, ...]) -> Task:
    folders = (f"tagging/{folder}", f"ner_zh/{folder}", folder)
    return Task(name, "tagging", "zh", folders, tuple(patterns.items()), small)


_NER = {"train": ("*train*",), "valid": ("*dev*", "*valid*"), "test": ("*test*",)}
# a training text of the SIGHAN bakeoff and the gold standard of its test; there is no development set
_BAKEOFF = {"train": ("*train*.utf8", "*train*"), "test": ("*test_gold*", "*test*")}
# patterns in the order of preference: the second release of Weibo before the first
_WEIBO = {
    split: (f"*2nd*{word}*", f"*{word}*")
    for split, word in (("train", "train"), ("valid", "dev"), ("test", "test"))
}

TASKS = {
    task.name: task
    for task in (
        _glue("CoLA"),
        _glue("SST-2", small=True),
        _glue("MRPC"),
        _glue("STS-B"),
        _glue("QQP"),
        _glue("MNLI"),
        _glue("QNLI"),
        _glue("RTE", small=True),
        _squad("1.1"),
        _squad("2.0"),
        _tagging("MSRA NER", "msra", **_NER),
        _tagging("OntoNotes NER", "ontonotes", **_NER),
        _tagging("Resume NER", "resume", **_NER),
        _tagging("Weibo NER", "weibo", small=True, **_WEIBO),
        _tagging("PKU", "pku", **_BAKEOFF),
        _tagging("CityU", "cityu", **_BAKEOFF),
        _tagging("AS", "as", **_BAKEOFF),
    )
}


def chosen_rows(names: Sequence[str], everything: bool, small: bool) -> list[Row]:
    """The rows that run: those named, or all; with ``small`` those that stand for them, each once.

    Raises:
        UserError: there is no such row
    """
    for name in names:
        if name not in ROWS:
            raise UserError(f"{name} is no row; --list shows all")
    rows = [row for row in ROWS.values() if everything or row.name in names]
    if small:
        rows = list(dict.fromkeys(ROWS[row.small or row.name] for row in rows))
    return rows


def represented(row: Row) -> list[Row]:
    """The rows that ``row`` stands for with ``--small``, itself first."""
    return [row, *(other for other in ROWS.values() if other.small == row.name and other is not row)]


def chosen_tasks(names: Sequence[str], small: bool, option: str = "--tasks") -> list[Task]:
    """The tasks that are asked for, or without names all (``small``: those there is time for).

    Raises:
        UserError: there is no such task
    """
    for name in names:
        if name not in TASKS:
            none = ", or none" if option == "--tasks" else ""
            raise UserError(f"{option} {name}: there is none; give {', '.join(map(repr, TASKS))}{none}")
    return [task for task in TASKS.values() if (task.name in names if names else task.small or not small)]
