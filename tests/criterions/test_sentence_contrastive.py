"""Sentence-level contrast: losses and gradients by the equations, several workers, batches of one sentence."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from fairseq import utils as fairseq_utils
from small_pretraining import (
    PAD,
    WIDTH,
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
    reduced,
)
from torch import Tensor, nn
from two_processes import run_in_two_processes

from fairseq_tn.criterions.sentence_contrastive import RECIPES, SentenceContrastiveConfig, recipe_of
from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.tasks.bert_pretraining import BertPretrainingConfig, BertPretrainingTask

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra

NAME = "sentence_contrastive"
# views, options, sentence pairs, weights of MLM and NSP
CASES = [
    ("simcse", {}, True, (1, 1)),
    ("simcse", {"mlm_weight": 0.0, "nsp_weight": 0.0, "projection": "none"}, True, (0, 0)),
    ("simcse", {"pooling": "mean", "contrastive_weight": 2.0, "nsp_weight": 0.0}, False, (1, 0)),
    ("mirror-bert", {"mlm_weight": 0.0}, False, (0, 0)),
    ("mirror-bert", {"temperature": 0.5, "projection": "drop"}, True, (1, 1)),
    ("declutr", {}, False, (1, 0)),
    ("nli", {"mlm_weight": 0.0}, False, (0, 0)),
    ("nli", {"projection": "none", "pooling": "mean"}, False, (1, 0)),
]


def case_id(case) -> str:
    views, options, nsp, _ = case
    return " ".join([views, *(f"{k}={v}" for k, v in options.items()), "pairs" if nsp else "blocks"])


def contrastive_task(views: str, nsp: bool) -> SimpleNamespace:
    task = make_task(nsp)
    task.views, task.model_width = views, WIDTH
    return task


def add_views(batch: dict, views: str) -> dict:
    """Token tensors of the shapes that the task gives."""
    number = len(batch["source"])
    more = {"mirror-bert": {"positives": 1}, "declutr": {"anchors": 2, "positives": 6}}
    roles = {**more, "simcse": {}, "nli": {"positives": 1, "negatives": 1}}[views]
    batch["views"] = {
        role: torch.cat([make_batch(seed, lengths=(7, 5, 9, 4)[:number], nsp=False, width=9)["source"]
                         for seed in range(30, 30 + times)])
        for role, times in roles.items()
    }  # fmt: skip
    return batch


def rows_of(tensor: Tensor, numbers: int, rows: slice) -> Tensor:
    """The rows that belong to some of a batch's sequences."""
    return tensor.view(numbers, -1, tensor.size(1))[rows].flatten(0, 1)


def split(batch: dict) -> list[dict]:
    """The batch as three sequences and one, padded as before."""
    parts = []
    for rows in (slice(0, 3), slice(3, None)):
        part = {
            key: value[rows]
            for key, value in batch.items()
            if isinstance(value, Tensor) and key != "selected"
        }
        masked = part["target"].ne(PAD)
        part |= {
            "net_input": {key: value[rows] for key, value in batch["net_input"].items()},
            "selected": masked.reshape(-1).nonzero().squeeze(1),
            "max_selected": int(masked.sum(1).max()),
            "ntokens": int(part["source"].ne(PAD).sum()),
            "nsentences": len(masked),
            "views": {role: rows_of(tokens, 4, rows) for role, tokens in batch["views"].items()},
        }  # fmt: skip
        parts.append(part)
    return parts


def set_up(case, architecture=make_tn_bert):
    views, options, nsp, _ = case
    task = contrastive_task(views, nsp)
    model = architecture(task)
    torch.manual_seed(1)
    criterion = make_criterion(NAME, task, model, **options).double()
    if criterion.projection is not None:
        nn.init.normal_(criterion.projection.dense.weight, std=0.5)
    return criterion.train(), model, add_views(make_batch(10, nsp=nsp), views)


