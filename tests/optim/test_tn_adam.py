"""``tn_adam``: fairseq's Adam bit for bit, BERT's update, learning rates by layer, half precision, checkpoints."""

import copy
import math

import numpy as np
import pytest
import torch
from fairseq import optim
from fairseq.dataclass.configs import FairseqConfig
from fairseq.optim import FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.optim.lr_scheduler import build_lr_scheduler
from fairseq.options import get_training_parser, parse_args_and_arch
from omegaconf import OmegaConf
from torch import nn

import fairseq_tn
from fairseq_tn.errors import UserError
from fairseq_tn.models.depth import mark_depth
from fairseq_tn.optim import adam

fairseq_tn.register()

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:hydra")  # of fairseq's use of it

ORIGINAL = {"no_bias_correction": True, "decay_matrices_only": True, "adam_eps": 1e-6, "weight_decay": 0.01}


def config(name="tn_adam", lr=1e-2, common=None, **options):
    """The whole configuration of a run, as the trainer holds it."""
    cfg = OmegaConf.structured(FairseqConfig())
    OmegaConf.set_struct(cfg, False)
    cfg.optimizer = {"_name": name, "lr": [lr], **options}
    for key, value in {"fp16_init_scale": 4, **(common or {})}.items():
        cfg.common[key] = value
    return cfg


