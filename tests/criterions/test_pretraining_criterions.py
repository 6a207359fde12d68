"""The pre-training criterions against a reference that adds up the equations position by position."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from small_pretraining import (
    NUM_WORDS,
    PAD,
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
    mean_cosine_of_words,
    reduced,
)
from torch import Tensor

from fairseq_tn.errors import UserError
from fairseq_tn.models.bert import TnBertModel

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra


def run_model(model, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """All logits, last states, NSP logits and input embedding, asked for in the plainest way."""
    logits, extra = model(tokens)
    if isinstance(model, TnBertModel):
        return logits, extra["features"], extra["nsp_logits"], model.encoder.embed_tokens.weight
    states = model(tokens, features_only=True)[0]
    return logits, states, None, model.encoder.sentence_encoder.embed_tokens.weight


def write_table(path, model, batch) -> set[tuple[int, int]]:
    """A table that corrects every second wrong prediction of ``model``; returns (gold, predicted)."""
    logits = run_model(model, batch["net_input"]["src_tokens"])[0]
    pairs: dict[int, set[int]] = {}
    wrong = 0
    for b, t in batch["target"].ne(PAD).nonzero().tolist():
        gold, predicted = int(batch["target"][b, t]), int(logits[b, t].argmax())
        if gold != predicted:
            wrong += 1
            if wrong % 2:
                pairs.setdefault(gold, set()).add(predicted)
    symbols = make_dictionary().symbols
    lines = [f"{symbols[g]}\t{' '.join(symbols[p] for p in sorted(others))}\n" for g, others in pairs.items()]
    path.write_text("".join(lines))
    return {(gold, predicted) for gold, others in pairs.items() for predicted in others}


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a.norm() * b.norm())


def reference(
    model, batch, pairs=(), mlm=1.0, sr=0.0, tacl=0.0, nsp=0.0, temperature=0.01
) -> SimpleNamespace:
    """Each term as a mean over its own units, and what the log should say."""
    tokens, target, source = batch["net_input"]["src_tokens"], batch["target"], batch.get("source")
    logits, states, nsp_logits, embedding = run_model(model, tokens)
    nll, surviving, distances, contrasts, sentences = [], [], [], [], []
    wrong = corrected = right = matched = 0
    touched = set()
    for b in range(target.size(0)):
        for t in range(target.size(1)):
            gold = int(target[b, t])
            if gold == PAD:
                continue
            predicted = int(logits[b, t].argmax())
            loss = logits[b, t].logsumexp(0) - logits[b, t, gold]
            nll.append(loss)
            right += predicted == gold
            wrong += predicted != gold
            if (gold, predicted) in pairs:
                corrected += 1
                touched.add(b)
            else:
                surviving.append(loss)
            distances.append(1 - cosine(embedding[gold], embedding[predicted]))
            if tacl:
                real = [j for j in range(target.size(1)) if source[b, j] != PAD]
                scores = torch.stack(
                    [cosine(states[b, t], batch["teacher_states"][b, j]) / temperature for j in real]
                )
                contrasts.append(scores.logsumexp(0) - scores[real.index(t)])
                matched += real[int(scores.argmax())] == t
    nsp_right = 0
    if nsp:
        for b, label in enumerate(batch["sentence_target"].tolist()):
            sentences.append(nsp_logits[b].logsumexp(0) - nsp_logits[b, label])
            nsp_right += int(nsp_logits[b].argmax()) == label

    def mean(values):
        return sum(values) / len(values) if values else torch.zeros((), dtype=torch.float64)

    loss = mlm * mean(surviving) + sr * mean(distances) + tacl * mean(contrasts) + nsp * mean(sentences)
    bits = math.log(2)
    log = {"loss": loss.item() / bits}
    if mlm or sr:
        log |= {"mlm_loss": mean(nll).item() / bits, "mlm_acc": 100 * right / len(nll)}
    if sr:
        log |= {"sr_loss": mean(distances).item(), "emb_cos": mean_cosine_of_words(embedding)}
    if pairs:
        log |= {"hc_pred": 100 * corrected / wrong, "hc_seq": 100 * len(touched) / target.size(0)}
    if tacl:
        log |= {"tacl_loss": mean(contrasts).item() / bits, "tacl_acc": 100 * matched / len(nll)}
    if nsp:
        log |= {"nsp_loss": mean(sentences).item() / bits, "nsp_acc": 100 * nsp_right / len(sentences)}
    return SimpleNamespace(loss=loss, survivors=len(surviving), log=log, corrected=corrected)


# name, has synonyms, options, task with NSP, weights of the reference
CASES = [
    ("bert_pretraining", False, {}, True, {"nsp": 1}),
    ("bert_pretraining", False, {}, False, {}),
    ("bert_pretraining", False, {"nsp_weight": 0.0}, True, {}),
    ("bert_pretraining", False, {"mlm_weight": 0.5, "nsp_weight": 3.0}, True, {"mlm": 0.5, "nsp": 3}),
    ("bert_pretraining", False, {"mlm_weight": 0.0}, True, {"mlm": 0, "nsp": 1}),
    ("bert_pretraining", True, {"soft_reg_weight": 2.0}, True, {"sr": 2, "nsp": 1}),
    ("bert_pretraining", False, {"mlm_weight": 0.0, "soft_reg_weight": 2.0}, False, {"mlm": 0, "sr": 2}),
    ("mlm_hard_correction", True, {}, True, {}),
    ("mlm_hard_correction", True, {}, False, {}),
    ("mlm_hard_correction", True, {"nsp_weight": 1.0}, True, {"nsp": 1}),
    ("mlm_hard_correction", True, {"mlm_weight": 2.0, "soft_reg_weight": 0.5}, False, {"mlm": 2, "sr": 0.5}),
    ("mlm_soft_reg", False, {}, True, {"sr": 1}),
    ("mlm_soft_reg", True, {"soft_reg_weight": 0.3}, False, {"sr": 0.3}),
    ("tacl_contrastive", False, {}, True, {"tacl": 1, "nsp": 1}),
    ("tacl_contrastive", False, {"temperature": 0.3}, False, {"tacl": 1, "temperature": 0.3}),
    ("tacl_contrastive", False, {"mlm_weight": 0.0, "nsp_weight": 0.0}, True, {"mlm": 0, "tacl": 1}),
    ("tacl_contrastive", False, {"mlm_weight": 0.0}, True, {"mlm": 0, "tacl": 1, "nsp": 1}),
    (
        "tacl_contrastive",
        True,
        {"tacl_weight": 0.5, "soft_reg_weight": 1.0, "nsp_weight": 2.0},
        True,
        {"tacl": 0.5, "sr": 1, "nsp": 2},
    ),
    (
        "tacl_contrastive",
        False,
        {"mlm_weight": 0.0, "soft_reg_weight": 1.0},
        True,
        {"mlm": 0, "sr": 1, "tacl": 1, "nsp": 1},
    ),
]


def case_id(case) -> str:
    name, synonyms, options, nsp, _ = case
    parts = [name, "synonyms" if synonyms else "", *(f"{k}={v}" for k, v in options.items())]
    return " ".join(filter(None, [*parts, "pairs" if nsp else "blocks"]))


def set_up(case, tmp_path, architecture=make_tn_bert, seed: int = 0):
    name, synonyms, options, nsp, weights = case
    task = make_task(nsp)
    model = architecture(task, seed)
    batch = make_batch(seed + 10, nsp=nsp)
    pairs: set = set()
    if synonyms:
        pairs = write_table(tmp_path / "synonyms.txt", model, batch)
        assert pairs
        options = {**options, "synonyms": str(tmp_path / "synonyms.txt")}
    return make_criterion(name, task, model, **options), model, batch, pairs, weights


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_loss_denominator_gradient_and_log_follow_the_equations(case, tmp_path):
    criterion, model, batch, pairs, weights = set_up(case, tmp_path)
    loss, sample_size, log = criterion(model, batch)
    expected = reference(model, batch, pairs, **weights)
    if pairs:
        assert min(expected.corrected, expected.survivors) > 3
    assert int(sample_size) == expected.survivors
    assert (loss / sample_size).item() == pytest.approx(expected.loss.item(), rel=1e-6)
    actual = gradients_of(loss / sample_size, model)
    assert_same(actual, gradients_of(expected.loss, model), model)

    assert log["ntokens"] == batch["ntokens"]
    assert log["nsentences"] == 4
    logged = reduced(type(criterion), [log])
    assert logged == pytest.approx(expected.log, abs=6e-4, rel=1e-4)


@pytest.mark.parametrize("case", [CASES[8], CASES[11], CASES[14]], ids=case_id)
def test_fairseq_s_roberta_gives_the_same(case, tmp_path):
    """TaCL reads the batch of ``teacher_student --no-nsp``, HC and SR that of fairseq's own ``masked_lm``."""
    name, synonyms, options, _, weights = case
    criterion, model, batch, pairs, _ = set_up(
        (name, synonyms, options, False, weights), tmp_path, make_roberta
    )
    if name != "tacl_contrastive":
        batch = {k: batch[k] for k in ("id", "net_input", "target", "nsentences", "ntokens")}
    loss, sample_size, log = criterion(model, batch)
    expected = reference(model, batch, pairs, **weights)
    assert int(sample_size) == expected.survivors
    assert (loss / sample_size).item() == pytest.approx(expected.loss.item(), rel=1e-6)
    actual = gradients_of(loss / sample_size, model)
    assert_same(actual, gradients_of(expected.loss, model), model)
    assert reduced(type(criterion), [log]) == pytest.approx(expected.log, abs=6e-4, rel=1e-4)


