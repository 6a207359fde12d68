"""The real fairseq commands on a small corpus: every criterion, resuming, two processes, workers, bad input.

Most runs are forked from one process that has imported fairseq (``fork_server.py``) and pass through the commands'
own entries; one call each of ``fairseq-train`` and ``fairseq-hydra-train`` starts from nothing.
"""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from corpus import make_corpus, random_documents, write_dict, write_split
from training import ENVIRONMENT, LENGTH, MODEL_SIZES, PACKAGE, Finished, flags, train_arguments

CRITERIONS = ("bert_pretraining", "mlm_hard_correction", "mlm_soft_reg", "tacl_contrastive")
MLM = {"loss", "mlm_loss", "mlm_acc"}
LOGGED = {
    "bert_pretraining": MLM | {"nsp_loss", "nsp_acc"},
    "mlm_hard_correction": MLM | {"hc_pred", "hc_seq"},
    "mlm_soft_reg": MLM | {"sr_loss", "emb_cos"},
    "tacl_contrastive": MLM | {"nsp_loss", "nsp_acc", "tacl_loss", "tacl_acc"},
}
ALL_NAMES = set().union(*LOGGED.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module")
def data(folder):
    return make_corpus(folder / "data")


@pytest.fixture(scope="module")
def synonyms(folder):
    """Every word has the next few words by number as its synonyms, so that corrections happen."""
    path = folder / "synonyms.txt"
    lines = [f"w{n}\t{' '.join(f'w{(n + step) % 40}' for step in range(1, 12))}\n" for n in range(40)]
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def warm(server, data, folder) -> Path:
    """A pre-trained checkpoint."""
    run = server.run("fairseq-train", train_arguments(data, folder / "warm", "bert_pretraining"))
    assert run.code == 0, run.log
    return run.folder / "checkpoint_last.pt"


@pytest.fixture
def arguments(data, synonyms, warm, tmp_path):
    """Builds the arguments of a run that starts from the warm checkpoint."""

    def build(criterion: str, save_dir="run", **options) -> list[str]:
        defaults = {
            "synonyms": synonyms if criterion == "mlm_hard_correction" else None,
            "finetune_from_model": warm,
        }
        corpus = options.pop("data", data)
        return train_arguments(corpus, tmp_path / save_dir, criterion, **{**defaults, **options})

    return build


def succeed(*runs: Finished) -> None:
    for run in runs:
        assert run.code == 0, run.log[-2500:]


def assert_equal_weights(first: dict, second: dict, tolerance: float = 0.0) -> None:
    """The same tensors, bit for bit or within a relative tolerance of each tensor's largest entry."""
    assert first.keys() == second.keys()
    for name, value in first.items():
        if tolerance and value.is_floating_point():
            bound = tolerance * max(value.abs().max().item(), 1e-3)
            assert (value - second[name]).abs().max().item() <= bound, name
        else:
            assert torch.equal(value, second[name]), name


def differ(first: dict, second: dict) -> bool:
    return any(not torch.equal(value, second[name]) for name, value in first.items())


# --- both commands, from nothing --------------------------------------------------------------------------------


def command(name: str) -> str:
    return str(Path(sys.executable).parent / name)


@pytest.mark.smoke
def test_fairseq_train_from_any_folder(data, tmp_path):
    """Started in a folder of its own, with data-loader workers."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    arguments = train_arguments(data, Path("checkpoints"), "bert_pretraining", num_workers=2)
    done = subprocess.run(
        [command("fairseq-train"), *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (folder / "checkpoints" / "checkpoint_last.pt").is_file()


def write_yaml(
    path: Path, data, save_dir, criterion: dict, task: dict, model: dict | None = None, **checkpoint
):
    """A configuration for ``fairseq-hydra-train``; JSON is YAML."""
    config = {
        "common": {"user_dir": str(PACKAGE), "cpu": True, "seed": 3, "log_format": "json", "log_interval": 1},
        "checkpoint": {"save_dir": str(save_dir), "no_epoch_checkpoints": True, **checkpoint},
        "task": {"data": str(data), "tokens_per_sample": LENGTH, **task},
        "criterion": criterion,
        "dataset": {"batch_size": 4, "num_workers": 0},
        "optimization": {"max_update": 6, "lr": [1e-3], "clip_norm": 1.0},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "model": {"_name": "tn_bert", **MODEL_SIZES} if model is None else model,
    }
    path.write_text("# @package _global_\n" + json.dumps(config))


def hydra_arguments(folder: Path, name: str, save_dir: Path) -> list[str]:
    return [
        "--config-dir",
        str(folder),
        "--config-name",
        name,
        f"hydra.run.dir={folder / 'hydra'}",
        f"checkpoint.save_dir={save_dir}",
    ]


@pytest.mark.smoke
def test_fairseq_hydra_train(data, warm, tmp_path):
    write_yaml(
        tmp_path / "tacl.yaml",
        data,
        tmp_path / "run",
        {"_name": "tacl_contrastive", "temperature": 0.05},
        {"_name": "teacher_student"},
        finetune_from_model=str(warm),
    )
    done = subprocess.run(
        [command("fairseq-hydra-train"), *hydra_arguments(tmp_path, "tacl", tmp_path / "run")],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "run" / "checkpoint_last.pt").is_file()


# --- every criterion --------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("criterion", CRITERIONS)
def test_both_commands_train_alike_and_log_the_names(
    criterion, server, data, warm, synonyms, arguments, tmp_path
):
    options = {"_name": criterion}
    if criterion == "mlm_hard_correction":
        options["synonyms"] = str(synonyms)
    task = {"_name": "teacher_student" if criterion == "tacl_contrastive" else "bert_pretraining"}
    write_yaml(tmp_path / "c.yaml", data, tmp_path / "h", options, task, finetune_from_model=str(warm))
    runs = server.run_together(
        [
            ("fairseq-train", arguments(criterion)),
            ("fairseq-hydra-train", hydra_arguments(tmp_path, "c", tmp_path / "h")),
        ]
    )
    succeed(runs[0])
    train, valid = runs[0].lines("train_inner"), runs[0].lines("valid")
    assert len(train) == 6
    assert len(valid) == 1
    for values, prefix in ((train[-1], ""), (valid[-1], "valid_")):
        names = {name.removeprefix(prefix) for name in values}
        assert names & ALL_NAMES == LOGGED[criterion]
        assert all(math.isfinite(values[prefix + name]) for name in LOGGED[criterion])
    assert runs[0].log.count("corpus: ") == 1
    assert runs[1].code == 0, runs[1].log[-3000:]
    assert_equal_weights(runs[0].weights(), runs[1].weights())


def test_all_methods_together(server, arguments, synonyms):
    run = server.run(
        "fairseq-train",
        arguments("tacl_contrastive", synonyms=synonyms, soft_reg_weight=1, mask_whole_words=True),
    )
    succeed(run)
    assert run.lines("train_inner")[-1].keys() & ALL_NAMES == ALL_NAMES
    values = run.lines("valid")[-1]
    # HC leaves positions out and SR adds to the loss, mlm_loss keeps all positions
    assert values["valid_hc_pred"] > 0
    assert values["valid_hc_seq"] > 0


def test_blocks_without_sentence_pairs(server, arguments, warm):
    runs = server.run_together(
        [
            (
                "fairseq-train",
                arguments("mlm_soft_reg", "sr", no_nsp=True, sample_break_mode="complete_doc", nsp_weight=1),
            ),
            ("fairseq-train", arguments("tacl_contrastive", "tacl", no_nsp=True, mlm_weight=0)),
        ]
    )
    succeed(*runs)
    before = torch.load(warm)["model"]
    for run, untrained in zip(runs, ({"pooler", "nsp_head"}, {"pooler", "nsp_head", "lm_head"}), strict=True):
        assert "valid_nsp_loss" not in run.lines("valid")[-1]
        for name, value in run.weights().items():
            # heads without a loss stay as they are
            unchanged = name.split(".")[0] in untrained or value.dtype == torch.int64
            assert torch.equal(value, before[name]) == unchanged, name


def test_a_run_that_sees_its_corpus_too_often_is_warned(server, arguments):
    """With one batch an epoch, updates are epochs."""
    options = {"batch_size": 2000, "required_batch_size_multiple": 1, "disable_validation": True}
    options |= {"no_save": True, "log_interval": 50}
    runs = server.run_together(
        [
            ("fairseq-train", arguments("bert_pretraining", f"run{n}", **options, max_update=n))
            for n in (5, 101)
        ]
    )
    succeed(*runs)
    assert "this run sees it 5 times" in runs[0].log
    assert "by heart" not in runs[0].log
    assert "this run sees it 101 times" in runs[1].log
    assert runs[1].log.count("by heart") == 1


# --- repeating and resuming ---------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("criterion", CRITERIONS)
def test_an_interrupted_run_ends_as_an_uninterrupted_one(criterion, server, arguments):
    """Interrupted within an epoch and after one; the options stay those of the first start."""
    options = {"batch_size": 16, "max_update": 9}
    whole, part = server.run_together(
        [
            ("fairseq-train", arguments(criterion, "whole", **options)),
            ("fairseq-train", arguments(criterion, "parts", **{**options, "max_update": 3})),
        ]
    )
    succeed(whole, part)
    assert differ(whole.weights(), part.weights())
    boundary = server.run("fairseq-train", arguments(criterion, "parts", **options, max_epoch=1))
    resumed = server.run("fairseq-train", arguments(criterion, "parts", **options))
    succeed(boundary, resumed)
    assert boundary.lines("train_inner")[0]["num_updates"] == 4
    assert {line["epoch"] for line in boundary.lines("train_inner")} == {1}
    assert {line["epoch"] for line in resumed.lines("train_inner")} == {2}
    assert_equal_weights(whole.weights(), resumed.weights())
    if criterion == "tacl_contrastive":
        checkpoint = resumed.checkpoint()
        plain = {name for name in checkpoint["model"] if "teacher" not in name}
        assert plain == set(checkpoint["model"])
        state = checkpoint["last_optimizer_state"]["state"]
        trained = [v for v in checkpoint["model"].values() if v.is_floating_point()]
        assert sum(s["exp_avg"].numel() for s in state.values()) == sum(v.numel() for v in trained)


def test_teacher_stays_the_first_model_when_a_run_is_resumed(server, arguments, warm, tmp_path):
    """The student moves on, the teacher is still the file of --finetune-from-model."""
    first = server.run("fairseq-train", arguments("tacl_contrastive", max_update=4))
    again = server.run("fairseq-train", arguments("tacl_contrastive", max_update=6))
    succeed(first, again)
    assert f"teacher: {warm}" in again.log
    assert "Loaded checkpoint" in again.log
    assert again.lines("train_inner")[0]["num_updates"] == 5
    # an explicit teacher instead
    moved = tmp_path / "teacher.pt"
    shutil.copy(warm, moved)
    explicit = server.run(
        "fairseq-train", arguments("tacl_contrastive", "explicit", teacher_checkpoint=moved, max_update=6)
    )
    succeed(explicit)
    assert f"teacher: {moved}" in explicit.log
    assert_equal_weights(again.weights(), explicit.weights())


def test_workers_change_nothing(server, arguments):
    runs = server.run_together(
        [
            ("fairseq-train", arguments("tacl_contrastive", f"workers{n}", num_workers=n, max_update=8))
            for n in (0, 2)
        ]
    )
    succeed(*runs)
    assert_equal_weights(runs[0].weights(), runs[1].weights())
    another = server.run("fairseq-train", arguments("tacl_contrastive", "seed", seed=4, max_update=8))
    assert differ(runs[0].weights(), another.weights())


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.mark.smoke
@pytest.mark.parametrize("criterion", [*CRITERIONS, "all"])
def test_two_processes_make_the_updates_of_one_with_two_batches(criterion, server, arguments, synonyms):
    options = {"dropout": 0, "attention_dropout": 0, "max_update": 4}
    if criterion == "all":
        criterion = "tacl_contrastive"
        options |= {"synonyms": synonyms, "soft_reg_weight": 1}
    single = server.run("fairseq-train", arguments(criterion, "single", update_freq=2, **options))
    init = f"tcp://127.0.0.1:{free_port()}"
    ranks = server.run_together(
        [
            (
                "fairseq-train",
                arguments(
                    criterion,
                    "double",
                    **options,
                    distributed_world_size=2,
                    distributed_rank=rank,
                    distributed_no_spawn=True,
                    distributed_init_method=init,
                    distributed_backend="gloo",
                    ddp_backend="legacy_ddp",
                ),
            )
            for rank in (0, 1)
        ]
    )
    succeed(single, *ranks)
    assert "training on 2 devices" in ranks[0].log
    assert ranks[0].log.count("corpus: ") + ranks[1].log.count("corpus: ") == 1
    assert_equal_weights(single.weights(), ranks[0].weights(), tolerance=1e-6)
    one, two = single.lines("train_inner"), ranks[0].lines("train_inner")
    assert len(one) == len(two) == 4
    for a, b in zip(one, two, strict=True):
        for name in a.keys() & ALL_NAMES:
            assert a[name] == pytest.approx(b[name], abs=2e-3), name


# --- finding the package ------------------------------------------------------------------------------------------


def test_a_package_that_was_registered_before_user_dir_names_it(server, arguments):
    """fairseq then only logs "already imported" and walks no folder."""
    run = server.run("fairseq-train", arguments("tacl_contrastive", num_workers=1), registered=True)
    succeed(run)
    assert len(run.lines("train_inner")) == 6


def test_a_copy_by_path_goes_before_the_installed_package(server, arguments, tmp_path):
    copy = tmp_path / "checkout" / "fairseq_tn"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "losses.py").open("a") as file:
        file.write("\nprint('the copy of the package')\n")
    options = {"user_dir": "fairseq_tn", "num_workers": 2}  # relative to the working folder
    run = server.run("fairseq-train", arguments("tacl_contrastive", **options), cwd=copy.parent)
    succeed(run)
    assert "the copy of the package" in run.log


# --- other commands, tasks and models -------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("criterion", ["bert_pretraining", "tacl_contrastive"])
def test_fairseq_validate(criterion, server, arguments, data):
    trained = server.run("fairseq-train", arguments(criterion))
    succeed(trained)
    task = "teacher_student" if criterion == "tacl_contrastive" else "bert_pretraining"
    options = {
        "user_dir": PACKAGE,
        "task": task,
        "path": trained.folder / "checkpoint_last.pt",
        "valid_subset": "valid",
        "batch_size": 4,
        "cpu": True,
        "log_format": "json",
        "num_workers": 0,
    }
    run = server.run("fairseq-validate", [str(data), *flags(options)])
    succeed(run)
    values, logged = run.lines("valid")[-1], trained.lines("valid")[-1]
    for name in LOGGED[criterion]:
        assert values[f"valid_{name}"] == pytest.approx(logged[f"valid_{name}"], abs=2e-3)


def roberta(**options) -> dict:
    """Options that turn the small ``tn_bert`` run into one of fairseq's own model."""
    return {"arch": "roberta_base", "finetune_from_model": None, **options}


@pytest.mark.smoke
@pytest.mark.parametrize("criterion", ["mlm_hard_correction", "mlm_soft_reg"])
def test_fairseq_s_own_task_and_model(criterion, server, arguments):
    run = server.run("fairseq-train", arguments(criterion, **roberta(task="masked_lm")))
    succeed(run)
    for values, prefix in ((run.lines("train_inner")[-1], ""), (run.lines("valid")[-1], "valid_")):
        assert {name.removeprefix(prefix) for name in values} & ALL_NAMES == LOGGED[criterion]


@pytest.mark.smoke
def test_tacl_with_a_roberta(server, arguments):
    first = server.run("fairseq-train", arguments("mlm_soft_reg", "warm", **roberta(task="masked_lm")))
    succeed(first)
    options = roberta(no_nsp=True, finetune_from_model=first.folder / "checkpoint_last.pt")
    run = server.run("fairseq-train", arguments("tacl_contrastive", "tacl", **options))
    succeed(run)
    values = run.lines("train_inner")[-1]
    assert values.keys() & ALL_NAMES == LOGGED["tacl_contrastive"] - {"nsp_loss", "nsp_acc"}


@pytest.mark.smoke
def test_sentence_prediction_fine_tunes_the_model(server, arguments, data, folder, tmp_path):
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
        "num_classes": 2,
        "init_token": 0,
        "tokens_per_sample": None,
        "max_positions": None,  # and that task's default is 512
        "max_update": 4,
    }
    run = server.run("fairseq-train", arguments("sentence_prediction", **options, data=glue))
    succeed(run)
    assert "valid_accuracy" in run.lines("valid")[-1]
    weights = run.weights()
    assert weights["encoder.embed_positions.weight"].shape == (512, 32)
    assert weights["classification_heads.sentence_classification_head.out_proj.weight"].shape == (2, 32)
    again = server.run(
        "fairseq-train", arguments("sentence_prediction", **{**options, "max_update": 6}, data=glue)
    )
    succeed(again)
    assert again.lines("train_inner")[0]["num_updates"] == 5


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bad(folder, data, warm, server):
    """Files with one fault each."""
    files = {
        name: folder / "bad" / name for name in ("empty", "single", "other_words", "no_train", "no_folder")
    }
    documents = random_documents(6, seed=5)
    make_corpus(files["empty"], train=[])
    make_corpus(files["single"], train=documents[:1])
    make_corpus(files["other_words"], symbols=["one", "more"])
    make_corpus(files["no_train"])
    for path in files["no_train"].glob("train.*"):
        path.unlink()
    tables = {
        "empty_table": "",
        "malformed_table": "w1\tw2 w3\nw4 w5\n",
        "foreign_table": "# vocabulary: " + "0" * 64 + "\nw1\tw2\n",
        "unknown_words": "w1\tw2 house\n",
        "own_synonym": "w1\tw2\nw3\tw3\n",
    }
    for name, text in tables.items():
        files[name] = folder / "bad" / f"{name}.txt"
        files[name].write_text(text)
    files["not_a_checkpoint"] = folder / "bad" / "text.pt"
    files["not_a_checkpoint"].write_text("hello\n")
    files["missing"] = folder / "bad" / "gone"
    runs = server.run_together(
        [
            ("fairseq-train", train_arguments(files["other_words"], folder / "other", "bert_pretraining")),
            (
                "fairseq-train",
                train_arguments(data, folder / "wide", "bert_pretraining", encoder_embed_dim=16),
            ),
        ]
    )
    succeed(*runs)
    files["other_teacher"] = runs[0].folder / "checkpoint_last.pt"
    files["narrow_teacher"] = runs[1].folder / "checkpoint_last.pt"
    return files