class Both(nn.Module):
    """A model and the criterion's projection as one module, for their gradients."""

    def __init__(self, model, criterion):
        super().__init__()
        self.model, self.head = model, criterion.projection


def embed(criterion, model, tokens: Tensor) -> Tensor:
    states = model(tokens, features_only=True)[0]
    rows = []
    for sequence, row in zip(tokens, states, strict=True):
        state = row[0] if criterion.recipe.pooling == "cls" else row[sequence.ne(PAD)].mean(0)
        if criterion.recipe.projection != "none":
            state = torch.tanh(criterion.projection.dense(state))
        rows.append(state / state.norm())
    return torch.stack(rows)


def reference(criterion, model, batch, views: str) -> tuple[Tensor, int, int]:
    """The mean contrastive loss, the anchors and how many of them find their positive, term by term."""
    source = batch["source"]
    anchors = embed(criterion, model, batch["views"].get("anchors", source))
    tokens = batch["views"].get("positives", source)
    if len(tokens) == len(anchors):
        positives = embed(criterion, model, tokens)
    else:
        each = len(tokens) // len(anchors)
        groups = []
        for i in range(len(anchors)):
            states = model(tokens[i * each : (i + 1) * each], features_only=True)[0]
            real = tokens[i * each : (i + 1) * each].ne(PAD)
            groups.append(
                torch.stack([row[kept].mean(0) for row, kept in zip(states, real, strict=True)]).mean(0)
            )
        positives = torch.stack([group / group.norm() for group in groups])
    negatives = embed(criterion, model, batch["views"]["negatives"]) if views == "nli" else None
    tau, losses, found = criterion.recipe.temperature, [], 0
    for i, anchor in enumerate(anchors):
        candidates = [*positives] + ([] if negatives is None else [*negatives])
        if views in ("mirror-bert", "declutr"):
            candidates += [a for j, a in enumerate(anchors) if j != i]
            back = [*anchors] + [p for j, p in enumerate(positives) if j != i]
            scores = torch.stack([positives[i] @ c / tau for c in back])
            losses.append(scores.logsumexp(0) - scores[i])
        scores = torch.stack([anchor @ c / tau for c in candidates])
        losses.append(scores.logsumexp(0) - scores[i])
        found += int(scores.argmax()) == i
    return sum(losses) / len(losses), len(anchors), found


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_loss_denominator_gradient_and_log_follow_the_equations(case):
    views, options, nsp, (mlm, with_nsp) = case
    criterion, model, batch = set_up(case)
    loss, sample_size, log = criterion(model, batch)
    both = Both(model, criterion)
    expected, anchors, found = reference(criterion, model, batch, views)
    total = options.get("contrastive_weight", 1.0) * expected
    if mlm or with_nsp:
        plain = make_criterion("bert_pretraining", make_task(nsp), mlm_weight=mlm, nsp_weight=with_nsp)
        others, others_size, others_log = plain(model, batch)
        total = total + others / others_size
        assert (
            reduced(plain, [others_log]).items()
            >= {
                name: value
                for name, value in reduced(criterion, [log]).items()
                if name.startswith(("mlm", "nsp"))
            }.items()
        )
    assert sample_size == len(batch["selected"])
    assert (loss / sample_size).item() == pytest.approx(total.item(), rel=1e-6)
    logged = reduced(criterion, [log])
    assert logged["contrastive_loss"] == pytest.approx(expected.item() / 0.693147, abs=6e-4)
    assert logged["contrastive_acc"] == pytest.approx(100 * found / anchors, abs=6e-4)
    assert_same(gradients_of(loss / sample_size, both), gradients_of(total, both), both)


@pytest.mark.parametrize("views", ["simcse", "declutr"])
def test_fairseq_s_roberta_gives_the_same(views):
    criterion, model, batch = set_up((views, {"mlm_weight": 0.0}, False, (0, 0)), make_roberta)
    loss, sample_size, _ = criterion(model, batch)
    both = Both(model, criterion)
    expected, *_ = reference(criterion, model, batch, views)
    assert (loss / sample_size).item() == pytest.approx(expected.item(), rel=1e-6)
    assert_same(gradients_of(loss / sample_size, both), gradients_of(expected, both), both)


