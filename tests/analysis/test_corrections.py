"""Masked tokens of sentences against one sentence after the other, in float64."""

import math

import numpy as np
import pytest
import torch
from small_world import make_world

from fairseq_tn.analysis.corrections import VERDICTS, find_corrections
from fairseq_tn.analysis.models import open_model
from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.table import SynonymTable

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def model(world):
    model = open_model("a", world.checkpoints["a"], device="cpu")
    model.model.double()
    return model


@pytest.fixture(scope="module")
def table(world):
    return SynonymTable.load(world.table, world.dictionary)


def of_all(model, world, table, **options):
    return find_corrections(model, world.sentences, table, examples=10**6, verdict=None, **options)


@pytest.mark.parametrize("batch_tokens", [1, 100, 8192])
def test_every_masked_token_is_what_the_model_says_of_its_sentence_alone(batch_tokens, model, world, table):
    found = of_all(model, world, table, batch_tokens=batch_tokens)
    assert [example.sentence for example in found.examples] == list(range(1, len(world.sentences) + 1))
    mask, symbols = model.dictionary.index("<mask>"), model.dictionary.symbols
    counts = dict.fromkeys(VERDICTS, 0)
    touched = 0
    for sentence, example in zip(world.sentences, found.examples, strict=True):
        assert example.text == sentence
        source = model.encode([sentence])[0]
        tokens = torch.from_numpy(source.copy()).unsqueeze(0)
        places = [token.position + 1 for token in example.masked]
        tokens[0, places] = mask
        with torch.no_grad():
            logits = model.model(tokens)[0][0]
        for place, token in zip(places, example.masked, strict=True):
            gold, predicted = int(source[place]), int(logits[place].argmax())
            if gold == predicted:
                verdict = "right"
            else:
                verdict = "corrected" if (gold, predicted) in world.pairs else "wrong"
            assert (token.gold, token.predicted) == (symbols[gold], symbols[predicted])
            assert token.verdict == verdict
            chances = logits[place].exp() / logits[place].exp().sum()
            assert token.probability == pytest.approx(chances[predicted].item(), rel=1e-6)
            assert token.gold_probability == pytest.approx(chances[gold].item(), rel=1e-6)
            assert token.synonyms == table.synonyms(symbols[gold])
            counts[verdict] += 1
        touched += any(token.verdict == "corrected" for token in example.masked)
    assert found.verdicts == counts
    assert found.touched == touched
    assert (found.sentences, found.skipped, found.cut) == (len(world.sentences), 0, 0)
    assert counts["corrected"] > 3


def test_about_15_percent_of_the_tokens_are_masked(model, world, table):
    sentences = [" ".join("abcdefghij" * 2)] * 60
    found = find_corrections(model, sentences, table, examples=60, verdict=None)
    masked = [len(example.masked) for example in found.examples]
    assert set(masked) == {3}
    places = {tuple(token.position for token in example.masked) for example in found.examples}
    assert len(places) > 40  # each sentence has masks of its own


def test_the_draw_depends_on_the_seed_alone(model, world, table):
    def drawn(seed, **options):
        found = find_corrections(model, world.sentences, table, 3, seed, **options)
        return [(e.sentence, [t.position for t in e.masked]) for e in found.examples]

    assert drawn(1) == drawn(1, batch_tokens=1) == drawn(1, batch_tokens=50)
    assert len(drawn(1)) == 3
    assert drawn(1) == sorted(drawn(1))
    assert len({str(drawn(seed)) for seed in range(6)}) > 3


@pytest.mark.parametrize("verdict", VERDICTS)
def test_only_sentences_with_the_wanted_verdict_are_drawn(verdict, model, world, table):
    every = of_all(model, world, table).examples
    fitting = [e.sentence for e in every if verdict in {t.verdict for t in e.masked}]
    found = find_corrections(model, world.sentences, table, 10**6, verdict=verdict)
    assert [example.sentence for example in found.examples] == fitting
    assert found.fitting == len(fitting) > 0
    none = find_corrections(model, world.sentences, table, 0, verdict=verdict)
    assert none.examples == []
    assert none.verdicts == found.verdicts


def test_every_fitting_sentence_is_drawn_alike(model, world, table):
    counts = np.zeros(len(world.sentences) + 1)
    for seed in range(40):
        for example in find_corrections(model, world.sentences, table, 5, seed, verdict=None).examples:
            counts[example.sentence] += 1
    expected = 40 * 5 / len(world.sentences)
    assert counts[1:].max() < expected + 5 * math.sqrt(expected)
    assert (counts[1:] > 0).mean() > 0.9


def test_long_sentences_are_cut_and_unknown_ones_skipped(model, world, table):
    found = find_corrections(model, ["Ω Ω", "a b " * 40, "c d"], table, verdict=None)
    assert (found.sentences, found.skipped, found.cut) == (3, 1, 1)
    assert [example.sentence for example in found.examples] == [2, 3]
    assert len(found.examples[0].written) == model.max_tokens - 2
    with pytest.raises(UserError, match="can be masked"):
        find_corrections(model, ["Ω"], table)
