"""What WordNet says besides synonyms, against NLTK's reader of the same files."""

import shutil

import nltk.data
import pytest
from nltk.corpus.reader.wordnet import WordNetCorpusReader

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.relations import HYPERNYM, HYPONYM, INSTANCE_HYPERNYM, SIMILAR, Relations, Synset
from fairseq_tn.synonyms.wordnet import WordNet

WORDS = [
    ("dog", "noun"), ("car", "noun"), ("Paris", "noun"), ("New York", "noun"), ("go", "verb"), ("large", "adjective"),
    ("first", "adjective"), ("quickly", "adverb"), ("increase", "noun"), ("win", "verb"), ("true", "adjective"),
]  # fmt: skip
LETTERS = {"noun": "n", "verb": "v", "adjective": "a", "adverb": "r"}


@pytest.fixture(scope="module")
def by_nltk(wordnet_folder, tmp_path_factory):
    data = tmp_path_factory.mktemp("nltk_data")
    shutil.copytree(
        wordnet_folder, data / "corpora" / "wordnet", ignore=shutil.ignore_patterns("bin", "pixmaps", "wnres")
    )
    # Debian's files lack it
    names = [f"{number:02d}\tnoun.{number}\t1\n" for number in range(45)]
    (data / "corpora" / "wordnet" / "lexnames").write_text("".join(names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nltk.data, "path", [str(data)])
        yield WordNetCorpusReader(nltk.data.find("corpora/wordnet"), None)


def theirs(reader, word, part):
    return reader.synsets(word.replace(" ", "_"), LETTERS[part])


def key(synset):
    part = {"s": "a"}.get(synset.pos(), synset.pos())
    return part, synset.offset()


def our_key(synset: Synset):
    return LETTERS[synset.part], int(synset.offset)


@pytest.mark.parametrize(("word", "part"), WORDS, ids=[word for word, _ in WORDS])
def test_senses_counts_and_pointers_are_those_of_nltk(relations, by_nltk, word, part):
    ours, expected = relations.senses(word, part), theirs(by_nltk, word, part)
    assert [our_key(synset) for synset in ours] == [key(synset) for synset in expected]
    counts = relations.counts(word, part)
    for synset, other in zip(ours, expected, strict=True):
        assert relations.lemmas(synset) == [name.replace("_", " ") for name in other.lemma_names()]
        for symbol, method in (
            (HYPERNYM, "hypernyms"),
            (HYPONYM, "hyponyms"),
            (INSTANCE_HYPERNYM, "instance_hypernyms"),
            (SIMILAR, "similar_tos"),
        ):
            found = {our_key(one) for one in relations.related(synset, symbol)}
            assert found == {key(one) for one in getattr(other, method)()}
        lemma = next(one for one in other.lemmas() if one.name().lower() == word.lower().replace(" ", "_"))
        assert relations.antonyms(word, synset) == [one.name() for one in lemma.antonyms()]
        # Debian has renamed the heads of some satellites, by which NLTK finds their counts
        if other.pos() != "s":
            assert counts.get(synset, 0) == lemma.count()


def test_neighbours_below_the_same_concept(relations):
    (paris, *_) = relations.senses("Paris", "noun")
    capitals = {relations.lemmas(synset)[0] for synset in relations.co_hyponyms(paris)}
    assert {"Vienna", "Rome"} <= capitals
    assert paris not in relations.co_hyponyms(paris)


def test_base_forms_of_inflected_words(relations):
    assert relations.base_form("works", "noun") == "works"
    assert relations.base_form("works", "noun", inflected=True) == "work"
    assert relations.base_form("went", "verb") == "go"
    assert relations.base_form("xyzzy", "noun") is None
    assert relations.knows_any("quickly")
    assert not relations.knows_any("xyzzy")


def test_missing_or_damaged_counts_are_named(small_wordnet, tmp_path):
    folder = shutil.copytree(small_wordnet, tmp_path / "wordnet")
    with pytest.raises(UserError, match=r"cntlist\.rev"):
        Relations(WordNet(folder))
    (folder / "cntlist.rev").write_text("dog%9:00:00:: 1 3\n")
    with pytest.raises(UserError, match=r"cntlist\.rev, line 1, is damaged"):
        Relations(WordNet(folder))
    (folder / "cntlist.rev").write_text("dog%1:00:00:: 1 3\n")
    found = Relations(WordNet(folder))
    assert found.counts("dog", "noun") == {found.senses("dog", "noun")[0]: 3}
