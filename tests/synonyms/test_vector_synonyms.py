"""Tables from word vectors, against gensim's ``most_similar`` and against brute force."""

import gzip
import subprocess
import sys

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors
from gensim.test.utils import datapath
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms import build_from_vectors, vectors
from fairseq_tn.synonyms.vocabularies import choose_writing

EUCLIDEAN = datapath("euclidean_vectors.bin")


@pytest.fixture(scope="module")
def gensims():
    """2,747 words of news, 10 dimensions, lower and upper case."""
    return KeyedVectors.load_word2vec_format(EUCLIDEAN, binary=True)


@pytest.fixture(scope="module")
def lower(gensims):
    """A vocabulary of lower-case words and what has no vector."""
    words = [word for word in gensims.index_to_key if word.isalpha() and word == word.lower()]
    return ["<s>", "<pad>", "</s>", "<unk>", "##ing", "unheardof", "1990", *words, "<mask>"]


@pytest.mark.parametrize(("neighbours", "min_cosine"), [(1, -1.0), (10, 0.9), (7, 0.97)])
def test_neighbours_are_those_of_gensim_within_the_vocabulary(gensims, lower, neighbours, min_cosine):
    table = build_from_vectors(lower, EUCLIDEAN, neighbours, min_cosine)
    known = {word for word in lower if word in gensims}
    for word in sorted(known)[::25]:
        near = gensims.most_similar(word, topn=len(gensims))
        expected = [other for other, cosine in near if other in known and cosine >= min_cosine]
        assert table.synonyms(word) == expected[:neighbours], word
    assert len(table) > 200
    assert table.header["source"] == "vectors euclidean_vectors.bin"
    assert table.header["options"] == (
        f"{neighbours} neighbours, cosine at least {min_cosine:g}, words vocabulary"
    )
    assert table.header["words"] == f"{len(known):,} of {len(known) + 2:,} have vectors"


def test_all_formats_of_the_same_vectors_give_the_same_table(gensims, lower, tmp_path):
    text, glove, fasttext = tmp_path / "text", tmp_path / "glove", tmp_path / "fasttext.vec"
    gensims.save_word2vec_format(text, binary=False)
    header, rest = text.read_bytes().split(b"\n", 1)
    glove.write_bytes(rest)
    fasttext.write_bytes(header + b"\n" + rest.replace(b"\n", b" \n"))
    sources = [EUCLIDEAN, text, glove, fasttext, gensims]
    for path in [EUCLIDEAN, text, glove]:
        packed = tmp_path / f"{len(sources)}.gz"
        with open(path, "rb") as file:
            packed.write_bytes(gzip.compress(file.read(), compresslevel=1))
        sources.append(packed)
    tables = [build_from_vectors(lower, source, 5, 0.9) for source in sources]
    rows = [{token: table.synonyms(token) for token in table.tokens} for table in tables]
    assert len(rows[0]) > 1000
    assert all(row == rows[0] for row in rows)


WORDS = ["go", "Go", "GO", "run", "Run", "walk", "fly", "42", "é"]


@st.composite
def cases(draw):
    vocabulary = draw(st.permutations(WORDS).map(lambda words: words[:7]))
    written = draw(st.lists(st.sampled_from([*WORDS, "RUN", "Fly", "swim"]), min_size=1, unique=True))
    # small integers: many of one direction, some zero
    numbers = st.lists(st.integers(-2, 2), min_size=2, max_size=2)
    return vocabulary, {word: draw(numbers) for word in written}, draw(st.integers(1, 4))


def brute_force(vocabulary, written, neighbours, min_cosine):
    """The definition, pair by pair, in float64."""
    row = {}
    for symbol in vocabulary:
        same = [w for w in written if w == symbol] or [w for w in written if w.lower() == symbol.lower()]
        if any(map(str.isalpha, symbol)) and same and any(written[same[0]]):
            row[symbol] = same[0]
    words = {symbol: symbol for symbol in vocabulary}
    table = {}
    for gold in row:
        nearest = {}
        for other in row:
            a, b = (np.array(written[row[symbol]], float) for symbol in (gold, other))
            cosine = round(float(a @ b / np.sqrt((a @ a) * (b @ b))), 9)
            if other.lower() == gold.lower() or cosine < min_cosine:
                continue
            best = nearest.get(other.lower())
            if best is None or cosine > best[0]:
                nearest[other.lower()] = (cosine, other)
        ranked = sorted(nearest.values(), key=lambda pair: (-pair[0], vocabulary.index(pair[1])))[:neighbours]
        sharing = [[s for s in row if row[s] == row[other]] for _, other in ranked]
        others = [
            choose_writing(gold, row[other], symbols, words)
            for (_, other), symbols in zip(ranked, sharing, strict=True)
        ]
        if others:
            table[gold] = others
    return table


@settings(deadline=None, max_examples=150, derandomize=True)
@given(cases(), st.sampled_from([-1.0, 0.0, 0.3, 0.75, 1.0]))
def test_tables_are_those_of_brute_force(case, min_cosine):
    vocabulary, written, neighbours = case
    keyed = KeyedVectors(2)
    keyed.add_vectors([*written], np.array([*written.values()], "f4"))
    if not {w.lower() for w in written} & {w.lower() for w in vocabulary if w != "42"}:
        with pytest.raises(UserError, match="none of the vocabulary's"):
            build_from_vectors(vocabulary, keyed, neighbours, min_cosine, "words")
        return
    table = build_from_vectors(vocabulary, keyed, neighbours, min_cosine, "words")
    found = {token: table.synonyms(token) for token in table.tokens}
    assert found == brute_force(vocabulary, written, neighbours, min_cosine)


