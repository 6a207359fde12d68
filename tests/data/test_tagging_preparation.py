"""The data folder of token_tagging: what is in it is what the text says."""

import itertools
import random

import numpy as np
import pytest
from small_tagging import Sentence, prepare, sentences, write_conll, write_words
from small_tokenizers import train_wordpiece

from fairseq_tn.data.tagging import NO_TAG, TaggingDataset
from fairseq_tn.data.tagging_folder import TaggingFacts
from fairseq_tn.errors import UserError
from fairseq_tn.tasks.fine_tuning import load_dictionary


def load(folder, split):
    facts, dictionary = TaggingFacts.read(folder), load_dictionary(str(folder))
    return TaggingDataset(str(folder), split, facts, dictionary, train=split == "train"), facts, dictionary


def read(folder, split):
    """The sequences as text: lists of (pieces of a token, tag)."""
    dataset, facts, dictionary = load(folder, split)
    names = [*facts.labels, *facts.others]
    found = []
    for index in range(len(dataset)):
        item = dataset[index]
        tokens = [dictionary[token] for token in item["tokens"]]
        assert (tokens[0], tokens[-1]) == ("<s>", "</s>")
        assert len(tokens) == dataset.num_tokens(index) <= facts.longest[split]
        edges = [*item["starts"].tolist(), len(tokens) - 1]
        assert edges[0] == 1
        pieces = [tokens[a:b] for a, b in itertools.pairwise(edges)]
        found.append(list(zip(pieces, [names[tag] for tag in item["tags"]], strict=True)))
    return found


def test_pieces_and_tags_of_words_in_several_pieces(tmp_path):
    texts: dict[str, list[Sentence]] = {
        split: [
            [("houses", "O"), ("of", "O"), ("Berlin", "B-LOC"), ("City", "I-LOC"), ("𠮷", "O")],
            [("\x01", "B-LOC"), ("of", "O")],
        ]
        for split in ("train", "valid")
    }
    vocabulary = tmp_path / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "house", "##s", "of", "ber", "##lin", "city"]
    vocabulary.write_text("".join(token + "\n" for token in tokens))
    files = {split: write_conll(tmp_path / split, text) for split, text in texts.items()}
    report = prepare(tmp_path / "data", str(vocabulary), **files)
    expected = [
        [
            (["house", "##s"], "O"),
            (["of"], "O"),
            (["ber", "##lin"], "B-LOC"),
            (["city"], "I-LOC"),
            (["<unk>"], "O"),
        ],
        [(["<unk>"], "B-LOC"), (["of"], "O")],
    ]
    assert read(tmp_path / "data", "train") == read(tmp_path / "data", "valid") == expected
    split = report.splits["train"]
    assert (split.sentences, split.tokens, split.pieces, split.unknown, split.entities) == (2, 7, 9, 2, 2)
    assert report.labels == ("O", "B-LOC", "I-LOC")


@pytest.mark.parametrize("limit", [6, 9, 14])
def test_long_sentences_are_cut_between_entities_and_nothing_is_lost(limit, tmp_path):
    text = sentences(30, seed=limit, longest=25)
    files = {split: write_conll(tmp_path / split, text) for split in ("train", "valid")}
    report = prepare(tmp_path / "data", **files, max_tokens=limit)
    parts = read(tmp_path / "data", "train")
    assert max(map(len, parts)) <= limit - 2
    assert all(part[0][1][0] != "I" for part in parts)
    whole = [([token], tag) for sentence in text for token, tag in sentence]
    assert list(itertools.chain(*parts)) == whole
    assert list(itertools.chain(*read(tmp_path / "data", "valid"))) == whole
    train = report.splits["train"]
    assert train.cut == sum(len(sentence) > limit - 2 for sentence in text) > 0
    assert train.broken == 0
    assert train.sequences == len(parts)
    # a part is as long as it can be: what follows would not fit, or is parted from it by an entity
    assert sum(map(len, parts)) / len(parts) > 0.4 * (limit - 2)


def test_an_entity_longer_than_a_sequence_is_parted(tmp_path):
    text: list[Sentence] = [[("a", "B-X"), *[("a", "I-X")] * 9]]
    files = {split: write_conll(tmp_path / split, text) for split in ("train", "valid")}
    report = prepare(tmp_path / "data", **files, max_tokens=6)
    assert [len(part) for part in read(tmp_path / "data", "train")] == [4, 4, 2]
    assert report.splits["train"].broken == 2


