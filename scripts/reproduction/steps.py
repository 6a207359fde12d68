"""Steps of an experiment: commands with what they write, marked when they are done and never run twice.

A step's mark is a file that is written, whole, after the command has ended well and its outputs are there. It holds
a fingerprint of all that the outputs depend on: the command, the settings, name, size and time of the input files, and
the fingerprints of the steps before. Where it differs from the step's fingerprint of today, the step runs anew.
"""

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_tn.analysis.environment import versions
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_path
from reproduction.rows import ROOT
from reproduction.workers import Launch

_LAST_LINES = 15
_POLL = 1.0  # seconds between two looks at what another process has done


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: unique; also the path of its mark and its log: ``bert-base-tacl/pre-train``.
        command: its words.
        outputs: what must be there afterwards; removed before it starts anew.
        inputs: files and folders from outside that it reads.
        after: steps that must be done before.
        settings: what else the outputs depend on.
        files: texts to write before it starts, such as a configuration.
        cwd: working folder; None: that of the runner.
        trains: it is pre-training: all processes of the launch take part, and an interrupted one goes on from its
            last checkpoint. Any other step starts anew.
    """

    name: str
    command: tuple[str, ...]
    outputs: tuple[Path, ...]
    inputs: tuple[Path, ...] = ()
    after: tuple["Step", ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    files: Mapping[Path, str] = field(default_factory=dict, hash=False)
    cwd: Path | None = None
    trains: bool = False


class StepFailedError(Exception):
    """A command ended with an error; the message says which and shows the end of its log."""


class Store:
    """The marks and logs of an output folder."""

    def __init__(self, folder: Path, launch: Launch | None = None):
        self.folder = folder
        self.launch = launch or Launch()
        self.lock_file: int | None = None
        self._fingerprints: dict[str, str] = {}

    def mark(self, step: Step) -> Path:
        """The file that says that the step is done."""
        return self.folder / "done" / f"{step.name}.json"

    def begun(self, step: Step) -> Path:
        """The file that says with which fingerprint the step was started last."""
        return self.folder / "done" / f"{step.name}.begun"

    def log(self, step: Step) -> Path:
        """Where the step's output goes."""
        return self.folder / "logs" / f"{step.name}.log"

    def fingerprint(self, step: Step) -> str:
        """A digest of all that the outputs depend on; wherever the output folder lies."""
        if step.name not in self._fingerprints:
            content = {
                "command": step.command,
                "settings": step.settings,
                "inputs": [_status(path) for path in step.inputs],
                "after": sorted(self.fingerprint(other) for other in step.after),
            }
            text = json.dumps(content, sort_keys=True, default=str)
            text = text.replace(str(self.folder), "OUTPUT").replace(str(ROOT), "ROOT")
            self._fingerprints[step.name] = hashlib.sha256(text.encode()).hexdigest()
        return self._fingerprints[step.name]

    def finished(self, step: Step) -> dict[str, Any] | None:
        """The content of the mark if the step is done; None if it has to run."""
        try:
            content = json.loads(self.mark(step).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        same = isinstance(content, dict) and content.get("fingerprint") == self.fingerprint(step)
        return content if same and all(path.exists() for path in step.outputs) else None

    def prepare(self, step: Step) -> bool:
        """Make the folders ready for a start; returns whether an interrupted training goes on."""
        begun = self.begun(step)
        goes_on = step.trains and self._started(step)[:1] == [self.fingerprint(step)]
        remove(self.mark(step))
        if not goes_on:
            begun.unlink(missing_ok=True)
            for path in (*step.outputs, self.log(step)):
                remove(path)
        for path in (*step.outputs, self.log(step)):
            path.parent.mkdir(parents=True, exist_ok=True)
        if step.cwd is not None:
            step.cwd.mkdir(parents=True, exist_ok=True)
        for path, text in step.files.items():
            with atomic_path(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        with atomic_path(begun) as temporary:
            temporary.write_text(f"{self.fingerprint(step)}\n{self.launch.name}\n", encoding="utf-8")
        return goes_on

    def is_prepared(self, step: Step) -> bool:
        """Whether the first process of this launch has made the folders ready."""
        return self._started(step) == [self.fingerprint(step), self.launch.name]

    def _started(self, step: Step) -> list[str]:
        """Fingerprint and launch of the last start; empty if there was none."""
        try:
            return self.begun(step).read_text(encoding="utf-8").split("\n")[:2]
        except OSError:
            return []

    def finish(self, step: Step, seconds: float) -> None:
        """Write the mark."""
        content = {
            "fingerprint": self.fingerprint(step),
            "command": shlex.join(step.command),
            "settings": step.settings,
            "seconds": round(seconds, 1),
            "versions": versions(),
        }
        with atomic_path(self.mark(step)) as temporary:
            temporary.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the output folder.

        Raises:
            UserError: another runner holds it
        """
        import fcntl

        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"another run is going on in {self.folder}; give another --output") from None
            # commands hold it too: one that outlives a killed runner must not be started beside itself
            self.lock_file = file.fileno()
            yield


def _status(path: Path) -> list[Any]:
    """Name, size and time of a file, or of every file of a folder; reading gigabytes would gain nothing."""
    if path.is_dir():
        return [path.name, [_status(inside) for inside in sorted(path.iterdir())]]
    try:
        status = path.stat()
    except OSError:
        return [path.name, None]
    return [path.name, status.st_size, status.st_mtime_ns]


def _time_of(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def remove(path: Path) -> None:
    """Remove a file or folder, or nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Runner:
    """Runs steps in the order of what they need, several at a time if asked to.

    Args:
        store: marks and logs.
        jobs: steps at a time; one where several processes were started together, which all run the same steps.
        threads: of each step.
        say: prints a line.
    """

    def __init__(self, store: Store, jobs: int = 1, threads: int = 1, say: Callable[[str], None] = print):
        self.store = store
        self.launch = store.launch
        self.jobs = jobs if self.launch.kind == "alone" else 1
        self.threads = threads
        self.say = say
        self._children: set[subprocess.Popen] = set()
        self._lock = threading.Lock()
        self._stopped = False
        # torchrun can give two starts one name: what the earlier one has left says nothing of this one
        self._failed_before = _time_of(self.failure) if self.launch.kind == "torchrun" else None

    def run(self, steps: Sequence[Step]) -> dict[str, str]:
        """Run all; returns the name of each step that failed, or was not run because of one, and why.

        Ctrl-C ends the commands that run; called again, the work goes on there.
        """
        order = ordered(steps)
        numbers = {step.name: number for number, step in enumerate(order)}
        done: set[str] = set()
        failed: dict[str, str] = {}
        waiting = list(order)
        running: dict[Future, Step] = {}
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                while waiting or running:
                    for step in list(waiting):
                        broken = next((other.name for other in step.after if other.name in failed), None)
                        if broken is not None:
                            failed[step.name] = f"not run, because {broken} failed"
                            waiting.remove(step)
                        elif len(running) < self.jobs and all(other.name in done for other in step.after):
                            running[pool.submit(self._one, step, numbers[step.name], len(order))] = step
                            waiting.remove(step)
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        step = running.pop(future)
                        try:
                            future.result()
                            done.add(step.name)
                        except StepFailedError as error:
                            failed[step.name] = str(error)
                            self.say(f"\n[{step.name}] failed: {error}")
                            if self.launch.kind != "alone":
                                return failed  # the others must not wait for it
            finally:
                self.stop()
        return failed

    def stop(self) -> None:
        """End the commands that still run, and wait for no other process."""
        with self._lock:
            self._stopped = True
            children = list(self._children)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)

    def _one(self, step: Step, number: int, steps: int) -> None:
        head = f"[{number + 1}/{steps} {step.name}]"
        if self.store.finished(step) is not None:
            if self.launch.rank == 0:
                self.say(f"{head} done before")
            return
        if self.launch.rank == 0:
            goes_on = self.store.prepare(step)
            self.say(f"{head}{' was interrupted, goes on' if goes_on else ''}\n{_shown(step)}")
        elif not step.trains:
            self._wait_for(step)
            return
        else:
            self._wait_for_start(step)
        begun = time.monotonic()
        self._execute(step, number)
        if self.launch.rank == 0:
            self.store.finish(step, time.monotonic() - begun)
            self.say(f"{head} took {time.monotonic() - begun:.0f} s")
        else:
            self._wait_for(step)

    def _execute(self, step: Step, number: int) -> None:
        environment = (
            self.launch.training_environment(os.environ, number)
            if step.trains
            else self.launch.alone_environment(os.environ)
        )
        environment |= {"OMP_NUM_THREADS": str(self.threads), "TOKENIZERS_PARALLELISM": "false"}
        # the commands of the environment that runs us
        environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), environment.get("PATH", "")])
        log = self.store.log(step)
        if self.launch.rank:
            log = log.with_suffix(f".{self.launch.rank}.log")
        with log.open("a", encoding="utf-8") as output:
            with self._lock:
                if self._stopped:
                    raise StepFailedError("stopped")
                # a group of its own: when the run ends, its workers end with it
                child = subprocess.Popen(
                    step.command,
                    cwd=step.cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=() if self.store.lock_file is None else (self.store.lock_file,),
                )
                self._children.add(child)
            code = child.wait()
            with self._lock:
                self._children.discard(child)
        missing = [str(path) for path in step.outputs if not path.exists()]
        if code:
            raise StepFailedError(f"exit status {code}; the end of {log}:\n{_tail(log)}")
        if missing and self.launch.rank == 0:
            raise StepFailedError(f"it ended without writing {missing[0]}; the end of {log}:\n{_tail(log)}")

    def _wait_for(self, step: Step) -> None:
        """Until the first process has done the step."""
        while self.store.finished(step) is None:
            self._check_first()
            time.sleep(_POLL)

    def _wait_for_start(self, step: Step) -> None:
        """Until the first process has made the step's folders ready."""
        while not self.store.is_prepared(step):
            self._check_first()
            time.sleep(_POLL)

    def _check_first(self) -> None:
        if self._stopped:
            raise StepFailedError("stopped")
        if _time_of(self.failure) not in (None, self._failed_before):
            raise StepFailedError("the first process ended with an error")

    def tell_failure(self) -> None:
        """Let the other processes know that the first one ends with an error."""
        self.failure.parent.mkdir(parents=True, exist_ok=True)
        self.failure.touch()

    @property
    def failure(self) -> Path:
        """The file by which the first process tells the others that it has ended."""
        return self.store.folder / "done" / f".failed-{self.launch.name}"


def ordered(steps: Sequence[Step]) -> list[Step]:
    """All steps and those that they need, each once and after what it needs."""
    order: dict[str, Step] = {}

    def add(step: Step) -> None:
        for other in step.after:
            add(other)
        order.setdefault(step.name, step)

    for step in steps:
        add(step)
    return list(order.values())


def _shown(step: Step) -> str:
    """The command, an option with its values a line, so that it can be read and pasted."""
    lines = [f"    cd {shlex.quote(str(step.cwd))} &&"] if step.cwd else []
    line = "   "
    for word in map(shlex.quote, step.command):
        if len(line) + len(word) > 110 and word.startswith("-"):
            lines.append(f"{line} \\")
            line = "       "
        line += f" {word}"
    return "\n".join([*lines, line])


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 20000))
        text = file.read().decode("utf-8", errors="replace").replace("\r", "\n")
    return "\n".join(f"  | {line}" for line in text.rstrip().splitlines()[-_LAST_LINES:])