def test_the_batches_of_other_tasks_are_simcse_s():
    criterion, model, batch = set_up(CASES[0])
    with_views = criterion(model, batch)[0].item()
    del batch["views"]
    assert criterion(model, batch)[0].item() == with_views
    del batch["source"]  # as fairseq's masked_lm
    assert criterion(model, batch)[0].item() == with_views


def test_dropout_makes_the_two_views():
    criterion, model, batch = set_up(CASES[1])
    for layer in model.encoder.layers:
        layer.dropout = 0.3
    first, second = (criterion.embed(model.train(), batch["source"]) for _ in range(2))
    assert not torch.allclose(first, second)
    model.eval()
    assert torch.equal(criterion.embed(model, batch["source"]), criterion.embed(model, batch["source"]))


def test_defaults_follow_the_paper_of_the_views():
    def resolved(views, **options):
        return tuple(recipe_of(SentenceContrastiveConfig(**options), views))

    assert resolved("simcse") == (0.05, "cls", "drop", False)
    assert resolved("nli") == (0.05, "cls", "keep", False)
    assert resolved("mirror-bert") == (0.04, "mean", "none", True)
    assert resolved("declutr") == (0.05, "mean", "none", True)
    given = {"temperature": 0.2, "pooling": "mean", "projection": "none"}
    assert resolved("simcse", **given) == (0.2, "mean", "none", False)
    assert set(RECIPES) == {"simcse", "nli", "mirror-bert", "declutr"}


# --- several workers ----------------------------------------------------------------------------------------------


def work_of(prepared, parts_of):
    """What a rank computes: fairseq's sum over workers of losses and of gradients, through torch's DDP."""

    def work(rank: int) -> list:
        found = []
        for criterion, model, batch in prepared:
            part = parts_of(batch)[rank]
            both = Both(model, criterion)
            wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=False)
            for _ in range(2):  # DDP complains about the first iteration in the second
                both.zero_grad(set_to_none=True)
                loss, size, log = criterion(wrapped, part)
                if part.get("is_dummy"):
                    loss, size = loss * 0, size * 0
                loss.backward()
            head = {} if criterion.projection is None else gradients(criterion.projection)
            for gradient in head.values():  # fairseq wraps or all-reduces the criterion too
                torch.distributed.all_reduce(gradient)
            # DDP averages, fairseq multiplies by the number of workers
            sums = {f"model.{name}": 2 * gradient for name, gradient in gradients(model).items()}
            sums |= {f"head.{name}": gradient for name, gradient in head.items()}
            found.append((loss.item(), int(size), sums, log))
        return found

    return work


def assert_as_one(prepared, results, whole_of=lambda batch: batch) -> None:
    for (criterion, model, batch), first, second in zip(prepared, *results, strict=True):
        both = Both(model, criterion)
        whole = whole_of(batch)
        loss, size, log = criterion(model, whole)
        assert first[1] + second[1] == size
        assert first[0] + second[0] == pytest.approx(loss.item(), rel=1e-9)
        assert_same(first[2], gradients_of(loss, both), both)
        assert_same(second[2], first[2], both)
        ours = [log for _, rows, _, log in (first, second) if rows]
        assert reduced(criterion, ours) == pytest.approx(reduced(criterion, [log]), abs=2e-3)


# next-sentence loss is scaled by the ratio of each worker's own batch
OF_WORKERS = [case for case in CASES if not case[3][1]]


def test_two_workers_have_the_loss_and_gradient_of_one_with_both_batches(tmp_path):
    prepared = [set_up(case) for case in OF_WORKERS]
    results = run_in_two_processes(tmp_path / "ddp", work_of(prepared, split))
    assert_as_one(prepared, results)


