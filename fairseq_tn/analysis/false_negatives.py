"""How often a model's wrong prediction is a synonym of the right token: table 2 of True Negatives (Zhang et al., 2023).

At the prediction level: of the wrong predictions at masked positions, the share that the synonym table lists for
the gold token. At the sequence level: of the sequences, the share with at least one such prediction. Intervals
come from the bootstrap (Efron, 1979) over sequences, whose positions depend on each other; the resamples are the same
for all models, so that differences between models are those of pairs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fairseq_tn.analysis.held_out import batches, by_length
from fairseq_tn.analysis.models import AnalysedModel
from fairseq_tn.losses import most_likely
from fairseq_tn.synonyms.table import SynonymTable
from fairseq_tn.synonyms.vocabularies import whole_words
from fairseq_tn.synonyms.wordnet import PARTS_OF_SPEECH, WordNet

# what the paper reports of BERT-base at the end of training on WikiText-2
PAPER = {"prediction_level": 1.41, "sequence_level": 7.07}
PAPER_SOURCE = (
    "Zhang et al. (2023), Language Model Pre-training on True Negatives, table 2: BERT-base, WikiText-2, end"
)
NO_PART = "none"
_CONFIDENCE = 95
_DRAWS_AT_A_TIME = 1 << 22


@dataclass(frozen=True)
class Predictions:
    """What a model predicts at the K masked positions of the sequences, in the order of these.

    sequences: their number.
    sequence: K, the number of the sequence that a position is in.
    gold, predicted: K token ids.
    false_negative: K bool, the table lists the predicted token as a synonym of the gold token.
    """

    sequences: int
    sequence: np.ndarray
    gold: np.ndarray
    predicted: np.ndarray
    false_negative: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """K bool, the predicted token is not the gold one."""
        return self.gold != self.predicted


@dataclass(frozen=True)
class Rate:
    """A share in per cent, the ends of its 95 % interval, and what it is a share of.

    The value is None where that is nothing. Where nothing or everything was found all resamples are alike, and there
    is no interval.
    """

    value: float | None
    low: float | None
    high: float | None
    found: int
    of: int


@dataclass(frozen=True)
class Difference:
    """A difference of two shares in percentage points, with the ends of its 95 % interval."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class FalseNegatives:
    """The rates of one model.

    prediction_level: of the wrong predictions.
    sequence_level: of the sequences.
    groups: name of a grouping -> label of a group -> the prediction-level rate of its gold tokens.
    prediction_resamples, sequence_resamples: R, the two rates in each resample; nan where nothing is wrong.
    """

    prediction_level: Rate
    sequence_level: Rate
    groups: dict[str, dict[str, Rate]]
    prediction_resamples: np.ndarray
    sequence_resamples: np.ndarray


@dataclass(frozen=True)
class Grouping:
    """A partition of the masked positions: labels, and for each of K positions the number of its label."""

    labels: Sequence[str]
    group: np.ndarray


