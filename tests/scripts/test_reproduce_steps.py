"""The runner of rows: what it marks as done, what it repeats, goes on with, or waits for."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from reproduction.__main__ import main
from reproduction.steps import Runner, Step, Store, ordered
from reproduction.workers import Launch, launch

from fairseq_tn.errors import UserError

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "host", "MASTER_PORT": "29500", "LOCAL_RANK": "1"}
SLURM = {
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_PROCID": "1",
    "SLURM_JOB_ID": "77",
    "SLURM_NTASKS": "2",
}


def counted(folder: Path, name: str, then: str = "true", **options) -> Step:
    """A step that notes each of its runs in NAME.runs and writes NAME."""
    output = folder / name
    script = f"echo run >> {output}.runs; {then} && echo made > {output}"
    return Step(name, ("sh", "-c", script), (output,), **options)


def runs(folder: Path, name: str) -> int:
    path = folder / f"{name}.runs"
    return path.read_text().count("run") if path.exists() else 0


def run(folder: Path, *steps: Step, **options) -> dict[str, str]:
    """A call of the runner, which remembers nothing of an earlier one."""
    return Runner(Store(folder), say=lambda line: None, **options).run(steps)


def test_finished_steps_are_not_repeated(tmp_path):
    first = counted(tmp_path, "first")
    second = counted(tmp_path, "second", after=(first,))
    for _ in range(3):
        assert run(tmp_path, second) == {}
    assert (runs(tmp_path, "first"), runs(tmp_path, "second")) == (1, 1)


@pytest.mark.parametrize("change", ["settings", "command", "input", "removed output", "broken mark"])
def test_a_change_repeats_the_step_and_what_depends_on_it(change, tmp_path):
    source = tmp_path / "input.txt"
    source.write_text("a")

    def steps(settings: int, then: str = "true") -> list[Step]:
        options = {"settings": {"rate": settings}, "inputs": (source,)}
        first = counted(tmp_path, "first", then, **options)
        return [counted(tmp_path, "last", after=(first,)), counted(tmp_path, "other")]

    assert run(tmp_path, *steps(1)) == {}
    again = steps(1)
    if change == "settings":
        again = steps(2)
    elif change == "command":
        again = steps(1, "sleep 0")
    elif change == "input":
        source.write_text("longer")
    elif change == "removed output":
        (tmp_path / "first").unlink()
    else:
        Store(tmp_path).mark(ordered(again)[0]).write_text("{ not")
    assert run(tmp_path, *again) == {}
    assert runs(tmp_path, "first") == 2
    # what comes after has the same inputs where only a file was lost
    assert runs(tmp_path, "last") == (2 if change in ("settings", "command", "input") else 1)
    assert runs(tmp_path, "other") == 1


def test_marks_hold_wherever_the_folder_is_moved_to(tmp_path):
    assert run(tmp_path / "a", counted(tmp_path / "a", "step")) == {}
    (tmp_path / "a").rename(tmp_path / "b")
    assert run(tmp_path / "b", counted(tmp_path / "b", "step")) == {}
    assert runs(tmp_path / "b", "step") == 1


def test_a_failing_step_stops_what_needs_it_and_nothing_else(tmp_path):
    bad = counted(tmp_path, "bad", "(echo the reason; false)")
    needs = counted(tmp_path, "needs", after=(bad,))
    failed = run(tmp_path, needs, counted(tmp_path, "good"))
    assert set(failed) == {"bad", "needs"}
    assert "exit status 1" in failed["bad"]
    assert "the reason" in failed["bad"]
    assert "bad failed" in failed["needs"]
    assert (runs(tmp_path, "needs"), runs(tmp_path, "good")) == (0, 1)
    assert set(run(tmp_path, needs)) == {"bad", "needs"}
    assert runs(tmp_path, "bad") == 2


def test_a_command_that_writes_nothing_has_failed(tmp_path):
    failed = run(tmp_path, Step("empty", ("true",), (tmp_path / "never",)))
    assert "without writing" in failed["empty"]


def interruptible(folder: Path, trains: bool, settings: int = 0) -> Step:
    """It needs two starts that find what the one before has left: the first stops half-way."""
    run_folder = folder / "run"
    script = "if [ -e half ]; then echo whole > checkpoint_last.pt; else echo half > half; exit 1; fi"
    return Step(
        "train",
        ("sh", "-c", script),
        (run_folder, run_folder / "checkpoint_last.pt"),
        settings={"n": settings},
        files={folder / "config.yaml": f"n: {settings}\n"},
        cwd=run_folder,
        trains=trains,
    )


def test_interrupted_training_goes_on_and_nothing_else_does(tmp_path):
    assert set(run(tmp_path, interruptible(tmp_path, True))) == {"train"}
    assert run(tmp_path, interruptible(tmp_path, True)) == {}
    assert set(run(tmp_path / "other", interruptible(tmp_path / "other", False))) == {"train"}
    assert set(run(tmp_path / "other", interruptible(tmp_path / "other", False))) == {"train"}


def test_training_with_other_settings_does_not_go_on(tmp_path):
    assert set(run(tmp_path, interruptible(tmp_path, True, 1))) == {"train"}
    assert set(run(tmp_path, interruptible(tmp_path, True, 2))) == {"train"}
    assert (tmp_path / "config.yaml").read_text() == "n: 2\n"
    assert run(tmp_path, interruptible(tmp_path, True, 2)) == {}


def test_steps_run_side_by_side_if_asked_to(tmp_path):
    """Each waits for the other's file."""
    steps = [
        counted(
            tmp_path, one, f"timeout 20 sh -c 'until [ -e {tmp_path / other}.runs ]; do sleep 0.05; done'"
        )
        for one, other in (("a", "b"), ("b", "a"))
    ]
    assert run(tmp_path, *steps, jobs=2) == {}


