"""``fairseq-tn analyze self-similarity`` from the command line to its files."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from fairseq_tn.analysis.layer_similarity import cosine_matrix, layer_similarity
from fairseq_tn.analysis.models import open_model
from fairseq_tn.cli import main
from fairseq_tn.convert.from_hf import convert_from_hf

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

from small_bert import write_bert
from small_roberta import write_roberta

LINES = ["the capital of France", "a b c d e f g h i j", "", "a", "France .", "the the a b " * 20]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    write_bert(root / "bert", shuffle=3)
    write_roberta(root / "roberta")
    convert_from_hf(root / "bert", root / "converted")
    (root / "text").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return root


def analyze(*arguments):
    return main(["analyze", "self-similarity", "--cpu", *map(str, arguments)])


def test_everything_is_written(world, tmp_path, capsys):
    models = [f"BERT={world}/bert", f"ours={world}/converted/model.pt", f"RoBERTa={world}/roberta"]
    arguments = ["--model", *models, "--text", world / "text", "--seed", 3]
    matrices = ["--matrix", "the capital of France", "a b " * 45, "--matrix-sentences", 1, "--layer", 1]
    assert not analyze(*arguments, *matrices, "--json", tmp_path / "again.json")
    capsys.readouterr()
    assert not analyze(*arguments, *matrices, "--json", tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text(encoding="utf-8")
    assert (tmp_path / "again.json").read_text(encoding="utf-8") == text
    result = json.loads(text)
    assert result["kind"] == "self-similarity"
    assert result["sentences"] == 5
    assert result["settings"]["seed"] == 3
    assert "torch" in result["versions"]
    bert = result["models"]["BERT"]
    assert {key: bert[key] for key in ("sentences", "skipped", "cut", "max_tokens", "updates")} == {
        "sentences": 4,
        "skipped": 1,
        "cut": 1,
        "max_tokens": 32,
        "updates": None,
    }
    model = open_model("BERT", world / "bert", device="cpu")
    expected = layer_similarity(model, [line for line in LINES if line], seed=3)
    for token_set, layers in bert["layers"].items():
        assert len(layers) == 3
        for layer, measures in enumerate(layers):
            for measure, numbers in measures.items():
                estimate = expected.estimate(measure, token_set, layer)
                assert numbers == {"value": estimate.value, "standard_error": estimate.error}
                # a checkpoint and the folder that it came from are one model
                ours = result["models"]["ours"]["layers"][token_set][layer][measure]
                assert ours == pytest.approx(numbers, abs=1e-6)
    difference = result["last_layer_differences"]["RoBERTa"]["with_specials"]["adjusted"]["value"]
    roberta = result["models"]["RoBERTa"]["layers"]["with_specials"][-1]["adjusted"]["value"]
    assert difference == pytest.approx(roberta - bert["layers"]["with_specials"][-1]["adjusted"]["value"])

    first, long, drawn = result["matrices"]
    assert first["sentence"] == "the capital of France"
    assert drawn["sentence"] == "a b c d e f g h i j"
    matrix = first["models"]["BERT"]
    assert (matrix["layer"], matrix["tokens"][:2]) == (1, ["the", "capital"])
    assert matrix["cosines"] == cosine_matrix(model, first["sentence"], 1).cosines.round(6).tolist()
    assert "".join(first["models"]["RoBERTa"]["tokens"]).replace("Ġ", " ") == "the capital of France"
    assert long["models"]["BERT"]["length"] == 30

    out = capsys.readouterr().out
    assert (
        "BERT: 4 sentences with 47 tokens; 1 of fewer than two tokens left out; 1 cut to the model's 32"
        in out
    )
    value = bert["layers"]["without_specials"][2]["adjusted"]
    assert f"{value['value']:.4f} ± {1.96 * value['standard_error']:.4f}" in out
    assert "Last layer, less that of BERT" in out


def test_figures_are_written_and_the_same_again(world, tmp_path, capsys):
    contents = []
    for run in ("one", "two"):
        folder = tmp_path / run
        arguments = ["--model", world / "bert", world / "converted/model.pt", "--text", world / "text"]
        assert not analyze(*arguments, "--matrix", "the capital", "--plot", folder)
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
        assert f"{folder}/matrix-1.svg" in capsys.readouterr().out.splitlines()[-1]
    names = ["self-similarity", "self-similarity-with-specials", "matrix-1"]
    assert set(contents[0]) == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert contents[0] == contents[1]


def test_paragraphs_are_split(world, tmp_path):
    text = tmp_path / "text"
    text.write_text("The capital is the town. France is in d. A b c d e.\n", encoding="utf-8")
    results = []
    for options in ([], ["--split-sentences"], ["--split-sentences", "--sentences", 2]):
        analyze("--model", world / "bert", "--text", text, "--json", tmp_path / "r.json", *options)
        results.append(json.loads((tmp_path / "r.json").read_text())["sentences"])
    assert results == [1, 3, 2]


def test_a_single_sentence_gives_dashes_and_null(world, tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("the capital\n", encoding="utf-8")
    analyze("--model", world / "bert", "--text", text, "--json", tmp_path / "r.json", "--plot", tmp_path)
    layers = json.loads((tmp_path / "r.json").read_text())["models"]["bert"]["layers"]["with_specials"]
    assert layers[0]["adjusted"] == {"value": None, "standard_error": None}
    assert "± –" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", [], "is empty"),
        (b"\n\n", [], "holds no text"),
        (b"a b\n\xff\xfe\n", [], "line 2: not UTF-8"),
        (b"a\nb\n", [], "bert: no sentence has two tokens"),
        (b"a b\n", ["--model", "{world}/none"], "none does not exist"),
        (b"a b\n", ["--model", "bert={world}/roberta"], "name the models differently"),
        (b"a b\n", ["--tokenizer", "{world}/converted/dict.txt"], "token 0 ("),
        (b"a b\n", ["--tokenizer", "{world}"], "is a folder without a tokenizer"),
        (b"a b\n", ["--tokenizer", "x=words"], "no model is called x"),
        (b"a b\n", ["--matrix", "a b"], "give a folder for them with --plot"),
        (b"a b\n", ["--layer", "1"], "--layer is for the matrices"),
        (b"a b\n", ["--matrix-specials"], "--matrix-specials is for the matrices"),
        (b"a b\n", ["--matrix", "a b", "--layer", "9", "--json", "{out}/j"], "bert has no layer 9"),
        (b"a b\n", ["--matrix", "a", "--json", "{out}/j"], "'a' has fewer than two tokens"),
        (b"a b\n", ["--plot", "{world}/text"], "is a file; give the name of a folder"),
        (b"a b\n", ["--json", "{world}"], "is a folder; give the name of a file"),
        (b"a b\n", ["--text", "{world}"], "give a file"),
        (b"a b\n", ["--text", "{world}/nothing"], "nothing does not exist"),
    ],
)
def test_bad_input_is_one_line(world, tmp_path, capsys, content, options, message):
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_bytes(content)
    options = [option.format(world=world, out=out) for option in options]
    status = analyze("--model", world / "bert", "--text", text, *options)
    errors = capsys.readouterr().err.splitlines()
    assert (status, len(errors)) == (1, 1)
    assert errors[0].startswith("fairseq-tn analyze: error: ")
    assert message in errors[0]
    assert not out.exists()


def test_a_pipe_is_refused(world, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert analyze("--model", world / "bert", "--text", tmp_path / "pipe") == 1
    assert "read once for each model" in capsys.readouterr().err


def test_a_later_model_without_tokenizer_stops_before_the_work(world, tmp_path, capsys):
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "dict.txt").write_bytes((world / "converted/dict.txt").read_bytes())
    state = torch.load(world / "converted/model.pt", weights_only=False)
    state["cfg"]["task"]["data"] = "gone"
    torch.save(state, alone / "model.pt")
    assert analyze("--model", world / "bert", alone / "model.pt", "--text", world / "text") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no folder hf/ with a tokenizer beside" in captured.err
