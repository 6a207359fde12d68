"""The tagging recipe: its commands work one after the other, and bad arguments are one line."""

import shlex
from functools import partial
from pathlib import Path

import pytest
import recipes
import torch
from recipes import ROOT, option
from small_tagging import sentences, write_conll
from training import flags, fork_server

from fairseq_tn.cli import main
from fairseq_tn.evaluation.results import read_result

script = partial(recipes.script, ROOT / "examples" / "finetune" / "tagging")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    return {
        split: write_conll(folder / f"{split}.conll", sentences(24, seed))
        for seed, split in enumerate(("train", "valid", "test"))
    }


def commands(*arguments):
    """The words of each command that the script would run."""
    done = script(*arguments, "--dry-run")
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.replace("\\\n", "").splitlines()]


def test_two_steps_of_the_small_recipe(files, tmp_path, capsys):
    names = flags({**files, "output": tmp_path, "gpus": 0, "task": "Small NER"})
    prepare, train, *evaluations = commands("--small", *names)
    assert option(train, "--batch-size") == "16"
    assert main(prepare[1:]) == 0
    Path(option(train, "--save-dir")).mkdir(parents=True)  # the script makes it for the log
    with fork_server(tmp_path) as server:
        run = server.run("fairseq-train", [*train[1:], "--max-update", "2", "--num-workers", "0"], cwd=ROOT)
    assert run.code == 0, run.log[-2500:]
    assert [option(words, "--split") for words in evaluations] == ["valid", "test"]
    for words in evaluations:
        assert main(words[1:]) == 0
        result = read_result(option(words, "--json"))
        assert (result.task, result.method, result.seed) == ("Small NER", "scratch", 1)
        assert result.split == option(words, "--split")
    assert len(list((tmp_path / "results").iterdir())) == 2


def test_the_published_settings(files, tmp_path):
    """Those of the scripts in TaCL's repository: 64 sentences at once, 128 an update, a constant rate."""
    model = tmp_path / "bert" / "model.pt"
    model.parent.mkdir()
    torch.save({"cfg": {"model": {"_name": "tn_bert_base"}}}, model)
    names = flags({**files, "checkpoint": model, "tokenizer": "words", "gpus": 1})
    prepare, train, *_ = commands(*names)
    expected = {
        "--arch": "tn_bert_base",
        "--finetune-from-model": str(model),
        "--tagging-loss": "crf",
        "--head-dropout": "0",
        "--lr": "2e-5",
        "--lr-scheduler": "fixed",
        "--weight-decay": "0",
        "--clip-norm": "1",
        "--max-epoch": "100",
        "--batch-size": "64",
        "--update-freq": "2",
    }
    assert {name: option(train, name) for name in expected} == expected
    assert "--fp16" in train
    assert "--max-update" not in train
    assert option(prepare, "--max-tokens") == "130"


def test_a_development_set_is_not_needed_and_a_test_set_neither(files):
    prepare, train, *evaluations = commands("--small", "--train", files["train"], "--gpus", 0)
    assert not {"--valid", "--test"} & set(prepare)
    assert len(evaluations) == 1
    assert option(train, "--best-checkpoint-metric") == "f1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--train"),
        (("--train", "missing", "--small"), "missing is missing"),
        (("--train", "{train}"), "--checkpoint"),
        (("--train", "{train}", "--checkpoint", "missing.pt"), "missing.pt is missing"),
        (("--train", "{train}", "--small", "--loss", "hinge"), "--loss hinge"),
        (("--train", "{train}", "--small", "--seed", "x"), "--seed x"),
        (("--train", "{train}", "--small", "--gpus", "2"), "--gpus 2"),
        (("--train", "{train}", "--small", "--epochs", "0"), "--epochs"),
        (("--bogus",), "--bogus"),
    ],
)
def test_bad_arguments_are_one_line(arguments, said, files):
    gpus = () if "--gpus" in arguments else ("--gpus", "0")
    done = script(*gpus, *(argument.format(**files) for argument in arguments), "--dry-run")
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
