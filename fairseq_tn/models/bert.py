"""``tn_bert``: BERT with segments, pooler, masked-LM head and next-sentence head, under fairseq's contract."""

import argparse
import logging
import zlib
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
import torch.nn.functional as F
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.models.encoder import ACTIVATIONS, TransformerEncoder
from fairseq_tn.synonyms.vocabularies import vocabulary_digest

logger = logging.getLogger(__name__)

# layers, width and longest input of Turc et al. (2019) and Devlin et al. (2019); heads are 64 wide, the
# feed-forward network four times the model's width
SIZES = {
    "tn_bert_tiny": (2, 128),
    "tn_bert_mini": (4, 256),
    "tn_bert_small": (4, 512),
    "tn_bert_medium": (8, 512),
    "tn_bert_base": (12, 768),
    "tn_bert_large": (24, 1024),
}


@dataclass
class TnBertConfig(FairseqDataclass):
    """Options of ``tn_bert``. A size that is not given follows from the architecture's name."""

    encoder_layers: Optional[int] = field(
        default=None, metadata={"help": "number of Transformer layers (default: from --arch)"}
    )
    encoder_embed_dim: Optional[int] = field(
        default=None, metadata={"help": "width of the hidden states (default: from --arch)"}
    )
    encoder_ffn_embed_dim: Optional[int] = field(
        default=None,
        metadata={"help": "width of the feed-forward network (default: 4 x --encoder-embed-dim)"},
    )
    encoder_attention_heads: Optional[int] = field(
        default=None, metadata={"help": "number of attention heads (default: --encoder-embed-dim / 64)"}
    )
    dropout: float = field(
        default=0.1,
        metadata={"help": "dropout after the embeddings, the attention and the feed-forward network"},
    )
    attention_dropout: float = field(default=0.1, metadata={"help": "dropout of the attention weights"})
    max_positions: int = field(
        default=512, metadata={"help": "longest input in tokens, special tokens included"}
    )
    resize_positions: bool = field(
        default=False,
        metadata={
            "help": "load a checkpoint of another --max-positions: surplus positions are cut off, missing ones "
            "repeat the checkpoint's from the first"
        },
    )
    layer_norm_eps: float = field(default=1e-12, metadata={"help": "epsilon of the layer normalisations"})
    activation_fn: ChoiceEnum(list(ACTIVATIONS)) = field(  # type: ignore[valid-type]
        default="gelu",
        metadata={
            "help": "activation of the feed-forward network and the masked-LM head (gelu: the exact one)"
        },
    )
    num_segments: int = field(default=2, metadata={"help": "number of segment embeddings"})


