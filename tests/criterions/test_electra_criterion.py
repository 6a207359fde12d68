"""Criterion ``electra`` against a reference that adds up the equations position by position in float64."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
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
    make_tn_electra,
    mean_cosine_of_words,
    reduced,
)
from torch import Tensor, nn
from two_processes import run_in_two_processes

import fairseq_tn.models.electra as electra_module
from fairseq_tn.errors import UserError
from fairseq_tn.losses import most_likely

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra

SEED = 28


def draw(model, batch) -> tuple[Tensor, Tensor]:
    """The generator's logits and the tokens that the next run after ``torch.manual_seed(SEED)`` will draw."""
    torch.manual_seed(SEED)
    logits, extra = model(**batch["net_input"], masked_tokens=batch["selected"], source=batch["source"])
    return logits, extra["sampled"]


def run(criterion, model, batch):
    torch.manual_seed(SEED)
    return criterion(model, batch)


def write_table(path, batch, sampled) -> set[tuple[int, int]]:
    """A table that corrects every second wrong token that is drawn; returns (gold, drawn)."""
    gold = batch["target"].reshape(-1)[batch["selected"]]
    wrong = [(g, d) for g, d in zip(gold.tolist(), sampled.tolist(), strict=True) if g != d]
    pairs: dict[int, set[int]] = {}
    for g, d in wrong[::2]:
        pairs.setdefault(g, set()).add(d)
    symbols = make_dictionary().symbols
    lines = [f"{symbols[g]}\t{' '.join(symbols[d] for d in sorted(others))}\n" for g, others in pairs.items()]
    path.write_text("".join(lines))
    return {(g, d) for g, others in pairs.items() for d in others}


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL of the softmaxes of two vectors."""
    log_p, log_q = p - p.logsumexp(0), q - q.logsumexp(0)
    return (log_p.exp() * (log_p - log_q)).sum()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a.norm() * b.norm())


def reference(
    model, batch, sampled, pairs=(), generator=1.0, discriminator=50.0, sr=0.0, level="word"
) -> SimpleNamespace:
    """Each term as a mean over its own units, and what the log should say."""
    tokens, source = batch["net_input"]["src_tokens"], batch["source"]
    logits = model(tokens)[0]
    embedding = model.encoder.embed_tokens.weight
    drawn = dict(zip(batch["selected"].tolist(), sampled.tolist(), strict=True))
    width = source.size(1)
    replaced = source.clone()
    labels = torch.zeros(source.shape, dtype=torch.bool)
    surviving, every, distances, touched = [], [], [], set()
    wrong = corrected = right = 0
    for flat, token in drawn.items():
        b, t = divmod(flat, width)
        gold = int(batch["target"][b, t])
        assert gold == source[b, t]
        replaced[b, t] = token
        loss = logits[b, t].logsumexp(0) - logits[b, t, gold]
        every.append(loss)
        right += int(logits[b, t].argmax()) == gold
        wrong += token != gold
        distances.append(1 - cosine(embedding[gold], embedding[token]))
        if (gold, token) in pairs:
            corrected += 1
            touched.add(b)
        else:
            surviving.append(loss)
            labels[b, t] = token != gold
    states = model.encoder(replaced, layout=source)[0]
    scores = model.discriminator_head(states)
    gold_states = model(source, features_only=True)[0].detach()
    judged, divergences, hits = [], [], {True: [], False: []}
    for b, t in source.ne(PAD).nonzero().tolist():
        truth = bool(labels[b, t])
        probability = scores[b, t].sigmoid()
        judged.append(-(probability if truth else 1 - probability).log())
        hits[truth].append(bool(scores[b, t] > 0) == truth)
        divergences.append(kl(states[b, t], gold_states[b, t]))

    def mean(values):
        return sum(values) / len(values) if values else torch.zeros((), dtype=torch.float64)

    regularisation = mean(distances if level == "word" else divergences)
    loss = generator * mean(surviving) + discriminator * mean(judged) + sr * regularisation
    bits = math.log(2)
    recall, specificity = (100 * sum(hits[kind]) / len(hits[kind]) for kind in (True, False))
    log = {
        "loss": loss.item() / bits,
        "gen_loss": mean(every).item() / bits,
        "gen_acc": 100 * right / len(every),
        "disc_loss": mean(judged).item() / bits,
        "disc_acc": 100 * sum(map(sum, hits.values())) / len(judged),
        "disc_recall": recall,
        "disc_specificity": specificity,
        "disc_bacc": (recall + specificity) / 2,
    }
    if sr:
        log["sr_loss"] = regularisation.item() / (1 if level == "word" else bits)
        log["emb_cos"] = mean_cosine_of_words(embedding)
    if pairs:
        log |= {"hc_pred": 100 * corrected / wrong, "hc_seq": 100 * len(touched) / len(source)}
    return SimpleNamespace(
        loss=loss, survivors=len(surviving), log=log, corrected=corrected, labels=labels, replaced=replaced
    )


SENTENCE = {"soft_reg_level": "sentence"}
# has synonyms, options, weights of the reference
CASES = [
    (False, {}, {}),
    (False, {"generator_weight": 2.0, "discriminator_weight": 10.0}, {"generator": 2, "discriminator": 10}),
    (False, {"generator_weight": 0.0}, {"generator": 0}),
    (False, {"discriminator_weight": 0.0}, {"discriminator": 0}),
    (True, {}, {}),
    (True, {"generator_weight": 0.0}, {"generator": 0}),
    (True, {"discriminator_weight": 0.0}, {"discriminator": 0}),
    (False, {"soft_reg_weight": 1.0}, {"sr": 1}),
    (False, {"soft_reg_weight": 2.0, **SENTENCE}, {"sr": 2, "level": "sentence"}),
    (True, {"soft_reg_weight": 1.0}, {"sr": 1}),
    (True, {"soft_reg_weight": 0.5, **SENTENCE}, {"sr": 0.5, "level": "sentence"}),
    (
        False,
        {"discriminator_weight": 0.0, "soft_reg_weight": 1.0, **SENTENCE},
        {"discriminator": 0, "sr": 1, "level": "sentence"},
    ),
    (
        False,
        {"generator_weight": 0.0, "soft_reg_weight": 1.0, **SENTENCE},
        {"generator": 0, "sr": 1, "level": "sentence"},
    ),
    (
        False,
        {"generator_weight": 0.0, "discriminator_weight": 0.0, "soft_reg_weight": 3.0},
        {"generator": 0, "discriminator": 0, "sr": 3},
    ),
    (
        False,
        {"generator_weight": 0.0, "discriminator_weight": 0.0, "soft_reg_weight": 3.0, **SENTENCE},
        {"generator": 0, "discriminator": 0, "sr": 3, "level": "sentence"},
    ),
]


def case_id(case) -> str:
    synonyms, options, _ = case
    return (
        " ".join(filter(None, ["synonyms" if synonyms else "", *(f"{k}={v}" for k, v in options.items())]))
        or "-"
    )


def set_up(case, tmp_path, seed: int = 0):
    synonyms, options, weights = case
    task = make_task(nsp=False)
    model, batch = make_tn_electra(task, seed), make_batch(seed + 10, nsp=False)
    sampled = draw(model, batch)[1]
    pairs: set = set()
    if synonyms:
        pairs = write_table(tmp_path / "synonyms.txt", batch, sampled)
        assert pairs
        options = {**options, "synonyms": str(tmp_path / "synonyms.txt")}
    return make_criterion("electra", task, model, **options), model, batch, sampled, pairs, weights


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_loss_denominator_gradient_and_log_follow_the_equations(case, tmp_path):
    criterion, model, batch, sampled, pairs, weights = set_up(case, tmp_path)
    loss, sample_size, log = run(criterion, model, batch)
    expected = reference(model, batch, sampled, pairs, **weights)
    if pairs:
        assert min(expected.corrected, expected.survivors) > 3
    assert 3 < expected.labels.sum() < len(sampled) - expected.corrected
    assert expected.log.get("sr_loss", 1) > 0.01
    assert int(sample_size) == expected.survivors
    assert (loss / sample_size).item() == pytest.approx(expected.loss.item(), rel=1e-6)
    actual = gradients_of(loss / sample_size, model)
    assert_same(actual, gradients_of(expected.loss, model), model)
    assert reduced(type(criterion), [log]) == pytest.approx(expected.log, abs=1e-3, rel=1e-4)


@pytest.mark.parametrize("case", [CASES[0], CASES[10]], ids=case_id)
def test_a_batch_of_fairseq_s_own_task_gives_the_same(case, tmp_path):
    criterion, model, batch, _, _, _ = set_up(case, tmp_path)
    loss, sample_size, log = run(criterion, model, batch)
    batch = {k: batch[k] for k in ("id", "net_input", "target", "nsentences", "ntokens")}
    again, same_size, same_log = run(criterion, model, batch)
    assert torch.equal(loss, again)
    assert int(sample_size) == int(same_size)
    assert reduced(type(criterion), [log]) == reduced(type(criterion), [same_log])


def test_the_draw_is_new_in_every_step(tmp_path):
    criterion, model, batch, *_ = set_up(CASES[0], tmp_path)
    first = run(criterion, model, batch)[0]
    assert not torch.equal(first, criterion(model, batch)[0])
    assert torch.equal(first, run(criterion, model, batch)[0])


# --- labels -------------------------------------------------------------------------------------------------------


class SureHead(nn.Module):
    """Stands for the generator's head: it is sure of given tokens."""

    def __init__(self, tokens):
        super().__init__()
        self.logits = nn.Parameter(1e3 * F.one_hot(torch.tensor(tokens), len(make_dictionary())).double())

    def forward(self, features: Tensor, embedding: Tensor) -> Tensor:
        return self.logits


