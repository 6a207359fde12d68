"""Word boundaries beside binarised data: whole-word masking obeys them, the model never sees them."""

import itertools
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from corpus import make_corpus, write_dict, write_split
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fairseq_tn.cli import main
from fairseq_tn.data.corpus import Corpus
from fairseq_tn.data.masking import Masker
from fairseq_tn.data.pretraining import PretrainingDataset
from fairseq_tn.data.word_boundaries import has_boundaries, write_boundaries
from fairseq_tn.errors import UserError

# a document is lines of words of tokens; no two tokens of a line are the same, so that words can be recognised
Words = list[list[list[int]]]
lengths = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=8), min_size=1, max_size=5)
documents = st.lists(lengths, min_size=2, max_size=5)
SYMBOLS = [f"字{n}" for n in range(400)]


def prepared(folder: Path, text: list[Words], split: str = "train") -> Path:
    """Write a split whose tokens are numbered from its first to its last, and its side files."""
    dictionary = write_dict(folder, SYMBOLS)
    names = iter(SYMBOLS)
    named = [[list(itertools.islice(names, sum(line))) for line in document] for document in text]
    write_split(folder, split, named, dictionary)
    numbers = ["\n".join(" ".join(map(str, line)) for line in document) for document in text]
    words = folder / f"{split}.txt.words"
    words.write_text("\n\n".join(numbers) + "\n")
    write_boundaries(words, folder / split)
    return folder


def loaded(folder: Path) -> Dictionary:
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    dictionary.add_symbol("<mask>")
    return dictionary


def dataset(folder: Path, told: bool = True, combine: bool = False, **options) -> PretrainingDataset:
    dictionary = loaded(folder)
    masker = Masker.for_vocabulary(
        dictionary.symbols, dictionary.nspecial, dictionary.index("<mask>"), whole_words=True, told=told
    )
    corpus = Corpus(str(folder / "train"), dictionary, combine, word_boundaries=told)
    return PretrainingDataset(corpus, masker, **{"tokens_per_sample": 12, **options})


def word_numbers(text: list[Words]) -> np.ndarray:
    """The number of the word that each token of the text is of."""
    flat = [length for document in text for line in document for length in line]
    return np.repeat(np.arange(len(flat)), flat)


@settings(max_examples=40, deadline=None)
@given(documents, st.booleans(), st.integers(5, 20), st.integers(0, 100))
def test_a_word_is_masked_as_a_whole_or_not_at_all(text, nsp, length, seed):
    """Also where sequences cut words and join sentences; and in pairs, whose parts may be of one sentence."""
    words = word_numbers(text)
    with tempfile.TemporaryDirectory() as folder:
        data = dataset(
            prepared(Path(folder), text), nsp=nsp, tokens_per_sample=length, seed=seed, break_mode="none"
        )
        plain = dataset(
            Path(folder), told=False, nsp=nsp, tokens_per_sample=length, seed=seed, break_mode="none"
        )
        for index in range(len(data)):
            item = data[index]
            # the text, and how it is cut, do not depend on the words
            assert item["source"].tolist() == plain[index]["source"].tolist()
            chosen = set(item["selected"].tolist())
            assert chosen
            here = [words[token - 4] if token >= 4 else -1 for token in item["source"].tolist()]
            # a word is a run: the same word may stand in both segments
            for word, run in itertools.groupby(range(len(here)), key=here.__getitem__):
                positions = set(run)
                assert word >= 0 or chosen.isdisjoint(positions)
                assert chosen.issuperset(positions) or chosen.isdisjoint(positions)


