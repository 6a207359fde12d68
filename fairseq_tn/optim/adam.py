"""``tn_adam``: fairseq's Adam, and on request what BERT's and ELECTRA's own optimiser does differently."""

import ast
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, List  # noqa: UP035 (fairseq's command line understands typing.List only)

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import Tensor, nn

from fairseq_tn.errors import UserError
from fairseq_tn.models.depth import steps_below_heads

logger = logging.getLogger(__name__)

# numbers that are updated at a time: it bounds what a step needs besides the state
_BLOCK = 2**25
_HALF = (torch.float16, torch.bfloat16)


@dataclass
class TnAdamConfig(FairseqDataclass):
    """Options of ``tn_adam``; the first three are those of fairseq's ``adam``."""

    adam_betas: Any = field(
        default=(0.9, 0.999),
        metadata={"help": "how slowly the averages of the gradient and of its square forget: two numbers"},
    )
    adam_eps: float = field(
        default=1e-8,
        metadata={"help": "added to the root of the averaged square (BERT and ELECTRA: 1e-6)"},
    )
    weight_decay: float = field(
        default=0.0,
        metadata={
            "help": "in each update weights shrink by this times the learning rate (BERT and ELECTRA: 0.01)"
        },
    )
    no_bias_correction: bool = field(
        default=False,
        metadata={
            "help": "do not scale up the averages of the first updates, which start from zero: the update of BERT's "
            "and ELECTRA's original training code"
        },
    )
    decay_matrices_only: bool = field(
        default=False,
        metadata={
            "help": "--weight-decay for matrices and embeddings only, not for biases and LayerNorm parameters, as in "
            "BERT's and ELECTRA's original training code"
        },
    )
    layer_lr_decay: float = field(
        default=1.0,
        metadata={
            "help": "lower learning rates near the input, for fine-tuning: heads train with --lr, the last of n layers "
            "with --lr times the square of this number, each layer below with this times the one above, the "
            "embeddings with --lr times its power n + 2 (ELECTRA: 0.8 in small and base, 0.9 in large; 1: all alike)"
        },
    )
    # A mirror of fairseq's own option. It has no help text: with one, fairseq-train would set it to None.
    lr: List[float] = II("optimization.lr")  # noqa: UP006, RUF009


