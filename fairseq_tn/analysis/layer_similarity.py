"""How alike token states are, layer by layer: within a sentence, and beyond what any two tokens have in common.

Self-similarity is equation 3 of TaCL (Su et al., 2021), averaged over sentences. The states of a model may all point
the same way, whatever the sentence; the mean cosine between tokens of different sentences measures that
(anisotropy), and self-similarity less it is what the sentence adds (the adjustment of Ethayarajh, 2019).
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_tn.analysis.models import BATCH_TOKENS, AnalysedModel
from fairseq_tn.analysis.self_similarity import unit_sums
from fairseq_tn.errors import UserError

# sets of tokens over which everything is computed
WITHOUT_SPECIALS, WITH_SPECIALS = TOKEN_SETS = ("without_specials", "with_specials")
STATISTICS = ("self_similarity", "between_sentences", "adjusted")

# sentences are parted into so many groups at random; leaving out one after the other gives standard errors
GROUPS = 100
_LINES = 1024  # that are encoded at a time


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error over sentences; nan where there are too few sentences."""

    value: float
    error: float


@dataclass(frozen=True)
class LayerSimilarity:
    """What :func:`layer_similarity` found.

    name: the model's.
    measured: sentences that count.
    skipped: sentences of fewer than two tokens, which have no pair.
    cut: of the measured, sentences longer than the model.
    tokens: of the measured sentences, without special tokens.
    values: statistic x token set x layer.
    left_out: the same x GROUPS, computed without one group of sentences.
    used: GROUPS bool, groups that hold a sentence.
    """

    name: str
    measured: int
    skipped: int
    cut: int
    tokens: int
    values: np.ndarray
    left_out: np.ndarray
    used: np.ndarray

    @property
    def layers(self) -> int:
        """Layers, the output of the embeddings included."""
        return self.values.shape[-1]

    def estimate(self, statistic: str, token_set: str, layer: int) -> Estimate:
        """One of ``STATISTICS`` over one of ``TOKEN_SETS``; negative layers count from the last one."""
        place = (STATISTICS.index(statistic), TOKEN_SETS.index(token_set), layer)
        return Estimate(float(self.values[place]), _jackknife(self.left_out[place][self.used]))

    def difference(self, other: "LayerSimilarity", statistic: str, token_set: str, layer: int) -> Estimate:
        """This model's estimate less that of ``other``; the error is that of the pairs of a sentence.

        Both must come from the same sentences and seed.
        """
        place = (STATISTICS.index(statistic), TOKEN_SETS.index(token_set), layer)
        used = self.used | other.used
        return Estimate(
            float(self.values[place] - other.values[place]),
            _jackknife((self.left_out[place] - other.left_out[place])[used]),
        )


def layer_similarity(
    model: AnalysedModel,
    sentences: Iterable[str],
    seed: int = 1,
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], object] = lambda sentences: None,
) -> LayerSimilarity:
    """Self-similarity, mean cosine between tokens of different sentences and their difference, of every layer.

    Each is computed with and without ``<s>`` and ``</s>``, over the same sentences: those with two tokens or more,
    cut to the length of the model. With u the unit vectors of token states, s_k the sum over sentence k, S the sum
    over all and n_k the tokens, the mean cosine over all pairs of tokens from different sentences is
    (|S|^2 - sum_k |s_k|^2) / ((sum_k n_k)^2 - sum_k n_k^2): exact, in memory that does not grow with the text.
    Standard errors are those of a jackknife over ``GROUPS`` groups of sentences.

    Args:
        model: with its tokenizer.
        sentences: text; read once, as needed.
        seed: of the groups.
        batch_tokens: tokens of a batch, padding included; changes time and memory only.
        progress: is told how many more sentences are done.

    Raises:
        UserError: no sentence has two tokens
    """
    counts = _Counts()
    groups: dict[int, int] = {}
    sums: _Sums | None = None
    for numbers, tokens in model.batches(_sequences(model, sentences, seed, counts, groups), batch_tokens):
        layers = model.layers(tokens)
        if sums is None:
            sums = _Sums(len(layers), layers[0].size(-1), tokens.device)
        real = tokens.ne(model.dictionary.pad())
        inner = real & tokens.ne(model.dictionary.bos()) & tokens.ne(model.dictionary.eos())
        sums.add(layers, (inner, real), [groups.pop(int(number)) for number in numbers])
        progress(len(numbers))
    if sums is None:
        raise UserError(
            f"{model.name}: no sentence has two tokens, without which there is no self-similarity; give text with one "
            "sentence a line"
        )
    return LayerSimilarity(
        name=model.name,
        measured=counts.measured,
        skipped=counts.skipped,
        cut=counts.cut,
        tokens=counts.tokens,
        values=sums.statistics(),
        left_out=sums.statistics_without_each_group(),
        used=sums.used(),
    )


