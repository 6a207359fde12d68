"""Reading files of word vectors, with gensim's reader as the reference."""

import gzip

import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.test.utils import datapath

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vector_files import read_word_vectors


def everything(word):
    return True


def as_binary(words, vectors, line_ends=True):
    end = b"\n" if line_ends else b""
    records = (
        word.encode() + b" " + np.asarray(vector, "<f4").tobytes() + end
        for word, vector in zip(words, vectors, strict=True)
    )
    return f"{len(words)} {len(vectors[0])}\n".encode() + b"".join(records)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("euclidean_vectors.bin", {"binary": True}),
        ("word2vec_pre_kv_c", {}),
        ("lee_fasttext.vec", {}),
        ("crime-and-punishment.vec", {}),
        ("test_glove.txt", {"no_header": True}),
    ],
)
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_every_format_reads_as_gensim_reads_it(name, options, compressed, tmp_path):
    path = datapath(name)
    expected = KeyedVectors.load_word2vec_format(path, **options)
    if compressed:
        packed = tmp_path / "vectors"  # known by its content
        with open(path, "rb") as file:
            packed.write_bytes(gzip.compress(file.read()))
        path = packed
    found = read_word_vectors(path, everything)
    assert found.words == expected.index_to_key
    assert found.vectors.dtype == np.float32
    np.testing.assert_array_equal(found.vectors, expected.vectors)


@pytest.mark.parametrize("line_ends", [True, False])
def test_only_what_is_wanted_is_kept_and_asked_in_the_order_of_the_file(line_ends, tmp_path):
    words = [f"word{number}" for number in range(500)]
    vectors = np.random.default_rng(0).standard_normal((500, 700)).astype("f4")  # more than one chunk
    path = tmp_path / "vectors.bin"
    path.write_bytes(as_binary(words, vectors, line_ends))
    asked = []
    found = read_word_vectors(path, lambda word: asked.append(word) or word.endswith("7"))
    assert asked == words
    assert found.words == words[7::10]
    np.testing.assert_array_equal(found.vectors, vectors[7::10])


def test_bytes_of_numbers_that_look_like_line_breaks_and_blanks_are_numbers(tmp_path):
    looks_like_text = np.frombuffer(b"\n \n \n\n\n\n    ", "<f4")
    vectors = np.vstack([looks_like_text, [0.5, -1.0, 2.0]])
    path = tmp_path / "vectors.bin"
    path.write_bytes(as_binary(["é", "b"], vectors) + b"\n")
    found = read_word_vectors(path, everything)
    assert found.words == ["é", "b"]
    np.testing.assert_array_equal(found.vectors, vectors.astype("f4"))


def test_text_with_line_ends_of_windows_a_mark_and_a_number_as_first_word(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_bytes("\ufeff1990 0.5 -1e-3\r\nthe 1 2\r\n\r\n".encode())
    found = read_word_vectors(path, everything)
    assert found.words == ["1990", "the"]
    np.testing.assert_array_equal(found.vectors, np.array([[0.5, -1e-3], [1, 2]], "f4"))


def test_the_first_of_repeated_words_counts(tmp_path, caplog):
    path = tmp_path / "vectors"
    path.write_text("4 2\na 1 2\nb 3 4\na 5 6\na 7 8\n")
    found = read_word_vectors(path, everything)
    assert found.words == ["a", "b"]
    assert found.vectors.tolist() == [[1, 2], [3, 4]]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} repeats 2 of the vocabulary's words; their first vectors count"
    ]


def test_words_with_blanks_are_skipped(tmp_path, caplog):
    path = tmp_path / "vectors"
    path.write_text(". . . 1 2\nat name@domain.com 3 4\nthe 5 6\n")
    found = read_word_vectors(path, everything)
    assert found.words == ["the"]
    assert "2 words with blanks are skipped" in caplog.text


