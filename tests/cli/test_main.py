"""The command line as a process: exit statuses, one line for errors, nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fairseq_tn
from fairseq_tn.cli import COMMANDS

COMMAND = [sys.executable, "-m", "fairseq_tn"]


def run(*arguments, **options):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, **options)


def test_help_lists_every_command_and_path_is_the_user_dir():
    help_text = run("--help").stdout
    assert [name for name in COMMANDS if f"    {name}" not in help_text] == []
    assert Path(run("path").stdout.strip()) == Path(fairseq_tn.__file__).parent


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    done = run(name, "--help")
    assert done.returncode == 0
    assert f"usage: fairseq-tn {name}" in done.stdout


def test_an_error_is_one_line_and_status_1(tmp_path):
    done = run("synonyms", "show", "word", "--table", tmp_path / "none")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fairseq-tn synonyms: error: ")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "none") in done.stderr


def test_an_error_of_the_system_is_one_line_and_status_1(tmp_path):
    vocabulary, text, blocked = tmp_path / "vocab.txt", tmp_path / "text", tmp_path / "blocked"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    text.write_text("word\n")
    blocked.write_text("a file, where --output needs a folder")
    done = run("encode", "--tokenizer", vocabulary, text, "--output", blocked / "train", "--workers", 1)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    error = done.stderr.splitlines()[-1]
    assert error.startswith("fairseq-tn encode: error: ")
    assert str(blocked) in error


def test_an_unknown_command_is_status_2():
    done = run("nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stderr


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_an_interrupted_command_leaves_nothing(tmp_path, number, status):
    pipe, output = tmp_path / "pipe", tmp_path / "out" / "encoded"
    os.mkfifo(pipe)
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    command = [*COMMAND, "encode", "--tokenizer", vocabulary, pipe, "--output", output, "--workers", "1"]
    process = subprocess.Popen(
        list(map(str, command)),
        stderr=subprocess.DEVNULL,
        # a shell starts background jobs, this test run perhaps among them, with SIGINT ignored
        preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in (signal.SIGINT, signal.SIGHUP)],
    )
    with pipe.open("w") as writer:
        writer.write("word word\n" * 1000)
        writer.flush()
        # it waits for the rest of the text now, with its temporary file open
        deadline = time.monotonic() + 60
        while not (output.parent.exists() and os.listdir(output.parent)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == status
    assert os.listdir(output.parent) == []


def test_a_number_out_of_range_is_refused():
    done = run("wikipedia", "dump.xml", "--output", "out", "--workers", "-3")
    assert done.returncode == 2
    assert "--workers: must be 1 or more, not -3" in done.stderr