@torch.no_grad()
def predict(
    model: AnalysedModel,
    dataset: Any,
    table: SynonymTable,
    limit: int | None = None,
    batch_size: int = 32,
    progress: Callable[[int], object] = lambda sequences: None,
) -> Predictions:
    """Have a model predict the masked tokens of a data set, the generator's half where it is ELECTRA.

    Args:
        dataset: of held-out text, see :func:`fairseq_tn.analysis.held_out.held_out_task`.
        limit: only the first so many sequences.
        batch_size: sequences read at once; the results do not depend on it.
        progress: is told how many more sequences are done.
    """
    order = by_length(dataset, limit)
    parts: list[tuple[np.ndarray, ...]] = []
    for batch in batches(dataset, order, batch_size, model.device):
        target, selected = batch["target"], batch["selected"]
        gold = target.view(-1)[selected]
        predicted = most_likely(model.logits(batch["net_input"]["src_tokens"], selected))
        numbers = batch["id"][selected // target.size(1)]
        found = (numbers, gold, predicted, table.contains(gold, predicted))
        parts.append(tuple(values.cpu().numpy() for values in found))
        progress(len(batch["id"]))
    columns = [np.concatenate(values) for values in zip(*parts, strict=True)]
    # the masks of the first so many sequences, whatever their batches were
    arranged = np.argsort(columns[0], kind="stable")
    return Predictions(len(order), *(values[arranged] for values in columns))


def false_negatives(
    predictions: Predictions,
    groupings: Mapping[str, Grouping] | None = None,
    resamples: int = 1000,
    seed: int = 1,
) -> FalseNegatives:
    """Rates with bootstrap intervals (percentiles) of one model.

    Args:
        groupings: partitions of the positions to give the prediction-level rate of, too.
        resamples: of the sequences, drawn with replacement; the same ones for the same seed and sequences.
    """
    groupings = groupings or {}
    wrong, found = predictions.wrong, predictions.false_negative

    def per_sequence(positions: np.ndarray) -> np.ndarray:
        return np.bincount(predictions.sequence[positions], minlength=predictions.sequences)

    columns = [per_sequence(found), per_sequence(wrong), per_sequence(found) > 0]
    for grouping in groupings.values():
        for number in range(len(grouping.labels)):
            inside = grouping.group == number
            columns += [per_sequence(found & inside), per_sequence(wrong & inside)]
    counts = np.stack(columns, axis=1).astype(np.float64)
    total = counts.sum(axis=0)
    sums = bootstrap_sums(counts, resamples, seed)
    prediction_level = _shares(sums[:, 0], sums[:, 1])
    sequence_level = _shares(sums[:, 2], np.full(len(sums), float(predictions.sequences)))
    groups: dict[str, dict[str, Rate]] = {}
    column = 3
    for name, grouping in groupings.items():
        groups[name] = {}
        for label in grouping.labels:
            drawn = _shares(sums[:, column], sums[:, column + 1])
            groups[name][label] = _rate(total[column], total[column + 1], drawn)
            column += 2
    return FalseNegatives(
        prediction_level=_rate(total[0], total[1], prediction_level),
        sequence_level=_rate(total[2], predictions.sequences, sequence_level),
        groups=groups,
        prediction_resamples=prediction_level,
        sequence_resamples=sequence_level,
    )


def differences(one: FalseNegatives, other: FalseNegatives) -> tuple[Difference, Difference]:
    """The two rates of ``one`` less those of ``other``; both from the same sequences, resamples and seed."""
    return (
        _difference(
            one.prediction_level,
            other.prediction_level,
            one.prediction_resamples - other.prediction_resamples,
        ),
        _difference(
            one.sequence_level, other.sequence_level, one.sequence_resamples - other.sequence_resamples
        ),
    )


def bootstrap_sums(counts: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Sums of counts over resampled sequences.

    Args:
        counts: S x C, of each sequence.
        resamples: R; each draws S sequences with replacement, one resample after the other from one generator.

    Returns:
        R x C
    """
    rng = np.random.default_rng(seed)
    number = len(counts)
    sums = []
    size = max(1, _DRAWS_AT_A_TIME // number)
    for start in range(0, resamples, size):
        drawn = rng.integers(number, size=(min(size, resamples - start), number))
        # how often each sequence was drawn: one product sums all columns
        offsets = number * np.arange(len(drawn))[:, None]
        times = np.bincount((drawn + offsets).ravel(), minlength=drawn.size).reshape(drawn.shape)
        sums.append(times.astype(np.float64) @ counts)
    return np.concatenate(sums)


def part_of_speech(word: str, wordnet: WordNet) -> str:
    """The part of speech in which WordNet has most senses of a word or its base forms; ``none`` without an entry.

    Of equally many the first of noun, verb, adjective, adverb counts. The context is not asked: ``run`` is a verb
    (41 senses) wherever it stands, and small words may surprise (``in`` and ``he`` are nouns to WordNet).
    """
    senses = wordnet.senses(word)
    return max(senses, key=lambda part: (senses[part], -PARTS_OF_SPEECH.index(part)), default=NO_PART)


def by_part_of_speech(
    gold: np.ndarray,
    symbols: Sequence[str],
    wordnet: WordNet,
    gpt2_tokens: Mapping[str, str] | None = None,
) -> Grouping:
    """Group positions by the part of speech of their gold token; parts of words are among ``none``.

    Args:
        gold: K token ids.
        symbols: the vocabulary.
        gpt2_tokens: for vocabularies of GPT-2 ids, id -> token.

    Raises:
        UserError: the vocabulary holds GPT-2 ids and ``gpt2_tokens`` is not given
    """
    words = whole_words(symbols, gpt2_tokens=gpt2_tokens)
    labels = (*PARTS_OF_SPEECH, NO_PART)
    tokens, places = np.unique(gold, return_inverse=True)
    parts = [
        part_of_speech(words[symbols[token]], wordnet) if symbols[token] in words else NO_PART
        for token in tokens.tolist()
    ]
    return Grouping(labels, np.array([labels.index(part) for part in parts], dtype=np.int64)[places])


def by_frequency(gold: np.ndarray, counts: np.ndarray, bins: int = 5) -> Grouping:
    """Group positions by how often their gold token occurs in a text: quantiles of the positions, the rarest first.

    All positions of tokens that are equally frequent are in one bin, so that bins may be of unequal size, and fewer.

    Args:
        gold: K token ids.
        counts: V, occurrences of each symbol.
        bins: at most.
    """
    frequency = counts[gold]
    if len(frequency) == 0:
        return Grouping((), gold)
    limits = np.unique(np.quantile(frequency, np.arange(1, bins + 1) / bins, method="inverted_cdf"))
    group = np.searchsorted(limits, frequency, side="left")
    labels = []
    for number in range(len(limits)):
        inside = frequency[group == number]
        low, high = int(inside.min()), int(inside.max())
        labels.append(f"{low:,}" if low == high else f"{low:,}–{high:,}")
    return Grouping(labels, group)


def token_counts(dataset: Any, sequences: Iterable[int], num_symbols: int) -> np.ndarray:
    """How often each symbol occurs in the unmasked sequences of a data set: V (int64)."""
    total = np.zeros(num_symbols, dtype=np.int64)
    for index in sequences:
        total += np.bincount(dataset[index]["source"], minlength=num_symbols)
    return total


def _shares(found: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Per cent; nan where it would be a share of nothing."""
    return 100 * np.divide(found, of, out=np.full(len(found), np.nan), where=of > 0)


def _rate(found: float, of: float, drawn: np.ndarray) -> Rate:
    if not of:
        return Rate(None, None, None, int(found), int(of))
    low, high = (None, None) if found in (0, of) else _interval(drawn)
    return Rate(float(100 * found / of), low, high, int(found), int(of))


def _difference(one: Rate, other: Rate, drawn: np.ndarray) -> Difference:
    if one.value is None or other.value is None:
        return Difference(None, None, None)
    return Difference(one.value - other.value, *_interval(drawn))


def _interval(drawn: np.ndarray) -> tuple[float, float] | tuple[None, None]:
    """Percentiles of the resamples in which the share is defined."""
    drawn = drawn[~np.isnan(drawn)]
    if len(drawn) == 0:
        return None, None
    tail = (100 - _CONFIDENCE) / 2
    low, high = np.percentile(drawn, (tail, 100 - tail))
    return float(low), float(high)
