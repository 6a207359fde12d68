"""The recipe of GLUE: its script's commands prepare, train and evaluate, with the checkpoint's own sizes."""

import shlex
import subprocess

import pytest
from corpus import make_corpus
from fairseq.criterions.sentence_prediction import SentencePredictionConfig
from recipes import COMMANDS, ROOT, option
from small_glue import SENTENCES, write_task
from training import MODEL_SIZES, fork_server, train_arguments

from fairseq_tn.cli import main
from fairseq_tn.evaluation.results import read_result

SCRIPT = ROOT / "examples" / "finetune" / "glue" / "train.sh"


def script(*arguments, cwd=ROOT) -> subprocess.CompletedProcess:
    return subprocess.run(
        [SCRIPT, *map(str, arguments)], cwd=cwd, env=COMMANDS, capture_output=True, text=True
    )


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
    """A pre-trained tn_bert and tn_electra of odd sizes, and the dictionary of both."""
    documents = [[text.split() for text in SENTENCES[n : n + 4]] for n in range(0, 40, 4)]
    data = make_corpus(folder / "data", documents, documents)
    options = {"max_update": 1, "disable_validation": True, "no_last_checkpoints": False}
    electra = {"arch": "tn_electra_small", "no_nsp": True, "embedding_dim": 16, "generator_size": 0.5}
    runs = server.run_together(
        [
            ("fairseq-train", train_arguments(data, folder / "bert", "bert_pretraining", **options)),
            ("fairseq-train", train_arguments(data, folder / "electra", "electra", **options, **electra)),
        ]
    )
    assert all(run.code == 0 for run in runs), "\n".join(run.log[-1500:] for run in runs)
    return {run.folder.name: run.folder / "checkpoint_last.pt" for run in runs}, data / "dict.txt"


@pytest.mark.parametrize(
    ("model", "task", "report", "metric"),
    [
        ("bert", "CoLA", "report_mcc", "mcc"),
        ("electra", "STS-B", "report_pearson_and_spearman", "spearman"),
    ],
)
def test_two_updates(model, task, report, metric, server, checkpoints, tmp_path):
    files, dictionary = checkpoints
    data = write_task(tmp_path / "official", task)
    arguments = ["--task", task, "--checkpoint", files[model], "--data", data, "--tokenizer", "words"]
    arguments += ["--dict", dictionary, "--gpus", 0, "--seed", 5, "--method", "new", "--small"]
    prepare, train, evaluate = commands(*arguments, cwd=tmp_path)
    assert main([*prepare[1:-1], str(tmp_path / prepare[-1])]) == 0
    assert prepare[-2] == "--output"
    assert option(train, "--encoder-embed-dim") == str(MODEL_SIZES["encoder_embed_dim"])
    assert ("--layer-lr-decay" in train) == (model == "electra")
    (tmp_path / option(train, "--save-dir")).mkdir(parents=True)
    updates = ["--max-update", "2", "--total-num-update", "2", "--num-workers", "0"]
    run = server.run("fairseq-train", [*train[1:], *updates], cwd=tmp_path)
    assert run.code == 0, run.log[-2500:]
    assert str(files[model]) in run.log
    # fairseq 0.12.2 has accuracy and loss only
    known = report in SentencePredictionConfig.__dataclass_fields__
    assert ("--" + report.replace("_", "-") in train) == known
    assert (option(train, "--best-checkpoint-metric") == metric) == known
    words = [str(tmp_path / word) if word.startswith("outputs/") else word for word in evaluate[1:]]
    assert main(words) == 0
    result = read_result(tmp_path / "outputs" / "glue" / "results" / f"{task}-new-5.json")
    assert (result.task, result.method, result.seed, result.num_examples) == (task, "new", 5, 7)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "give --task"),
        (("--task", "SNLI"), "--task SNLI"),
        (("--task", "RTE"), "give --checkpoint"),
        (("--task", "RTE", "--checkpoint", "setup.cfg"), "give --data"),
        (("--task", "RTE", "--checkpoint", "nothing.pt", "--data", "."), "nothing.pt is missing"),
        (("--task", "RTE", "--checkpoint", "setup.cfg", "--data", "nothing"), "nothing is missing"),
        (("--task", "RTE", "--checkpoint", "setup.cfg", "--data", "."), "hf is missing"),
        (
            (
                "--task",
                "RTE",
                "--checkpoint",
                "setup.cfg",
                "--data",
                ".",
                "--tokenizer",
                "words",
                "--gpus",
                "8",
            ),
            "--gpus 8",
        ),
        (
            (
                "--task",
                "RTE",
                "--checkpoint",
                "setup.cfg",
                "--data",
                ".",
                "--tokenizer",
                "words",
                "--gpus",
                "0",
            ),
            "setup.cfg is not a checkpoint",
        ),
        (("--bogus",), "--bogus"),
    ],
)
def test_bad_arguments_are_one_line(arguments, named):
    done = script(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