@pytest.mark.parametrize("synonyms", [False, True])
def test_labels_of_gold_synonym_wrong_and_special_tokens(synonyms, tmp_path):
    """w0 w1 w2 w3 w4 are 4 to 8; w2 is a synonym of w1 (but w1 none of w2)."""
    task = make_task(nsp=False)
    model = make_tn_electra(task)
    mask = 4 + NUM_WORDS
    source = torch.tensor([[S, 4, 5, 6, 7, 8, E], [S, 5, 6, 7, E, PAD, PAD]])
    selected = torch.tensor([1, 2, 3, 4, 5, 8, 9])
    drawn = [4, 6, 5, PAD, E, 6, mask]  # gold, synonym, its reverse, <pad>, </s>, synonym, <mask>
    replaced = [False, not synonyms, True, True, True, not synonyms, True]
    model.lm_head = SureHead(drawn)
    masked = torch.zeros(14, dtype=torch.bool).index_fill_(0, selected, True).view_as(source)
    batch = {
        "net_input": {"src_tokens": source.masked_fill(masked, mask), "src_lengths": torch.tensor([7, 5])},
        "source": source,
        "target": source.masked_fill(~masked, PAD),
        "selected": selected,
        "ntokens": 12,
        "nsentences": 2,
    }
    (tmp_path / "table.txt").write_text("w1\tw2\n")
    options = {"synonyms": str(tmp_path / "table.txt")} if synonyms else {}
    criterion = make_criterion("electra", task, **options)
    kept: list = []
    model.register_forward_hook(lambda _, inputs, output: kept.append(output[1]))
    loss, sample_size, log = criterion(model, batch)
    assert kept[0]["sampled"].tolist() == drawn
    scores = kept[0]["discriminator_logits"]
    by_place = dict(zip(selected.tolist(), replaced, strict=True))
    expected = 0.0
    for place in range(14):
        if source.view(-1)[place] != PAD:
            sign = 1 if by_place.get(place) else -1
            expected += math.log1p(math.exp(-sign * scores.view(-1)[place].item()))
    assert log["disc_loss"].item() == pytest.approx(expected, rel=1e-9)
    assert int(log["disc_replaced"]) == sum(replaced)
    # a loss of 1,000 where another token than the gold one is certain, and HC drops two of those
    survivors = 5 if synonyms else 7
    assert int(sample_size) == survivors
    generator = 1000.0 * (4 if synonyms else 6)
    assert loss.item() == pytest.approx(generator + 50 * expected / 12 * survivors)
    if synonyms:
        logged = reduced(type(criterion), [log])
        assert logged["hc_pred"] == pytest.approx(100 * 2 / 6, abs=1e-3)
        assert logged["hc_seq"] == 100


