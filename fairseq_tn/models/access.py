"""The same questions asked of our models and of fairseq's own ``roberta``."""

from typing import Any

from torch import Tensor, nn

from fairseq_tn.models.bert import TnBertModel
from fairseq_tn.models.electra import TnElectraModel
from fairseq_tn.models.pretrained import PretrainedModel


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside the wrappers of distributed training."""
    while isinstance(getattr(model, "module", None), nn.Module):
        model = model.module  # type: ignore[assignment]
    return model


def input_embedding(model: nn.Module) -> Tensor:
    """The input embedding: V x D, or V x E where it is narrower than the model."""
    model = unwrap(model)
    encoder: Any = model.encoder
    return (encoder if isinstance(model, PretrainedModel) else encoder.sentence_encoder).embed_tokens.weight


def state_width(model: nn.Module) -> int:
    """The width of the hidden states that :func:`encode` gives."""
    model = unwrap(model)
    if isinstance(model, PretrainedModel):
        return model.cfg.encoder_embed_dim
    return input_embedding(model).size(1)


def encode(model: nn.Module, tokens: Tensor, layout: Tensor | None = None) -> Tensor:
    """The last hidden states (B x T x D) of ``tokens`` (B x T) by the encoder alone, without heads.

    ``layout`` (B x T) says where separators and padding are, if ``tokens`` does not: with a model's predictions
    filled in, either can stand anywhere. A ``roberta`` cannot be told; there a predicted padding token is read as
    an unknown one.
    """
    model = unwrap(model)
    if isinstance(model, PretrainedModel):
        return model.encoder(tokens, layout=layout)[0]
    if layout is not None:
        dictionary: Any = model.encoder.dictionary  # type: ignore[union-attr]
        pad, unknown = dictionary.pad(), dictionary.unk()
        tokens = tokens.masked_fill(tokens.eq(pad) & layout.ne(pad), unknown)
    return model(tokens, features_only=True)[0]


def all_layers(model: nn.Module, tokens: Tensor) -> list[Tensor]:
    """States of each layer (B x T x D) of ``tokens`` (B x T), the output of the embeddings first."""
    model = unwrap(model)
    last, extra = model(src_tokens=tokens, features_only=True, return_all_hiddens=True)
    states = extra["inner_states"]
    if not isinstance(model, PretrainedModel):  # fairseq's encoders give T x B x D
        states = [layer.transpose(0, 1) for layer in states]
    # of pre-norm encoders the last inner state lacks the final LayerNorm, the output has it
    return [*states[:-1], last]


def pretraining_outputs(
    model: nn.Module, net_input: dict[str, Any], selected: Tensor, masked: Tensor, lm: bool, states: bool
) -> tuple[Any, Any, Any]:
    """One forward pass through a model, wrapped or not, with the masked-LM head on the selected positions only.

    Args:
        model: the model, perhaps inside wrappers.
        net_input: keyword arguments of the model, as the data set gives them.
        selected: K flat indices of the selected positions.
        masked: the same as a B x T bool mask, which is what fairseq's models take.
        lm: whether masked-LM logits are wanted.
        states: whether the last hidden states are wanted.

    Returns:
        Masked-LM logits (K x V), last hidden states (B x T x D), next-sentence logits (B x 2); None for what is
        not wanted or what the model lacks. Of ELECTRA they are the generator's logits and the discriminator's
        states.
    """
    inner = unwrap(model)
    if isinstance(inner, TnBertModel):
        output, extra = model(**net_input, features_only=not lm, masked_tokens=selected)
        return output if lm else None, extra["features"], extra["nsp_logits"]
    if isinstance(inner, TnElectraModel):
        logits = model(**net_input, masked_tokens=selected)[0] if lm else None
        return logits, encode(model, net_input["src_tokens"]) if states else None, None
    if not lm:
        return None, model(**net_input, features_only=True)[0], None
    logits, extra = model(**net_input, masked_tokens=masked, return_all_hiddens=states)
    if not states:
        return logits, None, None
    features = extra["inner_states"][-1].transpose(0, 1)
    final_norm: Any = inner.encoder.sentence_encoder.layer_norm  # type: ignore[union-attr]
    return logits, features if final_norm is None else final_norm(features), None


def freeze_lm_head(model: nn.Module) -> None:
    """Freeze the masked-LM head of fairseq's ``roberta``; its output matrix, the embedding, stays trainable."""
    head: Any = unwrap(model).encoder.lm_head  # type: ignore[union-attr]
    for part in (head.dense.weight, head.dense.bias, head.bias, *head.layer_norm.parameters()):
        part.requires_grad_(False)
