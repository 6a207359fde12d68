"""From the states of a sequence's tokens to one embedding of the sequence."""

import torch
from torch import Tensor

POOLINGS = ("cls", "mean")


def pool(states: Tensor, valid: Tensor, pooling: str) -> Tensor:
    """Embeddings (B x D) of sequences.

    Args:
        states: B x T x D.
        valid: B x T bool, False at padding.
        pooling: ``cls``, the state of ``<s>``, or ``mean``, over all real tokens, special ones included.
    """
    if pooling == "cls":
        return states[:, 0]
    # half precision would lose digits in sums over long sequences
    wide = states if states.dtype == torch.float64 else states.float()
    weights = valid.unsqueeze(2).to(wide.dtype)
    return ((wide * weights).sum(1) / weights.sum(1)).to(states.dtype)