INTERRUPTED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import signal
from reproduction.__main__ import main
from reproduction.steps import Runner, Step, Store
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
folder = Path(sys.argv[1])
first = Step("first", ("sh", "-c", f"echo run >> {folder}/first.runs; echo 1 > {folder}/first"), (folder / "first",))
script = f"cd {folder}; echo run >> second.runs; echo $$ > pid; sleep ${{SECONDS_TO_SLEEP}}; echo 2 > second"
second = Step("second", ("sh", "-c", script), (folder / "second",), after=(first,))
with Store(folder).lock():
    sys.exit(len(Runner(Store(folder)).run([second])))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_runner_ends_its_command_and_goes_on_later(how, tmp_path):
    words = [sys.executable, "-c", INTERRUPTED, str(tmp_path), str(Path(__file__).parents[2] / "scripts")]
    environment = {**os.environ, "SECONDS_TO_SLEEP": "60"}
    process = subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text().strip())
    other = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert "another run is going on" in other.stderr
    process.send_signal(how)
    assert process.wait(timeout=20) != 0
    wait_until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())
    assert not (tmp_path / "second").exists()
    done = subprocess.run(words, env={**os.environ, "SECONDS_TO_SLEEP": "0"}, stdout=subprocess.DEVNULL)
    assert done.returncode == 0
    assert (runs(tmp_path, "first"), runs(tmp_path, "second")) == (1, 2)