class Small(nn.Module):
    """Two layers under one head; a parameter gets no gradient."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.encoder = nn.Module()
        self.encoder.embed_tokens = nn.Embedding(7, 4)
        self.encoder.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.encoder.layer_norm = nn.LayerNorm(4)
        self.lm_head = nn.Linear(4, 7)
        self.unused = nn.Parameter(torch.ones(3))
        mark_depth(self)

    def forward(self, tokens):
        states = self.encoder.embed_tokens(tokens)
        for layer in self.encoder.layers:
            states = torch.tanh(layer(states))
        return self.lm_head(self.encoder.layer_norm(states))


def loss_of(model, update: int):
    torch.manual_seed(100 + update)
    tokens = torch.randint(7, (5, 3))
    return nn.functional.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())


def build(model, **options):
    return optim.build_optimizer(config(**options).optimizer, list(model.parameters()))


def train(model, optimizer, updates, schedule=lambda update: 1e-2 / (1 + update)):
    """Some updates with a learning rate that changes."""
    for update in updates:
        optimizer.set_lr(schedule(update))
        optimizer.zero_grad()
        optimizer.backward(loss_of(model, update))
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


# --- fairseq's Adam ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1, "adam_betas": "(0.8, 0.98)", "adam_eps": 1e-6}],
    ids=["default", "set"],
)
def test_without_new_options_it_is_fairseq_s_adam(options, monkeypatch):
    # several blocks a step
    monkeypatch.setattr(adam, "_BLOCK", 20)
    models = Small(), Small()
    optimizers = build(models[0], **options), build(models[1], name="adam", **options)
    assert_same(
        *(train(model, optimizer, range(6)) for model, optimizer in zip(models, optimizers, strict=True))
    )
    ours, theirs = (optimizer.state_dict() for optimizer in optimizers)
    assert ours["state"].keys() == theirs["state"].keys()
    for own, their in zip(ours["state"].values(), theirs["state"].values(), strict=True):
        assert own.keys() == their.keys()
        assert own["step"] == their["step"] == 6
        assert torch.equal(own["exp_avg"], their["exp_avg"])
        assert torch.equal(own["exp_avg_sq"], their["exp_avg_sq"])


def test_parameters_that_miss_some_updates_count_their_own():
    """As fairseq's: the bias correction is of the parameter's own updates."""
    results = []
    for name in ("tn_adam", "adam"):
        parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
        optimizer = optim.build_optimizer(config(name).optimizer, parameters)
        for update in range(4):
            optimizer.zero_grad()
            for parameter in parameters[update % 2 :]:
                parameter.grad = torch.tensor([0.5, -2.0]) * (1 + update)
            optimizer.step()
        results.append(torch.cat([parameter.detach() for parameter in parameters]))
    assert torch.equal(*results)


def test_against_torch_s_adamw():
    """torch adds epsilon after the correction; with a small one that makes no difference."""
    models = Small(), Small()
    ours = build(models[0], adam_eps=1e-12, weight_decay=0.1, lr=3e-3)
    theirs = torch.optim.AdamW(models[1].parameters(), lr=3e-3, eps=1e-12, weight_decay=0.1)
    for update in range(5):
        for model, optimizer in zip(models, (ours, theirs), strict=True):
            optimizer.zero_grad()
            # of the double-precision model, so that tiny gradients have the same sign
            loss_of(model.double(), update).backward()
            optimizer.step()
    for name, value in models[0].state_dict().items():
        torch.testing.assert_close(value, models[1].state_dict()[name], rtol=1e-6, atol=1e-8, msg=name)


# --- BERT's and ELECTRA's update ----------------------------------------------------------------------------------


def original_updates(start, gradients, lr, weight_decay, eps=1e-6, beta1=0.9, beta2=0.999):
    """``AdamWeightDecayOptimizer`` on one parameter, in float64."""
    parameter, m, v = np.array(start, np.float64), 0.0, 0.0
    for gradient in gradients:
        g = np.array(gradient, np.float64)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        parameter = parameter - lr * (m / (np.sqrt(v) + eps) + weight_decay * parameter)
    return parameter


def test_the_original_update():
    torch.manual_seed(0)
    matrix, bias = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(3))
    start = [matrix.detach().numpy().copy(), bias.detach().numpy().copy()]
    gradients = [[torch.randn(3, 2), torch.randn(3)] for _ in range(8)]
    optimizer = optim.build_optimizer(config(**ORIGINAL, lr=0.05).optimizer, [matrix, bias])
    for pair in gradients:
        matrix.grad, bias.grad = pair[0].clone(), pair[1].clone()
        optimizer.step()
    expected = [
        original_updates(start[n], [pair[n].numpy() for pair in gradients], 0.05, decay)
        for n, decay in enumerate((0.01, 0.0))
    ]
    np.testing.assert_allclose(matrix.detach().numpy(), expected[0], rtol=0, atol=2e-6)
    np.testing.assert_allclose(bias.detach().numpy(), expected[1], rtol=0, atol=2e-6)


def test_the_first_update_is_larger_without_bias_correction():
    """m / sqrt(v) of the first gradient is 0.1 / sqrt(0.001) instead of 1."""
    parameters = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
    for parameter, off in zip(parameters, (False, True), strict=True):
        optimizer = optim.build_optimizer(config(no_bias_correction=off).optimizer, [parameter])
        parameter.grad = torch.tensor([7.0])
        optimizer.step()
    assert parameters[0].item() == pytest.approx(-1e-2, rel=1e-5)
    assert parameters[1].item() == pytest.approx(-1e-2 * 0.1 / math.sqrt(0.001), rel=1e-5)


def test_weight_decay_of_matrices_only():
    model = Small()
    before = {name: value.clone() for name, value in model.named_parameters()}
    optimizer = build(model, decay_matrices_only=True, weight_decay=0.5, lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, value in model.named_parameters():
        shrunk = name in ("encoder.embed_tokens.weight", "lm_head.weight") or (
            name.startswith("encoder.layers.") and name.endswith("weight")
        )
        torch.testing.assert_close(value.detach(), before[name] * (0.95 if shrunk else 1), msg=name)


# --- learning rates by layer --------------------------------------------------------------------------------------

# n = 2 layers; ELECTRA: lr * decay ** (n + 2 - depth), depth 0, 1, 2 and n + 2
FACTORS = {
    "encoder.embed_tokens": 0.5**4,
    "encoder.layers.0": 0.5**3,
    "encoder.layers.1": 0.5**2,
    "lm_head": 1.0,
}


def steps_taken(model, optimizer):
    """How far one update with the gradient 1 moves each parameter."""
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer.zero_grad()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return {name: (before[name] - value.detach()).max().item() for name, value in model.named_parameters()}


def assert_factors(moved, lr, rel=1e-3):
    for name, distance in moved.items():
        factor = next((f for prefix, f in FACTORS.items() if name.startswith(prefix)), 1.0)
        assert distance == pytest.approx(lr * factor, rel=rel), name


def test_layers_move_by_their_own_learning_rate():
    model = Small()
    optimizer = build(model, layer_lr_decay=0.5, decay_matrices_only=True)
    # four depths, with and without weight decay; the embeddings are a matrix alone
    assert len(optimizer.param_groups) == 7
    assert sorted(len(group["params"]) for group in optimizer.param_groups) == [1, 1, 1, 1, 1, 1, 4]
    assert_factors(steps_taken(model, optimizer), 1e-2)
    optimizer.set_lr(0.25)
    assert optimizer.get_lr() == 0.25
    assert_factors(steps_taken(model, optimizer), 0.25, rel=2e-3)


def test_a_scheduler_s_learning_rate_is_that_of_the_heads():
    model = Small()
    optimizer = build(model, layer_lr_decay=0.5)
    scheduler = build_lr_scheduler(
        OmegaConf.create(
            {"_name": "polynomial_decay", "warmup_updates": 4, "total_num_update": 8, "lr": [1e-2]}
        ),
        optimizer,
    )
    assert scheduler.step_update(2) == optimizer.get_lr() == pytest.approx(5e-3)
    assert_factors(steps_taken(model, optimizer), 5e-3)
    scheduler.step_update(6)
    assert optimizer.get_lr() == pytest.approx(5e-3)
    assert_factors(steps_taken(model, optimizer), 5e-3)


def test_models_that_do_not_tell_their_layers():
    model = Small()
    model.late = nn.Linear(4, 2)
    with pytest.raises(UserError, match=r"--layer-lr-decay: 2 of 12 parameters .* shape \(2, 4\)"):
        build(model, layer_lr_decay=0.5)
    # the other options need no marks
    assert len(build(nn.Linear(2, 3), **ORIGINAL).param_groups) == 2


@pytest.mark.parametrize("option", ["layer_lr_decay", "decay_matrices_only"])
def test_flattened_parameters(option):
    """What fairseq makes of all parameters under --fp16 on a GPU: a dictionary with one vector a device."""
    flat = [{0: nn.Parameter(torch.ones(50))}]
    optimizer = optim.build_optimizer(config(no_bias_correction=True).optimizer, flat)
    assert optimizer.supports_flat_params
    with pytest.raises(UserError, match=f"--{option.replace('_', '-')}: .*--fp16-no-flatten-grads"):
        optim.build_optimizer(config(**{option: 0.5 if "lr" in option else True}).optimizer, flat)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"layer_lr_decay": 0.0}, "--layer-lr-decay is 0.0"),
        ({"layer_lr_decay": 1.1}, "--layer-lr-decay is 1.1"),
        ({"adam_eps": -1.0}, "--adam-eps is -1.0"),
        ({"weight_decay": float("nan")}, "--weight-decay is nan"),
        ({"adam_betas": "(0.9, 1.0)"}, "--adam-betas is"),
        ({"adam_betas": "0.9"}, "--adam-betas is"),
        ({"adam_betas": "(0.9,"}, "--adam-betas is"),
        ({"adam_betas": "print('x')"}, "--adam-betas is"),
        ({"adam_betas": [0.9, 0.99, 0.999]}, "--adam-betas is"),
    ],
)
def test_values_out_of_range(options, named):
    with pytest.raises(UserError) as error:
        build(Small(), **options)
    assert str(error.value).startswith(named)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("betas", ["(0.8, 0.9)", "0.8, 0.9", [0.8, 0.9]])
def test_betas_as_text_and_as_list(betas):
    assert build(Small(), adam_betas=betas).param_groups[0]["betas"] == (0.8, 0.9)


# --- half precision -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_mixed_precision_keeps_the_layers(name):
    """fairseq makes float32 copies of the parameters, which must not lose their places."""
    common = {name: True, "fp16_no_flatten_grads": True}
    half = Small().to(torch.bfloat16 if name == "bf16" else torch.float16)
    cfg = config(common=common, layer_lr_decay=0.5, **ORIGINAL)
    optimizer = FP16Optimizer.build_optimizer(cfg, list(half.parameters()))
    full = Small()
    full.load_state_dict({key: value.float() for key, value in half.state_dict().items()})
    reference = build(full, layer_lr_decay=0.5, **ORIGINAL)
    for update in range(3):
        for o in (optimizer, reference):
            o.set_lr(1e-2 / (1 + update))
            o.zero_grad()
        optimizer.backward(loss_of(half, update))
        for target, source in zip(full.parameters(), half.parameters(), strict=True):
            target.grad = (
                torch.zeros_like(target)
                if source.grad is None
                else source.grad.float() / (4 if name == "fp16" else 1)
            )
        optimizer.clip_grad_norm(0)
        optimizer.step()
        reference.step()
    assert [g["lr_scale"] for g in optimizer.param_groups] == [g["lr_scale"] for g in reference.param_groups]
    assert optimizer.get_lr() == reference.get_lr() == pytest.approx(1e-2 / 3)
    for copied, expected in zip(optimizer.fp32_params, full.parameters(), strict=True):
        torch.testing.assert_close(copied, expected, rtol=1e-6, atol=1e-8)
    for parameter, expected in zip(half.parameters(), full.parameters(), strict=True):
        assert torch.equal(parameter, expected.to(parameter.dtype))


@pytest.mark.parametrize("name", ["bf16", "fp16"])
@pytest.mark.parametrize("given", ["adam", "all"])
def test_memory_efficient_half_precision(name, given):
    """The same as fairseq's adam, and resuming finds the float32 state as it was."""
    options = {} if given == "adam" else {**ORIGINAL, "layer_lr_decay": 0.5}
    common = {name: True, f"memory_efficient_{name}": True}
    dtype = torch.bfloat16 if name == "bf16" else torch.float16

    def start(kind="tn_adam", **given_options):
        model = Small().to(dtype)
        cfg = config(kind, common=common, **given_options)
        return model, MemoryEfficientFP16Optimizer.build_optimizer(cfg, list(model.parameters()))

    model, optimizer = start(**options)
    whole = train(model, optimizer, range(6))
    for state in optimizer.state_dict()["state"].values():
        assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.float32
    if given == "adam":
        assert_same(whole, train(*start("adam"), range(6)))
    first, before = start(**options)
    train(first, before, range(3))
    second, after = start(**options)
    second.load_state_dict(first.state_dict())
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    assert_same(whole, train(second, after, range(3, 6)))


