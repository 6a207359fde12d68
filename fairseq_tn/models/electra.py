"""``tn_electra``: a generator that fills in masked tokens and a discriminator that finds them (Clark et al., 2020)."""

from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.models import register_model, register_model_architecture
from torch import Tensor, nn

from fairseq_tn.errors import UserError
from fairseq_tn.losses import most_likely
from fairseq_tn.models.encoder import ACTIVATIONS, LayerStack
from fairseq_tn.models.pretrained import (
    EncoderConfig,
    MaskedLMHead,
    PretrainedModel,
    architecture_of,
    fill_in_sizes,
    select_positions,
    sizes_follow_from_the_name,
)

# layers, width, width of the embeddings (None: that of the layers), width of the generator / width (Clark et al.,
# 2020, Table 6)
SIZES: dict[str, tuple[int, int, int | None, float]] = {
    "tn_electra_small": (12, 256, 128, 1 / 4),
    "tn_electra_base": (12, 768, None, 1 / 3),
    "tn_electra_large": (24, 1024, None, 1 / 4),
}


@dataclass
class TnElectraConfig(EncoderConfig):
    """Options of ``tn_electra``; those that start with ``encoder`` are the discriminator's."""

    embedding_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "width of the embeddings that generator and discriminator share (default: 128 for "
            "tn_electra_small, else --encoder-embed-dim)"
        },
    )
    generator_size: Optional[float] = field(
        default=None,
        metadata={
            "help": "width of the generator as a share of --encoder-embed-dim, above 0 (default: from --arch)"
        },
    )
    generator_layers: Optional[int] = field(
        default=None, metadata={"help": "layers of the generator (default: --encoder-layers)"}
    )
    generator_embed_dim: Optional[int] = field(
        default=None,
        metadata={"help": "width of the generator (default: --generator-size x --encoder-embed-dim)"},
    )
    generator_ffn_embed_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "width of the generator's feed-forward network (default: 4 x --generator-embed-dim)"
        },
    )
    generator_attention_heads: Optional[int] = field(
        default=None,
        metadata={"help": "attention heads of the generator (default: --generator-embed-dim / 64)"},
    )


def resolve_sizes(cfg: Any) -> None:
    """Fill in the sizes of ``cfg`` that are None from its architecture name, see :func:`fill_in_sizes`."""
    name = architecture_of(cfg, "tn_electra")
    layers, width, embedding, share = SIZES["tn_electra_base" if name == "tn_electra" else name]
    fill_in_sizes(cfg, "encoder", layers, width)
    if cfg.embedding_dim is None:
        cfg.embedding_dim = embedding or cfg.encoder_embed_dim
    if cfg.generator_size is None:
        cfg.generator_size = share
    if cfg.embedding_dim < 1 or not cfg.generator_size > 0:
        raise UserError(
            f"--embedding-dim is {cfg.embedding_dim} and --generator-size {cfg.generator_size}; both must be above 0"
        )
    width = max(1, round(cfg.encoder_embed_dim * cfg.generator_size))
    fill_in_sizes(cfg, "generator", cfg.encoder_layers, width)


def sample_tokens(logits: Tensor) -> Tensor:
    """Draw a token from the softmax of each row: K x V -> K.

    The largest of the logits plus Gumbel noise is such a draw. It is computed in float32: half precision has too few
    different values of noise for a vocabulary of 30,000 tokens.
    """
    logits = logits.float()
    # -log(-log(u)) is a Gumbel variable, minus infinity for u = 0; torch's exponential_ is three times slower on CPUs
    noise = torch.rand_like(logits).log_().neg_().log_()
    return most_likely(torch.sub(logits, noise, out=noise))