@pytest.mark.parametrize("special", [S, PAD, E, 4 + NUM_WORDS])
@pytest.mark.parametrize("level", ["word", "sentence"])
def test_special_tokens_that_are_drawn_do_no_harm(special, level, tmp_path):
    task = make_task(nsp=False)
    model, batch = make_tn_electra(task), make_batch(3, nsp=False)
    with torch.no_grad():
        model.lm_head.bias[special] = 4
    sampled = draw(model, batch)[1]
    assert sampled.eq(special).sum() > 1
    criterion = make_criterion("electra", task, model, soft_reg_weight=1.0, soft_reg_level=level)
    loss, sample_size, log = run(criterion, model, batch)
    expected = reference(model, batch, sampled, sr=1, level=level)
    assert (loss / sample_size).item() == pytest.approx(expected.loss.item(), rel=1e-6)
    actual = gradients_of(loss / sample_size, model)
    assert_same(actual, gradients_of(expected.loss, model), model)
    assert reduced(type(criterion), [log]) == pytest.approx(expected.log, abs=1e-3, rel=1e-4)


# --- gradients ----------------------------------------------------------------------------------------------------


def test_no_gradient_flows_through_the_draw(tmp_path):
    """The generator's gradient is that of its masked LM alone, whatever the discriminator thinks."""
    criterion, model, batch, *_ = set_up(CASES[0], tmp_path)
    alone = make_criterion("electra", make_task(nsp=False), discriminator_weight=0.0)
    both = gradients_of(run(criterion, model, batch)[0], model)
    mlm = gradients_of(run(alone, model, batch)[0], model)
    compared = [name for name in both if name.startswith(("generator.", "lm_head."))]
    assert len(compared) > 20
    for name in compared:
        torch.testing.assert_close(both[name], mlm[name])


