"""Small tagged texts and data folders of them: an importable helper of the tests."""

import random
from pathlib import Path

from fairseq_tn.data.encoders import load_encoder
from fairseq_tn.data.tagged_text import TextFormat, detect_format
from fairseq_tn.data.tagging_preparation import PreparationReport, prepare_tagging

LETTERS = "abcdefgh"
# names are two capitals, places begin with a capital of their own: easy to learn
NAMES, PLACES = "UVW", "XYZ"
Sentence = list[tuple[str, str]]


def sentences(number: int, seed: int, longest: int = 6) -> list[Sentence]:
    """Sentences of letters with entities of types PER (two tokens) and LOC (one), IOB2."""
    choose = random.Random(seed)
    found = []
    for _ in range(number):
        sentence: Sentence = []
        for _ in range(choose.randint(1, longest)):
            kind = choose.random()
            if kind < 0.25:
                sentence += [(choose.choice(NAMES), "B-PER"), (choose.choice(NAMES), "I-PER")]
            elif kind < 0.45:
                sentence.append((choose.choice(PLACES), "B-LOC"))
            else:
                sentence.append((choose.choice(LETTERS), "O"))
        found.append(sentence)
    return found


def write_conll(path: Path, text: list[Sentence]) -> Path:
    """Write two columns."""
    path.write_text("\n".join("".join(f"{token} {tag}\n" for token, tag in sentence) for sentence in text))
    return path


def write_words(path: Path, number: int, seed: int) -> Path:
    """Write segmented text: words begin with a capital, so that segmentation is easy to learn."""
    choose = random.Random(seed)

    def word() -> str:
        return choose.choice(NAMES + PLACES) + "".join(choose.choices(LETTERS, k=choose.randint(0, 3)))

    lines = ["  ".join(word() for _ in range(choose.randint(1, 5))) for _ in range(number)]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def prepare(
    output: Path, tokenizer: str = "words", form: TextFormat | None = None, **options
) -> PreparationReport:
    """Prepare files, given by split among ``options``, with a tokenizer of whole words."""
    files = {split: options.pop(split) for split in ("train", "valid", "test") if split in options}
    encoder = load_encoder(tokenizer)
    return prepare_tagging(files, output, encoder, form or detect_format(files["train"]), **options)


def ner_folder(folder: Path) -> Path:
    """A data folder with all three splits."""
    files = {
        split: write_conll(folder / f"{split}.conll", sentences(number, seed))
        for seed, (split, number) in enumerate((("train", 40), ("valid", 12), ("test", 12)))
    }
    prepare(folder / "data", **files)
    return folder / "data"
