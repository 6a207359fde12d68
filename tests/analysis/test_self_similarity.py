import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_tn.analysis.self_similarity import self_similarity, self_similarity_of_layers


def brute_force(states: torch.Tensor, valid: torch.Tensor) -> list[float]:
    """The definition, pair by pair, in float64."""
    values = []
    for sequence, real in zip(states.double(), valid, strict=True):
        vectors = sequence[real]
        n = len(vectors)
        cosines = [
            float(vectors[i] @ vectors[j] / (vectors[i].norm() * vectors[j].norm()))
            for i in range(n)
            for j in range(n)
            if i != j
        ]
        values.append(sum(cosines) / len(cosines) if cosines else math.nan)
    return values


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    width=st.integers(1, 12),
    shift=st.floats(0, 50),
    seed=st.integers(0, 2**31 - 1),
)
def test_equals_the_definition(lengths, width, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    # a large shift makes all states alike, where a careless float32 sum loses digits
    states = torch.randn(len(lengths), 10, width, generator=generator) + shift
    valid = torch.arange(10) < torch.tensor(lengths).unsqueeze(1)
    torch.testing.assert_close(
        self_similarity(states, valid),
        torch.tensor(brute_force(states, valid), dtype=torch.float64),
        rtol=0,
        atol=2e-6,
        equal_nan=True,
    )


def test_long_sequences_keep_their_digits():
    states = torch.randn(2, 512, 64, generator=torch.Generator().manual_seed(0)) + 30
    valid = torch.ones(2, 512, dtype=torch.bool)
    units = torch.nn.functional.normalize(states.double(), dim=-1)
    expected = ((units @ units.mT).sum(dim=(1, 2)) - 512) / (512 * 511)
    torch.testing.assert_close(self_similarity(states, valid), expected, rtol=0, atol=1e-7)


def test_padding_may_hold_anything():
    states = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [math.nan, math.inf]]])
    valid = torch.tensor([[True, True, False]])
    assert self_similarity(states, valid).item() == pytest.approx(math.sqrt(0.5), abs=1e-7)


def test_half_precision_does_not_overflow():
    states = torch.full((1, 4, 8), 60000.0, dtype=torch.float16)
    assert self_similarity(states, torch.ones(1, 4, dtype=torch.bool)).item() == pytest.approx(1.0)


def test_a_single_token_is_undefined():
    values = self_similarity(torch.randn(2, 3, 4), torch.tensor([[True, False, False], [False] * 3]))
    assert values.isnan().tolist() == [True, True]


def test_opposite_states_and_zero_states():
    valid = torch.ones(1, 2, dtype=torch.bool)
    assert self_similarity(torch.tensor([[[2.0, 0.0], [-5.0, 0.0]]]), valid).item() == pytest.approx(-1.0)
    assert self_similarity(torch.tensor([[[2.0, 0.0], [0.0, 0.0]]]), valid).item() == 0.0


def test_every_layer_gets_its_row():
    layers = [torch.randn(2, 5, 3), torch.ones(2, 5, 3)]
    valid = torch.ones(2, 5, dtype=torch.bool)
    values = self_similarity_of_layers(layers, valid)
    assert values.shape == (2, 2)
    assert torch.equal(values[0], self_similarity(layers[0], valid))
    assert values[1].tolist() == pytest.approx([1.0, 1.0])
