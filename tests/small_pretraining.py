"""Small models, batches and criterions of pre-training: an importable helper of the tests."""

from types import SimpleNamespace

import torch
from fairseq import options as fairseq_options
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.models import build_model
from torch import Tensor

import fairseq_tn
from fairseq_tn.compat import unify_transformer_layers
from fairseq_tn.models.bert import TnBertConfig, TnBertModel
from fairseq_tn.models.electra import TnElectraConfig, TnElectraModel

fairseq_tn.register()

S, PAD, E, UNK = range(4)
NUM_WORDS = 24
WIDTH = 16


def make_dictionary() -> Dictionary:
    dictionary = Dictionary()
    for n in range(NUM_WORDS):
        dictionary.add_symbol(f"w{n}")
    dictionary.add_symbol("<mask>")
    return dictionary


def make_task(nsp: bool, teacher: bool = True) -> SimpleNamespace:
    """What a criterion reads of its task."""
    dictionary = make_dictionary()
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary, uses_nsp=nsp)
    if teacher:
        task.add_teacher_states = None
    return task


def scatter(model: torch.nn.Module, lm_head: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Weights large enough that every part of the input matters, float64; predictions are words."""
    torch.manual_seed(seed)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.fill_(1.0)
        lm_head.bias[:4] = lm_head.bias[-1] = -20
    return model


def make_tn_bert(task, seed: int = 0) -> TnBertModel:
    cfg = TnBertConfig(
        encoder_layers=2,
        encoder_embed_dim=WIDTH,
        encoder_attention_heads=2,
        max_positions=16,
        dropout=0.0,
        attention_dropout=0.0,
    )
    model = TnBertModel.build_model(cfg, task)
    return scatter(model, model.lm_head, seed)


def make_tn_electra(task, seed: int = 0, **options) -> TnElectraModel:
    cfg = TnElectraConfig(
        **{
            "encoder_layers": 2,
            "encoder_embed_dim": WIDTH,
            "encoder_attention_heads": 2,
            "embedding_dim": 12,
            "generator_embed_dim": 8,
            "generator_attention_heads": 2,
            "max_positions": 16,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            **options,
        }
    )
    model = TnElectraModel.build_model(cfg, task)
    return scatter(model, model.lm_head, seed)


def make_roberta(task, seed: int = 0) -> torch.nn.Module:
    parser = fairseq_options.get_training_parser()
    sizes = "--encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    off = "--dropout 0 --attention-dropout 0 --max-positions 16"
    arguments = f"data --task masked_lm --criterion masked_lm --arch roberta_base {sizes} {off}"
    args = fairseq_options.parse_args_and_arch(parser, arguments.split())
    model = build_model(convert_namespace_to_omegaconf(args).model, task)
    unify_transformer_layers(model)  # as our tasks do
    return scatter(model, model.encoder.lm_head, seed)


def make_batch(seed: int, lengths=(14, 9, 5, 12), nsp: bool = True, width: int = 14) -> dict:
    """A batch as the tasks make it; the third sequence has no selected position."""
    rng = torch.Generator().manual_seed(seed)
    source = torch.full((len(lengths), width), PAD)
    for row, length in enumerate(lengths):
        words = torch.randint(4, 4 + NUM_WORDS, (length,), generator=rng)
        words[0], words[-1] = S, E
        if nsp:
            words[length // 2] = E
        source[row, :length] = words
    ordinary = source >= 4
    masked = (torch.rand(source.shape, generator=rng) < 0.5) & ordinary
    masked[2] = False
    if nsp:
        labels = torch.randint(2, (len(lengths),), generator=rng)
    selected = masked.reshape(-1).nonzero().squeeze(1)
    batch = {
        "id": torch.arange(len(lengths)),
        "net_input": {
            "src_tokens": source.masked_fill(masked, 4 + NUM_WORDS),
            "src_lengths": torch.tensor(lengths),
        },
        "source": source,
        "target": source.masked_fill(~masked, PAD),
        "selected": selected,
        "max_selected": int(masked.sum(1).max()),
        "ntokens": sum(lengths),
        "nsentences": len(lengths),
        "teacher_states": torch.randn(*source.shape, WIDTH, generator=rng, dtype=torch.float64),
    }
    if nsp:
        batch["sentence_target"] = labels
    return batch


def halves(batch: dict) -> list[dict]:
    """The batch as two, each with the first or last sequences, padded as before."""
    parts = []
    for rows in (slice(0, 2), slice(2, None)):
        target = batch["target"][rows]
        masked = target.ne(PAD)
        part = {
            key: value[rows]
            for key, value in batch.items()
            if isinstance(value, Tensor) and key not in ("selected", "target")
        }
        part |= {
            "net_input": {key: value[rows] for key, value in batch["net_input"].items()},
            "target": target,
            "selected": masked.reshape(-1).nonzero().squeeze(1),
            "max_selected": int(masked.sum(1).max()),
            "ntokens": int(part["source"].ne(PAD).sum()),
            "nsentences": len(target),
        }
        parts.append(part)
    return parts


def make_criterion(name: str, task, model=None, **options):
    cfg = CRITERION_DATACLASS_REGISTRY[name](**options)
    criterion = CRITERION_REGISTRY[name](cfg, task)
    if model is not None:
        criterion.freeze_unused(model)
    return criterion


def gradients(model) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def gradients_of(loss: Tensor, model) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return gradients(model)


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], model) -> None:
    """Every trainable parameter has a gradient, equal to the expected one."""
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert set(actual) == trainable
    for name in trainable:
        wanted = expected.get(name, torch.zeros_like(actual[name]))
        # NSP is computed in float32
        torch.testing.assert_close(
            actual[name], wanted, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


def mean_cosine_of_words(embedding: Tensor) -> float:
    """Over all pairs of different words of the small dictionary, one after the other."""
    words = embedding.detach().double()[4 : 4 + NUM_WORDS]
    cosines = [(a @ b / (a.norm() * b.norm())).item() for n, a in enumerate(words) for b in words[n + 1 :]]
    return sum(cosines) / len(cosines)


def reduced(criterion, logs: list[dict]) -> dict[str, float]:
    with metrics.aggregate() as values:
        criterion.reduce_metrics(logs)
    return {name: float(value) for name, value in values.get_smoothed_values().items()}
