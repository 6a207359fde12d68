"""A small SQuAD file in English, and a check of what the transformations wrote."""

import json
from pathlib import Path
from typing import Any

CONTEXTS = {
    "The city of Warsaw bought a large car in 1950. The automobile was huge, and the doctors of the town usually drove "
    "it. In 1961, Ann Miller sold the car to an important lawyer from Paris.": [
        ("When did the city of Warsaw buy a large car?", "1950"),
        ("Who sold the car?", "Ann Miller"),
        ("To whom did Ann Miller sell the car?", "an important lawyer from Paris"),
        ("What did the doctors of London drive?", None),
    ],
    "Students usually begin their main studies in Berlin. The university has 12 departments. Its famous library "
    "provides 300,000 books to the residents, and a physician often helps them.": [
        ("Where do students begin their main studies?", "Berlin"),
        ("How many departments does the university have?", "12"),
        ("What does the famous library provide?", "300,000 books"),
        ("Name the physician.", "a physician"),
    ],
    "The huge empire of the Normans was founded by William in 1066. Soldiers quickly entered the country, and the "
    "king had an obvious aim.": [
        ("Who founded the empire of the Normans?", "William"),
        ("In what year was the empire founded?", "1066"),
    ],
    "Die Stadt Warschau liegt an der Weichsel und hat viele Brücken. Sie ist seit 1596 die Hauptstadt von Polen.": [
        ("Seit wann ist Warschau die Hauptstadt?", "1596"),
    ],
}


def make_file() -> dict[str, Any]:
    """Two articles; questions without an answer have a plausible one."""
    paragraphs = []
    for number, (context, asked) in enumerate(CONTEXTS.items()):
        qas: list[dict[str, Any]] = []
        for place, (question, answer) in enumerate(asked):
            entry = {"id": f"{number}-{place}", "question": question, "is_impossible": answer is None}
            text = answer or "automobile"
            answers = [{"text": text, "answer_start": context.index(text)}]
            entry["answers"] = answers if answer else []
            if not answer:
                entry["plausible_answers"] = answers
            qas.append(entry)
        paragraphs.append({"context": context, "qas": qas})
    articles = [
        {"title": "first", "paragraphs": paragraphs[:2]},
        {"title": "second", "paragraphs": paragraphs[2:]},
    ]
    return {"version": "v2.0", "data": articles}


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def questions_of(path: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Context and entry of each question of a file, by its id; every answer must stand at its place."""
    found = {}
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            assert paragraph["qas"]
            for entry in paragraph["qas"]:
                for answer in [*entry["answers"], *entry.get("plausible_answers", [])]:
                    begin, text = answer["answer_start"], answer["text"]
                    assert text
                    assert paragraph["context"][begin : begin + len(text)] == text
                assert entry["id"] not in found
                found[entry["id"]] = paragraph["context"], entry
    return found


def same_but_offsets(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two entries differ at most in where answers stand."""

    def without(entry: dict[str, Any]) -> dict[str, Any]:
        stripped = {
            name: [answer["text"] for answer in entry[name]]
            for name in ("answers", "plausible_answers")
            if name in entry
        }
        return {**entry, **stripped}

    return without(first) == without(second)
