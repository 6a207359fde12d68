"""What the models of this package share: options, guards against mixed-up checkpoints, fine-tuning heads."""

import argparse
import logging
import zlib
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

import torch
import torch.nn.functional as F
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import BaseFairseqModel
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.models.depth import mark_depth
from fairseq_tn.models.encoder import ACTIVATIONS, TransformerEncoder
from fairseq_tn.synonyms.vocabularies import vocabulary_digest

logger = logging.getLogger(__name__)


@dataclass
class EncoderConfig(FairseqDataclass):
    """Options of an encoder. A size that is not given follows from the architecture's name."""

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
            "help": "activation of the feed-forward network and the pre-training heads (gelu: the exact one)"
        },
    )
    num_segments: int = field(default=2, metadata={"help": "number of segment embeddings"})
    initializer_range: float = field(
        default=0.02,
        metadata={
            "help": "standard deviation of the initial weights; models of a few hundred dimensions that are trained "
            "from scratch learn sooner with more, about 1 / sqrt(--encoder-embed-dim)"
        },
    )


def architecture_of(cfg: Any, default: str) -> str:
    """The architecture's name in a model's configuration, ``default`` if there is none."""
    return getattr(cfg, "_name", None) or getattr(cfg, "arch", None) or default


def fill_in_sizes(cfg: Any, prefix: str, layers: int, width: int) -> None:
    """Give the four sizes ``PREFIX_layers``, ``..._embed_dim`` and so on of ``cfg`` values where they are None.

    It happens when the model is built, not in fairseq's architecture functions: under Hydra the dataclass has
    filled in its defaults before such a function runs, and presets would silently vanish. Heads are 64 wide, the
    feed-forward network four times the width.

    Raises:
        UserError: a size is not positive, or the heads do not divide the width
    """

    def fill(size: str, default: int) -> int:
        name = f"{prefix}_{size}"
        if getattr(cfg, name) is None:
            setattr(cfg, name, default)
        value = getattr(cfg, name)
        if value < 1:
            raise UserError(f"--{name.replace('_', '-')} is {value}; it must be 1 or more")
        return value

    fill("layers", layers)
    width = fill("embed_dim", width)
    fill("ffn_embed_dim", 4 * width)
    heads = fill("attention_heads", max(1, width // 64))
    if width % heads:
        option = f"--{prefix}-".replace("_", "-")
        raise UserError(
            f"{option}embed-dim {width} cannot be divided among {option}attention-heads {heads}; "
            "choose a divisor"
        )


class MaskedLMHead(nn.Module):
    """Dense layer, activation, LayerNorm and a projection onto the (tied) token embeddings."""

    def __init__(
        self,
        embed_dim: int,
        embedding_dim: int,
        num_embeddings: int,
        layer_norm_eps: float,
        activation_fn: str,
    ):
        super().__init__()
        self.dense = nn.Linear(embed_dim, embedding_dim)
        self.activation = ACTIVATIONS[activation_fn]
        self.layer_norm = nn.LayerNorm(embedding_dim, eps=layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(num_embeddings))

    def forward(self, features: Tensor, embedding: Tensor) -> Tensor:
        """``features``: ... x D; ``embedding``: V x E. Returns logits ... x V."""
        return F.linear(self.layer_norm(self.activation(self.dense(features))), embedding, self.bias)


def select_positions(features: Tensor, masked_tokens: Tensor | None) -> Tensor:
    """The states to predict from: all of B x T x D, or K x D at a bool mask (B x T) or flat indices (K)."""
    if masked_tokens is None:
        return features
    if masked_tokens.dtype == torch.bool:
        return features[masked_tokens]
    return features.reshape(-1, features.size(-1)).index_select(0, masked_tokens)


class PretrainedModel(BaseFairseqModel):
    """A model around a :class:`TransformerEncoder`, with heads for pre-training and fine-tuning.

    Two integer buffers travel with the weights and guard against mixing checkpoints: a digest of the
    vocabulary, and what the shapes of the tensors do not show (heads, epsilon, activation).
    """

    # what users call it, the dataclass of its options, and the option, tensor and axis of each size
    kind: ClassVar[str]
    config_class: ClassVar[type[EncoderConfig]]
    sizes_in_checkpoint: ClassVar[tuple[tuple[str, str, int], ...]] = (
        ("--encoder-embed-dim", "encoder.layers.0.fc2.weight", 0),
        ("--encoder-ffn-embed-dim", "encoder.layers.0.fc1.weight", 0),
        ("--num-segments", "encoder.embed_segments.weight", 0),
    )
    # the modules whose layers are counted, and the options that give their number and their attention heads
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    encoder: TransformerEncoder

    def __init__(self, cfg: Any, dictionary: Any):
        super().__init__()
        self.cfg = cfg
        # fairseq 0.12.2's sentence_prediction looks here for regularisers of its own models
        self.args = argparse.Namespace()
        self.padding_idx = dictionary.pad()
        # set for tasks that impose their own number of positions, see `upgrade_state_dict_named`
        self.accept_fewer_positions = False
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
                    *(getattr(cfg, f"{stack}_attention_heads") for stack in self.stacks),
                    round(cfg.layer_norm_eps * 1e15),
                    zlib.crc32(str(cfg.activation_fn).encode()),
                ]
            ),
        )

    def new_encoder(self, dictionary: Any, embedding_dim: int) -> TransformerEncoder:
        """The encoder that the options describe."""
        cfg = self.cfg
        return TransformerEncoder(
            num_embeddings=len(dictionary),
            embedding_dim=embedding_dim,
            max_positions=cfg.max_positions,
            pad=dictionary.pad(),
            eos=dictionary.eos(),
            num_segments=cfg.num_segments,
            **self.layer_options("encoder"),
        )

    def layer_options(self, stack: str) -> dict[str, Any]:
        """Arguments of :class:`LayerStack` for one of ``stacks``."""
        cfg = self.cfg
        return {
            "layers": getattr(cfg, f"{stack}_layers"),
            "embed_dim": getattr(cfg, f"{stack}_embed_dim"),
            "ffn_embed_dim": getattr(cfg, f"{stack}_ffn_embed_dim"),
            "attention_heads": getattr(cfg, f"{stack}_attention_heads"),
            "dropout": cfg.dropout,
            "attention_dropout": cfg.attention_dropout,
            "layer_norm_eps": cfg.layer_norm_eps,
            "activation_fn": str(cfg.activation_fn),
        }

    def initialise(self, module: nn.Module) -> None:
        """BERT's initial values of one module: normal weights, biases 0."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=self.cfg.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "PretrainedModel":
        """fairseq's entry; heads that the task cannot train are frozen."""
        if OmegaConf.is_config(cfg):
            # a checkpoint does not know the options that came after it
            with open_dict(cfg):
                known = vars(cls.config_class())
                cfg.update({key: value for key, value in known.items() if key not in cfg})
        model = cls(cfg, task.source_dictionary)
        model.freeze_for(task)
        model.accept_fewer_positions = not hasattr(task, "uses_nsp")
        mark_depth(model)
        return model

    def freeze_for(self, task: Any) -> None:
        """Freeze the heads that no criterion of ``task`` can train."""

    def new_classification_head(self, num_classes: int) -> nn.Module:
        """A head for fine-tuning on whole sequences, with initial values."""
        raise NotImplementedError

    def freeze_for_fine_tuning(self) -> None:
        """Freeze everything that only pre-training uses; heads for whole sequences stay trainable."""
        raise NotImplementedError

    def freeze_heads_for_tokens(self) -> None:
        """Freeze everything but what the hidden states depend on."""
        self.freeze_for_fine_tuning()

    def max_positions(self) -> int:
        """The longest input in tokens."""
        return self.cfg.max_positions

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """Softmax of the logits in ``net_output`` in float32."""
        logits = net_output[0] if isinstance(net_output, tuple) else net_output
        return F.log_softmax(logits.float(), -1) if log_probs else F.softmax(logits.float(), -1)

    def register_classification_head(
        self, name: str, num_classes: int | None = None, inner_dim: int | None = None, **unused: Any
    ) -> None:
        """Add a head for fine-tuning on whole sequences; the pre-training heads are frozen.

        ``inner_dim`` has no meaning here: the head has the width of the model.
        """
        assert num_classes is not None
        if name in self.classification_heads:
            logger.warning("replacing the classification head %s", name)
        self.classification_heads[name] = self.new_classification_head(num_classes)
        self.freeze_for_fine_tuning()
        mark_depth(self)

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
        needed = [key for _, key, _ in self.sizes_in_checkpoint]
        if not (
            {"encoder.embed_tokens.weight", "architecture", *needed} <= given.keys()
            and given["architecture"].shape == own["architecture"].shape
        ):
            raise CheckpointMismatch(
                f"the checkpoint is not one of a {self.kind} model; convert Hugging Face weights with "
                "`fairseq-tn convert from-hf`, or choose the --arch that the checkpoint was trained with"
            )

        def layers(state: dict[str, Tensor], stack: str) -> int:
            return len(
                [key for key in state if key.startswith(f"{stack}.layers.") and key.endswith(".fc1.bias")]
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

        for stack in self.stacks:
            compare(f"--{stack}-layers", layers(given, stack), layers(own, stack))
        for option, key, axis in self.sizes_in_checkpoint:
            compare(option, given[key].size(axis), own[key].size(axis))
        positions = "encoder.embed_positions.weight"
        rows = given[positions].size(0), own[positions].size(0)
        if not (self.cfg.resize_positions or (self.accept_fewer_positions and rows[0] < rows[1])):
            compare("--max-positions", *rows, remedy="or resize with --resize-positions")
        *their_heads, their_eps, their_activation = given["architecture"].tolist()
        *our_heads, our_eps, our_activation = own["architecture"].tolist()
        for stack, theirs, ours in zip(self.stacks, their_heads, our_heads, strict=True):
            compare(f"--{stack}-attention-heads", theirs, ours)
        compare("--layer-norm-eps", f"{their_eps / 1e15:g}", f"{our_eps / 1e15:g}")
        names = {zlib.crc32(name.encode()): name for name in ACTIVATIONS}
        compare("--activation-fn", names.get(their_activation, "?"), names[our_activation])
        rows = given["encoder.embed_tokens.weight"].size(0), own["encoder.embed_tokens.weight"].size(0)
        if rows[0] != rows[1] or not torch.equal(
            given["vocabulary_digest"].cpu(), own["vocabulary_digest"].cpu()
        ):
            raise CheckpointMismatch(
                f"dict.txt of the data is not the vocabulary of the checkpoint ({rows[1]} and {rows[0]} symbols); "
                "make the data with the dict.txt beside the checkpoint (`fairseq-preprocess --srcdict`, or "
                "`fairseq-tn prepare --dict`)"
            )


def sizes_follow_from_the_name(cfg: Any) -> None:
    """fairseq wants a function for each architecture; :func:`fill_in_sizes` does the work."""
