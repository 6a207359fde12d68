"""The losses against loops over positions in plain Python floats, written from the papers' equations."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairseq_tn.losses import (
    hard_correction,
    masked_lm_loss,
    mean_pairwise_cosine,
    replaced_token_loss,
    sentence_kl,
    soft_regularization,
    token_contrastive_loss,
)


def cosine(first: list[float], second: list[float]) -> float:
    """0 where a vector has no direction."""
    norms = math.hypot(*first) * math.hypot(*second)
    return sum(a * b for a, b in zip(first, second, strict=True)) / norms if norms else 0.0


def log_sum_exp(values: list[float]) -> float:
    largest = max(values)
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


def reference_mlm(logits: Tensor, gold: Tensor) -> list[float]:
    rows = logits.double().tolist()
    return [log_sum_exp(row) - row[token] for row, token in zip(rows, gold.tolist(), strict=True)]


def reference_tacl(
    student: Tensor, teacher: Tensor, masked: Tensor, valid: Tensor, temperature: float
) -> tuple[float, int]:
    total, matched = 0.0, 0
    for b in range(len(student)):
        h, keys = student[b].double().tolist(), teacher[b].double().tolist()
        for i in range(len(h)):
            if not masked[b, i]:
                continue
            real = [j for j in range(len(keys)) if valid[b, j]]
            scores = [cosine(h[i], keys[j]) / temperature for j in real]
            own = real.index(i)
            total += log_sum_exp(scores) - scores[own]
            matched += max(range(len(real)), key=scores.__getitem__) == own
    return total, matched


def reference_sr(embeddings: Tensor, predicted: Tensor, gold: Tensor) -> list[float]:
    e = embeddings.double().tolist()
    return [1 - cosine(e[p], e[g]) for p, g in zip(predicted.tolist(), gold.tolist(), strict=True)]


def numeric_gradient(function, x: Tensor, step: float = 1e-6) -> Tensor:
    """Central differences of a float-valued function, entry by entry."""
    flat = x.detach().double().reshape(-1).clone()
    gradient = torch.zeros_like(flat)
    for i in range(len(flat)):
        sides = []
        for sign in (1, -1):
            moved = flat.clone()
            moved[i] += sign * step
            sides.append(function(moved.view(x.shape)))
        gradient[i] = (sides[0] - sides[1]) / (2 * step)
    return gradient.view(x.shape)


# --- masked LM ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**31), k=st.integers(0, 6), v=st.integers(1, 9), scale=st.sampled_from([0.1, 1, 50])
)
def test_masked_lm_is_the_cross_entropy_of_each_position(seed, k, v, scale):
    rng = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(k, v, generator=rng)
    gold = torch.randint(v, (k,), generator=rng)
    loss = masked_lm_loss(logits, gold)
    assert loss.shape == (k,)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(
        loss.double(), torch.tensor(reference_mlm(logits, gold)).double(), rtol=1e-5, atol=1e-5
    )


def test_masked_lm_gradient_is_probability_minus_truth():
    torch.manual_seed(0)
    logits = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
    gold = torch.tensor([0, 6, 3, 3])
    masked_lm_loss(logits, gold).sum().backward()
    for row, token, gradient in zip(logits.tolist(), gold.tolist(), logits.grad.tolist(), strict=True):
        total = log_sum_exp(row)
        for v in range(7):
            assert gradient[v] == pytest.approx(math.exp(row[v] - total) - (v == token), abs=1e-12)
    assert torch.autograd.gradcheck(lambda x: masked_lm_loss(x, gold), logits)


@pytest.mark.parametrize("size", [1e4, 6e4])
def test_masked_lm_survives_very_large_logits(size):
    logits = torch.tensor([[size, -size, 0.0], [size, -size, 0.0]])
    loss = masked_lm_loss(logits, torch.tensor([0, 1]))
    assert loss.tolist() == [0.0, 2 * size]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masked_lm_of_half_precision_is_computed_in_float32(dtype):
    torch.manual_seed(0)
    logits = (10 * torch.randn(20, 300)).to(dtype)
    gold = torch.randint(300, (20,))
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = masked_lm_loss(logits, gold)
        assert loss.dtype == torch.float32
        assert loss.tolist() == pytest.approx(reference_mlm(logits, gold), rel=1e-5)


# --- hard correction --------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=8))
def test_hard_correction_averages_over_the_survivors(positions):
    loss = torch.tensor([p[0] for p in positions], dtype=torch.float64, requires_grad=True)
    corrected = torch.tensor([p[1] for p in positions], dtype=torch.bool)
    total, number = hard_correction(loss, corrected)
    surviving = [value for value, dropped in positions if not dropped]
    assert total.item() == pytest.approx(math.fsum(surviving))
    assert int(number) == len(surviving)
    total.backward()
    assert loss.grad.tolist() == [float(not dropped) for _, dropped in positions]


def test_hard_correction_without_survivors_is_zero_and_has_a_graph():
    loss = torch.tensor([1.0, 2.0], requires_grad=True)
    total, number = hard_correction(loss, torch.tensor([True, True]))
    assert (total.item(), number.item()) == (0.0, 0)
    total.backward()
    assert loss.grad.tolist() == [0.0, 0.0]


def test_hard_correction_ignores_an_infinite_loss_at_a_dropped_position():
    logits = torch.tensor([[0.0, 1.0], [0.0, float("-inf")]], requires_grad=True)
    loss = masked_lm_loss(logits, torch.tensor([0, 1]))
    assert loss[1] == float("inf")
    total, number = hard_correction(loss, torch.tensor([False, True]))
    assert number == 1
    assert total.item() == pytest.approx(math.log(1 + math.e))


# --- soft regularisation -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**31), k=st.integers(0, 6), v=st.integers(1, 6), d=st.integers(1, 5))
def test_soft_regularization_is_one_minus_cosine(seed, k, v, d):
    rng = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(v, d, generator=rng)
    predicted, gold = torch.randint(v, (2, k), generator=rng)
    loss = soft_regularization(embeddings, predicted, gold)
    assert loss.shape == (k,)
    assert loss.dtype == torch.float32
    assert loss.tolist() == pytest.approx(reference_sr(embeddings, predicted, gold), abs=1e-5)


def test_soft_regularization_gradient_reaches_gold_and_predicted_rows_only():
    torch.manual_seed(0)
    embeddings = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    predicted, gold = torch.tensor([1, 4, 1]), torch.tensor([2, 6, 5])
    soft_regularization(embeddings, predicted, gold).sum().backward()
    touched = embeddings.grad.abs().sum(1).ne(0).nonzero().squeeze(1).tolist()
    assert touched == [1, 2, 4, 5, 6]
    expected = numeric_gradient(lambda e: math.fsum(reference_sr(e, predicted, gold)), embeddings)
    torch.testing.assert_close(embeddings.grad, expected, rtol=1e-5, atol=1e-7)
    assert torch.autograd.gradcheck(lambda e: soft_regularization(e, predicted, gold), embeddings)


@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(1, 6), st.booleans())
@settings(deadline=None, max_examples=40)
def test_mean_pairwise_cosine_is_that_of_all_pairs(seed, n, d, zero):
    vectors = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    vectors[0] *= 0 if zero else 100
    rows = vectors.tolist()
    pairs = [cosine(rows[i], rows[j]) for i in range(n) for j in range(n) if i != j]
    assert mean_pairwise_cosine(vectors).item() == pytest.approx(math.fsum(pairs) / len(pairs), abs=1e-12)
    half = mean_pairwise_cosine(vectors.bfloat16())
    assert half.dtype == torch.float64
    assert half.item() == pytest.approx(mean_pairwise_cosine(vectors.bfloat16().double()).item(), abs=1e-6)


def test_mean_pairwise_cosine_needs_a_pair():
    assert mean_pairwise_cosine(torch.ones(1, 3)).isnan()
    assert mean_pairwise_cosine(torch.ones(2, 3)).item() == pytest.approx(1)


def test_sparse_gradient_of_soft_regularization_is_the_dense_one():
    torch.manual_seed(0)
    embeddings = torch.randn(7, 3, requires_grad=True)
    predicted, gold = torch.tensor([4, 4, 1]), torch.tensor([2, 5, 2])

    def gradient(sparse, beside):
        loss = soft_regularization(embeddings, predicted, gold, sparse_gradient=sparse).sum()
        if beside:
            loss = loss + (embeddings**2).sum()
        return torch.autograd.grad(loss, embeddings)[0]

    alone = gradient(sparse=True, beside=False)
    assert alone.is_sparse
    torch.testing.assert_close(alone.to_dense(), gradient(sparse=False, beside=False))
    together = gradient(sparse=True, beside=True)
    assert not together.is_sparse
    torch.testing.assert_close(together, gradient(sparse=False, beside=True))


def test_soft_regularization_of_a_right_prediction_and_of_a_zero_row():
    embeddings = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    loss = soft_regularization(embeddings, torch.tensor([0, 1]), torch.tensor([0, 0]))
    assert loss.tolist() == pytest.approx([0.0, 1.0], abs=1e-6)
    loss.sum().backward()
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_soft_regularization_of_half_precision_is_computed_in_float32(dtype, autocast):
    torch.manual_seed(0)
    embeddings = torch.randn(50, 64).to(dtype)
    predicted, gold = torch.randint(50, (2, 40))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = soft_regularization(embeddings, predicted, gold)
    assert loss.dtype == torch.float32
    assert loss.tolist() == pytest.approx(reference_sr(embeddings, predicted, gold), abs=1e-5)


# --- whole sequences ---------------------------------------------------------------------------------------------


def draw_states(seed: int, b: int, t: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Predicted and gold states, and the real tokens of right-padded sequences."""
    rng = torch.Generator().manual_seed(seed)
    predicted, gold = 2 * torch.randn(2, b, t, d, generator=rng, dtype=torch.float64)
    valid = torch.arange(t) < torch.randint(1, t + 1, (b,), generator=rng)[:, None]
    return predicted, gold, valid


