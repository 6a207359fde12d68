"""``tn_electra``: states, logits and loss beside transformers', sampling, sizes, guards, fine-tuning."""

import argparse
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_REGISTRY, build_model
from omegaconf import OmegaConf, open_dict
from small_pretraining import make_batch, make_criterion, make_dictionary, make_task
from torch import Tensor, nn

import fairseq_tn
from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.models.bert import TnBertConfig, TnBertModel
from fairseq_tn.models.electra import SIZES, TnElectraConfig, TnElectraModel, sample_tokens

fairseq_tn.register()

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra

S, PAD, E, UNK = range(4)
SMALL = {
    "encoder_layers": 2,
    "encoder_embed_dim": 16,
    "encoder_attention_heads": 2,
    "embedding_dim": 12,
    "generator_layers": 3,
    "generator_embed_dim": 8,
    "generator_attention_heads": 4,
    "max_positions": 16,
}


def make_model(seed: int = 0, dictionary: Dictionary | None = None, **options) -> TnElectraModel:
    """In eval mode, with weights large enough that every input matters."""
    torch.manual_seed(seed)
    model = TnElectraModel(TnElectraConfig(**{**SMALL, **options}), dictionary or make_dictionary())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


# --- transformers -----------------------------------------------------------------------------------------------


def hugging_face(model: TnElectraModel):
    """The two models of transformers with the sizes of ``model``, ids in our order; embeddings shared."""
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    cfg = model.cfg
    halves = []
    for stack, kind in (("generator", ElectraForMaskedLM), ("encoder", ElectraForPreTraining)):
        config = ElectraConfig(
            vocab_size=model.encoder.embed_tokens.num_embeddings,
            embedding_size=cfg.embedding_dim,
            hidden_size=getattr(cfg, f"{stack}_embed_dim"),
            num_hidden_layers=getattr(cfg, f"{stack}_layers"),
            num_attention_heads=getattr(cfg, f"{stack}_attention_heads"),
            intermediate_size=getattr(cfg, f"{stack}_ffn_embed_dim"),
            max_position_embeddings=cfg.max_positions,
            hidden_act="gelu",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            layer_norm_eps=cfg.layer_norm_eps,
            pad_token_id=PAD,
            attn_implementation="eager",
        )
        halves.append(kind(config).double().eval())
    generator, discriminator = halves
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    with torch.no_grad():
        for theirs, ours in corresponding(model, generator, discriminator):
            theirs.copy_(torch.cat(ours) if isinstance(ours, tuple) else ours)
    return generator, discriminator


def corresponding(model, generator, discriminator, gradient: bool = False):
    """Yields each tensor of transformers and ours; with ``gradient`` those of the gradients."""

    def pick(parameter: Tensor) -> Tensor:
        return parameter.grad if gradient else parameter

    def module(theirs: nn.Module, ours: nn.Module):
        names = {name for name, _ in ours.named_parameters()}
        assert names == {name for name, _ in theirs.named_parameters()}
        for name in sorted(names):
            yield pick(theirs.get_parameter(name)), pick(ours.get_parameter(name))

    encoder, embeddings = model.encoder, discriminator.electra.embeddings
    yield from module(embeddings.word_embeddings, encoder.embed_tokens)
    yield from module(embeddings.position_embeddings, encoder.embed_positions)
    yield from module(embeddings.token_type_embeddings, encoder.embed_segments)
    yield from module(embeddings.LayerNorm, encoder.embed_layer_norm)
    for theirs, ours in ((discriminator.electra, encoder), (generator.electra, model.generator)):
        assert hasattr(theirs, "embeddings_project") == (ours.embed_proj is not None)
        if ours.embed_proj is not None:
            yield from module(theirs.embeddings_project, ours.embed_proj)
        for layer, mine in zip(theirs.encoder.layer, ours.layers, strict=True):
            attention = layer.attention.self
            for kind in ("weight", "bias"):
                rows = pick(mine.qkv_proj.get_parameter(kind)).chunk(3)
                for part, projection in zip(
                    rows, (attention.query, attention.key, attention.value), strict=True
                ):
                    yield pick(projection.get_parameter(kind)), part
            yield from module(layer.attention.output.dense, mine.out_proj)
            yield from module(layer.attention.output.LayerNorm, mine.attention_layer_norm)
            yield from module(layer.intermediate.dense, mine.fc1)
            yield from module(layer.output.dense, mine.fc2)
            yield from module(layer.output.LayerNorm, mine.final_layer_norm)
    yield from module(generator.generator_predictions.dense, model.lm_head.dense)
    yield from module(generator.generator_predictions.LayerNorm, model.lm_head.layer_norm)
    yield pick(generator.generator_lm_head.bias), pick(model.lm_head.bias)
    yield from module(discriminator.discriminator_predictions.dense, model.discriminator_head.dense)
    yield from module(
        discriminator.discriminator_predictions.dense_prediction, model.discriminator_head.out_proj
    )


