"""The real fairseq commands with ELECTRA and with soft regularisation of whole sequences."""

import json
import math
import shutil
import socket
from pathlib import Path

import pytest
import torch
from corpus import make_corpus, write_dict, write_split
from fairseq import checkpoint_utils
from training import LENGTH, PACKAGE, Finished, train_arguments

import fairseq_tn

SIZES = {
    "encoder_layers": 2,
    "encoder_embed_dim": 32,
    "encoder_ffn_embed_dim": 64,
    "encoder_attention_heads": 2,
    "embedding_dim": 16,
    "generator_size": 0.5,
    "max_positions": 64,
}
HALVES = {
    "loss",
    "gen_loss",
    "gen_acc",
    "disc_loss",
    "disc_acc",
    "disc_recall",
    "disc_specificity",
    "disc_bacc",
}
EVERYTHING = HALVES | {"hc_pred", "hc_seq", "sr_loss"}
NAMES = EVERYTHING | {"mlm_loss", "mlm_acc", "nsp_loss", "nsp_acc"}
BERT = {"leave_unmasked_prob": 0.1, "random_token_prob": 0.1}
SENTENCE = {"soft_reg_weight": 1, "soft_reg_level": "sentence"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("electra")


@pytest.fixture(scope="module")
def data(folder):
    return make_corpus(folder / "data")


@pytest.fixture(scope="module")
def synonyms(folder):
    """Every word has half of the others as its synonyms, so that corrections happen."""
    path = folder / "synonyms.txt"
    lines = [f"w{n}\t{' '.join(f'w{(n + step) % 40}' for step in range(1, 20))}\n" for n in range(40)]
    path.write_text("".join(lines))
    return path


def electra(data: Path, save_dir: Path, **options) -> list[str]:
    """Arguments of ``fairseq-train``; ``options`` change or (None) remove defaults."""
    defaults = {"task": "bert_pretraining", "no_nsp": True, "arch": "tn_electra_small", **SIZES}
    criterion = options.pop("criterion", "electra")
    return train_arguments(data, save_dir, criterion, **{**defaults, **options})


def succeed(*runs: Finished) -> None:
    for run in runs:
        assert run.code == 0, run.log[-2500:]


@pytest.fixture(scope="module")
def warm(server, data, folder) -> Path:
    """A pre-trained checkpoint."""
    run = server.run("fairseq-train", electra(data, folder / "warm", max_update=3))
    succeed(run)
    return run.folder / "checkpoint_last.pt"


@pytest.fixture
def everything(synonyms) -> dict:
    return {"synonyms": str(synonyms), **SENTENCE}


def differing(first: dict, second: dict) -> set[str]:
    assert first.keys() == second.keys()
    return {name for name, value in first.items() if not torch.equal(value, second[name])}


@pytest.mark.smoke
def test_both_commands_train_alike_and_log_the_names(server, data, everything, tmp_path):
    """HC and SR of whole sequences are on."""
    config = {
        "common": {"user_dir": str(PACKAGE), "cpu": True, "seed": 3, "log_format": "json", "log_interval": 1},
        "checkpoint": {"save_dir": str(tmp_path / "h"), "no_epoch_checkpoints": True},
        "task": {"_name": "bert_pretraining", "data": str(data), "tokens_per_sample": LENGTH, "no_nsp": True},
        "criterion": {"_name": "electra", **everything},
        "dataset": {"batch_size": 4, "num_workers": 0},
        "optimization": {"max_update": 4, "lr": [1e-3], "clip_norm": 1.0},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "model": {"_name": "tn_electra_small", **SIZES},
    }
    (tmp_path / "c.yaml").write_text("# @package _global_\n" + json.dumps(config))
    hydra = ["--config-dir", tmp_path, "--config-name", "c", f"hydra.run.dir={tmp_path / 'hydra'}"]
    runs = server.run_together(
        [
            ("fairseq-train", electra(data, tmp_path / "run", max_update=4, **everything)),
            ("fairseq-hydra-train", [*hydra, f"checkpoint.save_dir={tmp_path / 'h'}"]),
        ]
    )
    succeed(*runs)
    train, valid = runs[0].lines("train_inner"), runs[0].lines("valid")
    assert len(train) == 4
    for values, prefix in ((train[-1], ""), (valid[-1], "valid_")):
        assert {name.removeprefix(prefix) for name in values} & NAMES == EVERYTHING
        assert all(math.isfinite(values[prefix + name]) for name in EVERYTHING)
        for name in ("hc_pred", "hc_seq", "sr_loss", "disc_loss", "gen_loss"):
            assert values[prefix + name] > 0, name
    assert differing(runs[0].weights(), runs[1].weights()) == set()


def test_an_interrupted_run_ends_as_an_uninterrupted_one(server, data, everything, tmp_path):
    options = {"batch_size": 16, **everything}
    whole, part = server.run_together(
        [
            ("fairseq-train", electra(data, tmp_path / "whole", max_update=6, **options)),
            ("fairseq-train", electra(data, tmp_path / "parts", max_update=3, **options)),
        ]
    )
    succeed(whole, part)
    assert len(differing(whole.weights(), part.weights())) > 40
    resumed = server.run("fairseq-train", electra(data, tmp_path / "parts", max_update=6, **options))
    succeed(resumed)
    assert resumed.lines("train_inner")[0]["num_updates"] == 4
    assert differing(whole.weights(), resumed.weights()) == set()


def test_a_half_without_a_weight_stays_as_it_is(server, data, warm, tmp_path):
    """The embeddings, which both halves share, train with either."""
    options = {"finetune_from_model": warm, "max_update": 2}
    runs = server.run_together(
        [
            ("fairseq-train", electra(data, tmp_path / "discriminator", generator_weight=0, **options)),
            ("fairseq-train", electra(data, tmp_path / "generator", discriminator_weight=0, **options)),
        ]
    )
    succeed(*runs)
    before = torch.load(warm)["model"]
    trained = [{name.split(".")[0] for name in differing(before, run.weights())} for run in runs]
    assert trained == [{"encoder", "discriminator_head"}, {"encoder", "generator", "lm_head"}]
    layers = [name for name in differing(before, runs[1].weights()) if name.startswith("encoder.")]
    assert not [name for name in layers if name.startswith(("encoder.layers", "encoder.embed_proj"))]


@pytest.mark.parametrize(
    ("options", "masked", "kept"), [({}, 0.85, 0.15), (BERT, 0.8, 0.1)], ids=["own", "bert"]
)
def test_the_masking_is_electra_s_unless_told_otherwise(options, masked, kept, warm):
    """15 % of the selected tokens are kept and none is random."""
    fairseq_tn.register()
    task = checkpoint_utils.load_model_ensemble_and_task(
        [str(warm)], arg_overrides={"mask_prob": 1, **options}
    )[2]
    task.load_dataset("train")
    dataset, mask = task.dataset("train"), task.source_dictionary.index("<mask>")
    batch = dataset.collater([dataset[index] for index in range(len(dataset))])
    read = batch["net_input"]["src_tokens"].view(-1)[batch["selected"]]
    gold = batch["source"].view(-1)[batch["selected"]]
    assert len(gold) > 1500
    assert read.eq(mask).double().mean().item() == pytest.approx(masked, abs=0.03)
    assert read.eq(gold).double().mean().item() == pytest.approx(kept, abs=0.03)
    assert (read.eq(mask) | read.eq(gold)).all() == (masked + kept == 1)


def test_two_processes_train_one_model(server, data, everything, tmp_path):
    """They draw other tokens than one process with two batches would, so that only the sums compare."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        init = f"tcp://127.0.0.1:{sock.getsockname()[1]}"
    options = {
        "distributed_world_size": 2,
        "distributed_no_spawn": True,
        "distributed_init_method": init,
        "distributed_backend": "gloo",
        "ddp_backend": "legacy_ddp",
        "max_update": 2,
    }
    runs = server.run_together(
        [
            (
                "fairseq-train",
                electra(data, tmp_path / f"{rank}", distributed_rank=rank, **options, **everything),
            )
            for rank in (0, 1)
        ]
    )
    succeed(*runs)
    assert "training on 2 devices" in runs[0].log
    values = runs[0].lines("train_inner")[-1]
    assert values.keys() & NAMES == EVERYTHING
    assert values["bsz"] == 8


@pytest.mark.parametrize("model", ["tn_bert", "roberta_base"])
def test_whole_sequences_of_bert_and_roberta(model, server, data, synonyms, tmp_path):
    """``roberta_base`` on fairseq's own task."""
    own = {"arch": "roberta_base", "task": "masked_lm"} if model == "roberta_base" else {"nsp_weight": 1}
    options = {**SENTENCE, "synonyms": synonyms, "max_update": 3, **own}
    run = server.run("fairseq-train", train_arguments(data, tmp_path / "run", "mlm_soft_reg", **options))
    succeed(run)
    expected = {"loss", "mlm_loss", "mlm_acc", "sr_loss", "hc_pred", "hc_seq"}
    expected |= {"nsp_loss", "nsp_acc"} if model == "tn_bert" else set()
    for values, prefix in ((run.lines("train_inner")[-1], ""), (run.lines("valid")[-1], "valid_")):
        assert {name.removeprefix(prefix) for name in values} & NAMES == expected
        assert values[prefix + "sr_loss"] > 0


def test_sentence_prediction_fine_tunes_the_discriminator(server, data, warm, tmp_path):
    """fairseq's GLUE task: it gives the model 512 positions, whatever the checkpoint has."""
    glue = tmp_path / "glue"
    sentences = [[["w1", "w2", "w3"]], [["w7", "w8"]], [["w2", "w3"]], [["w9"]]] * 4
    (glue / "input0").mkdir(parents=True)
    shutil.copy(data / "dict.txt", glue / "input0")
    words = write_dict(tmp_path / "words", [line.split()[0] for line in (data / "dict.txt").open()])
    labels = write_dict(glue / "label", ["no", "yes"])
    for split in ("train", "valid"):
        # a document of one sentence each, joined: no blank lines
        write_split(glue / "input0", split, [[s for (s,) in sentences]], words)
        write_split(glue / "label", split, [[["no"], ["yes"]] * 8], labels)
    options = {
        "task": "sentence_prediction",
        "criterion": "sentence_prediction",
        "no_nsp": None,
        "num_classes": 2,
        "init_token": 0,
        "tokens_per_sample": None,
        "max_positions": None,  # and that task's default is 512
        "finetune_from_model": warm,
    }
    run = server.run("fairseq-train", electra(glue, tmp_path / "run", max_update=2, **options))
    succeed(run)
    assert "valid_accuracy" in run.lines("valid")[-1]
    weights, before = run.weights(), torch.load(warm)["model"]
    assert weights["encoder.embed_positions.weight"].shape == (512, 16)
    assert weights["classification_heads.sentence_classification_head.out_proj.weight"].shape == (2, 32)
    for name, value in before.items():
        frozen = name.startswith(("generator.", "lm_head.", "discriminator_head."))
        if frozen or name.startswith("encoder.layers."):
            assert torch.equal(weights[name], value) == frozen, name
    again = server.run("fairseq-train", electra(glue, tmp_path / "run", max_update=3, **options))
    succeed(again)
    assert again.lines("train_inner")[0]["num_updates"] == 3


# --- bad input ----------------------------------------------------------------------------------------------------

# what, options (the checkpoint and the foreign corpus stand for themselves), what the line says
FAULTS = [
    ("sentence pairs", {"no_nsp": None}, ["--no-nsp"]),
    ("another model", {"arch": "tn_bert", "embedding_dim": None, "generator_size": None}, ["tn_electra_"]),
    ("fairseq's model", {"arch": "roberta_base", "embedding_dim": None, "generator_size": None}, ["tn_electra_"]),
    ("another criterion", {"criterion": "bert_pretraining"}, ["--criterion electra"]),
    ("no generator", {"generator_size": 0}, ["--generator-size 0"]),
    ("another generator", {"generator_size": 0.25, "finetune_from_model": "warm"}, ["--generator-embed-dim 16", "8"]),
    ("other embeddings", {"embedding_dim": 32, "finetune_from_model": "warm"}, ["--embedding-dim 16"]),
    ("another vocabulary", {"data": "foreign", "finetune_from_model": "warm"}, ["dict.txt", "--srcdict"]),
    (
        "a checkpoint of tn_electra for tn_bert",
        {
            "arch": "tn_bert",
            "embedding_dim": None,
            "generator_size": None,
            "criterion": "bert_pretraining",
            "finetune_from_model": "warm",
        },
        ["tn_bert", "--arch"],
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def faulty_runs(server, data, warm, folder) -> dict[str, Finished]:
    """One run for each fault, four at a time."""
    foreign = make_corpus(folder / "foreign", symbols=["one", "more"])
    given = {"warm": warm, "foreign": foreign}
    commands = []
    for number, (_, options, _) in enumerate(FAULTS):
        options = {key: given.get(value, value) for key, value in options.items()}
        corpus = options.pop("data", data)
        commands.append(("fairseq-train", electra(corpus, folder / f"fault{number}", **options)))
    runs = []
    for start in range(0, len(commands), 4):
        runs += server.run_together(commands[start : start + 4])
    return {fault[0]: run for fault, run in zip(FAULTS, runs, strict=True)}


@pytest.mark.parametrize(("name", "said"), [(fault[0], fault[2]) for fault in FAULTS])
def test_bad_input_is_one_clear_line(name, said, faulty_runs):
    run = faulty_runs[name]
    assert run.code != 0
    assert "Traceback" not in run.log, run.log[-1500:]
    for part in said:
        assert part in run.last_line, run.log[-1500:]
    assert len(run.last_line) < 600
    assert not list(run.folder.glob("*.pt*"))
