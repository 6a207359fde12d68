"""Anchor and positive spans of documents, as DeCLUTR draws them (Giorgi et al., 2021, section 3.1)."""

from dataclasses import dataclass

import numpy as np

from fairseq_tn.errors import UserError

SAMPLINGS = ("any", "adjacent", "overlapping", "contained")
# long anchors say more of their document, short positives have less in common with them
_ANCHOR_BETA = 4, 2
_POSITIVE_BETA = 2, 4

# (first token, number of tokens)
DocumentSpan = tuple[int, int]


@dataclass(frozen=True)
class SpanSampler:
    """Draws spans; lengths are min + (max - min) x Beta, rounded down.

    A document has room for anchors of up to tokens / (2 x ``anchors``): where that is less than ``max_length``, it
    takes the place of it, and of ``min_length`` too if need be. The paper leaves such documents out.

    Args:
        anchors: of a document; at least the greatest length lies between two of them
        positives: of each anchor
        min_length, max_length: of a span in tokens
        sampling: where positives lie. ``contained``: within the anchor. ``adjacent``: right before or behind it.
            ``overlapping``: partly in it and partly not. ``any``: one of these, by chance: every place that touches
            or meets the anchor is as likely.
    """

    anchors: int = 2
    positives: int = 2
    min_length: int = 32
    max_length: int = 512
    sampling: str = "any"

    def __post_init__(self):
        for option, value in (
            ("--anchors-per-document", self.anchors),
            ("--positives-per-anchor", self.positives),
            ("--min-span-length", self.min_length),
        ):
            if value < 1:
                raise UserError(f"{option} is {value}; it must be 1 or more")
        if self.max_length < self.min_length:
            raise UserError(
                f"--max-span-length is {self.max_length} and --min-span-length {self.min_length}; the former must not "
                "be less"
            )

    def draw(
        self, tokens: int, rng: np.random.Generator
    ) -> tuple[list[DocumentSpan], list[list[DocumentSpan]]]:
        """The anchors of a document of ``tokens`` tokens, in their order, and the positives of each."""
        longest = min(self.max_length, max(1, tokens // (2 * self.anchors)))
        shortest = min(self.min_length, longest)
        lengths = [_beta_length(_ANCHOR_BETA, shortest, longest, rng) for _ in range(self.anchors)]
        # what is left of the document is shared out before, between and behind the anchors and the gaps
        room = tokens - sum(lengths) - (self.anchors - 1) * longest
        if room >= 0:
            taken = np.cumsum([0, *lengths[:-1]]) + longest * np.arange(self.anchors)
            starts = np.sort(rng.integers(room + 1, size=self.anchors)) + taken
        else:  # fewer tokens than anchors and gaps, so that all lengths are 1
            starts = np.sort(rng.integers(tokens, size=self.anchors))
        anchors = list(zip(starts.tolist(), lengths, strict=True))
        positives = [
            [self._positive(anchor, tokens, shortest, longest, rng) for _ in range(self.positives)]
            for anchor in anchors
        ]
        return anchors, positives

    def _positive(
        self, anchor: DocumentSpan, tokens: int, shortest: int, longest: int, rng: np.random.Generator
    ) -> DocumentSpan:
        begin, length = anchor
        end = begin + length
        if self.sampling == "contained":
            own = _beta_length(_POSITIVE_BETA, shortest, length, rng)
            return begin + int(rng.integers(length - own + 1)), own
        if self.sampling == "adjacent" and tokens > length:
            longest = min(longest, max(begin, tokens - end))
            own = _beta_length(_POSITIVE_BETA, min(shortest, longest), longest, rng)
            starts = [start for start in (begin - own, end) if 0 <= start <= tokens - own]
            return starts[int(rng.integers(len(starts)))], own
        own = _beta_length(_POSITIVE_BETA, shortest, longest, rng)
        if self.sampling == "overlapping":
            # before the anchor's first token, or so that it ends behind its last one
            starts = [
                *range(max(0, begin - own + 1), min(begin, tokens - own + 1)),
                *range(max(begin, end - own + 1), min(end, tokens - own + 1)),
            ]
            if starts:  # a single token is no place to overlap in part
                return starts[int(rng.integers(len(starts)))], own
        return int(rng.integers(max(0, begin - own), min(end, tokens - own) + 1)), own


def _beta_length(beta: tuple[int, int], shortest: int, longest: int, rng: np.random.Generator) -> int:
    return int(shortest + (longest - shortest) * rng.beta(*beta))