@pytest.mark.parametrize("synonyms", [False, True])
def test_word_level_regularisation_moves_rows_of_gold_and_drawn_tokens_only(synonyms, tmp_path):
    _, model, batch, sampled, _, _ = set_up((synonyms, {}, {}), tmp_path)
    options = {"synonyms": str(tmp_path / "synonyms.txt")} if synonyms else {}
    found = []
    for weight in (0.0, 1.0):
        criterion = make_criterion("electra", make_task(nsp=False), model, soft_reg_weight=weight, **options)
        loss, sample_size, _ = run(criterion, model, batch)
        found.append(gradients_of(loss / sample_size, model))
    changed = {name for name, g in found[0].items() if not torch.allclose(g, found[1][name], atol=1e-12)}
    assert changed == {"encoder.embed_tokens.weight"}
    gold = batch["target"].reshape(-1)[batch["selected"]]
    wrong = sampled.ne(gold)
    difference = (
        (found[1]["encoder.embed_tokens.weight"] - found[0]["encoder.embed_tokens.weight"]).abs().sum(1)
    )
    rows = set(difference.gt(1e-9).nonzero().squeeze(1).tolist())
    assert rows == set(gold[wrong].tolist()) | set(sampled[wrong].tolist())


@pytest.mark.parametrize(("level", "passes"), [("word", 1), ("sentence", 2)])
def test_how_often_each_half_runs(level, passes, tmp_path):
    """Sentence level takes one more pass, of the discriminator over the original, without a graph."""
    options = {"soft_reg_weight": 1.0, "soft_reg_level": level}
    criterion, model, batch, sampled, *_ = set_up((False, options, {}), tmp_path)
    discriminator, generator = [], []
    model.encoder.register_forward_hook(lambda _, i, output: discriminator.append((i[0], output[0])))
    model.generator.layers[0].register_forward_hook(lambda *_: generator.append(1))
    run(criterion, model, batch)
    assert len(generator) == 1
    assert len(discriminator) == passes
    tokens, states = discriminator[0]
    assert torch.equal(tokens.reshape(-1)[batch["selected"]], sampled)
    assert states.requires_grad
    if level == "sentence":
        tokens, states = discriminator[1]
        assert torch.equal(tokens, batch["source"])
        assert not states.requires_grad


