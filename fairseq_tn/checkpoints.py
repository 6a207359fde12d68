"""Checkpoint files: whether a file is one, which of a run are kept for good, and keeping them."""

import math
import re
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path

from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_path

_WITH_UPDATES = re.compile(r"checkpoint_(?:at|\d+)_(\d+)\.pt")


def check_checkpoint(path: str | Path, option: str) -> None:
    """Raise UserError unless ``path``, which ``option`` names, is a whole checkpoint file by its looks."""
    if not Path(path).is_file():
        raise UserError(
            f"{option} {path} is missing; give a checkpoint, such as model.pt of `fairseq-tn convert`"
        )
    with open(path, "rb") as file:
        # a pickle, as torch wrote before 1.6, begins with this byte; a zip archive tells by its end
        if file.read(1) != b"\x80" and not zipfile.is_zipfile(path):
            raise UserError(
                f"{option} {path} is not a checkpoint, or only a part of one; give a .pt file of fairseq-train or of "
                "`fairseq-tn convert`"
            )


def checkpoints_of_run(folder: str | Path) -> dict[int, Path]:
    """The checkpoints of a run whose names tell their updates, ``checkpoint_at_N.pt`` or ``checkpoint_EPOCH_N.pt``.

    Returns:
        updates -> path, ascending
    """
    found: dict[int, Path] = {}
    # "at" sorts after every epoch: of two files of the same updates the one that is kept for good counts
    for path in sorted(Path(folder).glob("checkpoint_*.pt")):
        if match := _WITH_UPDATES.fullmatch(path.name):
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def updates_to_keep(shares: Iterable[float], max_update: int, interval: int) -> list[int]:
    """Return the updates whose checkpoints are kept: for each share of the run, the first that is saved.

    fairseq saves at every multiple of ``interval`` and at the end of a run.

    Args:
        shares: parts of the run, above 0 and at most 1
        max_update: updates of the run (``--max-update``)
        interval: updates between two saved checkpoints (``--save-interval-updates``); 0 = only the last is saved

    Returns:
        updates, ascending, without repetition

    Raises:
        UserError: a share is out of range, the run has no number of updates, or nothing is saved on the way
    """
    shares = list(shares)
    if not shares:
        return []
    for share in shares:
        if not 0 < share <= 1:
            raise UserError(
                f"--keep-checkpoints-at {share:g}: give parts of the run, above 0 and at most 1, such as 0.25,0.5,1"
            )
    if max_update <= 0:
        raise UserError("--keep-checkpoints-at takes parts of the run: give its length with --max-update")
    if interval <= 0 and min(shares) < 1:
        raise UserError(
            "--keep-checkpoints-at keeps what is saved: give --save-interval-updates, for example "
            f"{max(1, max_update // 80)}"
        )
    updates = set()
    for share in shares:
        # rounded first: 0.07 * 100 is a little more than 7
        update = max(1, math.ceil(round(share * max_update, 6)))
        updates.add(min(max_update, math.ceil(update / interval) * interval) if interval > 0 else max_update)
    return sorted(updates)


def keep_checkpoint(path: str | Path, update: int) -> Path:
    """Copy a checkpoint to ``checkpoint_at_UPDATE.pt`` beside it, a name that fairseq never removes.

    It is no link: fairseq writes into some of its files again.
    """
    kept = Path(path).with_name(f"checkpoint_at_{update}.pt")
    with atomic_path(kept) as temporary:
        shutil.copyfile(path, temporary)
    return kept
