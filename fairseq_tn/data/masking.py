"""BERT's masking: which tokens are predicted, and what the model reads in their place."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vocabularies import detect_style, is_special

# Symbols that stand for no token of a text, when a dictionary spells them in BERT's way. fairseq's own four
# (`<s> <pad> </s> <unk>`) are its first entries.
_BERT_SPECIALS = frozenset({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})


def word_starts(symbols: Sequence[str]) -> np.ndarray:
    """Return V bool: whether a symbol begins a word, judged by how the vocabulary writes words.

    Raises:
        UserError: the symbols do not tell: GPT-2 ids, and subword-nmt, whose ``@@`` marks what goes on instead
    """
    style = detect_style(symbols)
    if style == "wordpiece":
        starts = [len(symbol) <= 2 or not symbol.startswith("##") for symbol in symbols]
    elif style in ("sentencepiece", "gpt2"):
        starts = [symbol.startswith(("▁", "Ġ")) for symbol in symbols]
    elif style == "words":
        starts = [True] * len(symbols)
    else:
        raise UserError(
            f"--mask-whole-words cannot see where words begin in a dictionary of style {style}; "
            "it knows WordPiece, SentencePiece, GPT-2 (spelled out) and plain words: leave the option out"
        )
    return np.array(starts, dtype=bool)


@dataclass(frozen=True)
class Masker:
    """BERT's masking of one vocabulary.

    Args:
        mask_index: id of ``<mask>``
        maskable: V bool, the symbols that may be selected
        replacements: ids that a random replacement draws from, uniformly
        word_starts: V bool, the symbols that begin a word; None selects single tokens
        mask_prob: expected share of the maskable tokens that are selected
        leave_unmasked_prob: share of the selected tokens that stay as they are
        random_token_prob: share of the selected tokens that become a random token; the rest become ``<mask>``
    """

    mask_index: int
    maskable: np.ndarray
    replacements: np.ndarray
    word_starts: np.ndarray | None = None
    mask_prob: float = 0.15
    leave_unmasked_prob: float = 0.1
    random_token_prob: float = 0.1

    def __post_init__(self):
        if not 0 < self.mask_prob <= 1:
            raise UserError(f"--mask-prob is {self.mask_prob}; it must be above 0 and at most 1")
        for option in ("leave_unmasked_prob", "random_token_prob"):
            if not 0 <= getattr(self, option) <= 1:
                name = "--" + option.replace("_", "-")
                raise UserError(f"{name} is {getattr(self, option)}; it must be from 0 to 1")
        if self.leave_unmasked_prob + self.random_token_prob > 1:
            raise UserError(
                f"--leave-unmasked-prob {self.leave_unmasked_prob} and --random-token-prob "
                f"{self.random_token_prob} are more than 1 together; lower one of them"
            )

    @classmethod
    def for_vocabulary(
        cls,
        symbols: Sequence[str],
        num_special: int,
        mask_index: int,
        whole_words: bool = False,
        mask_prob: float = 0.15,
        leave_unmasked_prob: float = 0.1,
        random_token_prob: float = 0.1,
    ) -> "Masker":
        """Derive the masker of a fairseq dictionary.

        Args:
            symbols: the dictionary's symbols in the order of their ids
            num_special: how many special symbols it begins with (``Dictionary.nspecial``)
            mask_index: id of ``<mask>``
            whole_words: select whole words instead of single tokens

        Raises:
            UserError: a probability is out of range, the vocabulary has no ordinary symbol, or ``whole_words``
                is asked of a vocabulary that does not show where words begin
        """
        maskable = np.array([symbol not in _BERT_SPECIALS for symbol in symbols], dtype=bool)
        maskable[:num_special] = False
        maskable[mask_index] = False
        # neither specials nor placeholders: `madeupword0000` fills up fairseq's dictionaries, `[unused1]` BERT's
        ordinary = np.array([not is_special(symbol) for symbol in symbols], dtype=bool)
        replacements = np.flatnonzero(maskable & ordinary)
        if len(replacements) == 0:
            raise UserError(
                "the dictionary (dict.txt) has no ordinary symbol: make it with fairseq-tn encode"
            )
        return cls(
            mask_index=mask_index,
            maskable=maskable,
            replacements=replacements,
            word_starts=word_starts(symbols) if whole_words else None,
            mask_prob=mask_prob,
            leave_unmasked_prob=leave_unmasked_prob,
            random_token_prob=random_token_prob,
        )

    def select(self, tokens: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Choose the positions to predict.

        The expected number is exactly ``mask_prob`` times the number of maskable tokens, except that a sequence
        with a maskable token always has one selected.

        Args:
            tokens: T ids

        Returns:
            the selected positions, ascending
        """
        positions = np.flatnonzero(self.maskable[tokens])
        if len(positions) == 0:
            return positions
        if self.word_starts is None:
            return np.sort(positions[_draw_units(None, len(positions), self.mask_prob * len(positions), rng)])
        # a special between two tokens parts words too
        begins = self.word_starts[tokens[positions]]
        begins[0] = True
        begins[1:] |= np.diff(positions) > 1
        word = np.cumsum(begins) - 1
        lengths = np.bincount(word)
        chosen = np.zeros(len(lengths), dtype=bool)
        chosen[_draw_units(lengths, len(lengths), self.mask_prob * len(positions), rng)] = True
        return positions[chosen[word]]

    def __call__(self, tokens: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mask one sequence.

        Args:
            tokens: T ids
            rng: the item's own generator (see :func:`fairseq_tn.data.random_streams.generator`)

        Returns:
            the T ids that the model reads, and the selected positions in ascending order
        """
        selected = self.select(tokens, rng)
        fate = rng.random(len(selected))
        masked = tokens.copy()
        masked[selected[fate >= self.leave_unmasked_prob + self.random_token_prob]] = self.mask_index
        random = selected[fate < self.random_token_prob]
        masked[random] = self.replacements[rng.integers(len(self.replacements), size=len(random))]
        return masked, selected


def _draw_units(
    lengths: np.ndarray | None, count: int, target: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw units (tokens or words) in random order until their tokens make up ``target``, in expectation exactly.

    The unit that crosses the target is taken with the probability that makes the expectation right: for single
    tokens this is stochastic rounding.

    Args:
        lengths: tokens of each unit; None = 1 each
        count: number of units

    Returns:
        at least one unit, in random order
    """
    order = rng.permutation(count)
    if lengths is None:
        number = int(target)
        number += rng.random() < target - number
    else:
        totals = np.cumsum(lengths[order])
        number = int(np.searchsorted(totals, target, side="right"))
        if number < count:
            before = totals[number - 1] if number else 0
            number += rng.random() * lengths[order[number]] < target - before
    return order[: max(number, 1)]
