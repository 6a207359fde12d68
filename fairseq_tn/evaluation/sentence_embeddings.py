"""Sentence embeddings of any encoder, judged without training: STS-B, alignment and uniformity."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_tn.analysis.models import AnalysedModel
from fairseq_tn.data.examples import digest_of_examples
from fairseq_tn.data.glue import GlueSplit
from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.aggregates import aggregate
from fairseq_tn.evaluation.results import Result
from fairseq_tn.models.pooling import pool

POOLINGS = ("cls", "mean", "first-last-avg")
# the trained pooling with the layer that training put on it
PROJECTION = "projection"
TASK = "STS-B zero-shot"
# pairs above it count as having the same meaning (Gao et al., 2021)
_SAME_MEANING = 4.0
_ROWS_AT_A_TIME = 1024


@dataclass(frozen=True)
class Trained:
    """What ``--criterion sentence_contrastive`` has trained.

    pooling: what embedded a sequence.
    projection: the layer on it; None if there was none.
    keeps_projection: whether it belongs to the embeddings of the finished model.
    seed: of the training.
    """

    pooling: str
    projection: Callable[[Tensor], Tensor] | None
    keeps_projection: bool
    seed: int | None

    @property
    def name(self) -> str:
        """The name of the embeddings that the run was for."""
        return PROJECTION if self.projection is not None and self.keeps_projection else self.pooling


def trained_embeddings(path: str | Path) -> Trained | None:
    """What a checkpoint tells of its sentence embeddings; None for other checkpoints and for folders.

    Raises:
        UserError: the checkpoint cannot be read, or its projection is damaged
    """
    if Path(path).is_dir():
        return None
    from fairseq_tn.criterions.sentence_contrastive import Projection, recipe_of
    from fairseq_tn.models.loading import read_checkpoint

    state = read_checkpoint(path, "--model")
    cfg: Any = state["cfg"]
    options = cfg.get("criterion")
    if options is None or options.get("_name") != "sentence_contrastive":
        return None
    task = cfg.get("task") or {}
    recipe = recipe_of(options, task.get("views") or "simcse")
    projection = None
    if weights := state.get("criterion"):
        weights = {name.removeprefix("projection."): value.float() for name, value in weights.items()}
        try:
            projection = Projection(weights["dense.bias"].numel())
            projection.load_state_dict(weights)
        except (KeyError, RuntimeError) as error:
            raise UserError(f"--model {path} has a damaged projection: {error}") from error
        projection.eval().requires_grad_(False)
    return Trained(
        recipe.pooling, projection, recipe.projection == "keep", (cfg.get("common") or {}).get("seed")
    )


@torch.no_grad()
def embed(
    model: AnalysedModel,
    sentences: Sequence[str],
    trained: Trained | None = None,
    progress: Callable[[int], object] = lambda number: None,
) -> dict[str, Tensor]:
    """Embeddings of sentences, each read alone as ``<s> tokens </s>``.

    Args:
        model: with its tokenizer.
        sentences: N texts; what is longer than the model loses its end.
        trained: adds :data:`PROJECTION`, if there is one.
        progress: is told how many more sentences are done.

    Returns:
        name of the pooling -> N x D, float32, on the CPU. ``first-last-avg`` is the mean over the tokens of the mean
        of the first and the last layer's states; the first layer is the one after the embeddings.
    """
    projection = None if trained is None else trained.projection
    names = [*POOLINGS, PROJECTION] if projection else POOLINGS
    found: dict[str, Tensor] = {}
    sequences = [model.cut(sequence) for sequence in model.encode(list(sentences))]
    for rows, tokens in model.batches(sequences):
        layers = model.layers(tokens)
        valid = tokens.ne(model.dictionary.pad())
        for name in names:
            if name == "first-last-avg":
                embeddings = pool((layers[1] + layers[-1]) / 2, valid, "mean")
            elif trained and projection and name == PROJECTION:
                embeddings = projection(pool(layers[-1], valid, trained.pooling).cpu())
            else:
                embeddings = pool(layers[-1], valid, name)
            if name not in found:
                found[name] = torch.empty(len(sequences), embeddings.size(1))
            found[name][torch.from_numpy(rows)] = embeddings.float().cpu()
        progress(len(rows))
    return found


def alignment(first: Tensor, second: Tensor) -> float:
    """Mean squared distance of the unit vectors of N pairs (N x D each) that belong together; 0 is best.

    Wang and Isola, *Understanding Contrastive Representation Learning through Alignment and Uniformity on the
    Hypersphere* (2020), with alpha = 2.
    """
    difference = F.normalize(first.double(), dim=-1) - F.normalize(second.double(), dim=-1)
    return difference.square().sum(-1).mean().item()


def uniformity(vectors: Tensor) -> float:
    """Logarithm of the mean of exp(-2 |x - y|^2) over all pairs of unit vectors x, y of different rows of N x D.

    Wang and Isola (2020) with t = 2. The lower the better: 0 if all are equal, near -4 if they are spread evenly.
    """
    units = F.normalize(vectors.double(), dim=-1)
    total = 0.0
    for begin in range(0, len(units), _ROWS_AT_A_TIME):
        block = units[begin : begin + _ROWS_AT_A_TIME] @ units.T
        total += (-2 * (2 - 2 * block)).exp().sum().item()
    number = len(units)
    return float(np.log((total - number) / (number * (number - 1))))


@dataclass(frozen=True)
class Scores:
    """Of one way to embed: Spearman's correlation in points, alignment, uniformity, and the cosine of each pair."""

    spearman: float
    alignment: float | None
    uniformity: float
    cosines: list[float]


