"""Self-similarity of models against plain loops in float64 over the hidden states that transformers computes."""

import math
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from fairseq_tn.analysis import layer_similarity as module
from fairseq_tn.analysis.layer_similarity import (
    STATISTICS,
    TOKEN_SETS,
    choose_sentences,
    cosine_matrix,
    layer_similarity,
)
from fairseq_tn.analysis.models import open_model
from fairseq_tn.errors import UserError

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

from small_bert import write_bert

_WORDS = ["the", "capital", "France", ".", "a", "b", "c", "d", "e", "f", "g", "ab", "abc"]


def sentences(number, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(_WORDS, k=draw.randint(2, 9))) for _ in range(number)]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Our model of a small BERT, transformers' in float64, and its tokenizer."""
    folder = tmp_path_factory.mktemp("bert") / "small"
    reference = write_bert(folder, shuffle=3).double()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return open_model("small", folder, device="cpu"), reference, tokenizer


def cosine(one, two):
    return float(one @ two / (one.norm() * two.norm()))


def states(world, lines):
    """Sentence -> layer -> T x D, one sentence at a time, specials first and last."""
    _, reference, tokenizer = world
    with torch.no_grad():
        return [
            [
                layer[0]
                for layer in reference(**tokenizer(line, return_tensors="pt"), output_hidden_states=True)[-1]
            ]
            for line in lines
        ]


def brute_force(by_sentence, layer, specials):
    """(self-similarity, between sentences, adjusted), pair by pair."""
    vectors = [layers[layer] if specials else layers[layer][1:-1] for layers in by_sentence]
    within = []
    for tokens in vectors:
        pairs = [(i, j) for i in range(len(tokens)) for j in range(len(tokens)) if i != j]
        within.append(sum(cosine(tokens[i], tokens[j]) for i, j in pairs) / len(pairs))
    between = [
        cosine(one, two)
        for k, tokens in enumerate(vectors)
        for others in vectors[k + 1 :]
        for one in tokens
        for two in others
    ]
    mean = sum(within) / len(within)
    return mean, sum(between) / len(between), mean - sum(between) / len(between)


@pytest.mark.parametrize("batch_tokens", [1, 40, 8192])
def test_equals_plain_loops(world, batch_tokens, monkeypatch):
    monkeypatch.setattr(module, "_LINES", 3)
    monkeypatch.setattr("fairseq_tn.analysis.models._CHUNK", 4)
    lines = sentences(7)
    found = layer_similarity(world[0], lines, batch_tokens=batch_tokens)
    by_sentence = states(world, lines)
    assert found.layers == 3
    for layer in range(3):
        for token_set in TOKEN_SETS:
            expected = brute_force(by_sentence, layer, token_set == "with_specials")
            values = [found.estimate(statistic, token_set, layer).value for statistic in STATISTICS]
            assert values == pytest.approx(expected, abs=2e-6)


def test_errors_are_those_of_leaving_out_one_sentence_after_the_other(world):
    lines = sentences(8, seed=1)
    found = layer_similarity(world[0], lines)
    by_sentence = states(world, lines)
    left_out = np.array([brute_force(by_sentence[:k] + by_sentence[k + 1 :], 1, False) for k in range(8)])
    expected = np.sqrt(7 / 8 * np.square(left_out - left_out.mean(axis=0)).sum(axis=0))
    errors = [found.estimate(statistic, "without_specials", 1).error for statistic in STATISTICS]
    assert errors == pytest.approx(expected, rel=1e-3)
    # of a mean it is the standard error that everyone knows
    each = [
        layer_similarity(world[0], [line]).estimate("self_similarity", "without_specials", 1).value
        for line in lines
    ]
    assert errors[0] == pytest.approx(np.std(each, ddof=1) / math.sqrt(8), rel=1e-4)


def test_many_sentences_share_groups_of_equal_size(world):
    lines = sentences(250, seed=2)
    found = layer_similarity(world[0], lines, seed=5)
    again = layer_similarity(world[0], lines, seed=5, batch_tokens=100)
    other = layer_similarity(world[0], lines, seed=6)
    assert found.used.all()
    np.testing.assert_allclose(found.left_out, again.left_out, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.values, other.values, rtol=0, atol=1e-12)
    error, other_error = (one.estimate("adjusted", "without_specials", 2).error for one in (found, other))
    assert error != other_error
    assert error == pytest.approx(other_error, rel=0.4)
    each = [layer_similarity(world[0], [line]).values[0, 0, 2] for line in lines[:60]]
    # 250 sentences in 100 groups: about the error of single sentences
    assert found.estimate("self_similarity", "without_specials", 2).error == pytest.approx(
        np.std(each) / math.sqrt(250), rel=0.5
    )