def test_tacl_alone_trains_all_of_roberta_but_its_head(tmp_path):
    case = ("tacl_contrastive", False, {"mlm_weight": 0.0}, False, {"mlm": 0, "tacl": 1})
    criterion, model, batch, _, weights = set_up(case, tmp_path, make_roberta)
    loss, sample_size, _ = criterion(model, batch)
    actual = gradients_of(loss / sample_size, model)
    assert_same(actual, gradients_of(reference(model, batch, **weights).loss, model), model)
    assert not any("lm_head.dense" in name for name in actual)


SINGLE_DENOMINATOR = [case for case in CASES if not case[3] or case[2].get("nsp_weight") == 0.0]
SINGLE_DENOMINATOR = [case for case in SINGLE_DENOMINATOR if not (case[1] and case[2].get("soft_reg_weight"))]


@pytest.mark.parametrize("case", SINGLE_DENOMINATOR, ids=case_id)
def test_a_double_batch_has_the_gradient_of_its_halves(case, tmp_path):
    criterion, model, batch, _, _ = set_up(case, tmp_path)
    loss, sample_size, log = criterion(model, batch)
    whole = gradients_of(loss, model)
    model.zero_grad(set_to_none=True)
    sizes, logs = 0, []
    for part in halves(batch):
        loss_of_part, size_of_part, log_of_part = criterion(model, part)
        loss_of_part.backward()
        sizes += size_of_part
        logs.append(log_of_part)
    assert int(sizes) == int(sample_size)
    assert_same(gradients(model), whole, model)
    assert reduced(type(criterion), logs) == pytest.approx(reduced(type(criterion), [log]), abs=2e-3)


