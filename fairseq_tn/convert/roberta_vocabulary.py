"""The vocabularies of RoBERTa models in Hugging Face folders, in the symbols of fairseq's dictionaries.

Byte-level BPE becomes what fairseq's own RoBERTa has in its dict.txt: GPT-2's ids. They follow from the merges:
GPT-2 numbers the 256 bytes first, then the token that each merge adds. SentencePiece and WordPiece tokens are
symbols as they are.
"""

import contextlib
import dataclasses
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq_tn.data.gpt2 import ENCODER, MERGES
from fairseq_tn.data.vocabulary import FAIRSEQ_SPECIALS, HuggingFaceVocabulary, named_specials
from fairseq_tn.errors import UserError
from fairseq_tn.files import read_json
from fairseq_tn.synonyms.vocabularies import FAIRSEQ_SPECIALS as FIRST
from fairseq_tn.synonyms.vocabularies import GPT2_BYTES, MASK, is_special, read_gpt2_tokens, read_symbols

SENTENCEPIECE_FILE = "sentencepiece.bpe.model"
_END_OF_TEXT = "<|endoftext|>"
_FILLER = re.compile(r"madeupword\d+")
_NEEDED = f"tokenizer.json, vocab.json with merges.txt, {SENTENCEPIECE_FILE} or vocab.txt"


@dataclasses.dataclass(frozen=True)
class RobertaTokenizer:
    """What a RoBERTa folder says of its tokenizer.

    vocabulary: its tokens are symbols of fairseq, in Hugging Face's order.
    merges: of byte-level BPE, best first; empty for other kinds.
    sentencepiece: whether the tokens are SentencePiece pieces.
    """

    vocabulary: HuggingFaceVocabulary
    merges: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    sentencepiece: bool = False


def read_tokenizer(folder: Path) -> RobertaTokenizer:
    """Read the tokenizer of a Hugging Face folder; ``tokenizer.json`` goes first, as in transformers.

    Raises UserError for a folder without one, or with one of an unknown kind.
    """
    if (folder / "tokenizer.json").is_file():
        return _from_tokenizer_json(folder)
    if (folder / "vocab.json").is_file():
        return _byte_level(
            folder, folder / "vocab.json", read_json(folder / "vocab.json"), _read_merges(folder), {}
        )
    if (folder / SENTENCEPIECE_FILE).is_file():
        return _from_sentencepiece(folder)
    if (folder / "vocab.txt").is_file():
        return RobertaTokenizer(HuggingFaceVocabulary.load(folder))
    raise UserError(f"{folder} holds no tokenizer; {_NEEDED} is needed")


def _from_tokenizer_json(folder: Path) -> RobertaTokenizer:
    path = folder / "tokenizer.json"
    content = read_json(path)
    model = content.get("model") or {}
    try:
        added = {str(entry["content"]): int(entry["id"]) for entry in content.get("added_tokens") or []}
        if model.get("type") == "Unigram":
            pieces = {str(piece): number for number, (piece, _) in enumerate(model["vocab"])}
            if len(pieces) < len(model["vocab"]):
                raise UserError(f"{path} lists a piece twice; get the file again")
            return _pieces(folder, path, {**pieces, **added})
        if model.get("type") == "BPE" and "ByteLevel" in _steps(content.get("pre_tokenizer")):
            # lists of two in today's files, strings with a blank in older ones
            merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
            return _byte_level(folder, path, model["vocab"], [(one, two) for one, two in merges], added)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: the vocabulary cannot be understood ({error!r})") from None
    if model.get("type") == "WordPiece":
        return RobertaTokenizer(HuggingFaceVocabulary.load(folder))
    raise UserError(
        f"{path} is neither byte-level BPE nor SentencePiece (Unigram) nor WordPiece (its model: "
        f"{model.get('type', 'missing')}); others are not supported"
    )


def _steps(pre_tokenizer: Mapping[str, Any] | None) -> set[str]:
    """The types of a pre-tokenizer and of its parts."""
    parts = (pre_tokenizer or {}).get("pretokenizers") or []
    return {str((pre_tokenizer or {}).get("type")), *(str(part.get("type")) for part in parts)}


def _read_merges(folder: Path) -> list[tuple[str, str]]:
    path = folder / "merges.txt"
    if not path.is_file():
        raise UserError(
            f"{folder} holds vocab.json without merges.txt, from which GPT-2's ids follow; get the file (it is "
            "GPT-2's vocab.bpe under another name) or tokenizer.json"
        )
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; get the file again") from None
    merges = []
    for number, line in enumerate(lines, start=1):
        parts = line.split(" ")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        if len(parts) != 2:
            raise UserError(f"{path}, line {number}: expected two tokens to merge; get the file again")
        merges.append((parts[0], parts[1]))
    return merges


