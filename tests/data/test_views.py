"""Views of sequences: pure functions of seed, epoch and index; masks never on specials; spans of one document."""

import itertools

import numpy as np
import pytest
import torch
from corpus import make_corpus, random_documents, write_split
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st

import fairseq_tn
from fairseq_tn.data.masking import Masker
from fairseq_tn.data.views import SpanMaskedViews
from fairseq_tn.errors import UserError

fairseq_tn.register()
from fairseq_tn.tasks.sentence_contrastive import (  # noqa: E402
    SentenceContrastiveTask,
    SentenceContrastiveTaskConfig,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra

WORDS = 30
SYMBOLS = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{n}" for n in range(WORDS)), "<mask>"]
MASK = len(SYMBOLS) - 1
MASKER = Masker.for_vocabulary(SYMBOLS, num_special=4, mask_index=MASK)


# --- Mirror-BERT ----------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, MASK - 1), min_size=1, max_size=60), st.integers(1, 4), st.integers(0, 10_000))
def test_one_mask_replaces_one_span_of_ordinary_tokens(middle, length, seed):
    tokens = np.array([0, *middle, 2])
    masked = SpanMaskedViews(MASKER, length).masked(tokens, np.random.default_rng(seed))
    places = np.flatnonzero(masked == MASK)
    if len(places) == 0:
        assert masked.tolist() == tokens.tolist()
        ordinary = tokens >= 4
        windows = np.lib.stride_tricks.sliding_window_view(ordinary, min(length, len(tokens))).all(1)
        assert ordinary.sum() < 6 * length or not windows.any()
        return
    (start,) = places.tolist()
    assert (tokens >= 4).sum() >= 6 * length
    assert (tokens[start : start + length] >= 4).all()
    assert masked.tolist() == [*tokens[:start], MASK, *tokens[start + length :]]


def test_every_span_can_be_masked():
    tokens = np.array([0, *range(4, 10), 2, *range(10, 18), 2])
    views = SpanMaskedViews(MASKER, 2)
    starts = {views.masked(tokens, np.random.default_rng(seed)).tolist().index(MASK) for seed in range(300)}
    assert starts == {*range(1, 6), *range(8, 15)}


# --- the task ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Every token occurs in one document only, and tells its place: ``dD-P``."""
    rng = np.random.default_rng(0)
    documents = []
    for number in range(9):
        tokens = [f"d{number}-{place}" for place in range(int(rng.integers(3, 90)))]
        cuts = sorted({0, len(tokens), *rng.integers(1, len(tokens), size=5).tolist()})
        documents.append([tokens[a:b] for a, b in itertools.pairwise(cuts)])
    return make_corpus(tmp_path_factory.mktemp("data"), train=documents, valid=documents[:3])


def make_task(data, **options) -> SentenceContrastiveTask:
    # as fairseq resolves its references to other options
    mirrored = {"seed": 3, "train_subset": "train"}
    config = SentenceContrastiveTaskConfig(data=str(data), **{"tokens_per_sample": 24, **mirrored, **options})
    return SentenceContrastiveTask.setup_task(config)


def make_dataset(data, split="train", **options):
    task = make_task(data, **options)
    task.load_dataset(split)
    return task.dataset(split)


def same(first: dict, second: dict) -> bool:
    return all(
        len(first[role]) == len(second[role])
        and all(np.array_equal(a, b) for a, b in zip(first[role], second[role], strict=True))
        for role in first
    )


VIEWS = [
    {"views": "mirror-bert", "span_mask_length": 1},
    {"views": "declutr", "min_span_length": 3},
    {"views": "declutr", "no_nsp": True, "positive_sampling": "adjacent", "anchors_per_document": 1},
]


@pytest.mark.parametrize("options", VIEWS, ids=str)
def test_views_are_functions_of_seed_epoch_and_index(options, data):
    first, second = (make_dataset(data, **options) for _ in range(2))
    indices = range(len(first))
    items = {index: first[index]["views"] for index in indices}
    for index in reversed(indices):  # in another order
        assert same(items[index], second[index]["views"])
    second.set_epoch(2)
    later = [second[index]["views"] for index in range(min(len(first), len(second)))]
    assert not all(same(items[index], views) for index, views in enumerate(later))
    second.set_epoch(1)
    assert same(second[0]["views"], items[0])
    other = make_dataset(data, **{**options, "seed": 4})
    assert not all(same(items[i], other[i]["views"]) for i in range(min(len(first), len(other))))
    held_out = make_dataset(data, "valid", **options)
    before = held_out[0]["views"]
    held_out.set_epoch(5)
    assert same(held_out[0]["views"], before)


@pytest.mark.parametrize("options", VIEWS[1:], ids=str)
def test_spans_are_running_text_of_the_document_in_which_the_sequence_begins(options, data):
    task = make_task(data, **options)
    task.load_dataset("train")
    dataset, symbols = task.dataset("train"), task.source_dictionary
    for index in range(len(dataset)):
        item = dataset[index]
        document = symbols[int(item["source"][1])].partition("-")[0]
        anchors, positives = item["views"]["anchors"], item["views"]["positives"]
        assert len(positives) == task.cfg.positives_per_anchor * len(anchors)
        assert len(anchors) == task.cfg.anchors_per_document
        for span in [*anchors, *positives]:
            assert (span[0], span[-1]) == (symbols.bos(), symbols.eos())
            assert len(span) <= 24
            names = [symbols[int(token)] for token in span[1:-1]]
            first = int(names[0].partition("-")[2])
            assert names == [f"{document}-{first + n}" for n in range(len(names))]


def test_sequences_of_one_document_have_spans_of_their_own(data):
    dataset = make_dataset(data, **VIEWS[2])
    symbols = make_task(data).source_dictionary
    by_document: dict[str, list[dict]] = {}
    for index in range(len(dataset)):
        item = dataset[index]
        document = symbols[int(item["source"][1])].partition("-")[0]
        by_document.setdefault(document, []).append(item["views"])
    several = [views for views in by_document.values() if len(views) > 2]
    assert several
    for views in several:
        assert not all(same(views[0], other) for other in views[1:])


def test_batches_hold_the_views_of_their_sequences_in_order(data):
    dataset = make_dataset(data, **VIEWS[1])
    items = [dataset[index] for index in (4, 0, 2)]
    batch = dataset.collater(items)
    plain = dataset.dataset.collater(items)
    assert batch.keys() == plain.keys() | {"views"}
    assert torch.equal(batch["source"], plain["source"])
    for role, each in (("anchors", 2), ("positives", 4)):
        rows = [row for item in items for row in item["views"][role]]
        assert batch["views"][role].shape == (3 * each, max(map(len, rows)))
        for row, tokens in zip(batch["views"][role], rows, strict=True):
            assert row[: len(tokens)].tolist() == tokens.tolist()
            assert row[len(tokens) :].eq(1).all()
    assert dataset.collater([]) == {}


def test_simcse_s_views_are_the_sequence_itself(data):
    dataset = make_dataset(data, views="simcse")
    assert "views" not in dataset.collater([dataset[0], dataset[1]])


# --- premises and hypotheses ------------------------------------------------------------------------------------------


@pytest.fixture
def triples(tmp_path):
    lines = {"train": ["w1 w2 w3", "w4", "w5 w6"], "train.entailed": ["w7", "w8 w9 w10 w11", "w12"]}
    lines["train.contradicting"] = ["w13 w14", "w15", "w16"]
    make_corpus(tmp_path / "nli", symbols=[f"w{n}" for n in range(20)])
    dictionary = Dictionary.load(str(tmp_path / "nli" / "dict.txt"))
    for split, texts in lines.items():
        write_split(tmp_path / "nli", split, [[text.split() for text in texts]], dictionary)
    return tmp_path / "nli", lines, dictionary


NLI = {"views": "nli", "no_nsp": True, "sample_break_mode": "eos", "tokens_per_sample": 5}


def test_a_premise_has_the_hypotheses_of_its_line(triples):
    folder, lines, symbols = triples
    dataset = make_dataset(folder, **NLI)
    for index, item in enumerate(dataset[i] for i in range(3)):
        views = item["views"]
        for tokens, split in (
            (item["source"], "train"),
            (views["positives"][0], "train.entailed"),
            (views["negatives"][0], "train.contradicting"),
        ):
            words = [symbols[int(token)] for token in tokens[1:-1]]
            assert words == lines[split][index].split()[:3]  # the longest has no more room
    batch = dataset.collater([dataset[2], dataset[0]])
    assert batch["views"].keys() == {"positives", "negatives"}
    assert len(batch["views"]["negatives"]) == 2


def test_hypotheses_must_be_there_for_each_premise(triples):
    folder, _, dictionary = triples
    task = make_task(folder, **NLI)
    with pytest.raises(UserError, match=r"valid\.entailed"):
        task.load_dataset("valid")
    write_split(folder, "train.entailed", [[["w1"]], [["w2"]]], dictionary)
    with pytest.raises(UserError, match="blank lines"):
        task.load_dataset("train")
    write_split(folder, "train.entailed", [[["w1"], ["w2"]]], dictionary)
    with pytest.raises(UserError, match=r"2 lines.*3"):
        task.load_dataset("train")


def test_premises_must_fit(triples):
    folder, *_ = triples
    with pytest.raises(UserError, match=r"premise of 5 tokens.*--tokens-per-sample"):
        make_task(folder, **{**NLI, "tokens_per_sample": 4}).load_dataset("train")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"views": "mirror-bert", "span_mask_length": 0}, "--span-mask-length"),
        ({"views": "declutr", "max_span_length": 23}, "--max-span-length"),
        ({"views": "declutr", "max_span_length": 20}, "--min-span-length 32"),
        ({"views": "declutr", "anchors_per_document": 0}, "--anchors-per-document"),
        ({"views": "nli"}, "--no-nsp"),
        ({"views": "nli", "no_nsp": True}, "--sample-break-mode eos"),
    ],
)
def test_bad_options_are_named(options, named, data):
    with pytest.raises(UserError) as error:
        make_task(data, **options)
    assert named in str(error.value)


def test_too_few_tokens_for_a_sequence_are_named_as_such(data):
    with pytest.raises(UserError, match="--tokens-per-sample is 2; blocks"):
        make_dataset(data, tokens_per_sample=2, no_nsp=True)


def test_random_documents_of_every_length_give_spans(tmp_path):
    documents = [[["w1"]], *random_documents(20, seed=4), [["w2"]]]
    folder = make_corpus(tmp_path / "data", train=documents)
    dataset = make_dataset(folder, views="declutr", anchors_per_document=3)
    batch = dataset.collater([dataset[index] for index in range(len(dataset))])
    assert len(batch["views"]["positives"]) == 6 * len(dataset)
