"""Synonyms from WordNet.

WordNet's database files are read directly (their format is documented in WordNet's manual pages ``wndb`` and
``morphy``), once, instead of asking NLTK token by token: a vocabulary of 30,522 tokens then takes two
seconds instead of sixteen, and installs whose folders NLTK refuses or finds incomplete can be used. Which
synsets a word has is the same as in NLTK's ``synsets``.
"""

import contextlib
import io
import logging
import re
import threading
import urllib.request
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.table import SynonymTable
from fairseq_tn.synonyms.vocabularies import (
    FEW_WORDS,
    choose_writing,
    detect_style,
    symbols_by_word,
    whole_words,
    words_with_letters,
)

logger = logging.getLogger(__name__)

Folder = Path | zipfile.Path
Key = TypeVar("Key")
Entry = TypeVar("Entry")

DEBIAN_FOLDER = Path("/usr/share/wordnet")
NOT_FOUND = (
    "WordNet not found; get it in one of three ways: (1) python -m nltk.downloader wordnet; "
    "(2) on Debian and Ubuntu, apt-get install wordnet-base; "
    "(3) give the folder that holds data.noun, index.noun, noun.exc, ... with --wordnet FOLDER"
)

# Adjective satellites ("s" in the data files) are indexed as adjectives, so four parts of speech are all.
_PARTS = ("noun", "verb", "adj", "adv")
PARTS_OF_SPEECH = ("noun", "verb", "adjective", "adverb")
_PART_NAMES = dict(zip(_PARTS, PARTS_OF_SPEECH, strict=True))
_FILES = tuple(name for part in _PARTS for name in (f"index.{part}", f"data.{part}", f"{part}.exc"))
_CONNECT_SECONDS = 5

# Rules of detachment of the manual page morphy(7WN): ending -> what replaces it.
_ENDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "noun": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "verb": (
        ("s", ""),
        ("ies", "y"),
        ("es", "e"),
        ("es", ""),
        ("ed", "e"),
        ("ed", ""),
        ("ing", "e"),
        ("ing", ""),
    ),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}


class WordNet:
    """WordNet's lemmas and synsets, read from a folder (or a folder in a zip file) of database files.

    Raises UserError that names the file when one is missing or damaged.
    """

    def __init__(self, folder: Folder):
        self.folder = folder
        self.version = wordnet_version(folder)
        self._offsets: dict[str, dict[str, list[str]]] = {}
        self._lemmas: dict[str, dict[str, list[str]]] = {}
        self._exceptions: dict[str, dict[str, list[str]]] = {}
        for part in _PARTS:
            self._offsets[part] = read_entries(folder / f"index.{part}", _index_entry)
            self._lemmas[part] = read_entries(folder / f"data.{part}", _data_entry)
            self._exceptions[part] = read_entries(folder / f"{part}.exc", _exception_entry)

    def base_forms(self, word: str, part: str) -> list[str]:
        """The lemmas of a part of speech that a lower-case word may be a form of, itself first (Morphy)."""
        known = self._offsets[part]
        exceptions = self._exceptions[part].get(word)
        if exceptions is None:
            forms = [word[: -len(old)] + new for old, new in _ENDINGS[part] if word.endswith(old)]
        else:
            forms = exceptions
        return [form for form in dict.fromkeys([word, *forms]) if form in known]

    def synonyms(self, word: str, exact_lemmas: bool = False) -> list[str]:
        """The lemmas, as WordNet writes them, of all synsets of a word; most frequent senses first.

        The word's own lemma is among them. ``exact_lemmas`` leaves inflected forms (``went``) without
        synsets; otherwise they have those of their base forms (``go``), as in NLTK's ``synsets``.
        """
        found: dict[str, None] = {}
        for part, offset in self._synsets(word, exact_lemmas):
            try:
                found.update(dict.fromkeys(self._lemmas[part][offset]))
            except KeyError:
                raise UserError(
                    f"{self.folder / f'data.{part}'} lacks the synset {offset} that index.{part} "
                    "names; the files are of different releases or damaged, install WordNet again"
                ) from None
        return list(found)

    def senses(self, word: str, exact_lemmas: bool = False) -> dict[str, int]:
        """How many synsets a word has as a noun, a verb, an adjective and an adverb; what it cannot be is left out.

        ``exact_lemmas`` is that of :meth:`synonyms`.
        """
        found = Counter(part for part, _ in dict.fromkeys(self._synsets(word, exact_lemmas)))
        return {_PART_NAMES[part]: number for part, number in found.items()}

    def _synsets(self, word: str, exact_lemmas: bool) -> Iterator[tuple[str, str]]:
        """Part of speech and offset of each synset of a word; a synset of two of its base forms comes twice."""
        word = word.lower()
        for part in _PARTS:
            offsets = self._offsets[part]
            if exact_lemmas:
                forms = [word] if word in offsets else []
            else:
                forms = self.base_forms(word, part)
            for form in forms:
                for offset in offsets[form]:
                    yield part, offset


