"""The input embedding in a checkpoint, without building the model."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fairseq_tn.checkpoints import check_checkpoint
from fairseq_tn.compat import allow_checkpoint_files
from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vocabularies import MASK, vocabulary_digest

# our models, fairseq's roberta, and what the latter was called at first
_NAMES = (
    "encoder.embed_tokens.weight",
    "encoder.sentence_encoder.embed_tokens.weight",
    "decoder.sentence_encoder.embed_tokens.weight",
)
_DIGEST = "vocabulary_digest"


def read_embedding(path: str | Path, symbols: Sequence[str]) -> Tensor:
    """The input embedding of a checkpoint of ours or of fairseq's ``roberta``.

    Args:
        path: the checkpoint.
        symbols: the vocabulary, fairseq's four specials included; the row of ``<mask>``, which tasks append to it,
            may be missing in either.

    Returns len(symbols) x D, float32, in the order of ``symbols``.

    Raises UserError for a file that is no such checkpoint or is one of another vocabulary.
    """
    check_checkpoint(path, "--checkpoint")
    allow_checkpoint_files()
    try:
        # mapped, since only one of the tensors is read
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:
        # whatever a damaged pickle makes torch's reader raise
        raise UserError(
            f"{path} is damaged or no fairseq checkpoint ({(str(error) or repr(error)).splitlines()[0]})"
        ) from None
    state = content.get("model") if isinstance(content, Mapping) else None
    state = state if isinstance(state, Mapping) else {}
    embedding = next((state[name] for name in _NAMES if name in state), None)
    if embedding is None:
        raise UserError(
            f"{path} holds no input embedding ({' or '.join(_NAMES)}); give a checkpoint of tn_bert, tn_electra or "
            "fairseq's roberta, such as model.pt of `fairseq-tn convert from-hf`"
        )
    if not _fits(len(embedding), symbols) or not _same_vocabulary(state, symbols):
        raise UserError(
            f"{path} is of another vocabulary ({len(embedding):,} rows) than the one given with --vocab "
            f"({len(symbols):,} symbols with fairseq's specials); give the dict.txt that belongs to the checkpoint"
        )
    return embedding[: len(symbols)].float()


def _fits(rows: int, symbols: Sequence[str]) -> bool:
    return rows - len(symbols) in ((0,) if MASK in symbols else (0, 1))


def _same_vocabulary(state: Mapping[str, Tensor], symbols: Sequence[str]) -> bool:
    """Our models hold the first 16 bytes of the vocabulary's digest, four in each number."""
    if _DIGEST not in state:
        return True
    digest = bytes.fromhex(vocabulary_digest(symbols))
    return state[_DIGEST].tolist() == [int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]