WIDTHS = {
    "both projected": {},
    "no projection of the discriminator": {"embedding_dim": 16},
    "no projection of the generator": {"embedding_dim": 8},
    "no projection": {"embedding_dim": 16, "generator_embed_dim": 16},
    "another epsilon": {"layer_norm_eps": 1e-5},
}


@pytest.mark.parametrize("options", WIDTHS.values(), ids=WIDTHS.keys())
@pytest.mark.parametrize("nsp", [False, True], ids=["one segment", "two segments"])
def test_states_logits_loss_and_gradients_are_transformers(options, nsp):
    model = make_model(**options).double()
    generator, discriminator = hugging_face(model)
    batch = make_batch(3, nsp=nsp)
    tokens, source, target = batch["net_input"]["src_tokens"], batch["source"], batch["target"]
    real, selected = source.ne(PAD), target.ne(PAD)
    assert not real.all()
    segments = model.encoder.segments(source)
    assert segments.any() == nsp
    inputs = {
        "attention_mask": real.long(),
        "token_type_ids": segments,
        "output_hidden_states": True,
    }

    # our run draws tokens; theirs is given the same ones
    logits, extra = model(
        **batch["net_input"], masked_tokens=batch["selected"], source=source, return_all_hiddens=True
    )
    replaced = source.clone()
    replaced[selected] = extra["sampled"]
    assert 0 < (replaced != source).sum() <= selected.sum()
    out = generator(tokens, labels=target.masked_fill(~selected, -100), **inputs)
    assert real.sum() > 30
    torch.testing.assert_close(logits, out.logits[selected])
    judged = discriminator(replaced, labels=(replaced != source).long(), **inputs)
    torch.testing.assert_close(extra["discriminator_logits"][real], judged.logits[real])

    # every layer of both halves
    hiddens = [model(tokens, return_all_hiddens=True)[1]["inner_states"], extra["inner_states"]]
    for ours, theirs in zip(hiddens, (out.hidden_states, judged.hidden_states), strict=True):
        assert len(ours) == len(theirs)
        for mine, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine[real], expected[real])
    plain, plain_extra = model(source, features_only=True, return_all_hiddens=True)
    expected = discriminator(source, **inputs).hidden_states
    torch.testing.assert_close(plain[real], expected[-1][real])
    torch.testing.assert_close(plain_extra["inner_states"][1][real], expected[1][real])

    # the loss of pre-training; the model draws anew, and the loss is compared on what it has drawn
    criterion = make_criterion("electra", make_task(nsp=False), model)
    drawn = keep_outputs(model, lambda output: output[1]["sampled"])
    loss, sample_size, _ = criterion(model, batch)
    replaced[selected] = drawn[-1]
    judged = discriminator(replaced, labels=(replaced != source).long(), **inputs)
    expected = out.loss + 50 * judged.loss  # the second is rounded to float32 on the way
    assert (loss / sample_size).item() == pytest.approx(expected.item(), rel=1e-6)
    (loss / sample_size).backward()
    expected.backward()
    compared = 0
    for theirs, ours in corresponding(model, generator, discriminator, gradient=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        compared += ours.numel()
    assert compared == sum(p.numel() for p in model.parameters() if p.requires_grad)


def keep_outputs(module: nn.Module, what) -> list:
    """Record something of each output of a module."""
    kept: list = []
    module.register_forward_hook(lambda _, inputs, output: kept.append(what(output)))
    return kept


def test_a_classification_head_is_transformers():
    from transformers import ElectraForSequenceClassification

    model = make_model(dropout=0.3)
    model.register_classification_head("glue", num_classes=3)
    model.double().eval()
    _, discriminator = hugging_face(model)
    config = discriminator.config
    config.num_labels = 3
    theirs = ElectraForSequenceClassification(config).double().eval()
    theirs.electra = discriminator.electra
    head = model.classification_heads["glue"]
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(std=0.3)
        for name in ("dense", "out_proj"):
            for kind in ("weight", "bias"):
                theirs.classifier.get_submodule(name).get_parameter(kind).copy_(
                    head.get_submodule(name).get_parameter(kind)
                )
    batch = make_batch(4)
    source = batch["source"]
    segments = model.encoder.segments(source)
    expected = theirs(source, attention_mask=source.ne(PAD).long(), token_type_ids=segments).logits
    logits = model(source, features_only=True, classification_head_name="glue")[0]
    torch.testing.assert_close(logits, expected)
    assert logits.abs().max() > 1e-2
    # and its training leaves no trainable parameter without gradient
    model.train()
    F.cross_entropy(model(source, classification_head_name="glue")[0], torch.tensor([0, 1, 2, 0])).backward()
    assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    frozen = {n.split(".")[0] for n, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {"generator", "lm_head", "discriminator_head"}


# --- what the discriminator reads ---------------------------------------------------------------------------------


class Recorder(nn.Module):
    """Stands for the generator's head: it is sure of given tokens."""

    def __init__(self, tokens, vocabulary: int):
        super().__init__()
        self.logits = 1e4 * F.one_hot(torch.tensor(tokens), vocabulary).double()

    def forward(self, features: Tensor, embedding: Tensor) -> Tensor:
        return self.logits


@pytest.mark.parametrize("special", [S, PAD, E, UNK, 28])
def test_a_special_token_that_is_drawn_moves_neither_padding_nor_segments(special):
    """It is read as a token like any other."""
    model = make_model(num_segments=2).double()
    source = torch.tensor([[S, 5, 6, 7, E, 8, 9, 10, E, PAD, PAD], [S, 11, 12, 13, 14, 15, 16, E, 17, 18, E]])
    selected = torch.tensor([2, 6, 14])
    model.lm_head = Recorder([special, special, special], len(make_dictionary()))
    _, extra = model(source, masked_tokens=selected, source=source)
    assert extra["sampled"].tolist() == [special] * 3
    replaced = source.clone()
    replaced.view(-1)[selected] = special

    segments = torch.tensor([[0] * 5 + [1] * 4 + [0] * 2, [0] * 8 + [1] * 3])
    encoder = model.encoder
    states = encoder.embed_layer_norm(
        encoder.embed_tokens.weight[replaced]
        + encoder.embed_positions.weight[:11]
        + encoder.embed_segments.weight[segments]
    )
    padding = source.eq(PAD)
    expected = encoder.encode(states, padding)[0]
    torch.testing.assert_close(extra["features"], expected)
    torch.testing.assert_close(extra["discriminator_logits"], model.discriminator_head(expected))
    # cut to its own length, the first sequence gives the same
    model.lm_head = Recorder([special, special], len(make_dictionary()))
    _, alone = model(source[:1, :9], masked_tokens=selected[:2], source=source[:1, :9])
    torch.testing.assert_close(alone["features"][0], expected[0, :9])
    # what would be read without the layout differs where the special token has a meaning
    if special in (PAD, E):
        assert not torch.allclose(encoder(replaced)[0][0, :9], expected[0, :9])


def test_explicit_segments_reach_both_halves():
    model = make_model()
    batch = make_batch(2, nsp=False)
    ones = torch.ones_like(batch["source"])
    arguments = {**batch["net_input"], "masked_tokens": batch["selected"], "source": batch["source"]}
    torch.manual_seed(5)
    logits, extra = model(**arguments)
    torch.manual_seed(5)
    others, other_extra = model(**arguments, segments=ones)
    assert not torch.allclose(logits, others)
    assert not torch.allclose(extra["features"], other_extra["features"])
    torch.testing.assert_close(
        others, model(batch["net_input"]["src_tokens"], masked_tokens=batch["selected"], segments=ones)[0]
    )


def test_all_ways_to_name_the_predicted_positions_agree():
    model = make_model()
    batch = make_batch(2)
    tokens, mask = batch["net_input"]["src_tokens"], batch["target"].ne(PAD)
    everywhere, extra = model(tokens)
    assert everywhere.shape == (4, 14, len(make_dictionary()))
    assert extra["features"].shape == (4, 14, 8)
    assert extra["inner_states"] is None
    torch.testing.assert_close(model(tokens, masked_tokens=mask)[0], everywhere[mask])
    torch.testing.assert_close(model(tokens, masked_tokens=batch["selected"])[0], everywhere[mask])


# --- sampling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_tokens_are_drawn_from_the_softmax(dtype):
    """Chi-squared of 60,000 draws; p < 0.001 beyond 29.6 with 10 degrees of freedom."""
    probabilities = torch.tensor([0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.03, 0.015, 0.01, 0.005])
    # a constant changes nothing, but noise that is added in bfloat16, which resolves 0.25 at 40, would
    logits = (probabilities.log() + 40).to(dtype)
    probabilities = logits.float().softmax(0)
    torch.manual_seed(0)
    number = 60_000
    drawn = sample_tokens(logits.expand(number, -1))
    assert drawn.shape == (number,)
    assert drawn.dtype == torch.int64
    expected = number * probabilities.double()
    found = torch.bincount(drawn, minlength=11).double()
    assert ((found - expected) ** 2 / expected).sum() < 29.6


def test_rows_are_drawn_independently():
    torch.manual_seed(0)
    drawn = sample_tokens(torch.zeros(20_000, 2))
    agree = (drawn[::2] == drawn[1::2]).double().mean()
    assert abs(agree - 0.5) < 0.02


def test_the_seed_decides_what_is_drawn():
    logits = torch.randn(50, 30)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(sample_tokens(logits))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert sample_tokens(torch.empty(0, 30)).shape == (0,)
    # a certain token is always drawn, an impossible one never
    certain = torch.full((1000, 5), float("-inf"))
    certain[:, 3] = 0
    assert sample_tokens(certain).eq(3).all()


# --- sizes --------------------------------------------------------------------------------------------------------

# layers, width, heads, embedding, generator's width, heads
PRESETS = {
    "tn_electra": (12, 768, 12, 768, 256, 4),
    "tn_electra_small": (12, 256, 4, 128, 64, 1),
    "tn_electra_base": (12, 768, 12, 768, 256, 4),
    "tn_electra_large": (24, 1024, 16, 1024, 256, 4),
}


def vocabulary_task() -> SimpleNamespace:
    """As many symbols as the published models have."""
    dictionary = Dictionary()
    for n in range(30522 - 5):
        dictionary.add_symbol(f"t{n}")
    dictionary.add_symbol("<mask>")
    return SimpleNamespace(source_dictionary=dictionary, uses_nsp=False)


def from_command_line(arch: str, task, *options: str) -> TnElectraModel:
    from fairseq import options as fairseq_options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    parser = fairseq_options.get_training_parser()
    fixed = ["data", "--task", "masked_lm", "--criterion", "masked_lm", "--arch", arch]
    args: argparse.Namespace = fairseq_options.parse_args_and_arch(parser, [*fixed, *options])
    with torch.device("meta"):
        return build_model(convert_namespace_to_omegaconf(args).model, task)


def from_yaml(arch: str, task, **options) -> TnElectraModel:
    from fairseq.dataclass.initialize import add_defaults

    cfg = OmegaConf.structured(FairseqConfig())
    with open_dict(cfg):
        cfg.model = {"_name": arch, **options}
    add_defaults(cfg)
    with torch.device("meta"):
        return build_model(cfg.model, task)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_every_preset_is_covered():
    ours = {name for name, model in ARCH_MODEL_REGISTRY.items() if model is TnElectraModel}
    assert ours == set(PRESETS)
    assert set(SIZES) == set(PRESETS) - {"tn_electra"}


@pytest.mark.parametrize("arch", PRESETS)
def test_parameters_as_many_as_hugging_face_s(arch):
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    layers, width, heads, embedding, narrow, few = PRESETS[arch]
    with torch.device("meta"):
        theirs = 0
        for kind, dim, number in (
            (ElectraForPreTraining, width, heads),
            (ElectraForMaskedLM, narrow, few),
        ):
            config = ElectraConfig(
                vocab_size=30522,
                embedding_size=embedding,
                hidden_size=dim,
                num_hidden_layers=layers,
                num_attention_heads=number,
                intermediate_size=4 * dim,
            )
            half = kind(config)
            theirs += count(half)
        # the generator's embeddings are the discriminator's
        theirs -= count(half.electra.embeddings)
    task = vocabulary_task()
    for model in (from_command_line(arch, task), from_yaml(arch, task)):
        assert count(model) == theirs
        assert model.encoder.layers[0].attention_heads == heads
        assert model.generator.layers[0].attention_heads == few


def test_given_sizes_win_over_the_preset():
    task = vocabulary_task()
    options = {
        "encoder_layers": 3,
        "encoder_embed_dim": 192,
        "encoder_ffn_embed_dim": 100,
        "embedding_dim": 40,
        "generator_layers": 1,
        "generator_embed_dim": 24,
        "generator_ffn_embed_dim": 30,
        "generator_attention_heads": 3,
    }
    flags = [part for k, v in options.items() for part in (f"--{k.replace('_', '-')}", str(v))]
    for model in (
        from_command_line("tn_electra_small", task, *flags),
        from_yaml("tn_electra_small", task, **options),
    ):
        assert len(model.encoder.layers) == 3
        assert model.encoder.embed_tokens.weight.shape == (30522, 40)
        assert model.encoder.embed_proj.weight.shape == (192, 40)
        assert model.encoder.layers[0].fc1.weight.shape == (100, 192)
        assert model.encoder.layers[0].attention_heads == 3
        assert len(model.generator.layers) == 1
        assert model.generator.layers[0].fc1.weight.shape == (30, 24)
        assert model.generator.layers[0].attention_heads == 3


def test_the_generator_follows_the_sizes_of_the_discriminator():
    task = vocabulary_task()
    model = from_command_line(
        "tn_electra_base",
        task,
        *("--encoder-layers", "4", "--encoder-embed-dim", "512", "--generator-size", "0.25"),
    )
    assert len(model.generator.layers) == 4
    assert model.generator.layers[0].fc1.weight.shape == (512, 128)
    assert model.generator.layers[0].attention_heads == 2
    # only the small model's embeddings are narrower than its layers
    assert model.encoder.embed_tokens.weight.shape == (30522, 512)
    assert model.encoder.embed_proj is None
    small = from_command_line("tn_electra_small", task, "--encoder-embed-dim", "512")
    assert small.encoder.embed_tokens.weight.shape == (30522, 128)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"generator_size": 0.0, "generator_embed_dim": None}, "--generator-size 0"),
        ({"generator_size": -0.5}, "--generator-size -0.5"),
        ({"generator_size": float("nan")}, "--generator-size nan"),
        ({"embedding_dim": 0}, "--embedding-dim is 0"),
        ({"generator_layers": 0}, "--generator-layers is 0"),
        ({"generator_attention_heads": 3}, "--generator-embed-dim 8 .* --generator-attention-heads 3"),
        ({"encoder_attention_heads": 5}, "--encoder-embed-dim 16 .* --encoder-attention-heads 5"),
    ],
)
def test_sizes_that_cannot_be_are_named(options, named):
    with pytest.raises(UserError, match=named) as error:
        make_model(**options)
    assert "\n" not in str(error.value)