def reference_kl(predicted: Tensor, gold: Tensor, valid: Tensor) -> Tensor:
    from torch.distributions import Categorical, kl_divergence

    divergence = kl_divergence(Categorical(logits=predicted), Categorical(logits=gold))
    return (divergence * valid).sum()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**31), b=st.integers(1, 4), t=st.integers(1, 6), d=st.integers(1, 6))
def test_sentence_kl_is_that_of_torch_distributions(seed, b, t, d):
    predicted, gold, valid = draw_states(seed, b, t, d)
    found, wanted = [x.requires_grad_() for x in (predicted.clone(), predicted.clone())]
    loss, expected = sentence_kl(found, gold, valid), reference_kl(wanted, gold, valid)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(found.grad, wanted.grad)


def test_sentence_kl_is_directed_and_gives_the_gold_states_no_gradient():
    predicted, gold, valid = draw_states(3, 3, 5, 4)
    predicted.requires_grad_()
    gold.requires_grad_()
    loss = sentence_kl(predicted, gold, valid)
    assert not torch.allclose(loss, sentence_kl(gold, predicted, valid))
    loss.backward()
    assert gold.grad is None
    assert predicted.grad[~valid].eq(0).all()
    assert torch.autograd.gradcheck(lambda x: sentence_kl(x, gold, valid), predicted)
    assert sentence_kl(predicted, predicted, valid).item() == pytest.approx(0, abs=1e-12)


