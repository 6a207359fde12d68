"""NT-Xent against its equations written out, and against pytorch-metric-learning."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import NTXentLoss
from torch import Tensor

from fairseq_tn.losses import nt_xent


def embeddings(seed: int, number: int, width: int = 5) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(number, width, generator=rng, dtype=torch.float64).requires_grad_()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b) / (a.norm() * b.norm())


def one_direction(anchors: Tensor, positives: Tensor, temperature: float, hard=()) -> Tensor:
    """SimCSE, Eq. 1, or with hard negatives Eq. 5, summed over anchors."""
    total = torch.zeros((), dtype=torch.float64)
    for i, anchor in enumerate(anchors):
        own = (cosine(anchor, positives[i]) / temperature).exp()
        below = sum((cosine(anchor, other) / temperature).exp() for other in [*positives, *hard])
        total = total - (own / below).log()
    return total


def both_directions(anchors: Tensor, positives: Tensor, temperature: float) -> Tensor:
    """SimCLR, Eq. 1: the mean over both members of a pair, summed over pairs."""
    everything = [*anchors, *positives]
    number = len(anchors)
    total = torch.zeros((), dtype=torch.float64)
    for i, one in enumerate(everything):
        partner = (i + number) % (2 * number)
        own = (cosine(one, everything[partner]) / temperature).exp()
        below = sum((cosine(one, x) / temperature).exp() for k, x in enumerate(everything) if k != i)
        total = total - (own / below).log() / 2
    return total


def assert_equal_with_gradient(actual: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)
    wanted = torch.autograd.grad(expected, inputs)
    for found, right in zip(torch.autograd.grad(actual, inputs), wanted, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-7, atol=1e-10)


SIZES = st.integers(1, 6)
TEMPERATURES = st.sampled_from([0.05, 0.3, 1.0])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), SIZES, st.integers(0, 4), TEMPERATURES)
def test_one_direction_is_simcse_s_equation(seed, number, hard, temperature):
    anchors, positives = embeddings(seed, number), embeddings(seed + 1, number)
    inputs = [anchors, positives]
    negatives = None
    if hard:
        negatives = embeddings(seed + 2, hard)
        inputs.append(negatives)
    loss, _ = nt_xent(anchors, positives, temperature, negatives)
    expected = one_direction(anchors, positives, temperature, () if negatives is None else negatives)
    assert_equal_with_gradient(loss, expected, inputs)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), SIZES, TEMPERATURES)
def test_symmetric_is_simclr_s_equation(seed, number, temperature):
    anchors, positives = embeddings(seed, number), embeddings(seed + 1, number)
    loss, _ = nt_xent(anchors, positives, temperature, symmetric=True)
    assert_equal_with_gradient(loss, both_directions(anchors, positives, temperature), [anchors, positives])


@pytest.mark.parametrize("temperature", [0.04, 0.5])
def test_symmetric_is_pytorch_metric_learning_s(temperature):
    number = 6
    anchors, positives = embeddings(3, number), embeddings(4, number)
    labels = torch.arange(number).repeat(2)
    expected = NTXentLoss(temperature=temperature)(torch.cat([anchors, positives]), labels)
    loss, _ = nt_xent(anchors, positives, temperature, symmetric=True)
    assert_equal_with_gradient(loss / number, expected, [anchors, positives])


@pytest.mark.parametrize(("symmetric", "hard"), [(False, False), (False, True), (True, False)])
def test_parts_of_the_anchors_add_up(symmetric, hard):
    anchors, positives, negatives = embeddings(5, 7), embeddings(6, 7), embeddings(7, 3) if hard else None
    whole, matched = nt_xent(anchors, positives, 0.1, negatives, symmetric)
    parts = [
        nt_xent(anchors, positives, 0.1, negatives, symmetric, begin, end)
        for begin, end in ((0, 3), (3, 3), (3, 7))
    ]
    assert sum(int(found) for _, found in parts) == int(matched)
    assert parts[1][0].item() == 0
    inputs = [anchors, positives]
    assert_equal_with_gradient(sum(loss for loss, _ in parts), whole, inputs)


def test_matched_counts_the_anchors_that_find_their_positive():
    basis = torch.eye(4)
    positives = basis[[0, 1, 3, 2]]  # the last two are swapped
    assert nt_xent(basis, positives, 0.1)[1] == 2
    # closer to another anchor than to its positive: wrong if anchors are candidates too
    anchors = torch.tensor([[1.0, 0.2], [1.0, 0.3]])
    positives = torch.tensor([[1.0, -0.5], [0.2, 1.0]])
    assert nt_xent(anchors, positives, 0.1)[1] == 1
    assert nt_xent(anchors, positives, 0.1, symmetric=True)[1] == 0
    # a hard negative that is the anchor itself
    assert nt_xent(basis, basis + 0.1, 0.1, basis)[1] == 0


def test_one_sentence_has_nothing_to_be_told_from():
    anchor, positive = embeddings(1, 1), embeddings(2, 1)
    for symmetric in (False, True):
        loss, _ = nt_xent(anchor, positive, 0.05, symmetric=symmetric)
        assert loss.item() == 0
        assert all(gradient.eq(0).all() for gradient in torch.autograd.grad(loss, [anchor, positive]))


def test_half_precision_is_computed_in_float32():
    first, second = (embeddings(seed, 8).detach() for seed in (1, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = nt_xent(first.bfloat16(), second.bfloat16(), 0.01)
    assert loss.dtype == torch.float32
    expected, _ = nt_xent(first.bfloat16().double(), second.bfloat16().double(), 0.01)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperatures_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature"):
        nt_xent(torch.eye(2), torch.eye(2), temperature)


def test_hard_negatives_are_for_one_direction():
    with pytest.raises(ValueError, match="one direction"):
        nt_xent(torch.eye(2), torch.eye(2), 0.1, torch.eye(2), symmetric=True)


def test_the_loss_of_equal_embeddings_is_the_logarithm_of_their_number():
    same = torch.ones(5, 3)
    assert nt_xent(same, same, 0.05)[0].item() / 5 == pytest.approx(math.log(5))
    assert nt_xent(same, same, 0.05, symmetric=True)[0].item() / 5 == pytest.approx(math.log(9))
