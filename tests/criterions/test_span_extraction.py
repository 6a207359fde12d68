"""The criterion of SQuAD, and what all criterions with a head of their own share."""

import math
from types import SimpleNamespace

import pytest
import torch
from small_pretraining import PAD, WIDTH, make_roberta, make_task, make_tn_bert, make_tn_electra
from torch import nn
from two_processes import run_in_two_processes

from fairseq_tn.criterions.span_extraction import (
    SpanExtractionConfig,
    SpanExtractionCriterion,
    span_loss,
)
from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.models.depth import steps_below_heads

MODELS = {"tn_bert": make_tn_bert, "tn_electra": make_tn_electra, "roberta": make_roberta}


def make_criterion(seed=0, **options) -> SpanExtractionCriterion:
    torch.manual_seed(seed)
    task = SimpleNamespace(**vars(make_task(nsp=False)), model_width=WIDTH)
    criterion = SpanExtractionCriterion(SpanExtractionConfig(**options), task).double()
    with torch.no_grad():
        criterion.head.out_proj.weight.normal_()
        criterion.head.out_proj.bias.normal_()
    return criterion


def make_windows(extra=0) -> dict:
    """Three windows, right-padded; the second lacks the answer, that of the third is not known."""
    rng = torch.Generator().manual_seed(1)
    lengths = (9, 12, 7)
    tokens = torch.full((3, 12 + extra), PAD)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.randint(4, 28, (length,), generator=rng)
        tokens[row, 0], tokens[row, 3], tokens[row, length - 1] = 0, 2, 2
    return {
        "id": torch.arange(3),
        "net_input": {"src_tokens": tokens, "src_lengths": torch.tensor(lengths)},
        "start": torch.tensor([5, 0, -1]),
        "end": torch.tensor([7, 0, -1]),
        "ntokens": sum(lengths),
        "nsentences": 3,
    }


@pytest.mark.parametrize("name", MODELS)
def test_loss_is_the_mean_of_both_cross_entropies(name):
    model = MODELS[name](make_task(nsp=False)).eval()
    criterion = make_criterion().eval()
    criterion.freeze_unused(model)
    batch = make_windows()
    loss, number, log = criterion(model, batch)
    states = model(**batch["net_input"], features_only=True)[0]
    expected = 0.0
    for row, (start, end), length in ((0, (5, 7), 9), (1, (0, 0), 12)):
        logits = states[row, :length] @ criterion.head.out_proj.weight.T + criterion.head.out_proj.bias
        for column, place in ((0, start), (1, end)):
            expected -= 0.5 * logits[:, column].log_softmax(0)[place].item()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert number == log["sample_size"] == 2
    assert log["loss"].item() == pytest.approx(loss.item())
    wide, _, _ = criterion(model, make_windows(extra=4))
    assert wide.item() == pytest.approx(loss.item(), rel=1e-5)
    loss.backward()
    without = [
        name
        for name, p in [*model.named_parameters(), *criterion.named_parameters()]
        if p.requires_grad and p.grad is None
    ]
    assert without == []


def test_accuracies_count_windows_with_a_known_answer():
    start, end = torch.zeros(4, 5), torch.zeros(4, 5)
    start[0, 1] = start[1, 2] = start[2, 0] = start[3, 4] = 1
    end[0, 1] = end[1, 4] = end[2, 3] = end[3, 4] = 1
    sample = {
        "start": torch.tensor([1, 2, 1, -1]),
        "end": torch.tensor([1, 3, 3, -1]),
        "ntokens": 9,
        "nsentences": 4,
    }
    _, number, log = span_loss(start, end, sample)
    assert (number, log["start_acc"], log["end_acc"], log["span_acc"]) == (3, 2, 2, 1)


def test_a_batch_without_known_answers_is_zero_with_a_gradient():
    start = torch.zeros(2, 3, requires_grad=True)
    sample = {"start": torch.tensor([-1, -1]), "end": torch.tensor([-1, -1]), "ntokens": 6, "nsentences": 2}
    loss, number, _ = span_loss(start, start, sample)
    loss.backward()
    assert (loss, number) == (0, 0)
    assert not start.grad.any()


