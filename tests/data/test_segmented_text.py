"""Segmented text: encoded as if nobody had segmented it, with the number of tokens of each word beside it."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizers import train_gpt2, train_sentencepiece

from fairseq_tn.cli import main
from fairseq_tn.data.encode import encode_corpus
from fairseq_tn.data.encoders import load_encoder
from fairseq_tn.data.segmented_text import join_words, word_lengths
from fairseq_tn.errors import UserError

HAN = "中文我们喜欢音乐，。"
LATIN = "abc12."
KANA = "かなカナ"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # 乐 is not in it
    letters = HAN.replace("乐", "") + LATIN + KANA
    vocabulary = [*specials, *letters, *(f"##{letter}" for letter in LATIN + KANA)]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    return folder


@pytest.fixture(scope="module")
def wordpiece(folder):
    return load_encoder(str(folder / "vocab.txt"))


@pytest.fixture(scope="module", params=["sentencepiece", "gpt2"])
def of_raw_text(request, tmp_path_factory):
    """A tokenizer whose pieces span words."""
    folder = tmp_path_factory.mktemp(request.param)
    lines = ["我们喜欢音乐，喜欢中文。", "我们喜欢中文音乐。", "abc 12 我们ab。", "cab 中文，12音乐"] * 5
    if request.param == "sentencepiece":
        return load_encoder(str(train_sentencepiece(lines, folder, 60, character_coverage=1.0)))
    train_gpt2(lines, folder, 300)
    return load_encoder(str(folder))


def lengths_of(encoder, line):
    text, begins = join_words(line)
    (aligned,) = encoder.encode_with_offsets([text])
    return word_lengths(aligned, begins)


@pytest.mark.parametrize(
    ("segmented", "text", "begins"),
    [
        ("我们 喜欢 音乐 。", "我们喜欢音乐。", [0, 2, 4, 6]),
        (" 用 Python 3 写  的\t程序 ", "用Python 3写的程序", [0, 1, 8, 9, 10, 11]),
        ("ほら カナ だ", "ほらカナだ", [0, 2, 4]),
        ("ฉัน รัก เธอ", "ฉันรักเธอ", [0, 3, 6]),
        ("plain  English words", "plain English words", [0, 6, 14]),
        ("한국어 문장", "한국어 문장", [0, 4]),
        ("“ 好 ” 。", "“好”。", [0, 1, 2, 3]),
        ("\u3000", "", []),
    ],
)
def test_blanks_go_where_the_script_has_none(segmented, text, begins):
    assert join_words(segmented) == (text, begins)


words = st.lists(st.text(st.sampled_from(HAN + LATIN), min_size=1, max_size=5), min_size=1, max_size=12)


@given(words)
def test_a_word_has_the_tokens_that_it_has_alone(wordpiece, words):
    """With BERT's tokenizer, which parts Chinese text into characters, and text at punctuation marks and blanks."""
    line = " ".join(words)
    assert lengths_of(wordpiece, line) == [len(wordpiece.encode([word])[0]) for word in words]
    # and the blanks change nothing in the tokens
    assert wordpiece.encode([join_words(line)[0]]) == wordpiece.encode([line])


def test_kana_is_read_as_without_a_segmenter(wordpiece):
    assert lengths_of(wordpiece, "かな カナ 中") == [2, 2, 1]
    assert wordpiece.encode([join_words("かな カナ 中")[0]]) == [["か", "##な", "##カ", "##ナ", "中"]]


