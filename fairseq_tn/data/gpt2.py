"""Text to the ids of GPT-2's byte-level BPE, as fairseq's RoBERTa reads them, by the tokenizers library."""

import json
from pathlib import Path
from typing import Any

from fairseq_tn.data.dictionary import UNKNOWN, dict_text, find_dictionary
from fairseq_tn.data.offsets import AlignedSymbols
from fairseq_tn.data.wordpiece import align_encoding, without_threads
from fairseq_tn.errors import UserError
from fairseq_tn.files import read_json
from fairseq_tn.synonyms.vocabularies import GPT2_BYTES

ENCODER, MERGES = "encoder.json", "vocab.bpe"


class Gpt2Encoder:
    """Encodes lines of text as GPT-2 ids in decimal, what fairseq's ``multiprocessing_bpe_encoder`` writes.

    Lines are stripped, and no space is put before their first word. A literal ``<|endoftext|>`` is spelled in
    pieces.
    """

    def __init__(self, folder: str | Path, dictionary: str | Path | None = None):
        """Load a tokenizer.

        Args:
            folder: holds ``encoder.json`` (token: id) and ``vocab.bpe`` (merges)
            dictionary: fairseq's dict.txt of these ids (RoBERTa's lists them by frequency); by default the one
                in the folder; without any, the vocabulary is the ids in their order

        Raises:
            UserError: a file is missing or broken, or the dictionary is of another vocabulary
        """
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError(
                "encoding with GPT-2 BPE needs the tokenizers library: pip install 'fairseq_tn[hf]'"
            ) from None
        self._folder = Path(folder)
        definition: dict[str, Any] = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": False,
                "use_regex": True,
            },
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "BPE",
                "vocab": _read_vocabulary(self._folder / ENCODER),
                "merges": _read_merges(self._folder / MERGES),
            },
        }
        try:
            self._tokenizer = Tokenizer.from_str(json.dumps(definition))
        except Exception as error:  # the library raises no narrower class
            raise UserError(
                f"{self._folder / MERGES} and {ENCODER} do not belong together ({error}); get both again"
            ) from None
        ids = sorted(self._tokenizer.get_vocab().values())
        self._dictionary = find_dictionary(dictionary, self._folder / ENCODER)
        if self._dictionary is None:
            self._dict_text = dict_text((str(index), 1) for index in ids)
            known = set(map(str, ids))
        else:
            self._dictionary.check(set(map(str, ids)).__contains__, f"the GPT-2 ids of {folder}")
            self._dict_text = self._dictionary.text
            known = set(map(str, ids)).intersection(self._dictionary.symbols)
        self._known = len(known)
        self._symbols = {index: str(index) if str(index) in known else UNKNOWN for index in ids}

    def dict_text(self) -> str:
        """The content of ``dict.txt`` for ``fairseq-preprocess --srcdict``."""
        return self._dict_text

    def describe(self) -> str:
        """One line for people: what the text is encoded with."""
        beside = f", {self._known:,} of them in {self._dictionary.path}" if self._dictionary else ""
        return f"GPT-2 BPE, {len(self._symbols):,} ids, from {self._folder}{beside}"

    def token(self, symbol: str) -> str:
        """What an id stands for as people read it: its text, ``Ġ`` where a space begins it; else ``symbol``.

        Bytes that are only a part of a character stay in GPT-2's own letters for them.
        """
        token = self._tokenizer.id_to_token(int(symbol)) if symbol.isdecimal() else None
        if token is None:
            return symbol
        word = token.removeprefix("Ġ")
        try:
            text = bytes(GPT2_BYTES[character] for character in word).decode("utf-8")
        except (KeyError, UnicodeDecodeError):
            return token
        return token[: len(token) - len(word)] + text

    def encode(self, lines: list[str]) -> list[list[str]]:
        """Return the ids of each line."""
        symbols = self._symbols
        with without_threads():
            encoded = self._tokenizer.encode_batch_fast(
                [line.strip() for line in lines], add_special_tokens=False
            )
        return [[symbols[index] for index in line.ids] for line in encoded]

    def encode_with_offsets(self, lines: list[str]) -> list[AlignedSymbols]:
        """Return the ids of each line and the characters that each stands for, or shares with others."""
        with without_threads():
            encoded = self._tokenizer.encode_batch([line.strip() for line in lines], add_special_tokens=False)
        return [
            align_encoding(line, found, self._symbols) for line, found in zip(lines, encoded, strict=True)
        ]


def _read_vocabulary(path: Path) -> dict[str, int]:
    vocabulary = read_json(path)
    if not all(isinstance(index, int) and index >= 0 for index in vocabulary.values()):
        raise UserError(f"{path} is not GPT-2's encoder.json (a JSON object of token: id)")
    missing = [character for character in GPT2_BYTES if character not in vocabulary]
    if missing:
        raise UserError(
            f"{path} lacks {len(missing)} of the 256 bytes, such as {missing[0]}; it is not GPT-2's encoder.json"
        )
    if len(set(vocabulary.values())) < len(vocabulary):
        raise UserError(f"{path} gives one id to two tokens; get it again")
    return vocabulary


def _read_merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; it belongs to {ENCODER}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; get it again") from None
    merges: list[tuple[str, str]] = []
    # the first line is the version, and a line break ends the last
    for number, line in enumerate(lines, start=1):
        parts = line.split()
        if number == 1 or (number == len(lines) and not parts):
            continue
        if len(parts) != 2:
            raise UserError(f"{path}, line {number}: expected two tokens to merge; get the file again")
        merges.append((parts[0], parts[1]))
    return merges