def test_what_stands_at_padding_does_not_reach_the_losses_of_sequences():
    predicted, gold, valid = draw_states(4, 3, 5, 4)
    logits, replaced = predicted[..., 0].clone(), gold[..., 0] > 0
    expected = sentence_kl(predicted, gold, valid), replaced_token_loss(logits, replaced, valid)
    assert not valid.all()
    for odd in (float("nan"), float("inf"), 1e6):
        predicted[~valid] = gold[~valid] = logits[~valid] = odd
        replaced = replaced ^ ~valid
        torch.testing.assert_close(sentence_kl(predicted, gold, valid), expected[0])
        torch.testing.assert_close(replaced_token_loss(logits, replaced, valid), expected[1])
    none = torch.zeros_like(valid)
    states = predicted.nan_to_num().requires_grad_()
    loss = sentence_kl(states, gold, none) + replaced_token_loss(states[..., 0], replaced, none)
    assert loss.item() == 0
    loss.backward()
    assert states.grad.eq(0).all()


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    b=st.integers(1, 4),
    t=st.integers(1, 6),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_replaced_token_loss_is_the_cross_entropy_of_two_classes(seed, b, t, scale):
    states, _, valid = draw_states(seed, b, t, 2)
    logits, replaced = scale * states[..., 0], states[..., 1] > 0
    expected = sum(
        log_sum_exp([0.0, logit]) - logit * truth
        for logit, truth in zip(logits[valid].tolist(), replaced[valid].tolist(), strict=True)
    )
    loss = replaced_token_loss(logits.requires_grad_(), replaced, valid)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    loss.backward()
    gradient = (logits.detach().sigmoid() - replaced.double()) * valid
    torch.testing.assert_close(logits.grad, gradient)