def test_differences_pair_the_sentences(world, tmp_path):
    write_bert(tmp_path / "other", seed=9, shuffle=3)
    other = open_model("other", tmp_path / "other", device="cpu")
    lines = sentences(9, seed=3)
    one, two = layer_similarity(world[0], lines), layer_similarity(other, lines)
    of_sentences = [
        layer_similarity(world[0], [line]).values[0, 1, -1] - layer_similarity(other, [line]).values[0, 1, -1]
        for line in lines
    ]
    difference = one.difference(two, "self_similarity", "with_specials", -1)
    assert difference.value == pytest.approx(np.mean(of_sentences), abs=1e-6)
    assert difference.error == pytest.approx(np.std(of_sentences, ddof=1) / 3, rel=1e-3)


def test_short_sentences_are_skipped_and_long_ones_cut(world):
    lines = ["a b", "a", "\u200b", "the capital", "a b c " * 30]
    found = layer_similarity(world[0], lines)
    assert (found.measured, found.skipped, found.cut, found.tokens) == (3, 2, 1, 2 + 2 + 30)
    without = layer_similarity(world[0], [lines[0], lines[3], lines[4]])
    np.testing.assert_allclose(found.values, without.values, rtol=0, atol=1e-7)


def test_one_sentence_has_no_other(world):
    found = layer_similarity(world[0], ["a b c"])
    assert np.isfinite(found.values[0]).all()
    assert np.isnan(found.values[1:]).all()
    assert math.isnan(found.estimate("self_similarity", "with_specials", 0).error)


@pytest.mark.parametrize("lines", [[], ["a", "b"]])
def test_text_without_pairs(world, lines):
    with pytest.raises(UserError, match="small: no sentence has two tokens"):
        layer_similarity(world[0], lines)


@pytest.mark.parametrize("specials", [False, True])
def test_matrices_hold_every_cosine(world, specials):
    line = "the capital a b"
    layer_states = states(world, [line])[0][1]
    vectors = layer_states if specials else layer_states[1:-1]
    expected = [[cosine(one, two) for two in vectors] for one in vectors]
    matrix = cosine_matrix(world[0], line, layer=1, specials=specials)
    np.testing.assert_allclose(matrix.cosines, expected, rtol=0, atol=2e-6)
    assert matrix.labels == (["<s>", *line.split(), "</s>"] if specials else line.split())
    token_set = TOKEN_SETS[specials]
    assert matrix.mean == pytest.approx(
        layer_similarity(world[0], [line]).estimate("self_similarity", token_set, 1).value, abs=1e-6
    )


def test_matrices_of_long_sentences_and_other_layers(world):
    line = "a b c d e " * 4
    whole, part = cosine_matrix(world[0], line), cosine_matrix(world[0], line, limit=6)
    assert (part.length, len(part.labels), part.layer) == (20, 6, 2)
    np.testing.assert_array_equal(part.cosines, whole.cosines[:6, :6])
    assert part.mean == whole.mean
    with pytest.raises(UserError, match="small has no layer 3; its last is 2"):
        cosine_matrix(world[0], line, layer=3)
    with pytest.raises(UserError, match="'a' has fewer than two tokens"):
        cosine_matrix(world[0], "a")


def test_sentences_are_drawn_by_seed(world):
    model = world[0]
    lines = [*("a " * length for length in range(1, 12)), *sentences(40, seed=4)]
    drawn = choose_sentences(model, lines, 5, seed=1, shortest=4, longest=6)
    assert len(set(drawn)) == 5
    assert all(4 <= len(model.encode([line])[0]) - 2 <= 6 for line in drawn)
    assert [lines.index(line) for line in drawn] == sorted(lines.index(line) for line in drawn)
    assert drawn == choose_sentences(model, iter(lines), 5, seed=1, shortest=4, longest=6)
    assert drawn != choose_sentences(model, lines, 5, seed=2, shortest=4, longest=6)
    assert choose_sentences(model, ["a b c d", "a b c d", "a"], 5, shortest=4) == ["a b c d"]
    assert choose_sentences(model, lines, 0) == []
