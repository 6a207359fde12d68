"""How vocabularies write whole words, and the fingerprint that tells one vocabulary from another.

Pure Python: imports neither torch nor fairseq.

============= ==================== ====================== ======================
style         whole word ``house`` what is no whole word  used by
============= ==================== ====================== ======================
wordpiece     ``house``            ``##ing``              BERT, ELECTRA
sentencepiece ``▁house``           ``ing``                ALBERT, XLNet, XLM-R
gpt2          ``Ġhouse``           ``ing``                RoBERTa (Hugging Face)
gpt2-ids      ``2156``             ids of such tokens     RoBERTa (fairseq)
subword-nmt   ``house``            ``hous@@``             translation models
words         ``house``            nothing                WikiText and the like
============= ==================== ====================== ======================
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fairseq_tn.errors import UserError

STYLES = ("wordpiece", "sentencepiece", "gpt2", "gpt2-ids", "subword-nmt", "words")
FAIRSEQ_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
# if a source of synonyms knows a smaller share of a vocabulary's words, it is hardly one for their language
FEW_WORDS = 0.01

_FILLER = re.compile(r"madeupword\d+")
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Za-z]+\d*\]|madeupword\d+")
_MARKER_SHARE = 0.01  # of a vocabulary; below it "##" and "@@" are tokens of the text and no markers
_ID_SHARE = 0.99


def vocabulary_digest(symbols: Iterable[str]) -> str:
    """SHA-256, as 64 hexadecimal digits, of the ordered symbols of a vocabulary.

    ``<mask>`` and fairseq's ``madeupwordNNNN`` fillers are left out, because tasks append them after the
    dictionary is read; counts do not matter.
    """
    kept = [symbol for symbol in symbols if symbol != MASK and not _FILLER.fullmatch(symbol)]
    return hashlib.sha256("\n".join(kept).encode("utf-8", "surrogatepass")).hexdigest()


def is_special(symbol: str) -> bool:
    """Whether a symbol never stands for text: ``<s>``, ``[CLS]``, ``[unused12]``, ``madeupword0000``."""
    return _SPECIAL.fullmatch(symbol) is not None


def read_symbols(path: str | Path) -> list[str]:
    """The symbols of a fairseq ``dict.txt`` in the order of their ids, fairseq's four specials first.

    Lines are ``symbol count``, optionally followed by ``#fairseq:overwrite``; what fairseq accepts is
    accepted. Raises UserError that names the file and the line.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot read the vocabulary {path}: {error.strerror}; give a fairseq dict.txt"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"the vocabulary {path} is not UTF-8 text; give a fairseq dict.txt") from None
    return parse_symbols(text, path)


def parse_symbols(text: str, path: str | Path) -> list[str]:
    """As :func:`read_symbols`, of the content of a file; ``path`` is for messages."""
    symbols = list(FAIRSEQ_SPECIALS)
    seen = set(symbols)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line:
            continue
        fields = line.rstrip().rsplit(" ", 1)
        overwrite = fields[-1] == "#fairseq:overwrite"
        if overwrite:
            fields = fields[0].rsplit(" ", 1)
        if len(fields) != 2 or not fields[1].lstrip("-").isdecimal():
            raise UserError(f"{path}, line {number}: expected 'symbol count' as in a fairseq dict.txt")
        if fields[0] in seen and not overwrite:
            raise UserError(
                f"{path}, line {number}: the symbol {fields[0]!r} occurs twice; remove one of its lines"
            )
        seen.add(fields[0])
        symbols.append(fields[0])
    if len(symbols) == len(FAIRSEQ_SPECIALS):
        raise UserError(f"the vocabulary {path} is empty; give a fairseq dict.txt")
    return symbols


def detect_style(symbols: Iterable[str]) -> str:
    """The style, one of ``STYLES``, in which a vocabulary writes words, judged by its markers."""
    ordinary = [symbol for symbol in symbols if not is_special(symbol)]
    if not ordinary:
        return "words"
    if sum(symbol.isdecimal() for symbol in ordinary) >= _ID_SHARE * len(ordinary):
        return "gpt2-ids"
    counts = {
        "wordpiece": sum(len(symbol) > 2 and symbol.startswith("##") for symbol in ordinary),
        "sentencepiece": sum(symbol.startswith("▁") for symbol in ordinary),
        "gpt2": sum(symbol.startswith("Ġ") for symbol in ordinary),
        "subword-nmt": sum(len(symbol) > 2 and symbol.endswith("@@") for symbol in ordinary),
    }
    style = max(counts, key=counts.__getitem__)
    return style if counts[style] >= _MARKER_SHARE * len(ordinary) else "words"