@pytest.mark.parametrize("case", [CASES[0], CASES[9], CASES[17]], ids=case_id)
def test_logs_of_several_workers_are_means_over_all_of_them(case, tmp_path):
    """Sums and counts are logged, so that fairseq may add up the workers' logs before reducing."""
    criterion, model, batch, _, _ = set_up(case, tmp_path)
    logs = [criterion(model, part)[2] for part in halves(batch)]
    assert criterion.logging_outputs_can_be_summed()
    assert logs[0].keys() == logs[1].keys()
    added = {key: sum(log[key] for log in logs) for key in logs[0]}
    logged = reduced(type(criterion), logs)
    assert logged == pytest.approx(reduced(type(criterion), [added]))
    expected = reduced(type(criterion), [criterion(model, batch)[2]])
    single = {k: v for k, v in expected.items() if k != "loss"}  # loss is scaled by in-batch ratios
    assert {k: v for k, v in logged.items() if k != "loss"} == pytest.approx(single, abs=2e-3)


def test_synonyms_change_the_loss_but_not_the_logged_mlm_loss(tmp_path):
    case = ("mlm_hard_correction", True, {}, False, {})
    criterion, model, batch, _, _ = set_up(case, tmp_path)
    plain = make_criterion("bert_pretraining", make_task(False))
    with_hc, without = criterion(model, batch), plain(model, batch)
    assert with_hc[0] < without[0]
    logged, baseline = reduced(type(criterion), [with_hc[2]]), reduced(type(plain), [without[2]])
    assert logged["mlm_loss"] == baseline["mlm_loss"] == baseline["loss"]
    assert logged["mlm_acc"] == baseline["mlm_acc"]
    assert logged["loss"] != baseline["loss"]