@given(words)
def test_words_begin_where_both_a_word_and_a_piece_does(of_raw_text, words):
    """A piece with parts of two words makes one word of them."""
    line = " ".join(words)
    text, begins = join_words(line)
    (aligned,) = of_raw_text.encode_with_offsets([text])
    assert aligned.symbols == of_raw_text.encode([text])[0]
    lengths = lengths_of(of_raw_text, line)
    assert sum(lengths) == len(aligned.symbols)
    assert min(lengths) > 0
    edges = {0, *itertools.accumulate(lengths)} - {len(aligned.symbols)}
    # what the pieces before each edge hold, in characters; blanks do not count
    places = {len("".join(text[: aligned.begin[edge]].split())) for edge in edges}
    # GPT-2's pieces are bytes: one may end within the character that the next one begins in
    pieces = {
        len("".join(text[:begin].split()))
        for begin, before in zip(aligned.begin, [0, *aligned.end], strict=False)
        if before <= begin
    }
    wanted = {len("".join(text[:begin].split())) for begin in begins}
    assert places == wanted & pieces
    assert len(edges) == len(places)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


TEXT = "我们 喜欢 ab1 音乐 。\n\u200b\n中文\n \n\n我们\n"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_side_file_has_the_lines_of_the_text(wordpiece, tmp_path, workers):
    one, two = write(tmp_path / "one.txt", TEXT), write(tmp_path / "two.txt", "喜欢 中文")
    counts = encode_corpus(wordpiece, [one, two], tmp_path / "out" / "train", workers, segmented=True)
    assert (tmp_path / "out" / "train.words").read_text() == "2 2 3 2 1\n2\n\n\n2\n\n2 2\n"
    encoded = (tmp_path / "out" / "train").read_text(encoding="utf-8").split("\n")
    assert encoded[0] == "我 们 喜 欢 a ##b ##1 音 <unk> 。"
    assert [len(line.split()) for line in encoded] == [10, 2, 0, 0, 2, 0, 4, 0]
    assert (counts.words, counts.tokens, counts.dropped) == (9, 18, 1)
    # without blanks the text is the same
    plain = write(tmp_path / "plain.txt", one.read_text(encoding="utf-8").replace(" ", ""))
    encode_corpus(wordpiece, [plain, two], tmp_path / "plain" / "train")
    assert (tmp_path / "plain" / "train").read_bytes() == (tmp_path / "out" / "train").read_bytes()
    assert not (tmp_path / "plain" / "train.words").exists()


def test_nothing_is_left_of_an_encoding_that_fails(wordpiece, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes("我们 喜欢\n".encode() + b"\xff\n")
    with pytest.raises(UserError, match="line 2: not UTF-8"):
        encode_corpus(wordpiece, [bad], tmp_path / "out" / "train", segmented=True)
    assert not [*(tmp_path / "out").iterdir()]
    words = write(tmp_path / "train.words", TEXT)
    with pytest.raises(UserError, match=r"train\.words is an input too"):
        encode_corpus(wordpiece, [words], tmp_path / "train", segmented=True)
    assert words.read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("我 们 喜 欢\n", "every word is one token"),
        ("我们喜欢中文，我们喜欢音。\n", "a word has 13.0 tokens on average"),
        ("我们 喜欢\n", None),
    ],
)
def test_text_that_is_not_segmented_is_warned_of(folder, tmp_path, capsys, text, warning):
    source = write(tmp_path / "text", text)
    main(
        [
            *("encode", "--tokenizer", str(folder / "vocab.txt"), str(source), "--workers", "1"),
            *("--output", str(tmp_path / "out" / "train"), "--word-boundaries"),
        ]
    )
    printed = capsys.readouterr()
    assert "train.words" in printed.out
    assert (warning or "warning") in printed.err or warning is None
    assert ("warning" in printed.err) == (warning is not None)


@pytest.mark.parametrize("tokenizer", ["words", "moses", "subword-nmt"])
def test_tokenizers_of_words_need_no_side_file(tokenizer, tmp_path, capsys):
    source = write(tmp_path / "text", TEXT)
    options = ("encode", "--tokenizer", tokenizer, str(source), "--output", str(tmp_path / "out"))
    assert main([*options, "--word-boundaries"]) != 0
    assert f"the symbols of --tokenizer {tokenizer} show the words themselves" in capsys.readouterr().err