def read_entries(path: Folder, parse: Callable[[str], tuple[Key, Entry]]) -> dict[Key, Entry]:
    """Read one database file; lines that start with a space are its licence.

    Raises UserError if the file cannot be read or ``parse`` raises ValueError or LookupError.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UserError(f"cannot read WordNet's {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, zipfile.BadZipFile, zlib.error):
        raise UserError(f"WordNet's {path} is damaged; install WordNet again") from None
    entries: dict[Key, Entry] = {}
    for number, line in enumerate(lines, start=1):
        if line and not line.startswith(" "):
            try:
                key, values = parse(line)
            except (ValueError, LookupError):
                raise UserError(
                    f"WordNet's {path}, line {number}, is damaged; install WordNet again"
                ) from None
            entries[key] = values
    return entries


def _index_entry(line: str) -> tuple[str, list[str]]:
    # lemma pos synset_count pointer_count [pointer...] sense_count tagged_count offset [offset...]
    fields = line.split()
    count = int(fields[2])
    offsets = fields[6 + int(fields[3]) :]
    if count < 1 or len(offsets) != count:
        raise ValueError("the number of synsets is wrong")
    return fields[0], offsets


def _data_entry(line: str) -> tuple[str, list[str]]:
    # offset file pos lemma_count(hex) lemma lex_id [lemma lex_id...] pointer_count ... | gloss
    offset, _, _, count, rest = line.split(" ", 4)
    words = rest.split(" ", 2 * int(count, 16))[: 2 * int(count, 16) : 2]
    if len(words) != int(count, 16):
        raise ValueError("the number of lemmas is wrong")
    # adjectives may carry their position in the sentence: "galore(ip)"
    return offset, [word.partition("(")[0] if word.endswith(")") else word for word in words]


def _exception_entry(line: str) -> tuple[str, list[str]]:
    form, *lemmas = line.split()
    return form, lemmas


def wordnet_version(folder: Folder) -> str:
    """The release, such as ``3.0``, that the licence in WordNet's files names; ``unknown`` without one."""
    with contextlib.suppress(OSError, UnicodeDecodeError), (folder / "data.adj").open("rb") as file:
        head = file.read(4096).decode("utf-8", "replace")
        if match := re.search(r"Word[nN]et ([\d.]+\+?) Copyright", head):
            return match[1]
    return "unknown"


def _is_wordnet(folder: Folder) -> bool:
    return all((folder / name).is_file() for name in _FILES)


def _folders_below(path: Path) -> Iterator[Folder]:
    """Where WordNet's files may lie in what a user or NLTK calls its folder."""
    if path.is_file() and zipfile.is_zipfile(path):
        yield zipfile.Path(path, "wordnet/")
    for below in ("", "dict", "wordnet", "corpora/wordnet"):
        yield path / below
    for below in ("wordnet.zip", "corpora/wordnet.zip"):
        if zipfile.is_zipfile(path / below):
            yield zipfile.Path(path / below, "wordnet/")


def _installed_folders() -> Iterator[Folder]:
    import nltk.data

    for folder in nltk.data.path:
        if folder:
            yield from _folders_below(Path(folder))
    yield DEBIAN_FOLDER


def locate_wordnet() -> Folder | None:
    """The folder of an installed WordNet, sought in NLTK's data folders, then Debian's; None without one."""
    return next((folder for folder in _installed_folders() if _is_wordnet(folder)), None)


