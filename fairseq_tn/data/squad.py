"""Reading SQuAD 1.1 and 2.0 files: JSON of articles, paragraphs, questions and answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_tn.errors import UserError
from fairseq_tn.files import read_json


@dataclass(frozen=True)
class Answer:
    """An answer and where it begins in its context, in characters."""

    text: str
    begin: int


@dataclass(frozen=True)
class Question:
    """A question.

    answers: the right ones; none if the context has no answer, or in a test set.
    impossible: whether the file says that the context has no answer.
    """

    id: str
    text: str
    answers: tuple[Answer, ...]
    impossible: bool


@dataclass(frozen=True)
class Paragraph:
    """A context and its questions."""

    context: str
    questions: tuple[Question, ...]


def read_squad(path: str | Path, version_2: bool, labelled: bool = True) -> list[Paragraph]:
    """The paragraphs of a file.

    Args:
        path: a JSON file in the official format; contexts and questions are given as they are
        version_2: questions without an answer are allowed
        labelled: every question has answers, or says that it has none

    Raises:
        UserError: the file is missing, broken or empty, an element is missing, of another type or twice there (its
            place is named), or a question is unanswerable though ``version_2`` is not set
    """
    path = Path(path)
    content = read_json(path)
    paragraphs: list[Paragraph] = []
    seen: dict[str, str] = {}
    for article, where in _elements(content, "data", path, ""):
        for paragraph, place in _elements(article, "paragraphs", path, where):
            questions = []
            for entry, at in _elements(paragraph, "qas", path, place):
                question = _question(entry, path, at, version_2, labelled)
                if question.id in seen:
                    raise UserError(
                        f"{path}: {at} has the id {question.id!r} of {seen[question.id]}; ids must differ"
                    )
                seen[question.id] = at
                questions.append(question)
            paragraphs.append(Paragraph(_text(paragraph, "context", path, place), tuple(questions)))
    if not seen:
        raise UserError(f"{path} holds no question; give a SQuAD file, such as train-v2.0.json")
    return paragraphs


def _question(entry: dict[str, Any], path: Path, at: str, version_2: bool, labelled: bool) -> Question:
    impossible = entry.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise UserError(f"{path}: {at}.is_impossible is not true or false")
    if impossible and not version_2:
        raise UserError(
            f"{path}: {at} has no answer (is_impossible), so that this is SQuAD 2.0 or alike; give --version-2, or a "
            "file of SQuAD 1.1"
        )
    answers: list[Answer] = []
    # answers of unanswerable questions are "plausible answers", whatever they are called
    if not impossible and ("answers" in entry or labelled):
        for answer, place in _elements(entry, "answers", path, at):
            begin = answer.get("answer_start")
            if isinstance(begin, bool) or not isinstance(begin, int):
                raise UserError(f"{path}: {place}.answer_start is missing or not a whole number")
            answers.append(Answer(_text(answer, "text", path, place), begin))
        if labelled and not answers:
            if not version_2:
                raise UserError(
                    f"{path}: {at} has no answer; give --version-2 if such questions are unanswerable"
                )
            impossible = True
    return Question(
        _text(entry, "id", path, at), _text(entry, "question", path, at), tuple(answers), impossible
    )


def _elements(
    parent: dict[str, Any], name: str, path: Path, where: str
) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a list and their places in the file."""
    place = f"{where}.{name}" if where else name
    values = parent.get(name)
    if not isinstance(values, list):
        raise UserError(f"{path}: {place} is missing or not a list; give a SQuAD file")
    for number, value in enumerate(values):
        if not isinstance(value, dict):
            raise UserError(f"{path}: {place}[{number}] is not an object; give a SQuAD file")
        yield value, f"{place}[{number}]"


def _text(parent: dict[str, Any], name: str, path: Path, where: str) -> str:
    value = parent.get(name)
    if not isinstance(value, str):
        raise UserError(f"{path}: {where}.{name} is missing or not text; give a SQuAD file")
    if name == "context" and not value.strip():
        raise UserError(f"{path}: {where}.{name} is empty; every question needs a context")
    return value
