"""Words near a word, but not it: by word vectors, or WordNet's concepts next to its own."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from fairseq_tn.synonyms.relations import HYPERNYM, HYPONYM, INSTANCE_HYPERNYM, SIMILAR, Relations
from fairseq_tn.synonyms.vector_files import read_word_vectors

# neighbours of a word that are looked at
_NEIGHBOURS = 20
_ROWS = 512
# how often WordNet's annotated texts must have a word, so that it is a usual one
_LEAST_COUNT = 3


class NearWords:
    """The neighbours of words in a file of vectors, those of the same part of speech.

    Attributes:
        relations: WordNet, for the parts of speech
    """

    def __init__(self, relations: Relations, words: list[str], vectors: np.ndarray):
        self.relations = relations
        self._words = words
        self._numbers = {word: number for number, word in reversed([*enumerate(words)])}
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        self._vectors = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
        self._found: dict[str, list[str]] = {}

    @classmethod
    def read(cls, path: str | Path, relations: Relations, progress: bool = False) -> "NearWords":
        """Read the vectors of the words that WordNet knows.

        Raises:
            UserError: see :func:`~fairseq_tn.synonyms.vector_files.read_word_vectors`
        """

        def known(word: str) -> bool:
            return word.isalpha() and word.isascii() and relations.knows_any(word)

        found = read_word_vectors(path, known, progress)
        return cls(relations, found.words, found.vectors)

    def prepare(self, words: Iterable[str]) -> None:
        """Search the neighbours of many words at once."""
        wanted = sorted({word for word in words if word in self._numbers and word not in self._found})
        for begin in range(0, len(wanted), _ROWS):
            block = wanted[begin : begin + _ROWS]
            cosines = self._vectors[[self._numbers[word] for word in block]] @ self._vectors.T
            most = min(_NEIGHBOURS + 1, cosines.shape[1])
            nearest = np.argpartition(-cosines, most - 1, axis=1)[:, :most]
            for row, word in enumerate(block):
                similar = cosines[row]
                order = sorted(nearest[row].tolist(), key=lambda number: (-similar[number], number))
                self._found[word] = [self._words[number] for number in order if self._words[number] != word]

    def near(self, word: str, part: str, name: bool) -> list[str]:
        """The neighbours of a lower-case word that are of a part of speech, the nearest first.

        name: whether they must be names, or must not.
        """
        self.prepare([word])
        return [
            other
            for other in self._found.get(word, ())
            if self.relations.knows(other, part) and is_name(self.relations, other) == name
        ]


def co_hyponyms(relations: Relations, word: str, part: str, name: bool) -> Iterator[str]:
    """Single words for the concepts next to a word's most frequent sense; common ones first.

    name: whether they must be names, such as other towns of the same country, or must not.
    """
    senses = relations.senses(word, part)
    if name:
        senses = [one for one in senses if relations.related(one, INSTANCE_HYPERNYM)]
    if not senses:
        return
    own = {lemma.lower() for lemma in relations.lemmas(senses[0])}
    meanings = {*relations.senses(word, part)}
    for synset in senses:
        meanings.update(relations.related(synset, HYPERNYM, HYPONYM, SIMILAR))
    counted = []
    for synset in relations.co_hyponyms(senses[0]):
        lemma = relations.lemmas(synset)[0]
        if {*relations.senses(lemma, part)} & meanings:
            continue
        plain = (
            lemma.isascii()
            and lemma.isalpha()
            and lemma[0].isupper() == name
            and not (name and lemma.endswith("s"))
        )
        if plain and lemma.lower() not in own and relations.senses(lemma, part)[:1] == [synset]:
            counted.append((-relations.counts(lemma, part).get(synset, 0), lemma))
    least = 0 if name else _LEAST_COUNT
    yield from (lemma for count, lemma in sorted(counted) if -count >= least)


def is_name(relations: Relations, word: str) -> bool:
    """Whether the most frequent sense of a noun is an instance, such as a town or a person."""
    senses = relations.senses(word, "noun")
    return bool(senses) and bool(relations.related(senses[0], INSTANCE_HYPERNYM))


def is_common_noun(relations: Relations, word: str) -> bool:
    """Whether a word, capitalised in a name, has a meaning of its own: "university", "river", "company"."""
    lemma = relations.base_form(word, "noun")
    return lemma is not None and not relations.related(relations.senses(lemma, "noun")[0], INSTANCE_HYPERNYM)
