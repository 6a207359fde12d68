"""Triples of natural language inference: three forms of files, and the binarised splits of the same lines."""

import json

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_tn.cli import main
from fairseq_tn.data.nli import ENDINGS, TripleCounts, read_triples
from fairseq_tn.errors import UserError

TRIPLES = [
    ("a man, outside", "a man is outside", 'he says "no"'),
    ("two dogs run", "dogs", "cats sit very still today"),
    ("rain", "it is wet", "sun"),
]


def write(path, triples=TRIPLES):
    """Write triples in the form that the file's name asks for."""
    if path.suffix == ".csv":
        quoted = [",".join('"' + text.replace('"', '""') + '"' for text in triple) for triple in triples]
        lines = ["sent0,sent1,hard_neg", *quoted]
    elif path.suffix == ".jsonl":
        lines = [
            json.dumps(dict(zip(("sent0", "sent1", "hard_neg"), triple, strict=True))) for triple in triples
        ]
    else:
        lines = ["\t".join(triple) for triple in triples]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.tsv"])
def test_every_form_gives_the_same_triples(name, tmp_path):
    assert [triple for _, triple in read_triples(write(tmp_path / name))] == TRIPLES


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.tsv"])
def test_headers_blank_lines_and_other_line_ends_are_no_triples(name, tmp_path):
    path = write(tmp_path / name)
    header = "sent0\tsent1\thard_neg\n" if name == "t.tsv" else ""
    text = ("\ufeff" + header + path.read_text(encoding="utf-8") + "\n").replace("\n", "\r\n")
    path.write_bytes(text.encode("utf-8"))
    assert [triple for _, triple in read_triples(path)] == TRIPLES


# label, premise, hypothesis
PAIRS = [
    ("neutral", "rain", "a storm"),
    ("entailment", "rain", "it is wet"),
    ("contradiction", "two dogs run", "cats sit"),
    ("-", "two dogs run", "animals"),
    ("contradiction", "rain", "sun"),
    ("entailment", "two dogs run", 'the "dogs"'),
    ("entailment", "two dogs run", ""),
    ("entailment", "two dogs run", "dogs"),
    ("contradiction", "two dogs run", "dogs sleep"),
    ("contradiction", "two dogs run", "one dog"),
    ("entailment", "snow", "white"),
]
JOINED = [
    (2, ("rain", "it is wet", "sun")),
    (6, ("two dogs run", 'the "dogs"', "cats sit")),
    (8, ("two dogs run", "dogs", "dogs sleep")),
]


@pytest.mark.parametrize("form", ["snli.jsonl", "snli.txt", "MNLI/train.tsv"])
def test_labelled_pairs_are_joined_premise_by_premise(form, tmp_path):
    if form.endswith(".jsonl"):
        keys = ("gold_label", "sentence1", "sentence2")
        lines = [json.dumps({"annotator_labels": [], **dict(zip(keys, pair, strict=True))}) for pair in PAIRS]
    elif form == "snli.txt":
        lines = ["gold_label\tsentence1_parse\tsentence1\tsentence2\tlabel1"]
        lines += [f"{label}\t(ROOT)\t{one}\t{two}\t{label}" for label, one, two in PAIRS]
    else:
        lines = ["index\tsentence1\tsentence2\tlabel1\tgold_label"]
        lines += [f"7\t{one}\t{two}\tneutral\t{label}" for label, one, two in PAIRS]
    path = tmp_path / form
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n\r\n").encode())
    counts = TripleCounts()
    shift = not form.endswith(".jsonl")
    assert list(read_triples(path, counts)) == [(line + shift, triple) for line, triple in JOINED]
    assert counts.incomplete == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.jsonl", '{"gold_label": "-", "sentence1": "a", "sentence2": "b"}\n', "no triples"),
        (
            "p.jsonl",
            '{"gold_label": "-", "sentence1": "a"}\n',
            "line 1: not an object with the keys gold_label",
        ),
        ("p.tsv", "gold_label\tsentence1\nneutral\ta\n", "no column 'sentence2'"),
        ("p.tsv", "gold_label\tsentence1\tsentence2\nneutral\ta\n", "line 2: 2 columns"),
    ],
)
def test_bad_labelled_pairs_are_named_with_their_line(name, text, said, tmp_path):
    test_bad_files_are_named_with_their_line(name, text, said, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.tsv", "a\tb\tc\nd\te\n", "line 2"),
        ("t.tsv", "a\tb\t \n", "line 1"),
        ("t.tsv", "", "no triples"),
        ("t.csv", "sent0,sent1\na,b\n", "hard_neg"),
        ("t.csv", "sent0,sent1,hard_neg\na,b\n", "line 2"),
        ("t.jsonl", '{"sent0": "a", "sent1": "b"}\n', "hard_neg"),
        ("t.csv", "sent0,sent1,hard_neg\na,b,c, and d\n", "line 2: 4 columns where there must be 3"),
        ("t.csv", 'sent0,sent1,hard_neg\n"a,b,c\nd,e,f\n', "line 3: unexpected end"),
        ("t.csv", 'sent0,sent1,hard_neg\n"a,b,c\n' + "d,e,f\n" * 30000, "field larger"),
        ("t.jsonl", "a\n", "line 1"),
        ("t.jsonl", '{"sent0": "a", "sent1": null, "hard_neg": "c"}\n', "line 1: sent1 is no text"),
    ],
)
def test_bad_files_are_named_with_their_line(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        list(read_triples(tmp_path / name))
    assert said in str(error.value)
    assert str(tmp_path / name) in str(error.value)


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        list(read_triples(tmp_path / "gone.tsv"))
    (tmp_path / "latin.tsv").write_bytes("é\tb\tc\n".encode("latin-1"))
    with pytest.raises(UserError, match="UTF-8"):
        list(read_triples(tmp_path / "latin.tsv"))


def test_the_command_writes_aligned_splits(tmp_path, capsys):
    words = sorted({word for triple in TRIPLES for text in triple for word in text.split()} - {"rain"})
    (tmp_path / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    output = tmp_path / "data"
    options = ["--tokenizer", "words", "--dict", tmp_path / "dict.txt", "--max-length", 6, "--output", output]
    files = ["--train", write(tmp_path / "t.csv"), "--valid", write(tmp_path / "v.tsv", TRIPLES[1:])]
    assert main(["prepare", "nli", *map(str, [*files, *options])]) == 0
    printed = capsys.readouterr().out
    assert "train: 3 triples, 1 sentences truncated to 6 tokens, 23 tokens (1 <unk>)" in printed
    assert "--tokens-per-sample 6" in printed
    dictionary = Dictionary.load(str(output / "dict.txt"))
    for split, triples in (("train", TRIPLES), ("valid", TRIPLES[1:])):
        for column, ending in enumerate(ENDINGS):
            rows = data_utils.load_indexed_dataset(
                str(output / f"{split}{ending}"), dictionary, dataset_impl="mmap"
            )
            assert len(rows) == len(triples)
            for row, triple in zip(rows, triples, strict=True):
                expected = [word if word in dictionary else "<unk>" for word in triple[column].split()[:4]]
                assert [dictionary[token] for token in row] == [*expected, "</s>"]
    assert main(["prepare", "nli", *map(str, [*files, *options])]) == 1
    assert "new folder" in capsys.readouterr().err