def test_a_worker_without_data_of_its_own_adds_nothing(tmp_path):
    """fairseq lets it repeat its first batch with a loss of 0 times."""
    prepared = [set_up(case) for case in OF_WORKERS[::3]]

    def parts(batch: dict) -> list[dict]:
        first, _ = split(batch)
        return [first, {**first, "is_dummy": True}]

    results = run_in_two_processes(tmp_path / "ddp", work_of(prepared, parts))
    assert_as_one(prepared, results, lambda batch: split(batch)[0])


def test_the_task_marks_what_is_computed_for_nothing():
    task = BertPretrainingTask(BertPretrainingConfig(data="unused"), make_dictionary())
    model, batch, seen = make_tn_bert(make_task(nsp=False)), {"id": torch.zeros(1)}, []

    def criterion(model, sample):
        seen.append(sample)
        return model.nsp_head.bias.sum(), 1, {}

    optimizer = SimpleNamespace(backward=lambda loss: None)
    task.train_step(batch, model, criterion, optimizer, 1)
    task.train_step(batch, model, criterion, optimizer, 2, ignore_grad=True)
    assert [sample.get("is_dummy", False) for sample in seen] == [False, True]
    assert batch.keys() == {"id"}  # fairseq keeps it for later


def test_validation_keeps_to_the_worker_s_own_batch(tmp_path):
    criterion, model, batch = set_up(CASES[2])
    criterion.eval()

    def work(rank: int) -> float:
        return criterion(model, split(batch)[rank])[0].item()

    found = run_in_two_processes(tmp_path / "ddp", work)
    assert found == pytest.approx([criterion(model, part)[0].item() for part in split(batch)])


# --- one sentence ---------------------------------------------------------------------------------------------------


def single(case):
    criterion, model, batch = set_up(case)
    return criterion, model, split(batch)[1]


@pytest.mark.parametrize("case", [CASES[1], CASES[3]], ids=case_id)
def test_the_last_sentence_of_an_epoch_has_no_contrastive_loss(case, caplog):
    criterion, model, alone = single(case)
    company = split(set_up(case)[2])[0]
    criterion(model, alone)  # a run may begin with what is left of an epoch
    criterion(model, company)
    for _ in range(9):
        loss, size, log = criterion(model, alone)
        assert loss.item() == 0
        assert size == len(alone["selected"])
        found = gradients_of(loss, Both(model, criterion))
        assert all(gradient.abs().max() < 1e-12 for gradient in found.values())
    logged = reduced(criterion, [log, criterion(model, company)[2]])
    assert (
        logged["contrastive_loss"] == reduced(criterion, [criterion(model, company)[2]])["contrastive_loss"]
    )
    warnings = [record.getMessage() for record in caplog.records if "single sequence" in record.getMessage()]
    assert len(warnings) == 2  # the first and the tenth
    assert "(10 so far)" in warnings[1]


def test_a_run_of_single_sentences_is_refused():
    criterion, model, alone = single(CASES[1])
    criterion.eval()
    for _ in range(5):  # in validation nothing is at stake
        criterion(model, alone)
    criterion.train()
    for _ in range(2):
        criterion(model, alone)
    with pytest.raises(UserError) as error:
        criterion(model, alone)
    assert "--batch-size" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_hard_negative_and_spans_of_a_document_are_company():
    for case in (CASES[6], CASES[5]):
        criterion, model, alone = single(case)
        for _ in range(4):
            _, _, log = criterion(model, alone)
        assert log["contrastive_loss"] > 0
        assert log["contrastive_anchors"] > 0


# --- the projection, refusals ----------------------------------------------------------------------------------------


