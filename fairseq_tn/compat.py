"""The few differences between releases of fairseq and torch, in one place."""

import argparse
import collections
import importlib
import typing

import torch


def _numpy_scalars() -> list:
    """What a pickled numpy float consists of: a run whose best metric is a correlation stores one."""
    import numpy

    scalars = [numpy.dtype, type(numpy.dtype("float64")), type(numpy.dtype("float32"))]
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


def allow_checkpoints() -> None:
    """Let torch's restricted unpickler read fairseq's checkpoints.

    fairseq calls plain ``torch.load``, which refuses an ``argparse.Namespace`` since torch 2.6, so that resuming
    and fine-tuning fail, and with several processes the configuration in a checkpoint too. Naming the few classes
    keeps unpickling restricted for everything else.
    """
    if hasattr(torch.serialization, "add_safe_globals"):
        torch.serialization.add_safe_globals(
            [argparse.Namespace, *_numpy_scalars(), *_broadcast_checkpoint()]
        )
