"""What a model predicts at masked tokens of sentences, and what hard correction makes of it.

The sentences of figure 3 of True Negatives (Zhang et al., 2023), for any model and text. Tokens are selected as in
pre-training, 15 % of a sentence together, but all of them become ``<mask>``: what the model can see tells nothing.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fairseq_tn.analysis.models import BATCH_TOKENS, AnalysedModel
from fairseq_tn.data.masking import Masker
from fairseq_tn.data.random_streams import Stream, generator
from fairseq_tn.errors import UserError
from fairseq_tn.losses import most_likely
from fairseq_tn.synonyms.table import SynonymTable
from fairseq_tn.synonyms.vocabularies import MASK, detect_style, written_tokens

RIGHT, CORRECTED, WRONG = VERDICTS = ("right", "corrected", "wrong")
_LINES = 1024  # that are encoded at a time


@dataclass(frozen=True)
class MaskedToken:
    """One masked token of a sentence.

    position: in the sentence's tokens, from 0.
    gold, predicted: the right token and the model's first choice.
    probability: that the model gives to its choice.
    gold_probability: that it gives to the right token.
    verdict: ``right``; ``corrected`` where the choice is a synonym of the right token; or ``wrong``.
    synonyms: of the right token, in the table's order.
    """

    position: int
    gold: str
    predicted: str
    probability: float
    gold_probability: float
    verdict: str
    synonyms: list[str]


@dataclass(frozen=True)
class Example:
    """A sentence with its masked tokens.

    sentence: its number in the text, from 1, blank lines not counted.
    written: what each token writes, spaces included; their concatenation is the text.
    masked: in the order of their positions.
    """

    sentence: int
    written: list[str]
    masked: list[MaskedToken]

    @property
    def text(self) -> str:
        """The sentence as the model's tokens write it."""
        return "".join(self.written).strip()


@dataclass(frozen=True)
class Corrections:
    """What :func:`find_corrections` found.

    sentences: that were read.
    skipped: of these, sentences without a token that can be masked.
    cut: of these, sentences longer than the model.
    verdicts: how many masked tokens of all sentences got each of ``VERDICTS``.
    touched: sentences with a corrected token.
    fitting: sentences with the wanted verdict, of which the examples were drawn.
    examples: in the order of the text.
    """

    sentences: int
    skipped: int
    cut: int
    verdicts: dict[str, int]
    touched: int
    fitting: int
    examples: list[Example]


@dataclass
class _Masked:
    """A sentence between its encoding and its prediction."""

    source: np.ndarray
    selected: np.ndarray


