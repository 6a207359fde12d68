"""Progress of long work on standard error, for the commands."""

import contextlib
import sys
from collections.abc import Callable, Iterator

# an unattended log gets a line now and then, a terminal a bar
_TERMINAL_SECONDS, _LOG_SECONDS = 0.5, 60.0
_DELAY_SECONDS = 3.0


@contextlib.contextmanager
def bytes_progress(total: int, description: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of bytes done so far; nothing is shown for work of a few seconds."""
    with _bar(total, description, unit="B", unit_scale=True, unit_divisor=1024) as bar:
        yield lambda position: bar.update(position - bar.n)


@contextlib.contextmanager
def count_progress(total: int, description: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many more ``unit`` are done; nothing is shown for work of a few seconds."""
    with _bar(total, description, unit=f" {unit}") as bar:
        yield lambda more: bar.update(more)


def _bar(total: int, description: str, **options):
    from tqdm import tqdm

    terminal = sys.stderr.isatty()
    seconds = _TERMINAL_SECONDS if terminal else _LOG_SECONDS
    return tqdm(
        total=total or None,
        desc=description,
        mininterval=seconds,
        maxinterval=seconds,
        delay=_DELAY_SECONDS if terminal else _LOG_SECONDS,
        file=_Lines() if not terminal else sys.stderr,
        ascii=not terminal,
        leave=False,
        **options,
    )


class _Lines:
    """Turns tqdm's redrawing into lines."""

    def write(self, text: str) -> None:
        text = text.strip("\r\n ")
        if text:
            sys.stderr.write(text + "\n")

    def flush(self) -> None:
        sys.stderr.flush()
