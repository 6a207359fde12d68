"""How alike the token states of one sequence are: equation 3 of TaCL (Su et al., 2021)."""

import torch
import torch.nn.functional as F
from torch import Tensor


def self_similarity(states: Tensor, valid: Tensor) -> Tensor:
    """Mean cosine between the states of every two different tokens of a sequence.

    For unit vectors u_1 .. u_n the sum over all ordered pairs i != j of u_i . u_j is
    |u_1 + .. + u_n|^2 - (|u_1|^2 + .. + |u_n|^2), so no n x n matrix is built.

    Args:
        states: B x T x D, any floating-point type.
        valid: B x T bool, True at real tokens. What ``states`` holds elsewhere does not matter.

    Returns:
        B values in float64 between -1 and 1; nan for a sequence with fewer than two real tokens, where no
        pair exists. A state of zeros counts as a cosine of 0 with every other.
    """
    total, own, tokens = unit_sums(states, valid)
    mean = (total.square().sum(dim=1) - own) / (tokens * (tokens - 1))
    return torch.where(tokens > 1, mean, torch.full_like(mean, torch.nan))


def unit_sums(states: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What cosines between the tokens of sequences can be computed from, in float64.

    Args:
        states: B x T x D, any floating-point type.
        valid: B x T bool, True at real tokens.

    Returns:
        The sum of each sequence's unit vectors (B x D), the sum of their squared norms (B), which is nearly the
        number of tokens, and that number (B).
    """
    units = F.normalize(states.float().masked_fill(~valid.unsqueeze(-1), 0.0), dim=-1)
    total = units.sum(dim=1, dtype=torch.float64)
    # the actual squared norms, not their number: float32 units are off by 1e-7, and zeros have none
    own = units.square().sum(dim=(1, 2), dtype=torch.float64)
    return total, own, valid.sum(dim=1, dtype=torch.float64)


def self_similarity_of_layers(layers: list[Tensor], valid: Tensor) -> Tensor:
    """:func:`self_similarity` of each layer's states (L tensors of B x T x D): L x B values in float64."""
    return torch.stack([self_similarity(states, valid) for states in layers])
