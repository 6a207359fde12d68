"""Pieces of single tokens, for every kind of tokenizer."""

import numpy as np
import pytest
from small_tokenizers import train_gpt2, train_sentencepiece, train_subword_nmt, train_wordpiece

from fairseq_tn.data.encoders import EncoderOptions, load_encoder
from fairseq_tn.data.token_pieces import PieceTable, pieces_of_tokens

LINES = ["the house is big and old", "the houses are bigger", "中国 人民 日报"] * 20
TOKENS = ["house", "houses", "the", "中", "国", ".", "a", "中国", "big-old"]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folders = {name: tmp_path_factory.mktemp(name) for name in ("wordpiece", "sentencepiece", "gpt2", "bpe")}
    train_gpt2(LINES, folders["gpt2"])
    codes, vocabulary = train_subword_nmt(LINES, folders["bpe"], 20)
    options = EncoderOptions(codes=str(codes), vocabulary=str(vocabulary))
    return {
        "wordpiece": load_encoder(str(train_wordpiece(LINES, folders["wordpiece"], 80))),
        "sentencepiece": load_encoder(str(train_sentencepiece(LINES, folders["sentencepiece"], 50))),
        "gpt2": load_encoder(str(folders["gpt2"])),
        "subword-nmt": load_encoder("subword-nmt", options),
        "moses": load_encoder("moses"),
        "words": load_encoder("words"),
    }


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece", "gpt2", "subword-nmt", "moses", "words"])
def test_pieces_are_those_of_the_token_within_a_sentence(kind, encoders):
    encoder = encoders[kind]
    for token, pieces in zip(TOKENS, pieces_of_tokens(encoder, TOKENS), strict=True):
        (before,), (both,) = encoder.encode(["is"]), encoder.encode([f"is {token}"])
        within = both[len(before) :]
        # the mark that a word starts is left out where it is a piece of its own
        alone = (encoder.token(within[0]) if kind == "gpt2" else within[0]) in ("▁", "Ġ")
        assert pieces == within[alone:], token


def test_the_mark_of_a_word_start_is_no_piece(encoders):
    assert pieces_of_tokens(encoders["sentencepiece"], ["中", "house"])[0] == ["中"]
    (chinese, english) = pieces_of_tokens(encoders["gpt2"], ["中", "house"])
    letters = [encoders["gpt2"].token(piece) for piece in chinese]
    assert letters[0] != "Ġ"
    assert "".join(encoders["gpt2"].token(piece) for piece in english) == "Ġhouse"


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece", "words"])
def test_what_the_tokenizer_drops_or_lacks_is_unknown(kind, encoders):
    dropped, lacking = pieces_of_tokens(encoders[kind], ["\x01" if kind != "words" else "<s>", "𠮷"])
    assert dropped == ["<unk>"]
    assert lacking == (["𠮷"] if kind == "words" else ["<unk>"])


def test_a_token_of_several_words(encoders):
    assert pieces_of_tokens(encoders["words"], ["New York"]) == [["New", "York"]]


def test_table_spells_as_loops_do():
    rng = np.random.default_rng(0)
    pieces = [rng.integers(4, 99, rng.integers(1, 4)).tolist() for _ in range(30)]
    table = PieceTable(pieces)
    tokens = rng.integers(0, 30, 200)
    flat, first = table.spell(tokens)
    assert flat.tolist() == [piece for token in tokens for piece in pieces[token]]
    assert flat[first].tolist() == [pieces[token][0] for token in tokens]