def whole_words(
    symbols: Sequence[str], style: str | None = None, gpt2_tokens: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Map each symbol that is a whole word to the word it writes, in the vocabulary's order.

    Args:
        symbols: the vocabulary, special symbols included or not.
        style: one of ``STYLES``; detected when not given.
        gpt2_tokens: id (as a string) -> token, from :func:`read_gpt2_tokens`; needed for style ``gpt2-ids``.
    """
    style = detect_style(symbols) if style is None else style
    ordinary = [symbol for symbol in symbols if not is_special(symbol)]
    if style == "wordpiece":
        # a lone "##" is written by the text itself
        return {s: s for s in ordinary if len(s) <= 2 or not s.startswith("##")}
    if style == "sentencepiece":
        return {s: s[1:] for s in ordinary if len(s) > 1 and s.startswith("▁")}
    if style == "subword-nmt":
        return {s: s for s in ordinary if not s.endswith("@@")}
    if style == "words":
        return {s: s for s in ordinary}
    if style == "gpt2":
        decoded = ((s, _gpt2_word(s)) for s in ordinary)
    elif style == "gpt2-ids":
        if gpt2_tokens is None:
            raise UserError(
                "this vocabulary holds GPT-2 token ids instead of tokens; give GPT-2's encoder.json, "
                "which names them, with --gpt2-encoder"
            )
        decoded = ((s, _gpt2_word(gpt2_tokens.get(s, ""))) for s in ordinary)
    else:
        raise UserError(f"unknown vocabulary style {style!r}; choose one of {', '.join(STYLES)}")
    return {symbol: word for symbol, word in decoded if word}


def words_with_letters(words: Mapping[str, str]) -> dict[str, str]:
    """Of :func:`whole_words`, those that hold a letter of any script; figures and punctuation do not."""
    return {symbol: word for symbol, word in words.items() if any(map(str.isalpha, word))}


def read_gpt2_tokens(path: str | Path) -> dict[str, str]:
    """GPT-2's ``encoder.json`` turned round: id, as fairseq's dict.txt writes it -> token."""
    path = Path(path)
    try:
        encoder = json.loads(path.read_text(encoding="utf-8"))
        return {str(int(index)): str(token) for token, index in encoder.items()}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; give GPT-2's encoder.json") from None
    except (ValueError, AttributeError, TypeError):
        raise UserError(f"{path} is not GPT-2's encoder.json (a JSON object of token: id)") from None


def _gpt2_bytes() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes: printable Latin-1 stays, others count up from U+0100."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


GPT2_BYTES = _gpt2_bytes()


def _gpt2_word(token: str) -> str | None:
    """The word that a GPT-2 token with its leading space writes; None when it is no whole word."""
    if len(token) < 2 or token[0] != "Ġ":
        return None
    try:
        return bytes(GPT2_BYTES[character] for character in token[1:]).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return None


def written_tokens(tokens: Sequence[str], style: str) -> list[str]:
    """What each token of a text writes, spaces before it included: their concatenation is the text.

    What begins or ends within a word keeps its marker. Single tokens of GPT-2 may be parts of letters; those are
    written as �.

    Args:
        tokens: neither ids (``gpt2-ids``) nor necessarily a whole text.
        style: of the vocabulary, one of ``STYLES``.
    """
    if style == "sentencepiece":
        return [token.replace("▁", " ") for token in tokens]
    if style == "gpt2":
        return [
            token
            if is_special(token)
            else bytes(GPT2_BYTES.get(letter, 63) for letter in token).decode("utf-8", "replace")
            for token in tokens
        ]
    written: list[str] = []
    joined = True  # with the token before
    for number, token in enumerate(tokens, start=1):
        goes_on = style == "subword-nmt" and len(token) > 2 and token.endswith("@@")
        if goes_on and number < len(tokens):
            token = token[:-2]
        elif style == "wordpiece" and written and len(token) > 2 and token.startswith("##"):
            token, joined = token[2:], True
        written.append(token if joined else f" {token}")
        joined = goes_on
    return written


def join_tokens(tokens: Sequence[str], style: str) -> str:
    """Tokens as text that people read; see :func:`written_tokens`."""
    return "".join(written_tokens(tokens, style)).strip()


def symbols_by_word(words: Mapping[str, str]) -> dict[str, list[str]]:
    """Lower-cased word -> the symbols that write it, in the vocabulary's order."""
    by_word: dict[str, list[str]] = {}
    for symbol, word in words.items():
        by_word.setdefault(word.lower(), []).append(symbol)
    return by_word


def choose_writing(word: str, lemma: str, candidates: Sequence[str], words: Mapping[str, str]) -> str:
    """Which of several symbols that differ in case only stands for ``lemma`` beside ``word``.

    A candidate written like the word comes first when the word is Capitalised or UPPER CASE (``Big`` has
    ``Large``, not ``large``); then the source's own writing of the lemma (``capital`` has ``Paris``); then
    lower case; then the first of the vocabulary. With a single candidate the choice is free of rules: a
    vocabulary that holds only ``Paris`` gives ``Paris``.

    Args:
        word: the word whose synonym is sought, as its symbol writes it.
        lemma: the synonym as the source (WordNet) writes it.
        candidates: the symbols whose lower-cased word is the lower-cased lemma; at least one.
        words: symbol -> word, from :func:`whole_words`.
    """
    if len(candidates) == 1:
        return candidates[0]
    writings = [lemma, lemma.lower()]
    if word.isupper() and len(word) > 1:
        writings.insert(0, lemma.upper())
    elif word[:1].isupper():
        writings.insert(0, lemma[:1].upper() + lemma[1:])
    by_writing = {words[symbol]: symbol for symbol in reversed(candidates)}
    return next((by_writing[w] for w in writings if w in by_writing), candidates[0])
