"""Reading the official files of GLUE: every task, and every quirk."""

import pytest
from small_glue import DEV, FORMS, rows, write_task

from fairseq_tn.data.glue import TASKS, read_split, read_task
from fairseq_tn.errors import UserError


def test_all_tasks_are_tested():
    assert list(TASKS) == list(FORMS)


@pytest.mark.parametrize("name", FORMS)
def test_every_task(name, tmp_path):
    task = TASKS[name]
    splits = read_task(task, write_task(tmp_path, name))
    expected = {"train": rows(name, 12), "valid": rows(name, 7, 5)}
    if name == "MNLI":
        expected["valid1"] = rows(name, 7, 6)
    for split, wanted in expected.items():
        found = splits[split]
        assert [e.texts for e in found.examples] == [row[: len(task.texts)] for row in wanted]
        assert [e.label for e in found.examples] == [row[2] for row in wanted]
        assert (found.labelled, found.skipped) == (True, 0)
    tests = {"test": 20, "test1": 21, "test2": 22} if name == "MNLI" else {"test": 20}
    assert splits.keys() == expected.keys() | tests.keys()
    for split, shift in tests.items():
        found = splits[split]
        assert not found.labelled
        assert [e.row for e in found.examples] == [str(100 + n) for n in range(5)]
        assert [e.texts for e in found.examples] == [row[: len(task.texts)] for row in rows(name, 5, shift)]


def test_test_set_may_be_missing_but_nothing_else(tmp_path):
    write_task(tmp_path, "MNLI", test=0)
    assert list(read_task(TASKS["MNLI"], tmp_path)) == ["train", "valid", "valid1"]
    for name in ("train.tsv", *DEV["MNLI"]):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
        with pytest.raises(UserError, match=f"{name} is missing"):
            read_task(TASKS["MNLI"], tmp_path)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="is no folder"):
        read_task(TASKS["MNLI"], tmp_path / "nothing")


def test_quotes_blanks_and_strange_line_breaks_belong_to_sentences(tmp_path):
    texts = ['"He said', 'so" , "', "a \u2028 b\x0b\x85c", " leading ", ""]
    lines = ["sentence\tlabel", *(f"{text}\t1" for text in texts)]
    (tmp_path / "dev.tsv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, "", ""]).encode())
    found = read_split(TASKS["SST-2"], tmp_path / "dev.tsv")
    assert [e.texts for e in found.examples] == [(text,) for text in texts]


def test_a_sentence_of_cola_is_no_header(tmp_path):
    (tmp_path / "dev.tsv").write_text("gj04\t0\t*\tsentence\n")
    (example,) = read_split(TASKS["CoLA"], tmp_path / "dev.tsv").examples
    assert (example.texts, example.label, example.row) == (("sentence",), "0", "0")


def test_broken_lines_of_qqp_are_counted_but_not_in_a_test_set(tmp_path):
    write_task(tmp_path, "QQP")
    with open(tmp_path / "train.tsv", "a") as file:
        file.write("77\t1\t2\tcut off here\n and goes on\t?\t1\n")
    split = read_task(TASKS["QQP"], tmp_path)["train"]
    assert (len(split.examples), split.skipped) == (12, 2)
    with open(tmp_path / "test.tsv", "a") as file:
        file.write("105\tcut off\n")
    with pytest.raises(UserError, match=r"test.tsv, line 7: 2 columns where 3"):
        read_task(TASKS["QQP"], tmp_path)


@pytest.mark.parametrize(
    ("task", "line", "named"),
    [
        ("RTE", "9\ta\tb", r"dev.tsv, line 9: 3 columns where 4"),
        ("RTE", "9\ta\tb\tmaybe", r"line 9: unknown label 'maybe'; RTE has entailment, not_entailment"),
        ("CoLA", "gj04\t2\t\ta", r"line 8: unknown label '2'"),
        ("STS-B", "9\tg\tf\t2012\t0\tnone\tnone\ta\tb\t5.1", r"line 9: the score is '5.1'"),
        ("STS-B", "9\tg\tf\t2012\t0\tnone\tnone\ta\tb\tnan", r"line 9: the score is 'nan'"),
        ("STS-B", "9\tg\tf\t2012\t0\tnone\tnone\ta\tb\tbad", r"line 9: the score is 'bad'"),
        ("SST-2", "a\t1\n\nb\t1", r"line 10: 1 columns where 2"),
    ],
)
def test_bad_lines_are_named(task, line, named, tmp_path):
    write_task(tmp_path, task)
    with open(tmp_path / "dev.tsv", "a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=named):
        read_task(TASKS[task], tmp_path)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "no column 'sentence'"),
        (b"sentence\tlabel\n", "no examples"),
        (b"text\tlabel\na\t1\n", "no column 'sentence'"),
        (b"index\tsentence\n0\ta\n", "no column 'label'"),
        (b"sentence\tlabel\na\t1\n\xff\t1\n", "line 3: not UTF-8"),
        (b"sentence\tlabel\ra\t1\r", r"but sentence, label\\ra"),
    ],
)
def test_other_files(content, named, tmp_path):
    write_task(tmp_path, "SST-2")
    (tmp_path / "dev.tsv").write_bytes(content)
    with pytest.raises(UserError, match=named) as caught:
        read_task(TASKS["SST-2"], tmp_path)
    assert "dev.tsv" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# --- MRPC as its authors distribute it -----------------------------------------------------------------------------


@pytest.fixture
def mrpc(tmp_path):
    write_task(tmp_path, "MRPC", train=20)
    train = (tmp_path / "train.tsv").read_text()
    (tmp_path / "msr_paraphrase_train.txt").write_text("\ufeff" + train.replace("\n", "\r\n"), newline="")
    (tmp_path / "dev.tsv").rename(tmp_path / "msr_paraphrase_test.txt")
    (tmp_path / "train.tsv").unlink()
    return tmp_path


def test_original_mrpc_with_the_listed_pairs(mrpc):
    (mrpc / "dev_ids.tsv").write_text("#1 ID\t#2 ID\n13\t23\n117\t217\n")
    splits = read_task(TASKS["MRPC"], mrpc)
    everything = rows("MRPC", 20)
    assert [e.texts for e in splits["valid"].examples] == [everything[n][:2] for n in (3, 17)]
    assert len(splits["train"].examples) == 18
    assert splits["test"].labelled
    (mrpc / "dev_ids.tsv").write_text("1\t2\n")
    with pytest.raises(UserError, match="lists no pair"):
        read_task(TASKS["MRPC"], mrpc)


def test_original_mrpc_without_a_list_holds_out_a_tenth_and_says_so(mrpc):
    first, again, other = (read_task(TASKS["MRPC"], mrpc, seed) for seed in (1, 1, 2))
    assert "10%" in first["valid"].source
    assert "seed 1" in first["valid"].source
    assert first["valid"].examples == again["valid"].examples != other["valid"].examples
    together = first["train"].examples + first["valid"].examples
    assert len(first["valid"].examples) == 2
    assert sorted(e.row for e in together) == sorted(str(n) for n in range(20))


def test_mrpc_in_neither_form(mrpc):
    (mrpc / "msr_paraphrase_train.txt").unlink()
    with pytest.raises(UserError, match="neither train"):
        read_task(TASKS["MRPC"], mrpc)