HC = "mlm_hard_correction"
TACL = "tacl_contrastive"
BASE = "bert_pretraining"
# name, criterion, options (a string that names a bad file stands for it), what the line says
FAULTS = [
    ("missing data folder", BASE, {"data": "no_folder"}, ["no_folder"]),
    ("missing split", BASE, {"data": "no_train"}, ["no_train/train"]),
    ("empty corpus", BASE, {"data": "empty"}, ["empty/train"]),
    ("single document", BASE, {"data": "single"}, ["single/train", "--no-nsp"]),
    ("dict.txt of another vocabulary", BASE, {"data": "other_words"}, ["dict.txt", "--srcdict"]),
    ("another number of layers", BASE, {"encoder_layers": 3}, ["--encoder-layers 2"]),
    ("another width", BASE, {"encoder_embed_dim": 16}, ["--encoder-embed-dim 32"]),
    ("other heads", BASE, {"encoder_attention_heads": 4}, ["--encoder-attention-heads 2"]),
    ("other positions", BASE, {"max_positions": 100}, ["--max-positions 64"]),
    ("sequences longer than the model", BASE, {"tokens_per_sample": 100}, ["--tokens-per-sample", "64"]),
    ("missing start", BASE, {"finetune_from_model": "missing"}, ["gone", "--finetune-from-model"]),
    ("start that is no checkpoint", BASE, {"finetune_from_model": "not_a_checkpoint"}, ["text.pt", "not a checkpoint"]),
    ("missing teacher", TACL, {"teacher_checkpoint": "missing"}, ["gone", "--teacher-checkpoint"]),
    ("no teacher at all", TACL, {"finetune_from_model": None}, ["--teacher-checkpoint", "--finetune-from-model"]),
    ("teacher that is no checkpoint", TACL, {"teacher_checkpoint": "not_a_checkpoint"}, ["text.pt"]),
    ("foreign teacher", TACL, {"teacher_checkpoint": "other_teacher"}, ["checkpoint_last.pt", "dict.txt"]),
    ("teacher of another width", TACL, {"teacher_checkpoint": "narrow_teacher"}, ["checkpoint_last.pt", "16", "32"]),
    ("task without a teacher", TACL, {"task": "bert_pretraining"}, ["--task teacher_student"]),
    ("temperature 0", TACL, {"temperature": 0}, ["--temperature"]),
    ("negative temperature", TACL, {"temperature": -1}, ["--temperature"]),
    ("no synonyms", HC, {"synonyms": None}, ["--synonyms"]),
    ("missing synonyms", HC, {"synonyms": "missing"}, ["gone"]),
    ("empty synonyms", HC, {"synonyms": "empty_table"}, ["empty_table.txt"]),
    ("malformed synonyms", HC, {"synonyms": "malformed_table"}, ["malformed_table.txt", "line 2"]),
    ("own synonym", HC, {"synonyms": "own_synonym"}, ["own_synonym.txt", "line 2"]),
    ("foreign synonyms", HC, {"synonyms": "foreign_table"}, ["foreign_table.txt", "--allow-vocabulary-mismatch"]),
    ("unknown synonyms", HC, {"synonyms": "unknown_words"}, ["unknown_words.txt", "house"]),
    ("pairs for a roberta", BASE, {"arch": "roberta_base", "finetune_from_model": None}, ["--no-nsp"]),
    ("no loss", BASE, {"mlm_weight": 0, "no_nsp": True}, ["--mlm-weight"]),
    ("mask options", BASE, {"leave_unmasked_prob": 0.7, "random_token_prob": 0.7}, ["--leave-unmasked-prob"]),
]  # fmt: skip


