"""BERT's masking: which tokens are predicted, and what the model reads in their place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vocabularies import detect_style, is_special

# Symbols that stand for no token of a text, when a dictionary spells them in BERT's way. fairseq's own four
# (`<s> <pad> </s> <unk>`) are its first entries.
_BERT_SPECIALS = frozenset({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})


@dataclass(frozen=True)
class WordMarks:
    """What the symbols of a vocabulary tell about words; a word begins at a symbol that starts or follows an end.

    Args:
        starts: V bool, the symbols that begin a word wherever they stand
        ends: V bool, the symbols after which a word begins whatever follows
    """

    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, symbols: Sequence[str], gpt2_tokens: Mapping[str, str] | None = None) -> "WordMarks":
        """Judge by how a vocabulary writes words.

        Args:
            symbols: the vocabulary
            gpt2_tokens: for a vocabulary of GPT-2 ids, id -> token (see
                :func:`fairseq_tn.synonyms.vocabularies.read_gpt2_tokens`)

        Raises:
            UserError: the vocabulary holds GPT-2 ids and there are no tokens to them
        """
        style = detect_style(symbols)
        starts, ends = [False] * len(symbols), [False] * len(symbols)
        if style == "wordpiece":
            starts = [len(symbol) <= 2 or not symbol.startswith("##") for symbol in symbols]
        elif style in ("sentencepiece", "gpt2"):
            starts = [symbol.startswith(("▁", "Ġ")) for symbol in symbols]
        elif style == "gpt2-ids":
            if gpt2_tokens is None:
                raise UserError(
                    "--mask-whole-words cannot see where words begin in a dictionary of GPT-2 ids; name their "
                    "tokens with --gpt2-encoder encoder.json"
                )
            starts = [gpt2_tokens.get(symbol, "Ġ").startswith("Ġ") for symbol in symbols]
        elif style == "subword-nmt":
            ends = [not symbol.endswith("@@") for symbol in symbols]
        else:
            starts = [True] * len(symbols)
        return cls(np.array(starts, dtype=bool), np.array(ends, dtype=bool))

    def begins(self, tokens: np.ndarray) -> np.ndarray:
        """Return for each of some ids that follow each other whether a word begins there (bool)."""
        begins = self.starts[tokens]
        begins[1:] |= self.ends[tokens[:-1]]
        return begins


@dataclass(frozen=True)
class Masker:
    """BERT's masking of one vocabulary.

    Args:
        mask_index: id of ``<mask>``
        maskable: V bool, the symbols that may be selected
        replacements: ids that a random replacement draws from, uniformly
        whole_words: select whole words instead of single tokens
        word_marks: where words begin, as the vocabulary shows it; None: every call tells it
        mask_prob: expected share of the maskable tokens that are selected
        leave_unmasked_prob: share of the selected tokens that stay as they are
        random_token_prob: share of the selected tokens that become a random token; the rest become ``<mask>``
        fate_per_word: all tokens of a word become ``<mask>``, stay, or become random ones (each its own)
            together; otherwise each token has its own fate, as in BERT
    """

    mask_index: int
    maskable: np.ndarray
    replacements: np.ndarray
    whole_words: bool = False
    word_marks: WordMarks | None = None
    mask_prob: float = 0.15
    leave_unmasked_prob: float = 0.1
    random_token_prob: float = 0.1
    fate_per_word: bool = False

    def __post_init__(self):
        if self.fate_per_word and not self.whole_words:
            raise UserError(
                "--mask-fate-per-word is an option of --mask-whole-words; add that, or leave it out"
            )
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
        fate_per_word: bool = False,
        gpt2_tokens: Mapping[str, str] | None = None,
        told: bool = False,
    ) -> "Masker":
        """Derive the masker of a fairseq dictionary.

        Args:
            symbols: the dictionary's symbols in the order of their ids
            num_special: how many special symbols it begins with (``Dictionary.nspecial``)
            mask_index: id of ``<mask>``
            whole_words: select whole words instead of single tokens
            gpt2_tokens: what the ids of a GPT-2 vocabulary stand for; only ``whole_words`` needs it
            told: with ``whole_words``, every call tells where words begin, whatever the vocabulary shows

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
            whole_words=whole_words,
            word_marks=WordMarks.of(symbols, gpt2_tokens) if whole_words and not told else None,
            mask_prob=mask_prob,
            leave_unmasked_prob=leave_unmasked_prob,
            random_token_prob=random_token_prob,
            fate_per_word=fate_per_word,
        )

    def select(
        self, tokens: np.ndarray, rng: np.random.Generator, begins: np.ndarray | None = None
    ) -> np.ndarray:
        """Choose the positions to predict.

        The expected number is exactly ``mask_prob`` times the number of maskable tokens, except that a sequence
        with a maskable token always has one selected.

        Args:
            tokens: T ids
            rng: see :meth:`__call__`
            begins: T bool, whether a word begins there; needed, and read, if the vocabulary does not show it

        Returns:
            the selected positions, ascending
        """
        positions = np.flatnonzero(self.maskable[tokens])
        if len(positions) == 0:
            return positions
        if not self.whole_words:
            return np.sort(positions[_draw_units(None, len(positions), self.mask_prob * len(positions), rng)])
        word = np.cumsum(self._word_begins(tokens, positions, begins)) - 1
        lengths = np.bincount(word)
        chosen = np.zeros(len(lengths), dtype=bool)
        chosen[_draw_units(lengths, len(lengths), self.mask_prob * len(positions), rng)] = True
        return positions[chosen[word]]

    def __call__(
        self, tokens: np.ndarray, rng: np.random.Generator, begins: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mask one sequence.

        Args:
            tokens: T ids
            rng: the item's own generator (see :func:`fairseq_tn.data.random_streams.generator`)
            begins: see :meth:`select`

        Returns:
            the T ids that the model reads, and the selected positions in ascending order
        """
        selected = self.select(tokens, rng, begins)
        fate = rng.random(len(selected))
        if self.fate_per_word and len(selected):
            first = self._word_begins(tokens, selected, begins)
            fate = fate[first][np.cumsum(first) - 1]
        masked = tokens.copy()
        masked[selected[fate >= self.leave_unmasked_prob + self.random_token_prob]] = self.mask_index
        random = selected[fate < self.random_token_prob]
        masked[random] = self.replacements[rng.integers(len(self.replacements), size=len(random))]
        return masked, selected

    def _word_begins(self, tokens: np.ndarray, positions: np.ndarray, told: np.ndarray | None) -> np.ndarray:
        """Return for each of some positions, which make up whole words, whether a word begins there.

        Args:
            tokens: T ids
            positions: ascending, at least one
            told: see :meth:`select`
        """
        if self.word_marks is not None:
            begins = self.word_marks.begins(tokens[positions])
        elif told is not None:
            begins = told[positions]
        else:
            raise ValueError("this masker has to be told where words begin")
        begins[0] = True
        # a special between two tokens parts words too
        begins[1:] |= np.diff(positions) > 1
        return begins


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