def test_replaced_token_loss_survives_very_large_logits():
    logits = torch.tensor([[1e4, -1e4, 1e4, -1e4]])
    replaced = torch.tensor([[True, True, False, False]])
    assert replaced_token_loss(logits, replaced, torch.ones_like(replaced)).item() == 2e4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_losses_of_sequences_are_computed_in_float32(dtype, autocast):
    predicted, gold, valid = (x if x.dtype == torch.bool else x.to(dtype) for x in draw_states(6, 4, 20, 64))
    logits, replaced = predicted[..., 0], gold[..., 0] > 0
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = sentence_kl(predicted, gold, valid), replaced_token_loss(logits, replaced, valid)
    expected = reference_kl(predicted.double(), gold.double(), valid)
    assert found[0].dtype == found[1].dtype == torch.float32
    torch.testing.assert_close(found[0].double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1].double(), replaced_token_loss(logits.double(), replaced, valid))


# --- token-aware contrastive loss --------------------------------------------------------------------------------


def draw_batch(
    seed: int, b: int, t: int, d: int, share: float = 0.4
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Student and teacher states that resemble each other, selected positions, right-padded sequences."""
    rng = torch.Generator().manual_seed(seed)
    teacher = torch.randn(b, t, d, generator=rng)
    student = teacher + 0.3 * torch.randn(b, t, d, generator=rng)
    lengths = torch.randint(1, t + 1, (b,), generator=rng)
    valid = torch.arange(t) < lengths[:, None]
    masked = (torch.rand(b, t, generator=rng) < share) & valid
    return student, teacher, masked, valid


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**31),
    b=st.integers(1, 4),
    t=st.integers(1, 7),
    d=st.integers(1, 5),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    temperature=st.sampled_from([0.01, 0.05, 0.3, 1.0]),
)
def test_token_contrastive_loss_follows_the_equation(seed, b, t, d, share, temperature):
    student, teacher, masked, valid = (
        x.double() if x.is_floating_point() else x for x in draw_batch(seed, b, t, d, share)
    )
    loss, matched = token_contrastive_loss(student, teacher, masked, valid, temperature)
    total, own = reference_tacl(student, teacher, masked, valid, temperature)
    assert loss.item() == pytest.approx(total, rel=1e-9, abs=1e-9)
    if d > 1:  # in one dimension every cosine is 1 or -1, and the best match a matter of ties
        assert int(matched) == own


def test_token_contrastive_gradient_is_the_equation_s():
    student, teacher, masked, valid = draw_batch(5, 3, 5, 4)
    assert 0 < masked.sum() < valid.sum() < valid.numel()
    student = student.double().requires_grad_()
    teacher = teacher.double().requires_grad_()
    token_contrastive_loss(student, teacher, masked, valid, 0.1)[0].backward()
    for x, function in (
        (student, lambda s: reference_tacl(s, teacher, masked, valid, 0.1)[0]),
        (teacher, lambda t: reference_tacl(student, t, masked, valid, 0.1)[0]),
    ):
        torch.testing.assert_close(x.grad, numeric_gradient(function, x), rtol=1e-5, atol=1e-6)
    assert student.grad[~masked].eq(0).all()
    assert teacher.grad[~valid].eq(0).all()
    assert torch.autograd.gradcheck(
        lambda s, t: token_contrastive_loss(s, t, masked, valid, 0.1)[0], (student, teacher)
    )


def test_padding_counts_for_nothing():
    student, teacher, masked, valid = draw_batch(3, 3, 6, 4)
    expected = token_contrastive_loss(student, teacher, masked, valid)
    student[~valid], teacher[~valid] = 1e4, -1e4
    longer = [torch.nn.functional.pad(x, (0, 0, 0, 2), value=7.0) for x in (student, teacher)]
    flags = [torch.nn.functional.pad(x, (0, 2)) for x in (masked, valid)]
    for actual in (
        token_contrastive_loss(student, teacher, masked, valid),
        token_contrastive_loss(*longer, *flags),
    ):
        torch.testing.assert_close(actual[0], expected[0])
        assert actual[1] == expected[1]


def test_nothing_selected_gives_zero_with_a_graph():
    student, teacher, masked, valid = draw_batch(0, 2, 4, 3, share=0.0)
    student.requires_grad_()
    loss, matched = token_contrastive_loss(student, teacher, masked, valid)
    assert (loss.item(), matched.item()) == (0.0, 0)
    loss.backward()
    assert student.grad.eq(0).all()


def test_one_sequence_without_any_selected_position_changes_nothing():
    student, teacher, masked, valid = draw_batch(7, 3, 5, 4, share=0.7)
    masked[1] = False
    assert masked[0].any()
    assert masked[2].any()
    loss, matched = token_contrastive_loss(student, teacher, masked, valid)
    parts = [token_contrastive_loss(student[[b]], teacher[[b]], masked[[b]], valid[[b]]) for b in (0, 2)]
    assert loss.item() == pytest.approx(sum(part[0].item() for part in parts), rel=1e-5)
    assert int(matched) == sum(int(part[1]) for part in parts)


@pytest.mark.parametrize("extra", [0, 2])
def test_known_positions_give_what_derived_ones_give(extra):
    student, teacher, masked, valid = draw_batch(9, 4, 6, 3)
    derived = token_contrastive_loss(student, teacher, masked, valid)
    selected = masked.reshape(-1).nonzero().squeeze(1)
    most = int(masked.sum(1).max()) + extra
    for options in (
        {"selected": selected},
        {"max_selected": most},
        {"selected": selected, "max_selected": most},
    ):
        given_ = token_contrastive_loss(student, teacher, masked, valid, **options)
        torch.testing.assert_close(given_[0], derived[0])
        assert given_[1] == derived[1]


def test_zero_vectors_are_finite_in_value_and_gradient():
    student = torch.zeros(1, 3, 4, requires_grad=True)
    teacher = torch.randn(1, 3, 4)
    teacher[0, 1] = 0
    every = torch.ones(1, 3, dtype=torch.bool)
    loss, _ = token_contrastive_loss(student, teacher, every, every)
    # a vector without direction is equally far from all keys
    assert loss.item() == pytest.approx(3 * math.log(3), rel=1e-6)
    loss.backward()
    assert student.grad.isfinite().all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_only_directions_matter(scale):
    student, teacher, masked, valid = draw_batch(11, 2, 5, 6)
    expected = token_contrastive_loss(student, teacher, masked, valid)[0]
    actual = token_contrastive_loss(scale * student, teacher / scale, masked, valid)[0]
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_computed_in_float32(dtype, autocast):
    student, teacher, masked, valid = draw_batch(2, 2, 20, 32)
    # states of real models point the same way: cosines near 0.9, hard to tell apart
    common = 4 * torch.randn(32)
    student, teacher = (student + common).to(dtype).requires_grad_(), (teacher + common).to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss, _ = token_contrastive_loss(student, teacher, masked, valid, 0.01)
    assert loss.dtype == torch.float32
    # logits near 90: computed in bfloat16 the loss would be off by up to 0.5 at every position
    expected = reference_tacl(student.detach(), teacher, masked, valid, 0.01)[0]
    assert expected > 0.5
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    loss.backward()
    assert student.grad.dtype == dtype
    assert student.grad.isfinite().all()


@pytest.mark.parametrize("temperature", [0, -0.01])
def test_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature"):
        token_contrastive_loss(*draw_batch(0, 1, 2, 2), temperature)


def test_importing_the_losses_does_not_import_fairseq():
    code = "import sys, fairseq_tn.losses; sys.exit('fairseq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