@torch.no_grad()
def find_corrections(
    model: AnalysedModel,
    sentences: Iterable[str],
    table: SynonymTable,
    examples: int = 10,
    seed: int = 1,
    verdict: str | None = CORRECTED,
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], object] = lambda sentences: None,
) -> Corrections:
    """Mask and predict tokens of sentences, and draw examples.

    Args:
        model: with its tokenizer.
        sentences: text; read once, as needed.
        table: of the model's vocabulary.
        examples: how many sentences to return, at most.
        seed: of the masks and of the draw. The masks of a sentence depend on its number and nothing else.
        verdict: only sentences with this one are drawn; None: any.
        batch_tokens: tokens of a batch, padding included; changes time and memory only.
        progress: is told how many more sentences are done.

    Raises:
        UserError: no sentence has a token that can be masked
    """
    symbols = model.dictionary.symbols
    masker = Masker.for_vocabulary(
        symbols,
        num_special=model.dictionary.nspecial,
        mask_index=model.dictionary.index(MASK),
        leave_unmasked_prob=0.0,
        random_token_prob=0.0,
    )
    counts: Counter[str] = Counter()
    held: dict[int, tuple[int, _Masked]] = {}  # what is read and not yet predicted
    drawn: list[tuple[float, int, Example]] = []

    def masked_sequences() -> Iterator[np.ndarray]:
        for number, source in enumerate(_encoded(model, sentences, counts), start=1):
            masked, selected = masker(source, generator(seed, 1, Stream.MASKING, number))
            if len(selected) == 0:
                counts["skipped"] += 1
                progress(1)
                continue
            held[counts["read"]] = (number, _Masked(source, selected))
            counts["read"] += 1
            yield masked

    for numbers, tokens in model.batches(masked_sequences(), batch_tokens):
        width = tokens.size(1)
        rows = [held.pop(int(number)) for number in numbers]
        selected = np.concatenate([one.selected + row * width for row, (_, one) in enumerate(rows)])
        gold = torch.from_numpy(np.concatenate([one.source[one.selected] for _, one in rows]))
        gold = gold.to(tokens.device)
        logits = model.logits(tokens, torch.from_numpy(selected).to(tokens.device))
        predicted = most_likely(logits)
        probabilities = logits.softmax(-1)
        columns = torch.stack([gold, predicted], dim=1)
        of_both = probabilities.gather(1, columns).cpu().numpy()
        corrected = table.contains(gold, predicted).cpu().numpy()
        golds, choices = columns.T.cpu().numpy()
        verdicts = np.where(golds == choices, RIGHT, np.where(corrected, CORRECTED, WRONG))
        start = 0
        for number, one in rows:
            here = slice(start, start + len(one.selected))
            start = here.stop
            of_sentence = verdicts[here].tolist()
            counts.update(of_sentence)
            counts["touched"] += CORRECTED in of_sentence
            if verdict is not None and verdict not in of_sentence:
                continue
            counts["fitting"] += 1
            # the sentences with the largest keys are drawn, each key a function of the seed and the number
            key = float(generator(seed, 1, Stream.ORDER, number).random())
            if examples == 0 or (len(drawn) == examples and key <= drawn[0][0]):
                continue
            item = (
                key,
                number,
                _example(model, number, one, golds[here], choices[here], of_both[here], of_sentence, table),
            )
            if len(drawn) < examples:
                heapq.heappush(drawn, item)
            else:
                heapq.heapreplace(drawn, item)
        progress(len(rows))
    if not counts["read"]:
        raise UserError(
            f"{model.name}: no sentence has a token that can be masked; give text that its vocabulary knows"
        )
    return Corrections(
        sentences=counts["read"] + counts["skipped"],
        skipped=counts["skipped"],
        cut=counts["cut"],
        verdicts={name: counts[name] for name in VERDICTS},
        touched=counts["touched"],
        fitting=counts["fitting"],
        examples=[example for _, _, example in sorted(drawn, key=lambda item: item[1])],
    )


def _encoded(model: AnalysedModel, sentences: Iterable[str], counts: Counter[str]) -> Iterator[np.ndarray]:
    """The token ids of each sentence, cut to the model's length."""
    stream = iter(sentences)
    while lines := list(itertools.islice(stream, _LINES)):
        for sequence in model.encode(lines):
            short = model.cut(sequence)
            counts["cut"] += len(short) < len(sequence)
            yield short


def _example(
    model: AnalysedModel,
    number: int,
    masked: _Masked,
    gold: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    verdicts: list[str],
    table: SynonymTable,
) -> Example:
    inner = model.labels(masked.source[1:-1])
    style = detect_style(model.dictionary.symbols)
    if style == "gpt2-ids" and inner != model.symbols(masked.source[1:-1]):
        style = "gpt2"  # the tokenizer has turned the ids into tokens
    return Example(
        sentence=number,
        written=written_tokens(inner, style),
        masked=[
            MaskedToken(
                position=int(position) - 1,
                gold=labels[0],
                predicted=labels[1],
                probability=float(of_predicted),
                gold_probability=float(of_gold),
                verdict=verdict,
                synonyms=_labels_of_symbols(model, table.synonyms(model.dictionary[int(right)])),
            )
            for position, right, labels, (of_gold, of_predicted), verdict in zip(
                masked.selected,
                gold,
                (model.labels(pair) for pair in zip(gold, predicted, strict=True)),
                probabilities,
                verdicts,
                strict=True,
            )
        ],
    )


def _labels_of_symbols(model: AnalysedModel, symbols: list[str]) -> list[str]:
    return model.labels(model.dictionary.index(symbol) for symbol in symbols)