def test_the_projection_starts_afresh_and_goes_on_from_a_checkpoint():
    criterion, *_ = set_up(CASES[0])
    other, *_ = set_up(CASES[4])
    kept = {name: value.clone() for name, value in criterion.state_dict().items()}
    assert set(kept) == {"projection.dense.weight", "projection.dense.bias"}
    other.load_state_dict(kept)
    assert torch.equal(other.projection.dense.weight, criterion.projection.dense.weight)
    other.load_state_dict(None)  # of a pre-trained model
    assert torch.equal(other.projection.dense.weight, criterion.projection.dense.weight)
    with pytest.raises(CheckpointMismatch, match="head"):
        other.load_state_dict({"head.out_proj.weight": torch.zeros(2, WIDTH)})


def test_fine_tuning_starts_from_a_checkpoint_with_a_projection():
    kept = set_up(CASES[0])[0].state_dict()
    squad = make_criterion("span_extraction", contrastive_task("simcse", False))
    before = squad.head.out_proj.weight.clone()
    squad.load_state_dict(kept)
    assert torch.equal(squad.head.out_proj.weight, before)
    with pytest.raises(CheckpointMismatch, match="head"):
        squad.load_state_dict({**kept, "head.other": torch.zeros(2)})


@pytest.mark.parametrize("case", [CASES[0], CASES[5], CASES[6]], ids=case_id)
def test_a_training_step_of_one_worker_reads_no_value(case, monkeypatch):
    """On torch's ``meta`` device tensors have none; on a GPU reading one would wait for the device."""
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: contextlib.nullcontext())
    criterion, model, batch = set_up(case)
    batch = fairseq_utils.apply_to_sample(lambda tensor: tensor.to("meta"), batch)
    loss, _, log = criterion.to("meta")(model.to("meta"), batch)
    assert loss.device.type == log["contrastive_loss"].device.type == "meta"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"temperature": -0.1}, "--temperature"),
        ({"temperature": float("nan")}, "--temperature"),
        ({"contrastive_weight": -1.0}, "--contrastive-weight"),
        ({"mlm_weight": 0.0, "nsp_weight": 0.0, "contrastive_weight": 0.0}, "no loss"),
    ],
)
def test_bad_options_are_named(options, named):
    with pytest.raises(UserError) as error:
        make_criterion(NAME, contrastive_task("simcse", True), **options)
    assert named in str(error.value)


def test_a_task_that_knows_no_model_cannot_have_a_projection():
    with pytest.raises(UserError, match="--projection none"):
        make_criterion(NAME, make_task(nsp=False))
    make_criterion(NAME, make_task(nsp=False), projection="none")


def test_electra_is_sent_to_its_own_criterion():
    task = contrastive_task("simcse", False)
    with pytest.raises(UserError, match="--criterion electra"):
        make_criterion(NAME, task, make_tn_electra(task))


def test_hard_correction_and_soft_regularisation_join_in(tmp_path):
    (tmp_path / "synonyms.txt").write_text(
        "".join(f"w{n}\tw{(n + 1) % 24} w{(n + 5) % 24}\n" for n in range(24))
    )
    options = {"synonyms": str(tmp_path / "synonyms.txt"), "soft_reg_weight": 1.0}
    criterion, model, batch = set_up(("simcse", options, True, (1, 1)))
    loss, size, log = criterion(model, batch)
    plain = make_criterion("bert_pretraining", make_task(True), **options)
    others, others_size, _ = plain(model, batch)
    expected, *_ = reference(criterion, model, batch, "simcse")
    assert int(size) == int(others_size) < len(batch["selected"])
    assert (loss / size).item() == pytest.approx((others / others_size + expected).item(), rel=1e-6)
    assert {"hc_corrected", "sr_loss", "contrastive_loss"} <= log.keys()


def test_two_batches_are_not_one():
    """In-batch negatives are those of a batch: halves have easier tasks than the whole."""
    criterion, model, batch = set_up(CASES[1])
    whole = criterion(model, batch)[0].item()
    del batch["views"]
    assert sum(criterion(model, part)[0].item() for part in halves(batch)) < whole
