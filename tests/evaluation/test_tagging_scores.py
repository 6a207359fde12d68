"""Scores of tagging: against seqeval, and against a plain restatement of what SIGHAN's script counts."""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES

from fairseq_tn.data.tagged_text import TextFormat, read_tagged
from fairseq_tn.data.tags import SCHEMES
from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.results import read_result, write_result
from fairseq_tn.evaluation.tagging import Counts, result_of, score_texts, training_words

CONLL, SEGMENTED = TextFormat("conll"), TextFormat("segmentation")
SEQEVAL = {"iob1": IOB1, "iob2": IOB2, "bioes": IOBES, "bilou": BILOU}


def conll(path, sentences):
    path.write_text("\n".join("".join(f"x {tag}\n" for tag in sentence) for sentence in sentences))
    return read_tagged(path, CONLL)


def words(path, lines):
    path.write_text("".join("  ".join(line) + "\n" for line in lines))
    return read_tagged(path, SEGMENTED)


def drawn(seed, scheme):
    """Two texts of 60 sentences: any tags, and the same with every third tag drawn again."""
    choose = random.Random(seed)
    names = ["O", *(f"{letter}-{kind}" for letter in SCHEMES[scheme] for kind in ("X", "Y"))]
    gold = [choose.choices(names, k=choose.randint(1, 8)) for _ in range(60)]
    predicted = [[choose.choice(names) if choose.random() < 0.3 else tag for tag in one] for one in gold]
    return gold, predicted


@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "conlleval"])
@pytest.mark.parametrize("scheme", [*SEQEVAL])
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_entities_are_counted_as_by_seqeval(scheme, lenient, seed, tmp_path_factory):
    if lenient and scheme == "bilou":
        return  # seqeval's default mode does not know its letters
    folder = tmp_path_factory.mktemp("scores")
    gold, predicted = drawn(seed, scheme)
    scores = score_texts(conll(folder / "gold", gold), conll(folder / "found", predicted), scheme, lenient)
    options = {} if lenient else {"mode": "strict", "scheme": SEQEVAL[scheme]}
    expected = classification_report(gold, predicted, output_dict=True, zero_division=0, **options)
    for name, counts in [("micro avg", scores.total), *scores.by_type.items()]:
        reference = expected[name]
        assert counts.precision == pytest.approx(100 * reference["precision"])
        assert counts.recall == pytest.approx(100 * reference["recall"])
        assert counts.f1 == pytest.approx(100 * reference["f1-score"])
        assert counts.gold == reference["support"]
    assert scores.sentences.sum(0).tolist() == list(vars(scores.total).values())
    right = sum(
        a == b for one, two in zip(gold, predicted, strict=True) for a, b in zip(one, two, strict=True)
    )
    assert scores.accuracy == pytest.approx(100 * right / sum(map(len, gold)))


def test_counts_of_each_sentence(tmp_path):
    gold = conll(tmp_path / "gold", [["B-X", "I-X", "O"], ["O"], ["B-X", "B-Y"]])
    found = conll(tmp_path / "found", [["B-X", "O", "B-X"], ["O"], ["B-X", "B-X"]])
    scores = score_texts(gold, found, "iob2")
    assert scores.sentences.tolist() == [[0, 2, 1], [0, 0, 0], [1, 2, 2]]
    assert scores.by_type == {"X": Counts(1, 4, 2), "Y": Counts(0, 0, 1)}
    assert scores.total.f1 == pytest.approx(100 * 2 / 7)


def test_nothing_at_all_is_0(tmp_path):
    text = conll(tmp_path / "gold", [["O", "O"]])
    scores = score_texts(text, text)
    assert (scores.total.precision, scores.total.recall, scores.total.f1) == (0, 0, 0)
    assert scores.accuracy == 100


# --- word segmentation --------------------------------------------------------------------------------------------


def bakeoff(gold, predicted, vocabulary):
    """What SIGHAN's script reports, word by word: a word is right if it has the same letters in the same place."""
    right = found = number = unknown = unknown_right = known_right = 0
    for true, test in zip(gold, predicted, strict=True):
        spans = set()
        start = 0
        for word in test:
            spans.add((start, start + len(word)))
            start += len(word)
        found += len(test)
        start = 0
        for word in true:
            hit = (start, start + len(word)) in spans
            start += len(word)
            number += 1
            right += hit
            if word in vocabulary:
                known_right += hit
            else:
                unknown += 1
                unknown_right += hit
    precision, recall = right / found, right / number
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if right else 0,
        "oov_rate": unknown / number,
        "oov_recall": unknown_right / unknown if unknown else 0,
        "iv_recall": known_right / (number - unknown) if number > unknown else 0,
    }


