"""The criterion token_tagging: its losses against plain restatements, its figures, and what distributed runs need."""

import itertools
import math
import sys
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics
from fairseq.models import roberta
from small_tagging import Sentence, ner_folder, prepare, write_conll
from two_processes import run_in_two_processes

import fairseq_tn
from fairseq_tn.compat import unify_transformer_layers
from fairseq_tn.data.tagging import NO_TAG, TaggingDataset
from fairseq_tn.errors import CheckpointMismatch, UserError

fairseq_tn.register()

from fairseq_tn.criterions.token_tagging import (  # noqa: E402
    TokenTaggingCriterion,
    TokenTaggingCriterionConfig,
)
from fairseq_tn.data.tagging_folder import TaggingFacts  # noqa: E402
from fairseq_tn.models.bert import TnBertConfig, TnBertModel  # noqa: E402
from fairseq_tn.models.electra import TnElectraConfig, TnElectraModel  # noqa: E402
from fairseq_tn.tasks.fine_tuning import load_dictionary  # noqa: E402

LOSSES = ("softmax", "crf")


class World:
    """A data folder, a small model on it and a criterion."""

    def __init__(self, folder, loss, seed=0):
        torch.manual_seed(seed)
        self.facts, self.dictionary = TaggingFacts.read(folder), load_dictionary(str(folder))
        sizes = {"encoder_layers": 1, "encoder_embed_dim": 16, "encoder_attention_heads": 2}
        self.model = TnBertModel(TnBertConfig(max_positions=64, **sizes), self.dictionary)
        self.task = SimpleNamespace(
            target_dictionary=self.dictionary,
            model_width=16,
            facts=self.facts,
            source_dictionary=self.dictionary,
        )
        self.criterion = TokenTaggingCriterion(TokenTaggingCriterionConfig(tagging_loss=loss), self.task)
        self.criterion.freeze_unused(self.model)
        for parameter in self.criterion.parameters():  # far from uniform, so that mistakes show
            torch.nn.init.normal_(parameter)
        self.data = {
            split: TaggingDataset(str(folder), split, self.facts, self.dictionary)
            for split in self.facts.longest
        }

    def batch(self, rows, split="train"):
        return self.data[split].collater([self.data[split][row] for row in rows])

    def eval(self):
        self.model.eval()
        self.criterion.eval()
        return self

    def scores(self, row, split="train"):
        """Scores of the labels for each token of one sequence (W x L), computed from its first pieces one by one."""
        item = self.data[split][row]
        states = self.model(torch.tensor([item["tokens"].tolist()]), features_only=True)[0][0]
        head = self.criterion.head.out_proj
        return [head.weight @ states[place] + head.bias for place in item["starts"]], item["tags"].tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return ner_folder(tmp_path_factory.mktemp("ner"))


@pytest.fixture(params=LOSSES)
def world(request, folder):
    return World(folder, request.param)


def plain_loss(world, row, split="train"):
    """Negative log-likelihood of the tags of a sequence, over all sequences of tags for a CRF."""
    scores, tags = world.scores(row, split)
    if world.criterion.crf is None:
        return sum(-torch.log_softmax(score, 0)[tag] for score, tag in zip(scores, tags, strict=True))
    crf = world.criterion.crf

    def value(path):
        total = crf.start_transitions[path[0]] + crf.end_transitions[path[-1]]
        total = total + sum(score[tag] for score, tag in zip(scores, path, strict=True))
        return total + sum(crf.transitions[a, b] for a, b in itertools.pairwise(path))

    labels = range(len(world.facts.labels))
    every = torch.stack([value(path) for path in itertools.product(labels, repeat=len(scores))])
    return torch.logsumexp(every, 0) - value(tags)


def short_rows(world, split="train", most=4):
    return [row for row in range(len(world.data[split])) if len(world.data[split][row]["tags"]) <= most][:5]


