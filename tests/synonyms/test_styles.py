"""Synonyms of the same words, in vocabularies that small tokenizers of each kind have learnt."""

import io
import json

import pytest

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
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(corpus(words), trainer)
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return [str(folder / "vocab.txt")], lambda word: word


def sentencepiece(words, folder, kind="unigram"):
    import sentencepiece

    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(corpus(words)),
        model_writer=content,
        model_type=kind,
        vocab_size=100,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
    )
    (folder / "small.model").write_bytes(content.getvalue())
    return [str(folder / "small.model")], lambda word: "▁" + word


def sentencepiece_bpe(words, folder):
    return sentencepiece(words, folder, "bpe")


def gpt2_files(words, folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus(words), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    (folder / "encoder.json").write_text(json.dumps(model["vocab"]))
    merges = "".join(" ".join(merge) + "\n" for merge in model["merges"])
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    return model["vocab"]


def gpt2_ids(words, folder):
    ids = gpt2_files(words, folder)
    return [str(folder)], lambda word: str(ids["Ġ" + word])


def subword_nmt(words, folder):
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.get_vocab import get_vocab
    from subword_nmt.learn_bpe import learn_bpe

    # the last words are too rare for merges of their own
    text = "\n".join([*corpus(words), "restless", "mainly", "citizen"])
    codes, vocabulary = io.StringIO(), io.StringIO()
    learn_bpe(io.StringIO(text), codes, 500, min_frequency=2)
    segmented = BPE(io.StringIO(codes.getvalue())).segment_tokens(text.split())
    get_vocab(io.StringIO(" ".join(segmented)), vocabulary)
    (folder / "codes").write_text(codes.getvalue(), encoding="utf-8")
    (folder / "vocabulary").write_text(vocabulary.getvalue(), encoding="utf-8")
    return ["subword-nmt", "--codes", str(folder / "codes"), "--vocabulary", str(folder / "vocabulary")], str


def plain_words(words, folder):
    return ["moses", "--keep-case"], str


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
