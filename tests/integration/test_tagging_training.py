"""Tagging through the commands: from text to a fine-tuned model and its scores."""

import json

import pytest
import torch
from small_tagging import Sentence, sentences, write_conll, write_words
from training import MODEL_SIZES, PACKAGE, train_arguments

from fairseq_tn.cli import main
from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.results import read_result
from fairseq_tn.evaluation.tagging import predict_tags

BEST = {"best_checkpoint_metric": "f1", "maximize_best_checkpoint_metric": True}
LEARN = {"tokens_per_sample": None, "batch_size": 20, "lr": 1e-2, "task": "token_tagging"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tagging")


def prepare(files, output, *more):
    arguments = [part for split, file in files.items() for part in (f"--{split}", str(file))]
    assert (
        main(["prepare", "tagging", *arguments, "--tokenizer", "words", "--output", str(output), *more]) == 0
    )
    return output


@pytest.fixture(scope="module")
def files(folder):
    numbers = {"train": 80, "valid": 25, "test": 25}
    return {
        split: write_conll(folder / f"{split}.conll", sentences(number, seed, 9))
        for seed, (split, number) in enumerate(numbers.items())
    }


@pytest.fixture(scope="module")
def data(folder, files):
    return prepare(files, folder / "data")


@pytest.fixture(scope="module")
def cut_data(folder, files):
    """The same text, in shorter sequences."""
    return prepare(files, folder / "cut", "--max-tokens", "9")


@pytest.fixture(scope="module")
def words_data(folder):
    files = {
        split: write_words(folder / f"{split}.words", 40, seed)
        for seed, split in enumerate(("train", "test"))
    }
    return prepare(files, folder / "words")


def arguments(data, save_dir, **options):
    return train_arguments(data, save_dir, "token_tagging", **{**LEARN, **options})


@pytest.fixture(scope="module")
def trained(server, folder, data, words_data):
    """Runs side by side: both losses, both entries, in two parts, word segmentation, and other models."""
    config = {
        "common": {"user_dir": str(PACKAGE), "cpu": True, "seed": 3, "log_format": "json", "log_interval": 1},
        "checkpoint": {"no_epoch_checkpoints": True, **BEST},
        "dataset": {"batch_size": 20, "num_workers": 0},
        "optimization": {"max_update": 5, "lr": [0.01], "clip_norm": 1.0},
        "task": {"_name": "token_tagging", "data": str(data)},
        "criterion": {"_name": "token_tagging", "tagging_loss": "crf"},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "model": {"_name": "tn_bert", **MODEL_SIZES},
    }
    (folder / "tagging.yaml").write_text(json.dumps(config))
    hydra = ["--config-dir", folder, "--config-name", "tagging", f"hydra.run.dir={folder / 'hydra'}"]
    crf = {"tagging_loss": "crf", "max_update": 8, **BEST}
    jobs = {
        "crf": ("fairseq-train", arguments(data, folder / "crf", **crf)),
        "first part": ("fairseq-hydra-train", [*hydra, f"checkpoint.save_dir={folder / 'resumed'}"]),
        "words": ("fairseq-train", arguments(words_data, folder / "w", **crf)),
    }
    runs = dict(zip(jobs, server.run_together([*jobs.values()]), strict=True))
    runs["resumed"] = server.run("fairseq-train", arguments(data, folder / "resumed", **crf))
    for name, run in runs.items():
        assert run.code == 0, (name, run.log[-2500:])
    return runs


def test_a_run_of_either_entry_goes_on_in_the_other(trained):
    """The first part is of fairseq-hydra-train, and the whole of fairseq-train is the same."""
    assert trained["resumed"].lines("train_inner")[0]["num_updates"] == 6
    for part in ("model", "criterion"):
        whole, resumed = (trained[name].checkpoint()[part] for name in ("crf", "resumed"))
        assert whole.keys() == resumed.keys()
        for name, value in whole.items():
            assert torch.equal(value, resumed[name]), name


@pytest.mark.parametrize("name", ["crf", "words"])
def test_what_is_logged(name, trained):
    names = {"valid_loss", "valid_accuracy", "valid_precision", "valid_recall", "valid_f1"}
    assert names <= trained[name].lines("valid")[-1].keys()
    inner = trained[name].lines("train_inner")[-1]
    assert "accuracy" not in inner  # Viterbi runs when validating only
    assert "f1" not in inner


def test_the_best_checkpoint_is_that_of_the_best_f1(trained):
    for name in ("crf", "words"):
        values = [line["valid_f1"] for line in trained[name].lines("valid")]
        assert trained[name].checkpoint("checkpoint_best.pt")["extra_state"]["best"] == max(values)
    assert values[-1] > 30


def evaluate(*more):
    return main(["evaluate", "tagging", "--cpu", *map(str, more)])


@pytest.mark.parametrize("name", ["crf", "words"])
def test_the_command_gives_what_validation_gave(name, trained, data, words_data, tmp_path, capsys):
    folder = words_data if name == "words" else data
    checkpoint = trained[name].folder / "checkpoint_best.pt"
    out = tmp_path / "found"
    options = ("--task", "Small NER", "--name", "mine", "--json", tmp_path / "result.json", "--batch-size", 7)
    assert (
        evaluate(
            "--checkpoint", checkpoint, "--data", folder, "--split", "valid", "--predictions", out, *options
        )
        == 0
    )
    result = read_result(tmp_path / "result.json")
    best = trained[name].checkpoint("checkpoint_best.pt")["extra_state"]["best"]
    assert result.value == pytest.approx(best, abs=0.006)
    assert (result.task, result.method, result.seed, result.split) == ("Small NER", "mine", 3, "valid")
    # the written predictions score the same without the model
    capsys.readouterr()
    assert (
        evaluate("--gold", folder / "valid.txt", "--predictions-in", out, "--json", tmp_path / "again.json")
        == 0
    )
    assert read_result(tmp_path / "again.json").metrics["f1"] == result.metrics["f1"]
    assert f"{result.value:.2f}" in capsys.readouterr().out


def test_parts_of_cut_sentences_are_joined(trained, files, data, cut_data, tmp_path):
    """Cut or not, predictions are the text that was given with other tags, and most of them the same."""
    checkpoint = trained["crf"].folder / "checkpoint_best.pt"
    found = []
    for folder in (data, cut_data):
        out = tmp_path / folder.name
        assert evaluate("--checkpoint", checkpoint, "--data", folder, "--predictions", out) == 0
        found.append(out.read_text().split("\n"))
    lengths = [
        json.loads((folder / "tagging.json").read_text())["longest"]["test"] for folder in (data, cut_data)
    ]
    assert lengths[0] > lengths[1] == 9
    given = files["test"].read_text().split("\n")
    tokens = [[line.split(" ")[0] for line in lines] for lines in (given, *found)]
    assert tokens[0] == tokens[1] == tokens[2]
    assert sum(a == b for a, b in zip(*found, strict=True)) > 0.8 * len(given)


def test_segmentation_reports_unknown_words(trained, words_data, folder, capsys, tmp_path):
    checkpoint = trained["words"].folder / "checkpoint_best.pt"
    out = tmp_path / "found"
    assert evaluate("--checkpoint", checkpoint, "--data", words_data, "--predictions", out) == 0
    model = capsys.readouterr().out
    assert "OOV recall" in model
    gold = ("--gold", folder / "test.words", "--train", folder / "train.words")
    assert evaluate(*gold, "--predictions-in", out) == 0
    without = capsys.readouterr().out
    assert [line for line in model.split("\n") if "written" not in line] == without.split("\n")
    assert out.read_text().replace(" ", "") == (folder / "test.words").read_text().replace(" ", "")


# --- what is refused ----------------------------------------------------------------------------------------------


def test_a_model_with_too_few_positions(server, data, tmp_path):
    run = server.run("fairseq-train", arguments(data, tmp_path, max_positions=8))
    assert run.code == 1
    assert "--max-tokens 8" in run.last_line


def test_a_checkpoint_of_other_labels(trained, tmp_path):
    text: list[Sentence] = [
        [(letter, "B-X" if letter in "UVW" else "O") for letter, _ in sentences(1, 9, 60)[0]]
    ]
    train = write_conll(tmp_path / "train", [[token] for token in text[0]] * 3)
    other = prepare({"train": train, "valid": train}, tmp_path / "other")
    (tmp_path / "other" / "dict.txt").write_text(
        (trained["crf"].folder.parent / "data" / "dict.txt").read_text()
    )
    start = trained["crf"].folder / "checkpoint_best.pt"
    with pytest.raises(UserError, match="other labels"):
        predict_tags(start, other, "valid", device="cpu")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--checkpoint", "{dict}", "--data", "{data}"), "is not a checkpoint"),
        (("--checkpoint", "{crf}", "--data", "{words}"), "is not the vocabulary of the checkpoint"),
        (("--checkpoint", "{crf}", "--data", "{data}", "--split", "dev"), "no split 'dev'"),
        (("--checkpoint", "{crf}", "--gold", "{text}"), "--checkpoint needs --data"),
        (("--predictions-in", "{text}", "--data", "{data}"), "the text is not that of"),
        (("--predictions-in", "{text}", "--data", "{data}", "--scheme", "bio"), "--scheme is for --gold"),
        (("--predictions-in", "{text}", "--gold", "{text}", "--predictions", "x"), "leave it out"),
        (("--predictions-in", "missing", "--gold", "{text}"), "cannot read missing"),
        (("--checkpoint", "{crf}", "--data", "{folder}"), "tagging.json is missing"),
    ],
)
def test_evaluation_refuses(more, said, trained, data, words_data, folder, files, capsys):
    places = {
        "dict": data / "dict.txt",
        "data": data,
        "words": words_data,
        "folder": folder,
        "text": files["valid"],
        "crf": trained["crf"].folder / "checkpoint_best.pt",
    }
    assert evaluate(*(part.format(**places) for part in more)) == 1
    error = capsys.readouterr().err.strip().split("\n")[-1]
    assert error.startswith("fairseq-tn evaluate: error: ")
    assert said in error


