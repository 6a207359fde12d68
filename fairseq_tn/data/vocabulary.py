"""Hugging Face WordPiece vocabularies, and the same vocabulary in fairseq's order.

fairseq puts ``<s> <pad> </s> <unk>`` first and ``<mask>`` last, so its ids never equal Hugging Face's; the
tokens are the same, and so is their number.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_path, read_json

ROLES = ("cls", "sep", "pad", "unk", "mask")
BERT_SPECIALS = {role: f"[{role.upper()}]" for role in ROLES}
FAIRSEQ_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
CONTINUATION = "##"

# other characters that Python counts as blanks are left alone: real vocabularies hold some (U+2028), no text
# is ever encoded as them, and fairseq's dict.txt carries them
_BLANK = re.compile(r"[ \t\r\n]")


@dataclasses.dataclass(frozen=True)
class HuggingFaceVocabulary:
    """A WordPiece vocabulary as a BERT checkpoint uses it.

    tokens: in the order of the checkpoint's ids.
    specials: the token that plays each of the roles cls, sep, pad, unk and mask.
    lower_case, strip_accents (None: as lower_case), tokenize_chinese_chars: how text is normalised.
    added: tokens that are not WordPiece pieces, in the notation of tokenizer.json.
    pipeline: ``normalizer``, ``pre_tokenizer`` and ``model`` of tokenizer.json, if there was one.
    """

    tokens: list[str]
    specials: dict[str, str] = dataclasses.field(default_factory=lambda: dict(BERT_SPECIALS))
    lower_case: bool = True
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    added: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    pipeline: dict[str, Any] = dataclasses.field(default_factory=dict)
    source: str = "vocabulary"

    def __post_init__(self) -> None:
        _check_tokens(self.tokens, self.source)
        for role, token in self.specials.items():
            if token not in self._ids:
                raise UserError(
                    f"{self.source} has no token {token} ({role}); give a BERT model's WordPiece vocabulary"
                )
        if len(set(self.specials.values())) < len(ROLES):
            raise UserError(
                f"{self.source} gives one token two roles ({self.specials}); five tokens are needed"
            )
        clash = set(FAIRSEQ_SPECIALS.values()) & (set(self.tokens) - set(self.specials.values()))
        if clash:
            raise UserError(
                f"{self.source} has the ordinary token {min(clash)}, which is a special symbol of fairseq; "
                "rename it in the vocabulary"
            )
        # a special token may bear the name of another role's symbol only by mistake
        for role, token in self.specials.items():
            if FAIRSEQ_SPECIALS.get(role) != token and token in FAIRSEQ_SPECIALS.values():
                raise UserError(
                    f"{self.source} uses {token} as its {role} token, which means something else in fairseq"
                )

    @classmethod
    def load(cls, path: str | Path) -> "HuggingFaceVocabulary":
        """Read a Hugging Face folder, a ``vocab.txt`` or a ``tokenizer.json``.

        In a folder ``tokenizer.json`` goes before ``vocab.txt``, as in transformers. The settings of
        ``tokenizer_config.json`` and ``special_tokens_map.json`` beside the vocabulary are used; without any,
        BERT's special tokens are assumed, and the text is lower-cased unless the vocabulary has capitals.

        Raises UserError for a path that is missing, broken or no WordPiece vocabulary.
        """
        path = Path(path)
        folder = path
        if path.is_dir():
            found = [path / name for name in ("tokenizer.json", "vocab.txt") if (path / name).is_file()]
            if not found:
                raise UserError(
                    f"{path} holds neither tokenizer.json nor vocab.txt; give a BERT model's folder"
                )
            path = found[0]
        elif path.is_file():
            folder = path.parent
        else:
            raise UserError(
                f"{path} does not exist; give a Hugging Face folder, vocab.txt or tokenizer.json on disk"
            )
        config = _read_if_there(folder / "tokenizer_config.json")
        if "Japanese" in str(config.get("tokenizer_class")):
            raise UserError(
                f"{folder / 'tokenizer_config.json'}: {config['tokenizer_class']} splits words with a "
                "dictionary of its own, which is not supported"
            )
        specials = named_specials(folder, BERT_SPECIALS)
        if path.suffix == ".json":
            fields = _read_tokenizer_json(path)
        else:
            fields = _read_vocab_txt(path, folder, config)
        fields.setdefault("lower_case", not any(_has_capitals(token) for token in fields["tokens"]))
        for field, key in (
            ("lower_case", "do_lower_case"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "tokenize_chinese_chars"),
        ):
            if config.get(key) is not None:
                fields[field] = bool(config[key])
        return cls(specials=specials, source=str(path), **fields)

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def fairseq_to_hf(self) -> list[int]:
        """For each id of fairseq the id of Hugging Face."""
        first = [self._ids[self.specials[role]] for role in ("cls", "pad", "sep", "unk")]
        last = self._ids[self.specials["mask"]]
        special = {*first, last}
        return [*first, *(number for number in range(len(self.tokens)) if number not in special), last]

    def symbols(self) -> list[str]:
        """The symbols in fairseq's order: ``<s> <pad> </s> <unk>``, the other tokens, ``<mask>``."""
        names = {self.specials[role]: symbol for role, symbol in FAIRSEQ_SPECIALS.items()}
        return [names.get(self.tokens[number], self.tokens[number]) for number in self.fairseq_to_hf()]

    def dict_text(self) -> str:
        """What ``dict.txt`` holds: the symbols that fairseq does not add by itself, with a count of 1."""
        return "".join(f"{symbol} 1\n" for symbol in self.symbols()[4:-1])

    def write_dict(self, path: str | Path) -> None:
        """Write ``dict.txt``: fairseq's four specials and the task's ``<mask>`` bring it to ``len(self)``."""
        with atomic_path(path) as temporary:
            temporary.write_text(self.dict_text(), encoding="utf-8", newline="\n")