def find_wordnet(path: str | Path | None = None, download: bool = True) -> WordNet:
    """Read WordNet from ``path``, or from where it is installed, or have NLTK download it.

    Args:
        path: a folder with WordNet's files, an NLTK data folder, or NLTK's wordnet.zip; nothing else is
            tried when given.
        download: let NLTK download WordNet when it is not installed; without a network this fails within
            seconds.

    Raises UserError that names the ways to get WordNet.
    """
    if path is not None:
        found = next((folder for folder in _folders_below(Path(path)) if _is_wordnet(folder)), None)
        if found is None:
            missing = [name for name in _FILES if not Path(path, name).is_file()]
            raise UserError(f"no WordNet in {path} (it lacks {', '.join(missing)}). {NOT_FOUND}")
        return WordNet(found)
    folder = locate_wordnet()
    if folder is None and download and _download():
        folder = locate_wordnet()
    if folder is None:
        raise UserError(NOT_FOUND)
    return WordNet(folder)


def _download() -> bool:
    """Have NLTK download WordNet; whether it says that it did."""
    from nltk.downloader import Downloader

    if not _reachable(Downloader.DEFAULT_URL):
        return False
    downloader = Downloader()
    # NLTK reports failures on standard output and by exceptions of many kinds; whether WordNet is there
    # afterwards is what counts
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        return bool(downloader.download("wordnet", quiet=True, print_error_to=io.StringIO()))
    return False


def _reachable(url: str) -> bool:
    """Whether a server answers within seconds; NLTK's own attempt may hang for minutes."""
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=_CONNECT_SECONDS):
            answered.set()

    # in a thread, because the look-up of the name knows no time limit
    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(_CONNECT_SECONDS + 1)


def build_from_wordnet(
    tokens: Iterable[str],
    wordnet: WordNet | str | Path | None = None,
    exact_lemmas: bool = False,
    style: str | None = None,
    gpt2_tokens: Mapping[str, str] | None = None,
    progress: bool = False,
) -> SynonymTable:
    """The synonym table of a vocabulary: single-token lemmas of every synset of each whole word.

    All parts of speech count, the word itself does not (nor does another capitalisation of it). Lemmas are
    looked up by lower case; of symbols that differ in case only one is taken, see
    :func:`~fairseq_tn.synonyms.vocabularies.choose_writing`.

    Args:
        tokens: the symbols of the vocabulary in order, special symbols included (the table records their
            digest).
        wordnet: a WordNet that has been read, or where it lies; found or downloaded when not given.
        exact_lemmas: inflected forms (``went``) have no synonyms; by default those of their base forms.
        style: how the vocabulary writes whole words (one of ``vocabularies.STYLES``); detected by default.
        gpt2_tokens: for vocabularies of GPT-2 ids, id -> token.
        progress: show a progress bar when building takes long.
    """
    symbols: Sequence[str] = list(tokens)
    style = detect_style(symbols) if style is None else style
    words = whole_words(symbols, style, gpt2_tokens)
    by_word = symbols_by_word(words)
    source = wordnet if isinstance(wordnet, WordNet) else find_wordnet(wordnet)
    synonyms: dict[str, list[str]] = {}
    bar = tqdm(words.items(), desc="synonyms", unit=" tokens", leave=False, delay=1, disable=not progress)
    for symbol, word in bar:
        own = word.lower()
        chosen: dict[str, None] = {}
        for lemma in source.synonyms(word, exact_lemmas):
            candidates = by_word.get(lemma.lower())
            if candidates is not None and lemma.lower() != own:
                chosen[choose_writing(word, lemma, candidates, words)] = None
        if chosen:
            synonyms[symbol] = list(chosen)
    lettered = words_with_letters(words)
    if 0 < len(synonyms) < FEW_WORDS * len(lettered):
        logger.warning(
            "only %s of the vocabulary's %s words have synonyms in WordNet, which is English; a vocabulary of another "
            "language needs word vectors of it (fairseq-tn synonyms build --source vectors)",
            f"{len(synonyms):,}",
            f"{len(lettered):,}",
        )
    header = {
        "source": f"WordNet {source.version}",
        "options": f"{'exact lemmas' if exact_lemmas else 'Morphy'}, {style} vocabulary",
    }
    return SynonymTable(symbols, synonyms, header)
