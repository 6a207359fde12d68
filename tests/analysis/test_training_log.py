import json
from pathlib import Path

import pytest
from corpus import make_corpus
from training import train_arguments

from fairseq_tn.analysis.training_log import read_run
from fairseq_tn.errors import UserError

CONFIGURATION = (
    "{'_name': None, 'common': {'_name': None, 'seed': 3, 'log_format': 'json'}, 'model': "
    "Namespace(_name='tn_bert_tiny', arch='tn_bert_tiny', encoder_layers=2), 'task': {'_name': "
    "'bert_pretraining', 'shorten_method': none}, 'optimizer': {'_name': 'adam', 'lr': [0.001]}, "
    "'generation': {'temperature': 1.0}}"
)


def inner(step: int, loss: float, wps: float = 1000, wpb: float = 100, wall: float = 0) -> str:
    values = {"loss": loss, "wps": wps, "wpb": wpb, "num_updates": step, "wall": wall}
    return json.dumps({"epoch": 1, "update": 0.5, **{key: str(value) for key, value in values.items()}})


def valid(step: int, loss: float, split: str = "valid") -> str:
    return json.dumps({"epoch": 1, f"{split}_loss": str(loss), f"{split}_num_updates": str(step)})


def average(step: int, loss: float) -> str:
    """The averages of an epoch."""
    return json.dumps(
        {"epoch": 1, "train_loss": str(loss), "train_wall": "9", "train_num_updates": str(step)}
    )


