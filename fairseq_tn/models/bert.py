"""``tn_bert``: BERT with segments, pooler, masked-LM head and next-sentence head, under fairseq's contract."""

from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models import register_model, register_model_architecture
from torch import Tensor, nn

from fairseq_tn.models.pretrained import (
    EncoderConfig,
    MaskedLMHead,
    PretrainedModel,
    architecture_of,
    fill_in_sizes,
    select_positions,
    sizes_follow_from_the_name,
)

# layers and width of Turc et al. (2019) and Devlin et al. (2019)
SIZES = {
    "tn_bert_tiny": (2, 128),
    "tn_bert_mini": (4, 256),
    "tn_bert_small": (4, 512),
    "tn_bert_medium": (8, 512),
    "tn_bert_base": (12, 768),
    "tn_bert_large": (24, 1024),
}


@dataclass
class TnBertConfig(EncoderConfig):
    """Options of ``tn_bert``: those of its encoder."""


def resolve_sizes(cfg: Any) -> None:
    """Fill in the sizes of ``cfg`` that are None from its architecture name, see :func:`fill_in_sizes`."""
    name = architecture_of(cfg, "tn_bert")
    fill_in_sizes(cfg, "encoder", *SIZES["tn_bert_base" if name == "tn_bert" else name])


class ClassificationHead(nn.Module):
    """Dropout and a projection; it reads the model's pooler, so that fine-tuning starts from a pre-trained one."""

    def __init__(self, embed_dim: int, num_classes: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(embed_dim, num_classes)

    def forward(self, pooled: Tensor) -> Tensor:
        """``pooled``: B x D. Returns logits B x C."""
        return self.out_proj(self.dropout(pooled))


@register_model("tn_bert", dataclass=TnBertConfig)
class TnBertModel(PretrainedModel):
    """BERT encoder with its pre-training heads."""

    kind = "tn_bert"
    config_class = TnBertConfig

    def __init__(self, cfg: TnBertConfig, dictionary: Any):
        resolve_sizes(cfg)
        super().__init__(cfg, dictionary)
        dim = cfg.encoder_embed_dim
        assert dim is not None
        self.encoder = self.new_encoder(dictionary, dim)
        self.lm_head = MaskedLMHead(dim, dim, len(dictionary), cfg.layer_norm_eps, str(cfg.activation_fn))
        self.pooler = nn.Linear(dim, dim)
        self.nsp_head = nn.Linear(dim, 2)
        self.apply(self.initialise)

    def freeze_for(self, task: Any) -> None:
        """Freeze the next-sentence head where the task has no sentence pairs."""
        self.freeze_heads(lm=False, nsp=not getattr(task, "uses_nsp", False))

    def freeze_heads(self, lm: bool, nsp: bool) -> None:
        """Freeze the heads that no loss of this run uses and keep the others trainable.

        torch's DistributedDataParallel aborts on trainable parameters without a gradient. The embeddings,
        which the masked-LM head shares, stay trainable.
        """
        for frozen, modules in ((lm, [self.lm_head]), (nsp, [self.pooler, self.nsp_head])):
            for module in modules:
                module.requires_grad_(not frozen)

    def freeze_for_fine_tuning(self) -> None:
        """Freeze the pre-training heads; classification heads read the pooler."""
        self.freeze_heads(lm=True, nsp=True)
        self.pooler.requires_grad_(True)

    def freeze_heads_for_tokens(self) -> None:
        """Freeze the pre-training heads and the pooler."""
        self.freeze_heads(lm=True, nsp=True)

    def new_classification_head(self, num_classes: int) -> ClassificationHead:
        """A head on the pooler."""
        head = ClassificationHead(self.pooler.out_features, num_classes, self.cfg.dropout)
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
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Encode ``src_tokens`` (B x T, right-padded) and apply one head.

        Args:
            src_tokens: B x T token ids.
            src_lengths: accepted for fairseq's sake; padding is read off the tokens.
            features_only: return the hidden states instead of masked-LM logits.
            masked_tokens: where to predict: a B x T bool mask or K flat indices into B x T; default everywhere.
            classification_head_name: return this head's logits (B x C) instead.
            return_all_hiddens: fill ``inner_states``.
            segments: B x T segment ids, if they do not follow from the separators.

        Returns:
            The result (B x T x D states, B x T x V or K x V masked-LM logits, or B x C logits) and a dictionary:
            ``features`` (B x T x D), ``inner_states`` (list of B x T x D or None), ``nsp_logits`` (B x 2).
        """
        features, hiddens = self.encoder(src_tokens, segments, return_all_hiddens)
        pooled = torch.tanh(self.pooler(features[:, 0]))
        extra = {"features": features, "inner_states": hiddens, "nsp_logits": self.nsp_head(pooled)}
        if classification_head_name is not None:
            return self.classification_heads[classification_head_name](pooled), extra
        if features_only:
            return features, extra
        return self.output_layer(features, masked_tokens), extra

    def output_layer(self, features: Tensor, masked_tokens: Tensor | None = None) -> Tensor:
        """Masked-LM logits of ``features`` (B x T x D), see :meth:`forward` for ``masked_tokens``."""
        return self.lm_head(select_positions(features, masked_tokens), self.encoder.embed_tokens.weight)


for _name in SIZES:
    register_model_architecture("tn_bert", _name)(sizes_follow_from_the_name)
