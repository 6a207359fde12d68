"""Add a sentence that looks like an answer (AddSentDiverse, after its description).

Jia and Liang (2017) add a sentence that answers another question: the question with its names, numbers, nouns and
adjectives changed, turned into a statement with a fake answer of the same kind. Wang and Bansal (2018) put it at a
random place and vary the fake answers (AddSentDiverse); here the form of the sentence varies too.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairseq_tn.evaluation.robustness.fake_answers import FakeAnswers, KnownAnswer, known_answer
from fairseq_tn.evaluation.robustness.language import is_english, parse
from fairseq_tn.evaluation.robustness.question_changes import QuestionChanger
from fairseq_tn.evaluation.robustness.squad_pairs import (
    Pair,
    Paragraph,
    SquadFile,
    answer_spans,
    answers_of,
    edited_paragraph,
)
from fairseq_tn.evaluation.robustness.statements import Inflected, asked_phrase, render, statements
from fairseq_tn.evaluation.robustness.text_edits import Edit, EditedText

if TYPE_CHECKING:
    from spacy.tokens import Doc

NO_PHRASE = "without a clear question word"
NO_STATEMENT = "of another grammar"
NO_CHANGE = "with nothing to change"
NO_ANSWER = "without a fake answer"
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]*\s+$")


@dataclass
class DistractorCounts:
    """What was done.

    Attributes:
        questions: read
        foreign: of contexts that are not English, left out
        misplaced: with an answer that is not where the file says, left out
        not_turned: left out, by reason
        turned: written
        contexts: of the written questions
        unanswerable: of them
        patterns: of them, by the form of the sentence
    """

    questions: int = 0
    foreign: int = 0
    misplaced: int = 0
    not_turned: Counter[str] = field(default_factory=Counter)
    turned: int = 0
    contexts: int = 0
    unanswerable: int = 0
    patterns: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class DistractorAdder:
    """How sentences are made.

    Attributes:
        changer: of questions
        seed: of every choice
    """

    changer: QuestionChanger
    seed: int = 1

    def transform(
        self, file: SquadFile, advance: Callable[[int], Any] = lambda more: None
    ) -> tuple[list[Pair], DistractorCounts]:
        """Add a sentence to the context of every question.

        Args:
            file: the original
            advance: is told how many more characters of contexts and questions are done

        Returns:
            Pairs of one question each, for all questions that could be turned into a statement, and counts.
        """
        entries = [(paragraph, entry) for paragraph in file.paragraphs for entry in paragraph.questions]
        counts = DistractorCounts(questions=len(entries) + file.misplaced, misplaced=file.misplaced)
        contexts = list(parse([paragraph.context for paragraph in file.paragraphs], advance))
        questions = list(parse([entry["question"] for _, entry in entries], advance))
        numbers = {id(paragraph): number for number, paragraph in enumerate(file.paragraphs)}
        right = [
            _known_answers(contexts[numbers[id(paragraph)]], entry, question, numbers[id(paragraph)])
            for (paragraph, entry), question in zip(entries, questions, strict=True)
        ]
        fakes = FakeAnswers(answer for answers in right for answer in answers)
        english = [is_english(context) for context in contexts]
        pairs = []
        changed: set[int] = set()
        for (paragraph, entry), question, answers in zip(entries, questions, right, strict=True):
            number = numbers[id(paragraph)]
            if not english[number]:
                counts.foreign += 1
                continue
            rng = random.Random(f"{self.seed} {entry['id']}")
            found = self.sentence(question, answers, paragraph.context, fakes, rng)
            if isinstance(found, str):
                counts.not_turned[found] += 1
                continue
            pairs.append(_pair(paragraph, entry, contexts[number], found.text, rng))
            counts.turned += 1
            counts.unanswerable += not entry.get("answers")
            counts.patterns[found.pattern] += 1
            changed.add(number)
        counts.contexts = len(changed)
        return pairs, counts

    def sentence(
        self,
        question: "Doc",
        answers: Sequence[KnownAnswer],
        context: str,
        fakes: FakeAnswers,
        rng: random.Random,
    ) -> "Distractor | str":
        """The sentence for a question, or why there is none.

        Args:
            question: the parsed question
            answers: its right or plausible answers
            context: in which the fake answer must not stand
            fakes: makes the fake answer
            rng: of every choice
        """
        phrase = asked_phrase(question)
        if phrase is None:
            return NO_PHRASE
        possible = statements(question, phrase)
        if not possible:
            return NO_STATEMENT
        changes = self.changer.change(question, phrase, rng)
        if not changes:
            return NO_CHANGE
        fake = fakes.make(question, phrase, answers, context, rng)
        if fake is None:
            return NO_ANSWER
        statement = rng.choice(possible)
        said = {piece.token if isinstance(piece, Inflected) else piece for piece in statement.pieces}
        if not said & set(changes):
            return NO_CHANGE
        text = render(question, statement, fake.text, changes, fake.preposition)
        return Distractor(text, statement.pattern, fake.text)


@dataclass(frozen=True)
class Distractor:
    """A sentence, which rule made it, and the fake answer in it."""

    text: str
    pattern: str
    answer: str


def _known_answers(context: "Doc", entry: dict[str, Any], question: "Doc", number: int) -> list[KnownAnswer]:
    phrase = asked_phrase(question)
    noun = question[phrase.noun].lemma_.lower() if phrase is not None and phrase.noun is not None else ""
    return [
        known_answer(context, answer["answer_start"], answer["text"], noun, number)
        for answer in answers_of(entry)
    ]


def _pair(
    paragraph: Paragraph, entry: dict[str, Any], document: "Doc", sentence: str, rng: random.Random
) -> Pair:
    place = rng.choice(insertion_places(document, answer_spans([entry])))
    context = paragraph.context
    if place < len(context):
        edit = Edit(place, place, f"{sentence} ")
    else:
        edit = Edit(place, place, sentence if context[-1:].isspace() else f" {sentence}")
    original = {"context": context, "qas": [entry]}
    return Pair(
        paragraph.article, original, edited_paragraph(paragraph, [entry], EditedText(context, [edit]))
    )


def insertion_places(document: "Doc", answers: Sequence[tuple[int, int]]) -> list[int]:
    """Where a sentence can stand: before, between and after the sentences of a context, and never within an answer."""
    text = document.text
    begins = {
        sentence.start_char
        for sentence in document.sents
        if _SENTENCE_END.search(text[: sentence.start_char])
    }
    return [
        place
        for place in sorted({0, len(text), *begins})
        if not any(begin < place < end for begin, end in answers)
    ]
