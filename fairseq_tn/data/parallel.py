"""An ordered map over processes, in bounded memory."""

import collections
import concurrent.futures
import concurrent.futures.process
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from fairseq_tn.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """The number of cores that this process may use (a job scheduler may allow fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ordered_map(
    function: Callable[[Any, Item], Result], items: Iterable[Item], workers: int, context: Any = None
) -> Iterator[Result]:
    """Yield ``function(context, item)`` for each item, in the items' order, computed by ``workers`` processes.

    ``context`` is sent to each process once. At most a few items per process are in flight, so a stream of
    any length takes bounded memory. With one worker everything happens in this process. Processes are
    spawned, not forked: forking is unsafe once threads run. An error in a worker is raised here.
    """
    if workers <= 1:
        for item in items:
            yield function(context, item)
        return
    executor = concurrent.futures.ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(function, context)
    )
    pending: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
    try:
        for item in items:
            pending.append(executor.submit(_work, item))
            if len(pending) > 3 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except concurrent.futures.process.BrokenProcessPool:
        raise UserError(
            "a worker process died, perhaps for lack of memory; try again with a smaller --workers"
        ) from None
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_function: Callable[[Any, Any], Any]
_context: Any


def _start_worker(function: Callable[[Any, Any], Any], context: Any) -> None:
    global _function, _context
    _function, _context = function, context
    # Ctrl-C reaches the whole group; the parent alone reports it and ends the workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """End this worker when its parent is killed; otherwise it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(item: Any) -> Any:
    return _function(_context, item)
