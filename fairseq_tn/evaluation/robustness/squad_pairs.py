"""SQuAD files for the transformations: what can be read of them, and writing an original and what became of it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_tn.data.squad import read_squad
from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.robustness.text_edits import EditedText
from fairseq_tn.files import atomic_path, read_json

# what holds text and answer_start; plausible answers are SQuAD 2.0's, of unanswerable questions
ANSWER_LISTS = ("answers", "plausible_answers")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a file: the number of its article, its context, and its questions as the file has them."""

    article: int
    context: str
    questions: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class SquadFile:
    """A file.

    Attributes:
        content: its JSON
        paragraphs: with the questions whose answers all stand where the file says
        misplaced: how many questions were left out because an answer does not
    """

    content: dict[str, Any]
    paragraphs: tuple[Paragraph, ...]
    misplaced: int


@dataclass(frozen=True)
class Pair:
    """A paragraph and what became of it, both in the format of the file; they have the same questions.

    article: number of the article.
    """

    article: int
    original: dict[str, Any]
    transformed: dict[str, Any]


def read_for_transformation(path: str | Path) -> SquadFile:
    """Read a SQuAD 1.1 or 2.0 file with its answers.

    Raises:
        UserError: the file is missing, broken or empty, or an element is missing or of another type (its place is
            named)
    """
    path = Path(path)
    # both versions pass as 2.0; this names the place of what is wrong
    read_squad(path, version_2=True)
    content = read_json(path)
    paragraphs, misplaced = [], 0
    for number, article in enumerate(content["data"]):
        for place, paragraph in enumerate(article["paragraphs"]):
            context = paragraph["context"]
            questions = []
            for entry_number, entry in enumerate(paragraph["qas"]):
                where = f"data[{number}].paragraphs[{place}].qas[{entry_number}]"
                _check_plausible(entry, path, where)
                if all(_stands(answer, context) for answer in answers_of(entry)):
                    questions.append(_marked(entry))
                else:
                    misplaced += 1
            if questions:
                paragraphs.append(Paragraph(number, context, tuple(questions)))
    return SquadFile(content, tuple(paragraphs), misplaced)


def answers_of(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All answers of a question, plausible ones included."""
    for name in ANSWER_LISTS:
        yield from entry.get(name) or ()


def answer_spans(questions: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    """The characters of all answers, begin and end."""
    return [
        (answer["answer_start"], answer["answer_start"] + len(answer["text"]))
        for entry in questions
        for answer in answers_of(entry)
    ]


def edited_paragraph(
    paragraph: Paragraph, questions: Iterable[dict[str, Any]], edited: EditedText
) -> dict[str, Any]:
    """A paragraph of the file's format with an edited context and the answers at their new places.

    Raises:
        ValueError: an edit changes an answer
    """
    moved = []
    for entry in questions:
        copy = dict(entry)
        for name in ANSWER_LISTS:
            if entry.get(name):
                copy[name] = [
                    {**answer, "answer_start": edited.moved(answer["answer_start"])} for answer in entry[name]
                ]
        if not all(_stands(answer, edited.text) for answer in answers_of(copy)):
            raise ValueError(f"an edit changes an answer of question {entry['id']!r}")
        moved.append(copy)
    return {"context": edited.text, "qas": moved}


def write_pairs(
    file: SquadFile, pairs: Iterable[Pair], transformed: str | Path, original: str | Path
) -> None:
    """Write both sides of the pairs as files of the format; both appear when both are complete."""
    sides: tuple[dict[int, list[Any]], dict[int, list[Any]]] = ({}, {})
    for pair in pairs:
        for side, paragraph in zip(sides, (pair.original, pair.transformed), strict=True):
            side.setdefault(pair.article, []).append(paragraph)
    with atomic_path(original) as first, atomic_path(transformed) as second:
        for side, path in zip(sides, (first, second), strict=True):
            articles = [
                {**file.content["data"][number], "paragraphs": paragraphs}
                for number, paragraphs in side.items()
            ]
            text = json.dumps({**file.content, "data": articles})
            path.write_text(text + "\n", encoding="utf-8")


def _stands(answer: dict[str, Any], context: str) -> bool:
    begin = answer["answer_start"]
    return begin >= 0 and context.startswith(answer["text"], begin)


def _marked(entry: dict[str, Any]) -> dict[str, Any]:
    """The question; one without answers says so, whether or not the file did."""
    return entry if entry.get("answers") else {**entry, "is_impossible": True}


def _check_plausible(entry: dict[str, Any], path: Path, where: str) -> None:
    """Check what :func:`read_squad` does not look at: the answers of unanswerable questions."""
    for name in ANSWER_LISTS:
        answers = entry.get(name)
        if answers is None:
            continue
        if not isinstance(answers, list):
            raise UserError(f"{path}: {where}.{name} is not a list; give a SQuAD file")
        for number, answer in enumerate(answers):
            at = f"{where}.{name}[{number}]"
            if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
                raise UserError(f"{path}: {at}.text is missing or not text; give a SQuAD file")
            begin = answer.get("answer_start")
            if isinstance(begin, bool) or not isinstance(begin, int):
                raise UserError(f"{path}: {at}.answer_start is missing or not a whole number")