def test_initial_values_are_bert_s():
    torch.manual_seed(0)
    cfg = TnElectraConfig(**{**SMALL, "encoder_embed_dim": 64, "generator_embed_dim": 32})
    model = TnElectraModel(cfg, make_dictionary())
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert parameter.eq(0).all(), name
        elif "norm" in name:
            assert parameter.eq(1).all(), name
        elif parameter.numel() > 500:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.15), name
    assert model.encoder.embed_tokens.weight[PAD].eq(0).all()


def test_dropout_only_in_training():
    batch = make_batch(2)
    for off in ("dropout", "attention_dropout"):
        one = make_model(**{"dropout": 0.3, "attention_dropout": 0.3, off: 0.0}).train()
        for arguments in ({}, {"features_only": True}):
            assert not torch.equal(one(batch["source"], **arguments)[0], one(batch["source"], **arguments)[0])
            one.eval()
            assert torch.equal(one(batch["source"], **arguments)[0], one(batch["source"], **arguments)[0])
            one.train()


# --- guards -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_the_same_model_loads_bit_for_bit():
    saved, other = make_model(seed=1), make_model(seed=2)
    other.load_state_dict(saved.state_dict(), strict=True)
    for name, value in saved.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("option", "theirs", "ours"),
    [
        ("encoder_layers", 3, 2),
        ("encoder_embed_dim", 32, 16),
        ("encoder_attention_heads", 4, 2),
        ("embedding_dim", 20, 12),
        ("generator_layers", 2, 3),
        ("generator_embed_dim", 16, 8),
        ("generator_ffn_embed_dim", 24, 32),
        ("generator_attention_heads", 2, 4),
        ("max_positions", 10, 16),
        ("activation_fn", "relu", "gelu"),
    ],
)
def test_the_option_in_which_checkpoint_and_run_differ_is_named(option, theirs, ours):
    fixed = {"encoder_ffn_embed_dim": 64, "generator_ffn_embed_dim": 32}
    saved, model = make_model(**{**fixed, option: theirs}), make_model(**{**fixed, option: ours})
    with pytest.raises(CheckpointMismatch) as error:
        model.load_state_dict(saved.state_dict(), strict=True)
    assert "\n" not in str(error.value)
    assert f"--{option.replace('_', '-')} {theirs}, this run {ours}" in str(error.value)


