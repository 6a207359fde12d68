"""The prediction that accuracy, hard correction and soft regularisation share."""

import math

import pytest
import torch

from fairseq_tn.losses import most_likely


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_most_likely_is_the_argmax(dtype):
    torch.manual_seed(0)
    logits = torch.randint(-9, 9, (50, 40)).to(dtype)  # many ties
    logits[3, 7], logits[4, 5] = math.nan, math.inf
    logits[5] = -math.inf
    torch.testing.assert_close(most_likely(logits), logits.argmax(-1))
    assert most_likely(logits[:0]).shape == (0,)
