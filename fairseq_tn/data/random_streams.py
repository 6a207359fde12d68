"""Random numbers as a pure function of (seed, epoch, index), so that workers and resumed runs repeat them."""

import enum

import numpy as np

_WORD = (1 << 64) - 1


class Stream(enum.IntEnum):
    """What the numbers are for; two streams never share a number."""

    MASKING = 1
    PAIRS = 2
    ORDER = 3
    VIEWS = 4


def generator(seed: int, epoch: int, stream: Stream, index: int = 0) -> np.random.Generator:
    """Return the generator of one item; equal arguments give equal numbers on every machine.

    Philox is counter-based: the arguments are its key and the upper half of its counter, and every item has
    2^130 numbers of its own. Nothing is hashed or stored, and one call takes some 15 microseconds.
    """
    key = np.array([seed & _WORD, epoch & _WORD], dtype=np.uint64)
    counter = np.array([0, 0, int(index) & _WORD, int(stream)], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