def sts_scores(
    split: GlueSplit, embeddings: Mapping[str, Tensor], places: Mapping[str, int]
) -> dict[str, Scores]:
    """Judge embeddings on a split of STS-B.

    Args:
        split: pairs with scores.
        embeddings: name -> embeddings of the split's different sentences.
        places: sentence -> its row.

    Returns:
        name -> scores. ``alignment`` is over the pairs with a score above 4 (None without any), ``uniformity`` over the
        different sentences.
    """
    gold = [float(example.label or "nan") for example in split.examples]
    first, second = (
        torch.tensor([places[example.texts[side]] for example in split.examples]) for side in (0, 1)
    )
    same = torch.tensor(gold) > _SAME_MEANING
    found = {}
    for name, vectors in embeddings.items():
        cosines = F.cosine_similarity(vectors[first].double(), vectors[second].double(), dim=-1)
        cosines = cosines.round(
            decimals=12
        )  # sentences paired with themselves are equal, whatever the rounding
        columns = {"prediction": cosines.numpy(), "gold": np.array(gold)}
        found[name] = Scores(
            float(aggregate("spearman", columns)[0]),
            alignment(vectors[first[same]], vectors[second[same]]) if same.any() else None,
            uniformity(vectors),
            cosines.tolist(),
        )
    return found


def result_of(
    name: str,
    split: str,
    data: GlueSplit,
    scores: Mapping[str, Scores],
    pooling: str,
    details: Mapping[str, Any],
) -> Result:
    """The result of one model for the report; its main metric is the correlation with ``pooling``."""
    others = {f"spearman_{key.replace('-', '_')}": value.spearman for key, value in scores.items()}
    return Result(
        kind="sts",
        task=TASK,
        method=name,
        seed=details.get("seed"),
        split=split,
        metrics={"spearman": scores[pooling].spearman, **others},
        main_metric="spearman",
        aggregate="spearman",
        columns={
            "prediction": scores[pooling].cosines,
            "gold": [float(example.label or "nan") for example in data.examples],
        },
        examples=digest_of_examples(
            "\t".join((*example.texts, str(example.label))) for example in data.examples
        ),
        details={
            **details,
            "pooling": pooling,
            "alignment": {key: value.alignment for key, value in scores.items()},
            "uniformity": {key: value.uniformity for key, value in scores.items()},
        },
    )