def test_without_survivors_the_step_is_zero_and_not_nan(tmp_path):
    task = make_task(False)
    model, batch = make_tn_bert(task), make_batch(1, nsp=False)
    symbols = task.source_dictionary.symbols
    words = symbols[4 : 4 + NUM_WORDS]
    # only the right answer is no synonym; take a model that is never right
    lines = [f"{word}\t{' '.join(s for s in words if s != word)}\n" for word in words]
    (tmp_path / "all.txt").write_text("".join(lines))
    logits = run_model(model, batch["net_input"]["src_tokens"])[0]
    batch["target"] = torch.where(batch["target"].ne(PAD), 4 + (logits.argmax(-1) - 4 + 1) % NUM_WORDS, PAD)
    criterion = make_criterion(
        "mlm_hard_correction", task, model, synonyms=str(tmp_path / "all.txt"), soft_reg_weight=1.0
    )
    loss, sample_size, log = criterion(model, batch)
    assert (loss.item(), int(sample_size)) == (0.0, 0)
    for gradient in gradients_of(loss, model).values():
        assert gradient.isfinite().all()
    logged = reduced(type(criterion), [log])
    assert logged["loss"] == 0
    assert logged["hc_pred"] == 100
    assert logged["hc_seq"] == 75  # one of the four has nothing selected


def test_a_batch_without_selected_positions_is_zero_and_not_nan():
    task = make_task(False)
    model, batch = make_tn_bert(task), make_batch(1, nsp=False)
    batch["target"] = torch.full_like(batch["target"], PAD)
    batch |= {"selected": batch["selected"][:0], "max_selected": 0}
    for name, options in (("bert_pretraining", {}), ("mlm_soft_reg", {}), ("tacl_contrastive", {})):
        criterion = make_criterion(name, task, model, **options)
        loss, sample_size, log = criterion(model, batch)
        assert (loss.item(), int(sample_size)) == (0.0, 0)
        assert all(gradient.eq(0).all() for gradient in gradients_of(loss, model).values())
        assert all(math.isfinite(value) for value in reduced(type(criterion), [log]).values())


# --- the watch on the embedding -------------------------------------------------------------------------------------


def test_emb_cos_looks_at_evenly_spaced_ordinary_rows_of_a_large_vocabulary():
    task = make_task(nsp=False)
    for n in range(5000):
        task.source_dictionary.add_symbol(f"[unused{n}]" if n % 2 else f"more{n}")
    criterion = make_criterion("mlm_soft_reg", task)
    rows = criterion.watched_rows.tolist()
    symbols = [task.source_dictionary[row] for row in rows]
    assert len(set(rows)) == 1024
    assert all(symbol.startswith(("w", "more")) for symbol in symbols)
    assert rows == sorted(rows)
    assert max(b - a for a, b in itertools.pairwise(rows)) <= 6
    assert criterion.state_dict() == {}  # no checkpoint holds them