def test_the_tags_of_other_splits_do_not_say_where_to_cut(tmp_path):
    tokens = random.Random(0).choices("abc,", k=60)
    tagged = [(token, "B-X" if n % 3 == 0 else "I-X") for n, token in enumerate(tokens)]
    files = {
        "train": write_conll(tmp_path / "train", [[("a", "B-X"), ("b", "I-X"), ("c", "O"), (",", "O")]]),
        "valid": write_conll(tmp_path / "valid", [tagged]),
        "test": write_conll(tmp_path / "test", [[(token, "O") for token in tokens]]),
    }
    report = prepare(tmp_path / "data", **files, max_tokens=12)
    valid, test = (load(tmp_path / "data", split)[0] for split in ("valid", "test"))
    assert valid.sizes.tolist() == test.sizes.tolist()
    assert report.splits["valid"].broken > 0


def test_sentences_are_cut_behind_punctuation_if_that_wastes_less_than_half(tmp_path):
    words = ["a", "b", "c", "d", "e", ",", "f", "g", "h", ",", "i", "j", "k", "l", "m", "n"]
    text: list[Sentence] = [[(word, "O") for word in words], [("a", "B-X")]]
    files = {split: write_conll(tmp_path / split, text) for split in ("train", "valid")}
    prepare(tmp_path / "data", **files, max_tokens=10)
    parts = [
        "".join(piece for pieces, _ in part for piece in pieces) for part in read(tmp_path / "data", "train")
    ]
    # the second comma stands too early in its part
    assert parts == ["abcde,", "fgh,ijkl"[:4] + "ijkl", "mn", "a"]


def test_a_token_of_more_pieces_than_a_sequence_has_room_for(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "c"]
    vocabulary.write_text("".join(token + "\n" for token in tokens))
    text: list[Sentence] = [[("abbbbbb", "B-X"), ("c", "O")]]
    files = {split: write_conll(tmp_path / split, text) for split in ("train", "valid")}
    prepare(tmp_path / "data", str(vocabulary), **files, max_tokens=5)
    assert read(tmp_path / "data", "train") == [[(["a", "##b", "##b"], "B-X")], [(["c"], "O")]]


def test_a_development_set_is_split_off(tmp_path):
    text = sentences(50, seed=3)
    train = write_conll(tmp_path / "train", text)
    report = prepare(tmp_path / "data", train=train)
    assert report.split_off
    assert [report.splits[name].sentences for name in ("train", "valid")] == [45, 5]
    key = lambda part: [(pieces[0], tag) for pieces, tag in part]  # noqa: E731
    parts = {split: list(map(key, read(tmp_path / "data", split))) for split in ("train", "valid")}
    assert sorted(parts["train"] + parts["valid"]) == sorted(text)
    places = [text.index(sentence) for sentence in parts["valid"]]
    assert places == sorted(places) != list(range(45, 50))
    lines = (tmp_path / "data" / "valid.txt").read_text().strip().split("\n\n")
    assert [[tuple(line.split(" ")) for line in block.split("\n")] for block in lines] == parts["valid"]
    # the seed decides, and it alone
    for seed, same in ((1, True), (2, False)):
        prepare(tmp_path / "again", train=train, seed=seed)
        assert (read(tmp_path / "again", "valid") == read(tmp_path / "data", "valid")) is same
    assert prepare(tmp_path / "half", train=train, valid_share=0.5).splits["valid"].sentences == 25
    with_valid = prepare(tmp_path / "given", train=train, valid=train)
    assert not with_valid.split_off
    assert with_valid.splits["train"].sentences == 50


def test_halves_of_characters_are_counted_once(tmp_path):
    lines = [b"a\tB-X\n\n"] * 19 + [b"\xed\xa0\xbd\tO\n\xed\xb2\x8b\tO\n\n"]
    (tmp_path / "t.txt").write_bytes(b"".join(lines))
    report = prepare(tmp_path / "data", train=tmp_path / "t.txt")
    assert {name: split.halves for name, split in report.splits.items()} == {"train": 2, "valid": 0}


def test_labels_are_those_of_the_training_set(tmp_path):
    files = {
        "train": write_conll(tmp_path / "train", [[("a", "B-X"), ("b", "O")]]),
        "valid": write_conll(tmp_path / "valid", [[("a", "B-X")]]),
        "test": write_conll(tmp_path / "test", [[("a", "B-Y"), ("a", "I-Y"), ("a", "I-Y"), ("b", "B-X")]]),
    }
    report = prepare(tmp_path / "data", **files)
    facts = TaggingFacts.read(tmp_path / "data")
    assert facts.labels == report.labels == ("O", "B-X")
    assert facts.others == ("B-Y", "I-Y")
    assert dict(report.splits["test"].unseen) == {"B-Y": 1, "I-Y": 2}
    assert not report.splits["valid"].unseen
    assert [tag for _, tag in read(tmp_path / "data", "test")[0]] == ["B-Y", "I-Y", "I-Y", "B-X"]


