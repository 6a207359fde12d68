"""The differences between fairseq's releases: what checkpoints and models of either look like to this package."""

import argparse

import numpy as np
import pytest
import torch
from fairseq import options as fairseq_options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model

import fairseq_tn
from fairseq_tn.compat import unify_transformer_layers

fairseq_tn.register()

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra

PAD = 1
# the second copies that 0.12.2 keeps in each layer, and what they are copies of
COPIES = {
    "in_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out_proj": ("self_attn.out_proj",),
    "fc1": ("fc1",),
    "fc2": ("fc2",),
}


@pytest.fixture
def roberta():
    """Makes small models of fairseq's own, in training mode, with weights large enough that every input matters."""
    dictionary = Dictionary()
    for number in range(20):
        dictionary.add_symbol(f"w{number}")
    task = argparse.Namespace(source_dictionary=dictionary, dictionary=dictionary, uses_nsp=False)
    sizes = "--encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    arguments = f"data --task masked_lm --criterion masked_lm --arch roberta_base {sizes} --max-positions 16"
    args = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), arguments.split())

    def make(seed: int) -> torch.nn.Module:
        model = build_model(convert_namespace_to_omegaconf(args).model, task)
        torch.manual_seed(seed)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        unify_transformer_layers(model)
        return model

    return make


def state_of_0_12_2(model) -> dict[str, torch.Tensor]:
    """The model's tensors as that release saves them."""
    state = dict(model.state_dict())
    for number in range(2):
        layer = f"encoder.sentence_encoder.layers.{number}."
        for name, parts in COPIES.items():
            for kind in ("weight", "bias"):
                state[f"{layer}{name}_{kind}"] = torch.cat([state[f"{layer}{p}.{kind}"] for p in parts])
    return state


def state_of_0_12_3(model) -> dict[str, torch.Tensor]:
    """The model's tensors as later releases save them."""
    copies = tuple(f".{name}_{kind}" for name in COPIES for kind in ("weight", "bias"))
    return {name: value for name, value in model.state_dict().items() if not name.endswith(copies)}


@pytest.mark.parametrize("save", [state_of_0_12_2, state_of_0_12_3])
def test_a_roberta_checkpoint_of_either_release_loads(save, roberta):
    saved, loaded = roberta(1).eval(), roberta(2).eval()
    tokens = torch.tensor([[0, 4, 5, 6, 7, 2], [0, 8, 9, 2, PAD, PAD]])
    loaded.load_state_dict(save(saved), strict=True)
    assert torch.equal(loaded(tokens)[0], saved(tokens)[0])


def test_other_surplus_tensors_are_still_refused(roberta):
    state = roberta(1).state_dict()
    state["encoder.sentence_encoder.layers.0.surplus"] = torch.zeros(1)
    with pytest.raises(RuntimeError, match="surplus"):
        roberta(2).load_state_dict(state, strict=True)


def test_states_in_evaluation_are_those_in_training_without_dropout(roberta):
    """0.12.2's fast path gives intermediate states of another shape until a model has trained."""
    model = roberta(1).eval()
    tokens = torch.tensor([[0, 4, 5, 6, 7, 2], [0, 8, 9, 2, PAD, PAD]])
    with torch.no_grad():
        _, extra = model(tokens, return_all_hiddens=True)
        features = model(tokens, features_only=True)[0]
    assert [tuple(state.shape) for state in extra["inner_states"]] == [(6, 2, 16)] * 3
    torch.testing.assert_close(extra["inner_states"][-1].transpose(0, 1), features)


def test_every_parameter_that_trains_gets_a_gradient(roberta):
    """torch's DistributedDataParallel aborts otherwise."""
    model = roberta(1)
    model(torch.tensor([[0, 4, 5, 6, 7, 2]]))[0].sum().backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []


@pytest.mark.parametrize("value", [argparse.Namespace(lr=[1.0]), np.float64(0.5), np.float32(0.5)])
def test_restricted_unpickling_reads_what_fairseq_stores(value, tmp_path):
    torch.save({"best": value}, tmp_path / "checkpoint.pt")
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True) == {"best": value}
