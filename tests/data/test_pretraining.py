import math
import pickle

import numpy as np
import pytest
import torch
from corpus import make_corpus, random_documents, write_dict, write_split
from fairseq.data import Dictionary, FairseqDataset, iterators

from fairseq_tn.data.corpus import Corpus
from fairseq_tn.data.masking import Masker
from fairseq_tn.data.pretraining import PretrainingDataset
from fairseq_tn.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"), symbols=["madeupword0000"])


@pytest.fixture(scope="module")
def dictionary(folder):
    loaded = Dictionary.load(str(folder / "dict.txt"))
    loaded.add_symbol("<mask>")
    return loaded


@pytest.fixture
def build(folder, dictionary):
    masker = Masker.for_vocabulary(dictionary.symbols, dictionary.nspecial, dictionary.index("<mask>"))
    corpus = Corpus(str(folder / "train"), dictionary)

    def build(**options) -> PretrainingDataset:
        return PretrainingDataset(corpus, masker, **{"tokens_per_sample": 32, **options})

    return build


def text(dictionary, tokens):
    return [dictionary[token] for token in tokens]


def plain(item):
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in item.items()}


def test_pairs_are_text_of_the_corpus(build, dictionary):
    """Each segment is a run of tokens of one document; of the same one, and in order, unless labelled otherwise."""
    documents = [[token for line in document for token in line] for document in random_documents(40, seed=1)]

    def where(segment):
        found = set()
        for number, document in enumerate(documents):
            for start in range(len(document) - len(segment) + 1):
                if document[start : start + len(segment)] == segment:
                    found.add((number, start))
        return found

    dataset = build()
    for index in range(len(dataset)):
        item = dataset[index]
        words = text(dictionary, item["source"])
        assert len(words) == dataset.sizes[index] == dataset.size(index) == dataset.num_tokens(index)
        assert words[0] == "<s>"
        assert words[-1] == "</s>"
        middle = words.index("</s>")
        assert words.count("</s>") == 2
        first, second = where(words[1:middle]), where(words[middle + 1 : -1])
        assert first
        assert second
        if item["label"]:
            assert any(a != b for a, _ in first for b, _ in second)
        else:
            assert any(a == b and j >= i + middle - 1 for a, i in first for b, j in second)


def test_blocks_are_the_corpus(build, dictionary):
    dataset = build(nsp=False)
    words = []
    for index in range(len(dataset)):
        block = text(dictionary, dataset[index]["source"])
        assert (block[0], block[-1]) == ("<s>", "</s>")
        assert "label" not in dataset[index]
        words += block[1:-1]
    assert words == [
        token for document in random_documents(40, seed=1) for line in document for token in line
    ]


@pytest.mark.parametrize("nsp", [True, False])
def test_batch(build, dictionary, nsp):
    dataset = build(nsp=nsp)
    samples = [dataset[index] for index in (5, 0, 9, 3)]
    batch = dataset.collater(samples)
    width = max(len(sample["source"]) for sample in samples)
    pad, eos = dictionary.pad(), dictionary.eos()
    assert batch["id"].tolist() == [5, 0, 9, 3]
    assert batch["nsentences"] == 4
    assert batch["ntokens"] == sum(len(sample["source"]) for sample in samples)
    assert batch["max_selected"] == max(len(sample["selected"]) for sample in samples)
    assert isinstance(batch["ntokens"], int)
    assert isinstance(batch["max_selected"], int)
    for key in ("source", "target"):
        assert batch[key].shape == (4, width)
        assert batch[key].dtype == torch.int64
    tokens, lengths = batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"]
    for row, sample in enumerate(samples):
        length = len(sample["source"])
        assert lengths[row] == length
        assert tokens[row, :length].tolist() == sample["masked"].tolist()
        assert batch["source"][row, :length].tolist() == sample["source"].tolist()
        assert batch["source"][row, length - 1] == eos
        for padded in (tokens, batch["source"], batch["target"]):
            assert (padded[row, length:] == pad).all()
        gold = [t if i in sample["selected"] else pad for i, t in enumerate(sample["source"].tolist())]
        assert batch["target"][row, :length].tolist() == gold
    assert batch["selected"].dtype == torch.int64
    assert batch["selected"].tolist() == batch["target"].flatten().ne(pad).nonzero().squeeze(1).tolist()
    if nsp:
        assert batch["sentence_target"].tolist() == [sample["label"] for sample in samples]
    else:
        assert "sentence_target" not in batch
    assert dataset.collater([]) == {}


def test_epochs_change_training_data_and_return(build):
    dataset = build()
    first = [plain(dataset[index]) for index in range(len(dataset))]
    order = dataset.ordered_indices().tolist()
    dataset.set_epoch(2)
    assert [plain(dataset[index]) for index in range(len(dataset))] != first
    assert dataset.ordered_indices().tolist() != order
    dataset.set_epoch(1)
    assert [plain(dataset[index]) for index in range(len(dataset))] == first
    assert dataset.ordered_indices().tolist() == order
    # a resumed run begins in a later epoch
    resumed = build(epoch=2)
    dataset.set_epoch(2)
    assert [plain(resumed[i]) for i in range(len(resumed))] == [
        plain(dataset[i]) for i in range(len(dataset))
    ]
    assert not dataset.can_reuse_epoch_itr_across_epochs


def test_blocks_get_new_masks_each_epoch(build):
    dataset = build(nsp=False)
    first = plain(dataset[4])
    dataset.set_epoch(2)
    assert plain(dataset[4])["source"] == first["source"]
    assert plain(dataset[4])["selected"] != first["selected"]