@dataclass
class _Counts:
    measured: int = 0
    skipped: int = 0
    cut: int = 0
    tokens: int = 0


def _sequences(
    model: AnalysedModel, sentences: Iterable[str], seed: int, counts: _Counts, groups: dict[int, int]
) -> Iterator[np.ndarray]:
    """What is measured, cut to the model's length; puts the group of sequence n, from 0, into ``groups[n]``."""
    for sequence, group in zip(_encoded(model, sentences), _random_groups(seed), strict=False):
        if len(sequence) < 4:
            counts.skipped += 1
            continue
        counts.cut += len(sequence) > model.max_tokens
        sequence = model.cut(sequence)
        groups[counts.measured] = group
        counts.measured += 1
        counts.tokens += len(sequence) - 2
        yield sequence


def _encoded(model: AnalysedModel, sentences: Iterable[str]) -> Iterator[np.ndarray]:
    stream = iter(sentences)
    while lines := list(itertools.islice(stream, _LINES)):
        yield from model.encode(lines)


def _random_groups(seed: int) -> Iterator[int]:
    """A group for each sentence of a text: random, and all equally often."""
    generator = np.random.default_rng(seed)
    while True:
        yield from generator.permutation(GROUPS).tolist()


class _Sums:
    """Sums over the sentences of each group, in float64 on the model's device; P is the number of token sets."""

    def __init__(self, layers: int, width: int, device: torch.device):
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, device=device)

        sets = len(TOKEN_SETS)
        self.similarity = zeros(sets, layers, GROUPS)  # of the sentences' self-similarities
        self.vectors = zeros(sets, layers, GROUPS, width)  # S
        self.squares = zeros(sets, layers, GROUPS)  # of |s_k|^2
        self.sentences = zeros(GROUPS)
        self.tokens = zeros(sets, GROUPS)
        self.tokens_squared = zeros(sets, GROUPS)

    def add(self, layers: Sequence[Tensor], token_sets: Sequence[Tensor], groups: list[int]) -> None:
        """Add a batch: its states (L tensors of B x T x D), masks (B x T), and the group of each sequence."""
        group = torch.tensor(groups, device=self.sentences.device)
        self.sentences.index_add_(0, group, torch.ones_like(group, dtype=torch.float64))
        for index, valid in enumerate(token_sets):
            for layer, states in enumerate(layers):
                total, own, tokens = unit_sums(states, valid)
                squares = total.square().sum(dim=1)
                self.similarity[index, layer].index_add_(0, group, (squares - own) / (tokens * (tokens - 1)))
                self.vectors[index, layer].index_add_(0, group, total)
                self.squares[index, layer].index_add_(0, group, squares)
            self.tokens[index].index_add_(0, group, tokens)
            self.tokens_squared[index].index_add_(0, group, tokens.square())

    def statistics(self) -> np.ndarray:
        """Statistic x token set x layer, over all sentences."""
        return _statistics(
            self.similarity.sum(2),
            self.sentences.sum(),
            self.vectors.sum(2).square().sum(-1),
            self.squares.sum(2),
            self.tokens.sum(1)[:, None],
            self.tokens_squared.sum(1)[:, None],
        )

    def statistics_without_each_group(self) -> np.ndarray:
        """Statistic x token set x layer x group, each without the sentences of that group."""
        vectors = self.vectors.sum(2, keepdim=True) - self.vectors
        return _statistics(
            _others(self.similarity),
            _others(self.sentences),
            vectors.square().sum(-1),
            _others(self.squares),
            _others(self.tokens)[:, None],
            _others(self.tokens_squared)[:, None],
        )

    def used(self) -> np.ndarray:
        """GROUPS bool: groups that hold a sentence."""
        return self.sentences.cpu().numpy() > 0


