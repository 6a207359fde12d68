"""Offsets of every kind of tokenizer: the same symbols, and exactly the characters that each stands for."""

import itertools
import unicodedata

import numpy as np
import pytest
import sacremoses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_tokenizers import train_gpt2, train_sentencepiece, train_subword_nmt, train_wordpiece
from test_encoders import ODD, TEXT

from fairseq_tn.data.encoders import EncoderOptions, load_encoder
from fairseq_tn.data.offsets import align, find_words

# what tokenizers rewrite: accents, ligatures, wide letters, capitals that grow, controls, bytes of one character
HARD = [
    "Cafe\u0301 café ﬁsh ＡＢＣ ① x² İstanbul ΟΔΟΣ ẞ",
    "a\u200bb \u200bc\u00ad d\x01e\x7f \x02 f",
    "bal\u3000o 数据。数 🤗🏽 Ω≈ \U00020000",
    "e.g. don't (so) 'x' \"y\" l'a --- ... a...b 1,024.50 a&amp;b DOTMULTI THISISPROTECTED000",
    "İİ i\u0307 bao ﷺ ½",
    "##ba ▁lo @@ lo@@ mi @@",
]
LETTERS = st.sampled_from(
    [*"abAB.,'\"-& 数ΣİÉ", "e\u0301", "ﬁ", "①", "\u200b", "\x01", "\u00a0", "\t", "🤗", "@@", "▁"]
)
LINES = st.one_of(st.lists(LETTERS, max_size=30).map("".join), st.sampled_from([*HARD, *ODD, *TEXT[:40]]))


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    moses = sacremoses.MosesTokenizer("en")
    words = [moses.tokenize(line, escape=False, return_str=True) for line in TEXT]
    train_subword_nmt([*TEXT, *words, *(word.lower() for word in words)], folder, 150)
    train_wordpiece(TEXT, folder, 300)
    lower = folder / "uncased"
    lower.mkdir()
    train_wordpiece([line.lower() for line in TEXT], lower, 300)
    (lower / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    (folder / "cased").mkdir()
    (folder / "cased" / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    (folder / "cased" / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    (folder / "gpt2").mkdir()
    train_gpt2(TEXT, folder / "gpt2")
    codes = {"codes": str(folder / "codes"), "vocabulary": str(folder / "vocabulary")}
    found = {}
    for name, options in {
        "unigram": {},
        "bytes": {"byte_fallback": True},
        "bpe": {"model_type": "bpe"},
        "identity": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    }.items():
        (folder / name).mkdir()
        model = train_sentencepiece(TEXT, folder / name, 500, **options)
        found[f"sentencepiece {name}"] = load_encoder(str(model))
    return found | {
        "gpt2": load_encoder(str(folder / "gpt2")),
        "wordpiece cased": load_encoder(str(folder / "cased")),
        "wordpiece uncased": load_encoder(str(lower)),
        "words": load_encoder("words"),
        "moses": load_encoder("moses"),
        "moses cased": load_encoder("moses", EncoderOptions(keep_case=True)),
        "subword-nmt": load_encoder("subword-nmt", EncoderOptions(**codes)),
        "moses with codes": load_encoder("moses", EncoderOptions(**codes, keep_case=True)),
    }


KINDS = [
    "sentencepiece unigram",
    "sentencepiece bytes",
    "sentencepiece bpe",
    "sentencepiece identity",
    "gpt2",
    "wordpiece cased",
    "wordpiece uncased",
    "words",
    "moses",
    "moses cased",
    "subword-nmt",
    "moses with codes",
]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=LINES)
def test_symbols_and_characters(encoders, kind, line):
    encoder = encoders[kind]
    (found,) = encoder.encode_with_offsets([line])
    (symbols,) = encoder.encode([line])
    assert found.symbols == symbols
    assert len(found.begin) == len(found.end) == len(symbols)
    assert (np.diff(found.begin) >= 0).all()
    assert (np.diff(found.end) >= 0).all()
    covered = np.zeros(len(line), bool)
    for begin, end in zip(found.begin, found.end, strict=True):
        if begin < end:
            assert not line[begin].isspace()
            assert not line[end - 1].isspace()
            covered[begin:end] = True
    # every character that is no blank belongs to a symbol, or stands in a word that has none at all
    for word_begin, word_end in words_of(line):
        inside = covered[word_begin:word_end]
        assert inside.all() or not inside.any(), (line[word_begin:word_end], inside)
        if not inside.any() and "DOTMULTI" not in line:  # which Moses takes for its own sign
            assert not any(map(str.isalnum, line[word_begin:word_end]))


def words_of(line):
    edges = [place for place in range(len(line) + 1) if place in (0, len(line)) or line[place].isspace()]
    for begin, end in itertools.pairwise(edges):
        while begin < end and line[begin].isspace():
            begin += 1
        if begin < end:
            yield begin, end


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=LINES, data=st.data())
def test_answers_are_recovered(encoders, kind, line, data):
    """The fewest symbols around an answer: exactly it where it ends with symbols, never less, never a symbol more."""
    (found,) = encoders[kind].encode_with_offsets([line])
    if not line.strip():
        assert found.cover(0, len(line)) is None
        return
    places = [place for place, letter in enumerate(line) if not letter.isspace()]
    begin = data.draw(st.sampled_from(places))
    end = data.draw(st.sampled_from([place for place in places if place >= begin])) + 1
    cover = found.cover(begin, end)
    edges_begin, edges_end = set(found.begin.tolist()), set(found.end.tolist())
    if cover is None:
        assert not any(b < end and e > begin for b, e in zip(found.begin, found.end, strict=True) if b < e)
        return
    first, last = cover
    text = line[found.begin[first] : found.end[last]]
    if begin in edges_begin and end in edges_end:
        assert text == line[begin:end]
    elif all(letter.isalnum() for letter in line[begin:end]):
        assert line[begin:end] in text
    # symbols that share one character are taken together
    while found.begin[first + 1 : last + 1].tolist()[:1] == [found.begin[first]]:
        first += 1
    while found.end[first:last].tolist()[-1:] == [found.end[last]]:
        last -= 1
    for one, other in ((first + 1, last), (first, last - 1)):
        if one <= other:
            assert found.begin[one] > begin or found.end[other] < end


@pytest.mark.parametrize("kind", KINDS)
def test_symbols_are_made_of_their_characters(encoders, kind):
    """Words of the training text, which no tokenizer rewrites but in case, byte by byte."""
    lines = [line for line in TEXT[:60] if unicodedata.normalize("NFKC", line) == line]
    for line, found in zip(lines, encoders[kind].encode_with_offsets(lines), strict=True):
        for symbol, begin, end in zip(found.symbols, found.begin, found.end, strict=True):
            text = line[begin:end]
            if kind == "gpt2":
                if text.isascii():
                    # a symbol that begins a word has the blank before it, which does not count
                    assert encoders[kind].token(symbol).lstrip("Ġ") == text
            elif symbol != "<unk>" and begin < end and not symbol.startswith("<0x"):
                bare = symbol.removeprefix("##").replace("▁", "")
                bare = bare.removesuffix("@@") if "subword" in kind or "codes" in kind else bare
                expected = text if kind not in ("wordpiece uncased", "moses") else text.lower()
                if kind == "wordpiece uncased":
                    decomposed = unicodedata.normalize("NFD", expected)
                    expected = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
                assert bare == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_before_the_text_shifts_nothing(encoders, kind):
    """Encoders strip lines, and SentencePiece drops more than blanks there."""
    for before in ("", "  ", "\t\u3000", "\u200b ", " \u200b \u200b "):
        line = f"{before}balo mi"
        (found,) = encoders[kind].encode_with_offsets([line])
        for word in ("balo", "mi"):
            begin = line.index(word)
            first, last = found.cover(begin, begin + len(word))
            assert line[found.begin[first] : found.end[last]] == word, before


def test_what_a_tokenizer_drops_belongs_to_a_neighbour(encoders):
    (found,) = encoders["wordpiece uncased"].encode_with_offsets(["ba\u200b \u200blo"])
    assert found.begin.min() == 0
    assert (found.begin[0], found.end.max()) == (0, 7)
    first, last = found.cover(4, 7)
    assert found.begin[first] == 4
    assert found.end[last] == 7


def test_blanks_are_nobodys():
    found = align("  ab  c ", ["▁ab", "▁", "c"], [0, 4, 6], [4, 6, 7])
    assert found.begin.tolist() == [2, 6, 6]
    assert found.end.tolist() == [4, 4, 7]
    assert found.cover(2, 4) == (0, 0)
    assert found.cover(6, 7) == (2, 2)
    assert found.cover(4, 6) is None


def test_words_with_gaps_and_words_that_are_not_there():
    assert [list(places) for places in find_words("a\x01b  x cd", ["ab", "zz", "cd"])] == [[0, 2], [], [7, 8]]
    assert [list(places) for places in find_words("\x01ab", ["ab"])] == [[1, 2]]