class DiscriminatorHead(nn.Module):
    """Dense layer, activation and one logit for each position: is the token a replaced one?"""

    def __init__(self, embed_dim: int, activation_fn: str):
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.activation = ACTIVATIONS[activation_fn]
        self.out_proj = nn.Linear(embed_dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        """``features``: B x T x D. Returns logits B x T."""
        return self.out_proj(self.activation(self.dense(features))).squeeze(-1)


class ClassificationHead(nn.Module):
    """Dense layer, activation and a projection of the first token's state, as on ELECTRA in transformers."""

    def __init__(self, embed_dim: int, num_classes: int, dropout: float, activation_fn: str):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.activation = ACTIVATIONS[activation_fn]
        self.out_proj = nn.Linear(embed_dim, num_classes)

    def forward(self, first: Tensor) -> Tensor:
        """``first``: B x D. Returns logits B x C."""
        return self.out_proj(self.dropout(self.activation(self.dense(self.dropout(first)))))


@register_model("tn_electra", dataclass=TnElectraConfig)
class TnElectraModel(PretrainedModel):
    """Generator and discriminator; token, position and segment embeddings and their LayerNorm are one.

    ``encoder`` is the discriminator, which is what fine-tuning and ``features_only`` use. ``generator`` and
    ``lm_head`` make a masked LM on the same embeddings.
    """

    kind = "tn_electra"
    config_class = TnElectraConfig
    sizes_in_checkpoint = (
        *PretrainedModel.sizes_in_checkpoint,
        ("--embedding-dim", "encoder.embed_tokens.weight", 1),
        ("--generator-embed-dim", "generator.layers.0.fc2.weight", 0),
        ("--generator-ffn-embed-dim", "generator.layers.0.fc1.weight", 0),
    )
    stacks = ("encoder", "generator")
    # leave_unmasked_prob and random_token_prob of the original
    masking = (0.15, 0.0)

    def __init__(self, cfg: TnElectraConfig, dictionary: Any):
        resolve_sizes(cfg)
        super().__init__(cfg, dictionary)
        dim, embedding_dim = cfg.encoder_embed_dim, cfg.embedding_dim
        assert dim is not None
        assert embedding_dim is not None
        activation = str(cfg.activation_fn)
        self.encoder = self.new_encoder(dictionary, embedding_dim)
        self.generator = LayerStack(embedding_dim, **self.layer_options("generator"))
        self.lm_head = MaskedLMHead(
            cfg.generator_embed_dim or 0, embedding_dim, len(dictionary), cfg.layer_norm_eps, activation
        )
        self.discriminator_head = DiscriminatorHead(dim, activation)
        self.apply(self.initialise)

    def freeze_halves(self, generator: bool, discriminator: bool) -> None:
        """Freeze the half that no loss of this run uses; the shared embeddings stay trainable."""
        halves = (
            (generator, [self.generator, self.lm_head]),
            (discriminator, [self.encoder.embed_proj, self.encoder.layers, self.discriminator_head]),
        )
        for frozen, modules in halves:
            for module in modules:
                if module is not None:
                    module.requires_grad_(not frozen)

    def freeze_for_fine_tuning(self) -> None:
        """Freeze the generator and the head of the discriminator."""
        self.freeze_halves(generator=True, discriminator=False)
        self.discriminator_head.requires_grad_(False)

    def new_classification_head(self, num_classes: int) -> ClassificationHead:
        """A head on the discriminator."""
        dim = self.discriminator_head.dense.out_features
        head = ClassificationHead(dim, num_classes, self.cfg.dropout, str(self.cfg.activation_fn))
        return head.apply(self.initialise)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        features_only: bool = False,
        masked_tokens: Tensor | None = None,
        classification_head_name: str | None = None,
        return_all_hiddens: bool = False,
        segments: Tensor | None = None,
        source: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Run the generator on masked tokens, or the discriminator on plain ones, or both for pre-training.

        Args:
            src_tokens: B x T token ids, right-padded.
            src_lengths: accepted for fairseq's sake; padding is read off the tokens.
            features_only: the discriminator reads ``src_tokens``; return its states.
            masked_tokens: where the generator predicts: a B x T bool mask or K flat indices; default everywhere.
            classification_head_name: the discriminator reads ``src_tokens``; return this head's logits.
            return_all_hiddens: fill ``inner_states``.
            segments: B x T segment ids, if they do not follow from the separators.
            source: B x T original tokens. With it the generator's predictions at ``masked_tokens`` (K flat
                indices) are drawn and filled in, and the discriminator reads the result.

        Returns:
            The result (B x T x D states, B x C logits, or the generator's K x V or B x T x V logits) and a
            dictionary: ``features`` (B x T x D, of the half that ran last) and ``inner_states`` (its layers or
            None); with ``source`` also ``sampled`` (K drawn tokens) and ``discriminator_logits`` (B x T).
        """
        if features_only or classification_head_name is not None:
            features, hiddens = self.encoder(src_tokens, segments, return_all_hiddens)
            extra = {"features": features, "inner_states": hiddens}
            if classification_head_name is not None:
                return self.classification_heads[classification_head_name](features[:, 0]), extra
            return features, extra
        embedded = self.encoder.embed(
            src_tokens, self.encoder.segments(src_tokens) if segments is None else segments
        )
        features, hiddens = self.generator.encode(
            embedded, src_tokens.eq(self.encoder.pad), return_all_hiddens
        )
        logits = self.lm_head(select_positions(features, masked_tokens), self.encoder.embed_tokens.weight)
        extra = {"features": features, "inner_states": hiddens}
        if source is not None:
            assert masked_tokens is not None
            sampled = sample_tokens(logits.detach())
            replaced = source.reshape(-1).index_copy(0, masked_tokens, sampled).view_as(source)
            features, hiddens = self.encoder(replaced, segments, return_all_hiddens, layout=source)
            extra = {
                "features": features,
                "inner_states": hiddens,
                "sampled": sampled,
                "discriminator_logits": self.discriminator_head(features),
            }
        return logits, extra


for _name in SIZES:
    register_model_architecture("tn_electra", _name)(sizes_follow_from_the_name)
