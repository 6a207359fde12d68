"""Synonyms of the same words, in vocabularies that small tokenizers of each kind have learnt."""

import math

import pytest
from small_tokenizers import train_gpt2, train_sentencepiece, train_subword_nmt, train_wordpiece

from fairseq_tn.cli import main
from fairseq_tn.synonyms.vocabularies import detect_style, read_symbols

WORDS = ["stay", "remain", "rest", "went", "move", "travel", "big", "large", "primary", "main", "principal"]
CASED = [*WORDS, "Big", "Large", "Paris", "city", "capital"]
# what the small WordNet of these tests says, by its definition
LOWER = {
    "stay": {"remain", "rest"},
    "remain": {"stay", "rest"},
    "rest": {"stay", "remain"},
    "went": {"travel", "move"},
    "move": {"travel"},
    "travel": {"move"},
    "big": {"large"},
    "large": {"big"},
    "primary": {"main", "principal"},
    "main": {"primary", "principal"},
    "principal": {"primary", "main"},
}
# went is the past of go, which these vocabularies lack, so nothing has it as a synonym
UPPER = {
    "Big": {"Large"},
    "Large": {"Big"},
    "Paris": {"city", "capital"},
    "city": {"Paris"},
    "capital": {"Paris"},
}


def corpus(words):
    """Sentences in which every word follows every other, often enough to be learnt as a whole."""
    return [" ".join([first, second, first]) for first in words for second in words for _ in range(5)]


def wordpiece(words, folder):
    return [str(train_wordpiece(corpus(words), folder))], str


def sentencepiece(words, folder):
    return [str(train_sentencepiece(corpus(words), folder))], lambda word: "▁" + word


def sentencepiece_bpe(words, folder):
    return [str(train_sentencepiece(corpus(words), folder, model_type="bpe"))], lambda word: "▁" + word


def gpt2_ids(words, folder):
    ids = train_gpt2(corpus(words), folder)
    return [str(folder)], lambda word: str(ids["Ġ" + word])


def subword_nmt(words, folder):
    # the last words are too rare for merges of their own
    codes, vocabulary = train_subword_nmt([*corpus(words), "restless", "mainly", "citizen"], folder)
    return ["subword-nmt", "--codes", str(codes), "--vocabulary", str(vocabulary)], str


def plain_words(words, folder):
    return ["moses", "--keep-case"], str


def write_vectors(words, path):
    """Vectors of lower-case words in which the nearest neighbour of each is the next of its pair."""
    lower = list(dict.fromkeys(word.lower() for word in words))
    with path.open("w") as file:
        for number, word in enumerate(lower):
            angle = number // 2 + 0.1 * (number % 2)
            file.write(f"{word} {math.cos(angle)} {math.sin(angle)}\n")
    return path, {a: b for pair in zip(lower[::2], lower[1::2], strict=False) for a, b in (pair, pair[::-1])}


STYLES = {
    wordpiece: "wordpiece",
    sentencepiece: "sentencepiece",
    sentencepiece_bpe: "sentencepiece",
    gpt2_ids: "gpt2-ids",
    subword_nmt: "subword-nmt",
    plain_words: "words",
}


@pytest.mark.parametrize("cased", [False, True], ids=["lower", "cased"])
@pytest.mark.parametrize("learn", STYLES, ids=lambda learn: learn.__name__)
def test_the_same_words_have_the_same_synonyms(learn, cased, tmp_path, small_wordnet, capsys):
    words = CASED if cased else WORDS
    expected = {**LOWER, **UPPER} if cased else LOWER
    text = tmp_path / "text"
    text.write_text("".join(line + "\n" for line in corpus(words)))
    tokenizer, symbol = learn(words, tmp_path)
    output = tmp_path / "encoded" / "train"
    assert (
        main(["encode", str(text), "--output", str(output), "--workers", "1", "--tokenizer", *tokenizer]) == 0
    )
    dictionary = output.parent / "dict.txt"
    assert detect_style(read_symbols(dictionary)) == STYLES[learn]

    table = tmp_path / "table"
    options = ["--gpt2-encoder", str(tmp_path / "encoder.json")] if learn is gpt2_ids else []
    build = ["synonyms", "build", "--vocab", str(dictionary), "--wordnet", str(small_wordnet)]
    assert main([*build, "--output", str(table), *options]) == 0
    rows = dict(line.split("\t") for line in table.read_text().splitlines() if not line.startswith("# "))
    found = {token: set(synonyms.split(" ")) for token, synonyms in rows.items()}
    for word, synonyms in expected.items():
        assert found[symbol(word)] == {symbol(synonym) for synonym in synonyms}, word

    capsys.readouterr()
    assert main(["synonyms", "show", "primary", "--table", str(table), *options]) == 0
    shown = capsys.readouterr().out
    mark = "▁" if STYLES[learn] == "sentencepiece" else ""
    assert {word.strip(":") for word in shown.split()} == {mark + w for w in ("primary", "main", "principal")}

    # vectors see whole words in the same way
    vectors, nearest = write_vectors(words, tmp_path / "vectors")
    build = [
        "synonyms",
        "build",
        "--vocab",
        str(dictionary),
        "--source",
        "vectors",
        "--vectors",
        str(vectors),
    ]
    assert main([*build, "--neighbours", "1", "--min-cosine", "0.9", "--output", str(table), *options]) == 0
    rows = dict(line.split("\t") for line in table.read_text().splitlines() if not line.startswith("# "))
    for word in words:
        other = nearest.get(word.lower())
        if word[0].isupper() and other is not None and other.capitalize() in words:
            other = other.capitalize()
        elif other not in words:
            other = other and next((w for w in words if w.lower() == other), None)
        assert rows.get(symbol(word)) == (other and symbol(other)), word