def test_validation_data_stay(build):
    dataset = build(train=False, epoch=3)
    first = [plain(dataset[index]) for index in range(len(dataset))]
    order = dataset.ordered_indices().tolist()
    dataset.set_epoch(7)
    assert [plain(dataset[index]) for index in range(len(dataset))] == first
    assert dataset.ordered_indices().tolist() == order
    fresh = build(epoch=1)
    assert [plain(fresh[index]) for index in range(len(fresh))] == first


def test_seed_matters(build):
    assert plain(build(nsp=False, seed=1)[0]) != plain(build(nsp=False, seed=2)[0])


def test_order_is_by_length_and_complete(build):
    dataset = build()
    order = dataset.ordered_indices()
    assert sorted(order.tolist()) == list(range(len(dataset)))
    assert (np.diff(dataset.sizes[order]) >= 0).all()
    assert dataset.num_tokens_vec(order).tolist() == dataset.sizes[order].tolist()


@pytest.mark.parametrize("number", [3, 16, 21, 32])
@pytest.mark.parametrize("limits", [{"max_sentences": 16}, {"max_tokens": 200}])
def test_no_sequence_is_left_out_of_the_batches(build, number, limits):
    dataset = build()
    indices = dataset.ordered_indices()[:number]
    made = dataset.batch_by_size(indices, **limits, required_batch_size_multiple=8)
    assert np.concatenate(made).tolist() == indices.tolist()


def batches(dataset, workers, skip=0):
    iterator = iterators.EpochBatchIterator(
        dataset,
        dataset.collater,
        dataset.batch_by_size(dataset.ordered_indices(), max_tokens=200),
        num_workers=workers,
    )
    found = [batch["net_input"]["src_tokens"].tolist() for batch in iterator.next_epoch_itr()]
    return found[skip:]


def test_workers_and_pickling_change_nothing(build):
    dataset = build()
    expected = batches(dataset, workers=0)
    assert batches(dataset, workers=2) == expected
    copy = pickle.loads(pickle.dumps(dataset))
    assert isinstance(copy, FairseqDataset)
    assert batches(copy, workers=0) == expected
    assert np.array_equal(copy.corpus.sizes, dataset.corpus.sizes)


def test_a_pickled_data_set_does_not_carry_the_text(folder, dictionary, build):
    dataset = build()
    assert len(pickle.dumps(dataset.corpus)) < 1000


def test_parts_of_a_split_are_combined(tmp_path):
    dictionary = write_dict(tmp_path, ["a", "b"])
    write_split(tmp_path, "train", [[["a", "a"]], [["a"]]], dictionary)
    write_split(tmp_path, "train1", [[["b"]], [["b", "b", "b"]]], dictionary)
    whole = Corpus(str(tmp_path / "train"), dictionary, combine=True)
    assert whole.sizes.tolist() == [3, 1, 2, 2, 1, 4]
    assert text(dictionary, whole.read((0, 1, 4))) == ["a", "a", "b", "b"]
    assert whole.num_tokens == 7
    assert Corpus(str(tmp_path / "train"), dictionary).sizes.tolist() == [3, 1, 2]


def test_a_text_file_beside_the_binarised_split_is_ignored(folder, dictionary, tmp_path):
    corpus_folder = make_corpus(tmp_path)
    (corpus_folder / "train").write_text("w1 w2\n")
    assert Corpus(str(corpus_folder / "train"), dictionary).num_tokens > 100


def cut(path, number):
    path.write_bytes(path.read_bytes()[:number])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "train.bin").unlink(), r"train\.bin is missing.*fairseq-preprocess"),
        (lambda folder: (folder / "train.idx").unlink(), r"train\.idx is missing.*fairseq-preprocess"),
        (lambda folder: cut(folder / "train.bin", 0), r"train\.bin is empty"),
        (lambda folder: cut(folder / "train.bin", 900), r"train\.bin is shorter than its index"),
        (lambda folder: cut(folder / "train.idx", 100), r"train\.idx is damaged"),
        (lambda folder: (folder / "train.idx").write_bytes(b"TNTIDX\0\0" + bytes(99)), "--dataset-impl mmap"),
        (lambda folder: write_split(folder, "train", [[[]], [[]]], Dictionary()), "train has no text"),
    ],
)
def test_damaged_corpora(tmp_path, dictionary, damage, message):
    make_corpus(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        Corpus(str(tmp_path / "train"), dictionary)


def test_another_dictionary(tmp_path):
    make_corpus(tmp_path)
    with pytest.raises(UserError, match=r"train\.bin holds token ids beyond the 6 symbols"):
        Corpus(str(tmp_path / "train"), write_dict(tmp_path / "other", ["a", "b"]))


def test_another_dictionary_in_a_line_that_is_not_looked_at_first(tmp_path):
    dictionary = write_dict(tmp_path, ["a", "b"])
    larger = write_dict(tmp_path / "larger", ["a", "b", "c", "d"])
    documents = [[["a", "b"]] * 1500, [["a"]] * 1500]
    documents[0][701] = ["d", "d"]
    write_split(tmp_path, "train", documents, larger)
    dictionary.add_symbol("<mask>")
    corpus = Corpus(str(tmp_path / "train"), dictionary)
    dataset = PretrainingDataset(corpus, Masker.for_vocabulary(dictionary.symbols, 4, 6), 16, nsp=False)
    with pytest.raises(UserError, match="beyond the 7 symbols"):
        list(map(dataset.__getitem__, range(len(dataset))))


def test_share_of_selected_tokens(build, dictionary):
    dataset = build()
    selected = maskable = 0
    for index in range(len(dataset)):
        item = dataset[index]
        selected += len(item["selected"])
        maskable += len(item["source"]) - 3
    assert math.isclose(selected / maskable, 0.15, abs_tol=0.02)