def gpt2_ids(merges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """GPT-2's numbering of the tokens of byte-level BPE: the bytes, then what each merge adds."""
    ids = {character: number for number, character in enumerate(GPT2_BYTES)}
    for one, two in merges:
        ids.setdefault(one + two, len(ids))
    return ids


def _byte_level(
    folder: Path,
    path: Path,
    vocabulary: Mapping[str, int],
    merges: list[tuple[str, str]],
    added: dict[str, int],
) -> RobertaTokenizer:
    tokens = _in_order({**vocabulary, **added}, path)
    specials = named_specials(folder, FAIRSEQ_SPECIALS)
    ids = gpt2_ids(merges)
    symbols = []
    for token in tokens:
        if token in ids:
            symbols.append(str(ids[token]))
        elif token == _END_OF_TEXT:
            symbols.append(str(len(ids)))
        elif token in specials.values() or token in added or _FILLER.fullmatch(token):
            symbols.append(token)
        else:
            raise UserError(
                f"{path}: no merge makes the token {token}, so that it has no GPT-2 id; vocabulary and merges do "
                "not belong together, get both again"
            )
    return RobertaTokenizer(HuggingFaceVocabulary(symbols, specials, source=str(path)), merges)


def _in_order(ids: Mapping[str, int], path: Path) -> list[str]:
    tokens = sorted(ids, key=ids.__getitem__)
    for number, token in enumerate(tokens):
        if ids[token] != number:
            raise UserError(
                f"{path}: the token {token} has id {ids[token]}, not {number}; ids must be 0, 1, 2, ... without a "
                "gap or a repetition"
            )
    return tokens


def _from_sentencepiece(folder: Path) -> RobertaTokenizer:
    import sentencepiece

    path = folder / SENTENCEPIECE_FILE
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(path.read_bytes())
    except RuntimeError:
        raise UserError(f"{path} is no SentencePiece model, or damaged; get it again") from None
    # the specials in fairseq's order stand in for the model's own first three; `<mask>` follows the pieces
    pieces = [processor.IdToPiece(number) for number in range(3, processor.GetPieceSize())]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"]
    return _pieces(folder, path, {token: number for number, token in enumerate(tokens)})


def _pieces(folder: Path, path: Path, ids: Mapping[str, int]) -> RobertaTokenizer:
    specials = named_specials(folder, FAIRSEQ_SPECIALS)
    vocabulary = HuggingFaceVocabulary(_in_order(ids, path), specials, source=str(path))
    return RobertaTokenizer(vocabulary, sentencepiece=True)


def write_encoder_files(folder: Path, output: Path) -> list[str]:
    """Write what ``fairseq-tn encode --tokenizer OUTPUT`` needs beside dict.txt; a note on what ``folder`` lacks.

    For byte-level BPE that is GPT-2's ``encoder.json`` and ``vocab.bpe``, for SentencePiece its model.
    """
    tokenizer = read_tokenizer(folder)
    if tokenizer.merges:
        ids = gpt2_ids(tokenizer.merges)
        if str(len(ids)) in tokenizer.vocabulary.tokens:
            ids[_END_OF_TEXT] = len(ids)
        (output / ENCODER).write_text(json.dumps(ids), encoding="utf-8")
        lines = ["#version: 0.2", *(f"{one} {two}" for one, two in tokenizer.merges), ""]
        (output / MERGES).write_text("\n".join(lines), encoding="utf-8", newline="\n")
    elif tokenizer.sentencepiece:
        if not (folder / SENTENCEPIECE_FILE).is_file():
            return [
                f"{folder} has no {SENTENCEPIECE_FILE}, which `fairseq-tn encode` needs; get it to encode text for "
                "this model"
            ]
        shutil.copyfile(folder / SENTENCEPIECE_FILE, output / SENTENCEPIECE_FILE)
    return []


@contextlib.contextmanager
def hugging_face_tokenizer(folder: Path, dict_file: Path) -> Iterator[Path]:
    """Yield ``folder``, or a temporary one if it holds GPT-2's ``encoder.json`` and ``vocab.bpe`` alone.

    The temporary one has the tokenizer of a model that was trained in fairseq on the ids in ``dict_file``. Raises
    UserError if that file lacks tokens that the tokenizer would write.
    """
    given = [folder / name for name in (ENCODER, MERGES)]
    if not all(path.is_file() for path in given) or any(
        (folder / name).is_file() for name in ("tokenizer.json", "vocab.json")
    ):
        yield folder
        return
    names = read_gpt2_tokens(folder / ENCODER)
    symbols = read_symbols(dict_file)[len(FIRST) :]
    known = set(symbols)
    missing = [name for number, name in names.items() if number not in known and name != _END_OF_TEXT]
    if missing:
        raise UserError(
            f"{dict_file} lacks {len(missing):,} of the {len(names):,} tokens of {folder / ENCODER}, such as "
            f"{missing[0]}: no Hugging Face tokenizer writes <unk> for them; such models cannot be exported"
        )
    for symbol in symbols:
        if symbol not in names and not is_special(symbol):
            raise UserError(
                f"{dict_file} holds {symbol}, which is no id of {folder / ENCODER}; give --like a folder with the "
                "files that the text was encoded with"
            )
    tokens = [*FIRST, *(names.get(symbol, symbol) for symbol in symbols), MASK]
    settings = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False}
    with tempfile.TemporaryDirectory() as temporary:
        for name, content in (
            ("vocab.json", {token: number for number, token in enumerate(tokens)}),
            ("tokenizer_config.json", settings),
        ):
            (Path(temporary) / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        shutil.copyfile(folder / MERGES, Path(temporary) / "merges.txt")
        yield Path(temporary)
