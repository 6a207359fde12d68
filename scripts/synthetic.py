"""Synthetic data for scripts that measure: a binarised corpus, a synonym table, a starting checkpoint, examples of
GLUE and of SQuAD.

Text of real words would need a download; what is measured depends on the number of tokens, on how often each
occurs and on the size of the vocabulary only.
"""

import json
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset

from fairseq_tn.convert import bert
from fairseq_tn.convert.from_hf import fairseq_checkpoint, new_model, task_dictionary
from fairseq_tn.data.encode import Encoder
from fairseq_tn.data.encoders import WORDS, EncoderOptions, load_encoder
from fairseq_tn.data.glue import TASKS, GlueExample, GlueSplit
from fairseq_tn.data.sentence_prediction import write_folder
from fairseq_tn.data.squad_windows import WindowSettings, prepare_squad
from fairseq_tn.models.bert import TnBertConfig, resolve_sizes
from fairseq_tn.synonyms import SynonymTable

# `<s> <pad> </s> <unk>` and `<mask>`, which fairseq and the tasks add to dict.txt
NUM_SPECIAL = 5


def zipf(vocabulary: int) -> np.ndarray:
    """Probabilities of the words of a vocabulary by rank (Zipf-Mandelbrot)."""
    weights = 1 / (np.arange(vocabulary) + 2.7)
    return weights / weights.sum()


def write_corpus(folder: Path, vocabulary: int, tokens: dict[str, int], seed: int = 1) -> Dictionary:
    """Make a data folder as fairseq-preprocess does, with documents of 2 to 20 sentences of 5 to 40 words.

    Every second word is drawn from the vocabulary, the one after it is its neighbour in rank: a model can learn
    both the frequencies and the pairs.

    Args:
        folder: made if missing.
        vocabulary: symbols of the dictionary, ``<mask>`` and fairseq's four included.
        tokens: the least number of tokens of each split.
        seed: of all that is random.

    Returns:
        The dictionary that the tasks make of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = vocabulary - NUM_SPECIAL
    _write_dict(folder, vocabulary)
    dictionary = task_dictionary(folder / "dict.txt")
    first = dictionary.index("w0")
    rng = np.random.default_rng(seed)
    for split, number in tokens.items():
        builder = indexed_dataset.make_builder(str(folder / f"{split}.bin"), "mmap", vocab_size=vocabulary)
        lengths = []
        while sum(lengths) < number:
            lengths += rng.integers(5, 41, size=1000).tolist()
            lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), number)) + 1]
        ranks = rng.choice(words, size=sum(lengths) + 1, p=zipf(words))
        ranks[1::2] = (ranks[:-1:2] + 1) % words
        begin, sentences_left = 0, int(rng.integers(2, 21))
        for length in lengths:
            if sentences_left == 0:
                builder.add_item(torch.tensor([dictionary.eos()]))
                sentences_left = int(rng.integers(2, 21))
            ids = ranks[begin : begin + length] + first
            builder.add_item(torch.from_numpy(np.append(ids, dictionary.eos())))
            begin += length
            sentences_left -= 1
        builder.finalize(str(folder / f"{split}.idx"))
    return dictionary


def _write_dict(folder: Path, vocabulary: int) -> Path:
    path = folder / "dict.txt"
    path.write_text("".join(f"w{rank} 1\n" for rank in range(vocabulary - NUM_SPECIAL)), encoding="utf-8")
    return path


class _Texts:
    """Texts of random words, and the encoder that reads them."""

    def __init__(self, folder: Path, vocabulary: int, seed: int):
        folder.mkdir(parents=True, exist_ok=True)
        options = EncoderOptions(dictionary=str(_write_dict(folder, vocabulary)))
        self.encoder: Encoder = load_encoder(WORDS, options)
        self.rng = np.random.default_rng(seed)
        self._probabilities = zipf(vocabulary - NUM_SPECIAL)

    def words(self, median: float, spread: float) -> list[str]:
        """A log-normal number of words; ``spread`` is the deviation of the number's logarithm."""
        number = max(2, round(median * np.exp(spread * self.rng.standard_normal())))
        ranks = self.rng.choice(len(self._probabilities), size=number, p=self._probabilities)
        return [f"w{rank}" for rank in ranks]


def write_glue(folder: Path, vocabulary: int, rows: int, max_length: int, seed: int = 1) -> Path:
    """Make a data folder of ``rows`` labelled pairs of sentences, of 20 and 10 words at the median; returns it."""
    texts, task = _Texts(folder, vocabulary, seed), TASKS["RTE"]
    examples = []
    for row in range(rows):
        pair = tuple(" ".join(texts.words(median, 0.5)) for median in (20, 10))
        examples.append(GlueExample(str(row), pair, task.labels[texts.rng.integers(2)]))
    splits = {"train": GlueSplit("synthetic", examples)}
    return write_folder(task, splits, texts.encoder, folder / "data", max_length).folder


def write_squad(
    folder: Path, vocabulary: int, questions: int, settings: WindowSettings, seed: int = 1
) -> Path:
    """Make a data folder of so many ``questions``, five on a context; returns it.

    Contexts have 130 words at the median, questions 12: about what WordPiece makes of SQuAD's.
    """
    texts = _Texts(folder, vocabulary, seed)
    paragraphs = []
    for number in range(0, questions, 5):
        context = texts.words(130, 0.4)
        asked = []
        for question in range(number, number + 5):
            first = int(texts.rng.integers(len(context)))
            answer = {
                "text": " ".join(context[first : first + 3]),
                "answer_start": len(" ".join([*context[:first], ""])),
            }
            text = " ".join(texts.words(12, 0.3))
            asked.append({"id": str(question), "question": text, "answers": [answer]})
        paragraphs.append({"context": " ".join(context), "qas": asked})
    file = folder / "train.json"
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    prepare_squad({"train": file}, texts.encoder, folder / "data", settings, version_2=False)
    return folder / "data"


def write_synonyms(path: Path, dictionary: Dictionary, pairs: int, seed: int = 1) -> SynonymTable:
    """Write a symmetric synonym table of about so many (gold, predicted) pairs of random words."""
    words = [symbol for symbol in dictionary.symbols[dictionary.nspecial :] if symbol.startswith("w")]
    rng = np.random.default_rng(seed)
    synonyms: dict[str, dict[str, None]] = {}
    for one, other in rng.integers(len(words), size=(pairs // 2, 2)):
        if one != other:
            synonyms.setdefault(words[one], {})[words[other]] = None
            synonyms.setdefault(words[other], {})[words[one]] = None
    table = SynonymTable(dictionary.symbols, {token: list(others) for token, others in synonyms.items()})
    table.save(path)
    return table


def write_checkpoint(path: Path, cfg: TnBertConfig, dictionary: Dictionary, seed: int = 1) -> None:
    """Write a ``tn_bert`` checkpoint of random weights: a teacher, and a common start of several runs."""
    resolve_sizes(cfg)
    model = new_model(bert, cfg, dictionary, seed)
    torch.save(fairseq_checkpoint(bert, model.state_dict(), cfg, path.parent), path)