def resolve_sizes(cfg: Any) -> None:
    """Fill in the sizes of ``cfg`` that are None from its architecture name (``_name``).

    It happens when the model is built, not in fairseq's architecture functions: under Hydra the dataclass has
    filled in its defaults before such a function runs, and presets would silently vanish.
    """
    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None) or "tn_bert"
    layers, width = SIZES["tn_bert_base" if name == "tn_bert" else name]
    if cfg.encoder_layers is None:
        cfg.encoder_layers = layers
    if cfg.encoder_embed_dim is None:
        cfg.encoder_embed_dim = width
    if cfg.encoder_ffn_embed_dim is None:
        cfg.encoder_ffn_embed_dim = 4 * cfg.encoder_embed_dim
    if cfg.encoder_attention_heads is None:
        cfg.encoder_attention_heads = max(1, cfg.encoder_embed_dim // 64)
    if cfg.encoder_embed_dim % cfg.encoder_attention_heads:
        raise UserError(
            f"--encoder-embed-dim {cfg.encoder_embed_dim} cannot be divided among "
            f"--encoder-attention-heads {cfg.encoder_attention_heads}; choose a divisor"
        )


class MaskedLMHead(nn.Module):
    """Dense layer, activation, LayerNorm and a projection onto the (tied) token embeddings."""

    def __init__(self, embed_dim: int, num_embeddings: int, layer_norm_eps: float, activation_fn: str):
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.activation = ACTIVATIONS[activation_fn]
        self.layer_norm = nn.LayerNorm(embed_dim, eps=layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(num_embeddings))

    def forward(self, features: Tensor, embedding: Tensor) -> Tensor:
        """``features``: ... x D; ``embedding``: V x D. Returns logits ... x V."""
        return F.linear(self.layer_norm(self.activation(self.dense(features))), embedding, self.bias)


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
class TnBertModel(BaseFairseqModel):
    """BERT encoder with its pre-training heads.

    Two integer buffers travel with the weights and guard against mixing checkpoints: a digest of the
    vocabulary, and what the shapes of the tensors do not show (heads, epsilon, activation).
    """

    def __init__(self, cfg: TnBertConfig, dictionary: Any):
        super().__init__()
        resolve_sizes(cfg)
        self.cfg = cfg
        # fairseq 0.12.2's sentence_prediction looks here for regularisers of its own models
        self.args = argparse.Namespace()
        self.padding_idx = dictionary.pad()
        # set for tasks that impose their own number of positions, see `upgrade_state_dict_named`
        self.accept_fewer_positions = False
        dim, vocabulary = cfg.encoder_embed_dim, len(dictionary)
        assert dim is not None
        self.encoder = TransformerEncoder(
            num_embeddings=vocabulary,
            layers=cfg.encoder_layers or 0,
            embed_dim=dim,
            ffn_embed_dim=cfg.encoder_ffn_embed_dim or 0,
            attention_heads=cfg.encoder_attention_heads or 0,
            max_positions=cfg.max_positions,
            pad=dictionary.pad(),
            eos=dictionary.eos(),
            num_segments=cfg.num_segments,
            dropout=cfg.dropout,
            attention_dropout=cfg.attention_dropout,
            layer_norm_eps=cfg.layer_norm_eps,
            activation_fn=str(cfg.activation_fn),
        )
        self.lm_head = MaskedLMHead(dim, vocabulary, cfg.layer_norm_eps, str(cfg.activation_fn))
        self.pooler = nn.Linear(dim, dim)
        self.nsp_head = nn.Linear(dim, 2)
        self.classification_heads = nn.ModuleDict()
        digest = bytes.fromhex(vocabulary_digest(dictionary.symbols))
        # 32 bits in each 64-bit number, so that averaging checkpoints cannot overflow
        self.register_buffer(
            "vocabulary_digest",
            torch.tensor([int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]),
        )
        self.register_buffer(
            "architecture",
            torch.tensor(
                [
                    cfg.encoder_attention_heads or 0,
                    round(cfg.layer_norm_eps * 1e15),
                    zlib.crc32(str(cfg.activation_fn).encode()),
                ]
            ),
        )
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])

    @classmethod
    def build_model(cls, cfg: TnBertConfig, task: Any) -> "TnBertModel":
        """fairseq's entry; heads that the task cannot train are frozen."""
        if OmegaConf.is_config(cfg):
            # a checkpoint does not know the options that came after it
            with open_dict(cfg):
                cfg.update({key: value for key, value in vars(TnBertConfig()).items() if key not in cfg})
        model = cls(cfg, task.source_dictionary)
        model.freeze_heads(lm=False, nsp=not getattr(task, "uses_nsp", False))
        model.accept_fewer_positions = not hasattr(task, "uses_nsp")
        return model

    def freeze_heads(self, lm: bool, nsp: bool) -> None:
        """Freeze the heads that no loss of this run uses and keep the others trainable.

        torch's DistributedDataParallel aborts on trainable parameters without a gradient. The embeddings,
        which the masked-LM head shares, stay trainable.
        """
        for frozen, modules in ((lm, [self.lm_head]), (nsp, [self.pooler, self.nsp_head])):
            for module in modules:
                module.requires_grad_(not frozen)

    def max_positions(self) -> int:
        """The longest input in tokens."""
        return self.cfg.max_positions

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
        if masked_tokens is not None:
            if masked_tokens.dtype == torch.bool:
                features = features[masked_tokens]
            else:
                features = features.reshape(-1, features.size(-1)).index_select(0, masked_tokens)
        return self.lm_head(features, self.encoder.embed_tokens.weight)

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """Softmax of the logits in ``net_output`` in float32."""
        logits = net_output[0] if isinstance(net_output, tuple) else net_output
        return F.log_softmax(logits.float(), -1) if log_probs else F.softmax(logits.float(), -1)

    def register_classification_head(
        self, name: str, num_classes: int | None = None, inner_dim: int | None = None, **unused: Any
    ) -> None:
        """Add a head for fine-tuning on whole sequences; the pre-training heads are frozen.

        ``inner_dim`` has no meaning here: the head reads the pre-trained pooler.
        """
        assert num_classes is not None
        if name in self.classification_heads:
            logger.warning("replacing the classification head %s", name)
        head = ClassificationHead(self.encoder.embed_tokens.embedding_dim, num_classes, self.cfg.dropout)
        head.apply(self._initialise)
        self.classification_heads[name] = head
        self.freeze_heads(lm=True, nsp=True)
        self.pooler.requires_grad_(True)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Check that the checkpoint is of this architecture and vocabulary; match its classification heads.

        Heads that this model has and the checkpoint lacks keep their initial values; others of the checkpoint
        are dropped. Both are logged.

        Raises:
            CheckpointMismatch: names the option in which checkpoint and model differ.
        """
        super().upgrade_state_dict_named(state_dict, name)
        prefix = name + "." if name else ""
        own = self.state_dict()
        self._check_architecture(
            {k[len(prefix) :]: v for k, v in state_dict.items() if k.startswith(prefix)}, own
        )
        heads = prefix + "classification_heads."
        for key in [key for key in state_dict if key.startswith(heads)]:
            known = own.get(key[len(prefix) :])
            if known is None or known.shape != state_dict[key].shape:
                logger.info("dropping %s of the checkpoint: this run has no such classification head", key)
                del state_dict[key]
        for key, value in own.items():
            if key.startswith("classification_heads.") and prefix + key not in state_dict:
                logger.info("%s is not in the checkpoint: it keeps its initial values", key)
                state_dict[prefix + key] = value
        key, wanted = prefix + "encoder.embed_positions.weight", own["encoder.embed_positions.weight"].size(0)
        given = state_dict[key].size(0)
        if given != wanted:  # `_check_architecture` has let it pass
            logger.warning(
                "the checkpoint has %d positions, this model %d: they are cut or repeated", given, wanted
            )
            state_dict[key] = state_dict[key][torch.arange(wanted) % given]

    def _check_architecture(self, given: dict[str, Tensor], own: dict[str, Tensor]) -> None:
        if "encoder.embed_tokens.weight" not in given or "encoder.embed_segments.weight" not in given:
            raise CheckpointMismatch(
                "the checkpoint is not one of a tn_bert model; convert Hugging Face weights with "
                "`fairseq-tn convert from-hf`, or choose the --arch that the checkpoint was trained with"
            )

        def layers(state: dict[str, Tensor]) -> int:
            return len(
                [key for key in state if key.startswith("encoder.layers.") and key.endswith(".fc1.bias")]
            )

        def compare(
            what: str,
            theirs: int | str,
            ours: int | str,
            remedy: str = "or the --arch that the checkpoint was trained with",
        ) -> None:
            if theirs != ours:
                raise CheckpointMismatch(
                    f"the checkpoint has {what} {theirs}, this run {ours}; give {what} {theirs} {remedy}"
                )

        compare("--encoder-layers", layers(given), layers(own))
        for option, key, axis in (
            ("--encoder-embed-dim", "encoder.embed_tokens.weight", 1),
            ("--encoder-ffn-embed-dim", "encoder.layers.0.fc1.weight", 0),
            ("--num-segments", "encoder.embed_segments.weight", 0),
        ):
            compare(option, given[key].size(axis), own[key].size(axis))
        positions = "encoder.embed_positions.weight"
        rows = given[positions].size(0), own[positions].size(0)
        if not (self.cfg.resize_positions or (self.accept_fewer_positions and rows[0] < rows[1])):
            compare("--max-positions", *rows, remedy="or resize with --resize-positions")
        theirs, ours = given["architecture"].tolist(), own["architecture"].tolist()
        compare("--encoder-attention-heads", theirs[0], ours[0])
        compare("--layer-norm-eps", f"{theirs[1] / 1e15:g}", f"{ours[1] / 1e15:g}")
        names = {zlib.crc32(name.encode()): name for name in ACTIVATIONS}
        compare("--activation-fn", names.get(theirs[2], "?"), names[ours[2]])
        rows = given["encoder.embed_tokens.weight"].size(0), own["encoder.embed_tokens.weight"].size(0)
        if rows[0] != rows[1] or not torch.equal(
            given["vocabulary_digest"].cpu(), own["vocabulary_digest"].cpu()
        ):
            raise CheckpointMismatch(
                f"dict.txt of the data is not the vocabulary of the checkpoint ({rows[1]} and {rows[0]} symbols); "
                "binarise the data with `fairseq-preprocess --srcdict` and the dict.txt beside the checkpoint"
            )


def _sizes_follow_from_the_name(cfg: Any) -> None:
    """fairseq wants a function for each architecture; :func:`resolve_sizes` does the work."""


for _name in SIZES:
    register_model_architecture("tn_bert", _name)(_sizes_follow_from_the_name)
