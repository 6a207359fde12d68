"""Soft regularisation of whole sequences in ``tn_bert`` and fairseq's ``roberta``, position by position in float64."""

import math
from types import SimpleNamespace

import pytest
import torch
from small_pretraining import (
    NUM_WORDS,
    PAD,
    E,
    S,
    assert_same,
    gradients,
    gradients_of,
    halves,
    make_batch,
    make_criterion,
    make_dictionary,
    make_roberta,
    make_task,
    make_tn_bert,
    reduced,
)
from torch import Tensor, nn
from two_processes import run_in_two_processes

from fairseq_tn.models.bert import TnBertModel

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra


ARCHITECTURES = {"tn_bert": make_tn_bert, "roberta": make_roberta}


def states_of(model, tokens: Tensor, source: Tensor) -> Tensor:
    """Last hidden states, of one sequence after the other and without its padding."""
    rows = []
    for row, original in zip(tokens, source, strict=True):
        length = int(original.ne(PAD).sum())
        row = row[None, :length]
        if isinstance(model, TnBertModel):
            states = model(row, features_only=True, segments=model.encoder.segments(original[None, :length]))[
                0
            ]
        else:
            states = model(row, features_only=True)[0]
        rows.append(torch.cat([states[0], states.new_zeros(tokens.size(1) - length, states.size(2))]))
    return torch.stack(rows)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL of the softmaxes of two vectors."""
    log_p, log_q = p - p.logsumexp(0), q - q.logsumexp(0)
    return (log_p.exp() * (log_p - log_q)).sum()


def fill_in(model, batch) -> tuple[Tensor, Tensor]:
    """The original sequences, and those with the model's predictions at the selected positions."""
    target, tokens = batch["target"], batch["net_input"]["src_tokens"]
    masked = target.ne(PAD)
    source = torch.where(masked, target, tokens)
    return source, torch.where(masked, model(tokens)[0].argmax(-1), source)


def reference(model, batch, pairs=(), mlm=1.0, sr=1.0, nsp=0.0) -> SimpleNamespace:
    """The loss as means over each term's own units."""
    tokens, target = batch["net_input"]["src_tokens"], batch["target"]
    logits, extra = model(tokens)
    source, filled = fill_in(model, batch)
    surviving = []
    for b, t in target.ne(PAD).nonzero().tolist():
        gold = int(target[b, t])
        if (gold, int(filled[b, t])) not in pairs:
            surviving.append(logits[b, t].logsumexp(0) - logits[b, t, gold])
    predicted, truth = states_of(model, filled, source), states_of(model, source, source).detach()
    real = source.ne(PAD).nonzero().tolist()
    divergence = sum(kl(predicted[b, t], truth[b, t]) for b, t in real) / len(real)
    loss = mlm * sum(surviving) / len(surviving) + sr * divergence
    if nsp:
        labels = batch["sentence_target"]
        loss = loss + nsp * nn.functional.cross_entropy(extra["nsp_logits"].float(), labels)
    return SimpleNamespace(loss=loss, survivors=len(surviving), sr=divergence.item() / math.log(2))


def write_table(path, model, batch) -> set[tuple[int, int]]:
    """A table that corrects some wrong predictions; returns (gold, predicted)."""
    source, filled = fill_in(model, batch)
    wrong = [(int(source[b, t]), int(filled[b, t])) for b, t in source.ne(filled).nonzero().tolist()]
    pairs = dict(wrong[::2])
    symbols = make_dictionary().symbols
    path.write_text("".join(f"{symbols[g]}\t{symbols[p]}\n" for g, p in pairs.items()))
    return set(pairs.items())


# architecture, criterion, options, has synonyms, task with NSP, fairseq's own batch, weights of the reference
CASES = [
    ("tn_bert", "mlm_soft_reg", {}, False, False, False, {}),
    ("tn_bert", "mlm_soft_reg", {"soft_reg_weight": 0.3}, True, True, False, {"sr": 0.3}),
    ("tn_bert", "bert_pretraining", {"soft_reg_weight": 2.0}, False, True, False, {"sr": 2, "nsp": 1}),
    ("tn_bert", "mlm_soft_reg", {"mlm_weight": 0.0}, False, False, False, {"mlm": 0}),
    ("tn_bert", "mlm_soft_reg", {}, False, False, True, {}),
    ("roberta", "mlm_soft_reg", {}, False, False, False, {}),
    ("roberta", "mlm_soft_reg", {"soft_reg_weight": 0.5}, True, False, True, {"sr": 0.5}),
    ("roberta", "mlm_soft_reg", {"mlm_weight": 0.0}, False, False, True, {"mlm": 0}),
]