def named_specials(folder: Path, usual: Mapping[str, str]) -> dict[str, str]:
    """The token that a folder's settings name for each role; ``usual`` is for those that they do not name."""
    specials = dict(usual)
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings = _read_if_there(folder / name)
        for role in ROLES:
            value = settings.get(f"{role}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str) and value:
                specials[role] = value
    return specials


def _check_tokens(tokens: list[str], source: str) -> None:
    if not tokens:
        raise UserError(f"{source} is empty; give a WordPiece vocabulary, one token a line")
    seen: set[str] = set()
    for number, token in enumerate(tokens):
        if not token or _BLANK.search(token):
            raise UserError(
                f"{source}: token {number} ({token!r}) is empty or holds a blank; fairseq cannot carry it, "
                "and WordPiece vocabularies have none"
            )
        if token in seen:
            raise UserError(f"{source}: the token {token} occurs twice (the second time with id {number})")
        seen.add(token)


def _has_capitals(token: str) -> bool:
    word = token.removeprefix(CONTINUATION)
    return word.isalpha() and word != word.lower()


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); give a vocabulary file") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _read_if_there(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _insert_added(tokens: list[str], added: Iterable[dict[str, Any]], path: Path) -> None:
    """Append the added tokens that the vocabulary proper does not hold; their ids must follow on."""
    for entry in sorted(added, key=lambda entry: entry["id"]):
        number, content = entry["id"], entry["content"]
        if number < len(tokens):
            if tokens[number] != content:
                raise UserError(
                    f"{path}: id {number} is {tokens[number]} and the added token {content} at once"
                )
        elif number == len(tokens):
            tokens.append(content)
        else:
            raise UserError(f"{path}: no token has id {len(tokens)}; ids must be 0, 1, 2, ... without a gap")


def _read_vocab_txt(path: Path, folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    text = _read_text(path)
    tokens = text.removesuffix("\n").split("\n") if text else []
    _check_tokens(tokens, str(path))
    added: dict[int, dict[str, Any]] = {}
    listed = folder / "added_tokens.json"
    if listed.is_file():
        added = {number: {"id": number, "content": token} for token, number in read_json(listed).items()}
    try:
        for number, entry in (config.get("added_tokens_decoder") or {}).items():
            added[int(number)] = {**entry, "id": int(number)}
        _insert_added(tokens, added.values(), folder / "tokenizer_config.json")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{folder}: the added tokens cannot be understood ({error!r})") from None
    return {"tokens": tokens, "added": list(added.values())}


def _read_tokenizer_json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    model = content.get("model")
    model = model if isinstance(model, dict) else {}
    vocab = model.get("vocab")
    # files of the first releases do not name the type
    kind = model.get("type", "WordPiece" if "continuing_subword_prefix" in model else "missing")
    if kind != "WordPiece" or not isinstance(vocab, dict):
        raise UserError(f"{path} is not a WordPiece vocabulary (its model: {kind}); give a BERT model's")
    if model.get("continuing_subword_prefix", CONTINUATION) != CONTINUATION:
        raise UserError(
            f"{path} marks continued pieces with {model['continuing_subword_prefix']!r}; only ## is supported"
        )
    added = content.get("added_tokens") or []
    try:
        tokens = sorted(vocab, key=vocab.__getitem__)
        for number, token in enumerate(tokens):
            if vocab[token] != number:
                raise UserError(
                    f"{path}: the token {token} has id {vocab[token]}, not {number}; ids must be "
                    "0, 1, 2, ... without a gap or a repetition"
                )
        _insert_added(tokens, added, path)
    except (TypeError, KeyError) as error:
        raise UserError(f"{path}: the vocabulary cannot be understood ({error!r})") from None
    fields: dict[str, Any] = {"tokens": tokens, "added": added}
    fields["pipeline"] = {
        "normalizer": content.get("normalizer"),
        "pre_tokenizer": content.get("pre_tokenizer"),
        "model": {key: value for key, value in model.items() if key != "vocab"},
    }
    return {**fields, **_normalisation(content.get("normalizer"))}


def _normalisation(normalizer: dict[str, Any] | None) -> dict[str, Any]:
    steps = (normalizer or {}).get("normalizers") or [normalizer or {}]
    fields: dict[str, Any] = {"lower_case": False, "tokenize_chinese_chars": False}
    for step in steps:
        if step.get("type") == "BertNormalizer":
            fields["lower_case"] = bool(step.get("lowercase", True))
            fields["strip_accents"] = step.get("strip_accents")
            fields["tokenize_chinese_chars"] = bool(step.get("handle_chinese_chars", True))
        elif step.get("type") == "Lowercase":
            fields["lower_case"] = True
        elif step.get("type") == "StripAccents":
            fields["strip_accents"] = True
    return fields
