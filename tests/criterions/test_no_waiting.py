"""No criterion reads a value of a tensor: on a GPU that would wait for the device in every step.

On torch's ``meta`` device tensors have no values, so that whatever depends on one fails.
"""

import contextlib
import warnings

import pytest
import torch
from bench import contestants, parse
from fairseq import utils as fairseq_utils
from small_pretraining import make_batch, make_criterion, make_task, make_tn_electra

import fairseq_tn

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra


NAMES = ("mlm", "hc", "sr", "sr-sentence", "tacl", "electra")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict:
    """Each method as ``fairseq-train`` builds it, with a batch on the ``meta`` device."""
    fairseq_tn.register()
    sizes = ["--layers", "1", "--width", "32", "--batch", "4", "--length", "32"]
    args = parse([*sizes, "--only", ",".join(NAMES)])
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for run in contestants(args, tmp_path_factory.mktemp("data")):
            batch = run.batch(range(4))
            run.model.to("meta")
            found[run.name] = run, fairseq_utils.apply_to_sample(lambda tensor: tensor.to("meta"), batch)
    return found


@pytest.fixture(autouse=True)
def _no_autocast(monkeypatch):
    # there is none on this device, not even one that is switched off
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: contextlib.nullcontext())


@pytest.mark.parametrize("name", NAMES)
def test_a_training_step_reads_no_value(name, runs):
    run, batch = runs[name]
    loss, _ = run.forward(batch)
    assert loss.device.type == "meta"
    if name != "sr":  # torch cannot add sparse tensors on this device
        loss.backward()
        assert run.model.encoder.embed_tokens.weight.grad is not None


@pytest.mark.parametrize("level", ["word", "sentence"])
def test_electra_with_hard_correction_and_regularisation_reads_no_value(level, tmp_path):
    task = make_task(nsp=False)
    model = make_tn_electra(task)
    (tmp_path / "synonyms.txt").write_text("w1\tw2\n")
    options = {"synonyms": str(tmp_path / "synonyms.txt"), "soft_reg_weight": 1.0, "soft_reg_level": level}
    criterion = make_criterion("electra", task, model, **options)
    batch = fairseq_utils.apply_to_sample(lambda tensor: tensor.to("meta"), make_batch(1, nsp=False))
    loss, denominator, log = criterion(model.to("meta"), batch)
    assert {loss.device.type, denominator.device.type} == {"meta"}
    assert {"hc_corrected", "sr_loss", "disc_correct"} <= log.keys()


@pytest.mark.parametrize(
    ("name", "key"), [("mlm", "selected"), ("tacl", "max_selected"), ("electra", "selected")]
)
def test_the_batch_has_to_say_what_would_be_read(name, key, runs):
    run, batch = runs[name]
    with pytest.raises((NotImplementedError, RuntimeError), match=r"nonzero|item"):
        run.forward({other: value for other, value in batch.items() if other != key})
