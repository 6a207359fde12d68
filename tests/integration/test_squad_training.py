"""Fine-tuning on SQuAD through fairseq's own commands, and the evaluation of what comes out."""

import json
import os

import pytest
import torch
from corpus import write_dict, write_split
from small_squad import MARKS, WORDS, make_squad, write_squad, write_words_dict
from training import MODEL_SIZES, PACKAGE, train_arguments

from fairseq_tn.cli import main
from fairseq_tn.evaluation.results import read_result
from fairseq_tn.evaluation.squad import answer_questions

TOKENIZER = ("--tokenizer", "words")
WINDOWS = ("--max-length", "32", "--stride", "8", "--max-query-length", "6")
OPTIONS = {"task": "squad", "tokens_per_sample": None, "batch_size": 16, "lr": 2e-3}


def prepare(folder, train, valid, *more):
    arguments = ["--train", train, "--valid", valid, "--output", folder, *TOKENIZER, *WINDOWS]
    assert (
        main(["prepare", "squad", *map(str, arguments), "--dict", str(folder.parent / "dict.txt"), *more])
        == 0
    )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("squad")


@pytest.fixture(scope="module")
def files(folder):
    write_words_dict(folder)
    return {
        "train": write_squad(folder / "train.json", make_squad(30, seed=0)),
        "valid": write_squad(folder / "valid.json", make_squad(8, seed=1)),
        "train2": write_squad(folder / "train2.json", make_squad(30, seed=0, version_2=True)),
        "valid2": write_squad(folder / "valid2.json", make_squad(8, seed=1, version_2=True)),
    }


@pytest.fixture(scope="module")
def data(folder, files):
    return prepare(folder / "data", files["train"], files["valid"])


@pytest.fixture(scope="module")
def data2(folder, files):
    return prepare(folder / "data2", files["train2"], files["valid2"], "--version-2")


@pytest.fixture(scope="module")
def pretrained(server, folder):
    """One update of pre-training with the same words."""
    corpus = folder / "corpus"
    dictionary = write_dict(corpus, [*WORDS, *MARKS])
    for split in ("train", "valid"):
        write_split(corpus, split, [[WORDS[:6], WORDS[6:14]], [WORDS[14:20], WORDS[20:]]] * 3, dictionary)
    run = server.run(
        "fairseq-train", train_arguments(corpus, folder / "pre", "bert_pretraining", max_update=1)
    )
    assert run.code == 0, run.log[-2500:]
    return run.folder / "checkpoint_last.pt"


