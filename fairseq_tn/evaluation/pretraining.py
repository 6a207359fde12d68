"""Evaluate pre-trained encoders in one way on held-out text.

All models see the same sequences, the same masks and the same sentence pairs: one task is set up for all of
them, and its splits other than ``train`` do not depend on the epoch.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

import fairseq_tn
from fairseq_tn.analysis.environment import machine, versions
from fairseq_tn.analysis.held_out import (
    CheckpointFacts,
    batches,
    by_length,
    checkpoint_facts,
    held_out_task,
    sequence_length,
)
from fairseq_tn.analysis.self_similarity import self_similarity_of_layers
from fairseq_tn.errors import UserError
from fairseq_tn.losses import masked_lm_loss, replaced_token_loss, token_contrastive_loss
from fairseq_tn.models.access import all_layers, encode, pretraining_outputs, state_width
from fairseq_tn.models.electra import TnElectraModel
from fairseq_tn.synonyms.table import SynonymTable
from fairseq_tn.synonyms.vocabularies import MASK, detect_style, join_tokens

_BITS = 1 / math.log(2)
_CONTEXT = 14  # tokens shown on either side of an example


@dataclass
class Scores:
    """What was measured of one model; None where it does not apply.

    Losses in bits, shares in per cent. ``self_similarity`` holds one value a layer, the embeddings first.
    ``updates`` is what the checkpoint was trained for, ``single_token_sequences`` the sequences for which
    self-similarity is not defined.
    """

    checkpoint: str
    parameters: int
    updates: int | None = None
    mlm_loss: float | None = None
    mlm_acc: float | None = None
    nsp_loss: float | None = None
    nsp_acc: float | None = None
    disc_loss: float | None = None
    disc_acc: float | None = None
    disc_bacc: float | None = None
    tacl_loss: float | None = None
    tacl_acc: float | None = None
    hc_pred: float | None = None
    hc_seq: float | None = None
    self_similarity: list[float | None] = field(default_factory=list)
    positions: int = 0
    sequences: int = 0
    tokens: int = 0
    single_token_sequences: int = 0


@dataclass(frozen=True)
class Correction:
    """A wrong prediction that the synonym table lists as a synonym of the gold token.

    ``before`` and ``after`` are the original text around the position, where the model saw ``<mask>``.
    """

    before: str
    gold: str
    predicted: str
    probability: float
    after: str
    synonyms: list[str]


def evaluate(
    data: str | Path,
    checkpoints: Mapping[str, str | Path],
    synonyms: str | Path | None = None,
    teacher: str | Path | None = None,
    split: str = "valid",
    tokens_per_sample: int | None = None,
    nsp: bool | None = None,
    temperature: float = 0.01,
    batch_size: int = 32,
    limit: int | None = None,
    examples: int = 5,
    allow_vocabulary_mismatch: bool = False,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Evaluate models on one split.

    Args:
        data: folder of ``fairseq-preprocess``.
        checkpoints: name -> fairseq checkpoint of a ``tn_bert`` or ``tn_electra`` model or fairseq's ``roberta``.
        synonyms: synonym table, for ``hc_pred``, ``hc_seq`` and the examples.
        teacher: checkpoint whose last states are TaCL's targets, for ``tacl_loss`` and ``tacl_acc``.
        split: name of the split; not ``train``, whose masks change from epoch to epoch.
        tokens_per_sample: longest sequence; default: the shortest that a checkpoint was trained with.
        nsp: sentence pairs instead of token blocks; default: if a checkpoint was trained with them.
        temperature: of the TaCL loss.
        batch_size: sequences read at once; the results do not depend on it.
        limit: only the first so many sequences.
        examples: corrected predictions to return for each model.
        device: default: the GPU, if there is one.
        progress: show progress on stderr.

    Returns:
        A JSON-ready dictionary: ``versions``, ``machine``, ``data``, ``models`` (name -> fields of
        :class:`Scores`) and ``examples`` (name -> list of the fields of :class:`Correction`).

    Raises:
        UserError: a file is missing or does not fit; nothing of the answer depends on partial results.
    """
    if not checkpoints:
        raise UserError("no checkpoint to evaluate; give --checkpoint NAME=FILE")
    if temperature <= 0:
        raise UserError(f"--temperature must be positive, not {temperature}")
    fairseq_tn.register()
    heads = {name: checkpoint_facts(Path(path)) for name, path in checkpoints.items()}
    teacher_head = checkpoint_facts(Path(teacher)) if teacher else None
    if nsp is None:
        nsp = any(head.uses_nsp for head in heads.values())
    tokens_per_sample = tokens_per_sample or sequence_length(heads.values(), None)
    sequence_length([*heads.values(), *([teacher_head] if teacher_head else [])], tokens_per_sample)
    task = held_out_task(data, split, tokens_per_sample, nsp)
    table = None
    if synonyms:
        table = SynonymTable.load(synonyms, task.source_dictionary, allow_mismatch=allow_vocabulary_mismatch)
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    teacher_model = _load(teacher_head.path, task, device) if teacher_head else None
    order = by_length(task.dataset(split), limit)
    models, shown = {}, {}
    for name, head in heads.items():
        model = _load(head.path, task, device)
        if teacher_model is not None:
            _check_widths(model, teacher_model, head.path, Path(teacher))  # type: ignore[arg-type]
        batches_of_all: Iterable[dict[str, Any]] = batches(task.dataset(split), order, batch_size, device)
        if progress:
            batches_of_all = tqdm(
                batches_of_all, desc=name, unit="batch", delay=2, total=-(-len(order) // batch_size)
            )
        scores, corrections = _evaluate_model(
            model, batches_of_all, task, head, table, teacher_model, temperature, nsp and head.uses_nsp
        )
        models[name] = asdict(scores)
        if table is not None:
            shown[name] = [asdict(c) for c in _examples(corrections, examples, task, split, table)]
        del model
    first = next(iter(models.values()))
    hardware = machine()
    if device.type == "cuda":
        hardware["GPU"] = torch.cuda.get_device_name(device)
    return {
        "kind": "pretraining",
        "versions": versions(),
        "machine": hardware,
        "data": {
            "folder": str(data),
            "split": split,
            "sentence_pairs": nsp,
            "tokens_per_sample": tokens_per_sample,
            "vocabulary": len(task.source_dictionary),
            "sequences": first["sequences"],
            "tokens": first["tokens"],
            "positions": first["positions"],
            "corpora": _corpora(task, split),
        },
        "synonyms": str(synonyms) if synonyms else None,
        "teacher": str(teacher) if teacher else None,
        "temperature": temperature if teacher else None,
        "models": models,
        "examples": shown,
    }


def _corpora(task: Any, split: str) -> dict[str, dict[str, int]]:
    """Sizes of the split, and of the training text if it is there."""
    from fairseq_tn.data.corpus import Corpus
    from fairseq_tn.data.documents import document_bounds

    found = {split: task.dataset(split).corpus}
    train = Path(task.cfg.data.split(":")[0]) / "train"
    if train.with_suffix(".idx").is_file():
        found = {"train": Corpus(str(train), task.source_dictionary), **found}
    return {
        name: {
            "documents": len(document_bounds(corpus.sizes)[0]),
            "sentences": int((corpus.sizes > 1).sum()),
            "tokens": corpus.num_tokens,
        }
        for name, corpus in found.items()
    }


def _load(path: Path, task: Any, device: torch.device) -> nn.Module:
    """The model of a checkpoint in evaluation mode, in float32."""
    from fairseq_tn.models.loading import build_from_checkpoint, read_checkpoint

    model = build_from_checkpoint(read_checkpoint(path), task.source_dictionary, path)
    return model.float().to(device)


def _check_widths(model: nn.Module, teacher: nn.Module, path: Path, teacher_path: Path) -> None:
    widths = [state_width(m) for m in (model, teacher)]
    if widths[0] != widths[1]:
        raise UserError(
            f"--teacher {teacher_path} is {widths[1]} wide, {path} {widths[0]}: their states cannot be compared"
        )


# index of the sequence, position in it, gold, predicted, probability
_Found = tuple[int, int, int, int, float]


@torch.no_grad()
def _evaluate_model(
    model: Any,
    batches: Iterable[dict[str, Any]],
    task: Any,
    head: CheckpointFacts,
    table: SynonymTable | None,
    teacher: Any,
    temperature: float,
    nsp: bool,
) -> tuple[Scores, list[_Found]]:
    pad, mask_index = task.source_dictionary.pad(), task.source_dictionary.index(MASK)
    # sums over positions or sequences
    total: dict[str, float] = dict.fromkeys(
        (
            "mlm_loss",
            "mlm_correct",
            "nsp_loss",
            "nsp_correct",
            "disc_loss",
            "disc_correct",
            "replaced",
            "found",
            "tacl_loss",
            "tacl_correct",
            "corrected",
            "touched",
        ),
        0.0,
    )
    similarity: Tensor | float = 0.0
    found: list[_Found] = []
    positions = sequences = tokens = single = 0
    for batch in batches:
        inputs, source, target = batch["net_input"]["src_tokens"], batch["source"], batch["target"]
        chosen, valid = target.ne(pad), source.ne(pad)
        logits, states, nsp_logits = pretraining_outputs(
            model, batch["net_input"], batch["selected"], chosen, lm=True, states=True
        )
        assert logits is not None
        assert states is not None
        gold, predicted = target[chosen], logits.argmax(-1)
        total["mlm_loss"] += masked_lm_loss(logits, gold).sum(dtype=torch.float64).item()
        total["mlm_correct"] += predicted.eq(gold).sum().item()
        if nsp and nsp_logits is not None:
            labels = batch["sentence_target"]
            total["nsp_loss"] += F.cross_entropy(nsp_logits.double(), labels, reduction="sum").item()
            total["nsp_correct"] += nsp_logits.argmax(-1).eq(labels).sum().item()
        if isinstance(model, TnElectraModel):
            _add_discriminator(total, model, batch, valid)
        if table is not None:
            corrected = table.contains(gold, predicted)
            rows, columns = chosen.nonzero(as_tuple=True)
            total["corrected"] += corrected.sum().item()
            total["touched"] += len(rows[corrected].unique())
            # examples only from where the model could not see the token
            hidden = corrected & inputs[chosen].eq(mask_index)
            probability = (
                logits[hidden].float().softmax(-1).gather(1, predicted[hidden].unsqueeze(1)).squeeze(1)
            )
            found += zip(
                batch["id"][rows[hidden]].tolist(),
                columns[hidden].tolist(),
                gold[hidden].tolist(),
                predicted[hidden].tolist(),
                probability.tolist(),
                strict=True,
            )
        values = self_similarity_of_layers(all_layers(model, source), valid)
        similarity = similarity + values.nansum(dim=1)
        single += int(values[-1].isnan().sum())
        if teacher is not None:
            loss, matched = token_contrastive_loss(
                states, encode(teacher, source), chosen, valid, temperature
            )
            total["tacl_loss"] += loss.item()
            total["tacl_correct"] += matched.item()
        positions += len(gold)
        sequences += len(source)
        tokens += int(valid.sum())

    def mean(key: str, number: float, scale: float) -> float | None:
        return scale * total[key] / number if number else None

    scores = Scores(
        checkpoint=str(head.path),
        parameters=sum(p.numel() for p in model.parameters()),
        updates=head.updates,
        mlm_loss=mean("mlm_loss", positions, _BITS),
        mlm_acc=mean("mlm_correct", positions, 100),
        positions=positions,
        sequences=sequences,
        tokens=tokens,
        single_token_sequences=single,
    )
    if nsp:
        scores.nsp_loss = mean("nsp_loss", sequences, _BITS)
        scores.nsp_acc = mean("nsp_correct", sequences, 100)
    if isinstance(model, TnElectraModel):
        scores.disc_loss = mean("disc_loss", tokens, _BITS)
        scores.disc_acc = mean("disc_correct", tokens, 100)
        recall = mean("found", total["replaced"], 100)
        right = total["disc_correct"] - total["found"]
        if recall is not None:
            scores.disc_bacc = (recall + 100 * right / (tokens - total["replaced"])) / 2
    if teacher is not None:
        scores.tacl_loss = mean("tacl_loss", positions, _BITS)
        scores.tacl_acc = mean("tacl_correct", positions, 100)
    if table is not None:
        scores.hc_pred = mean("corrected", positions - total["mlm_correct"], 100)
        scores.hc_seq = mean("touched", sequences, 100)
    if isinstance(similarity, Tensor) and sequences > single:
        scores.self_similarity = (similarity / (sequences - single)).tolist()
    return scores, found


def _add_discriminator(
    total: dict[str, float], model: TnElectraModel, batch: dict[str, Any], valid: Tensor
) -> None:
    """Add what the discriminator makes of tokens drawn from the generator, the same ones in every evaluation."""
    source, selected = batch["source"], batch["selected"]
    with torch.random.fork_rng(devices=[source.device] if source.is_cuda else []):
        torch.manual_seed(int(batch["id"][0]))
        _, extra = model(**batch["net_input"], masked_tokens=selected, source=source)
    drawn = source.reshape(-1).index_copy(0, selected, extra["sampled"]).view_as(source)
    replaced, logits = drawn.ne(source), extra["discriminator_logits"]
    found = logits > 0
    total["disc_loss"] += replaced_token_loss(logits, replaced, valid).item()
    total["disc_correct"] += (found.eq(replaced) & valid).sum().item()
    total["replaced"] += replaced.sum().item()
    total["found"] += (found & replaced).sum().item()


def _examples(
    found: list[_Found], number: int, task: Any, split: str, table: SynonymTable
) -> Iterator[Correction]:
    """The first ``number`` corrections of the split, one a sequence and one a pair of tokens where there are enough."""
    seen_sequences, seen_pairs = set(), set()
    varied: list[_Found] = []
    others: list[_Found] = []
    for item in sorted(found):
        new = item[0] not in seen_sequences and item[2:4] not in seen_pairs
        (varied if new else others).append(item)
        seen_sequences.add(item[0])
        seen_pairs.add(item[2:4])
    dataset, symbols = task.dataset(split), task.source_dictionary.symbols
    style = detect_style(symbols)
    for index, position, gold, predicted, probability in sorted([*varied, *others][:number]):
        source = dataset.collater([dataset[index]])["source"][0].tolist()
        tokens = [symbols[token] for token in source]
        yield Correction(
            before=join_tokens(tokens[max(0, position - _CONTEXT) : position], style),
            gold=symbols[gold],
            predicted=symbols[predicted],
            probability=probability,
            after=join_tokens(tokens[position + 1 : position + 1 + _CONTEXT], style),
            synonyms=table.synonyms(symbols[gold]),
        )