@register_optimizer("tn_adam", dataclass=TnAdamConfig)
class TnAdam(FairseqAdam):
    """fairseq's ``adam`` unless an option says otherwise.

    Learning-rate schedulers, the log and checkpoints see the learning rate of the heads, in every group of
    parameters; what a group's own factor makes of it is known to the update alone. As with ``adam``, a resumed run
    keeps the checkpoint's betas, epsilon and weight decay unless ``--optimizer-overrides`` changes them; the other
    options are those of the run.
    """

    def __init__(self, cfg: TnAdamConfig, params: Iterable[nn.Parameter]):
        """
        Raises:
            UserError: an option is out of range, or needs parameters one by one where they come flattened, or their
                layers where the model does not tell them
        """
        FairseqOptimizer.__init__(self, cfg)  # FairseqAdam's own would make fairseq's update
        self._check_options()
        self._optimizer = ScaledAdam(
            self._groups(list(params)), **self.optimizer_config, bias_correction=not cfg.no_bias_correction
        )

    def _check_options(self) -> None:
        for option in ("adam_eps", "weight_decay"):
            value = getattr(self.cfg, option)
            if not 0 <= value < math.inf:
                raise UserError(f"--{option.replace('_', '-')} is {value}; it must be 0 or more")
        if not 0 < self.cfg.layer_lr_decay <= 1:
            raise UserError(
                f"--layer-lr-decay is {self.cfg.layer_lr_decay}; it must be above 0 and at most 1, which is off"
            )

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """fairseq's settings of the update; :meth:`load_state_dict` may get changes of them."""
        lr = self.cfg.lr
        return {
            "lr": lr if isinstance(lr, (int, float)) else lr[0],
            "betas": _read_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    def _groups(self, parameters: list[nn.Parameter]) -> list[dict[str, Any]]:
        """One group for each pair of factors, in the order of the parameters."""
        decay, matrices_only = self.cfg.layer_lr_decay, self.cfg.decay_matrices_only
        options = [
            name
            for name, given in (("--layer-lr-decay", decay != 1), ("--decay-matrices-only", matrices_only))
            if given
        ]
        if options and all(parameter.ndim < 2 for parameter in parameters):
            raise UserError(
                f"{' and '.join(options)}: fairseq has joined all parameters to one vector, in which layers and "
                "biases cannot be told apart; add --fp16-no-flatten-grads (in YAML "
                "common.fp16_no_flatten_grads: true), and leave --ddp-backend fully_sharded"
            )
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        unmarked = []
        for parameter in parameters:
            steps = steps_below_heads(parameter) if decay != 1 else 0
            if steps is None:
                unmarked.append(parameter)
                continue
            factors = decay**steps, float(parameter.ndim >= 2 or not matrices_only)
            groups.setdefault(factors, []).append(parameter)
        if unmarked:
            raise UserError(
                f"--layer-lr-decay: {len(unmarked)} of {len(parameters)} parameters do not say which layer they "
                f"belong to, such as one of shape {tuple(unmarked[0].shape)}; use a model of this package "
                "(--arch tn_...), or leave the option"
            )
        if options:
            logger.info(
                "%s: %d groups of parameters, learning rates from %.3g x to %.3g x --lr, no weight decay for %d of %d "
                "parameters",
                ", ".join(options),
                len(groups),
                min(lr for lr, _ in groups),
                max(lr for lr, _ in groups),
                sum(len(members) for (_, weight), members in groups.items() if not weight),
                len(parameters),
            )
        return [
            {"params": members, "lr_scale": lr, "weight_decay_scale": weight}
            for (lr, weight), members in groups.items()
        ]

    def load_state_dict(
        self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None
    ) -> None:
        """Take up the state of a checkpoint, also one of fairseq's ``adam``.

        Raises:
            UserError: its groups of parameters are not those of this run
        """
        theirs, ours = (
            [len(group["params"]) for group in groups]
            for groups in (state_dict["param_groups"], self.param_groups)
        )
        if theirs != ours:
            raise UserError(
                f"the checkpoint's optimiser has {sum(theirs)} parameters in {len(theirs)} groups, this run's "
                f"{sum(ours)} in {len(ours)}; resume with "
                "the --layer-lr-decay, --decay-matrices-only and --fp16-no-flatten-grads that it was trained with, or "
                "start the optimiser anew with --reset-optimizer"
            )
        options = ("lr_scale", "weight_decay_scale", "bias_correction")
        kept = [{name: group[name] for name in options} for group in self.param_groups]
        super().load_state_dict(state_dict, optimizer_overrides)
        for group, own in zip(self.param_groups, kept, strict=True):
            group.update(own)


def _read_betas(given: Any) -> tuple[float, float]:
    try:
        first, second = map(float, ast.literal_eval(given) if isinstance(given, str) else given)
    except (ValueError, SyntaxError, TypeError):
        first = second = math.nan
    if not (0 <= first < 1 and 0 <= second < 1):
        raise UserError(f"--adam-betas is {given}; it must be two numbers from 0 to below 1: '(0.9, 0.999)'")
    return first, second


class ScaledAdam(torch.optim.Optimizer):
    """Adam with decoupled weight decay, and factors for the learning rate and the weight decay of each group.

    With g the gradient, f and w the group's ``lr_scale`` and ``weight_decay_scale``:

        m <- beta1 m + (1 - beta1) g,    v <- beta2 v + (1 - beta2) g^2
        p <- p - f lr w weight_decay p - c f lr m / (sqrt(v) + eps)

    c is sqrt(1 - beta2^t) / (1 - beta1^t) in update t with ``bias_correction`` (fairseq's ``adam``, bit for bit on
    CPUs) and 1 without (``AdamWeightDecayOptimizer`` of BERT and ELECTRA). The state has fairseq's names. Gradients,
    state and update of half-precision parameters are float32.
    """

    # what fairseq asks of an optimiser before it hands it half-precision or flattened parameters
    supports_memory_efficient_fp16 = True
    supports_flat_params = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        bias_correction: bool = True,
    ):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
            "lr_scale": 1.0,
            "weight_decay_scale": 1.0,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient; returns what ``closure``, evaluated before, does."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for block in _blocks(parameter for parameter in group["params"] if parameter.grad is not None):
                self._update(block, group)
        return loss

    def _update(self, parameters: Sequence[nn.Parameter], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        lr = group["lr"] * group["lr_scale"]
        weight_decay = group["weight_decay"] * group["weight_decay_scale"]
        full = [_float(parameter) for parameter in parameters]
        gradients = [_float(parameter.grad) for parameter in parameters]
        states = [self._state(*pair) for pair in zip(parameters, full, strict=True)]
        averages = [state["exp_avg"] for state in states]
        squares = [state["exp_avg_sq"] for state in states]

        torch._foreach_mul_(averages, beta1)
        torch._foreach_add_(averages, gradients, alpha=1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, group["eps"])
        if weight_decay:
            torch._foreach_add_(full, full, alpha=-weight_decay * lr)
        sizes = [lr] * len(states)
        if group["bias_correction"]:
            sizes = [
                lr * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"]) for state in states
            ]
        torch._foreach_addcdiv_(full, averages, denominators, [-size for size in sizes])
        halves = [pair for pair in zip(parameters, full, strict=True) if pair[0] is not pair[1]]
        if halves:
            torch._foreach_copy_([half for half, _ in halves], [updated for _, updated in halves])

    def _state(self, parameter: nn.Parameter, full: Tensor) -> dict[str, Any]:
        """Count the update; the state of ``parameter``, new or where a checkpoint has left it."""
        state = self.state[parameter]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(full), exp_avg_sq=torch.zeros_like(full))
        for name in ("exp_avg", "exp_avg_sq"):
            # fairseq's memory-efficient optimiser puts the checkpoint's tensors here as they were loaded
            state[name] = state[name].to(full)
        state["step"] += 1
        return state


def _float(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.float() if tensor.dtype in _HALF else tensor


def _blocks(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    block: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        if block and size + parameter.numel() > _BLOCK:
            yield block
            block, size = [], 0
        block.append(parameter)
        size += parameter.numel()
    if block:
        yield block
