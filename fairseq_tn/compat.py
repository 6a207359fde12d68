"""The few differences between releases of fairseq and torch, in one place."""

import argparse
import codecs
import collections
import functools
import importlib
import os
import re
import typing
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def _numpy_scalars() -> list:
    """What a pickled numpy float consists of: a run whose best metric is a correlation stores one."""
    import numpy

    # Python 3 pickles their bytes as text, through this function
    scalars = [codecs.encode, numpy.dtype, type(numpy.dtype("float64")), type(numpy.dtype("float32"))]
    for name in ("numpy._core.multiarray", "numpy.core.multiarray"):
        try:
            scalars.append(importlib.import_module(name).scalar)
        except (ImportError, AttributeError):
            continue
    return scalars


def _broadcast_checkpoint() -> list:
    """What a checkpoint consists of when the first process of several hands it to the others."""
    from fairseq.distributed.utils import _TensorPlaceholder
    from omegaconf import DictConfig, ListConfig
    from omegaconf.base import ContainerMetadata, Metadata
    from omegaconf.nodes import AnyNode

    configuration = [DictConfig, ListConfig, ContainerMetadata, Metadata, AnyNode]
    return [_TensorPlaceholder, *configuration, typing.Any, dict, list, int, collections.defaultdict]


# until 0.9 fairseq pickled these into checkpoints (``train_meters``), and nobody reads them since
_OLD_METERS = [
    type(name, (), {"__module__": "fairseq.meters"})
    for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")
]


def allow_checkpoint_files() -> None:
    """Let torch's restricted unpickler read the files that fairseq writes; does not import fairseq."""
    if hasattr(torch.serialization, "add_safe_globals"):
        torch.serialization.add_safe_globals([argparse.Namespace, *_numpy_scalars(), *_OLD_METERS])


def allow_checkpoints() -> None:
    """Let torch's restricted unpickler read fairseq's checkpoints.

    fairseq calls plain ``torch.load``, which refuses an ``argparse.Namespace`` since torch 2.6, so that resuming
    and fine-tuning fail, and with several processes the configuration in a checkpoint too. Naming the few classes
    keeps unpickling restricted for everything else.
    """
    allow_checkpoint_files()
    if hasattr(torch.serialization, "add_safe_globals"):
        torch.serialization.add_safe_globals(_broadcast_checkpoint())


def let_hydra_pass_errors() -> None:
    """Let an error leave ``fairseq-hydra-train`` as it is.

    Hydra puts a shortened traceback around every error, even around the one line of a ``UserError``, unless this
    variable is set; then errors reach the interpreter, which prints that line alone and others in full.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")


# fairseq 0.12.2 keeps a second copy of every layer's parameters for an inference path of its own
_COPIES = tuple(
    f"{part}_{kind}" for part in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")
)


def without_layer_copies(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state without the second copies of layers' parameters that 0.12.2 puts into its checkpoints."""
    copy = re.compile(rf".*\.layers\.\d+\.({'|'.join(_COPIES)})")
    return {name: value for name, value in state.items() if not copy.fullmatch(name)}


def _drop_copies(state_dict: dict[str, Any], prefix: str, *unused: Any) -> None:
    for name in _COPIES:
        state_dict.pop(prefix + name, None)


def unify_transformer_layers(model: nn.Module) -> None:
    """Make the encoder layers of fairseq's ``roberta`` behave alike in every release; other modules stay as they are.

    In 0.12.2 a layer that has not trained yet takes a fast path when it evaluates: its intermediate states are
    nested tensors with the batch first. It reads copies of the parameters, which never get a gradient: torch's
    DistributedDataParallel aborts on them, and they go into every checkpoint. The path is switched off and the
    copies are frozen. Later releases have neither; there the copies in a checkpoint of 0.12.2 are dropped.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    for layer in model.modules():
        if not isinstance(layer, TransformerEncoderLayerBase):
            continue
        if hasattr(layer, "in_proj_weight"):
            layer.can_use_fastpath = False
            for name in _COPIES:
                getattr(layer, name).requires_grad_(False)
        else:
            layer._register_load_state_dict_pre_hook(_drop_copies)


def tell_tasks_of_checkpoints() -> None:
    """Let fairseq 0.12.2 call ``task.post_save(path, num_updates)`` after it has saved, as later releases do."""
    from fairseq import checkpoint_utils

    if "saved_cp" in checkpoint_utils.save_checkpoint.__code__.co_varnames:
        return
    from fairseq.trainer import Trainer

    save = Trainer.save_checkpoint
    if hasattr(save, "__wrapped__"):
        return

    @functools.wraps(save)
    def save_checkpoint(self: Any, filename: str, extra_state: dict) -> None:
        save(self, filename, extra_state)
        if self.should_save_checkpoint_on_current_rank and hasattr(self.task, "post_save"):
            self.task.post_save(filename, self.get_num_updates())

    Trainer.save_checkpoint = save_checkpoint