def test_a_state_of_another_type_comes_back_to_float32():
    """torch casts the state that it loads to the type of the parameters."""
    model = Small().bfloat16()
    optimizer = build(model)
    train(model, optimizer, range(1))
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert {state["exp_avg"].dtype for state in optimizer.optimizer.state.values()} == {torch.bfloat16}
    train(model, optimizer, range(1, 2))
    assert {state["exp_avg_sq"].dtype for state in optimizer.optimizer.state.values()} == {torch.float32}


# --- checkpoints ----------------------------------------------------------------------------------------------------


def resumed(model, optimizer, overrides=None, **options):
    copied = Small(seed=1)
    copied.load_state_dict(model.state_dict())
    another = build(copied, **options)
    another.load_state_dict(copy.deepcopy(optimizer.state_dict()), overrides)
    return copied, another


def test_a_resumed_run_goes_on_as_it_would_have():
    options = {**ORIGINAL, "layer_lr_decay": 0.5}
    model = Small()
    whole = train(model, build(model, **options), range(6))
    model = Small()
    optimizer = build(model, **options)
    train(model, optimizer, range(3))
    assert_same(whole, train(*resumed(model, optimizer, **options), range(3, 6)))


def test_a_checkpoint_of_fairseq_s_adam_goes_on():
    model = Small()
    whole = train(model, build(model, name="adam"), range(6))
    model = Small()
    optimizer = build(model, name="adam")
    train(model, optimizer, range(3))
    assert_same(whole, train(*resumed(model, optimizer), range(3, 6)))


