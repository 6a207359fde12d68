"""From a Hugging Face folder to a fairseq checkpoint."""

import dataclasses
import functools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_tn.compat import without_layer_copies
from fairseq_tn.convert.folders import (
    CONFIG_FILE,
    copy_tokenizer,
    has_tokenizer,
    read_config,
    read_tensors,
)
from fairseq_tn.convert.kinds import CompoundKind, Kind, kind_of_config, parts_of
from fairseq_tn.convert.tensors import TensorTable, missing_heads, random_pairs, to_fairseq
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
    folders: its folders, by the keys of :func:`fairseq_tn.convert.kinds.parts_of`.
    missing: the beginnings of our names of what the folders lack and what is initialised; heads (keys of
        ``TensorTable.heads``) in most cases.
    dtypes: the types in which the folders keep their weights.
    notes: what was changed, a line each.
    """

    kind: Kind
    model: Any
    vocabulary: HuggingFaceVocabulary
    cfg: Any
    folders: dict[str, Path]
    missing: list[str]
    dtypes: set[torch.dtype]
    notes: list[str]


@dataclasses.dataclass
class Written:
    """What was written: where, what in fairseq's or transformers' words, and its number of parameters."""

    path: Path
    architecture: str
    parameters: int


@dataclasses.dataclass
class Conversion:
    """What a user should know about a finished conversion.

    options: what fairseq-train must be given: ``--arch``, sizes that differ, ``--tokens-per-sample``.
    notes: one line for each thing that was added or changed.
    written: the checkpoint, or the folders of the model.
    """

    options: list[str]
    notes: list[str]
    written: list[Written]


def task_dictionary(dict_file: Path) -> Dictionary:
    """The dictionary that the tasks make of ``dict.txt``: ``<mask>`` comes last."""
    dictionary = Dictionary.load(str(dict_file))
    dictionary.add_symbol("<mask>")
    return dictionary


@dataclasses.dataclass
class _Folder:
    """A Hugging Face folder of one part of a model; the weights are read when they are asked for."""

    path: Path
    config: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> "_Folder":
        return cls(path, read_config(path))

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG_FILE

    @functools.cached_property
    def tensors(self) -> dict[str, Tensor]:
        return read_tensors(self.path)


def load_hugging_face(
    folder: str | Path,
    seed: int = 1,
    generator: str | Path | None = None,
    embeddings: str | None = None,
    sizes: Mapping[str, Any] | None = None,
) -> HuggingFaceModel:
    """Read a Hugging Face model; what its folders lack is initialised from ``seed``.

    Args:
        folder: of the model; of ELECTRA the discriminator's, or a generator's alone.
        seed: of the initial values.
        generator: ELECTRA's generator; default: the folder ``generator`` in ``folder``, if there is one.
        embeddings: whose embeddings ("discriminator", "generator") to take for both if they differ.
        sizes: options of the model, for a part that no folder holds.

    Raises UserError for a folder that is missing, broken or of another kind of model, and for folders that do not
    make one model.
    """
    first = _Folder.open(Path(folder))
    kind = kind_of_config(first.config, first.config_file)
    folders = _folders(kind, first, None if generator is None else Path(generator))
    cfgs = {part: kind.model_config(one.config, one.config_file) for part, one in folders.items()}
    notes: list[str] = []
    if isinstance(kind, CompoundKind):
        sources = {part: one.config_file for part, one in folders.items()}
        cfg, notes = kind.join(cfgs, sources, sizes or {})
    else:
        cfg = cfgs[""]
    vocabulary = _vocabulary(kind, list(folders.values()))
    model = new_model(kind, cfg, new_dictionary(vocabulary), seed)
    initial = model.state_dict()
    table = kind.tensor_table(cfg)
    shapes = {name: value.shape for name, value in initial.items()}
    states = {}
    for part, one in folders.items():
        tensors, changed = kind.plain_tensors(one.tensors, cfg, one.path)
        part_table = table.without(_left_out(kind, part))
        states[part] = to_fairseq(tensors, part_table, shapes, vocabulary.fairseq_to_hf(), one.path)
        notes += changed
    state = {name: value for part in states for name, value in states[part].items()}
    if isinstance(kind, CompoundKind) and len(states) > 1:
        state, changed = _joined(kind, model, states, folders, table, embeddings)
        notes += changed
    absent = set.intersection(*(set(_left_out(kind, part)) for part in folders))
    missing = list(dict.fromkeys([*sorted(absent), *missing_heads(state, table)]))
    state.update({copy: state[original] for copy, original in table.tied.items()})
    model.load_state_dict({**initial, **state})
    return HuggingFaceModel(
        kind=kind,
        model=model,
        vocabulary=vocabulary,
        cfg=cfg,
        folders={part: one.path for part, one in folders.items()},
        missing=missing,
        dtypes={
            value.dtype
            for one in folders.values()
            for value in one.tensors.values()
            if value.is_floating_point()
        },
        notes=notes,
    )


def _left_out(kind: Kind, part: str) -> tuple[str, ...]:
    """The beginnings of our names of what the folder of a part does not hold."""
    return kind.ARCHITECTURES[parts_of(kind)[part][0]]


def _folders(kind: Kind, first: _Folder, generator: Path | None) -> dict[str, _Folder]:
    """The folders of a model by part: ``first``, and the generator if there is one."""
    if not isinstance(kind, CompoundKind):
        if generator is not None:
            raise UserError(f"--generator is for ELECTRA; {first.path} holds a model of another kind")
        return {"": first}
    (second_part,) = set(kind.PARTS) - {""}
    if kind.part_of(first.tensors) == second_part:
        if generator is not None:
            raise UserError(
                f"{first.path} is a {kind.ROLES[second_part]} itself; give the {kind.ROLES['']}'s folder and name "
                "this one with --generator"
            )
        return {second_part: first}
    if generator is None:
        within = first.path / second_part
        if not (within / CONFIG_FILE).is_file():
            return {"": first}
        generator = within
    second = _Folder.open(generator)
    if kind_of_config(second.config, second.config_file) is not kind or kind.part_of(second.tensors) == "":
        raise UserError(
            f"{generator} is no {kind.ROLES[second_part]}; name with --generator the folder of the "
            f"{kind.ROLES[second_part]} that belongs to {first.path}"
        )
    return {"": first, second_part: second}


def _vocabulary(kind: Kind, folders: list[_Folder]) -> HuggingFaceVocabulary:
    """The vocabulary of a model's folders, which must be the same in all."""
    first = folders[0]
    vocabulary = kind.load_vocabulary(first.path)
    for one in folders:
        if one is not first and has_tokenizer(one.path):
            other = kind.load_vocabulary(one.path)
            if (other.tokens, other.specials) != (vocabulary.tokens, vocabulary.specials):
                raise UserError(
                    f"{first.path} and {one.path} have different vocabularies ({len(vocabulary)} and {len(other)} "
                    "tokens); give folders that belong together"
                )
        if one.config.get("vocab_size") != len(vocabulary):
            raise UserError(
                f"{one.config_file}: vocab_size is {one.config.get('vocab_size')}, but the tokenizer in "
                f"{first.path} has {len(vocabulary)} tokens; give the tokenizer that belongs to the model"
            )
    return vocabulary