def test_invalid_tags_are_repaired_where_they_are_used_and_shown(tmp_path):
    text: list[Sentence] = [
        [("a", "B-X")],
        [("a", "O"), ("b", "I-X"), ("c", "I-X"), ("a", "B-X"), ("b", "I-Y")],
    ]
    files = {split: write_conll(tmp_path / split, text) for split in ("train", "valid")}
    report = prepare(tmp_path / "data", **files)
    assert report.scheme == "iob2"
    assert report.splits["train"].repaired == 2
    assert report.splits["train"].repaired_at == f"{tmp_path / 'train'}, line 4"
    assert [tag for _, tag in read(tmp_path / "data", "train")[1]] == ["O", "B-X", "I-X", "B-X", "B-Y"]
    assert (tmp_path / "data" / "valid.txt").read_text() == "a B-X\n\na O\nb B-X\nc I-X\na B-X\nb B-Y\n"
    with pytest.raises(UserError, match=r"train, line 4: the tag 'I-X' does not follow the scheme iob2"):
        prepare(tmp_path / "other", **files, repair_tags=False)
    assert not (tmp_path / "other").exists()


def test_iob1_is_written_as_iob2(tmp_path):
    text: list[Sentence] = [[("a", "I-X"), ("b", "I-X"), ("c", "B-X"), ("a", "O"), ("b", "I-Y")]]
    files = {split: write_conll(tmp_path / split, text) for split in ("train", "valid")}
    report = prepare(tmp_path / "data", **files)
    assert report.scheme == "iob1"
    assert report.splits["train"].repaired == 0
    assert [tag for _, tag in read(tmp_path / "data", "train")[0]] == ["B-X", "I-X", "B-X", "O", "B-Y"]
    assert TaggingFacts.read(tmp_path / "data").scheme == "iob2"


def test_word_segmentation(tmp_path):
    (tmp_path / "train").write_text("共同  创造\n美好  的\n")
    (tmp_path / "valid").write_text("共同  的\n")
    report = prepare(tmp_path / "data", train=tmp_path / "train", valid=tmp_path / "valid")
    assert report.labels == ("B", "E", "M", "S")
    assert read(tmp_path / "data", "valid") == [[(["共"], "B"), (["同"], "E"), (["的"], "S")]]
    assert sorted((tmp_path / "data" / "words.txt").read_text().split()) == sorted(
        ["共同", "创造", "美好", "的"]
    )
    assert report.splits["train"].entities == 4


def test_the_words_of_a_training_text_stay_known_when_a_part_is_split_off(tmp_path):
    train = write_words(tmp_path / "train", 30, seed=1)
    prepare(tmp_path / "data", train=train)
    assert set((tmp_path / "data" / "words.txt").read_text().split()) == set(train.read_text().split())


def test_the_dictionary_of_words_is_that_of_the_training_part(tmp_path):
    files = {
        "train": write_conll(tmp_path / "train", [[("a", "B-X"), ("b", "O"), ("a", "O")]]),
        "valid": write_conll(tmp_path / "valid", [[("a", "B-X"), ("c", "O")]]),
    }
    report = prepare(tmp_path / "data", **files)
    assert (tmp_path / "data" / "dict.txt").read_text() == "a 2\nb 1\n"
    assert report.splits["valid"].unknown == 1
    assert read(tmp_path / "data", "valid") == [[(["a"], "B-X"), (["<unk>"], "O")]]


def test_a_tokenizers_dictionary_is_kept(tmp_path):
    vocabulary = train_wordpiece(["a b c d"] * 9, tmp_path, 40)
    train = write_conll(tmp_path / "train", sentences(20, 1))
    prepare(tmp_path / "data", str(vocabulary), train=train)
    kept = [line.split(" ")[0] for line in (tmp_path / "data" / "dict.txt").read_text().splitlines()]
    assert kept == [token for token in vocabulary.read_text().splitlines() if token[0] != "["]