def test_loss_is_the_negative_log_likelihood_of_the_tags(world):
    world.eval()
    rows = short_rows(world)
    assert len({len(world.data["train"][row]["tags"]) for row in rows}) > 1
    with torch.no_grad():
        loss, size, log = world.criterion(world.model, world.batch(rows))
        expected = sum(plain_loss(world, row) for row in rows)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
    assert int(size) == sum(len(world.data["train"][row]["tags"]) for row in rows)
    torch.testing.assert_close(log["loss"], loss)


def test_predictions_are_the_most_likely_tags(world):
    world.eval()
    rows = short_rows(world)
    found = world.criterion.predict(world.model, world.batch(rows))
    labels = range(len(world.facts.labels))
    for row, labelled in zip(rows, found, strict=True):
        scores, _ = world.scores(row)
        crf = world.criterion.crf

        def value(path, scores=scores, crf=crf):
            total = sum(score[tag].item() for score, tag in zip(scores, path, strict=True))
            if crf is None:
                return total
            total += (crf.start_transitions[path[0]] + crf.end_transitions[path[-1]]).item()
            return total + sum(crf.transitions[a, b].item() for a, b in itertools.pairwise(path))

        best = max(itertools.product(labels, repeat=len(scores)), key=value)
        assert labelled[: len(scores)].tolist() == list(best)
        assert set(labelled[len(scores) :].tolist()) <= {NO_TAG}


