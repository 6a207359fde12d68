"""``--keep-checkpoints-at`` in real runs: interrupted ones, ends of epochs, several processes."""

import os
import socket
from pathlib import Path

import pytest
import torch
from corpus import make_corpus
from training import train_arguments


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("data"))


def kept(folder: Path) -> set[int]:
    """The updates of the kept checkpoints; each must hold the state of its update."""
    found = {int(path.stem.rpartition("_")[2]): path for path in folder.glob("checkpoint_at_*.pt")}
    for update, path in found.items():
        state = torch.load(path, weights_only=False)
        assert state["optimizer_history"][-1]["num_updates"] == update
    return set(found)


KEEPING = {
    "max_update": 10,
    "save_interval_updates": 1,
    "keep_interval_updates": 1,
    "keep_checkpoints_at": "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1",
    "disable_validation": True,
}


@pytest.mark.smoke
def test_every_update_is_kept_through_the_end_of_an_epoch_and_a_new_start(server, data, tmp_path):
    def run(name, **options):
        options = {**KEEPING, "batch_size": 16, **options}
        done = server.run(
            "fairseq-train", train_arguments(data, tmp_path / name, "bert_pretraining", **options)
        )
        assert done.code == 0, done.log[-2500:]
        return done

    first, second = run("parts", max_epoch=1), run("parts")
    ended = int(first.lines("train_inner")[-1]["num_updates"])
    assert 1 < ended < 10
    assert second.lines("train_inner")[0]["num_updates"] == ended + 1
    whole = run("whole")
    assert kept(whole.folder) == kept(second.folder) == set(range(1, 11))
    assert len(list(whole.folder.glob("checkpoint_[0-9]*_*.pt"))) == 1  # fairseq removes as it is told
    for update in range(1, 11):
        one, other = (
            torch.load(run.folder / f"checkpoint_at_{update}.pt", weights_only=False)["model"]
            for run in (whole, second)
        )
        assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.smoke
def test_of_several_processes_one_keeps(server, data, tmp_path):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    ranks = server.run_together(
        [
            (
                "fairseq-train",
                train_arguments(
                    data,
                    tmp_path / "run",
                    "bert_pretraining",
                    **{**KEEPING, "keep_checkpoints_at": "0.25,0.5,1"},
                    distributed_world_size=2,
                    distributed_rank=rank,
                    distributed_no_spawn=True,
                    distributed_init_method=f"tcp://127.0.0.1:{port}",
                    distributed_backend="gloo",
                    ddp_backend="legacy_ddp",
                ),
            )
            for rank in (0, 1)
        ]
    )
    for rank in ranks:
        assert rank.code == 0, rank.log[-2500:]
    assert kept(ranks[0].folder) == {3, 5, 10}
    assert [rank.log.count("| kept ") for rank in ranks] == [3, 0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"keep_checkpoints_at": "25,50"}, "--keep-checkpoints-at 25"),
        ({"save_interval_updates": None}, "--save-interval-updates"),
        ({"max_update": None, "max_epoch": 2}, "--max-update"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(options, named, server, data, tmp_path):
    arguments = train_arguments(data, tmp_path / "run", "bert_pretraining", **{**KEEPING, **options})
    run = server.run("fairseq-train", arguments)
    assert run.code == 1
    assert named in run.last_line
    assert not os.listdir(run.folder)
