"""Sentence-level contrast under the real commands: every view, an interrupted run, two processes."""

import json
import math
import re
import socket

import pytest
import torch
from corpus import make_corpus
from training import LENGTH, MODEL_SIZES, PACKAGE, train_arguments

NAMES = {"mlm_loss", "nsp_loss", "contrastive_loss", "contrastive_acc"}
# the short way: no validation, and few updates
SHORT = {"task": "sentence_contrastive", "max_update": 4, "disable_validation": True}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("data"))


def assert_trained(*runs) -> None:
    for run in runs:
        assert run.code == 0, run.log[-2500:]
        for values in run.lines("train_inner"):
            assert values.keys() >= NAMES
            assert values["contrastive_loss"] > 0


@pytest.mark.smoke
def test_every_view_trains(server, data, tmp_path):
    """SimCSE is interrupted, Mirror-BERT started by Hydra, DeCLUTR shared by two processes of uneven shares."""

    def train(save_dir: str, **options) -> tuple[str, list]:
        options = {**SHORT, **options}
        return "fairseq-train", train_arguments(data, tmp_path / save_dir, "sentence_contrastive", **options)

    config = {
        "common": {"user_dir": str(PACKAGE), "cpu": True, "log_format": "json", "log_interval": 1},
        "checkpoint": {"no_epoch_checkpoints": True, "save_dir": str(tmp_path / "yaml")},
        "task": {
            "_name": SHORT["task"],
            "views": "mirror-bert",
            "data": str(data),
            "tokens_per_sample": LENGTH,
        },
        "criterion": {"_name": "sentence_contrastive", "pooling": "cls"},
        "dataset": {"batch_size": 4, "num_workers": 0, "disable_validation": True},
        "optimization": {"max_update": 2, "lr": [1e-3]},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "model": {"_name": "tn_bert", **MODEL_SIZES},
    }
    (tmp_path / "c.yaml").write_text("# @package _global_\n" + json.dumps(config))
    hydra = ["--config-dir", tmp_path, "--config-name", "c", f"hydra.run.dir={tmp_path / 'hydra'}"]
    whole, _, yaml = server.run_together(
        [train("whole"), train("parts", max_update=2), ("fairseq-hydra-train", hydra)]
    )
    resumed = server.run(*train("parts"))
    assert_trained(whole, yaml, resumed)
    assert resumed.lines("train_inner")[0]["num_updates"] == 3
    for kind in ("model", "criterion"):
        first, second = whole.checkpoint()[kind], resumed.checkpoint()[kind]
        assert first.keys() == second.keys()
        assert all(torch.equal(value, second[name]) for name, value in first.items())

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        init = f"tcp://127.0.0.1:{sock.getsockname()[1]}"
    shared = {
        "views": "declutr",
        "anchors_per_document": 1,
        "positives_per_anchor": 1,
        "distributed_world_size": 2,
        "distributed_no_spawn": True,
        "distributed_init_method": init,
        "distributed_backend": "gloo",
        "ddp_backend": "legacy_ddp",
        "max_update": None,
        "max_epoch": 1,
        "batch_size": 40,
    }
    ranks = server.run_together([train("shared", **shared, distributed_rank=rank) for rank in (0, 1)])
    assert_trained(*ranks)
    # an odd number of batches: one process repeated one for nothing
    sequences = int(re.search(r"tokens in ([\d,]+) sequences", ranks[0].log)[1].replace(",", ""))
    updates = len(ranks[0].lines("train_inner"))
    assert math.ceil(sequences / 40) == 2 * updates - 1 > 1