def test_sentence_level_keeps_the_mode_of_the_model(tmp_path):
    """With dropout the two passes differ even where the generator is always right."""
    task = make_task(nsp=False)
    model, batch = make_tn_electra(task, dropout=0.3), make_batch(3, nsp=False)
    model.lm_head = SureHead(batch["target"].reshape(-1)[batch["selected"]].tolist())
    criterion = make_criterion("electra", task, soft_reg_weight=1.0, soft_reg_level="sentence")
    assert run(criterion, model.train(), batch)[2]["sr_loss"] > 0.1
    assert run(criterion, model.eval(), batch)[2]["sr_loss"].item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "frozen"),
    [
        ({}, set()),
        ({"generator_weight": 0.0}, {"generator", "lm_head"}),
        ({"discriminator_weight": 0.0}, {"encoder.layers", "encoder.embed_proj", "discriminator_head"}),
        ({"discriminator_weight": 0.0, "soft_reg_weight": 1.0, **SENTENCE}, {"discriminator_head"}),
        (
            {"discriminator_weight": 0.0, "soft_reg_weight": 1.0},
            {"encoder.layers", "encoder.embed_proj", "discriminator_head"},
        ),
    ],
)
def test_what_no_loss_trains_is_frozen(options, frozen):
    """A gradient of zero would do for DDP, but weight decay would shrink what is not trained."""
    task = make_task(nsp=False)
    model = make_tn_electra(task)
    for _ in range(2):  # the second time from other settings
        make_criterion("electra", task, model, **options)
        found = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
        assert found == {n for n, _ in model.named_parameters() if n.startswith(tuple(frozen) or ("-",))}
        model.freeze_halves(generator=True, discriminator=True)


# --- edges --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["word", "sentence"])
def test_without_survivors_the_step_is_zero_and_not_nan(level, tmp_path):
    task = make_task(nsp=False)
    model, batch = make_tn_electra(task), make_batch(1, nsp=False)
    gold = batch["target"].reshape(-1)[batch["selected"]]
    model.lm_head = SureHead((4 + (gold - 4 + 1) % NUM_WORDS).tolist())
    words = task.source_dictionary.symbols[4 : 4 + NUM_WORDS]
    lines = [f"{word}\t{' '.join(s for s in words if s != word)}\n" for word in words]
    (tmp_path / "all.txt").write_text("".join(lines))
    criterion = make_criterion(
        *("electra", task, None),
        synonyms=str(tmp_path / "all.txt"),
        soft_reg_weight=1.0,
        soft_reg_level=level,
    )
    loss, sample_size, log = criterion(model, batch)
    assert (loss.item(), int(sample_size)) == (0.0, 0)
    for gradient in gradients_of(loss, model).values():
        assert gradient.isfinite().all()
    logged = reduced(type(criterion), [log])
    assert logged["loss"] == 0
    assert logged["hc_pred"] == 100
    assert logged["hc_seq"] == 75  # one of the four has nothing selected
    assert int(log["disc_replaced"]) == 0


@pytest.mark.parametrize("level", ["word", "sentence"])
def test_a_batch_without_selected_positions_is_zero_and_not_nan(level):
    task = make_task(nsp=False)
    model, batch = make_tn_electra(task), make_batch(1, nsp=False)
    batch["target"] = torch.full_like(batch["target"], PAD)
    batch["net_input"]["src_tokens"] = batch["source"]
    batch |= {"selected": batch["selected"][:0], "max_selected": 0}
    criterion = make_criterion("electra", task, model, soft_reg_weight=1.0, soft_reg_level=level)
    loss, sample_size, log = criterion(model, batch)
    assert (loss.item(), int(sample_size)) == (0.0, 0)
    assert all(gradient.eq(0).all() for gradient in gradients_of(loss, model).values())
    assert all(math.isfinite(value) for value in reduced(type(criterion), [log]).values())