# --- prepare ------------------------------------------------------------------------------------------------------


def test_prepare_says_what_it_did(folder, tmp_path, capsys):
    (tmp_path / "train").write_text("a0 B-X\nb1 I-X\n\nc0 O\na1 I-X\n\n" * 5)
    (tmp_path / "test").write_text("a0 B-Y\n")
    prepare({"train": tmp_path / "train", "test": tmp_path / "test"}, tmp_path / "data")
    said = capsys.readouterr().out
    assert "scheme iob2, 3 tags: O B-X I-X" in said
    assert "its place in a word" in said
    assert "no --valid: 1 of the training sentences are split off for it (--valid-share 0.1 --seed 1)" in said
    assert (
        f"tags do not follow the scheme and are read as conlleval does; the first: {tmp_path / 'train'}, line"
        in said
    )
    assert "tags that train lacks, which no model can predict; they count as missed: B-Y (1)" in said


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ("a O\nb\n", ("--format", "conll"), "line 2: only one column"),
        ("a O\nb c O\n", (), "--format"),
        ("", (), "is empty"),
        ("a  b\n", ("--scheme", "bio", "--format", "segmentation"), "--scheme is of CoNLL's tags"),
        (
            "a B-X\nb O\nc I-X\n",
            ("--invalid", "error", "--scheme", "bio"),
            "line 3: the tag 'I-X' does not follow",
        ),
    ],
)
def test_prepare_refuses(content, more, said, tmp_path, capsys):
    train = tmp_path / "train"
    train.write_text(content)
    arguments = (
        "--train",
        train,
        "--valid",
        train,
        "--tokenizer",
        "words",
        "--output",
        tmp_path / "data",
        *more,
    )
    assert main(["prepare", "tagging", *map(str, arguments)]) == 1
    error = capsys.readouterr().err.strip().split("\n")[-1]
    assert error.startswith("fairseq-tn prepare: error: ")
    assert said in error
    assert not (tmp_path / "data").exists()