def assert_one_clear_line(run: Finished, said: list[str]) -> None:
    """The command failed; the last line says why; nothing else reads like a crash; no checkpoint is left."""
    assert run.code != 0
    assert "Traceback" not in run.log, run.log[-1500:]
    for part in said:
        assert part in run.last_line
    assert len(run.last_line) < 600
    assert not list(run.folder.glob("*.pt*"))


@pytest.fixture(scope="module")
def faulty_runs(server, bad, data, synonyms, warm, folder) -> dict[str, Finished]:
    """One run for each fault, two at a time."""
    commands = []
    for number, (_, criterion, options, _) in enumerate(FAULTS):
        options = {key: bad.get(value, value) for key, value in options.items()}
        defaults = {
            "synonyms": synonyms if criterion == HC else None,
            "finetune_from_model": warm,
            "data": data,
        }
        options = {**defaults, **options}
        corpus = options.pop("data")
        commands.append(
            ("fairseq-train", train_arguments(corpus, folder / f"fault{number}", criterion, **options))
        )
    runs = []
    for start in range(0, len(commands), 2):
        runs += server.run_together(commands[start : start + 2])
    return {fault[0]: run for fault, run in zip(FAULTS, runs, strict=True)}


@pytest.mark.parametrize(("name", "said"), [(fault[0], fault[3]) for fault in FAULTS])
def test_bad_input_is_one_clear_line(name, said, faulty_runs):
    assert_one_clear_line(faulty_runs[name], said)


