"""From a fairseq checkpoint of ours to a Hugging Face BERT folder."""

import argparse
import dataclasses
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_tn.convert.bert import ARCHITECTURES, command_line, hugging_face_config, to_hugging_face
from fairseq_tn.convert.folders import (
    CONFIG_FILE,
    SAFETENSORS_FILE,
    TOKENIZER_FILES,
    WEIGHT_FILES,
    copy_tokenizer,
    read_config,
    write_tensors,
)
from fairseq_tn.convert.from_hf import (
    ORIGINAL_FOLDER,
    Conversion,
    load_hugging_face,
    new_model,
    task_dictionary,
)
from fairseq_tn.data.vocabulary import HuggingFaceVocabulary
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_folder
from fairseq_tn.models.bert import SIZES, TnBertConfig, TnBertModel
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
        "Face folder whose tokenizer and configuration the model has"
    )


def convert_to_hf(
    checkpoint: str | Path,
    dict_file: str | Path,
    output: str | Path,
    like: str | Path | None = None,
    architecture: str = "BertForPreTraining",
    dtype: str = "float32",
) -> Conversion:
    """Write the model of a fairseq checkpoint as the Hugging Face folder ``output``.

    The written folder is read again and must give the same tensors and the same outputs as the checkpoint.

    Args:
        checkpoint: a checkpoint of a ``tn_bert`` model.
        dict_file: the ``dict.txt`` that it was trained with.
        output: replaced if it exists.
        like: folder with the tokenizer and the configuration; default: see :func:`find_like`.
        architecture: which heads to write, one of ``ARCHITECTURES``.
        dtype: type of the written weights, one of ``DTYPES``.

    Raises UserError, and writes nothing, if anything does not fit.
    """
    checkpoint, dict_file, output = Path(checkpoint), Path(dict_file), Path(output)
    if architecture not in ARCHITECTURES:
        raise UserError(f"unknown architecture {architecture}; choose one of {', '.join(ARCHITECTURES)}")
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is a file; name a folder")
    state, cfg = read_checkpoint(checkpoint)
    symbols = [*read_symbols(dict_file), "<mask>"]
    like = find_like(checkpoint, dict_file) if like is None else Path(like)
    if output.exists() and output.samefile(like):
        raise UserError(
            f"--output {output} is the folder that tokenizer and configuration come from; name another"
        )
    vocabulary = HuggingFaceVocabulary.load(like)
    if vocabulary.symbols() != symbols:
        raise UserError(
            f"the tokenizer in {like} does not have the vocabulary of {dict_file} ({len(vocabulary)} and "
            f"{len(symbols)} tokens); give --like FOLDER with the model's own tokenizer"
        )
    model = new_model(cfg, task_dictionary(dict_file))
    rows = len(state["encoder.embed_tokens.weight"])
    digest = state.get("vocabulary_digest")
    if rows != len(symbols) or digest is None or not torch.equal(digest, model.vocabulary_digest):
        raise UserError(
            f"{dict_file} is not the vocabulary of {checkpoint} ({len(symbols)} and {rows} symbols); give "
            "--dict with the dict.txt that the model was trained with"
        )
    notes = _drop_heads(state, checkpoint)
    # the reference holds the numbers that are written, so that the comparison below can be exact
    state = {k: v.to(DTYPES[dtype]).float() if v.is_floating_point() else v for k, v in state.items()}
    for name, value in state.items():
        if not torch.isfinite(value).all():
            raise UserError(
                f"the tensor {name} of {checkpoint} holds infinite or undefined numbers in {dtype}; take a "
                "checkpoint from before the training diverged, or another --dtype"
            )
    _load(model, state, checkpoint)
    tensors = to_hugging_face(
        model.state_dict(), model.cfg.encoder_layers or 0, vocabulary.fairseq_to_hf(), architecture
    )
    config = hugging_face_config(
        cfg=model.cfg,
        vocabulary_size=len(vocabulary),
        pad=vocabulary.tokens.index(vocabulary.specials["pad"]),
        architecture=architecture,
        dtype=dtype,
        like=read_config(like) if (like / CONFIG_FILE).is_file() else {},
    )
    with atomic_folder(output) as temporary:
        (temporary / CONFIG_FILE).write_text(
            json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8"
        )
        copy_tokenizer(like, temporary)
        write_tensors(
            temporary / SAFETENSORS_FILE, {name: value.to(DTYPES[dtype]) for name, value in tensors.items()}
        )
        _compare(model, temporary, checkpoint)
        written = {path.name for path in temporary.iterdir()}
    for name in {*WEIGHT_FILES, *TOKENIZER_FILES} - written:
        # left by an earlier export of another model; loaders would mix it with this one
        (output / name).unlink(missing_ok=True)
    return Conversion(
        options=command_line(model.cfg),
        notes=notes,
        parameters=sum(value.numel() for value in tensors.values()),
    )


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], TnBertConfig]:
    """The tensors and the configuration of a checkpoint of a ``tn_bert`` model, on the CPU.

    Raises UserError for a file that is missing, damaged or of another model.
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
    settings = _as_dict(content.get("cfg")).get("model") or content.get("args")
    options = _as_dict(settings)
    name = options.get("_name") or options.get("arch")
    if name != "tn_bert" and name not in SIZES:
        raise UserError(
            f"{path} is a checkpoint of the model {name}; only tn_bert ({', '.join(SIZES)}) can be written as "
            "a Hugging Face BERT"
        )
    known = {field.name for field in dataclasses.fields(TnBertConfig)} - {"_name"}
    cfg = TnBertConfig(**{key: value for key, value in options.items() if key in known})
    cfg._name = name
    state = dict(content["model"])
    positions = state.get("encoder.embed_positions.weight")
    if positions is None or "encoder.embed_tokens.weight" not in state:
        raise UserError(f"{path} names the model {name}, but lacks its tensors; give a complete checkpoint")
    # fine-tuning tasks overwrite the option
    cfg.max_positions = len(positions)
    return state, cfg


def _as_dict(settings: Any) -> dict[str, Any]:
    if isinstance(settings, argparse.Namespace):
        return vars(settings)
    return dict(settings) if isinstance(settings, Mapping) else {}


def _drop_heads(state: dict[str, Tensor], checkpoint: Path) -> list[str]:
    """Remove fine-tuning heads, which have no place in a pre-trained model; say which."""
    names = sorted({key.removeprefix(_HEAD).split(".")[0] for key in state if key.startswith(_HEAD)})
    for key in [key for key in state if key.startswith(_HEAD)]:
        del state[key]
    return [f"the classification head {name} of {checkpoint} is left out" for name in names]


def _load(model: TnBertModel, state: dict[str, Tensor], checkpoint: Path) -> None:
    strange = sorted(set(state) ^ set(model.state_dict()))
    if strange:
        verb = "holds" if strange[0] in state else "lacks"
        raise UserError(f"{checkpoint} {verb} the tensor {strange[0]}; is it a checkpoint of tn_bert?")
    try:
        model.load_state_dict(state)
    except UserError:
        raise
    except RuntimeError as error:
        raise UserError(
            f"{checkpoint} does not fit its own configuration: {' '.join(str(error).split())}"
        ) from None


@torch.no_grad()
def _compare(model: TnBertModel, folder: Path, checkpoint: Path) -> None:
    """Read ``folder`` again and refuse it unless tensors and outputs are those of ``model``."""
    again = load_hugging_face(folder)
    ours, theirs = model.state_dict(), again.model.state_dict()
    for name, value in ours.items():
        if not name.startswith(tuple(again.missing)) and not torch.equal(value, theirs[name]):
            raise UserError(f"the written tensor {name} differs from that of {checkpoint}; nothing is kept")
    tokens = _random_pairs(model)
    expected, expected_extra = model(tokens)
    logits, extra = again.model(tokens)
    outputs = {"hidden states": (expected_extra["features"], extra["features"])}
    if "lm_head." not in again.missing:
        outputs["masked-LM logits"] = expected, logits
    if "nsp_head." not in again.missing:
        outputs["next-sentence logits"] = expected_extra["nsp_logits"], extra["nsp_logits"]
    for what, (one, other) in outputs.items():
        difference = (one - other).abs().max().item()
        if not difference <= 1e-5:  # a NaN is refused as well
            raise UserError(
                f"the {what} of the written model differ from those of {checkpoint} by {difference:.1e}; "
                "nothing is kept"
            )


def _random_pairs(model: TnBertModel) -> Tensor:
    """Four sequences of random tokens (B x T), of different lengths, each with two segments."""
    longest = min(32, model.max_positions())
    encoder = model.encoder
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(encoder.embed_tokens.num_embeddings, (4, longest), generator=generator)
    tokens[tokens == encoder.pad] = encoder.eos
    tokens[:, longest // 2] = encoder.eos
    for row, sequence in enumerate(tokens):
        sequence[longest - row * longest // 6 :] = encoder.pad
    return tokens