def test_the_size_of_the_blocks_changes_nothing(gensims, lower, monkeypatch):
    expected = build_from_vectors(lower, EUCLIDEAN, 10, 0.5)
    monkeypatch.setattr(vectors, "_BLOCK_NUMBERS", 5000)
    monkeypatch.setattr(vectors, "_PAIRS_AT_A_TIME", 7)
    table = build_from_vectors(lower, EUCLIDEAN, 10, 0.5)
    assert [table.synonyms(word) for word in lower] == [expected.synonyms(word) for word in lower]


def test_many_equal_vectors_come_in_the_order_of_the_vocabulary():
    # sums in float32 differ by the place in a block; all of these words are equally near to each other
    row = np.random.default_rng(0).standard_normal((1, 300)).astype("f4")
    many = np.arange(100)
    rows, others = vectors.nearest(torch.from_numpy(np.repeat(row, 100, 0)), many, 3, 0.5)
    assert rows == [number for number in range(100) for _ in range(3)]
    assert others[:9] == [1, 2, 3, 0, 2, 3, 0, 1, 3]
    assert others[-3:] == [0, 1, 2]
    lengths = np.logspace(-3, 3, 100)[:, None]
    assert vectors.nearest(torch.from_numpy(row * lengths), many, 3, 0.5) == (rows, others)


def write_vectors(path, rows):
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows.items()))
    return path


def test_writings_of_cased_vocabularies(tmp_path):
    symbols = ["big", "large", "Big", "Large", "LARGE", "paris", "Paris", "BIG"]
    # vectors that know no case: every writing has the vector, the synonym is written like the word
    uncased = write_vectors(tmp_path / "uncased", {"large": [3, 1], "big": [3, 1.5], "paris": [0, 1]})
    table = build_from_vectors(symbols, uncased, style="words")
    assert {token: table.synonyms(token) for token in table.tokens} == {
        "big": ["large"],
        "large": ["big"],
        "Big": ["Large"],
        "Large": ["Big"],
        "LARGE": ["BIG"],
        "BIG": ["LARGE"],
    }
    # vectors that do: of several writings the nearest
    rows = {
        "large": [3, 1],
        "big": [3, 1.1],
        "Large": [0, 3],
        "Big": [0.1, 3],
        "LARGE": [-3, 1],
        "BIG": [1, 2],
    }
    table = build_from_vectors(symbols, write_vectors(tmp_path / "cased", rows), 1, 0.6, "words")
    assert {token: table.synonyms(token) for token in table.tokens} == {
        "big": ["large"],
        "large": ["big"],
        "Big": ["Large"],
        "Large": ["Big"],
        "BIG": ["Large"],
    }


def test_an_uncased_vocabulary_takes_the_exact_word_or_else_the_most_frequent(tmp_path):
    rows = {"US": [1, 0], "us": [0, 1], "Paris": [1, 0.1], "PARIS": [0.1, 1], "them": [0, 1], "usa": [1, 0]}
    table = build_from_vectors(
        ["us", "paris", "them", "usa"], write_vectors(tmp_path / "v", rows), style="words"
    )
    assert table.synonyms("us") == ["them"]
    assert table.synonyms("paris") == ["usa"]


def test_zero_vectors_take_no_part(tmp_path, caplog):
    path = write_vectors(tmp_path / "v", {"a": [1, 0], "b": [0, 0], "c": [1, 1]})
    table = build_from_vectors(["a", "b", "c"], path, min_cosine=-1, style="words")
    assert table.tokens == ["a", "c"]
    assert table.header["words"] == "2 of 3 have vectors"
    assert "the vectors of 1 words are zero" in caplog.text


def test_few_words_with_vectors_are_told(tmp_path, caplog):
    path = write_vectors(tmp_path / "v", {"a": [1, 0], "b": [1, 1]})
    letters = [chr(0x4E00 + number) for number in range(199)]
    build_from_vectors(["a", "b", *letters[:198]], path, style="words")
    assert caplog.text == ""
    build_from_vectors(["a", "b", *letters], path, style="words")
    assert "only 2 of the vocabulary's 201 words have vectors" in caplog.text


def test_bad_options_and_undefined_numbers(tmp_path):
    path = write_vectors(tmp_path / "v", {"a": [1, 0]})
    for options, message in [
        ({"neighbours": 0}, "--neighbours 0"),
        ({"min_cosine": 1.5}, r"--min-cosine 1\.5"),
        ({"min_cosine": float("nan")}, "--min-cosine nan"),
    ]:
        with pytest.raises(UserError, match=message):
            build_from_vectors(["a"], path, **options)
    with pytest.raises(
        UserError, match=r"none of the vocabulary's 2 words .* is among the vectors .*v; give"
    ):
        build_from_vectors(["x", "y"], path)
    keyed = KeyedVectors(2)
    keyed.add_vectors(["a"], np.array([[1, np.nan]], "f4"))
    with pytest.raises(UserError, match="the vector of 'a' holds an infinite or undefined number"):
        build_from_vectors(["a"], keyed)


def test_neither_fairseq_nor_gensim_is_imported(tmp_path):
    path = write_vectors(tmp_path / "v", {"a": [1, 0], "b": [1, 1]})
    code = f"""
import sys
from fairseq_tn.synonyms import build_from_vectors
assert len(build_from_vectors(["a", "b"], {str(path)!r})) == 2
assert not {{"fairseq", "gensim"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
