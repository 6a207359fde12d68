"""Runs the recipes' scripts and compares configurations: an importable helper of the tests of the examples."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from training import ENVIRONMENT

ROOT = Path(__file__).parent.parent.parent
# the scripts call the commands of the environment that runs the tests
COMMANDS = {**ENVIRONMENT, "PATH": os.pathsep.join([str(Path(sys.executable).parent), ENVIRONMENT["PATH"]])}
# the parts of a configuration that training reads, but for where a run writes
PARTS = (
    "common",
    "task",
    "model",
    "criterion",
    "dataset",
    "distributed_training",
    "optimization",
    "checkpoint",
    "optimizer",
    "lr_scheduler",
)
PLACES = {"user_dir", "log_file", "tensorboard_logdir", "save_dir"}


def script(recipe: Path, *arguments, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    """Run the recipe's ``train.sh``."""
    return subprocess.run(
        [recipe / "train.sh", *map(str, arguments)], cwd=cwd, env=COMMANDS, capture_output=True, text=True
    )


def command(recipe: Path, *arguments, cwd: Path = ROOT) -> list[str]:
    """The words of the command that the script would run, without ``fairseq-train``."""
    done = script(recipe, *arguments, "--dry-run", cwd=cwd)
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout.replace("\\\n", ""))
    assert words[0] == "fairseq-train"
    return words[1:]


def option(words: list[str], name: str) -> str:
    """The value of an option among the words of a command."""
    return words[words.index(name) + 1]


def settings(cfg: dict) -> dict:
    """What training reads of a configuration, as one dictionary with the path to each value; None is left out."""
    leaves = _flat({part: cfg[part] for part in PARTS})
    return {path: value for path, value in leaves.items() if path[-1] not in PLACES and value is not None}


def _flat(value, path=()) -> dict:
    if not isinstance(value, dict):
        return {path: tuple(value) if isinstance(value, list) else value}
    return {name: leaf for key, part in value.items() for name, leaf in _flat(part, (*path, key)).items()}
