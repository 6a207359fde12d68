"""The evaluation of ELECTRA against a plain computation, one token at a time."""

import math
import sys
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

import fairseq_tn
from fairseq_tn.convert import electra
from fairseq_tn.convert.from_hf import fairseq_checkpoint
from fairseq_tn.evaluation.pretraining import evaluate
from fairseq_tn.evaluation.tables import scores_text
from fairseq_tn.models.electra import TnElectraConfig, TnElectraModel
from fairseq_tn.tasks.bert_pretraining import BertPretrainingConfig, BertPretrainingTask

sys.path.insert(0, str(Path(__file__).parents[1]))

from corpus import make_corpus

LENGTH = 24


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Binarised text, the task that reads it, and a checkpoint of random weights that are far from zero."""
    fairseq_tn.register()
    folder = tmp_path_factory.mktemp("electra")
    data = make_corpus(folder / "data")
    options = BertPretrainingConfig(data=str(data), tokens_per_sample=LENGTH, no_nsp=True)
    task = BertPretrainingTask.setup_task(OmegaConf.structured(options))
    task.load_dataset("valid")
    cfg = TnElectraConfig(
        _name="tn_electra_small",
        encoder_layers=2,
        encoder_embed_dim=32,
        embedding_dim=16,
        max_positions=LENGTH,
    )
    torch.manual_seed(2)
    model = TnElectraModel(cfg, task.source_dictionary).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    path = folder / "electra.pt"
    torch.save(fairseq_checkpoint(electra, model.state_dict(), cfg, Path(data)), path)
    return data, task, model, path


def test_discriminator_is_measured_over_all_tokens(world):
    data, task, model, path = world
    scores = evaluate(
        data=data,
        checkpoints={"electra": path},
        tokens_per_sample=LENGTH,
        nsp=False,
        batch_size=1,
        device="cpu",
    )["models"]["electra"]
    dataset = task.dataset("valid")
    loss, right, found, right_originals = 0.0, 0, 0, 0
    replaced_number = tokens = 0
    mlm = positions = 0
    for index in range(len(dataset)):
        batch = dataset.collater([dataset[index]])
        torch.manual_seed(index)
        with torch.no_grad():
            logits, extra = model(
                batch["net_input"]["src_tokens"], masked_tokens=batch["selected"], source=batch["source"]
            )
        sequence = batch["source"][0].tolist()
        selected = batch["selected"].tolist()
        for row, position in enumerate(selected):
            mlm -= logits[row].double().log_softmax(-1)[sequence[position]].item() / math.log(2)
            positions += 1
        drawn = dict(zip(selected, extra["sampled"].tolist(), strict=True))
        for position, token in enumerate(sequence):
            probability = torch.sigmoid(extra["discriminator_logits"][0, position].double()).item()
            replaced = drawn.get(position, token) != token
            loss -= math.log2(probability if replaced else 1 - probability)
            correct = (probability > 0.5) == replaced
            right += correct
            found += correct and replaced
            right_originals += correct and not replaced
            replaced_number += replaced
            tokens += 1
    assert 0 < found < replaced_number
    assert scores["tokens"] == tokens
    assert scores["mlm_loss"] == pytest.approx(mlm / positions, rel=1e-5)
    assert scores["disc_loss"] == pytest.approx(loss / tokens, rel=1e-5)
    assert scores["disc_acc"] == pytest.approx(100 * right / tokens)
    balanced = 50 * (found / replaced_number + right_originals / (tokens - replaced_number))
    assert scores["disc_bacc"] == pytest.approx(balanced)
    # states are the discriminator's: the embeddings and two layers
    assert len(scores["self_similarity"]) == 3


def test_the_same_tokens_are_drawn_in_every_evaluation(world):
    data, _, _, path = world
    options = {"tokens_per_sample": LENGTH, "nsp": False, "device": "cpu", "limit": 10}
    torch.manual_seed(1)
    one = evaluate(data=data, checkpoints={"a": path, "b": path}, **options)
    torch.manual_seed(2)
    other = evaluate(data=data, checkpoints={"a": path, "b": path}, **options)
    assert one["models"] == other["models"]
    assert one["models"]["a"] == one["models"]["b"]
    assert "Disc. balanced acc. (%)" in scores_text(one["models"])