def case_id(case) -> str:
    architecture, name, options, synonyms, nsp, own, _ = case
    parts = [architecture, name, *(f"{k}={v}" for k, v in options.items())]
    parts += [word for word, given in (("synonyms", synonyms), ("pairs", nsp), ("masked_lm", own)) if given]
    return " ".join(parts)


def set_up(case, path, seed: int = 0):
    architecture, name, options, synonyms, nsp, own, weights = case
    task = make_task(nsp)
    model, batch = ARCHITECTURES[architecture](task, seed), make_batch(seed + 10, nsp=nsp)
    pairs: set = set()
    if synonyms:
        pairs = write_table(path, model, batch)
        options = {**options, "synonyms": str(path)}
    criterion = make_criterion(name, task, model, soft_reg_level="sentence", **options)
    if own:
        batch = {k: batch[k] for k in ("id", "net_input", "target", "nsentences", "ntokens")}
    return criterion, model, batch, pairs, weights


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_loss_gradient_and_log_follow_the_equations(case, tmp_path):
    criterion, model, batch, pairs, weights = set_up(case, tmp_path / "table.txt")
    loss, sample_size, log = criterion(model, batch)
    expected = reference(model, batch, pairs, **weights)
    assert int(sample_size) == expected.survivors
    assert (expected.survivors < len(batch["target"][batch["target"] != PAD])) == bool(pairs)
    assert expected.sr > 0.01
    assert (loss / sample_size).item() == pytest.approx(expected.loss.item(), rel=1e-6)
    actual = gradients_of(loss / sample_size, model)
    assert_same(actual, gradients_of(expected.loss, model), model)
    logged = reduced(type(criterion), [log])
    assert logged["sr_loss"] == pytest.approx(expected.sr, abs=1e-4)
    assert logged["loss"] == pytest.approx(expected.loss.item() / math.log(2), abs=1e-3)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("special", [S, PAD, E, 4 + NUM_WORDS])
def test_special_tokens_that_are_predicted_do_no_harm(architecture, special):
    task = make_task(nsp=False)
    model, batch = ARCHITECTURES[architecture](task), make_batch(10, nsp=False)
    head = model.lm_head if architecture == "tn_bert" else model.encoder.lm_head
    with torch.no_grad():
        head.bias[special] = 5
    source, filled = fill_in(model, batch)
    selected = batch["target"].ne(PAD)
    assert filled[selected].eq(special).sum() > 1
    criterion = make_criterion("mlm_soft_reg", task, model, soft_reg_level="sentence")
    loss, sample_size, _ = criterion(model, batch)
    if architecture == "roberta" and special == PAD:
        # the one token that a roberta cannot read: it is taken for an unknown one
        filled = torch.where(filled.eq(PAD) & source.ne(PAD), 3, filled)
    real = source.ne(PAD)
    if architecture == "tn_bert":
        encoder = model.encoder
        embedded = encoder.embed_tokens(filled) + encoder.embed_positions.weight[: source.size(1)]
        embedded = encoder.embed_layer_norm(embedded + encoder.embed_segments.weight[0])
        states = encoder.encode(embedded, ~real)[0]
    else:
        states = states_of(model, filled, source)
    truth = states_of(model, source, source).detach()
    divergence = sum(kl(p, q) for p, q in zip(states[real], truth[real], strict=True)) / real.sum()
    logits = model(batch["net_input"]["src_tokens"])[0]
    mlm = nn.functional.cross_entropy(logits[selected], batch["target"][selected])
    expected = mlm + divergence
    assert (loss / sample_size).item() == pytest.approx(expected.item(), rel=1e-6)
    assert_same(gradients_of(loss / sample_size, model), gradients_of(expected, model), model)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("level", "passes"), [("word", 1), ("sentence", 3)])
