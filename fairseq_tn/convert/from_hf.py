"""From a Hugging Face folder to a fairseq checkpoint."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_tn.compat import without_layer_copies
from fairseq_tn.convert.folders import CONFIG_FILE, copy_tokenizer, read_config, read_tensors
from fairseq_tn.convert.kinds import Kind, kind_of_config
from fairseq_tn.convert.tensors import missing_heads, to_fairseq
from fairseq_tn.data.vocabulary import HuggingFaceVocabulary
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_folder

DICTIONARY_FILE, CHECKPOINT_FILE, ORIGINAL_FOLDER = "dict.txt", "model.pt", "hf"


@dataclasses.dataclass
class HuggingFaceModel:
    """A Hugging Face model in our notation.

    kind: its module.
    model: ours, with its weights, in eval mode.
    vocabulary: its tokens.
    cfg: its sizes, all written out.
    missing: the heads that the folder lacks and that are initialised; keys of ``TensorTable.heads``.
    dtypes: the types in which the folder keeps its weights.
    notes: what was changed, a line each.
    """

    kind: Kind
    model: Any
    vocabulary: HuggingFaceVocabulary
    cfg: Any
    missing: list[str]
    dtypes: set[torch.dtype]
    notes: list[str]


@dataclasses.dataclass
class Conversion:
    """What a user should know about a finished conversion.

    options: what fairseq-train must be given: ``--arch``, sizes that differ, ``--tokens-per-sample``.
    notes: one line for each thing that was added or changed.
    parameters: number of parameters.
    architecture: what was written, in fairseq's or transformers' words.
    """

    options: list[str]
    notes: list[str]
    parameters: int
    architecture: str


def task_dictionary(dict_file: Path) -> Dictionary:
    """The dictionary that the tasks make of ``dict.txt``: ``<mask>`` comes last."""
    dictionary = Dictionary.load(str(dict_file))
    dictionary.add_symbol("<mask>")
    return dictionary


def load_hugging_face(folder: str | Path, seed: int = 1) -> HuggingFaceModel:
    """Read a Hugging Face folder; heads that it lacks are initialised from ``seed``.

    Raises UserError for a folder that is missing, broken or of another kind of model.
    """
    folder = Path(folder)
    config_file = folder / CONFIG_FILE
    config = read_config(folder)
    kind = kind_of_config(config, config_file)
    cfg = kind.model_config(config, config_file)
    vocabulary = kind.load_vocabulary(folder)
    if config.get("vocab_size") != len(vocabulary):
        raise UserError(
            f"{config_file}: vocab_size is {config.get('vocab_size')}, but the tokenizer in {folder} has "
            f"{len(vocabulary)} tokens; give the tokenizer that belongs to the model"
        )
    given = read_tensors(folder)
    model = new_model(kind, cfg, _dictionary(vocabulary), seed)
    initial = model.state_dict()
    table = kind.tensor_table(cfg)
    tensors, notes = kind.plain_tensors(given, cfg, folder)
    shapes = {name: value.shape for name, value in initial.items()}
    state = to_fairseq(tensors, table, shapes, vocabulary.fairseq_to_hf(), folder)
    missing = missing_heads(state, table)
    state.update({copy: state[original] for copy, original in table.tied.items()})
    model.load_state_dict({**initial, **state})
    return HuggingFaceModel(
        kind=kind,
        model=model,
        vocabulary=vocabulary,
        cfg=cfg,
        missing=missing,
        dtypes={value.dtype for value in given.values() if value.is_floating_point()},
        notes=notes,
    )


def new_model(kind: Kind, cfg: Any, dictionary: Dictionary, seed: int = 1) -> Any:
    """A model in eval mode with initial weights that depend on ``seed`` alone; ``cfg`` is not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind.new_model(cfg, dictionary).eval()


def _dictionary(vocabulary: HuggingFaceVocabulary) -> Dictionary:
    dictionary = Dictionary()
    for symbol in vocabulary.symbols()[dictionary.nspecial :]:
        dictionary.add_symbol(symbol)
    return dictionary


def convert_from_hf(folder: str | Path, output: str | Path, seed: int = 1) -> Conversion:
    """Write ``dict.txt``, ``model.pt`` and ``hf/`` into ``output`` for the Hugging Face model in ``folder``.

    ``model.pt`` is a fairseq checkpoint, ``hf/`` keeps the configuration and the tokenizer, and with it the
    original order of ids. Nothing is written if anything is wrong (UserError).
    """
    folder, output = Path(folder), Path(output)
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is a file; name a folder")
    if folder.exists() and output.exists() and output.samefile(folder):
        raise UserError(f"--output {output} is the folder that is converted; name another")
    source = load_hugging_face(folder, seed)
    notes = list(source.notes)
    with atomic_folder(output) as temporary:
        source.vocabulary.write_dict(temporary / DICTIONARY_FILE)
        if task_dictionary(temporary / DICTIONARY_FILE).symbols != source.vocabulary.symbols():
            raise UserError(f"the vocabulary of {folder} does not survive in a fairseq dict.txt")
        notes += source.kind.write_encoder_files(folder, temporary)
        original = temporary / ORIGINAL_FOLDER
        original.mkdir()
        shutil.copyfile(folder / CONFIG_FILE, original / CONFIG_FILE)
        copy_tokenizer(folder, original)
        checkpoint = fairseq_checkpoint(
            source.kind, without_layer_copies(source.model.state_dict()), source.cfg, output
        )
        try:
            torch.save(checkpoint, temporary / CHECKPOINT_FILE)
        except RuntimeError as error:  # torch's writer does not say what went wrong
            raise UserError(
                f"{output / CHECKPOINT_FILE} cannot be written; is the disk full? ({str(error).splitlines()[0]})"
            ) from None
    heads = source.kind.tensor_table(source.cfg).heads
    notes += [
        f"{folder} has no {heads[head]}: initialised at random (seed {seed})" for head in source.missing
    ]
    for dtype in sorted(source.dtypes - {torch.float32}, key=str):
        notes.append(f"the weights in {folder} are {str(dtype).removeprefix('torch.')}; written as float32")
    return Conversion(
        options=source.kind.command_line(source.cfg),
        notes=notes,
        parameters=sum(parameter.numel() for parameter in source.model.parameters()),
        architecture=checkpoint["cfg"]["model"]["_name"],
    )


def fairseq_checkpoint(kind: Kind, state: dict[str, Tensor], cfg: Any, data: Path) -> dict[str, Any]:
    """A checkpoint of zero updates, as fairseq's trainer writes it.

    Args:
        kind: the model's module.
        state: the model's tensors.
        cfg: its sizes, all written out.
        data: the folder with ``dict.txt`` that the checkpoint names as its data.
    """
    settings = OmegaConf.to_container(OmegaConf.structured(FairseqConfig), resolve=True, enum_to_str=True)
    assert isinstance(settings, dict)
    settings.update(kind.checkpoint_settings(cfg))
    settings["task"]["data"] = str(data.absolute())
    return {
        "args": None,
        "cfg": settings,
        "model": state,
        "criterion": None,
        # one entry, since fairseq reads the last one of every checkpoint
        "optimizer_history": [
            {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
        ],
        "task_state": {},
        "extra_state": {
            "train_iterator": {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True},
            "val_loss": None,
        },
        "last_optimizer_state": None,
    }
