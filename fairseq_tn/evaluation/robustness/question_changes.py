"""Change what a question is about, so that a sentence made of it does not answer the question.

Names and numbers become others; adjectives, nouns, adverbs and verbs become their opposites; where there is none of
these, nouns become near ones.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairseq_tn.evaluation.robustness import names
from fairseq_tn.evaluation.robustness.language import frequent_words, inflect_like, with_capitals
from fairseq_tn.evaluation.robustness.names import words
from fairseq_tn.evaluation.robustness.near_words import NearWords, co_hyponyms, is_common_noun
from fairseq_tn.evaluation.robustness.numbers_and_dates import other_number
from fairseq_tn.evaluation.robustness.statements import AskedPhrase
from fairseq_tn.synonyms.relations import Relations

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

_NUMERIC = frozenset(("DATE", "TIME", "CARDINAL", "ORDINAL", "PERCENT", "QUANTITY", "MONEY"))
_PARTS = {
    **dict.fromkeys(("JJ", "JJR", "JJS"), "adjective"),
    **dict.fromkeys(("NN", "NNS"), "noun"),
    **dict.fromkeys(("RB", "RBR", "RBS"), "adverb"),
    **dict.fromkeys(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), "verb"),
}
# nouns that stand for what is asked, so that another one makes no sense
_EMPTY_NOUNS = frozenset(
    words("name term word type kind form part number amount example way person people thing year")
)
# near words of a question that are changed when nothing else can be
_MOST_NEAR = 2
_POOL = 5
# of a word's occurrences in WordNet's annotated texts, the least share of the sense whose opposite is taken
_SENSE_SHARE = 0.5
_OPPOSITES = {
    "first": "last",
    "last": "first",
    "most": "least",
    "least": "most",
    "more": "less",
    "less": "more",
}
_OPPOSITES.update(
    {"big": "small", "bigger": "smaller", "biggest": "smallest", "fewer": "more", "fewest": "most"}
)
# "most countries", "more countries"
_OPPOSITES_OF_NUMBER = {"most": "few", "more": "fewer"}
_LETTERS = "JKMQUVWXZ"


@dataclass(frozen=True)
class QuestionChanger:
    """How questions are changed.

    Attributes:
        relations: WordNet
        vectors: near words; without, WordNet's concepts next to a word's own are taken
    """

    relations: Relations
    vectors: NearWords | None = None

    def change(self, question: "Doc", phrase: AskedPhrase, rng: random.Random) -> dict[int, str]:
        """New words for tokens of a question, "" where one is dropped; empty if nothing can be changed.

        Args:
            question: the parsed question
            phrase: its asking phrase, which stays
            rng: decides between possible changes
        """
        asked = range(phrase.begin, phrase.end)
        changes = self._names_and_numbers(question, asked, rng)
        words = {token.lower_ for token in question}
        for token in question:
            if token.i in asked or token.i in changes or token.ent_type_ or token.tag_ not in _PARTS:
                continue
            # with an auxiliary it is a verb, whatever its tag
            if _is_hyphenated(token) or (_PARTS[token.tag_] != "verb" and _has_auxiliary(token)):
                continue
            part = _PARTS[token.tag_]
            # one changed verb is enough, and a changed noun or adjective makes it another question already
            if part == "verb" and changes:
                continue
            opposite = self._opposite(token, part)
            # two opposites may cancel, as may "decreases or increases" for "increases or decreases"
            if opposite is not None and opposite.lower() not in words:
                changes[token.i] = opposite
                break
        if not changes:
            changes = self._near(question, asked, rng)
        return changes

    def _opposite(self, token: "Token", part: str) -> str | None:
        following = token.nbor(1) if token.i + 1 < len(token.doc) else None
        if part == "adjective" and following is not None and following.pos_ == "ADP":
            # "independent of", but "dependent on"
            return None
        if token.lower_ in _OPPOSITES and (following is None or following.pos_ != "ADP"):
            opposites = _OPPOSITES_OF_NUMBER if token.tag_ in ("JJR", "JJS") else _OPPOSITES
            return with_capitals(opposites.get(token.lower_, _OPPOSITES[token.lower_]), token.text)
        if token.is_stop or len(token) < 3 or token.dep_ in ("compound", "aux", "auxpass"):
            return None
        lemma = self.relations.base_form(token.lower_, part)
        senses = self.relations.senses(lemma, part) if lemma else []
        if lemma is None or not senses:
            return None
        counts = self.relations.counts(lemma, part)
        if counts.get(senses[0], 0) < _SENSE_SHARE * sum(counts.values()):
            return None
        for word in self.relations.antonyms(lemma, senses[0]):
            negated = part == "noun" and (word.lower().endswith(lemma[1:]) or word.lower().startswith(lemma))
            if word.isalpha() and word.isascii() and not negated and word.lower() not in frequent_words():
                if token.tag_ in ("JJR", "JJS") and word.endswith(("er", "est")):
                    # "greater" for "lesser"
                    return with_capitals(word.lower(), token.text)
                return inflect_like(word.lower(), token.tag_, token.text)
        return None

    def _near(self, question: "Doc", asked: range, rng: random.Random) -> dict[int, str]:
        changes: dict[int, str] = {}
        tokens = [
            token
            for token in question
            if token.tag_ in ("NN", "NNS")
            and token.i not in asked
            and not token.is_stop
            and token.is_alpha
            and len(token) > 2
            and token.lemma_.lower() not in _EMPTY_NOUNS
            and not _is_in_preposition(token)
            and not _is_hyphenated(token)
            and not _has_auxiliary(token)
        ]
        # the last nouns of a question say most about what is asked
        for token in reversed(tokens):
            lemma = self.relations.base_form(token.lower_, "noun")
            if lemma is None:
                continue
            others = self._near_nouns(lemma, name=False)
            used = {word.lower() for word in changes.values()}
            forms = [inflect_like(other, token.tag_, token.text) for other in others]
            usable = [f for f in forms if f and f.lower() not in used and not _alike(f, token.text)][:_POOL]
            if usable:
                changes[token.i] = rng.choice(usable)
            if len(changes) == _MOST_NEAR:
                break
        return changes

    def _near_nouns(self, word: str, name: bool) -> list[str]:
        near = self.vectors.near(word.lower(), "noun", name) if self.vectors else []
        return near or list(co_hyponyms(self.relations, word, "noun", name))

    def _names_and_numbers(self, question: "Doc", asked: range, rng: random.Random) -> dict[int, str]:
        changes: dict[int, str] = {}
        # a name that comes twice is changed in one way
        done: dict[str, str] = {}
        for begin, end, label in _spans(question):
            if set(asked) & set(range(begin, end)):
                continue
            tokens = list(question[begin:end])
            if label in _NUMERIC:
                changes.update(_changed_numbers(tokens, rng))
                continue
            for place, word in self._changed_name(tokens, label, rng).items():
                changes[place] = done.setdefault(question[place].text, word)
        return changes

    def _changed_name(self, tokens: "list[Token]", label: str, rng: random.Random) -> dict[int, str]:
        core = [
            token for token in tokens if token.pos_ != "DET" and token.tag_ != "POS" and not token.is_punct
        ]
        if not core:
            return {}
        text = " ".join(token.text for token in core)
        if len(text) == 1:
            return (
                {core[0].i: rng.choice([letter for letter in _LETTERS if letter != text])}
                if text.isupper()
                else {}
            )
        if len(core) == 1 and text.isupper() and text.isalpha():
            return {core[0].i: rng.choice([name for name in names.ACRONYMS if name != text])}
        if label == "NORP" and len(core) == 1 and self._is_people(core[0]):
            plural = core[0].tag_ in ("NNS", "NNPS") or core[0].lower_.endswith("s")
            return {core[0].i: names.people(core[0].text, plural, rng)}
        if label == "PERSON" and len(core) <= 3:
            return _whole(core, names.person(rng, len(core)))
        plural_name = len(core) == 1 and core[0].tag_ == "NNPS"
        if not plural_name and all(is_common_noun(self.relations, token.lower_) for token in core):
            return {}
        if label == "GPE" or (label == "LOC" and len(core) == 1):
            others = [word for word in self._near_nouns(text, name=True) if not _alike(word, text)][:_POOL]
            known = (
                names.COUNTRIES if any(_alike(text, country) for country in names.COUNTRIES) else names.CITIES
            )
            other = rng.choice(others or [name for name in known if name != text])
            return {**_whole(core, other[:1].upper() + other[1:]), **_without_article(core)}
        # of other names the words that mean nothing by themselves: "Fort *Henry*", "University of *California*"
        for token in core:
            lowered = token.lower_
            if token.pos_ == "PROPN" and token.text[0].isupper() and token.is_alpha and len(token) > 2:
                article = token.i and token.nbor(-1).lower_ == "the"
                if len(core) == 1 and (token.tag_ == "NNPS" or (article and token.text.endswith("s"))):
                    return {token.i: names.people(token.text, True, rng)}
                if is_common_noun(self.relations, lowered) or self.relations.knows(lowered, "adjective"):
                    continue
                return {token.i: with_capitals(rng.choice(names.SURNAMES), token.text)}
        return {}

    def _is_people(self, token: "Token") -> bool:
        """Whether a word is the adjective or plural noun of a people or belief."""
        plural = token.tag_ in ("NNS", "NNPS")
        return (
            plural
            or self.relations.knows(token.lower_, "adjective")
            or token.lower_.endswith(("an", "ese", "ish"))
        )


def _spans(question: "Doc") -> Iterator[tuple[int, int, str]]:
    """Names and numbers: those that the model found, and other proper names and digits."""
    for entity in question.ents:
        yield entity.start, entity.end, entity.label_
    begin = None
    for token in [*question, None]:
        free = token is not None and not token.ent_type_
        proper = free and token.pos_ == "PROPN" and token.text[0].isupper()
        if proper and begin is None:
            begin = token.i
        elif not proper and begin is not None:
            yield begin, token.i if token is not None else len(question), "NAME"
            begin = None
        if free and not proper and token.like_num:
            yield token.i, token.i + 1, "CARDINAL"


def _changed_numbers(tokens: "list[Token]", rng: random.Random) -> dict[int, str]:
    others = {token.i: other_number(token.text, rng) for token in tokens}
    return {place: other for place, other in others.items() if other is not None}


def _has_auxiliary(token: "Token") -> bool:
    return any(child.dep_ == "aux" for child in token.children)


def _is_hyphenated(token: "Token") -> bool:
    text, end = token.doc.text, token.idx + len(token)
    return "-" in (text[max(token.idx - 1, 0) : token.idx], text[end : end + 1])


def _is_in_preposition(token: "Token") -> bool:
    """Whether a noun belongs to something like "in addition to"."""
    around = [token.doc[place] for place in (token.i - 1, token.i + 1) if 0 <= place < len(token.doc)]
    return len(around) == 2 and all(other.pos_ in ("ADP", "PART") and other.tag_ != "POS" for other in around)


def _without_article(tokens: "list[Token]") -> dict[int, str]:
    """ "the United States" becomes "Peru"."""
    before = tokens[0].nbor(-1) if tokens[0].i else None
    return {before.i: ""} if before is not None and before.lower_ == "the" else {}


def _whole(tokens: "list[Token]", text: str) -> dict[int, str]:
    first, last = tokens[0].i, tokens[-1].i
    return {first: text, **dict.fromkeys(range(first + 1, last + 1), "")}


def _alike(first: str, second: str) -> bool:
    """Whether words have their first letters in common, as forms of one word have."""
    size = max(4, min(len(first), len(second)) - 2)
    return first.lower()[:size] == second.lower()[:size]