def test_the_share_is_that_of_the_tokens(tmp_path):
    rng = np.random.default_rng(1)
    text = [[rng.integers(1, 5, size=12).tolist()] for _ in range(12)]
    data = dataset(prepared(tmp_path, text), nsp=False, tokens_per_sample=64)
    # of the short block at the end a word is masked at least, which is more than 15 %
    full = np.flatnonzero(data.sizes == 64)
    selected = words = 0
    for epoch in range(1, 300):
        data.set_epoch(epoch)
        for index in full.tolist():
            positions = data[index]["selected"]
            selected += len(positions)
            words += 1 + int((np.diff(positions) > 1).sum())
    assert abs(selected / (299 * 62 * len(full)) - 0.15) < 0.0015
    # runs of several tokens
    assert selected > 1.8 * words


def test_items_are_the_same_in_workers_in_a_later_start_and_after_pickling(tmp_path):
    rng = np.random.default_rng(2)
    text = [[rng.integers(1, 4, size=6).tolist() for _ in range(3)] for _ in range(10)]
    data = dataset(prepared(tmp_path, text), nsp=True)
    again = pickle.loads(pickle.dumps(dataset(tmp_path, nsp=True)))
    for index in range(len(data)):
        assert data[index]["selected"].tolist() == again[index]["selected"].tolist()
        assert data[index]["masked"].tolist() == again[index]["masked"].tolist()
    for batch in DataLoader(data, batch_size=1, collate_fn=data.collater, num_workers=2):
        assert batch["selected"].tolist() == data[int(batch["id"])]["selected"].tolist()


def test_parts_of_a_split_are_read_together(tmp_path):
    prepared(tmp_path, [[[2, 1]], [[3]]])
    prepared(tmp_path, [[[1, 1, 2]]], "train1")
    corpus = Corpus(str(tmp_path / "train"), loaded(tmp_path), combine=True, word_boundaries=True)
    begins = corpus.word_begins((0, 0, 10)).astype(int).tolist()
    assert begins == [1, 0, 1, 1, 0, 0, 1, 1, 1, 0]
    (tmp_path / "train1.words.idx").unlink()
    with pytest.raises(UserError, match=r"train1\.words\.idx.* is missing"):
        Corpus(str(tmp_path / "train"), loaded(tmp_path), combine=True, word_boundaries=True)


def test_read_like_the_tokens_from_within_a_word(tmp_path):
    text = [[[1, 3, 2], [2, 2]], [[4, 1]]]
    prepared(tmp_path, text)
    corpus = Corpus(str(tmp_path / "train"), loaded(tmp_path), word_boundaries=True)
    assert corpus.word_begins((0, 2, 7)).astype(int).tolist() == [0, 0, 1, 0, 1, 0, 1]
    assert corpus.read((0, 2, 7)).tolist() == list(range(6, 13))
    # a byte a token
    assert (tmp_path / "train.words.bin").stat().st_size == corpus.sizes.sum()


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    make_corpus(tmp_path / "data", [[["a", "b", "c"], ["d"]], [["a", "b"]]], [[["a"]]])
    return tmp_path


def prepare(folder, content, *arguments):
    if content is not None:
        (folder / "train.words").write_bytes(content)
    given = arguments or ("--trainpref", str(folder / "train"))
    return main(["prepare", "words", *given, "--destdir", str(folder / "data")])