def test_an_undefined_number_of_another_word_does_no_harm(tmp_path):
    path = tmp_path / "vectors"
    path.write_text("a 1 2\nb nan 1\n")
    assert read_word_vectors(path, lambda word: word == "a").words == ["a"]


TEXT = {
    "empty": (b"", "is empty; give a file in word2vec's"),
    "too_few_numbers": (b"a 1 2 3\nb 4 5\n", "line 2: expected a word and 3 numbers, found 2 fields"),
    "too_many_numbers": (b"a 1 2 3\nb 4 5 6 7\n", "line 2: expected a word and 3 numbers, found 4 fields"),
    "other_dimension_in_the_header": (b"2 4\na 1 2 3\nb 4 5 6\n", "line 2: expected a word and 4 numbers"),
    "no_numbers_after_the_header": (b"2 3\na b c d\n", "line 2: 'b' is not a number"),
    "comma": (b"a 1 2\nb 0,5 1\n", "line 2: '0,5' is not a number"),
    "nan": (b"2 2\na 1 2\nb nan 1\n", "line 3: the vector of 'b' holds an infinite or undefined number"),
    "inf": (b"a 1 2\nb 1 -inf\n", "line 2: the vector of 'b' holds an infinite"),
    "too_large": (b"a 1 2\nb 1 1e39\n", "line 2: the vector of 'b' holds an infinite"),
    "fewer_words": (b"3 2\na 1 2\nb 3 4\n", "line 4: the file holds 2 words, its first line promises 3"),
    "more_words": (b"1 2\na 1 2\nb 3 4\n", "line 3: the file holds 2 words, its first line promises 1"),
    "header_alone": (b"3 2\n", "line 2: the file holds 0 words, its first line promises 3"),
    "header_of_nothing": (b"0 2\n", "line 1: a header of 0 words in 2 dimensions"),
    "words_alone": (b"a\nb\n", "line 1: expected a word and its numbers"),
    "prose": (b"This is a text.\n", "line 1: expected a word and its numbers"),
    "zip": (b"PK\x03\x04rest", "is a zip archive; unpack it"),
    "pickle": (b"\x80\x04rest", "gensim's save_word2vec_format()"),
    "fasttext_model": (b"\xba\x16\x4f\x2f\x0c\0\0\0", "give the .vec file"),
    "gzip_cut": (gzip.compress(b"a 1 2\n" * 100, mtime=0)[:-9], "is damaged or a part is missing"),
    "gzip_damaged": (b"\x1f\x8b\x08" + bytes(40), "is damaged or a part is missing"),
}


@pytest.mark.parametrize("case", TEXT)
def test_bad_files_are_told_in_one_line_with_file_and_line(case, tmp_path):
    content, message = TEXT[case]
    path = tmp_path / "vectors"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_word_vectors(path, everything)
    told = str(error.value)
    assert message in told
    assert str(path) in told
    assert "\n" not in told


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "gone", tmp_path):
        with pytest.raises(UserError, match="cannot read the vectors"):
            read_word_vectors(path, everything)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-3], "word 3: the file ends, its first line promises 3 words in 4 dimensions"),
        (lambda data: data.replace(b"3 4\n", b"4 4\n", 1), "word 4: the file ends"),
        (lambda data: data.replace(b"3 4\n", b"2 4\n", 1), "the file goes on, its first line promises 2"),
        (lambda data: data.replace(b"3 4\n", b"3 3\n", 1), "word 2: not a word but other bytes"),
        (
            lambda data: data[:-4] + b"\0\0\xc0\x7f",
            "word 3: the vector of 'c' holds an infinite or undefined",
        ),
    ],
    ids=["cut", "fewer", "more", "dimension", "nan"],
)
def test_bad_binary_files(change, message, tmp_path):
    path = tmp_path / "vectors.bin"
    vectors = np.arange(12).reshape(3, 4) / 2
    path.write_bytes(change(as_binary(["a", "b", "c"], vectors, line_ends=False)))
    with pytest.raises(UserError) as error:
        read_word_vectors(path, everything)
    assert message in str(error.value)
