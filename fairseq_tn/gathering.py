"""Rows of all workers of a run, with the gradient that one worker with all of them would have."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


def num_workers() -> int:
    """How many workers train together; 1 outside distributed training."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def counts_of_workers(counts: Sequence[int], device: torch.device) -> list[list[int]]:
    """Tell every worker the numbers of all: one list for each worker, in the order of their ranks.

    With several workers this waits for the device; shapes have to be known before rows can be exchanged.
    """
    if num_workers() == 1:
        return [list(counts)]
    own = torch.tensor(counts, dtype=torch.int64, device=device)
    parts = [torch.empty_like(own) for _ in range(num_workers())]
    dist.all_gather(parts, own)
    return torch.stack(parts).tolist()


def gather_rows(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """The rows of all workers, ordered by rank.

    torch's own ``all_gather`` cuts the graph: a worker's loss would not reach the others' rows, and the sum over
    workers would lack that part of the gradient. Here backward adds up what all workers send back; every worker has
    to go through it, also one without rows.

    Args:
        rows: N x D of this worker.
        counts: N of each worker; they may differ and be 0.

    Returns:
        sum(counts) x D.
    """
    return rows if num_workers() == 1 else _GatherRows.apply(rows, tuple(counts))


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[int, ...]) -> Tensor:
        rank = dist.get_rank()
        ctx.begin, ctx.end = sum(counts[:rank]), sum(counts[: rank + 1])
        padded = rows.new_zeros(max(counts), rows.size(1))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:number] for part, number in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.begin : ctx.end], None