def test_prepare_words(folder, capsys):
    (folder / "valid.words").write_text("1\n")
    given = ("--trainpref", str(folder / "train"), "--validpref", str(folder / "valid"))
    assert not has_boundaries(str(folder / "data"))
    assert prepare(folder, b"2 1\n1\n\n2\n", *given) == 0
    printed = capsys.readouterr().out
    assert "train.words.bin: 4 words, 6 tokens" in printed
    assert "valid.words.bin: 1 words, 1 tokens" in printed
    assert has_boundaries(str(folder / "data"))
    corpus = Corpus(str(folder / "data" / "train"), loaded(folder / "data"), word_boundaries=True)
    assert corpus.word_begins((0, 0, 6)).astype(int).tolist() == [1, 0, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"2 1\n1\n\n2\n\n1\n", "it has more lines than the 4 of"),
        (b"2 1\n1\n\n", "it has 3 lines and"),
        (b"2 1\n2\n\n2\n", "line 2 has 2 tokens there and 1 in"),
        (b"2 1\n1\n2\n", "line 3 has 2 tokens there and 0 in"),
        (b"\n1\n\n2\n", "line 1 has 0 tokens there and 3 in"),
        (b"2 1\n1\n\n2 0\n", "line 4: not the numbers"),
        (b"2 1\n1\n\n3 -1\n", "line 4: not the numbers"),
        (b"2 1\nd\n\n2\n", "line 2: not the numbers"),
        (b"2 1\n1.0\n\n2\n", "line 2: not the numbers"),
        (b"99999999999999999999\n1\n\n2\n", "line 1: not the numbers"),
        (b"", "train.words is empty"),
        (None, "train.words is missing: fairseq-tn encode writes it with --word-boundaries"),
    ],
)
def test_side_files_of_other_text_are_refused(folder, capsys, content, message):
    assert prepare(folder, content) != 0
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(os.listdir(folder / "data")) == [
        "dict.txt",
        "train.bin",
        "train.idx",
        "valid.bin",
        "valid.idx",
    ]


def test_missing_data_and_missing_arguments(folder, capsys):
    (folder / "test.words").write_text("1\n")
    assert prepare(folder, None, "--testpref", str(folder / "test")) != 0
    assert "test.idx is missing" in capsys.readouterr().err
    assert main(["prepare", "words", "--destdir", str(folder / "data")]) != 0
    assert "give --trainpref" in capsys.readouterr().err


def test_data_that_were_made_anew_are_noticed(folder):
    prepare(folder, b"2 1\n1\n\n2\n")
    path, dictionary = folder / "data" / "train", Dictionary.load(str(folder / "data" / "dict.txt"))
    for text, difference in (
        ([[["a", "b", "c"], ["d"]], [["a"]]], "line 4 has 2 tokens instead of 1"),
        ([[["a", "b", "c"], ["d"]]], "it has 4 lines instead of 2"),
    ):
        write_split(folder / "data", "train", text, dictionary)
        with pytest.raises(UserError, match=difference):
            Corpus(str(path), loaded(folder / "data"), word_boundaries=True)
        assert not Corpus(str(path), loaded(folder / "data")).has_word_boundaries


@pytest.mark.parametrize("size", [3, 40])
def test_a_damaged_side_file_is_refused_before_training(folder, size):
    prepare(folder, b"2 1\n1\n\n2\n")
    os.truncate(folder / "data" / "train.words.bin", size)
    with pytest.raises(UserError, match=r"train\.words\.bin is shorter or longer"):
        Corpus(str(folder / "data" / "train"), loaded(folder / "data"), word_boundaries=True)


def test_many_blocks_of_the_side_file(tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_tn.data.streams.BLOCK_BYTES", 7)
    rng = np.random.default_rng(3)
    text = [[rng.integers(1, 12, size=rng.integers(1, 6)).tolist() for _ in range(2)] for _ in range(9)]
    prepared(tmp_path, text)
    corpus = Corpus(str(tmp_path / "train"), loaded(tmp_path), word_boundaries=True)
    words = word_numbers(text)
    expected = np.append(True, np.diff(words) > 0)
    assert (corpus.word_begins((0, 0, len(words))) == expected).all()


def test_a_masker_that_is_told_has_to_be_told():
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "11", "12", "<mask>"]
    # ids of GPT-2, whose tokens are not known, do not matter then
    masker = Masker.for_vocabulary(symbols, 4, 6, whole_words=True, told=True, fate_per_word=True)
    with pytest.raises(ValueError, match="told"):
        masker(np.array([4, 5]), np.random.default_rng(1))
    _, selected = masker(np.array([4, 5]), np.random.default_rng(1), np.array([True, False]))
    assert selected.tolist() == [0, 1]