@torch.no_grad()
def _joined(
    kind: CompoundKind,
    model: Any,
    states: Mapping[str, dict[str, Tensor]],
    folders: Mapping[str, _Folder],
    table: TensorTable,
    embeddings: str | None,
) -> tuple[dict[str, Tensor], list[str]]:
    """One state of two folders; what both hold must be equal unless ``embeddings`` says whose to take."""
    first, second = states
    differing = [
        name
        for name in table.names
        if name in states[first]
        and name in states[second]
        and not torch.equal(states[first][name], states[second][name])
    ]
    together = {**states[second], **states[first]}
    if not differing:
        return together, []
    roles = [kind.ROLES[part] for part in (first, second)]
    if embeddings is None:
        raise UserError(
            f"{folders[first].path} and {folders[second].path} have different {table.names[differing[0]][0]}, but "
            f"{roles[0]} and {roles[1]} of a model share their embeddings; give folders of one pre-training, or take "
            f"one's for both, which changes what the other predicts, with --embeddings {roles[0]} or {roles[1]}"
        )
    kept, lost = (first, second) if embeddings == roles[0] else (second, first)
    initial, tokens = (
        model.state_dict(),
        random_pairs(len(states[first][table.embedding]), model.max_positions()),
    )
    outputs = []
    for state in ({**states[kept], **states[lost]}, {**states[lost], **states[kept]}):
        model.load_state_dict({**initial, **state})
        outputs.append(kind.outputs(model, tokens))
    # what the part that lost its embeddings computes, in the order of the table: its logits come last
    names = [name for name in {**table.parts, **table.heads} if not name.startswith(_left_out(kind, lost))]
    change = (outputs[0][names[-1]] - outputs[1][names[-1]]).abs()
    note = (
        f"the embeddings of {folders[lost].path} are left out for those of {folders[kept].path}, from which they "
        f"differ: on random tokens the {kind.ROLES[lost]}'s outputs change by {change.mean():.2g} on average and "
        f"{change.max():.2g} at most"
    )
    return {**states[lost], **states[kept]}, [note]


