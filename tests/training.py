"""Runs fairseq's commands on small models, and reads what they logged and saved: an importable helper of tests."""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

PACKAGE = Path(__file__).parent.parent / "fairseq_tn"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
MODEL_SIZES = {
    "encoder_layers": 2,
    "encoder_embed_dim": 32,
    "encoder_ffn_embed_dim": 64,
    "encoder_attention_heads": 2,
    "max_positions": 64,
}
LENGTH = 48


def flags(options: dict) -> list[str]:
    """``{"lr": 1, "cpu": True, "x": None}`` as ``["--lr", "1", "--cpu"]``."""
    parts = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            parts.append(flag)
        elif value is not None and value is not False:
            parts += [flag, str(value)]
    return parts


@dataclass
class Finished:
    """A command that has ended.

    Attributes:
        code: exit status
        log: stdout and stderr
        folder: its ``--save-dir``
    """

    code: int
    log: str
    folder: Path | None = None

    def lines(self, kind: str) -> list[dict[str, float]]:
        """The log lines of ``train_inner``, ``train`` or ``valid``; values are numbers where they can be."""
        found = []
        for match in re.finditer(rf"\| {kind} \| (\{{.*\}})", self.log):
            values = json.loads(match[1])
            found.append({name: _number(value) for name, value in values.items()})
        return found

    def checkpoint(self, name: str = "checkpoint_last.pt") -> dict:
        assert self.folder is not None
        return torch.load(self.folder / name, weights_only=False)

    def weights(self, name: str = "checkpoint_last.pt") -> dict[str, torch.Tensor]:
        return self.checkpoint(name)["model"]

    @property
    def last_line(self) -> str:
        return self.log.rstrip().rsplit("\n", 1)[-1]


def _number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


class ForkServer:
    """The other end of ``fork_server.py``."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._number = 0
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "fork_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def run_together(
        self, commands: Sequence[tuple[str, Sequence[str]]], cwd: Path | None = None, registered: bool = False
    ) -> list[Finished]:
        """Run commands, given with their arguments, side by side."""
        jobs = []
        for command, arguments in commands:
            self._number += 1
            log = self.folder / f"{self._number}.log"
            jobs.append(
                {
                    "command": command,
                    "arguments": [str(argument) for argument in arguments],
                    "log": str(log),
                    "cwd": str(cwd or self.folder),
                    "registered": registered,
                }
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(jobs) + "\n")
        self._process.stdin.flush()
        codes = json.loads(self._process.stdout.readline())
        return [
            Finished(code, Path(job["log"]).read_text(errors="replace"), _save_dir(job["arguments"]))
            for code, job in zip(codes, jobs, strict=True)
        ]

    def run(self, command: str, arguments: Sequence[str], **options) -> Finished:
        """Run one command."""
        return self.run_together([(command, arguments)], **options)[0]

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=300)


@contextmanager
def fork_server(folder: Path) -> Iterator[ForkServer]:
    """A :class:`ForkServer` for the time of a ``with`` block."""
    server = ForkServer(folder)
    try:
        yield server
    finally:
        server.close()


def _save_dir(arguments: Sequence[str]) -> Path | None:
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument == "--save-dir":
            return Path(following)
        if argument.startswith("checkpoint.save_dir="):
            return Path(argument.partition("=")[2])
    return None


def train_arguments(data: Path, save_dir: Path, criterion: str, **options) -> list[str]:
    """Arguments of ``fairseq-train`` for a small ``tn_bert``; ``options`` change or (None) remove defaults."""
    defaults = {
        "user_dir": PACKAGE,
        "save_dir": save_dir,
        "criterion": criterion,
        "task": "teacher_student" if criterion == "tacl_contrastive" else "bert_pretraining",
        "arch": "tn_bert",
        **MODEL_SIZES,
        "tokens_per_sample": LENGTH,
        "batch_size": 4,
        "optimizer": "adam",
        "lr": 1e-3,
        "clip_norm": 1.0,
        "max_update": 6,
        "seed": 3,
        "num_workers": 0,
        "cpu": True,
        "no_epoch_checkpoints": True,
        "log_format": "json",
        "log_interval": 1,
    }
    return [str(data), *flags({**defaults, **options})]
