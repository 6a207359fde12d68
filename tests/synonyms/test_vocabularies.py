import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vocabularies import (
    choose_writing,
    detect_style,
    is_special,
    join_tokens,
    read_gpt2_tokens,
    read_symbols,
    symbols_by_word,
    vocabulary_digest,
    whole_words,
    written_tokens,
)

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "[unused1]", "[CLS]", "madeupword0000", "<mask>"]


def test_digest_ignores_mask_and_fillers_only():
    digest = vocabulary_digest(["<s>", "a", "b"])
    assert digest == vocabulary_digest(["<s>", "a", "b", "madeupword0000", "madeupword0001", "<mask>"])
    for other in (["a", "b"], ["<s>", "b", "a"], ["<s>", "ab"], ["<s>", "a", "b", "madeupword"]):
        assert vocabulary_digest(other) != digest


def test_digest_does_not_change_between_versions():
    # tables and checkpoints on users' disks hold digests
    expected = "6768521aa68d304a2586ef9cf219ce727eb2f015feaf1112757b837e07ea1e7e"
    assert vocabulary_digest(["<s>", "a", "b"]) == expected


@pytest.mark.parametrize("symbol", SPECIALS)
def test_specials_are_special(symbol):
    assert is_special(symbol)


@pytest.mark.parametrize(
    "symbol", ["house", "[", "]", "<", ">", "[]", "<>", "##s", "1", "madeupword", "[un used]"]
)
def test_text_is_not_special(symbol):
    assert not is_special(symbol)


@pytest.mark.parametrize(
    ("style", "ordinary", "words"),
    [
        (
            "wordpiece",
            ["house", "##ing", "##", "[", "家"],
            {"house": "house", "##": "##", "[": "[", "家": "家"},
        ),
        ("sentencepiece", ["▁house", "ing", "▁"], {"▁house": "house"}),
        ("gpt2", ["Ġhouse", "ing", "Ġ", "ĠcafÃ©", "ĠÃ"], {"Ġhouse": "house", "ĠcafÃ©": "café"}),
        ("subword-nmt", ["house", "hous@@", "@@"], {"house": "house"}),
        ("words", ["house", "Paris", "1"], {"house": "house", "Paris": "Paris", "1": "1"}),
    ],
)
def test_whole_words_of_each_style(style, ordinary, words):
    symbols = SPECIALS[:4] + ordinary + SPECIALS[4:]
    assert detect_style(symbols) == style
    assert whole_words(symbols) == words


def test_gpt2_ids_are_named_by_the_encoder(tmp_path):
    encoder = tmp_path / "encoder.json"
    encoder.write_text(json.dumps({"Ġhouse": 7, "ing": 8, "ĠParis": 12}))
    symbols = ["<s>", "7", "8", "12", "99", "madeupword0000", "<mask>"]
    assert detect_style(symbols) == "gpt2-ids"
    assert whole_words(symbols, gpt2_tokens=read_gpt2_tokens(encoder)) == {"7": "house", "12": "Paris"}
    with pytest.raises(UserError, match=r"encoder\.json"):
        whole_words(symbols)


@pytest.mark.parametrize("content", ["{", "[1]", '{"a": "b"}'])
def test_broken_gpt2_encoder_is_named(tmp_path, content):
    path = tmp_path / "encoder.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"encoder\.json is not"):
        read_gpt2_tokens(path)


def test_a_stray_marker_does_not_make_a_style():
    assert detect_style(["##", "##x", *(f"word{n}" for n in range(1000))]) == "words"
    assert detect_style(SPECIALS) == "words"


def test_unknown_style_is_refused():
    with pytest.raises(UserError, match="unknown vocabulary style 'bpe'"):
        whole_words(["a"], style="bpe")


@pytest.mark.parametrize(
    ("word", "lemma", "candidates", "expected"),
    [
        ("big", "large", ["Large", "large"], "large"),
        ("Big", "large", ["large", "Large"], "Large"),
        ("BIG", "large", ["large", "Large", "LARGE"], "LARGE"),
        ("I", "one", ["ONE", "One", "one"], "One"),
        ("capital", "Paris", ["paris", "Paris"], "Paris"),
        ("Big", "large", ["large", "LARGE"], "large"),
        ("big", "Large", ["LARGE", "large"], "large"),
        ("big", "large", ["LARGE"], "LARGE"),
    ],
)
def test_choice_among_writings(word, lemma, candidates, expected):
    assert choose_writing(word, lemma, candidates, {c: c for c in candidates}) == expected


def test_symbols_by_word_gathers_writings():
    assert symbols_by_word({"▁Paris": "Paris", "▁go": "go", "▁paris": "paris"}) == {
        "paris": ["▁Paris", "▁paris"],
        "go": ["▁go"],
    }


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs", "Z", "Cc"]), min_size=1), min_size=1, unique=True
    ).filter(lambda symbols: not any(s in SPECIALS or s == "#fairseq:overwrite" for s in symbols))
)
def test_read_symbols_follows_the_file(tmp_path_factory, symbols):
    path = tmp_path_factory.getbasetemp() / "dict.txt"
    path.write_text("".join(f"{s} {n}\n" for n, s in enumerate(symbols)), encoding="utf-8")
    assert read_symbols(path) == ["<s>", "<pad>", "</s>", "<unk>", *symbols]


def test_read_symbols_allows_overwriting(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("a 1\n<s> 5 #fairseq:overwrite\n")
    assert read_symbols(path) == ["<s>", "<pad>", "</s>", "<unk>", "a", "<s>"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"a 1\nb\n", "line 2: expected 'symbol count'"),
        (b"a 1\nb x\n", "line 2: expected 'symbol count'"),
        (b"a 1\nb 1\na 2\n", "line 3: the symbol 'a' occurs twice"),
        (b"<s> 1\n", "line 1: the symbol '<s>' occurs twice"),
        (b"\xff\xfe 1\n", "not UTF-8"),
    ],
)
def test_bad_vocabularies_are_named(tmp_path, content, message):
    path = tmp_path / "dict.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"dict.txt.*{message}"):
        read_symbols(path)


def test_missing_vocabulary_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.txt: No such file"):
        read_symbols(tmp_path / "gone.txt")


@pytest.mark.parametrize(
    ("style", "tokens", "written"),
    [
        ("words", ["the", "##", "dog"], ["the", " ##", " dog"]),
        ("wordpiece", ["##ing", "play", "##ing", "##", "!"], ["##ing", " play", "ing", " ##", " !"]),
        ("subword-nmt", ["pla@@", "ying", "@@", "do@@"], ["pla", "ying", " @@", " do@@"]),
        ("subword-nmt", ["a@@", "b@@", "c", "d"], ["a", "b", "c", " d"]),
        ("sentencepiece", ["▁play", "ing", "▁dog"], [" play", "ing", " dog"]),
        ("gpt2", ["The", "Ġcaf", "Ã©", "</s>", "Ġx"], ["The", " caf", "é", "</s>", " x"]),
        ("gpt2", ["Ã", "©"], ["\ufffd", "\ufffd"]),
        ("gpt2-ids", ["17", "99"], ["17", " 99"]),
        ("wordpiece", [], []),
    ],
)
def test_tokens_are_written_as_text(style, tokens, written):
    assert written_tokens(tokens, style) == written
    assert join_tokens(tokens, style) == "".join(written).strip()