@pytest.mark.parametrize(
    ("train", "test", "options", "message"),
    [
        (
            "a B-X\nb M-X\nc I-X\n",
            "",
            {},
            "train, line 3: the tag 'I-X' and the tags before it are of no one scheme",
        ),
        ("a B-X\nb I-X\n", "a B-X\nb E-X\nc M-X\n", {}, "test, line 3"),
        ("a B-X\nb I-X\n", "a O\n\nb PER\n", {}, "test, line 3: the tag 'PER' has no prefix"),
        ("a B-X\nb E-X\n", "", {"scheme": "iob2"}, "train, line 2: the tag 'E-X' is none of the scheme iob2"),
        ("a O\n\nb O\n", "", {}, "has no entity"),
        ("a B-X\n", "", {"max_tokens": 2}, "--max-tokens is 2"),
    ],
)
def test_bad_input_leaves_nothing_behind(train, test, options, message, tmp_path):
    files = {"train": tmp_path / "train", "valid": tmp_path / "valid"}
    files["train"].write_text(train)
    files["valid"].write_text("a O\n")
    if test:
        files["test"] = tmp_path / "test"
        files["test"].write_text(test)
    with pytest.raises(UserError, match=message):
        prepare(tmp_path / "data", **files, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


def test_one_sentence_is_too_little_to_split_off(tmp_path):
    with pytest.raises(UserError, match="give --valid"):
        prepare(tmp_path / "data", train=write_conll(tmp_path / "train", [[("a", "B-X")]]))


# --- the data set -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("tagging")
    files = {
        split: write_conll(place / split, sentences(20, seed))
        for seed, split in enumerate(("train", "valid"))
    }
    prepare(place / "data", **files)
    return place / "data"


def test_a_batch_says_what_its_sequences_say(folder):
    dataset, _, dictionary = load(folder, "train")
    items = [dataset[index] for index in (3, 0, 7, 7)]
    batch = dataset.collater(items)
    tokens, starts, target = (batch[name] for name in ("starts", "starts", "target"))
    tokens = batch["net_input"]["src_tokens"]
    for row, item in enumerate(items):
        length, words = len(item["tokens"]), len(item["starts"])
        assert tokens[row, :length].tolist() == item["tokens"].tolist()
        assert set(tokens[row, length:].tolist()) <= {dictionary.pad()}
        assert starts[row, :words].tolist() == item["starts"].tolist()
        assert target[row, :words].tolist() == item["tags"].tolist()
        assert set(target[row, words:].tolist()) <= {NO_TAG}
    assert batch["ntags"] == sum(len(item["tags"]) for item in items)
    assert batch["ntokens"] == sum(len(item["tokens"]) for item in items)
    assert dataset.collater([]) == {}


def test_a_batch_of_single_tokens_has_room_for_a_transition(tmp_path):
    text: list[Sentence] = [[("a", "B-X")], [("b", "O")]]
    files = {split: write_conll(tmp_path / split, text) for split in ("train", "valid")}
    prepare(tmp_path / "data", **files)
    dataset, _, _ = load(tmp_path / "data", "train")
    assert dataset.collater([dataset[0]])["target"].tolist() == [[1, NO_TAG]]


def test_the_order_of_equal_lengths_changes_with_the_epoch_in_training(folder):
    train, _, _ = load(folder, "train")
    first = train.ordered_indices()
    train.set_epoch(2)
    second = train.ordered_indices()
    assert first.tolist() != second.tolist()
    assert train.sizes[first].tolist() == train.sizes[second].tolist() == sorted(train.sizes)
    valid, _, _ = load(folder, "valid")
    before = valid.ordered_indices()
    valid.set_epoch(2)
    assert np.array_equal(before, valid.ordered_indices())


def test_no_sequence_is_left_out_of_the_batches(folder):
    dataset, _, _ = load(folder, "train")
    batches = dataset.batch_by_size(
        dataset.ordered_indices(), max_sentences=16, required_batch_size_multiple=8
    )
    assert sorted(np.concatenate(batches)) == list(range(len(dataset)))


def test_a_split_that_was_not_prepared(folder):
    with pytest.raises(UserError, match="has no split 'test', only train, valid"):
        load(folder, "test")


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match="json is missing"):
        TaggingFacts.read(tmp_path)
    (tmp_path / "tagging.json").write_text('{"version": 1, "scheme": "iob7"}')
    with pytest.raises(UserError, match="damaged or of another version"):
        TaggingFacts.read(tmp_path)


def test_files_of_two_preparations_are_refused(folder, tmp_path):
    prepare(tmp_path / "other", train=write_conll(tmp_path / "train", sentences(30, 5)))
    for name in ("train.tags.bin", "train.tags.idx"):
        (tmp_path / "other" / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(UserError, match="do not belong together"):
        load(tmp_path / "other", "train")