def _others(values: Tensor) -> Tensor:
    """For each entry of the last dimension the sum of the others."""
    return values.sum(-1, keepdim=True) - values


def _statistics(
    similarity: Tensor,
    sentences: Tensor,
    square: Tensor,
    squares: Tensor,
    tokens: Tensor,
    tokens_squared: Tensor,
) -> np.ndarray:
    within = similarity / sentences
    # without a second sentence both are zero, up to rounding: nan
    pairs = tokens.square() - tokens_squared
    between = (square - squares) / torch.where(sentences > 1, pairs, torch.nan)
    return torch.stack([within, between, within - between]).cpu().numpy()


def _jackknife(left_out: np.ndarray) -> float:
    """The standard error from a statistic without one group after the other."""
    groups = len(left_out)
    if groups < 2:
        return float("nan")
    return float(np.sqrt((groups - 1) / groups * np.square(left_out - left_out.mean()).sum()))


@dataclass(frozen=True)
class CosineMatrix:
    """The cosines (n x n) of the tokens of one sentence in one layer of a model, with the tokens' labels.

    length: tokens of the sentence, of which the first n are here.
    mean: of the cosines off the diagonal, over the whole sentence: its self-similarity.
    """

    labels: list[str]
    cosines: np.ndarray
    layer: int
    length: int
    mean: float


def cosine_matrix(
    model: AnalysedModel,
    sentence: str,
    layer: int | None = None,
    specials: bool = False,
    limit: int | None = None,
) -> CosineMatrix:
    """The cosine of every two tokens of ``sentence``, which is read whole.

    Args:
        model: with its tokenizer.
        sentence: text, cut to the model's length.
        layer: 0 is the output of the embeddings; default: the last.
        specials: whether ``<s>`` and ``</s>`` are among the tokens.
        limit: the most tokens that are returned.

    Raises:
        UserError: the model has no such layer, or the sentence has fewer than two tokens
    """
    sequence = model.encode([sentence])[0]
    if len(sequence) < 4:
        raise UserError(f"{model.name}: {sentence!r} has fewer than two tokens; give a longer sentence")
    sequence = model.cut(sequence)
    layers = model.layers(torch.from_numpy(sequence).to(model.device).unsqueeze(0))
    layer = len(layers) - 1 if layer is None else layer
    if layer >= len(layers):
        raise UserError(f"{model.name} has no layer {layer}; its last is {len(layers) - 1}")
    kept = slice(None) if specials else slice(1, -1)
    units = F.normalize(layers[layer][0, kept].double(), dim=-1)
    cosines = (units @ units.T).cpu().numpy()
    length = len(cosines)
    return CosineMatrix(
        labels=model.labels(sequence[kept][:limit]),
        cosines=cosines[:limit, :limit],
        layer=layer,
        length=length,
        mean=float((cosines.sum() - np.trace(cosines)) / (length * (length - 1))),
    )


def choose_sentences(
    model: AnalysedModel,
    sentences: Iterable[str],
    number: int,
    seed: int = 1,
    shortest: int = 8,
    longest: int = 24,
) -> list[str]:
    """Draw ``number`` different sentences of ``shortest`` to ``longest`` tokens, in the order of the text.

    There may be fewer in the text. It is read once, and kept are only those that are drawn.
    """
    generator = np.random.default_rng(seed)
    drawn: list[tuple[float, int, str]] = []
    held: set[str] = set()
    stream = iter(sentences)
    position = itertools.count()
    while lines := list(itertools.islice(stream, _LINES)):
        for line, sequence in zip(lines, model.encode(lines), strict=True):
            if not shortest <= len(sequence) - 2 <= longest or line in held:
                continue
            # those with the greatest random numbers: a draw without knowing how many there are
            entry = (float(generator.random()), next(position), line)
            held.add(line)
            if len(drawn) < number:
                heapq.heappush(drawn, entry)
            else:
                held.discard(heapq.heappushpop(drawn, entry)[2])
    return [line for _, _, line in sorted(drawn, key=lambda entry: entry[1])]
