import shutil
import socket
import subprocess
import sys
import zipfile

import nltk.data
import pytest
from nltk.corpus.reader.wordnet import WordNetCorpusReader

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms import build_from_wordnet, wordnet
from fairseq_tn.synonyms.wordnet import WordNet, find_wordnet, locate_wordnet


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk_data")])
    monkeypatch.setattr(wordnet, "DEBIAN_FOLDER", tmp_path / "debian")
    return tmp_path


@pytest.fixture(scope="module")
def by_nltk(small_wordnet, tmp_path_factory):
    """NLTK's reader of the small WordNet."""
    data = tmp_path_factory.mktemp("nltk_data")
    shutil.copytree(small_wordnet, data / "corpora" / "wordnet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nltk.data, "path", [str(data)])
        yield WordNetCorpusReader(nltk.data.find("corpora/wordnet"), None)


@pytest.fixture(scope="module")
def small(small_wordnet):
    return WordNet(small_wordnet)


def lemmas_by_nltk(reader, word):
    return list(dict.fromkeys(name for synset in reader.synsets(word) for name in synset.lemma_names()))


WORDS = [
    "dog",
    "stay",
    "paris",
    "man",
    "go",
    "big",
    "primary",
    "galore",
    "quickly",
    "city",
    "chase",
    "rest",
    "men",
    "went",
    "wom",
    "chas",
    "mov",
    "larg",
]
ENDINGS = ["", "s", "es", "ed", "d", "ing", "er", "est", "men", "ies", "ves"]


@pytest.mark.filterwarnings("ignore:The multilingual functions")
def test_synonyms_are_those_of_nltk(small, by_nltk):
    forms = [word + ending for word in WORDS for ending in ENDINGS]
    forms += [form.capitalize() for form in forms]
    ours = {form: small.synonyms(form) for form in forms}
    assert ours == {form: lemmas_by_nltk(by_nltk, form) for form in forms}
    assert sum(map(bool, ours.values())) > 100  # most forms would be unknown if the rules were not applied


def test_known_synonyms(small):
    assert small.synonyms("primary") == ["primary", "main", "principal"]  # without the marker of main(a)
    assert small.synonyms("dogs") == ["dog", "hound", "chase"]
    assert small.synonyms("went") == ["go", "travel", "move"]
    assert small.synonyms("men") == ["man", "adult_male", "fellow"]
    assert small.synonyms("paris") == ["Paris", "City_of_Light", "capital", "city"]
    assert small.synonyms("hounds", exact_lemmas=True) == []
    assert small.synonyms("dog", exact_lemmas=True) == ["dog", "hound", "chase"]
    assert small.version == "3.0"


TOKENS = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    "[unused0]",
    "stay",
    "remain",
    "##rest",
    "rest",
    "went",
    "travel",
    "move",
]


def test_only_whole_words_of_the_vocabulary(small):
    table = build_from_wordnet([*TOKENS, "<mask>"], small)
    assert {token: table.synonyms(token) for token in table.tokens} == {
        "stay": ["remain", "rest"],
        "remain": ["stay", "rest"],
        "rest": ["stay", "remain"],
        "went": ["travel", "move"],
        "travel": ["move"],
        "move": ["travel"],
    }
    exact = build_from_wordnet(TOKENS, small, exact_lemmas=True)
    assert exact.synonyms("went") == []
    assert exact.synonyms("travel") == ["move"]
    assert table.header["source"] == "WordNet 3.0"
    assert table.header["options"] == "Morphy, wordpiece vocabulary"
    assert exact.header["options"] == "exact lemmas, wordpiece vocabulary"
    assert table.header["vocabulary"] == exact.header["vocabulary"]


def test_cased_vocabulary(small):
    tokens = [
        "Stay",
        "stay",
        "Remain",
        "remain",
        "REMAIN",
        "Paris",
        "city",
        "capital",
        "paris",
        "Dogs",
        "Hound",
    ]
    table = build_from_wordnet(tokens, small)
    assert table.synonyms("stay") == ["remain"]
    assert table.synonyms("Stay") == ["Remain"]
    assert table.synonyms("REMAIN") == ["stay"]  # no STAY, so as WordNet writes it
    assert table.synonyms("city") == ["Paris"]
    assert table.synonyms("Paris") == ["capital", "city"]  # the only writing, and not paris
    assert table.synonyms("Dogs") == ["Hound"]


def test_other_ways_of_writing_words(small):
    pieces = build_from_wordnet(["▁stay", "remain", "▁remain", "▁", "ing"], small)
    assert {t: pieces.synonyms(t) for t in pieces.tokens} == {"▁stay": ["▁remain"], "▁remain": ["▁stay"]}
    bpe = build_from_wordnet(["stay", "remain@@", "rest"], small)
    assert {t: bpe.synonyms(t) for t in bpe.tokens} == {"stay": ["rest"], "rest": ["stay"]}
    ids = build_from_wordnet(["5", "6"], small, gpt2_tokens={"5": "Ġstay", "6": "Ġrest", "7": "Ġremain"})
    assert {t: ids.synonyms(t) for t in ids.tokens} == {"5": ["6"], "6": ["5"]}


