"""Write a WordNet of a handful of synsets in the format of the real database files."""

from pathlib import Path

LICENCE = "  1 WordNet 3.0 Copyright of nobody.  \n"
LETTERS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}

# per part of speech: type, lemmas; a satellite's head is the first adjective
SYNSETS = {
    "noun": [
        ("n", ["dog", "hound"]),
        ("n", ["Paris", "City_of_Light", "capital"]),
        ("n", ["man", "adult_male", "fellow"]),
        ("n", ["stay", "check"]),
        ("n", ["city", "Paris"]),
    ],
    "verb": [
        ("v", ["stay", "remain", "rest"]),
        ("v", ["go", "travel", "move"]),
        ("v", ["chase", "dog"]),
    ],
    "adj": [
        ("a", ["big", "large"]),
        ("s", ["primary", "main(a)", "principal"]),
        ("s", ["galore(ip)", "plenty(ip)"]),
    ],
    "adv": [("r", ["quickly", "rapidly"])],
}
EXCEPTIONS = {"noun": ["men man"], "verb": ["went go", "gone go"], "adj": [], "adv": []}


def write_wordnet(folder: Path) -> Path:
    """Fill ``folder`` with data, index and exception files, and what NLTK wants besides."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, synsets in SYNSETS.items():
        data, index = LICENCE, {}
        head = len(LICENCE)
        for kind, lemmas in synsets:
            offset = len(data)
            words = " ".join(f"{lemma} 0" for lemma in lemmas)
            pointers = f"001 & {head:08d} a 0000" if kind == "s" else "000"
            frames = " 01 + 02 00" if kind == "v" else ""
            data += f'{offset:08d} 00 {kind} {len(lemmas):02x} {words} {pointers}{frames} | a gloss; "with 5 words"  \n'
            for lemma in lemmas:
                index.setdefault(lemma.partition("(")[0].lower(), []).append(f"{offset:08d}")
        (folder / f"data.{part}").write_text(data)
        lines = (
            f"{lemma} {LETTERS[part]} {len(offsets)} 1 @ {len(offsets)} 0 {' '.join(offsets)}  \n"
            for lemma, offsets in sorted(index.items())
        )
        (folder / f"index.{part}").write_text(LICENCE + "".join(lines))
        (folder / f"{part}.exc").write_text("".join(f"{line}\n" for line in EXCEPTIONS[part]))
    (folder / "lexnames").write_text("00\tadj.all\t3\n")
    (folder / "index.sense").write_text("")
    return folder
