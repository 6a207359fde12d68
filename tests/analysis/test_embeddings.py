"""The geometry of embeddings against plain loops and numpy's decompositions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import make_world

from fairseq_tn.analysis.embeddings import (
    effective_rank,
    embedding_rows,
    geometry,
    neighbours,
    token_of_word,
)
from fairseq_tn.analysis.models import open_model
from fairseq_tn.errors import UserError
from fairseq_tn.models.access import input_embedding

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra


def random_rows(seed, n, d):
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows * torch.linspace(0.2, 3, d) + 0.3


@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(1, 8))
@settings(deadline=None, max_examples=30)
def test_geometry_is_that_of_plain_computations(seed, n, d):
    rows = random_rows(seed, n, d)
    found = geometry(rows)
    matrix = rows.numpy()
    cosines = [
        matrix[i] @ matrix[j] / (np.linalg.norm(matrix[i]) * np.linalg.norm(matrix[j]))
        for i in range(n)
        for j in range(n)
        if i != j
    ]
    assert found.mean_cosine == pytest.approx(sum(cosines) / len(cosines), abs=1e-12)
    spectrum = np.linalg.svd(matrix, compute_uv=False)
    assert found.singular_values[: len(spectrum)] == pytest.approx(spectrum, rel=1e-5, abs=1e-6 * spectrum[0])
    shares = spectrum / spectrum.sum()
    entropy = -sum(share * math.log(share) for share in shares)
    assert found.effective_rank == pytest.approx(math.exp(entropy), rel=1e-5)
    variances = np.linalg.svd(matrix - matrix.mean(0), compute_uv=False) ** 2
    assert found.variance[1] == pytest.approx(100 * variances[0] / variances.sum())
    assert found.variance[10] == pytest.approx(100)
    assert (found.rows, found.width) == (n, d)


def test_effective_rank_of_known_matrices():
    assert geometry(torch.eye(5).double() * 3).effective_rank == pytest.approx(5)
    assert geometry(torch.ones(7, 3).double()).effective_rank == pytest.approx(1, abs=1e-5)
    assert effective_rank(np.array([1.0, 1, 0, 0])) == pytest.approx(2)
    assert geometry(torch.zeros(3, 2).double()).effective_rank == 0
    assert geometry(torch.ones(1, 3).double()).mean_cosine is None


def test_a_collapse_shows():
    rows = random_rows(1, 50, 8)
    before, after = geometry(rows), geometry(rows + 100)
    assert after.mean_cosine > 0.99 > before.mean_cosine
    assert after.effective_rank < 2 < before.effective_rank


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(deadline=None, max_examples=20)
def test_neighbours_are_those_of_a_sorted_list(seed, number):
    rows = random_rows(seed, 12, 3)
    rows[4] = 2 * rows[3]  # equally near to everything
    candidates = torch.rand(12, generator=torch.Generator().manual_seed(seed)) < 0.7
    tokens = [0, 5, 3]
    for token, found in zip(tokens, neighbours(rows, tokens, candidates, number), strict=True):
        cosines = {
            j: (rows[token] @ rows[j] / (rows[token].norm() * rows[j].norm())).item()
            for j in range(12)
            if candidates[j] and j != token
        }
        expected = sorted(cosines, key=lambda j: (-round(cosines[j], 12), j))[:number]
        assert [other for other, _ in found] == expected
        assert [cosine for _, cosine in found] == pytest.approx([cosines[j] for j in expected], abs=1e-11)


def test_a_row_is_never_its_own_neighbour():
    rows = torch.ones(3, 2).double()
    assert neighbours(rows, [1], torch.ones(3, dtype=torch.bool), 5) == [
        [(0, pytest.approx(1)), (2, pytest.approx(1))]
    ]


def test_the_token_of_a_word():
    symbols = ["<s>", "▁dog", "dog", "▁Paris", "▁paris"]
    words = {"▁dog": "dog", "▁Paris": "Paris", "▁paris": "paris"}
    assert token_of_word("dog", symbols, words) == 1
    assert token_of_word("Paris", symbols, words) == 3
    assert token_of_word("PARIS", symbols, words) == 4
    assert token_of_word("▁dog", symbols, words) == 1
    assert token_of_word("cat", symbols, words) is None


def test_ordinary_rows_are_those_of_text(tmp_path):
    world = make_world(tmp_path)
    model = open_model("a", world.checkpoints["a"], device="cpu", with_tokenizer=False)
    embedding, ordinary = embedding_rows(model)
    assert embedding.dtype == torch.float64
    assert embedding.shape == (len(model.dictionary), 24)
    left_out = {symbol for symbol, kept in zip(model.dictionary.symbols, ordinary, strict=True) if not kept}
    assert {"<s>", "<pad>", "</s>", "<unk>", "<mask>"} <= left_out
    assert not left_out & set("abcdefghijklmnopqrstuvwxyz")
    input_embedding(model.model)[7, 3] = math.nan
    with pytest.raises(UserError, match=r"model\.pt holds infinite"):
        embedding_rows(model)
