"""Translating tensors between Hugging Face's names and ours, with every check that is the same for all models."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fairseq_tn.errors import UserError

# Hugging Face's encoder layer in the notation of our encoder
_LAYER = {
    "qkv_proj.": ("attention.self.query.", "attention.self.key.", "attention.self.value."),
    "out_proj.": ("attention.output.dense.",),
    "attention_layer_norm.": ("attention.output.LayerNorm.",),
    "fc1.": ("intermediate.dense.",),
    "fc2.": ("output.dense.",),
    "final_layer_norm.": ("output.LayerNorm.",),
}
_BUFFERS = {"embeddings.position_ids", "embeddings.token_type_ids"}
# heads that transformers puts on an encoder for fine-tuning
_FINE_TUNED = ("classifier.", "qa_outputs.", "multi_choice.", "sequence_summary.")

# in every dictionary of fairseq
_PAD, _EOS = 1, 2


@dataclasses.dataclass(frozen=True)
class TensorTable:
    """How the tensors of a model are called on both sides.

    names: our name -> the names of Hugging Face's tensors that it stacks, without the encoder's prefix.
    embedding: ours of the token embeddings.
    vocabulary_rows: ours whose rows are tokens.
    heads: what a checkpoint may lack as a whole: the beginning of our names -> what it is.
    parts: what folders of one part lack (see :class:`fairseq_tn.convert.kinds.CompoundKind`), in the same way.
    encoder: the attribute of transformers' classes that holds the encoder; its tensors bear it as a prefix.
    copies: Hugging Face's second name of a tensor, which files may hold too -> the first.
    written_copies: those of them that are written, for the readers that need them.
    tied: our second name of a tensor -> the first.
    """

    names: dict[str, tuple[str, ...]]
    embedding: str
    vocabulary_rows: frozenset[str]
    heads: dict[str, str]
    encoder: str
    copies: dict[str, str]
    tied: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: dict[str, str] = dataclasses.field(default_factory=dict)
    written_copies: tuple[str, ...] = ()

    def without(self, left_out: tuple[str, ...]) -> "TensorTable":
        """The table of a model that lacks the tensors whose names of ours begin with one of ``left_out``."""
        return dataclasses.replace(
            self,
            names={name: theirs for name, theirs in self.names.items() if not name.startswith(left_out)},
            heads={head: what for head, what in self.heads.items() if not head.startswith(left_out)},
        )


def with_parameters(table: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Write out names that end in a dot: they stand for a ``weight`` and a ``bias``."""
    names: dict[str, tuple[str, ...]] = {}
    for ours, theirs in table.items():
        for end in ("weight", "bias") if ours.endswith(".") else ("",):
            names[ours + end] = tuple(name + end for name in theirs)
    return names


def layer_names(
    layers: int, ours: str, theirs: str, layer: Mapping[str, tuple[str, ...]] = _LAYER
) -> dict[str, tuple[str, ...]]:
    """The tensors of ``layers`` layers that are called ``{ours}N.`` and ``{theirs}N.``, for a TensorTable."""
    return {
        f"{ours}{number}.{one}": tuple(f"{theirs}{number}.{name}" for name in others)
        for number in range(layers)
        for one, others in layer.items()
    }


def without_prefix(tensors: Mapping[str, Tensor], prefix: str, source: Path) -> dict[str, Tensor]:
    """Drop ``prefix`` from names that have it, and the old names of LayerNorm's parameters."""
    plain: dict[str, Tensor] = {}
    for given, value in tensors.items():
        name = given.removeprefix(prefix)
        for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if name in plain:
            raise UserError(f"{source} holds the tensor {given} twice, under two names; remove one")
        plain[name] = value
    return plain