def test_logged_means(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        "fairseq_tn.criterions.span_extraction.metrics.log_scalar",
        lambda name, value, weight, round: seen.update({name: (value, weight)}),
    )
    log = {"loss": 3 * math.log(2), "start_acc": 1, "end_acc": 2, "span_acc": 0, "sample_size": 2}
    SpanExtractionCriterion.reduce_metrics([log, {**log, "sample_size": 1}])
    assert seen["loss"] == (pytest.approx(2), 3)
    assert seen["start_acc"][0] == pytest.approx(200 / 3)
    assert seen["end_acc"][0] == pytest.approx(400 / 3)
    SpanExtractionCriterion.reduce_metrics([{**log, "loss": 0.0, "sample_size": 0}])
    assert seen["loss"] == (0, 0)


def test_half_precision_logits_become_float32():
    model, criterion = make_tn_bert(make_task(nsp=False)).bfloat16().eval(), make_criterion().bfloat16()
    start, end = criterion.logits(model, make_windows()["net_input"])
    assert start.dtype == end.dtype == torch.float32
    assert start[0, 9:].eq(-math.inf).all()
    assert start[0, :9].isfinite().all()


def test_dropout_of_the_head():
    criterion = make_criterion(head_dropout=0.5)
    states = torch.ones(2, 3, WIDTH, dtype=torch.float64)
    assert not torch.equal(criterion.head(states), criterion.head(states))
    criterion.eval()
    assert torch.equal(criterion.head(states), criterion.head(states))
    with pytest.raises(UserError, match="--head-dropout is 1"):
        make_criterion(head_dropout=1.0)


def test_the_head_counts_as_one_for_rates_by_layer():
    assert {steps_below_heads(parameter) for parameter in make_criterion().parameters()} == {0}


# --- heads in checkpoints -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [None, {}])
def test_a_pretrained_checkpoint_starts_a_fresh_head(held):
    criterion = make_criterion()
    before = {name: value.clone() for name, value in criterion.state_dict().items()}
    criterion.load_state_dict(held)
    assert all(torch.equal(value, before[name]) for name, value in criterion.state_dict().items())


def test_its_own_checkpoint_gives_the_head_back():
    criterion = make_criterion(1)
    criterion.load_state_dict(make_criterion(2).state_dict())
    assert torch.equal(criterion.head.out_proj.weight, make_criterion(2).head.out_proj.weight)


@pytest.mark.parametrize(
    "held",
    [
        {"head.out_proj.weight": torch.zeros(7, WIDTH), "head.out_proj.bias": torch.zeros(7)},
        {"head.out_proj.weight": torch.zeros(2, WIDTH)},
        {
            "head.out_proj.weight": torch.zeros(2, WIDTH),
            "head.out_proj.bias": torch.zeros(2),
            "crf": torch.zeros(2),
        },
    ],
)
def test_another_head_is_refused_in_one_line(held):
    with pytest.raises(CheckpointMismatch, match="head is of another task or other labels") as error:
        make_criterion().load_state_dict(held)
    assert "\n" not in str(error.value)


# --- two processes ------------------------------------------------------------------------------------------------


def test_two_processes_have_the_gradient_of_one(tmp_path):
    """torch's DistributedDataParallel around model and criterion, as fairseq wraps them: no parameter is unused."""
    batch = make_windows()
    batch["start"][2] = batch["end"][2] = 4

    def make():
        model, criterion = make_tn_bert(make_task(nsp=False)), make_criterion()
        criterion.freeze_unused(model)
        return model, criterion

    def part(rows):
        return {
            **{key: batch[key][rows] for key in ("id", "start", "end")},
            "net_input": {key: value[rows] for key, value in batch["net_input"].items()},
            "ntokens": 1,
            "nsentences": len(batch["id"][rows]),
        }

    def gradients(model, criterion):
        parameters = [*model.named_parameters(), *criterion.named_parameters()]
        return {name: p.grad for name, p in parameters if p.requires_grad}

    def work(rank):
        model, criterion = make()
        wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=False)
        wrapped_criterion = nn.parallel.DistributedDataParallel(criterion, find_unused_parameters=False)
        for _ in range(2):  # the second pass finds what the first has left out
            model.zero_grad()
            criterion.zero_grad()
            loss, _, _ = wrapped_criterion(wrapped, part(slice(0, 1) if rank == 0 else slice(1, 3)))
            loss.backward()
        return gradients(model, criterion)

    found = run_in_two_processes(tmp_path / "ddp", work)
    model, criterion = make()
    criterion(model, batch)[0].backward()
    for parameter, expected in gradients(model, criterion).items():
        assert torch.allclose(2 * found[0][parameter], expected, rtol=1e-4, atol=1e-6), parameter
        assert torch.equal(found[0][parameter], found[1][parameter])
