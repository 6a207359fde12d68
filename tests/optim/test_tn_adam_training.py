"""``tn_adam`` in real runs: both commands, resuming, fine-tuning, models that do not tell their layers."""

import json

import pytest
import torch
from corpus import make_corpus, write_dict, write_split
from training import LENGTH, MODEL_SIZES, PACKAGE, train_arguments

OPTIONS = {
    "weight_decay": 0.01,
    "adam_eps": 1e-6,
    "no_bias_correction": True,
    "decay_matrices_only": True,
    "layer_lr_decay": 0.5,
}
SCHEDULE = {"lr_scheduler": "polynomial_decay", "warmup_updates": 2, "total_num_update": 6}
LR = 2e-3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tn_adam")


@pytest.fixture(scope="module")
def data(folder):
    return make_corpus(folder / "data")


@pytest.fixture(scope="module")
def glue(folder):
    """Sentences with one of two labels."""
    dictionary = write_dict(folder / "glue" / "input0", [f"w{n}" for n in range(40)])
    labels = write_dict(folder / "glue" / "label", ["no", "yes"])
    for split in ("train", "valid"):
        # a document of one sentence each, joined: no blank lines
        write_split(folder / "glue" / "input0", split, [[["w1", "w2"], ["w7"]] * 8], dictionary)
        write_split(folder / "glue" / "label", split, [[["no"], ["yes"]] * 8], labels)
    return folder / "glue"


def arguments(data, save_dir, criterion="bert_pretraining", **options):
    defaults = {"optimizer": "tn_adam", "lr": LR, "max_update": 6, **SCHEDULE}
    return train_arguments(data, save_dir, criterion, **{**defaults, **options})


def write_yaml(path, data):
    """The same run for ``fairseq-hydra-train``; JSON is YAML."""
    name = SCHEDULE["lr_scheduler"]
    config = {
        "common": {"user_dir": str(PACKAGE), "cpu": True, "seed": 3, "log_format": "json", "log_interval": 1},
        "checkpoint": {"no_epoch_checkpoints": True},
        "task": {"_name": "bert_pretraining", "data": str(data), "tokens_per_sample": LENGTH},
        "criterion": {"_name": "bert_pretraining"},
        "dataset": {"batch_size": 4, "num_workers": 0},
        "optimization": {"max_update": 6, "lr": [LR], "clip_norm": 1.0},
        "optimizer": {"_name": "tn_adam", **OPTIONS},
        "lr_scheduler": {
            **{key: value for key, value in SCHEDULE.items() if key != "lr_scheduler"},
            "_name": name,
        },
        "model": {"_name": "tn_bert", **MODEL_SIZES},
    }
    path.write_text("# @package _global_\n" + json.dumps(config))


def assert_equal_weights(first, second):
    assert first.weights().keys() == second.weights().keys()
    for name, value in first.weights().items():
        assert torch.equal(value, second.weights()[name]), name


@pytest.mark.smoke
def test_both_commands_and_a_resumed_run_end_alike(server, data, tmp_path):
    write_yaml(tmp_path / "run.yaml", data)
    hydra = ["--config-dir", tmp_path, "--config-name", "run", f"hydra.run.dir={tmp_path / 'hydra'}"]
    whole, other, part = server.run_together(
        [
            ("fairseq-train", arguments(data, tmp_path / "whole", **OPTIONS)),
            ("fairseq-hydra-train", [*hydra, f"checkpoint.save_dir={tmp_path / 'other'}"]),
            ("fairseq-train", arguments(data, tmp_path / "parts", **OPTIONS, max_update=3)),
        ]
    )
    for run in (whole, other, part):
        assert run.code == 0, run.log[-3000:]
    resumed = server.run("fairseq-train", arguments(data, tmp_path / "parts", **OPTIONS))
    assert resumed.code == 0, resumed.log[-3000:]
    assert_equal_weights(whole, other)
    assert_equal_weights(whole, resumed)
    # the log has the schedule of the heads, the checkpoint the groups
    rates = [line["lr"] for line in whole.lines("train_inner")]
    assert rates == pytest.approx([LR / 2, LR, LR * 0.75, LR * 0.5, LR * 0.25, 0], rel=1e-2)
    groups = whole.checkpoint()["last_optimizer_state"]["param_groups"]
    scales = {group["lr_scale"] for group in groups}
    assert scales == {1, 0.5**2, 0.5**3, 0.5**4}
    assert "learning rates from 0.0625 x to 1 x --lr" in whole.log


@pytest.mark.smoke
def test_fine_tuning_and_fairseq_s_roberta(server, data, glue, tmp_path):
    """fairseq's GLUE task adds its head after the model is built; our tasks mark fairseq's models too."""
    roberta = {
        "arch": "roberta_base",
        "encoder_layers": 2,
        "encoder_embed_dim": 32,
        "encoder_ffn_embed_dim": 64,
        "encoder_attention_heads": 2,
        "max_positions": 64,
    }
    glue_task = {"task": "sentence_prediction", "num_classes": 2, "init_token": 0, "tokens_per_sample": None}
    glue_task |= {"max_positions": None, "max_update": 3}
    tuned, ours, theirs = server.run_together(
        [
            (
                "fairseq-train",
                arguments(glue, tmp_path / "glue", "sentence_prediction", **glue_task, **OPTIONS),
            ),
            (
                "fairseq-train",
                arguments(data, tmp_path / "ours", "mlm_soft_reg", **roberta, **OPTIONS, no_nsp=True),
            ),
            (
                "fairseq-train",
                arguments(data, tmp_path / "theirs", "masked_lm", **roberta, **OPTIONS, task="masked_lm"),
            ),
        ]
    )
    assert tuned.code == 0, tuned.log[-3000:]
    assert ours.code == 0, ours.log[-3000:]
    for run in (tuned, ours):
        groups = run.checkpoint()["last_optimizer_state"]["param_groups"]
        assert {group["lr_scale"] for group in groups} == {1, 0.5**2, 0.5**3, 0.5**4}
    assert theirs.code == 1
    assert theirs.last_line.startswith("--layer-lr-decay: ")
    assert "do not say which layer" in theirs.last_line
