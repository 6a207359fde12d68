"""fairseq's memory-mapped files, opened with errors that help."""

import os
import struct
from collections.abc import Sequence
from typing import Any

from fairseq.data import ConcatDataset, data_utils, indexed_dataset

from fairseq_tn.errors import UserError

# fairseq's index file: magic, version, type and number of lines; then a 4-byte size and an 8-byte position of each
_MAGIC = b"MMIDIDX\0\0"
_HEADER = struct.Struct("<9sQBQ")
_BYTES_PER_LINE = 12


def split_parts(path: str, combine: bool) -> list[str]:
    """Return ``path``, and with ``combine`` ``path1``, ``path2``, ... as far as there are files of that name."""
    parts = [path]
    while combine and os.path.isfile(indexed_dataset.index_file_path(f"{path}{len(parts)}")):
        parts.append(f"{path}{len(parts)}")
    return parts


def open_mapped(paths: Sequence[str], made_by: str) -> Any:
    """Open ``.bin`` and ``.idx`` of some paths as one fairseq data set.

    Args:
        paths: without the endings
        made_by: the command that errors send to

    Raises:
        UserError: a file is missing, empty, cut off or of another kind
    """
    for path in paths:
        _check_files(path, made_by)
    # The kind is named because fairseq prefers a text file of the same name. Its other kinds load the text into
    # memory, or share one file position between worker processes.
    parts = [data_utils.load_indexed_dataset(path, dataset_impl="mmap") for path in paths]
    return parts[0] if len(parts) == 1 else ConcatDataset(parts)


def _check_files(path: str, made_by: str) -> None:
    """Refuse what fairseq would open and fail on later, or with a message that does not help."""
    index, data = indexed_dataset.index_file_path(path), indexed_dataset.data_file_path(path)
    for file in (index, data):
        if not os.path.isfile(file):
            raise UserError(f"{file} is missing: make the data folder with {made_by}")
        if os.path.getsize(file) == 0:
            raise UserError(f"{file} is empty; run {made_by} again on a text that is not")
    with open(index, "rb") as stream:
        header = stream.read(_HEADER.size)
    if not header.startswith(_MAGIC):
        raise UserError(f"{index} is not of --dataset-impl mmap; run {made_by} again with it")
    if len(header) == _HEADER.size:
        *_, number = _HEADER.unpack(header)
        if os.path.getsize(index) == _HEADER.size + number * _BYTES_PER_LINE:
            return
    raise UserError(f"{index} is damaged; run {made_by} again")