def test_how_often_the_encoder_runs(architecture, level, passes):
    task = make_task(nsp=False)
    model, batch = ARCHITECTURES[architecture](task), make_batch(10, nsp=False)
    criterion = make_criterion("mlm_soft_reg", task, model, soft_reg_level=level)
    encoder = model.encoder if architecture == "tn_bert" else model.encoder.sentence_encoder
    source, filled = fill_in(model, batch)
    read, graphs = [], []
    encoder.register_forward_hook(lambda _, inputs, output: read.append(inputs[0]))
    encoder.layers[-1].register_forward_hook(
        lambda _, i, output: graphs.append((output if torch.is_tensor(output) else output[0]).requires_grad)
    )
    criterion(model, batch)
    assert len(read) == passes
    for tokens, expected in zip(read, (batch["net_input"]["src_tokens"], filled, source), strict=False):
        assert torch.equal(tokens, expected)
    # the pass over the original is without a graph
    assert graphs == [True, True, False][:passes]


def test_right_predictions_cost_nothing_and_dropout_stays_on():
    task = make_task(nsp=False)
    model, batch = make_tn_bert(task), make_batch(10, nsp=False)
    criterion = make_criterion("mlm_soft_reg", task, model, soft_reg_level="sentence")
    filled = fill_in(model, batch)[1]
    batch["target"] = torch.where(batch["target"].ne(PAD), filled, PAD)  # now they are right
    assert criterion(model, batch)[2]["sr_loss"].item() == pytest.approx(0, abs=1e-12)
    for layer in model.encoder.layers:
        layer.dropout = 0.3
    assert criterion(model.train(), batch)[2]["sr_loss"] > 0.1
    assert criterion(model.eval(), batch)[2]["sr_loss"].item() == pytest.approx(0, abs=1e-12)


def test_two_processes_have_the_gradient_of_one(tmp_path):
    """torch's DistributedDataParallel finds no parameter without gradient, and takes the mean of both halves'."""
    cases = [case for case in CASES if not case[5]]
    prepared = [set_up(case, tmp_path / f"{number}.txt") for number, case in enumerate(cases)]

    def work(rank: int) -> list[dict[str, Tensor]]:
        found = []
        for criterion, model, batch, *_ in prepared:
            part = halves(batch)[rank]
            wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=False)
            for _ in range(2):  # DDP complains about the first iteration in the second
                model.zero_grad(set_to_none=True)
                criterion(wrapped, part)[0].backward()
            found.append({name: 2 * gradient for name, gradient in gradients(model).items()})
        return found

    first, second = run_in_two_processes(tmp_path / "ddp", work)
    for (criterion, model, batch, *_), one, two in zip(prepared, first, second, strict=True):
        assert_same(one, two, model)
        model.zero_grad(set_to_none=True)
        for part in halves(batch):
            criterion(model, part)[0].backward()
        assert_same(one, gradients(model), model)


def test_a_double_batch_has_the_gradient_of_its_halves():
    """Where both have as many tokens and selected positions, so that no ratio within a batch differs."""
    task = make_task(nsp=False)
    batch = make_batch(11, lengths=(14, 9, 14, 9), nsp=False)
    masked = torch.zeros(batch["source"].shape, dtype=torch.bool)
    masked[0, 2:6] = masked[1, 3:7] = masked[2, 7:10] = masked[3, 1:6] = True
    batch["net_input"]["src_tokens"] = batch["source"].masked_fill(masked, 4 + NUM_WORDS)
    batch["target"] = batch["source"].masked_fill(~masked, PAD)
    batch["selected"] = masked.reshape(-1).nonzero().squeeze(1)
    for make in ARCHITECTURES.values():
        model = make(task)
        criterion = make_criterion("mlm_soft_reg", task, model, soft_reg_level="sentence")
        whole = gradients_of(criterion(model, batch)[0], model)
        model.zero_grad(set_to_none=True)
        for part in halves(batch):
            criterion(model, part)[0].backward()
        assert_same(gradients(model), whole, model)