def test_padding_and_order_change_nothing(world):
    world.eval()
    rows = [0, 5, 9, 14]
    with torch.no_grad():
        together = world.criterion(world.model, world.batch(rows))[0]
        backwards = world.criterion(world.model, world.batch(rows[::-1]))[0]
        alone = sum(world.criterion(world.model, world.batch([row]))[0] for row in rows)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(together, backwards, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_further_pieces_of_a_token_have_no_tag(loss, tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "c"]
    vocabulary.write_text("".join(token + "\n" for token in tokens))
    text: list[Sentence] = [[("abb", "B-X"), ("c", "O"), ("ab", "B-X")], [("c", "O")]]
    files = {split: write_conll(tmp_path / split, text) for split in ("train", "valid")}
    prepare(tmp_path / "data", str(vocabulary), **files)
    world = World(tmp_path / "data", loss).eval()
    batch = world.batch([0, 1])
    assert batch["starts"].tolist() == [[1, 4, 5], [1, 0, 0]]
    with torch.no_grad():
        found, size, _ = world.criterion(world.model, batch)
        expected = plain_loss(world, 0) + plain_loss(world, 1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert int(size) == 4


@pytest.mark.parametrize("loss", LOSSES)
def test_tags_that_training_lacks_have_no_loss_and_are_missed(loss, tmp_path):
    files = {
        "train": write_conll(tmp_path / "train", [[("a", "B-X"), ("b", "O")]] * 2),
        "valid": write_conll(tmp_path / "valid", [[("a", "B-Y"), ("b", "O")], [("a", "B-X")]]),
    }
    prepare(tmp_path / "data", **files)
    world = World(tmp_path / "data", loss).eval()
    with torch.no_grad():
        found, size, log = world.criterion(world.model, world.batch([0, 1], "valid"))
        second = plain_loss(world, 1, "valid")
        score, _ = world.scores(0, "valid")
    if loss == "softmax":
        expected = second - torch.log_softmax(score[1], 0)[world.facts.labels.index("O")]
        assert int(size) == 2
    else:  # a sequence with such a tag has no likelihood
        expected = second
        assert int(size) == 1
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (log["tags"], log["spans_gold"]) == (3, 2)
    assert log["tag_correct"] <= 2


@pytest.mark.parametrize("architecture", ["tn_bert", "tn_electra", "roberta"])
def test_every_parameter_that_trains_has_a_gradient(architecture, world):
    """Also where every sequence is one token, without a transition: torch's DDP aborts otherwise."""
    if architecture == "tn_electra":
        config = TnElectraConfig(encoder_layers=1, encoder_embed_dim=16, embedding_dim=8, max_positions=64)
        config._name = "tn_electra_small"
        world.model = TnElectraModel(config, world.dictionary)
    if architecture == "roberta":
        sizes = {"encoder_layers": 1, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 32}
        args = Namespace(**sizes, encoder_attention_heads=2, max_positions=62)
        roberta.base_architecture(args)
        world.model = roberta.RobertaModel.build_model(args, world.task)
        unify_transformer_layers(world.model)
    world.criterion.freeze_unused(world.model)
    rows = [row for row in range(40) if len(world.data["train"][row]["tags"]) == 1][:3]
    assert rows
    world.criterion(world.model, world.batch(rows))[0].backward()
    for name, parameter in [*world.model.named_parameters(), *world.criterion.named_parameters()]:
        assert (parameter.grad is not None) == parameter.requires_grad, name


def test_half_precision_computes_the_loss_in_float32(world):
    """bfloat16 stands for fp16 on the CPU: sums over a sequence would lose all digits."""
    world.eval()
    rows = list(range(12))
    with torch.no_grad():
        exact = world.criterion(world.model, world.batch(rows))[0]
        world.model.bfloat16()
        world.criterion.bfloat16()
        loss = world.criterion(world.model, world.batch(rows))[0]
        logits = world.criterion.logits(world.model, world.batch(rows))
        if world.criterion.crf is not None:
            # the same scores and transitions by pytorch-crf in float32
            target = world.batch(rows)["target"]
            crf = world.criterion.crf.float()
            expected = -crf(logits, target.clamp(min=0), target.ge(0))
            torch.testing.assert_close(loss, expected)
    assert loss.dtype == logits.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=0.05, atol=0.5)


def test_training_learns(world):
    optimizer = torch.optim.Adam([*world.model.parameters(), *world.criterion.parameters()], 0.02)
    for step in range(40):
        optimizer.zero_grad()
        loss, size, log = world.criterion(world.model, world.batch(range(step % 4 * 10, step % 4 * 10 + 10)))
        (loss / size).backward()
        optimizer.step()
        assert ("tag_correct" in log) == (world.criterion.crf is None)
    world.eval()
    log = world.criterion(world.model, world.batch(range(12), "valid"))[2]
    assert log["spans_correct"] > 0.6 * log["spans_gold"]


# --- figures ------------------------------------------------------------------------------------------------------


def logged(logs):
    with metrics.aggregate(new_root=True) as found:
        for group in logs:
            TokenTaggingCriterion.reduce_metrics(group)
    return found.get_smoothed_values()


def test_figures_of_a_split_are_those_of_its_sums(world):
    world.eval()
    batches = [world.batch(rows, "valid") for rows in ([0, 1, 2], [3, 4], range(5, 12))]
    with torch.no_grad():
        logs = [world.criterion(world.model, batch)[2] for batch in batches]
        whole = world.criterion(world.model, world.batch(range(12), "valid"))[2]
    # batches one after the other, and of two workers
    one, two = logged([[log] for log in logs]), logged([logs[:2], logs[2:]])
    assert one == two
    correct, predicted, gold = (whole[f"spans_{name}"] for name in ("correct", "predicted", "gold"))
    assert [sum(log["spans_correct"] for log in logs), sum(log["spans_gold"] for log in logs)] == [
        correct,
        gold,
    ]
    assert one["f1"] == pytest.approx(200 * correct / (predicted + gold), abs=0.006)
    assert one["precision"] == pytest.approx(100 * correct / predicted if predicted else 0, abs=0.006)
    assert one["recall"] == pytest.approx(100 * correct / gold, abs=0.006)
    assert one["accuracy"] == pytest.approx(100 * whole["tag_correct"] / whole["tags"], abs=0.006)
    assert one["loss"] == pytest.approx(
        float(whole["loss"]) / int(whole["sample_size"]) / math.log(2), abs=1e-3
    )
    assert set(one) == {"loss", "accuracy", "precision", "recall", "f1"}


def test_predictions_that_do_not_follow_the_scheme_are_no_entities(folder):
    world = World(folder, "softmax").eval()
    with torch.no_grad():
        world.criterion.head.out_proj.weight.zero_()
        world.criterion.head.out_proj.bias.fill_(0)[world.facts.labels.index("I-PER")] = 1
        log = world.criterion(world.model, world.batch(range(12), "valid"))[2]
    assert log["tag_correct"] > 0
    assert log["spans_predicted"] == log["spans_correct"] == 0 < log["spans_gold"]


def test_nothing_predicted_is_f1_0():
    log = {"loss": 1.0, "sample_size": 2, "tag_correct": 0, "tags": 2}
    spans = {"spans_correct": 0, "spans_predicted": 0, "spans_gold": 0}
    assert logged([[{**log, **spans}]])["f1"] == 0
    assert "f1" not in logged([[log]])


# --- distributed --------------------------------------------------------------------------------------------------


def test_ddp_sums_the_gradients_of_the_workers(folder, tmp_path):
    def gradients(rank):
        world = World(folder, "crf").eval()
        from torch.nn.parallel import DistributedDataParallel

        model, criterion = DistributedDataParallel(world.model), DistributedDataParallel(world.criterion)
        rows = [[1, 2, 3], [4, 5]][rank]
        criterion(model, world.batch(rows))[0].backward()
        # DDP averages
        return {name: 2 * value.grad for name, value in world.criterion.named_parameters()}

    first, second = run_in_two_processes(tmp_path / "group", gradients)
    world = World(folder, "crf").eval()
    for rows in ([1, 2, 3], [4, 5]):
        world.criterion(world.model, world.batch(rows))[0].backward()
    for name, parameter in world.criterion.named_parameters():
        torch.testing.assert_close(first[name], parameter.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(first[name], second[name])


# --- refused ------------------------------------------------------------------------------------------------------


def test_a_head_of_other_labels_is_refused(world, tmp_path):
    tags = ["B-ORG", "I-ORG", "O", "B-LOC"]
    text: list[Sentence] = [list(zip("abcd", tags, strict=True))]
    files = {split: write_conll(tmp_path / split, text) for split in ("train", "valid")}
    prepare(tmp_path / "data", **files)
    loss = "softmax" if world.criterion.crf is None else "crf"
    other = World(tmp_path / "data", loss)
    assert len(other.facts.labels) == len(world.facts.labels)  # the shapes fit
    with pytest.raises(CheckpointMismatch, match="other labels"):
        other.criterion.load_state_dict(world.criterion.state_dict())
    same = World(tmp_path / "data", loss, seed=1)
    same.criterion.load_state_dict(other.criterion.state_dict())
    for name, value in other.criterion.state_dict().items():
        assert torch.equal(same.criterion.state_dict()[name], value)


def test_a_head_with_and_without_crf_are_not_mixed(folder):
    with pytest.raises(CheckpointMismatch, match=r"crf\.end_transitions"):
        World(folder, "crf").criterion.load_state_dict(World(folder, "softmax").criterion.state_dict())


def test_a_missing_library_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchcrf", None)
    assert World(folder, "softmax").criterion.crf is None
    with pytest.raises(UserError, match=r"pip install 'fairseq_tn\[crf\]'"):
        World(folder, "crf")


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_an_impossible_dropout_is_refused(dropout, folder):
    task = World(folder, "softmax").task
    with pytest.raises(UserError, match="--head-dropout"):
        TokenTaggingCriterion(TokenTaggingCriterionConfig(head_dropout=dropout), task)


def test_another_task_is_refused(folder):
    task = World(folder, "softmax").task
    del task.facts
    with pytest.raises(UserError, match="--task token_tagging"):
        TokenTaggingCriterion(TokenTaggingCriterionConfig(), task)
