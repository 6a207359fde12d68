"""The JSON of a downstream result: it comes back as it was, and contradictions are refused with the file's name."""

import dataclasses
import json

import pytest

from fairseq_tn.data.examples import digest_of_examples
from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.results import Result, read_result, write_result

RESULT = Result(
    kind="glue",
    task="RTE",
    method="tacl",
    seed=3,
    split="valid",
    metrics={"accuracy": 75.0},
    main_metric="accuracy",
    aggregate="mean",
    columns={"score": [1, 0, 1, 1]},
    examples=digest_of_examples(["a", "b", "c", "d"]),
    details={"checkpoint": "größe.pt"},
)


def test_comes_back_as_it_was(tmp_path):
    write_result(tmp_path / "new" / "r.json", RESULT)
    assert read_result(tmp_path / "new" / "r.json") == RESULT
    assert json.loads((tmp_path / "new" / "r.json").read_text())["num_examples"] == 4
    assert (RESULT.num_examples, RESULT.value) == (4, 75.0)


def test_several_columns_without_a_seed(tmp_path):
    columns = {"correct": [1, 0], "predicted": [1, 1], "gold": [1, 2]}
    result = dataclasses.replace(
        RESULT, seed=None, aggregate="f1", metrics={"f1": 40.0}, main_metric="f1", columns=columns
    )
    write_result(tmp_path / "r.json", result)
    assert read_result(tmp_path / "r.json") == result


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"metrics": {"accuracy": 76.0}}, "accuracy is 76.00, but the examples give 75.00"),
        ({"main_metric": "f1"}, "f1 is not among the metrics"),
        ({"aggregate": "median"}, "median"),
        ({"columns": {"gold": [1, 0, 1, 1]}}, "reads the columns score"),
        ({"columns": {"score": []}}, "one number for each example"),
        ({"columns": {"score": 3}}, "one number for each example"),
        ({"columns": {"score": [1, 0, None, 1]}}, "not a number"),
        ({"columns": {"score": [1, 0, float("nan"), 1]}}, "not a number"),
        ({"metrics": {"accuracy": float("nan")}}, "not a number"),
        ({"metrics": [75.0]}, "must be objects"),
        ({"seed": "3"}, "seed"),
        ({"seed": True}, "seed"),
        ({"method": " "}, "method"),
        ({"task": None}, "task"),
    ],
)
def test_contradictions(change, named, tmp_path):
    broken = dataclasses.replace(RESULT, **change)
    with pytest.raises(ValueError, match=named):
        write_result(tmp_path / "r.json", broken)
    assert list(tmp_path.iterdir()) == []
    write_result(tmp_path / "r.json", RESULT)
    content = json.loads((tmp_path / "r.json").read_text()) | change
    (tmp_path / "r.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=named) as caught:
        read_result(tmp_path / "r.json")
    assert "r.json" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"format": "other"}, "is no result"), ({"num_examples": 5}, "num_examples is 5")],
)
def test_other_files(change, named, tmp_path):
    write_result(tmp_path / "r.json", RESULT)
    content = json.loads((tmp_path / "r.json").read_text()) | change
    (tmp_path / "r.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=named):
        read_result(tmp_path / "r.json")


def test_a_missing_field_is_named(tmp_path):
    write_result(tmp_path / "r.json", RESULT)
    content = json.loads((tmp_path / "r.json").read_text())
    del content["split"]
    (tmp_path / "r.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="lacks 'split'"):
        read_result(tmp_path / "r.json")


def test_digest_tells_order_and_borders():
    digests = {digest_of_examples(texts) for texts in (["ab", "c"], ["a", "bc"], ["c", "ab"], ["abc"], [])}
    assert len(digests) == 5
    assert digest_of_examples(iter(["ab", "c"])) == digest_of_examples(["ab", "c"])
