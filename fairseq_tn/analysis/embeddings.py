"""How a model's input embedding lies in its space: mean cosine, effective rank, principal components, neighbours.

Soft regularisation pulls rows together. In a collapse the mean cosine goes to 1 and the effective rank to 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_tn.analysis.models import AnalysedModel
from fairseq_tn.errors import UserError
from fairseq_tn.losses import mean_pairwise_cosine
from fairseq_tn.models.access import input_embedding
from fairseq_tn.synonyms.vocabularies import is_special

# the numbers of principal components whose share of the variance is told
COMPONENTS = (1, 10, 100)


@dataclass(frozen=True)
class Geometry:
    """What describes N rows.

    rows, width: N and D.
    mean_cosine: over all pairs of different rows; None for fewer than two rows.
    effective_rank: of the matrix, see :func:`effective_rank`.
    variance: number of principal components -> the share of the variance that they explain, in per cent.
    singular_values: of the matrix, descending.
    """

    rows: int
    width: int
    mean_cosine: float | None
    effective_rank: float
    variance: dict[int, float]
    singular_values: np.ndarray


def embedding_rows(model: AnalysedModel) -> tuple[Tensor, Tensor]:
    """The input embedding (V x D, float64, on the CPU) and which rows are ordinary (V bool).

    Not ordinary are the rows that stand for no text: specials, ``[unused12]``, ``madeupword0000``.

    Raises:
        UserError: it holds infinite or undefined numbers, or no ordinary row
    """
    symbols = model.dictionary.symbols
    embedding = input_embedding(model.model)[: len(symbols)].double().cpu()
    if not embedding.isfinite().all():
        raise UserError(
            f"the input embedding of {model.path} holds infinite or undefined numbers; take a checkpoint from "
            "before the training diverged"
        )
    ordinary = torch.tensor([not is_special(symbol) for symbol in symbols])
    if not ordinary.any():
        raise UserError(f"the vocabulary of {model.path} has no ordinary symbol")
    return embedding, ordinary


def geometry(rows: Tensor) -> Geometry:
    """Describe rows (N x D, float64)."""
    number, width = rows.shape
    singular_values = _roots(rows.T @ rows)
    centred = rows - rows.mean(dim=0)
    variances = np.square(_roots(centred.T @ centred))
    total = variances.sum()
    return Geometry(
        rows=number,
        width=width,
        mean_cosine=float(mean_pairwise_cosine(rows)) if number > 1 else None,
        effective_rank=effective_rank(singular_values),
        variance={
            count: float(100 * variances[:count].sum() / total) if total else 0.0 for count in COMPONENTS
        },
        singular_values=singular_values,
    )


def effective_rank(singular_values: np.ndarray) -> float:
    """The exponential of the entropy of the singular values as shares of their sum (Roy and Vetterli, 2007).

    It is between 1 and the rank, which it reaches where all singular values are equal; 0 of a matrix of zeros.
    """
    total = singular_values.sum()
    if total == 0:
        return 0.0
    shares = singular_values[singular_values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _roots(gram: Tensor) -> np.ndarray:
    """Singular values, descending, from the D x D product of a matrix with itself: V is much larger than D.

    They are exact to some 1e-8 of the largest one, which is nothing to an entropy.
    """
    return torch.linalg.eigvalsh(gram).clamp(min=0).sqrt().flip(0).numpy()


def token_of_word(word: str, symbols: Sequence[str], words: Mapping[str, str]) -> int | None:
    """The id of the symbol that writes a word, in lower case if need be; or of the symbol of that name.

    Args:
        symbols: the vocabulary.
        words: symbol -> the whole word that it writes.
    """
    ids = {symbol: index for index, symbol in enumerate(symbols)}
    by_word = {written: ids[symbol] for symbol, written in reversed([*words.items()])}
    for places, name in ((by_word, word), (by_word, word.lower()), (ids, word)):
        if name in places:
            return places[name]
    return None


def neighbours(
    embedding: Tensor, tokens: Sequence[int], candidates: Tensor, number: int
) -> list[list[tuple[int, float]]]:
    """The nearest rows of some rows by cosine, the nearest first; of equally near ones the first of the vocabulary.

    Args:
        embedding: V x D.
        tokens: ids to find neighbours of.
        candidates: V bool, the rows that may be neighbours. A row is never its own.
        number: how many of each.

    Returns:
        for each token pairs of an id and its cosine
    """
    units = F.normalize(embedding, dim=-1)
    # rows of one direction and several lengths are equally near: rounding hides their last bits
    cosines = (units[list(tokens)] @ units.T).round(decimals=12).masked_fill(~candidates, -torch.inf).numpy()
    found = []
    for token, row in zip(tokens, cosines, strict=True):
        row[token] = -np.inf
        order = np.argsort(-row, kind="stable")[:number]
        found.append([(int(other), float(row[other])) for other in order if row[other] > -np.inf])
    return found
