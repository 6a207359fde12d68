"""Swap words of contexts for synonyms (SwapSyn of TextFlint, Gui et al. 2021, after its description)."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq_tn.evaluation.robustness.language import (
    article_for,
    frequent_words,
    inflect_like,
    is_english,
    parse,
)
from fairseq_tn.evaluation.robustness.names import words
from fairseq_tn.evaluation.robustness.squad_pairs import (
    Pair,
    Paragraph,
    SquadFile,
    answer_spans,
    edited_paragraph,
)
from fairseq_tn.evaluation.robustness.text_edits import Edit, EditedText, merged, overlaps
from fairseq_tn.synonyms.relations import Relations, Synset

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

# Penn Treebank tags that WordNet has words for; proper names are left alone
_PARTS = {
    **dict.fromkeys(("NN", "NNS"), "noun"),
    **dict.fromkeys(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), "verb"),
    **dict.fromkeys(("JJ", "JJR", "JJS"), "adjective"),
    **dict.fromkeys(("RB", "RBR", "RBS"), "adverb"),
}


class Demands(NamedTuple):
    """What a word and its synonym must be like in the texts that WordNet's authors annotated.

    Attributes:
        least: how often the word must have the sense, and so the synonym
        share: the least share of the word's occurrences that have the sense, and of the synonym's (a synonym that
            mostly means something else is read so)
        frequency: how often the synonym must have the sense for each time that the word has it
        senses: words of more senses are left alone
    """

    least: int
    share: float
    frequency: float
    senses: int


# The second are for contexts of which no word meets the first.
DEMANDS = (Demands(3, 0.5, 0.05, 8), Demands(1, 0.5, 0.02, 10))
_INFLECTED = frozenset(words("NNS VBD VBG VBN VBZ JJR JJS RBR RBS"))
# prepositions that begin an adverbial after any passive; others belong to the verb, and its synonyms take other ones
_FREE_PREPOSITIONS = frozenset(
    words(
        "after as at before between by during in near on since throughout under until when where while within"
    )
)


@dataclass
class SwapCounts:
    """What was done.

    Attributes:
        contexts: read
        foreign: not English, left out
        ineligible: English, without a word that can be swapped, left out
        transformed: written
        questions: written
        unanswerable: of them
        words: of the written contexts
        swapped: of ``words``
        misplaced: questions left out because an answer is not where the file says
    """

    contexts: int = 0
    foreign: int = 0
    ineligible: int = 0
    transformed: int = 0
    questions: int = 0
    unanswerable: int = 0
    words: int = 0
    swapped: int = 0
    misplaced: int = 0


@dataclass(frozen=True)
class SynonymSwapper:
    """How words are swapped.

    Attributes:
        relations: WordNet
        share: of a context's words that are swapped, as far as there are words with synonyms; at least one word is
        most: words of a context that are swapped at most; None: any number
        seed: of which words are swapped
    """

    relations: Relations
    share: float = 0.1
    most: int | None = None
    seed: int = 1
    _found: dict[tuple[str, str, Demands], list[str]] = field(default_factory=dict, repr=False)

    def transform(
        self, file: SquadFile, advance: Callable[[int], Any] = lambda more: None
    ) -> tuple[list[Pair], SwapCounts]:
        """Swap words in every context of a file.

        Args:
            file: the original
            advance: is told how many more characters of contexts and questions are done

        Returns:
            The paragraphs in which a word was swapped, and counts.
        """
        counts = SwapCounts(contexts=len(file.paragraphs), misplaced=file.misplaced)
        contexts = parse([paragraph.context for paragraph in file.paragraphs], advance)
        questions = parse([_text_of(paragraph) for paragraph in file.paragraphs], advance, tags_only=True)
        pairs = []
        for paragraph, document, asked in zip(file.paragraphs, contexts, questions, strict=True):
            if not is_english(document):
                counts.foreign += 1
                continue
            spans = answer_spans(paragraph.questions)
            found = (list(self.swaps(document, asked, spans, demands)) for demands in DEMANDS)
            swaps = next(filter(None, found), None)
            if swaps is None:
                counts.ineligible += 1
                continue
            number_of_words = sum(token.is_alpha for token in document)
            number = max(1, round(self.share * number_of_words))
            number = min(number, len(swaps), len(swaps) if self.most is None else self.most)
            identity = paragraph.questions[0]["id"]
            chosen = random.Random(f"{self.seed} {identity}").sample(swaps, number)
            edited = EditedText(paragraph.context, (edit for swap in chosen for edit in swap))
            pairs.append(_pair(paragraph, edited))
            counts.transformed += 1
            counts.words += number_of_words
            counts.swapped += number
            counts.questions += len(paragraph.questions)
            counts.unanswerable += sum(not entry.get("answers") for entry in paragraph.questions)
        return pairs, counts

    def swaps(
        self,
        document: "Doc",
        asked: "Doc",
        answers: Sequence[tuple[int, int]],
        demands: Demands = DEMANDS[0],
    ) -> Iterator[list[Edit]]:
        """Every swap that is possible: an edit of the word, and one of the article before it where it changes.

        Args:
            document: the parsed context
            asked: the parsed questions, one after the other
            answers: begin and end of the answers, which stay as they are; so do their words elsewhere
            demands: on the words
        """
        kept = merged(answers)
        fixed = {
            token.lower_
            for token in document
            if overlaps(kept, token.idx, token.idx + len(token)) and not token.is_stop
        }
        fixed |= {token.lower_ for token in asked if token.pos_ == "PROPN"}
        for token in document:
            if (
                token.lower_ in fixed
                or overlaps(kept, token.idx, token.idx + len(token))
                or not _is_free(token)
            ):
                continue
            part = _PARTS[token.tag_]
            lemma = self.relations.base_form(token.lower_, part, token.tag_ in _INFLECTED)
            if lemma is None or self._is_in_compound(token):
                continue
            for synonym in self._synonyms(lemma, part, demands):
                word = inflect_like(synonym, token.tag_, token.text)
                if word is None or word.lower() == token.lower_:
                    continue
                edits = [Edit(token.idx, token.idx + len(token), word)]
                article = _article_edit(token, word)
                if article and overlaps(kept, article.begin, article.end):
                    continue
                yield [article, *edits] if article else edits
                break

    def _synonyms(self, lemma: str, part: str, demands: Demands) -> list[str]:
        """Synonyms of the senses that occur often enough, the most frequent senses and words first."""
        key = lemma, part, demands
        if key not in self._found:
            self._found[key] = list(dict.fromkeys(self._search(*key)))
        return self._found[key]

    def _search(self, lemma: str, part: str, demands: Demands) -> Iterator[str]:
        counts = self.relations.counts(lemma, part)
        senses = self.relations.senses(lemma, part)
        if len(senses) > demands.senses:
            return
        for synset in senses:
            if counts.get(synset, 0) < max(demands.least, demands.share * sum(counts.values())):
                continue
            frequencies = {
                candidate: self._frequency(candidate, synset)
                for candidate in self.relations.lemmas(synset)
                if candidate != lemma and self._is_usual(candidate, synset, counts[synset], demands)
            }
            yield from sorted(frequencies, key=lambda word: -frequencies[word])

    def _frequency(self, lemma: str, synset: Synset) -> int:
        return self.relations.counts(lemma, synset.part).get(synset, 0)

    def _is_usual(self, candidate: str, synset: Synset, frequency: int, demands: Demands) -> bool:
        """Whether a synonym of a word of this frequency is a single word, not too rare, and mostly has this sense."""
        counts = self.relations.counts(candidate, synset.part)
        senses = self.relations.senses(candidate, synset.part)
        return (
            candidate.isascii()
            and candidate.isalpha()
            and candidate.islower()
            and candidate not in frequent_words()
            # "easy" as an adverb, "measuring" as a noun
            and not (
                synset.part == "adverb"
                and self.relations.knows(candidate, "adjective")
                and candidate[-2:] != "ly"
            )
            and not (synset.part == "noun" and candidate.endswith("ing"))
            and len(senses) <= demands.senses
            and counts.get(synset, 0) >= max(demands.least, demands.frequency * frequency)
            and counts[synset] >= demands.share * sum(counts.values())
        )

    def _is_in_compound(self, token: "Token") -> bool:
        """Whether WordNet knows the word with one of its neighbours as a fixed expression."""
        around = [token.i - 1, token.i + 1]
        for place in around:
            if 0 <= place < len(token.doc) and token.doc[place].is_alpha:
                other = token.doc[place]
                first, second = (token, other) if place > token.i else (other, token)
                for left in {first.lower_, first.lemma_.lower()}:
                    for right in {second.lower_, second.lemma_.lower()}:
                        if self.relations.knows_any(f"{left} {right}"):
                            return True
        return False


def _text_of(paragraph: Paragraph) -> str:
    return " ".join(entry["question"].strip() for entry in paragraph.questions)


def _pair(paragraph: Paragraph, edited: EditedText) -> Pair:
    original = {"context": paragraph.context, "qas": list(paragraph.questions)}
    return Pair(paragraph.article, original, edited_paragraph(paragraph, paragraph.questions, edited))


def _is_free(token: "Token") -> bool:
    """Whether a word may be swapped as far as its surroundings tell."""
    if token.tag_ not in _PARTS or token.is_stop or token.ent_type_ or len(token) < 3:
        return False
    if not (token.is_alpha and token.text.isascii()) or (token.text[0].isupper() and not token.is_sent_start):
        return False
    text, end = token.doc.text, token.idx + len(token)
    # parts of hyphenated words and of what is quoted
    if text[max(token.idx - 1, 0) : token.idx] in _BOUND or text[end : end + 1] in _BOUND:
        return False
    if token.dep_ in ("compound", "prep", "aux", "auxpass", "det", "mark", "cc", "prt"):
        return False
    if any(child.dep_ in ("compound", "prt") for child in token.children):
        return False
    if token.lemma_.lower() in frequent_words():
        # "ones"
        return False
    return _FREE[_PARTS[token.tag_]](token, token.nbor(1) if token.i + 1 < len(token.doc) else None)


def _is_free_verb(token: "Token", following: "Token | None") -> bool:
    children = {child.dep_ for child in token.children}
    # what a verb demands of clauses and second objects differs from verb to verb; participles before a noun are half
    # adjectives
    if children & {"ccomp", "xcomp", "dative", "acomp", "oprd"} or token.dep_ == "amod":
        return False
    prepositions = [child.lower_ for child in token.rights if child.dep_ in ("prep", "agent")]
    if "auxpass" in children:
        return all(preposition in _FREE_PREPOSITIONS for preposition in prepositions)
    return following is None or (following.pos_ != "ADP" and ("dobj" in children or not prepositions))


def _is_free_adjective(token: "Token", following: "Token | None") -> bool:
    return following is None or following.pos_ not in ("ADP", "PART")


def _is_free_adverb(token: "Token", following: "Token | None") -> bool:
    # "later art", "soon after"
    return token.dep_ != "amod" and (following is None or following.pos_ not in ("ADP", "SCONJ"))


def _is_free_noun(token: "Token", following: "Token | None") -> bool:
    if token.i > 1 and token.nbor(-1).lower_ == "a" and token.nbor(-2).lower_ == "as":
        # "as a result"
        return False
    if token.tag_ == "NN" and not any(child.dep_ in ("det", "poss", "nummod") for child in token.children):
        # a synonym of a noun that needs no article may need one
        return False
    return following is None or following.lower_ not in ("to", "that", "for")


_FREE = {
    "noun": _is_free_noun,
    "verb": _is_free_verb,
    "adjective": _is_free_adjective,
    "adverb": _is_free_adverb,
}
_BOUND = frozenset("-–—/'’\"“”‘")


def _article_edit(token: "Token", word: str) -> Edit | None:
    """The change of the article right before a word that another word takes the place of."""
    if not token.i:
        return None
    article = token.nbor(-1)
    if article.lower_ not in ("a", "an"):
        return None
    needed = article_for(word)
    if article.lower_ == needed:
        return None
    if article.text.isupper() and len(article) > 1:
        needed = needed.upper()
    elif article.text[0].isupper():
        needed = needed.capitalize()
    return Edit(article.idx, article.idx + len(article), needed)