def test_emb_cos_is_the_mean_over_workers_and_updates():
    task = make_task(nsp=False)
    criterion = make_criterion("mlm_soft_reg", task)
    batch = make_batch(3, nsp=False)
    models = [make_tn_bert(task, seed) for seed in (1, 2)]
    values = [mean_cosine_of_words(model.encoder.embed_tokens.weight) for model in models]
    logs = [criterion(model, batch)[2] for model in models]
    assert abs(values[0] - values[1]) > 1e-3
    assert reduced(criterion, logs)["emb_cos"] == pytest.approx(sum(values) / 2, abs=6e-5)
    # as fairseq adds them up over workers
    summed = {key: sum(log[key] for log in logs) for key in logs[0]}
    assert reduced(criterion, [summed])["emb_cos"] == pytest.approx(sum(values) / 2, abs=6e-5)


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("mlm_hard_correction", {}, "--synonyms FILE"),
        ("mlm_soft_reg", {"soft_reg_weight": 0.0}, "--soft-reg-weight"),
        ("mlm_soft_reg", {"soft_reg_weight": -1.0}, "--soft-reg-weight"),
        ("bert_pretraining", {"mlm_weight": -1.0}, "--mlm-weight"),
        ("bert_pretraining", {"nsp_weight": float("nan")}, "--nsp-weight"),
        ("bert_pretraining", {"mlm_weight": 0.0, "nsp_weight": 0.0}, "--mlm-weight"),
        ("tacl_contrastive", {"tacl_weight": float("inf")}, "--tacl-weight"),
        ("tacl_contrastive", {"temperature": 0.0}, "--temperature"),
        ("tacl_contrastive", {"temperature": -0.01}, "--temperature"),
        ("tacl_contrastive", {"temperature": float("nan")}, "--temperature"),
        ("bert_pretraining", {"synonyms": "gone.txt"}, "gone.txt"),
        ("bert_pretraining", {"synonyms": "gone.txt", "mlm_weight": 0.0}, "--mlm-weight 0"),
    ],
)
def test_bad_options_are_named(name, options, named):
    with pytest.raises(UserError) as error:
        make_criterion(name, make_task(nsp=True), **options)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_that_would_train_nothing_is_refused():
    with pytest.raises(UserError, match="--mlm-weight"):
        make_criterion("bert_pretraining", make_task(nsp=False), mlm_weight=0.0)
    with pytest.raises(UserError, match="--mlm-weight"):
        make_criterion("tacl_contrastive", make_task(nsp=False), mlm_weight=0.0, tacl_weight=0.0)


def test_tacl_without_a_teacher_names_the_task_that_has_one():
    with pytest.raises(UserError, match="--task teacher_student"):
        make_criterion("tacl_contrastive", make_task(nsp=True, teacher=False))


def test_sentence_pairs_need_a_model_with_a_sentence_head():
    task = make_task(nsp=True)
    with pytest.raises(UserError, match="--no-nsp"):
        make_criterion("bert_pretraining", task, make_roberta(task))


# --- DistributedDataParallel --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process_group(tmp_path_factory):
    """This process alone; enough for the check that every parameter has a gradient."""
    init = tmp_path_factory.mktemp("ddp") / "init"
    torch.distributed.init_process_group("gloo", init_method=f"file://{init}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_torch_s_ddp_finds_no_parameter_without_gradient(case, tmp_path, process_group):
    criterion, model, batch, _, _ = set_up(case, tmp_path)
    expected = gradients_of(criterion(model, batch)[0], model)
    model.zero_grad(set_to_none=True)
    wrapped = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=False)
    for _ in range(2):  # DDP complains about the first iteration in the second
        loss, _, _ = criterion(wrapped, batch)
        model.zero_grad(set_to_none=True)
        loss.backward()
    assert_same(gradients(model), expected, model)
