"""``tn_bert``: segments, padding, heads, sizes, guards against foreign checkpoints, fairseq's fine-tuning contract."""

import argparse
import re
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_REGISTRY, build_model
from omegaconf import OmegaConf, open_dict

import fairseq_tn
from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.models.bert import SIZES, TnBertConfig, TnBertModel

fairseq_tn.register()

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:hydra")  # of fairseq's use of it

WORDS = [f"w{n}" for n in range(30)]


def make_dictionary(words=WORDS) -> Dictionary:
    dictionary = Dictionary()
    for word in words:
        dictionary.add_symbol(word)
    dictionary.add_symbol("<mask>")
    return dictionary


def make_model(dictionary=None, seed=0, **options) -> TnBertModel:
    """2 layers, 16 wide, in eval mode, with weights large enough that every input matters."""
    torch.manual_seed(seed)
    sizes = {"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_attention_heads": 2, "max_positions": 12}
    model = TnBertModel(TnBertConfig(**{**sizes, **options}), dictionary or make_dictionary())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def sentence(*ids: int) -> torch.Tensor:
    return torch.tensor([ids])


S, PAD, E = 0, 1, 2  # <s> <pad> </s>


# --- inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([S, 5, 6, E, 7, 8, E], [0, 0, 0, 0, 1, 1, 1]),
        ([S, 5, E, 7, E, PAD, PAD], [0, 0, 0, 1, 1, 0, 0]),
        ([S, 5, 6, 7, 8, 9, E], [0, 0, 0, 0, 0, 0, 0]),
        ([S, 5, E, E, 7, 8, E], [0, 0, 0, 1, 1, 1, 1]),
        ([S, E, 5, 6, 7, 8, E], [0, 0, 1, 1, 1, 1, 1]),
    ],
)
def test_segments_follow_from_the_separators(tokens, expected):
    model = make_model()
    batch = sentence(*tokens)
    real = [segment is not None for segment in expected]
    explicit = torch.tensor([[segment or 0 for segment in expected]])
    states = model(batch, features_only=True)[0]
    torch.testing.assert_close(
        states[0, real], model(batch, features_only=True, segments=explicit)[0][0, real]
    )
    # and the segments do reach the states
    assert not torch.allclose(states, model(batch, features_only=True, segments=1 - explicit)[0])


def test_more_separators_than_segments_stay_in_the_last_segment():
    model = make_model(num_segments=2)
    assert model.encoder.segments(sentence(S, 5, E, 6, E, 7, E)).tolist() == [[0, 0, 0, 1, 1, 1, 1]]
    assert make_model(num_segments=1)(sentence(S, 5, E, 6, E), features_only=True)[0].isfinite().all()


