"""Runs a function in two processes of one gloo group: an importable helper of the tests."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def _work(rank: int, folder: Path, function: Callable[[int], Any]) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'init'}", rank=rank, world_size=2
    )
    torch.save(function(rank), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def run_in_two_processes(folder: Path, function: Callable[[int], Any]) -> list[Any]:
    """Fork twice and call ``function(rank)``; returns both results, which must be picklable.

    Args:
        folder: new, or empty
    """
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")  # fairseq is imported already
    processes = [context.Process(target=_work, args=(rank, folder, function)) for rank in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0, 0], codes
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]
