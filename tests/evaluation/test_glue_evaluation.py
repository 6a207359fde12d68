"""Fine-tuning on GLUE through fairseq's own task, and the evaluation of what came out, by the commands."""

import json

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from small_glue import SENTENCES, write_task
from small_tokenizers import train_wordpiece
from training import MODEL_SIZES, flags

import fairseq_tn
from fairseq_tn.cli import main
from fairseq_tn.data.glue import TASKS
from fairseq_tn.data.sentence_prediction import Prepared
from fairseq_tn.evaluation.glue import Predictions, metrics_of, write_submission
from fairseq_tn.evaluation.results import read_result

MODELS = {
    "tn_bert": {"arch": "tn_bert", **MODEL_SIZES},
    "roberta": {"arch": "roberta_base", **MODEL_SIZES, "separator_token": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("glue")


@pytest.fixture(scope="module")
def prepared(folder):
    """Prepare a task once; returns its folder."""
    vocabulary = train_wordpiece(SENTENCES, folder, 80)

    def prepare(name, tokenizer=vocabulary):
        output = folder / f"{name}-{tokenizer.parent.name}"
        if not output.exists():
            data = write_task(folder / "official" / name, name)
            arguments = ["--data", data, "--tokenizer", tokenizer, "--output", output, "--max-length", "32"]
            assert main(["prepare", "glue", "--task", name, *map(str, arguments)]) == 0
        return output

    return prepare


@pytest.fixture(scope="module")
def trained(server, folder, prepared):
    """Checkpoints of two updates: of both models on RTE, and of tn_bert on STS-B.

    That of MNLI is tn_bert's of RTE with a third class, and that of CoLA is it itself: what they predict is no matter.
    """
    wanted = [*((model, "RTE") for model in MODELS), ("tn_bert", "STS-B")]
    commands = []
    for model, name in wanted:
        options = {
            "user_dir": fairseq_tn.__path__[0],
            "task": "sentence_prediction",
            "criterion": "sentence_prediction",
            "num_classes": max(1, len(TASKS[name].labels)),
            "regression_target": name == "STS-B",
            "init_token": 0,
            "save_dir": folder / "runs" / f"{model}-{name}",
            "optimizer": "adam",
            "lr": 0.05,
            "batch_size": 8,
            "required_batch_size_multiple": 1,
            "max_update": 2,
            "seed": 7,
            "num_workers": 0,
            "cpu": True,
            "no_epoch_checkpoints": True,
            "no_save_optimizer_state": True,
            "log_format": "json",
            **{size: value for size, value in MODELS[model].items() if size != "max_positions"},
        }
        commands.append(("fairseq-train", [prepared(name), *flags(options)]))
    runs = server.run_together(commands)
    assert all(run.code == 0 for run in runs), "\n".join(run.log[-1500:] for run in runs)
    done = dict(zip(wanted, runs, strict=True))
    state = done["tn_bert", "RTE"].checkpoint()
    state["cfg"]["task"]["num_classes"] = 3
    for name, value in state["model"].items():
        if "classification_heads" in name:
            state["model"][name] = torch.cat([value, value[:1] + 0.01])
    torch.save(state, folder / "mnli.pt")
    return done


def evaluate(name, data, checkpoint, *options):
    arguments = ["--task", name, "--data", data, "--checkpoint", checkpoint, "--cpu", *options]
    return main(["evaluate", "glue", *map(str, arguments)])


@pytest.mark.parametrize("model", MODELS)
def test_accuracy_is_fairseqs_and_predictions_those_of_one_example_at_a_time(
    model, trained, prepared, tmp_path, capsys
):
    run = trained[model, "RTE"]
    checkpoint, result = run.folder / "checkpoint_best.pt", tmp_path / "r.json"
    predictions = tmp_path / "RTE.tsv"
    options = ("--json", result, "--predictions", predictions, "--batch-size", 3)
    assert evaluate("RTE", prepared("RTE"), checkpoint, *options) == 0
    found = read_result(result)
    assert (found.kind, found.task, found.method, found.seed) == ("glue", "RTE", f"{model}-RTE", 7)
    assert found.num_examples == 7
    assert round(found.value, 1) == run.lines("valid")[-1]["valid_accuracy"]
    assert f"accuracy {found.value:.2f}" in capsys.readouterr().out
    (network,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(prepared("RTE")), "no_shuffle": True}
    )
    network.eval()
    data = task.load_dataset("valid")
    words, right = [], []
    for number in range(len(data)):
        batch = data.collater([data[number]])
        head = task.cfg.classification_head_name
        logits = network(**batch["net_input"], features_only=True, classification_head_name=head)[0]
        words.append(("entailment", "not_entailment")[int(logits.argmax())])
        right.append(int(logits.argmax() == batch["target"]))
    assert list(found.columns["score"]) == right
    lines = predictions.read_text().splitlines()
    assert lines == ["index\tprediction", *(f"{number}\t{word}" for number, word in enumerate(words))]


def test_matthews_of_cola(trained, prepared, tmp_path):
    run = trained["tn_bert", "RTE"]
    assert (
        evaluate("CoLA", prepared("CoLA"), run.folder / "checkpoint_last.pt", "--json", tmp_path / "r.json")
        == 0
    )
    result = read_result(tmp_path / "r.json")
    assert result.metrics["accuracy"] == pytest.approx(
        100 * np.mean(np.equal(result.columns["prediction"], result.columns["gold"]))
    )
    assert list(result.columns["gold"]) == [1, 0, 1, 0, 1, 0, 1]


def test_scores_of_stsb_are_from_0_to_5(trained, prepared, tmp_path):
    run = trained["tn_bert", "STS-B"]
    checkpoint = run.folder / "checkpoint_last.pt"
    data = prepared("STS-B")
    assert (
        evaluate("STS-B", data, checkpoint, "--json", tmp_path / "r.json", "--name", "x", "--seed", "9") == 0
    )
    result = read_result(tmp_path / "r.json")
    assert (result.method, result.seed, result.aggregate) == ("x", 9, "spearman")
    np.testing.assert_allclose(result.columns["gold"], [2.4, 5, 3.8, 0, 2.4, 5, 3.8])
    loss = np.mean((np.array(result.columns["prediction"]) - result.columns["gold"]) ** 2) / 25
    assert run.lines("valid")[-1]["valid_loss"] == pytest.approx(loss / np.log(2), abs=1e-3)
    assert evaluate("STS-B", data, checkpoint, "--split", "test", "--predictions", tmp_path / "out") == 0
    lines = (tmp_path / "out" / "STS-B.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[0] for line in lines] == [str(100 + n) for n in range(5)]
    assert all(0 <= float(line.split("\t")[1]) <= 5 for line in lines)


def test_the_server_gets_scores_as_they_are_cut_to_their_range(prepared, tmp_path):
    data = Prepared.load(prepared("STS-B"))
    scores = np.array([-0.2, 0, 2.3456, 4.9999, 5.4])
    write_submission(tmp_path / "STS-B.tsv", data, Predictions("test", scores, None))
    lines = [line.split("\t") for line in (tmp_path / "STS-B.tsv").read_text().splitlines()]
    assert lines[0] == ["index", "prediction"]
    assert [line[1] for line in lines[1:]] == ["0.000", "0.000", "2.346", "5.000", "5.000"]
    assert [line[0] for line in lines[1:]] == [str(100 + n) for n in range(5)]


def test_mnli_has_two_of_everything_and_the_diagnostic_set(trained, prepared, folder, tmp_path):
    checkpoint, data = folder / "mnli.pt", prepared("MNLI")
    assert evaluate("MNLI", data, checkpoint, "--json", tmp_path / "r.json") == 0
    assert set(read_result(tmp_path / "r.json").metrics) == {"accuracy", "accuracy_mismatched"}
    assert evaluate("MNLI", data, checkpoint, "--split", "test", "--predictions", tmp_path / "out") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "AX.tsv",
        "MNLI-m.tsv",
        "MNLI-mm.tsv",
    ]
    first, *others = ((tmp_path / "out" / f"{name}.tsv").read_text() for name in ("MNLI-m", "MNLI-mm", "AX"))
    assert {line.split("\t")[1] for line in first.splitlines()[1:]} <= set(TASKS["MNLI"].labels)
    assert [text.count("\n") for text in (first, *others)] == [6, 6, 6]


# --- metrics ------------------------------------------------------------------------------------------------------


def test_metrics_of_pairs_by_hand():
    predictions = Predictions("valid", np.array([1, 1, 0, 0, 1]), np.array([1, 0, 0, 1, 1]))
    assert metrics_of(TASKS["MRPC"], predictions) == pytest.approx({"accuracy": 60, "f1": 200 / 3})
    assert metrics_of(TASKS["QNLI"], predictions) == pytest.approx({"accuracy": 60})
    assert metrics_of(TASKS["CoLA"], predictions) == pytest.approx({"matthews": 100 / 6, "accuracy": 60})
    assert list(metrics_of(TASKS["STS-B"], predictions)) == ["spearman", "pearson"]


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.fixture
def refused(capsys):
    """Evaluate; return the one line of the error."""

    def run(*arguments):
        capsys.readouterr()
        assert evaluate(*arguments) == 1
        error = capsys.readouterr().err.strip()
        assert error.count("\n") == 0
        return error

    return run


def test_unlabelled_sets_have_no_metrics(refused, trained, prepared, tmp_path):
    checkpoint, data = trained["tn_bert", "RTE"].folder / "checkpoint_last.pt", prepared("RTE")
    assert "has no labels" in refused("RTE", data, checkpoint, "--split", "test")
    json_too = ("--json", tmp_path / "r.json", "--predictions", tmp_path / "out")
    assert "leave --json out" in refused("RTE", data, checkpoint, "--split", "test", *json_too)
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_that_do_not_fit(refused, trained, prepared, folder, tmp_path):
    rte, stsb = (trained["tn_bert", name].folder / "checkpoint_last.pt" for name in ("RTE", "STS-B"))
    assert "predicts 3 classes, but RTE has 2 classes" in refused("RTE", prepared("RTE"), folder / "mnli.pt")
    assert "predicts 2 classes, but STS-B has a score" in refused("STS-B", prepared("STS-B"), rte)
    assert "predicts a score, but CoLA has 2 classes" in refused("CoLA", prepared("CoLA"), stsb)
    assert "holds CoLA, not RTE" in refused("RTE", prepared("CoLA"), rte)
    assert "missing" in refused("RTE", prepared("RTE"), tmp_path / "nothing.pt")
    assert "glue.json is missing" in refused("RTE", tmp_path, rte)
    state = torch.load(rte, weights_only=False)
    state["cfg"]["task"]["_name"] = "masked_lm"
    torch.save(state, tmp_path / "other.pt")
    assert "was trained with --task masked_lm" in refused("RTE", prepared("RTE"), tmp_path / "other.pt")


def test_another_vocabulary(refused, trained, prepared, folder, tmp_path):
    """Of another size, and of the same, which tn_bert notices."""
    bert, roberta = (trained[model, "RTE"].folder / "checkpoint_last.pt" for model in ("tn_bert", "roberta"))
    *tokens, last = (folder / "vocab.txt").read_text().splitlines()
    for name, other in (("less", tokens), ("order", [*tokens[:5], last, *tokens[5:]])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text("".join(f"{token}\n" for token in other))
    less = prepared("RTE", tmp_path / "less" / "vocab.txt")
    for checkpoint in (bert, roberta):
        assert "symbols, the data" in refused("RTE", less, checkpoint)
    assert "not the vocabulary" in refused("RTE", prepared("RTE", tmp_path / "order" / "vocab.txt"), bert)


def test_too_long_and_missing_splits(refused, trained, prepared, folder):
    checkpoint = trained["tn_bert", "RTE"].folder / "checkpoint_last.pt"
    state = torch.load(checkpoint, weights_only=False)
    assert json.loads((prepared("RTE") / "glue.json").read_text())["max_length"] == 32
    data = write_task(folder / "without", "RTE", test=0)
    arguments = ["--data", data, "--tokenizer", folder / "vocab.txt", "--output", folder / "without-prepared"]
    assert main(["prepare", "glue", "--task", "RTE", *map(str, arguments)]) == 0
    options = ("--split", "test", "--predictions", folder / "out")
    assert "no split test (but train, valid)" in refused(
        "RTE", folder / "without-prepared", checkpoint, *options
    )
    state["cfg"]["task"]["max_positions"] = 9
    state["model"]["encoder.embed_positions.weight"] = state["model"]["encoder.embed_positions.weight"][:9]
    torch.save(state, folder / "short.pt")
    error = refused("RTE", prepared("RTE"), folder / "short.pt")
    assert "reads at most 9" in error
    assert "--max-length 9" in error
