"""Writes small files in the official form of every task of GLUE: an importable helper of the tests."""

from pathlib import Path

WORDS = "the cat dog sat ran on under a mat tree and slept it was not here red blue big small".split()  # noqa: SIM905
SENTENCES = [" ".join(WORDS[(7 * i + 3 * j) % len(WORDS)] for j in range(3 + i % 5)) for i in range(40)]

# header of the training set and a row, as a format of sentences a and b, label and number n; the same of the test set
FORMS = {
    "CoLA": (None, "gj04\t{label}\t\t{a}", "index\tsentence", "{n}\t{a}"),
    "SST-2": ("sentence\tlabel", "{a}\t{label}", "index\tsentence", "{n}\t{a}"),
    "MRPC": (
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "{label}\t1{n}\t2{n}\t{a}\t{b}",
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "{n}\t1{n}\t2{n}\t{a}\t{b}",
    ),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "{n}\tg\tf\t2012\t0\tnone\tnone\t{a}\t{b}\t{label}",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2",
        "{n}\tg\tf\t2012\t0\tnone\tnone\t{a}\t{b}",
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "{n}\t1{n}\t2{n}\t{a}\t{b}\t{label}",
        "id\tquestion1\tquestion2",
        "{n}\t{a}\t{b}",
    ),
    "MNLI": (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
        "{n}\t1\t2\tfiction\t( x )\t( y )\t(R x)\t(R y)\t{a}\t{b}\tneutral\t{label}",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2",
        "{n}\t1\t2\tfiction\t( x )\t( y )\t(R x)\t(R y)\t{a}\t{b}",
    ),
    "QNLI": (
        "index\tquestion\tsentence\tlabel",
        "{n}\t{a}\t{b}\t{label}",
        "index\tquestion\tsentence",
        "{n}\t{a}\t{b}",
    ),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel",
        "{n}\t{a}\t{b}\t{label}",
        "index\tsentence1\tsentence2",
        "{n}\t{a}\t{b}",
    ),
    "WNLI": (
        "index\tsentence1\tsentence2\tlabel",
        "{n}\t{a}\t{b}\t{label}",
        "index\tsentence1\tsentence2",
        "{n}\t{a}\t{b}",
    ),
}
LABELS = {
    "STS-B": ("0.000", "2.400", "5.000", "3.8"),
    "MNLI": ("contradiction", "neutral", "entailment"),
    **dict.fromkeys(("QNLI", "RTE"), ("not_entailment", "entailment")),
}
DEV = {"MNLI": ("dev_matched.tsv", "dev_mismatched.tsv")}
TEST = {"MNLI": ("test_matched.tsv", "test_mismatched.tsv")}


def rows(task: str, count: int, shift: int = 0) -> list[tuple[str, str, str]]:
    """Sentence a, sentence b and label of each row."""
    labels = LABELS.get(task, ("0", "1"))
    return [
        (SENTENCES[(n + shift) % 40], SENTENCES[(3 * n + shift + 1) % 40], labels[(n + shift) % len(labels)])
        for n in range(count)
    ]


def write_task(folder: Path, task: str, train: int = 12, dev: int = 7, test: int = 5) -> Path:
    """Write the files of a task; ``test`` 0: without a test set. The test set counts from 100."""
    folder.mkdir(parents=True, exist_ok=True)
    header, row, test_header, test_row = FORMS[task]
    files = [("train.tsv", train, 0)]
    files += [(name, dev, 5 + i) for i, name in enumerate(DEV.get(task, ("dev.tsv",)))]
    for name, count, shift in files:
        lines = [] if header is None else [header]
        lines += [
            row.format(a=a, b=b, label=label, n=n) for n, (a, b, label) in enumerate(rows(task, count, shift))
        ]
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    for i, name in enumerate(TEST.get(task, ("test.tsv",)) if test else ()):
        lines = [test_header]
        lines += [
            test_row.format(a=a, b=b, n=100 + n) for n, (a, b, _) in enumerate(rows(task, test, 20 + i))
        ]
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    if task == "MNLI" and test:
        _, _, test_header, test_row = FORMS["RTE"]
        lines = [
            test_header,
            *(test_row.format(a=a, b=b, n=100 + n) for n, (a, b, _) in enumerate(rows(task, test, 22))),
        ]
        (folder / "diagnostic.tsv").write_text("".join(f"{line}\n" for line in lines))
    return folder
