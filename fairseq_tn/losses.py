"""The papers' losses as pure tensor functions, one per equation; nothing here needs fairseq.

Half-precision input is computed in float32: at a temperature of 0.01 logits reach 100, where bfloat16 resolves 0.5.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

SIMILARITIES = ("cosine", "dot")


def _full_precision(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def most_likely(logits: Tensor) -> Tensor:
    """The first of the largest of each row: K x V -> K."""
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        # 12 times as fast as torch's, which takes longer than a softmax on CPUs
        return torch.from_numpy(logits.numpy().argmax(-1))
    return logits.argmax(-1)


def masked_lm_loss(logits: Tensor, gold: Tensor) -> Tensor:
    """Cross-entropy of each selected position (Devlin et al., 2019).

    Args:
        logits: K x V.
        gold: K token ids.

    Returns:
        K values in nats, float32.
    """
    return F.cross_entropy(_full_precision(logits), gold, reduction="none")


def hard_correction(loss: Tensor, corrected: Tensor) -> tuple[Tensor, Tensor]:
    """Drop the positions whose prediction is a synonym of the gold token (True Negatives, Eq. 2).

    Args:
        loss: K values, the cross-entropy of each selected position.
        corrected: K bool, True where the predicted token is in the synonym set of the gold token.

    Returns:
        The sum over the surviving positions and their number. The loss is sum / number; without survivors the
        sum is 0 and still has a gradient graph.
    """
    survives = ~corrected
    # not loss * survives: an infinite loss at a dropped position must not become NaN
    return torch.where(survives, loss, 0.0).sum(), survives.sum()


def soft_regularization(
    embeddings: Tensor, predicted: Tensor, gold: Tensor, sparse_gradient: bool = False
) -> Tensor:
    """Distance between the embeddings of predicted and gold tokens (True Negatives, Eq. 3).

    The gradient reaches the rows of the predicted and gold tokens and no other.

    Args:
        embeddings: V x D, the model's input embedding.
        predicted: K token ids.
        gold: K token ids.
        sparse_gradient: make the gradient of ``embeddings`` a sparse tensor. Where another part of the same loss
            gives them a dense gradient, autograd adds the few rows to that one in place, and the result is dense;
            otherwise the optimiser has to understand sparse gradients.

    Returns:
        K values of 1 - cos, float32.
    """
    with torch.autocast(embeddings.device.type, enabled=False):
        # one gather for both, so that backward makes one gradient of the embeddings
        rows = _full_precision(F.embedding(torch.cat([predicted, gold]), embeddings, sparse=sparse_gradient))
        first, second = F.normalize(rows, dim=-1).chunk(2) if len(rows) else (rows, rows)
        return 1 - (first * second).sum(-1)


def mean_pairwise_cosine(vectors: Tensor) -> Tensor:
    """Mean cosine between every two different vectors, which soft regularisation raises.

    For unit vectors u_1 .. u_N the sum over all ordered pairs i != j of u_i . u_j is
    |u_1 + .. + u_N|^2 - (|u_1|^2 + .. + |u_N|^2), so no N x N matrix is built.

    Args:
        vectors: N x D. A vector of zeros counts as a cosine of 0 with every other.

    Returns:
        One value in float64 between -1 and 1; nan for fewer than two vectors.
    """
    units = F.normalize(_full_precision(vectors), dim=-1)
    total = units.sum(0, dtype=torch.float64)
    own = units.square().sum(dtype=torch.float64)
    number = len(vectors)
    return (
        (total.square().sum() - own) / (number * (number - 1)) if number > 1 else total.new_tensor(torch.nan)
    )


def token_contrastive_loss(
    student: Tensor,
    teacher: Tensor,
    masked: Tensor,
    valid: Tensor,
    temperature: float = 0.01,
    selected: Tensor | None = None,
    max_selected: int | None = None,
    similarity: str = "cosine",
) -> tuple[Tensor, Tensor]:
    """Token-aware contrastive loss (TaCL, Eq. 1).

    For every masked position i: -log softmax_j(cos(student_i, teacher_j) / temperature)[i], where j runs over
    the valid tokens of the same sequence. Only masked rows are computed, not T x T.

    Args:
        student: B x T x D states of the masked sequence.
        teacher: B x T x D states of the original sequence.
        masked: B x T bool, the selected positions.
        valid: B x T bool, False at padding.
        temperature: divides the cosines.
        selected: the flat indices (K, ascending) of ``masked``, if known.
        max_selected: the most selected positions of one sequence, if known. With both the function does not
            wait for the device.
        similarity: ``cosine``, or ``dot`` for inner products, which are not divided by the temperature (an
            option of the paper's script).

    Returns:
        The sum over the masked positions in nats, float32, and the number of masked positions whose best match
        is their own position.
    """
    if temperature <= 0:
        raise ValueError(f"the temperature must be positive, not {temperature}")
    if similarity not in SIMILARITIES:
        raise ValueError(f"the similarity must be one of {', '.join(SIMILARITIES)}, not {similarity}")
    batch, length, dim = student.shape
    if selected is None:
        selected = masked.reshape(-1).nonzero().squeeze(1)
    counts = masked.sum(1)
    if max_selected is None:
        max_selected = int(counts.max()) if batch else 0
    sequence = selected // length
    position = selected % length
    slot = torch.arange(len(selected), device=selected.device) - (counts.cumsum(0) - counts)[sequence]
    with torch.autocast(student.device.type, enabled=False):
        rows = _full_precision(student.reshape(-1, dim).index_select(0, selected))
        keys = _full_precision(teacher)
        if similarity == "cosine":
            # the temperature divides the queries, of which there are fewer numbers than scores
            rows, keys = F.normalize(rows, dim=-1) / temperature, F.normalize(keys, dim=-1)
        queries = rows.new_zeros(batch, max_selected, dim).index_put((sequence, slot), rows)
        scores = torch.bmm(queries, keys.transpose(1, 2))
        scores = scores.masked_fill(~valid[:, None, :], float("-inf"))[sequence, slot]
        loss = F.cross_entropy(scores, position, reduction="sum")
    return loss, (scores.argmax(-1) == position).sum()


def nt_xent(
    anchors: Tensor,
    positives: Tensor,
    temperature: float = 0.05,
    hard_negatives: Tensor | None = None,
    symmetric: bool = False,
    begin: int = 0,
    end: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Contrast of sentence embeddings with the other sentences of the batch as negatives (NT-Xent, InfoNCE).

    One direction (SimCSE, Gao et al., 2021, Eq. 1 and 5), with a = anchors, p = positives, h = hard negatives:
    -log( e(a_i, p_i) / sum_j [e(a_i, p_j) + e(a_i, h_j)] ), e(x, y) = exp(cos(x, y) / temperature).

    Symmetric (SimCLR, Chen et al., 2020, Eq. 1; Mirror-BERT; DeCLUTR): among all 2N embeddings each one is to find
    its partner; itself is left out, so that N pairs give 2N rows of 2N - 1 candidates. Half the sum of a pair's
    two rows is its loss, which makes the mean over pairs that of pytorch-metric-learning's ``NTXentLoss``.

    Args:
        anchors: N x D.
        positives: N x D; row i belongs to anchor i.
        temperature: divides the cosines.
        hard_negatives: M x D more candidates of every anchor (supervised SimCSE), not with ``symmetric``.
        symmetric: see above.
        begin, end: sum over these anchors only. With several workers each sums over its own, and all rows are
            candidates; default: all.

    Returns:
        The sum over anchors in nats, float32, and the number of anchors whose best match is their positive.
    """
    if temperature <= 0:
        raise ValueError(f"the temperature must be positive, not {temperature}")
    if symmetric and hard_negatives is not None:
        raise ValueError("hard negatives have a meaning in one direction only")
    with torch.autocast(anchors.device.type, enabled=False):
        first = F.normalize(_full_precision(anchors), dim=-1)
        second = F.normalize(_full_precision(positives), dim=-1)
        rows = torch.arange(len(first), device=first.device)[begin:end]
        if not symmetric:
            others = [] if hard_negatives is None else [F.normalize(_full_precision(hard_negatives), dim=-1)]
            scores = (first[begin:end] / temperature) @ torch.cat([second, *others]).T
            return F.cross_entropy(scores, rows, reduction="sum"), (scores.argmax(-1) == rows).sum()
        loss, matched = first.new_zeros(()), rows.new_zeros(())
        for own, partners in ((second, first), (first, second)):
            scores = (own[begin:end] / temperature) @ torch.cat([partners, own]).T
            itself = rows[:, None] + len(first) == torch.arange(2 * len(first), device=rows.device)
            scores = scores.masked_fill(itself, float("-inf"))
            loss = loss + 0.5 * F.cross_entropy(scores, rows, reduction="sum")
            matched = (scores.argmax(-1) == rows).sum()  # of the anchors, which come last
    return loss, matched


def sentence_kl(predicted_states: Tensor, gold_states: Tensor, valid: Tensor) -> Tensor:
    """Distance between the states of a sequence with predictions filled in and of the original one.

    Sentence-level soft regularisation (True Negatives): KL(H_p || H_s) of the softmaxes over the hidden dimension.
    ``gold_states`` are the target and get no gradient.

    Args:
        predicted_states: B x T x D states of the sequence with the predictions.
        gold_states: B x T x D states of the original sequence.
        valid: B x T bool, False at padding.

    Returns:
        The sum over the valid tokens in nats, float32.
    """
    with torch.autocast(predicted_states.device.type, enabled=False):
        predicted = F.log_softmax(_full_precision(predicted_states), dim=-1)
        gold = F.log_softmax(_full_precision(gold_states.detach()), dim=-1)
        divergence = (predicted.exp() * (predicted - gold)).sum(-1)
        # not divergence * valid: what stands at padding must not become NaN
        return torch.where(valid, divergence, 0.0).sum()


def replaced_token_loss(logits: Tensor, replaced: Tensor, valid: Tensor) -> Tensor:
    """Binary cross-entropy of the discriminator (ELECTRA, Clark et al., 2020).

    Args:
        logits: B x T, for "this token was replaced".
        replaced: B x T bool, the truth.
        valid: B x T bool, False at padding.

    Returns:
        The sum over the valid tokens in nats, float32.
    """
    logits = _full_precision(logits)
    loss = F.binary_cross_entropy_with_logits(logits, replaced.to(logits.dtype), reduction="none")
    return torch.where(valid, loss, 0.0).sum()