def test_logs_of_several_workers_are_means_over_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(electra_module, "sample_tokens", most_likely)  # the same for a batch and its halves
    task = make_task(nsp=False)
    model, batch = make_tn_electra(task), make_batch(10, nsp=False)
    write_table(tmp_path / "synonyms.txt", batch, draw(model, batch)[1])
    options = {"synonyms": str(tmp_path / "synonyms.txt"), "soft_reg_weight": 1.0, **SENTENCE}
    criterion = make_criterion("electra", task, model, **options)
    logs = [criterion(model, part)[2] for part in halves(batch)]
    assert criterion.logging_outputs_can_be_summed()
    added = {key: sum(log[key] for log in logs) for key in logs[0]}
    logged = reduced(type(criterion), logs)
    assert logged == pytest.approx(reduced(type(criterion), [added]))
    expected = reduced(type(criterion), [criterion(model, batch)[2]])
    single = {k: v for k, v in expected.items() if k != "loss"}  # loss is scaled by in-batch ratios
    assert len(single) == 11
    assert {k: v for k, v in logged.items() if k != "loss"} == pytest.approx(single, abs=2e-3)


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"generator_weight": -1.0}, "--generator-weight"),
        ({"discriminator_weight": float("nan")}, "--discriminator-weight"),
        ({"soft_reg_weight": float("inf")}, "--soft-reg-weight"),
        ({"generator_weight": 0.0, "discriminator_weight": 0.0}, "--discriminator-weight 50"),
        ({"synonyms": "gone.txt"}, "gone.txt"),
    ],
)
def test_bad_options_are_named(options, named):
    with pytest.raises(UserError) as error:
        make_criterion("electra", make_task(nsp=False), **options)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_sentence_pairs_are_refused():
    with pytest.raises(UserError, match="--no-nsp"):
        make_criterion("electra", make_task(nsp=True))


@pytest.mark.parametrize("make", [make_tn_bert, make_roberta])
def test_other_models_are_refused(make):
    task = make_task(nsp=False)
    with pytest.raises(UserError, match="tn_electra_"):
        make_criterion("electra", task, make(task))
    # fairseq's own task does not show the criterion its model
    with pytest.raises(UserError, match="tn_electra_"):
        make_criterion("electra", task)(make(task), make_batch(1, nsp=False))


@pytest.mark.parametrize("name", ["bert_pretraining", "mlm_soft_reg", "tacl_contrastive"])
def test_the_criterions_of_bert_refuse_electra(name):
    task = make_task(nsp=False)
    with pytest.raises(UserError, match="--criterion electra"):
        make_criterion(name, task, make_tn_electra(task))


# --- two processes ------------------------------------------------------------------------------------------------


def balanced_batch() -> dict:
    """Both halves have as many tokens and selected positions, so that no ratio within a batch differs."""
    batch = make_batch(11, lengths=(14, 9, 14, 9), nsp=False)
    mask, source = 4 + NUM_WORDS, batch["source"]
    masked = torch.zeros(source.shape, dtype=torch.bool)
    masked[0, 2:6] = masked[1, 3:7] = masked[2, 7:10] = masked[3, 1:6] = True
    batch["net_input"]["src_tokens"] = source.masked_fill(masked, mask)
    batch["target"] = source.masked_fill(~masked, PAD)
    batch["selected"] = masked.reshape(-1).nonzero().squeeze(1)
    return batch


def test_two_processes_have_the_gradient_of_one(tmp_path, monkeypatch):
    """torch's DistributedDataParallel finds no parameter without gradient, in every case.

    The mean over two processes, times two, is the sum of both halves' gradients; where no term is scaled by the
    survivors of HC it is that of the whole batch.
    """
    # a draw for a batch is another one than those for its halves
    monkeypatch.setattr(electra_module, "sample_tokens", most_likely)
    batch = balanced_batch()
    prepared = []
    for number, case in enumerate(CASES):
        synonyms, options, _ = case
        task = make_task(nsp=False)
        model = make_tn_electra(task, number)
        if synonyms:
            path = tmp_path / f"{number}.txt"
            write_table(path, batch, draw(model, batch)[1])
            options = {**options, "synonyms": str(path)}
        prepared.append((make_criterion("electra", task, model, **options), model))

    def work(rank: int) -> list[dict[str, Tensor]]:
        part, found = halves(batch)[rank], []
        for criterion, model in prepared:
            wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=False)
            for _ in range(2):  # DDP complains about the first iteration in the second
                model.zero_grad(set_to_none=True)
                criterion(wrapped, part)[0].backward()
            found.append({name: 2 * gradient for name, gradient in gradients(model).items()})
        return found

    first, second = run_in_two_processes(tmp_path / "ddp", work)
    for case, (criterion, model), one, two in zip(CASES, prepared, first, second, strict=True):
        assert_same(one, two, model)
        model.zero_grad(set_to_none=True)
        for part in halves(batch):
            criterion(model, part)[0].backward()
        assert_same(one, gradients(model), model)
        if not case[0]:
            assert_same(one, gradients_of(criterion(model, batch)[0], model), model)