def test_another_vocabulary_names_dict_txt():
    dictionary = make_dictionary()
    dictionary.symbols[5], dictionary.symbols[6] = dictionary.symbols[6], dictionary.symbols[5]
    with pytest.raises(CheckpointMismatch, match=r"^dict\.txt "):
        make_model().load_state_dict(make_model(dictionary=dictionary).state_dict(), strict=True)


def test_checkpoints_of_bert_and_electra_do_not_mix():
    sizes = {key: SMALL[key] for key in ("encoder_layers", "encoder_embed_dim", "encoder_attention_heads")}
    bert = TnBertModel(TnBertConfig(**sizes, max_positions=16), make_dictionary())
    electra = make_model(embedding_dim=16)
    with pytest.raises(CheckpointMismatch, match="not one of a tn_electra model"):
        electra.load_state_dict(bert.state_dict(), strict=True)
    with pytest.raises(CheckpointMismatch, match="not one of a tn_bert model"):
        bert.load_state_dict(electra.state_dict(), strict=True)


def test_sentence_prediction_s_positions_do_not_break_a_shorter_model():
    saved = make_model()
    cfg = TnElectraConfig(**{**SMALL, "max_positions": 512})
    model = TnElectraModel.build_model(cfg, SimpleNamespace(source_dictionary=make_dictionary()))
    model.register_classification_head("glue", num_classes=2)
    model.load_state_dict(saved.state_dict(), strict=True)
    batch = make_batch(1)
    torch.testing.assert_close(
        model.eval()(batch["source"], features_only=True)[0], saved(batch["source"], features_only=True)[0]
    )


@pytest.mark.parametrize("generator", [False, True])
@pytest.mark.parametrize("discriminator", [False, True])
def test_halves_are_frozen_and_shared_embeddings_are_not(generator, discriminator):
    model = make_model()
    model.freeze_halves(True, True)
    model.freeze_halves(generator, discriminator)
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    names = {n for n, _ in model.named_parameters()}
    shared = {n for n in names if n.startswith("encoder.embed_") and not n.startswith("encoder.embed_proj")}
    assert len(shared) == 5
    expected = set()
    if generator:
        expected |= {n for n in names if n.startswith(("generator.", "lm_head."))}
    if discriminator:
        expected |= {n for n in names if n.startswith(("encoder.", "discriminator_head."))} - shared
    assert frozen == expected