def write(folder: Path, *lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "train.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_a_finished_run(tmp_path):
    folder = write(
        tmp_path / "mt",
        CONFIGURATION,
        "num. shared model params: 4,193 (num. trained: 4,000)",
        "training on 2 devices (GPUs/TPUs)",
        inner(10, 6.0, wps=900, wpb=100),
        inner(20, 5.0, wps=1000, wpb=110),
        valid(20, 5.5),
        valid(20, 5.5),  # fairseq repeats the records of later epochs
        average(20, 5.5),
        inner(30, 4.0, wps=400, wpb=90),
        "done training in 12.5 seconds",
    )
    (folder / "command.txt").write_text("fairseq-train data\n", encoding="utf-8")
    run = read_run(folder)
    assert run.name == "mt"
    assert run.curves["train", "loss"] == {10: 6.0, 20: 5.0, 30: 4.0}
    assert run.curves["valid", "loss"] == {20: 5.5}
    assert (run.parameters, run.trained_parameters, run.devices) == (4193, 4000, 2)
    assert (run.updates, run.starts, run.finished, run.seconds) == (30, 1, True, 12.5)
    assert run.tokens_per_second == 900
    assert run.tokens == 3000
    assert run.command == "fairseq-train data"
    assert run.setting("lr") == [0.001]
    assert run.setting("encoder_layers") == 2
    assert run.setting("shorten_method") == "none"
    assert run.setting("no_such_option") is None
    assert run.setting("temperature") is None
    assert run.remarks == []


def test_prefixes_of_the_console_do_not_matter(tmp_path):
    folder = write(
        tmp_path,
        "x",
        f"2026-01-01 00:00:00 | INFO | train_inner | {inner(5, 2.0)}",
        f"| valid | {valid(5, 3.0)}",
    )
    run = read_run(folder)
    assert run.curves["train", "loss"] == {5: 2.0}
    assert run.curves["valid", "loss"] == {5: 3.0}


def test_an_interrupted_run_with_a_torn_line(tmp_path):
    folder = write(
        tmp_path, CONFIGURATION, inner(10, 6.0, wall=7), inner(20, 5.0, wall=15), inner(30, 4.0)[:-20]
    )
    run = read_run(folder)
    assert list(run.curves["train", "loss"]) == [10, 20]
    assert not run.finished
    assert run.seconds == 15


def test_a_resumed_run_replaces_what_it_repeats(tmp_path):
    folder = write(
        tmp_path,
        CONFIGURATION,
        inner(10, 6.0, wall=10),
        inner(20, 5.0, wall=20),
        valid(20, 5.0),
        inner(30, 9.0, wall=30),
        inner(35, 9.0, wall=35),
        CONFIGURATION,  # goes on from a checkpoint of update 20
        inner(30, 4.0, wall=10),
        valid(40, 4.0),
        "done training in 11 seconds",
    )
    run = read_run(folder)
    assert run.curves["train", "loss"] == {10: 6.0, 20: 5.0, 30: 4.0}
    assert run.curves["valid", "loss"] == {20: 5.0, 40: 4.0}
    assert (run.starts, run.finished, run.updates) == (2, True, 40)
    assert run.seconds == 46


def test_a_run_begun_anew_forgets_the_first(tmp_path):
    folder = write(
        tmp_path,
        CONFIGURATION,
        inner(10, 6.0),
        inner(20, 5.0),
        "done training in 100 seconds",
        CONFIGURATION,
        inner(10, 3.0),
        "done training in 1 seconds",
    )
    run = read_run(folder)
    assert run.curves["train", "loss"] == {10: 3.0}
    assert (run.starts, run.seconds) == (1, 1.0)


def test_a_start_that_failed_at_once_counts_for_nothing(tmp_path):
    run = read_run(
        write(tmp_path, CONFIGURATION, CONFIGURATION, inner(10, 6.0), "done training in 3 seconds")
    )
    assert (run.starts, run.seconds) == (1, 3.0)


def test_a_run_shorter_than_its_log_interval_shows_its_epochs(tmp_path):
    run = read_run(write(tmp_path, average(4, 6.5), valid(4, 6.0)))
    assert run.curves["train", "loss"] == {4: 6.5}


def test_every_validation_subset_is_kept(tmp_path):
    run = read_run(write(tmp_path, valid(4, 6.0), valid(4, 7.0, "valid1")))
    assert {split for split, _ in run.curves} == {"valid", "valid1"}


@pytest.mark.parametrize("content", [None, "", "hello\n{'_name': None, 'common': broken(}\n"])
def test_a_folder_without_records(tmp_path, content):
    if content is not None:
        (tmp_path / "train.log").write_text(content)
    run = read_run(tmp_path)
    assert run.curves == {}
    assert len(run.remarks) == 1
    assert "train.log" in run.remarks[0]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        read_run(tmp_path / "nowhere")


def test_tensorboard_files_stand_in_for_a_log(tmp_path):
    from tensorboardX import SummaryWriter

    for name, value in (("train_inner", 3.0), ("valid", 4.0)):
        writer = SummaryWriter(str(tmp_path / "tb" / name))
        writer.add_scalar("mlm_loss", value, 10, walltime=100.0)
        writer.add_scalar("mlm_loss", value - 1, 20, walltime=160.0)
        writer.close()
    run = read_run(tmp_path)
    assert run.curves["train", "mlm_loss"] == {10: 3.0, 20: 2.0}
    assert run.curves["valid", "mlm_loss"] == {10: 4.0, 20: 3.0}
    assert run.seconds == pytest.approx(60, abs=1)
    assert "TensorBoard" in run.remarks[0]


def test_the_log_of_a_real_run_and_its_resumption(server, tmp_path):
    """Whatever the installed fairseq writes is understood."""
    data, folder = make_corpus(tmp_path / "data"), tmp_path / "run"
    folder.mkdir()
    options = {"no_nsp": True, "log_interval": 2, "log_file": folder / "train.log"}
    for updates in (12, 16):
        arguments = train_arguments(data, folder, "bert_pretraining", **options, max_update=updates)
        assert server.run("fairseq-train", arguments).code == 0
    run = read_run(tmp_path / "run")
    assert list(run.curves["train", "loss"]) == [2, 4, 6, 8, 10, 12, 14, 16]
    assert max(run.curves["valid", "loss"]) == 16
    assert (run.starts, run.finished, run.updates, run.devices) == (2, True, 16, 1)
    assert run.setting("max_update") == 16
    assert run.settings["model"]["_name"] == "tn_bert"
    assert run.tokens is not None
    assert 16 * 4 * 10 <= run.tokens <= 16 * 4 * 48
    assert run.trained_parameters is not None
    assert run.seconds is not None