def test_vocabulary_of_another_language(small):
    table = build_from_wordnet(["家", "狗", "##人"], small)
    assert (len(table), table.num_pairs) == (0, 0)


@pytest.mark.parametrize(("exact", "tokens", "pairs"), [(True, 8175, 27904), (False, 13464, 60148)])
def test_counts_for_bert_base_uncased(minilm_folder, wordnet_folder, exact, tokens, pairs):
    vocabulary = (minilm_folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    table = build_from_wordnet(vocabulary, wordnet_folder, exact_lemmas=exact)
    assert (len(table), table.num_pairs) == (tokens, pairs)
    assert "main" in table.synonyms("primary")
    assert "remain" in table.synonyms("stay")
    found = {(token, other) for token in table.tokens for other in table.synonyms(token)}
    assert len(found) == pairs
    if exact:
        assert found == {(other, token) for token, other in found}


def test_order_of_search(nothing_installed, small_wordnet):
    assert locate_wordnet() is None
    shutil.copytree(small_wordnet, nothing_installed / "debian")
    assert locate_wordnet() == nothing_installed / "debian"
    nltk_folder = nothing_installed / "nltk_data" / "corpora" / "wordnet"
    shutil.copytree(small_wordnet, nltk_folder)
    assert locate_wordnet() == nltk_folder
    (nltk_folder / "data.adv").unlink()
    assert find_wordnet().folder == nothing_installed / "debian"


def test_debian_files_suffice(small_wordnet, tmp_path):
    shutil.copytree(small_wordnet, tmp_path / "wordnet")
    for name in ("lexnames", "index.sense"):
        (tmp_path / "wordnet" / name).unlink()
    assert find_wordnet(tmp_path / "wordnet").synonyms("hound") == ["dog", "hound"]


@pytest.mark.parametrize("given", ["nltk_data", "nltk_data/corpora", "nltk_data/corpora/wordnet.zip"])
def test_archive_of_nltk(nothing_installed, small_wordnet, given):
    archive = nothing_installed / "nltk_data" / "corpora" / "wordnet.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in small_wordnet.iterdir():
            file.write(path, f"wordnet/{path.name}")
    assert find_wordnet(nothing_installed / given).synonyms("hound") == ["dog", "hound"]
    assert find_wordnet().version == "3.0"


def test_not_found_names_the_three_ways(nothing_installed):
    with pytest.raises(UserError, match=r"nltk\.downloader wordnet.*apt-get install wordnet-base.*--wordnet"):
        find_wordnet(download=False)


def test_given_folder_without_wordnet_is_named(tmp_path, small_wordnet):
    shutil.copytree(small_wordnet, tmp_path / "wordnet")
    (tmp_path / "wordnet" / "verb.exc").unlink()
    with pytest.raises(UserError, match=r"no WordNet in .*wordnet \(it lacks verb\.exc\)"):
        find_wordnet(tmp_path / "wordnet")


def test_unreachable_server_is_given_up(nothing_installed, monkeypatch):
    from nltk.downloader import Downloader

    monkeypatch.setattr(wordnet, "_CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # accepts connections and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/index.xml"
        monkeypatch.setattr(Downloader, "DEFAULT_URL", url)
        with pytest.raises(UserError, match="WordNet not found"):
            find_wordnet()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("index.noun", "dog n x"),
        ("index.noun", "dog n 2 1 @ 2 0 00000001"),
        ("data.verb", "00000123 00 v 03 dog 0"),
        ("data.verb", "00000123"),
    ],
)
def test_damaged_files_are_named(tmp_path, small_wordnet, name, line):
    shutil.copytree(small_wordnet, tmp_path / "wordnet")
    path = tmp_path / "wordnet" / name
    number = len(path.read_text().splitlines()) + 1
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(UserError, match=f"{name}, line {number}, is damaged"):
        find_wordnet(tmp_path / "wordnet")


def test_truncated_data_are_named(tmp_path, small_wordnet):
    shutil.copytree(small_wordnet, tmp_path / "wordnet")
    path = tmp_path / "wordnet" / "data.adv"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    source = find_wordnet(tmp_path / "wordnet")
    with pytest.raises(UserError, match=r"data\.adv lacks the synset"):
        source.synonyms("rapidly")


def test_the_package_needs_no_fairseq():
    code = (
        "import sys, fairseq_tn.synonyms as s; assert 'torch' not in sys.modules; "
        "s.build_from_wordnet; assert 'fairseq' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
