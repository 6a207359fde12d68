"""The recipe of SQuAD: its script's commands prepare, train and evaluate, with the checkpoint's own sizes."""

import os
import shlex
import subprocess

import pytest
from corpus import write_dict, write_split
from recipes import COMMANDS, ROOT, option
from small_squad import MARKS, WORDS, make_squad, write_squad
from training import MODEL_SIZES, fork_server, train_arguments

from fairseq_tn.cli import main
from fairseq_tn.evaluation.results import read_result

SCRIPT = ROOT / "examples" / "finetune" / "squad" / "train.sh"


def script(*arguments, cwd=ROOT, env=COMMANDS) -> subprocess.CompletedProcess:
    return subprocess.run([SCRIPT, *map(str, arguments)], cwd=cwd, env=env, capture_output=True, text=True)


def commands(*arguments, cwd) -> list[list[str]]:
    """The words of each command that the script would run."""
    done = script(*arguments, "--dry-run", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.replace("\\\n", "").splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recipe")


@pytest.fixture(scope="module")
def server(folder):
    with fork_server(folder) as running:
        yield running


@pytest.fixture(scope="module")
def checkpoints(server, folder):
    """A pre-trained tn_bert and tn_electra of odd sizes."""
    corpus = folder / "corpus"
    dictionary = write_dict(corpus, [*WORDS, *MARKS])
    for split in ("train", "valid"):
        write_split(corpus, split, [[WORDS[:6], WORDS[6:14]], [WORDS[14:20], WORDS[20:]]] * 3, dictionary)
    options = {"max_update": 1, "disable_validation": True, "max_positions": 160}
    electra = {"arch": "tn_electra_small", "no_nsp": True, "embedding_dim": 16, "generator_size": 0.5}
    runs = server.run_together(
        [
            ("fairseq-train", train_arguments(corpus, folder / "bert", "bert_pretraining", **options)),
            ("fairseq-train", train_arguments(corpus, folder / "electra", "electra", **options, **electra)),
        ]
    )
    assert all(run.code == 0 for run in runs), "\n".join(run.log[-1500:] for run in runs)
    return {run.folder.name: run.folder / "checkpoint_last.pt" for run in runs}


@pytest.fixture(scope="module")
def given(folder, checkpoints):
    """The arguments that every call needs, by version."""
    found = {}
    for version, version_2 in (("1.1", False), ("2.0", True)):
        files = {name: folder / f"{name}-{version}.json" for name in ("train", "valid")}
        for seed, path in enumerate(files.values()):
            write_squad(path, make_squad(4, seed, version_2))
        found[version] = [
            "--version",
            version,
            "--tokenizer",
            "words",
            "--dict",
            folder / "corpus" / "dict.txt",
        ]
        found[version] += [word for name, path in files.items() for word in (f"--{name}", path)]
    return found


@pytest.mark.parametrize(("model", "version"), [("bert", "2.0"), ("electra", "1.1")])
def test_two_updates(model, version, server, checkpoints, given, tmp_path):
    arguments = [*given[version], "--checkpoint", checkpoints[model], "--gpus", 0, "--seed", 5, "--small"]
    prepare, train, evaluate = commands(*arguments, cwd=tmp_path)
    assert prepare[-2] == "--output"
    assert main([*prepare[1:-1], str(tmp_path / prepare[-1])]) == 0
    assert option(train, "--encoder-embed-dim") == str(MODEL_SIZES["encoder_embed_dim"])
    assert ("--layer-lr-decay" in train) == (model == "electra")
    (tmp_path / option(train, "--save-dir")).mkdir(parents=True)
    updates = ["--max-update", "2", "--total-num-update", "2", "--num-workers", "0", "--max-positions", "160"]
    run = server.run("fairseq-train", [*train[1:], *updates], cwd=tmp_path)
    assert run.code == 0, run.log[-2500:]
    assert '"valid_f1"' in run.log
    words = [str(tmp_path / word) if word.startswith("outputs/") else word for word in evaluate[1:]]
    assert main(words) == 0
    result = read_result(tmp_path / f"outputs/squad/results/{version}-{model}-5.json")
    assert (result.task, result.method, result.seed) == (f"SQuAD {version}", model, 5)


@pytest.mark.parametrize(
    ("model", "version", "expected"),
    [
        ("bert", "1.1", {"--lr": "5e-5", "--max-length": "384", "--stride": "128", "--weight-decay": "0.01"}),
        ("bert", "2.0", {"--lr": "5e-5", "--max-length": "384", "--max-query-length": "64"}),
        ("electra", "2.0", {"--lr": "3e-4", "--max-length": "512", "--layer-lr-decay": "0.8"}),
    ],
)
def test_published_settings(model, version, expected, checkpoints, given, tmp_path):
    prepare, train, _ = commands(
        *given[version], "--checkpoint", checkpoints[model], "--gpus", 1, cwd=tmp_path
    )
    words = prepare + train
    assert {name: option(words, name) for name in expected} == expected
    batch = 48 if (model, version) == ("bert", "2.0") else 32
    assert int(option(train, "--batch-size")) * int(option(train, "--update-freq")) == batch
    assert ("--version-2" in prepare) == (version == "2.0")
    assert {"--no-bias-correction", "--decay-matrices-only", "--fp16"} <= set(train)


def test_a_run_of_other_settings_does_not_go_on(checkpoints, given, tmp_path):
    arguments = [*given["1.1"], "--checkpoint", checkpoints["bert"], "--gpus", 0, "--small"]
    _, train, _ = commands(*arguments, cwd=tmp_path)
    run = tmp_path / option(train, "--save-dir")
    # training that is interrupted at once
    interrupted = tmp_path / "commands" / "fairseq-train"
    interrupted.parent.mkdir()
    interrupted.write_text("#!/bin/sh\nexit 3\n")
    interrupted.chmod(0o755)
    path = os.pathsep.join([str(interrupted.parent), COMMANDS["PATH"]])
    done = script(*arguments, cwd=tmp_path, env={**COMMANDS, "PATH": path})
    assert done.returncode == 3, done.stderr
    assert (run / "settings.txt").is_file()
    for again, code in (((), 0), (("--gpus", 1), 0), (("--lr", "1e-4"), 2), (("--stride", 32), 2)):
        done = script(*arguments, *again, "--dry-run", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert ("holds a run of other settings" in done.stderr) == (code == 2)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"--version": None}, "--version"),
        ({"--version": "2"}, "--version 2: give 1.1 or 2.0"),
        ({"--checkpoint": None}, "--checkpoint"),
        ({"--checkpoint": "elsewhere"}, "elsewhere is missing"),
        ({"--train": "elsewhere"}, "elsewhere is missing"),
        ({"--tokenizer": None}, "--tokenizer"),
        ({"--recipe": "tacl"}, "--recipe tacl: give bert or electra"),
        ({"--epochs": "0"}, "--epochs 0"),
        ({"--seed": "x"}, "--seed x"),
        ({"--bogus": "1"}, "--bogus"),
    ],
)
def test_bad_arguments_are_one_line(changed, named, checkpoints, given):
    options = dict(zip(given["1.1"][::2], given["1.1"][1::2], strict=True))
    options |= {"--checkpoint": checkpoints["bert"], "--gpus": 0} | changed
    words = [word for name, value in options.items() if value is not None for word in (name, value)]
    done = script(*words, "--dry-run")
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
