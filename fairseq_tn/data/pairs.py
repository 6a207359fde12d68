"""Sentence pairs for next sentence prediction (NSP), as BERT's create_pretraining_data draws them.

Every document is walked from its first sentence to its last. Whole sentences are taken until they reach the
target length or the document ends; the chunk is split at a random sentence into A and B. In half of the cases B
is replaced by text from another document and the chunk's own B goes back to be used next; a chunk of a single
sentence, which has no B, always gets such text. What exceeds the limit is cut from the longer segment, token by
token, at front or back by chance.

Only the lengths of the lines are needed, so drawing the pairs of ten million sentences takes seconds.
"""

from dataclasses import dataclass

import numpy as np

from fairseq_tn.data.documents import document_bounds, token_offsets
from fairseq_tn.data.random_streams import Stream, generator
from fairseq_tn.errors import UserError

# `<s> A </s> B </s>`
NUM_SPECIAL = 3
# Sentences handled at once: bounds the memory of temporary arrays. The random numbers depend on it.
_CHUNK = 1 << 18

# (line, tokens to skip, tokens to take)
Span = tuple[int, int, int]


@dataclass(frozen=True)
class SentencePairs:
    """P pairs in the order of the corpus. A segment is ``length`` tokens after the first ``skip`` of a line.

    Attributes:
        first_line, first_skip, first_length: P each, segment A
        second_line, second_skip, second_length: P each, segment B
        unrelated: P bool, whether B is from another document (NSP's class 1)
    """

    first_line: np.ndarray
    first_skip: np.ndarray
    first_length: np.ndarray
    second_line: np.ndarray
    second_skip: np.ndarray
    second_length: np.ndarray
    unrelated: np.ndarray

    def __len__(self) -> int:
        return len(self.first_line)

    @property
    def lengths(self) -> np.ndarray:
        """P lengths of ``<s> A </s> B </s>``."""
        return self.first_length.astype(np.int32) + self.second_length + NUM_SPECIAL

    def spans(self, index: int) -> list[Span]:
        """Return (line, skip, length) of A and of B."""
        return [
            (int(self.first_line[index]), int(self.first_skip[index]), int(self.first_length[index])),
            (int(self.second_line[index]), int(self.second_skip[index]), int(self.second_length[index])),
        ]

    def label(self, index: int) -> int:
        """Return 0 when B follows A, 1 when it is from another document."""
        return int(self.unrelated[index])


