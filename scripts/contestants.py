"""A contestant of ``bench.py``: a way to make a training step, and how its parts are timed."""

import argparse
import contextlib
import ctypes
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import optim, options, tasks
from fairseq import utils as fairseq_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.fp16_optimizer import FP16Optimizer
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
VOCABULARY = 30_522


class Clock:
    """Splits a step into parts; waits for the device where a part ends."""

    # the time that passes, or the time that this process computes
    timer = staticmethod(time.perf_counter)

    def __init__(self, device: torch.device):
        self.device = device
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def part(self, name: str):
        """Add the time of a ``with`` block to a part."""
        begun = self.timer()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + self.timer() - begun


class Contestant:
    """A way to make a training step.

    Args:
        name, label: short and long name.
        cfg: fairseq's configuration, which names the optimiser and the precision.
        model: is trained.
        dataset: gives items and batches.
        forward: batch -> (loss as a sum, denominator).
        head: what is trained beside the model.
        frozen: a model that ``forward`` uses, not trained.
        optimizer: has the methods of fairseq's (default: the one that ``cfg`` names).
        order: the indices of the data set as an epoch has them, of whole batches (default: ascending).
    """

    def __init__(
        self,
        name: str,
        label: str,
        cfg: Any,
        model: nn.Module,
        dataset: Any,
        forward: Callable[[Any], tuple[Tensor, Any]],
        head: nn.Module | None = None,
        frozen: nn.Module | None = None,
        optimizer: Any = None,
        order: Sequence[int] | None = None,
    ):
        self.name, self.label = name, label
        self.cfg, self.model, self.dataset, self.forward = cfg, model.train(), dataset, forward
        self.head, self.frozen = head, frozen
        self.order = range(len(dataset)) if order is None else order
        self.device = next(model.parameters()).device
        self.parameters = [*model.parameters(), *([] if head is None else head.parameters())]
        self.parameters = [parameter for parameter in self.parameters if parameter.requires_grad]
        if optimizer is not None:
            self.optimizer = optimizer
        elif cfg.common.fp16 or cfg.common.bf16:
            self.optimizer = FP16Optimizer.build_optimizer(cfg, self.parameters)
        else:
            self.optimizer = optim.build_optimizer(cfg.optimizer, self.parameters)

    def batch(self, places: Sequence[int]) -> dict[str, Any]:
        """Fetch what stands at some places of the order, collate, and move to the device."""
        batch = self.dataset.collater([self.dataset[self.order[place]] for place in places])
        return fairseq_utils.move_to_cuda(batch, self.device) if self.device.type == "cuda" else batch

    @staticmethod
    def tokens(batch: dict[str, Any]) -> int:
        """Tokens of a batch, padding not counted."""
        if "net_input" in batch:
            return int(batch["net_input"]["src_lengths"].sum())
        return int(batch["attention_mask"].sum())

    def step(self, places: Sequence[int]) -> tuple[int, dict[str, float]]:
        """One step; returns its tokens and the seconds of each part."""
        clock = Clock(self.device)
        with clock.part("data"):
            batch = self.batch(places)
        with clock.part("forward"):
            loss, denominator = self.forward(batch)
        with clock.part("backward"):
            self.optimizer.backward(loss)
        with clock.part("optimiser"):
            self.optimizer.multiply_grads(1 / denominator)
            with contextlib.suppress(OverflowError):  # fp16: the scale has been lowered, the step is skipped
                self.optimizer.clip_grad_norm(self.cfg.optimization.clip_norm)
                self.optimizer.step()
            self.optimizer.zero_grad()
        return self.tokens(batch), clock.seconds

    def flops(self, places: Sequence[int]) -> int:
        """Operations in the matrix products of forward and backward."""
        batch = self.batch(places)
        # torch does not count its fused attention on CPUs
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            self.optimizer.backward(self.forward(batch)[0])
        self.optimizer.zero_grad()
        return counter.get_total_flops()

    def state_bytes(self) -> int:
        """Memory between steps: weights, the optimiser's moments, the frozen model."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        if self.head is not None:
            tensors += self.head.parameters()
        if self.frozen is not None:
            tensors += [*self.frozen.parameters(), *self.frozen.buffers()]
        tensors += getattr(self.optimizer, "fp32_params", None) or []  # one flat tensor, or several
        for state in self.optimizer.optimizer.state.values():
            tensors += [value for value in state.values() if torch.is_tensor(value)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def peak_bytes(self, places: Sequence[int]) -> int | None:
        """Memory between steps and the most that a step needs beside it; None where it cannot be known."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            self.step(places)
            return self.state_bytes() + torch.cuda.max_memory_allocated(self.device) - before
        before = resident_bytes(reset=True)
        self.step(places)
        peak = resident_bytes()
        return None if before is None or peak is None else self.state_bytes() + peak - before


