"""Reading and writing the folders in which Hugging Face's libraries keep a model."""

import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_tn.errors import UserError
from fairseq_tn.files import read_json

CONFIG_FILE = "config.json"
SAFETENSORS_FILE = "model.safetensors"
PICKLE_FILE = "pytorch_model.bin"
# in the order in which transformers looks for them
WEIGHT_FILES = (
    SAFETENSORS_FILE,
    f"{SAFETENSORS_FILE}.index.json",
    PICKLE_FILE,
    f"{PICKLE_FILE}.index.json",
)
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
_POINTER = b"version https://git-lfs"


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a model's folder."""
    if not folder.is_dir():
        raise UserError(f"the folder {folder} does not exist; give a Hugging Face model's folder on disk")
    if not (folder / CONFIG_FILE).is_file():
        raise UserError(f"{folder} holds no {CONFIG_FILE}; give a Hugging Face model's folder")
    return read_json(folder / CONFIG_FILE)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a model's folder, on the CPU, under their names in the files.

    Reads safetensors or ``pytorch_model.bin``, in one file or in shards. A pickle is read with torch's
    restricted unpickler, so that no code of the file runs.
    """
    for name in WEIGHT_FILES:
        path = folder / name
        if not path.is_file():
            continue
        if not name.endswith(".index.json"):
            return _read_weights(path)
        shards = read_json(path).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
            raise UserError(f"{path} has no usable weight_map; get the file again")
        tensors: dict[str, Tensor] = {}
        for shard in sorted(set(shards.values())):
            if not (folder / shard).is_file():
                raise UserError(f"{folder / shard}, which {path.name} names, is missing; get the file")
            tensors.update(_read_weights(folder / shard))
        lost = sorted(set(shards) - set(tensors))
        if lost:
            raise UserError(
                f"{path} promises the tensor {lost[0]}, which no shard holds; get the files again"
            )
        return tensors
    raise UserError(f"{folder} holds no weights; {SAFETENSORS_FILE} or {PICKLE_FILE} is needed")


def _read_weights(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise UserError(f"{path} is only a Git LFS pointer; get the file itself with `git lfs pull`")
    if path.suffix == ".safetensors":
        torch_safetensors, damaged = _safetensors()
        try:
            return torch_safetensors.load_file(path)
        except (damaged, OSError) as error:
            raise UserError(f"{path} is truncated or damaged ({_first_line(error)}); get it again") from None
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        # torch raises it for a damaged pickle too
        raise UserError(
            f"{path} is damaged, or holds objects other than tensors, which are not loaded since they could "
            f"run code; get it again, or save the model as {SAFETENSORS_FILE}"
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise UserError(f"{path} is truncated or damaged ({_first_line(error)}); get it again") from None
    if not isinstance(tensors, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in tensors.items()
    ):
        raise UserError(
            f"{path} holds more than a model's tensors (a training checkpoint?); save the model's "
            "state_dict() alone"
        )
    return dict(tensors)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors as safetensors, marked as PyTorch's as transformers asks."""
    path.touch()
    mode = path.stat().st_mode
    torch_safetensors, failed = _safetensors()
    try:
        torch_safetensors.save_file(
            {name: value.contiguous() for name, value in tensors.items()}, path, metadata={"format": "pt"}
        )
    except failed as error:
        raise UserError(f"{path.name} cannot be written; is the disk full? ({_first_line(error)})") from None
    path.chmod(mode)  # safetensors writes files that only their owner may read


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds any file of a tokenizer."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the tokenizer's files of one model's folder into another, byte for byte."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _safetensors() -> tuple[Any, type[Exception]]:
    try:
        import safetensors
        import safetensors.torch
    except ImportError:
        raise UserError(
            "the package safetensors is missing; install it with `pip install safetensors`"
        ) from None
    return safetensors.torch, safetensors.SafetensorError


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
