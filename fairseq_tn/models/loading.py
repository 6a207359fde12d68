"""Reading fairseq checkpoints, of our models and of fairseq's own ``roberta``, with errors that users understand."""

import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import checkpoint_utils, models
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch import nn

from fairseq_tn.checkpoints import check_checkpoint
from fairseq_tn.compat import unify_transformer_layers
from fairseq_tn.errors import CheckpointMismatch, UserError


def read_checkpoint(path: str | Path, option: str = "the checkpoint") -> dict[str, Any]:
    """What a checkpoint holds, on the CPU; its ``cfg`` is there also where an old one has ``args`` instead.

    ``option`` names the file in errors. Raises UserError for a file that is missing, damaged or something else.
    """
    check_checkpoint(path, option)
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        if not state.get("cfg"):
            state["cfg"] = convert_namespace_to_omegaconf(state["args"])
        state["model"]
    except (
        pickle.UnpicklingError,
        RuntimeError,
        EOFError,
        KeyError,
        OSError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
    ) as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        raise UserError(f"{option} {path} is not a readable fairseq checkpoint: {reason}") from error
    return state


def build_from_checkpoint(
    state: dict[str, Any], dictionary: Dictionary, path: str | Path, option: str = "the checkpoint"
) -> nn.Module:
    """The model of what :func:`read_checkpoint` gives, in eval mode, without the task it was trained with.

    Raises UserError, naming the file, if the checkpoint is not of this vocabulary or architecture.
    """
    model_cfg = state["cfg"].model
    # fairseq's models read nothing else of a task
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    try:
        model = models.build_model(model_cfg, task)
        unify_transformer_layers(model)
        model.load_state_dict(state["model"], strict=True, model_cfg=model_cfg)
    except (CheckpointMismatch, RuntimeError) as error:
        raise UserError(f"{option} {path} does not fit: {' '.join(str(error).split())}") from error
    return model.eval()