def draw_pairs(
    sizes: np.ndarray,
    tokens_per_sample: int,
    seed: int,
    epoch: int,
    short_seq_prob: float = 0.1,
    name: str = "the corpus",
) -> SentencePairs:
    """Draw the sentence pairs of one epoch.

    Args:
        sizes: N item lengths, ``</s>`` included; 1 is a blank line, which ends a document
        tokens_per_sample: most tokens of a pair, special tokens included
        seed, epoch: what the draw depends on, beside ``sizes``
        short_seq_prob: probability that a chunk's target length is drawn from [2, limit] instead of the limit
        name: what to call the corpus in an error

    Raises:
        UserError: fewer than two documents, or ``tokens_per_sample`` leaves no room for two segments
    """
    limit = tokens_per_sample - NUM_SPECIAL
    if limit < 2:
        raise UserError(
            f"--tokens-per-sample is {tokens_per_sample}; sentence pairs need 5 or more (or use --no-nsp)"
        )
    begins, ends = document_bounds(sizes)
    if len(begins) < 2:
        raise UserError(
            f"NSP needs at least two documents, {name} has {'one' if len(begins) else 'none'}; "
            "separate documents by a blank line or use --no-nsp"
        )
    offsets = token_offsets(sizes, headroom=2 * limit)
    parts = []
    line = 0
    for number, low in enumerate(range(0, len(sizes), _CHUNK)):
        high = min(low + _CHUNK, len(sizes))
        rng = generator(seed, epoch, Stream.PAIRS, number)
        # 1. for every line, the chunk that would begin there
        lines = np.arange(low, high)
        document = np.maximum(np.searchsorted(begins, lines, side="right") - 1, 0)
        target = np.full(high - low, limit, dtype=offsets.dtype)
        short = np.flatnonzero(rng.random(high - low) < short_seq_prob)
        target[short] = rng.integers(2, limit + 1, size=len(short))
        # a line has a token at least, blank lines end chunks: no chunk is longer than `limit` lines
        nearby = offsets[low : high + limit + 1]
        chunk_end = low + np.searchsorted(nearby, nearby[: high - low] + target, side="left")
        chunk_end = np.minimum(chunk_end, ends[document])
        count = chunk_end - lines
        split = rng.integers(1, np.maximum(count, 2))
        unrelated = (count < 2) | (rng.random(high - low) < 0.5)
        # 2. walk the corpus; a blank line is a step of one, and is dropped afterwards
        step = np.where(sizes[low:high] > 1, np.where(unrelated, split, count), 1).tolist()
        walked = []
        position = line - low
        while position < high - low:
            walked.append(position)
            position += step[position]
        line = low + position
        taken = np.array(walked, dtype=np.int64)
        taken = taken[sizes[low + taken] > 1]
        # 3. the pairs of the chunks that were met
        parts.append(
            _make_pairs(
                offsets,
                begins,
                ends,
                limit,
                lines[taken],
                document[taken],
                target[taken],
                split[taken],
                chunk_end[taken],
                unrelated[taken],
                rng,
            )
        )
    fields = SentencePairs.__dataclass_fields__
    return SentencePairs(*(_compact([getattr(part, field) for part in parts]) for field in fields))


def _make_pairs(
    offsets: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    limit: int,
    line: np.ndarray,
    document: np.ndarray,
    target: np.ndarray,
    split: np.ndarray,
    chunk_end: np.ndarray,
    unrelated: np.ndarray,
    rng: np.random.Generator,
) -> SentencePairs:
    """Choose B, and cut both segments to ``limit`` tokens together. One entry a chunk in all arrays after it."""
    second = line + split
    second_end = chunk_end.copy()
    first_length = (offsets[second] - offsets[line]).astype(np.int64)

    # any other document with equal probability, and any sentence of it
    moved = np.flatnonzero(unrelated)
    other = rng.integers(0, len(begins) - 1, size=len(moved))
    other += other >= document[moved]
    start = begins[other] + rng.integers(0, ends[other] - begins[other])
    # one sentence at least, even where A has used up the target
    wanted = np.maximum(target[moved].astype(np.int64) - first_length[moved], 1).astype(offsets.dtype)
    second[moved] = start
    second_end[moved] = np.minimum(
        np.searchsorted(offsets, offsets[start] + wanted, side="left"), ends[other]
    )
    second_length = (offsets[second_end] - offsets[second]).astype(np.int64)

    first_kept, second_kept = truncated_lengths(first_length, second_length, limit)
    return SentencePairs(
        first_line=line,
        first_skip=rng.binomial(first_length - first_kept, 0.5),
        first_length=first_kept,
        second_line=second,
        second_skip=rng.binomial(second_length - second_kept, 0.5),
        second_length=second_kept,
        unrelated=unrelated,
    )


def truncated_lengths(first: np.ndarray, second: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what is left of two lengths after taking one from the longer (from B if equal) until they fit.

    The shorter one is untouched unless both exceed half the limit, and then they share it.
    """
    first = np.minimum(first, np.maximum((limit + 1) // 2, limit - second))
    return first, np.minimum(second, limit - first)


def _compact(parts: list[np.ndarray]) -> np.ndarray:
    """Join arrays in the smallest unsigned type that holds their values (bool stays bool)."""
    joined_type = parts[0].dtype
    if joined_type != np.bool_:
        joined_type = np.min_scalar_type(max((int(part.max()) for part in parts if len(part)), default=0))
    return np.concatenate([part.astype(joined_type) for part in parts])