def wait_until(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


# --- several processes --------------------------------------------------------------------------------------------


def test_launches_are_told_by_the_environment():
    assert launch({}) == Launch()
    torchrun = launch(TORCHRUN)
    assert (torchrun.kind, torchrun.rank, torchrun.processes) == ("torchrun", 1, 2)
    slurm = launch(SLURM)
    assert (slurm.kind, slurm.rank, slurm.nodes) == ("slurm", 1, 2)
    assert launch(TORCHRUN | {"WORLD_SIZE": "1", "RANK": "0"}).kind == "alone"
    # a batch script is one process, however many srun could start
    assert launch({"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"}).kind == "alone"


def test_world_sizes():
    assert Launch().world_size(4) == 4
    assert launch(TORCHRUN).world_size(1) == 2
    assert launch(SLURM).world_size(8) == 16  # a task a node
    assert launch(SLURM | {"SLURM_STEP_NUM_TASKS": "16"}).world_size(8) == 16  # a task a GPU


@pytest.mark.parametrize("environment", [TORCHRUN, SLURM])
def test_processes_on_cpus_are_refused(environment):
    with pytest.raises(UserError, match="no GPU"):
        launch(environment).check(gpus=0)
    launch(environment).check(gpus=1)
    launch({}).check(gpus=0)


def test_environments_of_commands():
    here = launch(TORCHRUN)
    environment = {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True", "HOME": "/h", "SLURM_JOB_ID": "1"}
    assert here.alone_environment(environment) == {"HOME": "/h"}
    ports = [here.training_environment(environment, number)["MASTER_PORT"] for number in (0, 1)]
    assert len({*ports, "29500"}) == 3
    training = here.training_environment(environment, 0)
    assert training["RANK"] == "1"
    assert "TORCHELASTIC_USE_AGENT_STORE" not in training
    assert launch(SLURM).port(0) != launch(SLURM).port(1)
    assert launch(SLURM).training_environment(SLURM, 0) == SLURM
    assert launch({}).training_environment(SLURM, 0) == {}


def both_ranks(folder: Path, steps) -> list[dict[str, str]]:
    """Two runners as torchrun starts them, in threads; each makes its own steps."""
    failed: list[dict[str, str]] = [{}, {}]
    runners = []

    def one(rank: int) -> None:
        store = Store(folder, Launch("torchrun", rank, 2, name="x"))
        runner = Runner(store, say=lambda line: None)
        runners.append(runner)
        failed[rank] = runner.run(steps(folder))
        if failed[rank] and rank == 0:
            runner.tell_failure()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in (1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    waiting = [thread for thread in threads if thread.is_alive()]
    for runner in runners:
        runner.stop()
    assert waiting == []
    return failed


def test_all_processes_train_and_the_first_does_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.steps._POLL", 0.05)
    for key, value in TORCHRUN.items():
        monkeypatch.setenv(key, value)

    def steps(folder: Path, then: str = "true") -> list[Step]:
        data = counted(folder, "data", f"echo ${{RANK-none}} > {folder}/rank; sleep 0.3; {then}")
        # the training ends only when both take part
        script = "echo $$ >> ../members; until [ $(wc -l < ../members) -ge 2 ]; do sleep 0.05; done"
        script += "; : > checkpoint_last.pt"
        run_folder = folder / "run"
        outputs = (run_folder, run_folder / "checkpoint_last.pt")
        train = Step("train", ("sh", "-c", script), outputs, after=(data,), cwd=run_folder, trains=True)
        return [counted(folder, "score", after=(train,))]

    assert both_ranks(tmp_path, steps) == [{}, {}]
    assert (tmp_path / "rank").read_text() == "none\n"
    assert (runs(tmp_path, "data"), runs(tmp_path, "score")) == (1, 1)
    assert len((tmp_path / "members").read_text().split()) == 2
    # again: nothing is left to do, for neither
    assert both_ranks(tmp_path, steps) == [{}, {}]
    assert (runs(tmp_path, "data"), runs(tmp_path, "score")) == (1, 1)
    failed = both_ranks(tmp_path / "other", lambda folder: steps(folder, "false"))
    assert all(failed)
    # the next start has the same name, as with torchrun's static rendezvous, and the file of the failure is still there
    assert both_ranks(tmp_path / "other", steps) == [{}, {}]


def test_the_others_hear_of_a_first_process_that_fails_before_its_first_step(tmp_path, monkeypatch, capsys):
    for key, value in SLURM.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    for name in ("corpora/owt/dict.txt", "models/bert-base-uncased/model.pt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    output = tmp_path / "out"
    given = ["--models", tmp_path / "models", "--corpora", tmp_path / "corpora", "--output", output]
    with Store(output).lock():
        assert main(["electra-small", *map(str, given), "--tasks", "none"]) == 2
    assert "another run is going on" in capsys.readouterr().err
    second = Runner(Store(output, launch(SLURM)))
    assert second.failure.is_file()
    assert "first process" in second.run([counted(tmp_path, "step")])["step"]


def test_the_mark_tells_what_was_run(tmp_path):
    step = counted(tmp_path, "step", settings={"rate": 1})
    run(tmp_path, step)
    mark = json.loads(Store(tmp_path).mark(step).read_text())
    assert mark["settings"] == {"rate": 1}
    assert "echo made" in mark["command"]
    assert "torch" in mark["versions"]