def test_overrides_keep_the_factors():
    """``--optimizer-overrides`` changes every group's base; the new options are those of the run."""
    options = {"layer_lr_decay": 0.25, **ORIGINAL}
    model = Small()
    optimizer = build(model, **options)
    train(model, optimizer, range(2))
    options |= {"layer_lr_decay": 0.5, "no_bias_correction": False, "weight_decay": 0.3}
    _, another = resumed(model, optimizer, {"lr": 0.5, "weight_decay": 0.2}, **options)
    groups = another.param_groups
    assert {group["lr"] for group in groups} == {0.5}
    assert {group["weight_decay"] for group in groups} == {0.2}
    assert {group["weight_decay_scale"] for group in groups} == {0.0, 1.0}
    assert {group["lr_scale"] for group in groups} == set(FACTORS.values())
    assert {group["bias_correction"] for group in groups} == {True}
    _, unchanged = resumed(model, optimizer, **options)
    assert {group["weight_decay"] for group in unchanged.param_groups} == {0.01}


def test_a_checkpoint_with_other_groups():
    model = Small()
    optimizer = build(model, layer_lr_decay=0.5)
    with pytest.raises(
        UserError, match=r"10 parameters in 4 groups, this run's 10 in 1; .*--reset-optimizer"
    ):
        resumed(model, optimizer)


# --- options ----------------------------------------------------------------------------------------------------------


def test_the_command_line_has_the_options_and_fairseq_s_defaults():
    known = ["data", "--arch", "tn_bert", "--optimizer"]
    ours = parse_args_and_arch(
        get_training_parser(), [*known, "tn_adam", "--layer-lr-decay", "0.8", "--no-bias-correction"]
    )
    theirs = parse_args_and_arch(get_training_parser(), [*known, "adam"])
    assert ours.layer_lr_decay == 0.8
    assert ours.no_bias_correction is True
    assert ours.decay_matrices_only is False
    for name in ("adam_eps", "weight_decay"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert eval(str(ours.adam_betas)) == eval(str(theirs.adam_betas))