def to_fairseq(
    tensors: Mapping[str, Tensor],
    table: TensorTable,
    shapes: Mapping[str, torch.Size],
    order: Sequence[int],
    source: Path,
) -> dict[str, Tensor]:
    """Hugging Face's tensors as float32 under our names, the vocabulary's rows in fairseq's order.

    Args:
        tensors: as a folder has them, without the encoder's prefix.
        table: of this model.
        shapes: our name -> the shape that the model has.
        order: for each of fairseq's ids the id of Hugging Face.
        source: the folder, for messages.

    Heads that are missing as a whole are missing in the result. Raises UserError, naming the tensor, for any
    other that is missing, of the wrong shape or left over.
    """
    rest = dict(tensors)
    for copy, original in table.copies.items():
        value = rest.pop(copy, None)
        if value is not None and not _same(value, rest.setdefault(original, value)):
            raise UserError(
                f"{source}: {copy} and {original} differ; they must be one tensor (untied ones are not supported)"
            )
    heads = tuple(table.heads)
    state: dict[str, Tensor] = {}
    absent: list[str] = []
    for ours, theirs in table.names.items():
        if ours.startswith(heads) and not any(name in rest for name in theirs):
            absent.append(ours)
            continue
        parts = []
        for name in theirs:
            value = rest.pop(name, None)
            if value is None:
                raise UserError(f"{source} lacks the tensor {name}; is the file complete?")
            if not value.is_floating_point():
                raise UserError(f"{source}: the tensor {name} is of type {value.dtype}; numbers are needed")
            expected = [shapes[ours][0] // len(theirs), *shapes[ours][1:]]
            if list(value.shape) != expected:
                raise UserError(
                    f"{source}: the tensor {name} has shape {list(value.shape)}, but {expected} follows from "
                    "config.json"
                )
            parts.append(value.float())
        stacked = torch.cat(parts) if len(parts) > 1 else parts[0]
        state[ours] = stacked[torch.tensor(order)] if ours in table.vocabulary_rows else stacked
    for head, what in table.heads.items():
        lost = [name for name in absent if name.startswith(head)]
        if lost and any(name.startswith(head) for name in state):
            raise UserError(
                f"{source} lacks the tensor {table.names[lost[0]][0]} of its {what}; is the file complete?"
            )
    _refuse_others(set(rest) - _BUFFERS, table.encoder, source)
    return state


def missing_heads(state: Iterable[str], table: TensorTable) -> list[str]:
    """The keys of ``table.heads`` of which ``state`` holds no tensor."""
    names = list(state)
    return [head for head in table.heads if not any(name.startswith(head) for name in names)]


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _refuse_others(names: Iterable[str], encoder: str, source: Path) -> None:
    left = sorted(names)
    if not left:
        return
    if left[0].startswith(_FINE_TUNED):
        raise UserError(
            f"{source} holds {left[0]}, the head of a fine-tuned model, which pre-training has no use for; "
            f"save the encoder alone (`model.{encoder}.save_pretrained(FOLDER)`) and convert that"
        )
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    raise UserError(
        f"{source} holds the tensor {left[0]}{more}, which a model of this config.json does not have"
    )


def to_hugging_face(
    state: Mapping[str, Tensor], table: TensorTable, order: Sequence[int], left_out: tuple[str, ...]
) -> dict[str, Tensor]:
    """Our tensors under Hugging Face's names without prefix, the vocabulary's rows in its order.

    The inverse of :func:`to_fairseq`; ``left_out`` are the beginnings of our names that are not wanted.
    """
    inverse = torch.empty(len(order), dtype=torch.long)
    inverse[torch.tensor(order)] = torch.arange(len(order))
    tensors: dict[str, Tensor] = {}
    for ours, theirs in table.without(left_out).names.items():
        value = state[ours][inverse] if ours in table.vocabulary_rows else state[ours]
        for name, part in zip(theirs, value.chunk(len(theirs)), strict=True):
            # a copy: safetensors refuses tensors that share memory
            tensors[name] = part.clone()
    for copy in table.written_copies:
        if table.copies[copy] in tensors:
            tensors[copy] = tensors[table.copies[copy]].clone()
    return tensors


def random_pairs(vocabulary_size: int, max_positions: int) -> Tensor:
    """Four sequences of random tokens (B x T), of different lengths, each with two segments."""
    longest = min(32, max_positions)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(vocabulary_size, (4, longest), generator=generator)
    tokens[tokens == _PAD] = _EOS
    tokens[:, longest // 2] = _EOS
    for row, sequence in enumerate(tokens):
        sequence[longest - row * longest // 6 :] = _PAD
    return tokens
