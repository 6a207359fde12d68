"""Makes small SQuAD files: an importable helper of the tests."""

import json
import random
from pathlib import Path

WORDS = [f"w{n}" for n in range(30)]
MARKS = ["key", "?", "."]


def make_squad(number: int, seed: int, version_2: bool = False, length: int = 30) -> dict:
    """A file of ``number`` contexts with two questions each: which words follow the one that the question names?"""
    rng = random.Random(seed)
    paragraphs = []
    for n in range(number):
        words = [rng.choice(WORDS) for _ in range(rng.randint(length // 2, length))]
        for place in range(5, len(words), 6):
            words[place] = "."
        context = "  ".join(words).replace("  .", " .")
        questions = []
        for m in range(2):
            # of an answer that is a mark nothing is left in the metric
            place = rng.choice([n for n in range(len(words) - 1) if words[n + 1] != "."])
            text = words[place + 1]
            begin = len("  ".join(words[: place + 1]).replace("  .", " .")) + 2
            impossible = version_2 and rng.random() < 0.4
            question = {"id": f"q{seed}-{n}-{m}", "question": f"key {words[place]} ?"}
            question["answers"] = [] if impossible else [{"text": text, "answer_start": begin}]
            if version_2:
                question["is_impossible"] = impossible
            questions.append(question)
        paragraphs.append({"context": context, "qas": questions})
    return {
        "version": "v2.0" if version_2 else "1.1",
        "data": [{"title": "t", "paragraphs": paragraphs[:1]}, {"title": "u", "paragraphs": paragraphs[1:]}],
    }


def write_squad(path: Path, content: dict) -> Path:
    """Write a file and return its path."""
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


def one_question(context: str, text: str, begin: int, **more) -> dict:
    """A file with one question."""
    question = {"id": "q", "question": "key w1 ?", "answers": [{"text": text, "answer_start": begin}], **more}
    return {"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]}


def write_words_dict(folder: Path) -> Path:
    """``dict.txt`` of the words of :func:`make_squad`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "dict.txt"
    path.write_text("".join(f"{word} 1\n" for word in [*WORDS, *MARKS]), encoding="utf-8")
    return path
