"""The kinds of models that can be converted: a module of this folder each, with the functions listed here."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from fairseq_tn.convert import bert, electra, roberta
from fairseq_tn.convert.tensors import TensorTable
from fairseq_tn.data.vocabulary import HuggingFaceVocabulary
from fairseq_tn.errors import UserError


class Kind(Protocol):
    """What conversion must know of one kind of model. ``cfg`` is its configuration in our notation.

    MODELS: fairseq's name of the model, for messages.
    ARCHITECTURES: classes of transformers that to-hf can write, the usual one first -> the beginnings of our
        names that they lack, heads (keys of ``TensorTable.heads``) in most cases.
    """

    MODELS: str
    ARCHITECTURES: dict[str, tuple[str, ...]]

    # from Hugging Face
    def model_config(self, config: Mapping[str, Any], source: Path) -> Any:
        """The configuration, all sizes written out, for ``config``, which was read from the file ``source``.

        Raises UserError, naming ``source`` and the field, for what our model does not compute.
        """

    def load_vocabulary(self, folder: Path) -> HuggingFaceVocabulary:
        """The vocabulary of a folder's tokenizer; its tokens are what fairseq's dict.txt calls them."""

    def plain_tensors(
        self, tensors: Mapping[str, Tensor], cfg: Any, source: Path
    ) -> tuple[dict[str, Tensor], list[str]]:
        """A folder's tensors under the names of :meth:`tensor_table`; notes on what was changed."""

    def checkpoint_settings(self, cfg: Any) -> dict[str, dict[str, Any]]:
        """``model``, ``task`` (without data) and ``criterion`` of the configuration in a fairseq checkpoint."""

    def command_line(self, cfg: Any) -> list[str]:
        """What ``fairseq-train`` must be given to build this model."""

    def write_encoder_files(self, folder: Path, output: Path) -> list[str]:
        """Write beside dict.txt what ``fairseq-tn encode`` needs and ``folder`` has not; notes on what lacks."""

    # both directions
    def new_model(self, cfg: Any, dictionary: Any) -> Any:
        """A fairseq model with initial weights; ``cfg`` is not changed."""

    def tensor_table(self, cfg: Any) -> TensorTable:
        """The tensors of a model of these sizes."""

    def outputs(self, model: Any, tokens: Tensor) -> dict[str, Tensor]:
        """What the encoder ("") and the heads (keys of ``TensorTable.heads``) compute of ``tokens`` (B x T)."""

    # to Hugging Face
    def is_model(self, name: str) -> bool:
        """Whether a checkpoint of the model or architecture ``name`` is of this kind."""

    def checkpoint_config(self, options: Mapping[str, Any], state: dict[str, Tensor], source: Path) -> Any:
        """The configuration, all sizes written out, of a checkpoint; an old ``state`` is brought up to date.

        Args:
            options: of the model; ``_name`` is always there.
            state: the model's tensors; renamed in place where older releases called them otherwise.
            source: the checkpoint, for messages.
        """

    def full_tensors(self, tensors: Mapping[str, Tensor], architecture: str) -> dict[str, Tensor]:
        """The inverse of :meth:`plain_tensors`: under the names in the files of ``architecture``."""

    def hugging_face_config(
        self,
        cfg: Any,
        vocabulary: HuggingFaceVocabulary,
        architecture: str,
        dtype: str,
        like: Mapping[str, Any],
    ) -> dict[str, Any]:
        """``config.json``; what our configuration does not know is taken from ``like``, which may be empty."""


@runtime_checkable
class CompoundKind(Kind, Protocol):
    """A kind whose models take several folders of Hugging Face. ``model_config`` is then that of one folder.

    PARTS: subfolder, "" for the folder itself, where to-hf writes a part -> the classes that can be written for
        it, the usual one first.
    ROLES: the same keys -> what users call the part.
    """

    PARTS: dict[str, tuple[str, ...]]
    ROLES: dict[str, str]

    def part_of(self, tensors: Iterable[str]) -> str | None:
        """The key of ``PARTS`` that a folder with tensors of these names is; None if it can be any."""

    def join(
        self, cfgs: Mapping[str, Any], sources: Mapping[str, Path], sizes: Mapping[str, Any]
    ) -> tuple[Any, list[str]]:
        """The configuration, all sizes written out, of the model that folders make; notes on what was changed.

        Args:
            cfgs: key of ``PARTS`` -> what ``model_config`` made of that folder; those that are there.
            sources: the files that they were read from, for messages.
            sizes: options of the model, for a part that no folder holds.

        Raises UserError, naming a file and a field, for folders that cannot be one model.
        """


# model_type of config.json -> the beginning of the names of transformers' classes, the module
_MODEL_TYPES: dict[str, tuple[str, Kind]] = {
    "bert": ("Bert", bert),
    "electra": ("Electra", electra),
    "roberta": ("Roberta", roberta),
    "xlm-roberta": ("XLMRoberta", roberta),
}
KINDS: tuple[Kind, ...] = (bert, electra, roberta)


def parts_of(kind: Kind) -> dict[str, tuple[str, ...]]:
    """``PARTS`` of a kind; a kind that is not compound has one part."""
    return kind.PARTS if isinstance(kind, CompoundKind) else {"": tuple(kind.ARCHITECTURES)}


def kind_of_config(config: Mapping[str, Any], source: Path) -> Kind:
    """The kind of the Hugging Face model whose ``config`` was read from ``source``; UserError if unknown."""
    model_type = config.get("model_type")
    architectures = [str(name) for name in config.get("architectures") or []]
    for known, (beginning, kind) in _MODEL_TYPES.items():
        if model_type == known:
            return kind
        # the first releases did not write it
        if model_type is None and architectures and all(name.startswith(beginning) for name in architectures):
            return kind
    raise UserError(f"{source}: model_type is {model_type!r}; supported are {', '.join(_MODEL_TYPES)}")


def kind_of_checkpoint(name: Any, source: Path) -> Kind:
    """The kind of the fairseq model ``name`` that the checkpoint ``source`` holds; UserError if unknown."""
    for kind in KINDS:
        if isinstance(name, str) and kind.is_model(name):
            return kind
    raise UserError(
        f"{source} is a checkpoint of the model {name}; only {', '.join(kind.MODELS for kind in KINDS)} can be "
        "written as a Hugging Face model"
    )


def kind_of_architecture(architecture: str) -> Kind:
    """The kind that can be written as this class of transformers; UserError if there is none."""
    for kind in KINDS:
        if architecture in kind.ARCHITECTURES:
            return kind
    names = ", ".join(name for kind in KINDS for name in kind.ARCHITECTURES)
    raise UserError(f"unknown architecture {architecture}; choose one of {names}")
