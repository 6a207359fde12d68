"""Senses of words and what WordNet says of them besides synonyms: opposites, more general and more special concepts.

Pointers and their symbols are documented in WordNet's manual pages ``wndb`` and ``wninput``.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.wordnet import PARTS_OF_SPEECH, WordNet, read_entries

ANTONYM, SIMILAR = "!", "&"
HYPERNYM, INSTANCE_HYPERNYM = "@", "@i"
HYPONYM, INSTANCE_HYPONYM = "~", "~i"

COUNTS = "cntlist.rev"
# kinds of synsets in sense keys
_KINDS = {"1": "noun", "2": "verb", "3": "adjective", "4": "adverb", "5": "adjective"}

_FILES = dict(zip(PARTS_OF_SPEECH, ("noun", "verb", "adj", "adv"), strict=True))
_KIND_OF_LETTER = {"n": "1", "v": "2", "a": "3", "r": "4", "s": "5"}
_LETTERS = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}


class Synset(NamedTuple):
    """A concept: its part of speech (one of :data:`~fairseq_tn.synonyms.wordnet.PARTS_OF_SPEECH`) and its place in the
    data file."""

    part: str
    offset: str


class _SenseKey(NamedTuple):
    """What ``cntlist.rev`` names a sense by; see the manual page ``senseidx``."""

    lemma: str
    kind: str
    file: str
    identity: str
    number: int


class _Data(NamedTuple):
    file: str
    kind: str
    lemmas: list[str]
    identities: list[str]
    pointers: str

    def has(self, key: _SenseKey) -> bool:
        """Whether a sense key may be of this synset."""
        return (self.kind, self.file) == (key.kind, key.file) and any(
            lemma.lower() == key.lemma and int(identity, 16) == int(key.identity)
            for lemma, identity in zip(self.lemmas, self.identities, strict=True)
        )


class Relations:
    """WordNet with its senses in order of frequency, and its pointers.

    Besides the files that synonyms need, this reads ``cntlist.rev``: how often each sense of a word occurs in the texts
    that WordNet's authors annotated.

    Attributes:
        wordnet: the WordNet that was read

    Raises UserError that names the file when one is missing or damaged.
    """

    def __init__(self, wordnet: WordNet):
        self.wordnet = wordnet
        folder = wordnet.folder
        self._index = {p: read_entries(folder / f"index.{f}", _index_entry) for p, f in _FILES.items()}
        self._data = {p: read_entries(folder / f"data.{f}", _data_entry) for p, f in _FILES.items()}
        self._counts: dict[tuple[str, str], dict[Synset, int]] = {}
        for key, count in read_entries(folder / COUNTS, _count_entry).items():
            synset = self._sense_of(key)
            if synset is not None:
                self._counts.setdefault((key.lemma, synset.part), {})[synset] = count

    def _sense_of(self, key: "_SenseKey") -> Synset | None:
        """The sense that a key names; by its number where the key does not tell satellites apart.

        Numbers alone would not do: Debian's package has changed the order of some senses.
        """
        senses = self.senses(key.lemma, _KINDS[key.kind])
        fitting = [synset for synset in senses if self._entry(synset).has(key)]
        by_number = senses[key.number - 1] if key.number <= len(senses) else None
        return by_number if by_number in fitting else next(iter(fitting), None)

    def knows(self, lemma: str, part: str) -> bool:
        """Whether WordNet lists a lemma (blanks or ``_`` between its words) as this part of speech."""
        return _key(lemma) in self._index[part]

    def knows_any(self, lemma: str) -> bool:
        """Whether WordNet lists a lemma as any part of speech."""
        return any(self.knows(lemma, part) for part in PARTS_OF_SPEECH)

    def base_form(self, word: str, part: str, inflected: bool = False) -> str | None:
        """The first lemma of a part of speech that a word may be a form of (Morphy); None if there is none.

        inflected: the word is known to be no lemma itself, though WordNet may list it as one, too ("works")
        """
        forms = self.wordnet.base_forms(_key(word), _FILES[part])
        return next((form for form in forms if not inflected or form != word), None)

    def senses(self, lemma: str, part: str) -> list[Synset]:
        """The synsets of a lemma, the most frequent first."""
        return [Synset(part, offset) for offset in self._index[part].get(_key(lemma), ())]

    def counts(self, lemma: str, part: str) -> dict[Synset, int]:
        """How often a lemma has each of its senses in the annotated texts; those that it never has are left out."""
        return self._counts.get((_key(lemma), part), {})

    def lemmas(self, synset: Synset) -> list[str]:
        """The lemmas of a synset as WordNet writes them, with blanks."""
        return [lemma.replace("_", " ") for lemma in self._entry(synset).lemmas]

    def related(self, synset: Synset, *symbols: str) -> list[Synset]:
        """The synsets that pointers of these symbols lead to."""
        return [target for symbol, target, _, _ in self._pointers(synset) if symbol in symbols]

    def antonyms(self, lemma: str, synset: Synset) -> list[str]:
        """The opposites of a lemma in one of its senses."""
        own = [word.lower() for word in self.lemmas(synset)]
        found: dict[str, None] = {}
        for symbol, target, source_word, target_word in self._pointers(synset):
            if symbol == ANTONYM and source_word and own[source_word - 1] == lemma.lower():
                found[self.lemmas(target)[target_word - 1]] = None
        return list(found)

    def co_hyponyms(self, synset: Synset) -> list[Synset]:
        """The other synsets right below the concepts that a noun is right below: ``dog`` has ``wolf``, ``Paris`` has
        ``Vienna``."""
        found: dict[Synset, None] = {}
        for up, down in ((HYPERNYM, HYPONYM), (INSTANCE_HYPERNYM, INSTANCE_HYPONYM)):
            for above in self.related(synset, up):
                found.update(dict.fromkeys(self.related(above, down)))
        found.pop(synset, None)
        return list(found)

    def _entry(self, synset: Synset) -> _Data:
        try:
            return self._data[synset.part][synset.offset]
        except KeyError:
            path = self.wordnet.folder / f"data.{_FILES[synset.part]}"
            raise UserError(
                f"{path} lacks the synset {synset.offset} that others name; the files are of different releases or "
                "damaged, install WordNet again"
            ) from None

    def _pointers(self, synset: Synset) -> Iterator[tuple[str, Synset, int, int]]:
        """Symbol, target, and which words of source and target (from 1; 0: the whole synsets)."""
        fields = self._entry(synset).pointers.split(" ")
        for place in range(1, 1 + 4 * int(fields[0]), 4):
            symbol, offset, letter, words = fields[place : place + 4]
            yield symbol, Synset(_LETTERS[letter], offset), int(words[:2], 16), int(words[2:], 16)


def _key(lemma: str) -> str:
    return lemma.lower().replace(" ", "_")


def _index_entry(line: str) -> tuple[str, list[str]]:
    # lemma pos synset_count pointer_count [pointer...] sense_count tagged_count offset [offset...]
    fields = line.split()
    return fields[0], fields[6 + int(fields[3]) :]


def _count_entry(line: str) -> tuple[_SenseKey, int]:
    # lemma%kind:file:lex_id:head:head_id sense_number count
    key, number, count = line.split()
    lemma, _, rest = key.rpartition("%")
    kind, file, identity, _, _ = rest.split(":")
    if kind not in _KINDS or not (file.isdigit() and identity.isdigit()):
        raise ValueError("no sense key")
    return _SenseKey(lemma, kind, file, identity, int(number)), int(count)


def _data_entry(line: str) -> tuple[str, _Data]:
    # offset file kind lemma_count(hex) lemma lex_id [lemma lex_id...] pointer_count [pointer...] ... | gloss
    offset, file, letter, count, rest = line.split(" ", 4)
    fields = rest.partition(" | ")[0].split(" ", 2 * int(count, 16))
    int(fields[-1].split(" ", 1)[0])
    lemmas = [word.partition("(")[0] if word.endswith(")") else word for word in fields[:-1:2]]
    return offset, _Data(file, _KIND_OF_LETTER[letter], lemmas, fields[1:-1:2], fields[-1])
