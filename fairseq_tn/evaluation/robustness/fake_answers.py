"""Wrong answers of the right kind: other numbers and dates, made-up names, answers to other questions of the file."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairseq_tn.evaluation.robustness import names
from fairseq_tn.evaluation.robustness.names import words
from fairseq_tn.evaluation.robustness.numbers_and_dates import other_number
from fairseq_tn.evaluation.robustness.statements import AskedPhrase, wants_plural

if TYPE_CHECKING:
    from spacy.tokens import Doc, Span

_LONGEST = 6
_NUMBER_KINDS = ("how many", "how much")
_COUNTRY_NOUNS = frozenset(words("country nation state kingdom"))
_PLACE_NOUNS = frozenset(words("city town place region location province village area")) | _COUNTRY_NOUNS
_NUMBER_NOUNS = frozenset(
    words("percentage percent number amount age population temperature distance length share")
)
_ADJECTIVE_NOUNS = frozenset(words("nationality language religion denomination faith ethnicity origin"))
_PERSON_NOUNS = frozenset(
    words("person man woman king queen president leader author scientist actor singer artist")
)
_NUMERIC = frozenset(("CARDINAL", "PERCENT", "QUANTITY", "MONEY", "ORDINAL"))
_PLACES = frozenset(("GPE", "LOC", "FAC"))
_TRIES = 40
# words that right and fake answers may share
_EMPTY_WORDS = frozenset(words("a an and century in million billion of percent the year years"))


@dataclass(frozen=True)
class KnownAnswer:
    """A right answer of the file.

    Attributes:
        text: as the context has it
        form: of the words: ``singular``, ``plural``, ``name`` or ``gerund``; ``other`` is no use elsewhere
        label: spaCy's kind of name, "" for none
        noun: what its question asks for, as in "which *language*"; "" for none
        context: number of its context
    """

    text: str
    form: str
    label: str
    noun: str
    context: int


@dataclass(frozen=True)
class FakeAnswer:
    """A fake answer, and the preposition that it wants in a statement without one.

    kind: ``number``, ``date``, ``person``, ``place``, ``organisation``, ``people`` or ``other``.
    """

    text: str
    kind: str
    preposition: str = ""


def known_answer(document: "Doc", begin: int, text: str, noun: str, context: int) -> KnownAnswer:
    """What an answer of a parsed context is."""
    span = document.char_span(begin, begin + len(text), alignment_mode="expand")
    if span is None or not len(span):
        return KnownAnswer(text, "other", "", noun, context)
    label = next((e.label_ for e in span.ents if len(e) >= len(span) - 1), "")
    form, first = _form(span), span[0]
    following = document[span.end] if span.end < len(document) else None
    modifies = following is not None and (following.pos_ in ("NOUN", "PROPN") or following.text == "-")
    if label in _NUMERIC or label in ("DATE", "TIME") or modifies:
        # "electric" of "electric engines" is no phrase by itself
        form = "other"
    if first.pos_ == "DET" or (
        first.is_sent_start and first.pos_ not in ("PROPN", "DET") and first.text.istitle()
    ):
        text = text[:1].lower() + text[1:]
    if form == "singular" and span.root.left_edge.i < span.start:
        before = first.nbor(-1)
        if before.lower_ not in ("a", "an", "the"):
            # "harvest" of "a poor harvest" is no phrase by itself
            form = "other"
        text = f"{before.lower_} {text}"
    return KnownAnswer(text, form, label, noun, context)


def _form(span: "Span") -> str:
    tokens = [token for token in span if not token.is_space]
    if not tokens or len(tokens) > _LONGEST:
        return "other"
    if any(token.pos_ in ("PUNCT", "SYM", "CCONJ", "SCONJ") and token.text != "-" for token in tokens):
        return "other"
    if any(token.tag_ in ("VBD", "VBZ", "VBP", "MD", "WDT", "WP", "WRB", "PRP", "PRP$") for token in tokens):
        return "other"
    first, last = tokens[0], tokens[-1]
    if first.pos_ == "DET" and first.lower_ not in ("a", "an", "the"):
        return "other"
    if first.tag_ == "VBG" and len(tokens) > 1 and first.dep_ != "amod":
        return "gerund"
    if first.pos_ not in ("DET", "ADJ", "NOUN", "PROPN", "NUM") or last.pos_ not in ("NOUN", "PROPN"):
        return "other"
    if any(token.pos_ == "ADP" and token.lower_ != "of" for token in tokens):
        return "other"
    head = span.root
    if head.tag_ in ("NNP", "NNPS"):
        return "name"
    return {"NN": "singular", "NNS": "plural"}.get(head.tag_, "other")


class FakeAnswers:
    """Makes fake answers; the answers of the file are among them."""

    def __init__(self, answers: Iterable[KnownAnswer]):
        by_form: dict[str, dict[KnownAnswer, None]] = {}
        for answer in answers:
            if (
                answer.form != "other"
                and 1 < len(answer.text) <= 60
                and not any(c.isdigit() for c in answer.text)
            ):
                by_form.setdefault(answer.form, {})[answer] = None
        self._by_form = {form: list(found) for form, found in by_form.items()}

    def make(
        self,
        question: "Doc",
        phrase: AskedPhrase,
        right: Sequence[KnownAnswer],
        context: str,
        rng: random.Random,
    ) -> FakeAnswer | None:
        """A fake answer of the kind of the right ones that shares no word with them and does not stand in the context.

        Args:
            question: the parsed question
            phrase: what it asks for
            right: its right answers, or plausible ones if it is unanswerable; none if there is no such thing
            context: the context
            rng: decides between possible answers

        Returns:
            None if there is none of this kind
        """
        noun = question[phrase.noun].lemma_.lower() if phrase.noun is not None else ""
        taken = {word for answer in right for word in _words(answer.text)}
        lowered = context.lower()
        for fake in self._candidates(question, phrase, noun, right, rng):
            own = set(_words(fake.text))
            if not own or own & taken:
                continue
            asked = {word for token in question for word in _words(token.text)}
            numeric = fake.kind in ("number", "date")
            if (not numeric and own <= asked) or re.search(
                rf"(?<!\w){re.escape(fake.text.lower())}(?!\w)", lowered
            ):
                continue
            return fake
        return None

    def _candidates(
        self,
        question: "Doc",
        phrase: AskedPhrase,
        noun: str,
        right: Sequence[KnownAnswer],
        rng: random.Random,
    ) -> Iterator[FakeAnswer]:
        kind = _kind(question, phrase, noun, right)
        plural = wants_plural(question, phrase)
        first = right[0] if right else None
        for _ in range(_TRIES):
            if kind in ("number", "date"):
                text = _numeric(kind, phrase, noun, first, rng)
                if text is None:
                    return
                if kind == "date" and re.fullmatch(r"\d+s", text):
                    text = f"the {text}"
                yield FakeAnswer(text, kind, _date_preposition(text) if kind == "date" else "")
            elif kind == "person":
                text = names.person(rng, len(first.text.split()) if first else 2)
                yield FakeAnswer(f"{text} and {names.person(rng)}" if plural else text, kind)
            elif kind == "place":
                known = names.COUNTRIES if noun in _COUNTRY_NOUNS else names.CITIES
                one, other = rng.sample(known, 2)
                yield FakeAnswer(f"{one} and {other}" if plural else one, kind, "in")
            elif kind == "organisation":
                yield FakeAnswer(rng.choice(names.ORGANISATIONS), kind, "at")
            elif kind == "people":
                many = first is not None and first.text.lower().endswith("s")
                text = names.people(first.text if first else "", many or not noun, rng)
                if noun and not many and noun not in _ADJECTIVE_NOUNS:
                    text = f"the {text} {noun}"
                yield FakeAnswer(text, kind, "because of")
            else:
                answer = self._of_file(phrase, noun, plural, first, rng)
                if answer is None:
                    return
                yield FakeAnswer(answer.text, kind, _preposition(phrase, answer))

    def _of_file(
        self,
        phrase: AskedPhrase,
        noun: str,
        plural: bool | None,
        first: KnownAnswer | None,
        rng: random.Random,
    ) -> KnownAnswer | None:
        form = first.form if first and first.form != "other" else "singular"
        if form == "name" and (plural or (first is not None and not first.label)):
            form = "singular"
        if plural is not None and (form in ("singular", "plural") or (plural and form == "gerund")):
            form = "plural" if plural else "singular"
        pool = self._by_form.get(form, [])
        if form == "name":
            pool = [answer for answer in pool if first is None or answer.label == first.label]
        if first is not None:
            pool = [answer for answer in pool if answer.context != first.context]
        same = [answer for answer in pool if noun and answer.noun == noun]
        chosen = same if len(same) > 1 else pool
        return rng.choice(chosen) if chosen else None


def _kind(question: "Doc", phrase: AskedPhrase, noun: str, right: Sequence[KnownAnswer]) -> str:
    labels = {answer.label for answer in right}
    texts = [answer.text for answer in right]
    if phrase.kind in _NUMBER_KINDS:
        return "number"
    if phrase.kind == "when" or noun in ("year", "date", "decade", "century", "month", "day"):
        return "date"
    if noun in _PLACE_NOUNS and (
        noun in ("country", "nation", "city", "town") or not right or labels & _PLACES
    ):
        return "place"
    if labels & {"DATE", "TIME"} and any(re.search(r"\d", text) for text in texts):
        return "date"
    if noun in _NUMBER_NOUNS and (not texts or any(re.search(r"\d", text) for text in texts)):
        return "number"
    if texts and all(re.fullmatch(r"[\d.,]+%?", text) for text in texts):
        return "number"
    if phrase.kind.startswith("how ") or labels & _NUMERIC:
        return "number"
    if phrase.kind in ("who", "whom"):
        if not right or "PERSON" in labels:
            return "person"
        if "ORG" in labels or "NORP" in labels:
            return "organisation" if "ORG" in labels else "people"
        return "person"
    if phrase.kind == "where":
        return (
            "place"
            if not right or labels & _PLACES or all(answer.form in ("other", "name") for answer in right)
            else "other"
        )
    if "PERSON" in labels and (noun in _PERSON_NOUNS or not noun):
        return "person"
    if "GPE" in labels:
        return "place"
    if "ORG" in labels and noun in (
        "company",
        "organization",
        "organisation",
        "institution",
        "group",
        "agency",
    ):
        return "organisation"
    if "NORP" in labels and all(len(text.split()) == 1 for text in texts):
        return "people"
    return "other"


def _numeric(
    kind: str, phrase: AskedPhrase, noun: str, first: KnownAnswer | None, rng: random.Random
) -> str | None:
    """Another number or date like the right one; without one, a year or a number."""
    if first is not None and len(first.text) <= 40:
        text = re.sub(
            r"^(?:in|on|by|about|around|since|from|until|at|over)\s+", "", first.text.strip(), flags=re.I
        )
        if phrase.kind == "how many":
            # what is counted stays in the question: "five *children*"
            number = re.match(
                r"(?:[\d.,]+|[a-z-]+)(?: (?:thousand|million|billion|trillion))?", text, flags=re.I
            )
            text = number[0].rstrip(".,") if number else text
        other = other_number(text, rng)
        if other is not None:
            return other
    if kind == "date":
        if noun == "century":
            return f"the {rng.choice(('12th', '13th', '14th', '15th', '16th', '17th'))} century"
        if noun == "decade":
            return f"the {rng.choice(range(1810, 1960, 10))}s"
        if noun in ("month", "day"):
            return rng.choice(names.MONTHS if noun == "month" else names.DAYS)
        return str(rng.randint(1805, 1985))
    if phrase.kind == "how many":
        return str(rng.choice((12, 17, 23, 38, 46, 59, 74, 85)))
    if noun in ("percentage", "percent", "share"):
        return f"{rng.choice((7, 12, 19, 26, 41, 58, 83))}%"
    if phrase.kind == "how long":
        return f"{rng.choice(names.NUMBER_WORDS)} years"
    return None


def _date_preposition(text: str) -> str:
    if re.search(r"\b(?:day|morning|evening|night)\b|\d(?:st|nd|rd|th)?,? |[a-z]day\b", text) and re.search(
        "|".join((*names.MONTHS, *names.DAYS)), text
    ):
        return "on"
    if re.search("|".join(names.MONTHS), text) and re.search(r"\b\d{1,2}(?:st|nd|rd|th)?\b(?!\d)", text):
        return "on"
    return "in"


def _preposition(phrase: AskedPhrase, answer: KnownAnswer) -> str:
    if phrase.kind == "why":
        return "because of"
    if phrase.kind == "how":
        return "by" if answer.form == "gerund" else "through"
    return {"where": "in", "when": "during"}.get(phrase.kind, "")


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[^\W_]+", text.lower()) if word not in _EMPTY_WORDS]
