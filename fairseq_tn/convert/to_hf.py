"""From a fairseq checkpoint to a Hugging Face folder."""

import argparse
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_tn.compat import without_layer_copies
from fairseq_tn.convert.folders import (
    CONFIG_FILE,
    SAFETENSORS_FILE,
    TOKENIZER_FILES,
    WEIGHT_FILES,
    copy_tokenizer,
    has_tokenizer,
    read_config,
    write_tensors,
)
from fairseq_tn.convert.from_hf import (
    ORIGINAL_FOLDER,
    Conversion,
    Written,
    load_hugging_face,
    new_model,
    task_dictionary,
)
from fairseq_tn.convert.kinds import Kind, kind_of_architecture, kind_of_checkpoint, parts_of
from fairseq_tn.convert.tensors import TensorTable, random_pairs, to_hugging_face
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_folder
from fairseq_tn.synonyms.vocabularies import read_symbols

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_HEAD = "classification_heads."


def find_like(checkpoint: Path, dict_file: Path) -> Path:
    """The ``hf/`` folder beside ``dict_file`` or, if there is none, beside the checkpoint."""
    for folder in (dict_file.parent / ORIGINAL_FOLDER, checkpoint.parent / ORIGINAL_FOLDER):
        if folder.is_dir():
            return folder
    raise UserError(
        f"no folder {ORIGINAL_FOLDER}/ beside {dict_file} or {checkpoint}; give --like FOLDER, the Hugging "
        "Face folder whose tokenizer and configuration the model has, or GPT-2's encoder.json and vocab.bpe"
    )


def convert_to_hf(
    checkpoint: str | Path,
    dict_file: str | Path,
    output: str | Path,
    like: str | Path | None = None,
    architecture: str | None = None,
    dtype: str = "float32",
) -> Conversion:
    """Write the model of a fairseq checkpoint as the Hugging Face folder ``output``.

    ELECTRA's generator goes to the folder ``generator`` in it, unless ``architecture`` says otherwise.
    What was written is read again and must give the same tensors and the same outputs as the checkpoint.

    Args:
        checkpoint: a checkpoint of one of the models in :mod:`fairseq_tn.convert.kinds`.
        dict_file: the ``dict.txt`` that it was trained with.
        output: replaced if it exists.
        like: folder with the tokenizer and the configuration; default: see :func:`find_like`.
        architecture: class of transformers to write, which says which heads; default: the model's first, and
            further parts of the model in folders of their own.
        dtype: type of the written weights, one of ``DTYPES``.

    Raises UserError, and writes nothing, if anything does not fit.
    """
    checkpoint, dict_file, output = Path(checkpoint), Path(dict_file), Path(output)
    if architecture is not None:
        kind_of_architecture(architecture)
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is a file; name a folder")
    kind, state, cfg = read_checkpoint(checkpoint)
    if architecture is not None and architecture not in kind.ARCHITECTURES:
        raise UserError(
            f"{checkpoint} is a checkpoint of {kind.MODELS}, which cannot be written as {architecture}; choose "
            f"one of {', '.join(kind.ARCHITECTURES)}"
        )
    symbols = [*read_symbols(dict_file), "<mask>"]
    like = find_like(checkpoint, dict_file) if like is None else Path(like)
    if output.exists() and output.samefile(like):
        raise UserError(
            f"--output {output} is the folder that tokenizer and configuration come from; name another"
        )
    vocabulary = kind.load_vocabulary(like)
    if vocabulary.symbols() != symbols:
        raise UserError(
            f"the tokenizer in {like} does not have the vocabulary of {dict_file} ({len(vocabulary)} and "
            f"{len(symbols)} tokens); give --like FOLDER with the model's own tokenizer"
        )
    model = new_model(kind, cfg, task_dictionary(dict_file))
    table = kind.tensor_table(cfg)
    _check_vocabulary(model, state, table.embedding, dict_file, checkpoint)
    notes = _drop_heads(state, checkpoint)
    # the reference holds the numbers that are written, so that the comparison below can be exact
    state = {k: v.to(DTYPES[dtype]).float() if v.is_floating_point() else v for k, v in state.items()}
    for name, value in state.items():
        if not torch.isfinite(value).all():
            raise UserError(
                f"the tensor {name} of {checkpoint} holds infinite or undefined numbers in {dtype}; take a "
                "checkpoint from before the training diverged, or another --dtype"
            )
    _check_ties(state, table, checkpoint)
    _load(model, state, kind, checkpoint)
    order = vocabulary.fairseq_to_hf()
    classes = {part: names[0] for part, names in parts_of(kind).items()}
    classes = classes if architecture is None else {"": architecture}
    written = []
    with atomic_folder(output) as temporary:
        for part, name in classes.items():
            original = _original(like, kind, name)
            known = next((one for one in (original, like) if (one / CONFIG_FILE).is_file()), None)
            config = kind.hugging_face_config(
                cfg=cfg,
                vocabulary=vocabulary,
                architecture=name,
                dtype=dtype,
                like={} if known is None else read_config(known),
            )
            plain = to_hugging_face(model.state_dict(), table, order, kind.ARCHITECTURES[name])
            tensors = {key: value.to(DTYPES[dtype]) for key, value in kind.full_tensors(plain, name).items()}
            folder = temporary / part
            folder.mkdir(exist_ok=True)
            (folder / CONFIG_FILE).write_text(
                json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8"
            )
            copy_tokenizer(original if has_tokenizer(original) else like, folder)
            write_tensors(folder / SAFETENSORS_FILE, tensors)
            parameters = sum(
                value.numel() for name, value in tensors.items() if name not in table.written_copies
            )
            written.append(Written(output / part, config["architectures"][0], parameters))
        _compare(model, kind, cfg, temporary, checkpoint)
        files = {path.name for path in temporary.iterdir()}
    for name in {*WEIGHT_FILES, *TOKENIZER_FILES} - files:
        # left by an earlier export of another model; loaders would mix it with this one
        (output / name).unlink(missing_ok=True)
    return Conversion(
        options=kind.command_line(cfg),
        notes=notes,
        written=written,
    )


