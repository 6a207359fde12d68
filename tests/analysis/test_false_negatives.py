"""The rates of false negatives against loops over sequences, positions and resamples."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import LENGTH, make_world

from fairseq_tn.analysis import false_negatives as module
from fairseq_tn.analysis.false_negatives import (
    Grouping,
    Predictions,
    bootstrap_sums,
    by_frequency,
    by_part_of_speech,
    differences,
    false_negatives,
    part_of_speech,
    predict,
    token_counts,
)
from fairseq_tn.analysis.held_out import held_out_task
from fairseq_tn.analysis.models import open_model
from fairseq_tn.data.corpus import Corpus
from fairseq_tn.evaluation.pretraining import evaluate
from fairseq_tn.synonyms.table import SynonymTable
from fairseq_tn.synonyms.wordnet import WordNet

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def dataset(world):
    return held_out_task(world.data, "valid", LENGTH, nsp=True).dataset("valid")


def opened(world, name="a"):
    model = open_model(name, world.checkpoints[name], device="cpu", with_tokenizer=False)
    model.model.double()
    return model


@pytest.mark.parametrize(("batch_size", "limit"), [(1, None), (7, None), (32, 5)])
def test_predictions_are_those_of_one_sequence_after_the_other(batch_size, limit, world, dataset):
    model = opened(world)
    table = SynonymTable.load(world.table, world.dictionary)
    done = []
    found = predict(model, dataset, table, limit, batch_size, done.append)
    expected = []
    for index in range(limit or len(dataset)):
        item = dataset[index]
        with torch.no_grad():
            logits = model.model(torch.from_numpy(item["masked"]).long().unsqueeze(0))[0][0]
        for place in item["selected"].tolist():
            gold, predicted = int(item["source"][place]), int(logits[place].argmax())
            expected.append((index, gold, predicted, (gold, predicted) in world.pairs))
    columns = (found.sequence, found.gold, found.predicted, found.false_negative)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert found.sequences == (limit or len(dataset)) == sum(done)
    assert 0 < found.false_negative.sum() < found.wrong.sum()
    assert limit or found.wrong.sum() < len(expected)


def test_the_rates_are_those_of_the_evaluation(world, dataset):
    scores = evaluate(
        world.data,
        world.checkpoints,
        synonyms=world.table,
        tokens_per_sample=LENGTH,
        device="cpu",
        examples=0,
    )["models"]
    table = SynonymTable.load(world.table, world.dictionary)
    for name in world.checkpoints:
        rates = false_negatives(predict(opened(world, name), dataset, table), resamples=2)
        assert rates.prediction_level.value == pytest.approx(scores[name]["hc_pred"])
        assert rates.sequence_level.value == pytest.approx(scores[name]["hc_seq"])
        assert rates.sequence_level.of == scores[name]["sequences"]


def drawn_predictions(seed, sequences=30, words=12, wrong=0.6, synonym=0.2) -> Predictions:
    """Positions at random; sequences differ in how often the model is wrong."""
    rng = np.random.default_rng(seed)
    sequence = np.sort(rng.integers(sequences, size=5 * sequences))
    share = np.clip(wrong + 0.3 * rng.standard_normal(sequences), 0, 1)
    gold = rng.integers(words, size=len(sequence))
    missed = rng.random(len(sequence)) < share[sequence]
    predicted = np.where(missed, (gold + rng.integers(1, words, size=len(gold))) % words, gold)
    return Predictions(sequences, sequence, gold, predicted, missed & (rng.random(len(gold)) < synonym))


def plain_rates(predictions: Predictions, chosen, inside=None) -> tuple[float, float]:
    """Both rates in per cent of the chosen sequences, which may come several times."""
    wrong = found = touched = 0
    for number in chosen:
        hit = False
        for k in np.flatnonzero(predictions.sequence == number).tolist():
            if inside is not None and not inside[k]:
                continue
            wrong += predictions.gold[k] != predictions.predicted[k]
            found += bool(predictions.false_negative[k])
            hit |= bool(predictions.false_negative[k])
        touched += hit
    return 100 * found / wrong if wrong else float("nan"), 100 * touched / len(chosen)


@pytest.mark.parametrize("at_a_time", [1, 100, 1 << 22])
def test_rates_and_intervals_are_those_of_plain_loops(at_a_time, monkeypatch):
    monkeypatch.setattr(module, "_DRAWS_AT_A_TIME", at_a_time)
    predictions = drawn_predictions(1)
    groups = predictions.gold % 3
    found = false_negatives(predictions, {"rest": Grouping("xyz", groups)}, resamples=25, seed=7)
    everything = range(predictions.sequences)
    prediction, sequence = plain_rates(predictions, everything)
    assert (found.prediction_level.value, found.sequence_level.value) == pytest.approx((prediction, sequence))
    assert (found.prediction_level.found, found.sequence_level.of) == (predictions.false_negative.sum(), 30)

    rng = np.random.default_rng(7)
    resamples = [rng.integers(predictions.sequences, size=predictions.sequences) for _ in range(25)]
    drawn = np.array([plain_rates(predictions, chosen) for chosen in resamples])
    assert found.prediction_resamples == pytest.approx(drawn[:, 0])
    assert found.sequence_resamples == pytest.approx(drawn[:, 1])
    for rate, column in ((found.prediction_level, 0), (found.sequence_level, 1)):
        assert (rate.low, rate.high) == pytest.approx(tuple(np.percentile(drawn[:, column], (2.5, 97.5))))
    for number, label in enumerate("xyz"):
        inside = groups == number
        rate = found.groups["rest"][label]
        assert rate.value == pytest.approx(plain_rates(predictions, everything, inside)[0])
        of_group = np.array([plain_rates(predictions, chosen, inside)[0] for chosen in resamples])
        assert (rate.low, rate.high) == pytest.approx(tuple(np.nanpercentile(of_group, (2.5, 97.5))))


def test_the_intervals_hold_the_true_rate_about_95_times_in_100():
    held = [0, 0]
    runs = 150
    sure = drawn_predictions(0, sequences=20000)
    true = false_negatives(sure, resamples=2)
    for seed in range(1, runs + 1):
        found = false_negatives(drawn_predictions(seed, sequences=120), resamples=200, seed=seed)
        for number, level in enumerate(("prediction_level", "sequence_level")):
            rate = getattr(found, level)
            held[number] += rate.low <= getattr(true, level).value <= rate.high
    assert all(0.88 * runs <= hits <= 0.99 * runs for hits in held), held


def test_bootstrap_keeps_columns_together():
    counts = np.random.default_rng(3).integers(9, size=(11, 1)).repeat(2, axis=1)
    sums = bootstrap_sums(counts.astype(float), 40, seed=1)
    assert (sums[:, 0] == sums[:, 1]).all()
    assert len(set(sums[:, 0].tolist())) > 10


def test_differences_are_those_of_pairs():
    a = drawn_predictions(1)
    b = Predictions(
        a.sequences, a.sequence, a.gold, a.predicted, a.false_negative & (np.arange(len(a.gold)) % 2 == 0)
    )
    one, other = (false_negatives(p, resamples=200, seed=5) for p in (a, b))
    same = differences(one, one)
    assert [(d.value, d.low, d.high) for d in same] == [(0, 0, 0)] * 2
    prediction, sequence = differences(other, one)
    assert prediction.value == pytest.approx(other.prediction_level.value - one.prediction_level.value)
    assert prediction.low < prediction.value < prediction.high <= 0
    # narrower than if the two were independent
    width = other.prediction_level.high - other.prediction_level.low
    assert prediction.high - prediction.low < width + one.prediction_level.high - one.prediction_level.low
    assert sequence.value < 0


def test_shares_of_nothing_and_shares_without_an_interval():
    right = Predictions(2, np.array([0, 1]), np.array([4, 5]), np.array([4, 5]), np.array([False, False]))
    found = false_negatives(right, resamples=10)
    assert (found.prediction_level.value, found.prediction_level.low) == (None, None)
    assert differences(found, found)[0].value is None
    assert (found.sequence_level.value, found.sequence_level.low) == (0, None)
    wrong = Predictions(2, right.sequence, right.gold, right.gold[::-1], np.array([False, False]))
    rate = false_negatives(wrong, resamples=10).prediction_level
    assert (rate.value, rate.low, rate.of) == (0, None, 2)


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("dog", "noun"),  # as many senses as a verb
        ("stay", "noun"),
        ("went", "verb"),
        ("Paris", "noun"),
        ("men", "noun"),
        ("big", "adjective"),
        ("primary", "adjective"),
        ("quickly", "adverb"),
        ("chased", "verb"),
        ("the", "none"),
    ],
)
def test_the_part_of_speech_is_that_of_most_senses(word, part, small_wordnet):
    assert part_of_speech(word, WordNet(small_wordnet)) == part


def test_a_part_with_more_senses_wins_over_the_first(tmp_path, monkeypatch):
    wordnet = WordNet.__new__(WordNet)
    monkeypatch.setattr(wordnet, "senses", lambda word: {"noun": 2, "verb": 3, "adverb": 3}, raising=False)
    assert part_of_speech("run", wordnet) == "verb"


def test_senses_count_each_synset_once(small_wordnet):
    wordnet = WordNet(small_wordnet)
    assert wordnet.senses("dog") == {"noun": 1, "verb": 1}
    assert wordnet.senses("PARIS") == {"noun": 2}
    assert wordnet.senses("went") == {"verb": 1}
    assert wordnet.senses("went", exact_lemmas=True) == {}


def test_positions_by_part_of_speech(small_wordnet):
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "dog", "##dog", "went", "the", "big", "##s"]
    grouping = by_part_of_speech(np.array([8, 4, 5, 4, 6, 7, 9]), symbols, WordNet(small_wordnet))
    assert [grouping.labels[g] for g in grouping.group] == [
        "adjective",
        "noun",
        "none",
        "noun",
        "verb",
        "none",
        "none",
    ]


def test_ids_of_gpt2_have_the_part_of_speech_of_their_tokens(small_wordnet):
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "17", "99"]
    tokens = {"17": "Ġdog", "99": "dog"}
    grouping = by_part_of_speech(np.array([4, 5]), symbols, WordNet(small_wordnet), tokens)
    assert [grouping.labels[g] for g in grouping.group] == ["noun", "none"]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 7))
@settings(deadline=None, max_examples=60)
def test_bins_of_frequency_part_the_positions(gold, bins):
    counts = np.array([0, 5, 5, 9, 1000, 1001, 70000])
    gold = np.array(gold)
    grouping = by_frequency(gold, counts, bins)
    assert 1 <= len(grouping.labels) <= bins
    assert sorted(set(grouping.group.tolist())) == list(range(len(grouping.labels)))
    frequency = counts[gold]
    for number, label in enumerate(grouping.labels):
        inside = frequency[grouping.group == number]
        low, high = (int(text.replace(",", "")) for text in (label.split("–") * 2)[:2])
        assert (low, high) == (inside.min(), inside.max())
        # equally frequent tokens stay together, rare ones come first
        assert not np.isin(frequency[grouping.group != number], inside).any()
        assert (frequency[grouping.group > number] > high).all()


def test_bins_are_equally_full_where_all_tokens_differ():
    counts = np.random.default_rng(0).permutation(100)
    grouping = by_frequency(np.arange(100), counts, 5)
    assert np.bincount(grouping.group).tolist() == [20] * 5
    assert grouping.labels[0] == "0–19"


def test_tokens_are_counted(world, dataset, monkeypatch):
    from fairseq_tn.data import corpus as corpus_module

    monkeypatch.setattr(corpus_module, "_COUNTED_AT_A_TIME", 10)
    corpus = Corpus(str(world.data / "valid"), world.dictionary)
    expected = np.zeros(len(world.dictionary), dtype=int)
    for line in range(len(corpus.sizes)):
        for token in corpus.read((line, 0, int(corpus.sizes[line]) - 1)) if corpus.sizes[line] > 1 else []:
            expected[token] += 1
        expected[world.dictionary.eos()] += 1
    done = []
    assert corpus.counts(done.append).tolist() == expected.tolist()
    assert sum(done) == expected.sum()
    chosen = random.Random(1).sample(range(len(dataset)), 3)
    by_item = np.zeros(len(world.dictionary), dtype=int)
    for index in chosen:
        for token in dataset[index]["source"].tolist():
            by_item[token] += 1
    assert token_counts(dataset, chosen, len(world.dictionary)).tolist() == by_item.tolist()