def test_padding_does_not_change_the_states_of_other_positions():
    model = make_model()
    alone = model(sentence(S, 5, 6, E), features_only=True)[0]
    batch = torch.tensor([[S, 5, 6, E, PAD, PAD, PAD], [S, 7, 8, 9, 10, 11, E]])
    together, extra = model(batch, features_only=True)
    torch.testing.assert_close(together[0, :4], alone[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        extra["nsp_logits"][0], model(sentence(S, 5, 6, E))[1]["nsp_logits"][0], rtol=1e-5, atol=1e-6
    )


def test_all_ways_to_name_the_predicted_positions_agree():
    model = make_model()
    batch = torch.tensor([[S, 5, 6, E, PAD], [S, 7, 8, 9, E]])
    everywhere, extra = model(batch)
    assert everywhere.shape == (2, 5, len(make_dictionary()))
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[0, 2] = mask[1, 1] = mask[1, 3] = True
    flat = torch.tensor([2, 6, 8])
    torch.testing.assert_close(model(batch, masked_tokens=mask)[0], everywhere[mask])
    torch.testing.assert_close(model(batch, masked_tokens=flat)[0], everywhere[mask])
    assert model(batch, masked_tokens=flat[:0])[0].shape == (0, len(make_dictionary()))
    # what the heads are said to be: the output matrix is the input embedding, NSP reads the first state
    head, features = model.lm_head, extra["features"]
    hidden = head.layer_norm(torch.nn.functional.gelu(features @ head.dense.weight.T + head.dense.bias))
    torch.testing.assert_close(everywhere, hidden @ model.encoder.embed_tokens.weight.T + head.bias)
    pooled = torch.tanh(features[:, 0] @ model.pooler.weight.T + model.pooler.bias)
    torch.testing.assert_close(extra["nsp_logits"], pooled @ model.nsp_head.weight.T + model.nsp_head.bias)


def test_inner_states_are_the_embeddings_and_every_layer():
    model = make_model()
    features, extra = model(sentence(S, 5, 6, E), features_only=True, return_all_hiddens=True)
    assert [h.shape for h in extra["inner_states"]] == [(1, 4, 16)] * 3
    assert torch.equal(extra["inner_states"][-1], features)
    assert torch.equal(extra["features"], features)
    encoder = model.encoder
    embedded = encoder.embed_layer_norm(
        encoder.embed_tokens.weight[[S, 5, 6, E]]
        + encoder.embed_positions.weight[:4]
        + encoder.embed_segments.weight[[0, 0, 0, 0]]
    )
    torch.testing.assert_close(extra["inner_states"][0][0], embedded)
    assert model(sentence(S, 5, E))[1]["inner_states"] is None


def test_an_input_that_is_too_long_names_the_option():
    with pytest.raises(ValueError, match=r"13 tokens .* 12\s+positions \(--max-positions\)"):
        make_model()(torch.full((1, 13), 5))


def test_dropout_only_in_training():
    model = make_model(dropout=0.3, attention_dropout=0.3)
    batch = sentence(S, 5, 6, 7, E)
    assert torch.equal(model(batch)[0], model(batch)[0])
    model.train()
    assert not torch.equal(model(batch)[0], model(batch)[0])
    for off in ("dropout", "attention_dropout"):
        one = make_model(**{"dropout": 0.3, "attention_dropout": 0.3, off: 0.0}).train()
        assert not torch.equal(one(batch)[0], one(batch)[0])
    none = make_model(dropout=0.0, attention_dropout=0.0)
    expected = none(batch)[0]
    assert torch.equal(none.train()(batch)[0], expected)


# --- sizes ------------------------------------------------------------------------------------------------------

PRESETS = {  # layers, width, heads; feed-forward network 4 x width, 512 positions
    "tn_bert": (12, 768, 12),
    "tn_bert_tiny": (2, 128, 2),
    "tn_bert_mini": (4, 256, 4),
    "tn_bert_small": (4, 512, 8),
    "tn_bert_medium": (8, 512, 8),
    "tn_bert_base": (12, 768, 12),
    "tn_bert_large": (24, 1024, 16),
}


def bert_vocabulary_task() -> SimpleNamespace:
    """A task with as many symbols as bert-base-uncased, in which nothing is frozen."""
    return SimpleNamespace(
        source_dictionary=make_dictionary(f"t{n}" for n in range(30522 - 5)), uses_nsp=True
    )


def from_command_line(arch: str, *options: str) -> argparse.Namespace:
    from fairseq import options as fairseq_options

    parser = fairseq_options.get_training_parser()
    return fairseq_options.parse_args_and_arch(
        parser, ["data", "--task", "masked_lm", "--criterion", "masked_lm", "--arch", arch, *options]
    )


def built_from_command_line(arch: str, task, *options: str) -> TnBertModel:
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    cfg = convert_namespace_to_omegaconf(from_command_line(arch, *options))
    with torch.device("meta"):
        return build_model(cfg.model, task)


def built_from_yaml(arch: str, task, **options) -> TnBertModel:
    """What ``fairseq-hydra-train`` hands to ``build_model`` for ``model: {_name: arch, ...}``."""
    from fairseq.dataclass.initialize import add_defaults

    cfg = OmegaConf.structured(FairseqConfig())
    with open_dict(cfg):
        cfg.model = {"_name": arch, **options}
    add_defaults(cfg)
    with torch.device("meta"):
        return build_model(cfg.model, task)


def count(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def test_every_preset_is_covered():
    ours = {name for name, model in ARCH_MODEL_REGISTRY.items() if model is TnBertModel}
    assert ours == set(PRESETS)
    assert set(SIZES) == set(PRESETS) - {"tn_bert"}


@pytest.mark.parametrize("arch", PRESETS)
def test_parameters_as_many_as_hugging_face_s(arch):
    from transformers import BertConfig, BertForPreTraining

    layers, width, heads = PRESETS[arch]
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=30522,
    )
    with torch.device("meta"):
        theirs = sum(parameter.numel() for parameter in BertForPreTraining(config).parameters())
    task = bert_vocabulary_task()
    assert len(task.source_dictionary) == 30522
    for model in (built_from_command_line(arch, task), built_from_yaml(arch, task)):
        assert count(model) == theirs
        assert model.cfg.encoder_attention_heads == heads
        assert model.encoder.layers[0].attention_heads == heads
        assert model.max_positions() == 512


def test_given_sizes_win_over_the_preset():
    task = bert_vocabulary_task()
    options = {
        "encoder_layers": 3,
        "encoder_embed_dim": 192,
        "encoder_ffn_embed_dim": 100,
        "max_positions": 64,
    }
    flags = [part for k, v in options.items() for part in (f"--{k.replace('_', '-')}", str(v))]
    for model in (
        built_from_command_line("tn_bert_tiny", task, *flags),
        built_from_yaml("tn_bert_tiny", task, **options),
    ):
        assert len(model.encoder.layers) == 3
        assert model.encoder.embed_tokens.weight.shape == (30522, 192)
        assert model.encoder.layers[0].fc1.weight.shape == (100, 192)
        assert model.encoder.layers[0].attention_heads == 3
        assert model.max_positions() == 64


def test_a_width_that_heads_cannot_share_names_both_options():
    with pytest.raises(UserError, match=r"--encoder-embed-dim 16 .* --encoder-attention-heads 3"):
        make_model(encoder_attention_heads=3)


# --- guards -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_the_same_model_loads_bit_for_bit():
    saved, other = make_model(seed=1), make_model(seed=2)
    other.load_state_dict(saved.state_dict(), strict=True)
    for name, value in saved.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("option", "theirs", "ours"),
    [
        ("encoder_layers", 3, 2),
        ("encoder_layers", 1, 2),
        ("encoder_embed_dim", 32, 16),
        ("encoder_ffn_embed_dim", 24, 64),
        ("encoder_attention_heads", 4, 2),
        ("max_positions", 10, 12),
        ("max_positions", 20, 12),
        ("num_segments", 1, 2),
        ("layer_norm_eps", 1e-5, 1e-12),
        ("activation_fn", "relu", "gelu"),
    ],
)
def test_the_option_in_which_checkpoint_and_run_differ_is_named(option, theirs, ours):
    saved, model = make_model(**{option: theirs}), make_model(**{option: ours})
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(CheckpointMismatch) as error:
        model.load_state_dict(saved.state_dict(), strict=True)
    message = str(error.value)
    assert "\n" not in message
    assert f"--{option.replace('_', '-')} {theirs}, this run {ours}" in message
    for name, value in model.state_dict().items():
        assert torch.equal(before[name], value)


