"""Two small converted models with text of their vocabulary and a synonym table: a helper of the analyses' tests."""

import random
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq.data import indexed_dataset

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

from small_bert import write_bert

from fairseq_tn.analysis.models import open_model
from fairseq_tn.convert.from_hf import convert_from_hf, task_dictionary
from fairseq_tn.synonyms.table import SynonymTable

LENGTH = 20
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]


def binarise(folder, split, dictionary, documents):
    builder = indexed_dataset.make_builder(f"{folder}/{split}.bin", "mmap", vocab_size=len(dictionary))
    for document in documents:
        for sentence in [*document, []]:
            tokens = [*(dictionary.index(token) for token in sentence), dictionary.eos()]
            builder.add_item(torch.tensor(tokens))
    builder.finalize(f"{folder}/{split}.idx")


def random_documents(number, seed):
    rng = random.Random(seed)
    return [
        [[rng.choice(LETTERS) for _ in range(rng.randint(2, 9))] for _ in range(rng.randint(2, 6))]
        for _ in range(number)
    ]


def make_world(root) -> SimpleNamespace:
    """Checkpoints ``a`` and ``b``, data, sentences, and a table of every second pair of letters that ``a`` confuses."""
    checkpoints = {}
    for seed, name in enumerate("ab"):
        write_bert(root / "hf" / name, seed=seed, shuffle=3)
        convert_from_hf(root / "hf" / name, root / name)
        checkpoints[name] = root / name / "model.pt"
    data = root / "data"
    data.mkdir()
    (data / "dict.txt").write_bytes((root / "a" / "dict.txt").read_bytes())
    dictionary = task_dictionary(data / "dict.txt")
    binarise(data, "valid", dictionary, random_documents(12, 5))
    binarise(data, "train", dictionary, random_documents(3, 6))
    text = root / "text.txt"
    sentences = [" ".join(sentence) for document in random_documents(12, 7) for sentence in document]
    text.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    table = root / "synonyms.txt"
    pairs = synonym_pairs(open_model("a", checkpoints["a"], device="cpu"), sentences)
    symbols = dictionary.symbols
    by_gold: dict[int, list[str]] = {}
    for gold, predicted in sorted(pairs):
        by_gold.setdefault(gold, []).append(symbols[predicted])
    SynonymTable(symbols, {symbols[gold]: others for gold, others in by_gold.items()}).save(table)
    return SimpleNamespace(
        root=root,
        checkpoints=checkpoints,
        data=data,
        dictionary=dictionary,
        text=text,
        sentences=sentences,
        table=table,
        pairs=pairs,
    )


def synonym_pairs(model, sentences) -> set[tuple[int, int]]:
    """Ids (gold, predicted) of wrong predictions, one token masked at a time; every second letter has them all."""
    model.model.double()
    mask = model.dictionary.index("<mask>")
    pairs = set()
    for sequence in model.encode(sentences[:25]):
        for place in range(1, len(sequence) - 1):
            tokens = torch.from_numpy(sequence).unsqueeze(0).clone()
            tokens[0, place] = mask
            with torch.no_grad():
                gold, predicted = int(sequence[place]), int(model.model(tokens)[0][0, place].argmax())
            if gold != predicted and gold % 2:
                pairs.add((gold, predicted))
    return pairs
