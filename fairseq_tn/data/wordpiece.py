"""Text to WordPiece symbols, by the tokenizers library."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairseq_tn.data.dictionary import UNKNOWN
from fairseq_tn.data.offsets import AlignedSymbols, align
from fairseq_tn.data.vocabulary import CONTINUATION, HuggingFaceVocabulary
from fairseq_tn.errors import UserError


class WordPieceEncoder:
    """Encodes lines of text as the symbols of a vocabulary.

    Text is only ever text: a literal ``[SEP]`` or ``</s>`` is spelled in pieces, or is ``<unk>``; nothing is
    truncated, and no special tokens are put around a line.
    """

    def __init__(self, vocabulary: HuggingFaceVocabulary):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError(
                "encoding with WordPiece needs the tokenizers library: pip install 'fairseq_tn[hf]'"
            ) from None
        self.vocabulary = vocabulary
        self._tokenizer = Tokenizer.from_str(json.dumps(_definition(vocabulary)))
        special = set(vocabulary.specials.values()) | {
            entry["content"] for entry in vocabulary.added if entry.get("special")
        }
        # what text can be written as; a token with a blank in it would fall apart in the written line
        self._symbols = [
            UNKNOWN if token in special or token.split() != [token] else token for token in vocabulary.tokens
        ]

    def dict_text(self) -> str:
        """The content of ``dict.txt`` for ``fairseq-preprocess --srcdict``."""
        return self.vocabulary.dict_text()

    def describe(self) -> str:
        """One line for people: what the text is encoded with."""
        case = "lower-cased" if self.vocabulary.lower_case else "cased"
        return f"WordPiece, {len(self.vocabulary):,} tokens, {case}, from {self.vocabulary.source}"

    def encode(self, lines: list[str]) -> list[list[str]]:
        """Return the symbols of each line; a line of nothing but control characters has none."""
        symbols = self._symbols
        with without_threads():
            # the fast variant leaves out the characters' offsets, which nobody reads here
            encoded = self._tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        return [[symbols[number] for number in line.ids] for line in encoded]

    def encode_with_offsets(self, lines: list[str]) -> list[AlignedSymbols]:
        """Return the symbols of each line and the characters that each stands for."""
        with without_threads():
            encoded = self._tokenizer.encode_batch(lines, add_special_tokens=False)
        return [
            align_encoding(line, found, self._symbols, 0) for line, found in zip(lines, encoded, strict=True)
        ]


def align_encoding(
    line: str, encoding: Any, symbols: Sequence[str] | Mapping[int, str], stripped: int | None = None
) -> AlignedSymbols:
    """The offsets of the tokenizers library.

    Args:
        line: the text
        encoding: what the library gives for it
        symbols: what each id is written as
        stripped: how many characters at the line's beginning the library has not seen; default: its blanks
    """
    shift = len(line) - len(line.lstrip()) if stripped is None else stripped
    return align(
        line,
        [symbols[number] for number in encoding.ids],
        (begin + shift for begin, _ in encoding.offsets),
        (end + shift for _, end in encoding.offsets),
    )


def _definition(vocabulary: HuggingFaceVocabulary) -> dict:
    """The tokenizer in the notation of tokenizer.json, without truncation, padding and templates."""
    pipeline = vocabulary.pipeline
    bert = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": vocabulary.tokenize_chinese_chars,
        "strip_accents": vocabulary.strip_accents,
        "lowercase": vocabulary.lower_case,
    }
    normalizer = pipeline.get("normalizer", bert)
    if normalizer is not None and normalizer.get("type") == "BertNormalizer":
        # tokenizer_config.json goes before tokenizer.json, as in transformers
        normalizer = {**bert, "clean_text": normalizer.get("clean_text", True)}
    model = {"max_input_chars_per_word": 100, **pipeline.get("model", {})}
    model.update(
        type="WordPiece",
        unk_token=vocabulary.specials["unk"],
        continuing_subword_prefix=CONTINUATION,
        vocab={token: number for number, token in enumerate(vocabulary.tokens)},
    )
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        # special tokens are not listed, so that the text cannot spell them
        "added_tokens": [
            {**flags, **entry}
            for entry in vocabulary.added
            if not entry.get("special") and entry["content"] not in vocabulary.specials.values()
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pipeline.get("pre_tokenizer", {"type": "BertPreTokenizer"}),
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


@contextlib.contextmanager
def without_threads() -> Iterator[None]:
    """Keep the library from starting threads: work is shared out by processes here."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