@pytest.mark.parametrize(
    "words",
    [[*WORDS, "more"], WORDS[:-1], [*WORDS[:-1], "other"], [WORDS[1], WORDS[0], *WORDS[2:]]],
    ids=["longer", "shorter", "another symbol", "another order"],
)
def test_another_vocabulary_names_dict_txt(words):
    saved = make_model(make_dictionary(words))
    with pytest.raises(CheckpointMismatch, match=r"^dict\.txt .*fairseq-preprocess --srcdict"):
        make_model().load_state_dict(saved.state_dict(), strict=True)


def test_counts_of_the_dictionary_do_not_matter():
    dictionary = make_dictionary()
    dictionary.count = [n + 7 for n in dictionary.count]
    make_model(dictionary).load_state_dict(make_model().state_dict(), strict=True)


def test_a_checkpoint_of_another_kind_of_model_is_one_clear_line():
    with pytest.raises(CheckpointMismatch, match="not one of a tn_bert model"):
        make_model().load_state_dict({"encoder.sentence_encoder.embed_tokens.weight": torch.zeros(3, 3)})


# --- fine-tuning ------------------------------------------------------------------------------------------------


def test_a_classification_head_reads_the_pretrained_pooler():
    model = make_model(dropout=0.0)
    model.register_classification_head("glue", num_classes=3)
    batch = torch.tensor([[S, 5, 6, E, PAD], [S, 7, 8, 9, E]])
    logits, extra = model(batch, features_only=True, classification_head_name="glue")
    assert logits.shape == (2, 3)
    pooled = torch.tanh(model.pooler(extra["features"][:, 0]))
    torch.testing.assert_close(logits, model.classification_heads["glue"].out_proj(pooled))
    model.train()
    logits = model(batch, features_only=True, classification_head_name="glue")[0]
    torch.nn.functional.cross_entropy(logits, torch.tensor([0, 2])).backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []
    frozen = {n.split(".")[0] for n, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {"lm_head", "nsp_head"}


def test_classification_heads_come_and_go_with_the_checkpoint(caplog):
    caplog.set_level("INFO")
    pretrained, tuned = make_model(seed=1), make_model(seed=2)
    tuned.register_classification_head("glue", num_classes=3)
    fresh = tuned.classification_heads["glue"].out_proj.weight.clone()
    # the checkpoint has none: the head keeps its initial values
    tuned.load_state_dict(pretrained.state_dict(), strict=True)
    assert torch.equal(tuned.classification_heads["glue"].out_proj.weight, fresh)
    assert torch.equal(tuned.pooler.weight, pretrained.pooler.weight)
    assert re.search(r"classification_heads\.glue\S* is not in the checkpoint", caplog.text)
    # the checkpoint has one that this run lacks: dropped
    caplog.clear()
    make_model().load_state_dict(tuned.state_dict(), strict=True)
    assert "dropping classification_heads.glue.out_proj.weight" in caplog.text
    # another number of classes: dropped, and the run's own kept
    other = make_model()
    other.register_classification_head("glue", num_classes=5)
    other.load_state_dict(tuned.state_dict(), strict=True)
    assert other.classification_heads["glue"].out_proj.weight.shape == (5, 16)
    # the same head: loaded
    same = make_model(seed=3)
    same.register_classification_head("glue", num_classes=3)
    same.load_state_dict(tuned.state_dict(), strict=True)
    assert torch.equal(same.classification_heads["glue"].out_proj.weight, fresh)


def test_sentence_prediction_s_positions_do_not_break_a_shorter_model():
    """That task sets ``max_positions`` to 512 whatever the checkpoint has."""
    saved = make_model()
    cfg = TnBertConfig(encoder_layers=2, encoder_embed_dim=16, encoder_attention_heads=2, max_positions=512)
    model = TnBertModel.build_model(cfg, SimpleNamespace(source_dictionary=make_dictionary()))
    model.load_state_dict(saved.state_dict(), strict=True)
    rows = model.encoder.embed_positions.weight
    assert rows.shape == (512, 16)
    assert torch.equal(rows[:12], saved.encoder.embed_positions.weight)
    batch = sentence(S, 5, 6, E)
    torch.testing.assert_close(model.eval()(batch)[0], saved(batch)[0])


def test_heads_that_no_loss_uses_are_frozen_and_the_embedding_is_not():
    model = make_model()
    for lm in (True, False):
        for nsp in (True, False):
            model.freeze_heads(lm=lm, nsp=nsp)
            frozen = {n.split(".")[0] for n, p in model.named_parameters() if not p.requires_grad}
            assert frozen == ({"lm_head"} if lm else set()) | ({"pooler", "nsp_head"} if nsp else set())


@pytest.mark.parametrize("uses_nsp", [True, False])
def test_the_task_decides_whether_the_sentence_head_trains(uses_nsp):
    task = SimpleNamespace(source_dictionary=make_dictionary(), uses_nsp=uses_nsp)
    cfg = TnBertConfig(encoder_layers=1, encoder_embed_dim=16, encoder_attention_heads=2)
    model = TnBertModel.build_model(cfg, task)
    assert model.pooler.weight.requires_grad is uses_nsp
    assert model.nsp_head.weight.requires_grad is uses_nsp
    assert model.lm_head.bias.requires_grad


@pytest.mark.parametrize("positions", [5, 12, 30])
def test_positions_are_cut_or_repeated_when_asked(positions):
    saved = make_model()
    cfg = TnBertConfig(
        encoder_layers=2,
        encoder_embed_dim=16,
        encoder_attention_heads=2,
        max_positions=positions,
        resize_positions=True,
    )
    model = TnBertModel(cfg, make_dictionary())
    model.load_state_dict(saved.state_dict())
    rows, given = model.encoder.embed_positions.weight, saved.encoder.embed_positions.weight
    assert len(rows) == positions
    for position in range(positions):
        assert torch.equal(rows[position], given[position % 12])


def test_a_checkpoint_from_before_an_option_is_built_with_its_default():
    options = {"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_attention_heads": 2}
    cfg = OmegaConf.structured(TnBertConfig(**options))
    old = OmegaConf.create({key: cfg[key] for key in cfg if key not in ("resize_positions", "num_segments")})
    OmegaConf.set_struct(old, True)
    task = SimpleNamespace(source_dictionary=make_dictionary())
    model = TnBertModel.build_model(old, task)
    model.load_state_dict(model.state_dict())
    assert model.cfg.num_segments == 2
    assert model.cfg.resize_positions is False