def arguments(data, save_dir, **options):
    return train_arguments(data, save_dir, "span_extraction", **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def trained(server, folder, data2, pretrained):
    """The same run by both commands, in two parts, and by two processes; and one by fairseq's roberta."""
    options = {"finetune_from_model": pretrained, "eval_f1": True, "max_update": 6}
    rank = {
        "distributed_world_size": 2,
        "distributed_no_spawn": True,
        "distributed_init_method": f"file://{folder / 'init'}",
        "distributed_backend": "gloo",
        "ddp_backend": "legacy_ddp",
    }
    yaml = {
        "common": {"user_dir": str(PACKAGE), "seed": 3, "cpu": True, "log_format": "json", "log_interval": 1},
        "checkpoint": {"no_epoch_checkpoints": True, "finetune_from_model": str(pretrained)},
        "dataset": {"batch_size": 16, "num_workers": 0},
        "optimization": {"lr": [2e-3], "clip_norm": 1.0, "max_update": 6},
        "task": {"_name": "squad", "data": str(data2), "eval_f1": True},
        "criterion": {"_name": "span_extraction"},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "model": {"_name": "tn_bert", **MODEL_SIZES},
    }
    (folder / "squad.yaml").write_text("# @package _group_\n" + json.dumps(yaml))
    hydra = ["--config-dir", folder, "--config-name", "squad", f"hydra.run.dir={folder / 'hydra'}"]
    roberta = {
        **dict.fromkeys(["encoder_layers", "layer_norm_eps"]),
        "arch": "roberta_base",
        "encoder_layers": 2,
    }
    commands = {
        "train": ("fairseq-train", arguments(data2, folder / "train", **options)),
        "hydra": ("fairseq-hydra-train", [*hydra, f"checkpoint.save_dir={folder / 'h'}"]),
        "first": ("fairseq-train", arguments(data2, folder / "parts", **{**options, "max_update": 3})),
        "roberta": ("fairseq-train", arguments(data2, folder / "roberta", **roberta, max_update=2)),
        "rank 0": (
            "fairseq-train",
            arguments(data2, folder / "ranks", **options, **rank, distributed_rank=0),
        ),
        "rank 1": (
            "fairseq-train",
            arguments(data2, folder / "ranks", **options, **rank, distributed_rank=1),
        ),
    }
    runs = dict(zip(commands, server.run_together(list(commands.values())), strict=True))
    runs["resumed"] = server.run("fairseq-train", arguments(data2, folder / "parts", **options))
    for name, run in runs.items():
        assert run.code == 0, (name, run.log[-2500:])
    return runs


def assert_same(one, other, tolerance=0.0):
    for part in ("model", "criterion"):
        first, second = one.checkpoint()[part], other.checkpoint()[part]
        assert first.keys() == second.keys()
        for name, value in first.items():
            assert torch.allclose(value.float(), second[name].float(), rtol=0, atol=tolerance), name


@pytest.mark.smoke
def test_both_commands_train_alike(trained):
    assert_same(trained["train"], trained["hydra"])
    assert len(trained["train"].lines("train_inner")) == 6
    valid = trained["train"].lines("valid")[-1]
    assert {
        "valid_loss",
        "valid_start_acc",
        "valid_end_acc",
        "valid_span_acc",
        "valid_em",
        "valid_f1",
    } <= valid.keys()


def test_a_resumed_run_is_the_same(trained):
    assert "Loaded checkpoint" in trained["resumed"].log
    assert_same(trained["train"], trained["resumed"])


def test_two_processes_have_the_f1_of_both(trained, data2):
    assert "training on 2 devices" in trained["rank 0"].log
    valid = trained["rank 0"].lines("valid")[-1]
    result = answer_questions(trained["rank 0"].folder / "checkpoint_last.pt", data2, device="cpu")
    assert valid["valid_em"] == pytest.approx(result.scores.means["best_exact"], abs=0.006)
    assert valid["valid_f1"] == pytest.approx(result.scores.means["best_f1"], abs=0.006)


def test_fine_tuning_moves_weights_and_head_but_no_other_head(trained, pretrained):
    before = torch.load(pretrained, weights_only=False)["model"]
    after = trained["train"].checkpoint()
    same = {name for name, value in before.items() if torch.equal(value, after["model"][name])}
    assert {name.split(".")[0] for name in same} >= {"lm_head", "pooler", "nsp_head"}
    assert not any(name.startswith("encoder.layers") and name.endswith("fc1.weight") for name in same)
    assert after["criterion"]["head.out_proj.weight"].shape == (2, MODEL_SIZES["encoder_embed_dim"])
    assert after["criterion"]["head.out_proj.bias"].any()


def test_f1_in_training_is_that_of_evaluate(trained, data2, tmp_path, capsys):
    valid = trained["train"].lines("valid")[-1]
    checkpoint = trained["train"].folder / "checkpoint_last.pt"
    outputs = {name: tmp_path / f"{name}.json" for name in ("predictions", "nbest", "null-odds", "json")}
    given = [word for name, path in outputs.items() for word in (f"--{name}", str(path))]
    asked = ["--checkpoint", str(checkpoint), "--data", str(data2), "--cpu", "--n-best", "4", *given]
    assert main(["evaluate", "squad", *asked]) == 0
    assert "best_f1" in capsys.readouterr().out
    predictions, nbest, odds, _ = (json.loads(path.read_text()) for path in outputs.values())
    result = read_result(outputs["json"])
    scores = result.metrics
    assert (result.kind, result.task, result.method, result.seed) == ("squad", "SQuAD 2.0", "train", 3)
    assert (result.split, result.num_examples, result.details["total"]) == ("valid", 16, 16)
    assert scores["best_f1"] == pytest.approx(valid["valid_f1"], abs=0.006)
    assert scores["best_exact"] == pytest.approx(valid["valid_em"], abs=0.006)
    file = json.loads((data2.parent / "valid2.json").read_text())
    contexts = {q["id"]: p["context"] for a in file["data"] for p in a["paragraphs"] for q in p["qas"]}
    assert predictions.keys() == nbest.keys() == odds.keys() == contexts.keys()
    for identity, text in predictions.items():
        assert text in contexts[identity]
        assert (text == "") == (odds[identity] > 0)
        entry = nbest[identity]
        assert 1 < len(entry) <= 5
        assert sum(one["probability"] for one in entry) == pytest.approx(1)
        assert entry == sorted(entry, key=lambda one: -one["probability"])
        assert sum(one["text"] == "" for one in entry) == 1
    # the written answers, scored without a model, as they are
    again = [
        "--file",
        str(data2.parent / "valid2.json"),
        "--version-2",
        "--json",
        str(tmp_path / "again.json"),
    ]
    assert main(["evaluate", "squad", *again, "--predictions-in", str(outputs["predictions"])]) == 0
    rescored = read_result(tmp_path / "again.json")
    assert rescored.metrics == {name: value for name, value in scores.items() if not name.startswith("best")}
    assert (rescored.examples, rescored.columns) == (result.examples, result.columns)


def test_a_file_gives_what_its_data_folder_gives(trained, files, folder, data2, tmp_path):
    checkpoint = str(trained["train"].folder / "checkpoint_last.pt")
    asked = ["evaluate", "squad", "--checkpoint", checkpoint, "--cpu", "--predictions"]
    tokenizer = [*TOKENIZER, "--dict", str(folder / "dict.txt"), *WINDOWS]
    assert main([*asked, str(tmp_path / "a"), "--data", str(data2)]) == 0
    assert main([*asked, str(tmp_path / "b"), "--file", str(files["valid2"]), "--version-2", *tokenizer]) == 0
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()


def test_a_threshold_of_infinity_always_answers(trained, data2):
    result = answer_questions(
        trained["train"].folder / "checkpoint_last.pt", data2, device="cpu", batch_tokens=64
    )
    assert all(answer.text(float("inf")) for answer in result.answers)
    other = answer_questions(trained["train"].folder / "checkpoint_last.pt", data2, device="cpu")
    assert [answer.text(0.0) for answer in result.answers] == [answer.text(0.0) for answer in other.answers]


# --- bad input ----------------------------------------------------------------------------------------------------


def spoiled(checkpoint, path, **parts):
    torch.save({**torch.load(checkpoint, weights_only=False), **parts}, path)
    return path


def test_bad_runs_end_with_one_line(server, folder, data, data2, pretrained, trained, tmp_path):
    good = trained["train"].folder / "checkpoint_last.pt"
    other_head = {"head.out_proj.weight": torch.zeros(9, 32), "head.out_proj.bias": torch.zeros(9)}
    broken = tmp_path / "broken"
    broken.mkdir()
    os.symlink(data / "dict.txt", broken / "dict.txt")
    cases = {
        "another head": (
            {"finetune_from_model": spoiled(good, tmp_path / "o.pt", criterion=other_head)},
            "another task",
        ),
        "no checkpoint": ({"finetune_from_model": tmp_path / "none.pt"}, "--finetune-from-model"),
        "positions": ({"max_positions": 24}, "24 positions"),
        "other data": ({"data": broken}, "squad.json is missing"),
        "no split": ({"valid_subset": "test"}, "has no split test"),
    }
    commands = []
    for number, (options, _) in enumerate(cases.values()):
        options = dict(options)
        where = options.pop("data", data)
        commands.append(
            ("fairseq-train", arguments(where, tmp_path / f"run{number}", max_update=1, **options))
        )
    for (name, (_, said)), run in zip(cases.items(), server.run_together(commands), strict=True):
        assert run.code != 0, name
        assert said in run.last_line, (name, run.log[-1500:])
        assert "Traceback" not in run.log, name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--checkpoint": "none.pt"}, "none.pt is missing"),
        ({"--checkpoint": None}, "give --checkpoint FILE"),
        ({"--checkpoint": "pretrained"}, "has no head for answers"),
        ({"--checkpoint": "other head"}, "has a head of another task"),
        ({"--split": "test"}, "has no split test"),
        ({"--data": "words"}, "does not fit"),
        ({"--null-odds": "x"}, "--null-odds is of SQuAD 2.0"),
        ({"--null-odds-in": "x"}, "--null-odds-in belongs to --predictions-in"),
        ({"--predictions-in": "x"}, "--checkpoint has no use with --predictions-in"),
        ({"--tokenizer": "words"}, "--tokenizer is for --file"),
        ({"--predictions": "."}, "is a folder"),
    ],
)
def test_bad_evaluations_end_with_one_line(
    change, said, trained, pretrained, files, folder, data, tmp_path, capsys
):
    good = trained["train"].folder / "checkpoint_last.pt"
    other_head = {"head.out_proj.weight": torch.zeros(9, 32), "head.out_proj.bias": torch.zeros(9)}
    options = {"--checkpoint": str(good), "--data": str(data), **change}
    if change.get("--checkpoint") == "pretrained":
        options["--checkpoint"] = str(pretrained)
    if change.get("--checkpoint") == "other head":
        options["--checkpoint"] = str(spoiled(good, tmp_path / "o.pt", criterion=other_head))
    if change.get("--data") == "words":
        write_words_dict(tmp_path / "w")
        lines = (tmp_path / "w/dict.txt").read_text().splitlines(keepends=True)
        (tmp_path / "w/dict.txt").write_text("".join(lines[::-1]))
        options["--data"] = str(prepare(tmp_path / "w" / "data", files["train"], files["valid"]))
    words = [word for name, value in options.items() if value is not None for word in (name, value)]
    assert main(["evaluate", "squad", *words, "--cpu"]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1 or change.get("--data") == "words"


@pytest.mark.parametrize(
    ("predictions", "said"),
    [
        ({"x": "y"}, "has no answer to any question"),
        ({"q1-0-0": 3}, "the answer to 'q1-0-0' is not text"),
        ([], "does not hold a JSON object"),
    ],
)
def test_predictions_of_something_else(predictions, said, files, tmp_path, capsys):
    (tmp_path / "p.json").write_text(json.dumps(predictions))
    asked = ["evaluate", "squad", "--file", str(files["valid"]), "--predictions-in", str(tmp_path / "p.json")]
    assert main(asked) == 1
    assert said in capsys.readouterr().err


def test_a_version_2_file_is_refused_without_the_option(files, folder, tmp_path, capsys):
    asked = ["--train", files["train2"], "--valid", files["valid2"], "--output", tmp_path / "d", *TOKENIZER]
    assert main(["prepare", "squad", *map(str, asked), "--dict", str(folder / "dict.txt")]) == 1
    error = capsys.readouterr().err
    assert "give --version-2" in error
    assert str(files["train2"]) in error
    assert not (tmp_path / "d").exists()


def test_missing_predictions_are_told(files, tmp_path, capsys):
    (tmp_path / "p.json").write_text(json.dumps({"q1-0-0": "w1"}))
    asked = ["evaluate", "squad", "--file", str(files["valid"]), "--predictions-in", str(tmp_path / "p.json")]
    assert main(asked) == 0
    assert "15 questions, such as 'q1-0-1', have no prediction" in capsys.readouterr().err
    assert main([*asked, "--no-answer-threshold", "nan"]) == 1
    assert capsys.readouterr().err.endswith("--no-answer-threshold is not a number; give one, such as 0\n")