def cut(choose, line):
    """The line cut into words at random places."""
    places = sorted(choose.sample(range(1, len(line)), choose.randint(0, len(line) - 1)))
    return [line[a:b] for a, b in zip([0, *places], [*places, len(line)], strict=True)]


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_words_are_counted_as_by_the_bakeoffs(seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    choose = random.Random(seed)
    lines = ["".join(choose.choices("甲乙丙", k=choose.randint(1, 12))) for _ in range(20)]
    gold, predicted = ([cut(choose, line) for line in lines] for _ in range(2))
    train = words(folder / "train", [cut(choose, "".join(choose.choices("甲乙丙", k=6))) for _ in range(5)])
    vocabulary = training_words(train.path, SEGMENTED)
    assert vocabulary == set(train.path.read_text().split())
    scores = score_texts(
        words(folder / "gold", gold), words(folder / "found", predicted), vocabulary=vocabulary
    )
    metrics = scores.metrics()
    for name, value in bakeoff(gold, predicted, vocabulary).items():
        assert metrics[name] == pytest.approx(100 * value), name


def test_a_segmentation_by_hand(tmp_path):
    """Gold 7 words, found 6, right 4; the training text lacks 新世纪 and 走向, of which one is found."""
    gold = words(tmp_path / "gold", [["共同", "创造", "美好", "的", "新世纪"], ["走向", "明天"]])
    found = words(tmp_path / "found", [["共同", "创造", "美好的", "新世纪"], ["走", "向明", "天"]])
    scores = score_texts(gold, found, vocabulary={"共同", "创造", "美好", "的", "明天"})
    assert scores.total == Counts(3, 7, 7)
    metrics = scores.metrics()
    assert metrics["oov_rate"] == pytest.approx(100 * 2 / 7)
    assert metrics["oov_recall"] == pytest.approx(50)
    assert metrics["iv_recall"] == pytest.approx(40)
    assert scores.sentences.tolist() == [[3, 4, 5], [0, 3, 2]]
    assert "oov_rate" not in score_texts(gold, found).metrics()


# --- files that do not belong together ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("a O\nc O\n\nc O\n", "found, line 2: the text is not that of"),
        ("a O\nb O\nc O\n", "found, line 3: the text is not that of"),
        ("a O\n\nc O\n", "found, line 1: the text is not that of"),
        ("a O\nb O\n", "has 1 sentences, .* 2;"),
        ("a O\nb PER\n\nc O\n", "found, line 2: the tag 'PER' has no prefix"),
        ("a O\nb M-X\n\nc O\n", "of no one scheme"),
    ],
)
def test_predictions_of_another_text(other, message, tmp_path):
    (tmp_path / "gold").write_text("a O\nb B-X\n\nc I-X\n")
    (tmp_path / "found").write_text(other)
    gold, found = (read_tagged(tmp_path / name, CONLL) for name in ("gold", "found"))
    with pytest.raises(UserError, match=message):
        score_texts(gold, found)


def test_the_result_is_what_the_report_reads(tmp_path):
    gold, predicted = (
        conll(tmp_path / name, text) for name, text in zip("gp", drawn(1, "bioes"), strict=True)
    )
    scores = score_texts(gold, predicted, "bioes")
    result = result_of(scores, gold, "Resume NER", "tacl", "test", 3, {"lenient": False})
    write_result(tmp_path / "result.json", result)
    again = read_result(tmp_path / "result.json")
    assert again.value == pytest.approx(scores.total.f1)
    assert (again.kind, again.task, again.method, again.seed, again.num_examples) == (
        "tagging",
        "Resume NER",
        "tacl",
        3,
        60,
    )
    assert json.loads((tmp_path / "result.json").read_text())["details"]["by_type"]["X"]["gold"] > 0
    # another text is another data set for the report, other predictions are not
    other = conll(tmp_path / "o", [["O"], *drawn(1, "bioes")[0][1:]])
    assert result_of(scores, other, "t", "m", "test", 3, {}).examples != result.examples
    assert np.array_equal(again.columns["gold"], scores.sentences[:, 2])