def _original(like: Path, kind: Kind, architecture: str) -> Path:
    """The folder below ``like`` of the part that a class of transformers is, or ``like`` if there is none."""
    part = next(part for part, names in parts_of(kind).items() if architecture in names)
    return like / part if (like / part).is_dir() else like


def read_checkpoint(path: Path) -> tuple[Kind, dict[str, Tensor], Any]:
    """The kind, the tensors and the configuration of a checkpoint, on the CPU, old names brought up to date.

    Raises UserError for a file that is missing, damaged or of an unknown model.
    """
    try:
        # mapped, since two thirds of a checkpoint are the optimiser's state, which nobody reads here
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except FileNotFoundError:
        raise UserError(f"the checkpoint {path} does not exist") from None
    except Exception as error:
        # whatever a damaged pickle makes torch's reader raise
        raise UserError(
            f"{path} is damaged or no fairseq checkpoint ({(str(error) or repr(error)).splitlines()[0]})"
        ) from None
    if not isinstance(content, Mapping) or not isinstance(content.get("model"), Mapping):
        raise UserError(f"{path} is no fairseq checkpoint; give a .pt file of fairseq-train")
    # checkpoints of fairseq before 0.10 have no cfg
    options = _as_dict(_as_dict(content.get("cfg")).get("model") or content.get("args"))
    options["_name"] = options.get("_name") or options.get("arch")
    kind = kind_of_checkpoint(options["_name"], path)
    state = without_layer_copies(content["model"])
    return kind, state, kind.checkpoint_config(options, state, path)


def _as_dict(settings: Any) -> dict[str, Any]:
    if isinstance(settings, argparse.Namespace):
        return dict(vars(settings))
    return dict(settings) if isinstance(settings, Mapping) else {}


def _check_vocabulary(
    model: Any, state: Mapping[str, Tensor], embedding: str, dict_file: Path, checkpoint: Path
) -> None:
    """Refuse a dictionary of another length than the tensor ``embedding`` has, or of another digest."""
    if embedding not in state:
        raise UserError(f"{checkpoint} lacks the tensor {embedding}; give a complete checkpoint")
    rows, own = len(state[embedding]), model.state_dict()
    digest = state.get("vocabulary_digest")
    same = digest is not None and torch.equal(digest, own.get("vocabulary_digest", digest))
    if rows != len(own[embedding]) or ("vocabulary_digest" in own and not same):
        raise UserError(
            f"{dict_file} is not the vocabulary of {checkpoint} ({len(own[embedding])} and {rows} symbols); give "
            "--dict with the dict.txt that the model was trained with"
        )


def _drop_heads(state: dict[str, Tensor], checkpoint: Path) -> list[str]:
    """Remove fine-tuning heads, which have no place in a pre-trained model; say which."""
    names = sorted({key.removeprefix(_HEAD).split(".")[0] for key in state if key.startswith(_HEAD)})
    for key in [key for key in state if key.startswith(_HEAD)]:
        del state[key]
    return [f"the classification head {name} of {checkpoint} is left out" for name in names]


def _check_ties(state: Mapping[str, Tensor], table: TensorTable, checkpoint: Path) -> None:
    for copy, original in table.tied.items():
        if copy in state and original in state and not torch.equal(state[copy], state[original]):
            raise UserError(
                f"{copy} and {original} in {checkpoint} differ; they must be one tensor (untied ones are not "
                "supported)"
            )


def _load(model: Any, state: dict[str, Tensor], kind: Kind, checkpoint: Path) -> None:
    strange = sorted(set(state) ^ set(without_layer_copies(model.state_dict())))
    if strange:
        verb = "holds" if strange[0] in state else "lacks"
        raise UserError(f"{checkpoint} {verb} the tensor {strange[0]}; is it a checkpoint of {kind.MODELS}?")
    try:
        model.load_state_dict(state)
    except UserError:
        raise
    except RuntimeError as error:
        raise UserError(
            f"{checkpoint} does not fit its own configuration: {' '.join(str(error).split())}"
        ) from None


@torch.no_grad()
def _compare(model: Any, kind: Kind, cfg: Any, folder: Path, checkpoint: Path) -> None:
    """Read ``folder`` again and refuse it unless tensors and outputs are those of ``model``."""
    again = load_hugging_face(folder, sizes=vars(cfg))
    ours, theirs = model.state_dict(), again.model.state_dict()
    for name, value in ours.items():
        if not name.startswith(tuple(again.missing)) and not torch.equal(value, theirs[name]):
            raise UserError(f"the written tensor {name} differs from that of {checkpoint}; nothing is kept")
    table = kind.tensor_table(again.cfg)
    known = {**table.parts, **table.heads}
    tokens = random_pairs(len(ours[table.embedding]), model.max_positions())
    expected, found = kind.outputs(model, tokens), kind.outputs(again.model, tokens)
    for part, value in expected.items():
        if part in again.missing:
            continue
        difference = (value - found[part]).abs().max().item()
        if not difference <= 1e-5:  # a NaN is refused as well
            raise UserError(
                f"the outputs of the written {known.get(part, 'encoder')} differ from those of {checkpoint} "
                f"by {difference:.1e}; nothing is kept"
            )