def resident_bytes(reset: bool = False) -> int | None:
    """The most memory that this process has held since the last reset; Linux only."""
    try:
        if reset:
            ctypes.CDLL(None).malloc_trim(0)  # what was freed is to count as free
            Path("/proc/self/clear_refs").write_text("5")
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, AttributeError):
        pass
    return None


def configuration(arguments: Sequence[Any], precision: str) -> Any:
    """fairseq's configuration of a command line of ``fairseq-train`` and a precision.

    Precision is not an argument, since fairseq's command line takes ``--bf16`` for a wish to use a TPU.
    """
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(parser, [str(argument) for argument in arguments])
    )
    if precision != "fp32":
        cfg.common[precision] = True
    return cfg


def common_arguments(args: argparse.Namespace, data: Path) -> list[Any]:
    """What all contestants share."""
    heads = max(1, args.width // 64)
    return [
        *(data, "--max-positions", args.length),
        *("--encoder-layers", args.layers, "--encoder-embed-dim", args.width),
        *("--encoder-ffn-embed-dim", 4 * args.width, "--encoder-attention-heads", heads),
        *("--optimizer", "adam", "--lr", "1e-4", "--weight-decay", "0.01", "--clip-norm", "1.0"),
        *([] if args.device == "cuda" else ["--cpu"]),
    ]


def fairseq_contestant(
    name: str, label: str, args: argparse.Namespace, arguments: Sequence[Any], by_epoch: bool = False
) -> Contestant:
    """A criterion and model of fairseq's registries, on the device and in the precision of ``args``.

    With ``by_epoch`` batches are those of an epoch, for sequences of different lengths: only what a batch holds
    together says how much of it is padding.
    """
    cfg = configuration(arguments, args.precision)
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(1)
    model = task.build_model(cfg.model).to(device=args.device, dtype=PRECISIONS[args.precision])
    criterion = task.build_criterion(cfg.criterion)
    criterion = criterion.to(device=args.device, dtype=PRECISIONS[args.precision])
    task.load_dataset("train")
    add_teacher_states = getattr(task, "add_teacher_states", None)

    def forward(batch: Any) -> tuple[Tensor, Any]:
        if add_teacher_states is not None:
            batch = add_teacher_states(batch, model)
        loss, denominator, _ = criterion(model, batch)
        return loss, denominator

    dataset = task.dataset("train")
    return Contestant(
        name,
        label,
        cfg,
        model,
        dataset,
        forward,
        head=criterion,
        frozen=getattr(task, "_teacher", None),
        order=epoch_order(dataset, args.batch) if by_epoch else None,
    )


def epoch_order(dataset: Any, batch: int) -> list[int]:
    """The indices of an epoch's batches, without a last one that is not whole."""
    batches = dataset.batch_by_size(dataset.ordered_indices(), max_sentences=batch)
    whole = [list(map(int, one)) for one in batches if len(one) == batch]
    random.Random(1).shuffle(whole)
    return [index for one in whole for index in one]
