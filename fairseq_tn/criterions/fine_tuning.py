"""What criterions with a head of their own share; the fine-tuning ones are among them.

The head belongs to the criterion, so that every model serves: ours and fairseq's own ``roberta``. fairseq trains the
criterion's parameters with those of the model and keeps them in the checkpoint under ``criterion``.
"""

from collections.abc import Mapping
from typing import Any

from fairseq.criterions import FairseqCriterion
from torch import Tensor, nn

from fairseq_tn.errors import CheckpointMismatch
from fairseq_tn.models.access import freeze_lm_head
from fairseq_tn.models.depth import mark_head
from fairseq_tn.models.pretrained import PretrainedModel

_PROJECTION = "projection."


class TokenHead(nn.Module):
    """Dropout and a projection of every token's state."""

    def __init__(self, embed_dim: int, num_outputs: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(embed_dim, num_outputs)
        nn.init.normal_(self.out_proj.weight, std=0.02)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, states: Tensor) -> Tensor:
        """``states``: ... x D. Returns logits ... x C."""
        return self.out_proj(self.dropout(states))


class CriterionHead(FairseqCriterion):
    """A criterion with parameters; subclasses build their head and then call :meth:`mark_parameters`."""

    def mark_parameters(self) -> None:
        """Let layer-wise learning rates count the criterion's parameters as a head's."""
        mark_head(self)

    def load_state_dict(
        self, state_dict: Mapping[str, Any] | None, strict: bool = True, assign: bool = False
    ) -> Any:
        """Load the head of a checkpoint; that of a pre-trained model holds none, and the head starts afresh.

        The projection of ``sentence_contrastive`` belongs to pre-training: it is no head of another criterion.

        Raises:
            CheckpointMismatch: the checkpoint holds another head
        """
        own = self.state_dict()
        only_trains = bool(state_dict) and all(name.startswith(_PROJECTION) for name in state_dict or ())
        if not state_dict or (only_trains and not any(name.startswith(_PROJECTION) for name in own)):
            return super().load_state_dict(own)
        strange = sorted(
            name
            for name in state_dict.keys() | own.keys()
            if name not in state_dict or name not in own or state_dict[name].shape != own[name].shape
        )
        if strange:
            raise CheckpointMismatch(
                f"the checkpoint's head is of another task or other labels ({strange[0]} differs); start from a "
                "pre-trained checkpoint"
            )
        return super().load_state_dict(state_dict, strict=strict)


class FineTuningCriterion(CriterionHead):
    """A criterion whose only loss is that of its head."""

    def freeze_unused(self, model: nn.Module) -> None:
        """Freeze the heads of ``model``, none of which has a loss here."""
        if isinstance(model, PretrainedModel):
            model.freeze_heads_for_tokens()
        elif hasattr(getattr(model, "encoder", None), "lm_head"):
            freeze_lm_head(model)

    @staticmethod
    def states(model: nn.Module, net_input: Mapping[str, Any]) -> Tensor:
        """The last hidden states, B x T x D, through the wrappers of distributed training."""
        return model(**net_input, features_only=True)[0]

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All values are sums."""
        return True