def new_model(kind: Kind, cfg: Any, dictionary: Dictionary, seed: int = 1) -> Any:
    """A model in eval mode with initial weights that depend on ``seed`` alone; ``cfg`` is not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind.new_model(cfg, dictionary).eval()


def new_dictionary(vocabulary: HuggingFaceVocabulary) -> Dictionary:
    """fairseq's dictionary of a vocabulary, as the tasks make it."""
    dictionary = Dictionary()
    for symbol in vocabulary.symbols()[dictionary.nspecial :]:
        dictionary.add_symbol(symbol)
    return dictionary


def convert_from_hf(
    folder: str | Path,
    output: str | Path,
    seed: int = 1,
    generator: str | Path | None = None,
    embeddings: str | None = None,
    generator_size: float | None = None,
) -> Conversion:
    """Write ``dict.txt``, ``model.pt`` and ``hf/`` into ``output`` for the Hugging Face model in ``folder``.

    ``model.pt`` is a fairseq checkpoint, ``hf/`` keeps the configuration and the tokenizer, and with it the
    original order of ids; those of ELECTRA's generator are in ``hf/generator/``. ``generator_size`` is the width
    of a generator that no folder holds, as a share of the discriminator's; for the other arguments see
    :func:`load_hugging_face`. Nothing is written if anything is wrong (UserError).
    """
    folder, output = Path(folder), Path(output)
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is a file; name a folder")
    for given in (folder, None if generator is None else Path(generator)):
        if given is not None and given.exists() and output.exists() and output.samefile(given):
            raise UserError(f"--output {output} is the folder that is converted; name another")
    sizes = {} if generator_size is None else {"generator_size": generator_size}
    source = load_hugging_face(folder, seed, generator, embeddings, sizes)
    if not isinstance(source.kind, CompoundKind) and (embeddings or sizes):
        raise UserError(
            f"--embeddings and --generator-size are for ELECTRA; {folder} holds another kind of model"
        )
    if sizes and not any(head.startswith("generator.") for head in source.missing):
        raise UserError(
            "--generator-size is for a generator of initial values; leave it out where a folder has one"
        )
    notes = list(source.notes)
    with atomic_folder(output) as temporary:
        source.vocabulary.write_dict(temporary / DICTIONARY_FILE)
        if task_dictionary(temporary / DICTIONARY_FILE).symbols != source.vocabulary.symbols():
            raise UserError(f"the vocabulary of {folder} does not survive in a fairseq dict.txt")
        notes += source.kind.write_encoder_files(folder, temporary)
        original = temporary / ORIGINAL_FOLDER
        original.mkdir()
        copy_tokenizer(folder, original)
        for part, one in source.folders.items():
            (original / part).mkdir(exist_ok=True)
            shutil.copyfile(one / CONFIG_FILE, original / part / CONFIG_FILE)
            copy_tokenizer(one, original / part)
        checkpoint = fairseq_checkpoint(
            source.kind, without_layer_copies(source.model.state_dict()), source.cfg, output
        )
        try:
            torch.save(checkpoint, temporary / CHECKPOINT_FILE)
        except RuntimeError as error:  # torch's writer does not say what went wrong
            raise UserError(
                f"{output / CHECKPOINT_FILE} cannot be written; is the disk full? ({str(error).splitlines()[0]})"
            ) from None
    table = source.kind.tensor_table(source.cfg)
    notes += [
        f"{folder} has no {what}: initialised at random (seed {seed})"
        for head, what in {**table.parts, **table.heads}.items()
        if head in source.missing
    ]
    for dtype in sorted(source.dtypes - {torch.float32}, key=str):
        notes.append(f"the weights in {folder} are {str(dtype).removeprefix('torch.')}; written as float32")
    return Conversion(
        options=source.kind.command_line(source.cfg),
        notes=notes,
        written=[
            Written(
                path=output / CHECKPOINT_FILE,
                architecture=checkpoint["cfg"]["model"]["_name"],
                parameters=sum(parameter.numel() for parameter in source.model.parameters()),
            )
        ],
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