@pytest.mark.parametrize(
    ("criterion", "task", "model", "said"),
    [
        ({"_name": TACL, "temperature": 0}, "teacher_student", {}, ["--temperature"]),
        ({"_name": HC, "synonyms": "malformed_table"}, "bert_pretraining", {}, ["line 2"]),
        ({"_name": BASE}, "bert_pretraining", {"encoder_layers": 3}, ["--encoder-layers 2"]),
    ],
    ids=["temperature", "synonyms", "layers"],
)
def test_bad_input_under_hydra(criterion, task, model, said, server, data, warm, bad, tmp_path):
    criterion = {
        key: str(bad.get(value, value)) if key == "synonyms" else value for key, value in criterion.items()
    }
    model = {"_name": "tn_bert", **MODEL_SIZES, **model}
    write_yaml(
        tmp_path / "c.yaml",
        data,
        tmp_path / "run",
        criterion,
        {"_name": task},
        model,
        finetune_from_model=str(warm),
    )
    run = server.run("fairseq-hydra-train", hydra_arguments(tmp_path, "c", tmp_path / "run"))
    assert_one_clear_line(run, said)


def test_bad_input_in_one_of_two_processes_ends_both(server, arguments, bad):
    init = f"tcp://127.0.0.1:{free_port()}"
    options = {
        "synonyms": bad["malformed_table"],
        "distributed_world_size": 2,
        "distributed_no_spawn": True,
        "distributed_init_method": init,
        "distributed_backend": "gloo",
        "ddp_backend": "legacy_ddp",
    }
    ranks = server.run_together(
        [("fairseq-train", arguments(HC, **options, distributed_rank=rank)) for rank in (0, 1)]
    )
    for run in ranks:
        assert run.code != 0
        assert "line 2" in run.log


def test_an_allowed_mismatch_trains(server, arguments, bad):
    run = server.run(
        "fairseq-train", arguments(HC, synonyms=bad["foreign_table"], allow_vocabulary_mismatch=True)
    )
    succeed(run)
    assert "another vocabulary" in run.log


def test_no_file_is_left_in_the_working_folder(server, arguments, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    succeed(server.run("fairseq-train", arguments("bert_pretraining"), cwd=work))
    assert os.listdir(work) == []
