"""From a Hugging Face BERT folder to a fairseq checkpoint."""

import copy
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_tn.convert.bert import HEADS, command_line, model_config, to_fairseq
from fairseq_tn.convert.folders import CONFIG_FILE, copy_tokenizer, read_config, read_tensors
from fairseq_tn.data.vocabulary import HuggingFaceVocabulary
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_folder
from fairseq_tn.models.bert import TnBertConfig, TnBertModel
from fairseq_tn.tasks.bert_pretraining import BertPretrainingConfig

DICTIONARY_FILE, CHECKPOINT_FILE, ORIGINAL_FOLDER = "dict.txt", "model.pt", "hf"


@dataclasses.dataclass
class HuggingFaceModel:
    """A Hugging Face BERT in our notation.

    model: ours, with its weights, in eval mode.
    vocabulary: its tokens.
    cfg: its sizes, all written out.
    missing: the heads that the folder lacks and that are initialised; keys of ``HEADS``.
    dtypes: the types in which the folder keeps its weights.
    """

    model: TnBertModel
    vocabulary: HuggingFaceVocabulary
    cfg: TnBertConfig
    missing: list[str]
    dtypes: set[torch.dtype]


@dataclasses.dataclass
class Conversion:
    """What a user should know about a finished conversion.

    options: what fairseq-train must be given: ``--arch``, sizes that differ, a shorter ``--tokens-per-sample``.
    notes: one line for each thing that was added or changed.
    parameters: number of parameters.
    """

    options: list[str]
    notes: list[str]
    parameters: int


def task_dictionary(dict_file: Path) -> Dictionary:
    """The dictionary that the tasks make of ``dict.txt``: ``<mask>`` comes last."""
    dictionary = Dictionary.load(str(dict_file))
    dictionary.add_symbol("<mask>")
    return dictionary


def load_hugging_face(folder: str | Path, seed: int = 1) -> HuggingFaceModel:
    """Read a Hugging Face BERT folder; what it lacks is initialised from ``seed``.

    Raises UserError for a folder that is missing, broken or of another kind of model.
    """
    folder = Path(folder)
    config_file = folder / CONFIG_FILE
    config = read_config(folder)
    cfg = model_config(config, config_file)
    vocabulary = HuggingFaceVocabulary.load(folder)
    if config.get("vocab_size") != len(vocabulary):
        raise UserError(
            f"{config_file}: vocab_size is {config.get('vocab_size')}, but the tokenizer in {folder} has "
            f"{len(vocabulary)} tokens; give the tokenizer that belongs to the model"
        )
    tensors = read_tensors(folder)
    model = new_model(cfg, _dictionary(vocabulary), seed)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    state = to_fairseq(tensors, shapes, cfg.encoder_layers or 0, vocabulary.fairseq_to_hf(), folder)
    missing = [head for head in HEADS if not any(name.startswith(head) for name in state)]
    model.load_state_dict({**model.state_dict(), **state})
    return HuggingFaceModel(
        model=model,
        vocabulary=vocabulary,
        cfg=cfg,
        missing=missing,
        dtypes={value.dtype for value in tensors.values() if value.is_floating_point()},
    )


def new_model(cfg: TnBertConfig, dictionary: Dictionary, seed: int = 1) -> TnBertModel:
    """A model in eval mode with initial weights that depend on ``seed`` alone; ``cfg`` is not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TnBertModel(copy.copy(cfg), dictionary).eval()


def _dictionary(vocabulary: HuggingFaceVocabulary) -> Dictionary:
    dictionary = Dictionary()
    for symbol in vocabulary.symbols()[dictionary.nspecial :]:
        dictionary.add_symbol(symbol)
    return dictionary


def convert_from_hf(folder: str | Path, output: str | Path, seed: int = 1) -> Conversion:
    """Write ``dict.txt``, ``model.pt`` and ``hf/`` into ``output`` for the Hugging Face BERT in ``folder``.

    ``model.pt`` is a fairseq checkpoint, ``hf/`` keeps the configuration and the tokenizer, and with it the
    original order of ids. Nothing is written if anything is wrong (UserError).
    """
    folder, output = Path(folder), Path(output)
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is a file; name a folder")
    if folder.exists() and output.exists() and output.samefile(folder):
        raise UserError(f"--output {output} is the folder that is converted; name another")
    source = load_hugging_face(folder, seed)
    with atomic_folder(output) as temporary:
        source.vocabulary.write_dict(temporary / DICTIONARY_FILE)
        if task_dictionary(temporary / DICTIONARY_FILE).symbols != source.vocabulary.symbols():
            raise UserError(f"the vocabulary of {folder} does not survive in a fairseq dict.txt")
        original = temporary / ORIGINAL_FOLDER
        original.mkdir()
        shutil.copyfile(folder / CONFIG_FILE, original / CONFIG_FILE)
        copy_tokenizer(folder, original)
        checkpoint = fairseq_checkpoint(source.model.state_dict(), source.cfg, output)
        try:
            torch.save(checkpoint, temporary / CHECKPOINT_FILE)
        except RuntimeError as error:  # torch's writer does not say what went wrong
            raise UserError(
                f"{output / CHECKPOINT_FILE} cannot be written; is the disk full? ({str(error).splitlines()[0]})"
            ) from None
    options = command_line(source.cfg)
    if tokens_per_sample(source.cfg) != BertPretrainingConfig.tokens_per_sample:
        options += ["--tokens-per-sample", str(tokens_per_sample(source.cfg))]
    notes = [f"{folder} has no {HEADS[head]}: initialised at random (seed {seed})" for head in source.missing]
    for dtype in sorted(source.dtypes - {torch.float32}, key=str):
        notes.append(f"the weights in {folder} are {str(dtype).removeprefix('torch.')}; written as float32")
    return Conversion(
        options=options,
        notes=notes,
        parameters=sum(parameter.numel() for parameter in source.model.parameters()),
    )


def tokens_per_sample(cfg: TnBertConfig) -> int:
    """The length of sequences to train with: the tasks' usual one, or less for a model of fewer positions."""
    return min(BertPretrainingConfig.tokens_per_sample, cfg.max_positions)


def fairseq_checkpoint(state: dict[str, Tensor], cfg: TnBertConfig, data: Path) -> dict[str, Any]:
    """A checkpoint of zero updates, as fairseq's trainer writes it.

    Args:
        state: the model's tensors.
        cfg: its sizes, all written out.
        data: the folder with ``dict.txt`` that the checkpoint names as its data.
    """
    settings = OmegaConf.to_container(OmegaConf.structured(FairseqConfig), resolve=True, enum_to_str=True)
    assert isinstance(settings, dict)
    settings["model"] = {field.name: getattr(cfg, field.name) for field in dataclasses.fields(cfg)}
    settings["task"] = {
        "_name": "bert_pretraining",
        "data": str(data.absolute()),
        "tokens_per_sample": tokens_per_sample(cfg),
    }
    settings["criterion"] = {"_name": "bert_pretraining"}
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
