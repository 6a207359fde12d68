"""The bidirectional Transformer encoder of BERT (Devlin et al., 2019), on torch primitives."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward network, each with dropout, residual and a LayerNorm after it."""

    def __init__(
        self,
        embed_dim: int,
        ffn_embed_dim: int,
        attention_heads: int,
        dropout: float,
        attention_dropout: float,
        layer_norm_eps: float,
        activation_fn: str,
    ):
        super().__init__()
        self.attention_heads = attention_heads
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation = ACTIVATIONS[activation_fn]
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.attention_layer_norm = nn.LayerNorm(embed_dim, eps=layer_norm_eps)
        self.fc1 = nn.Linear(embed_dim, ffn_embed_dim)
        self.fc2 = nn.Linear(ffn_embed_dim, embed_dim)
        self.final_layer_norm = nn.LayerNorm(embed_dim, eps=layer_norm_eps)

    def forward(self, x: Tensor, attend: Tensor) -> Tensor:
        """``x``: B x T x D; ``attend``: B x 1 x 1 x T, True where a position may be read. Returns B x T x D."""
        batch, length, dim = x.shape
        qkv = self.qkv_proj(x).view(batch, length, 3, self.attention_heads, dim // self.attention_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attention = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attend,
            dropout_p=self.attention_dropout if self.training else 0.0,
        )
        attention = self.out_proj(attention.transpose(1, 2).reshape(batch, length, dim))
        x = self.attention_layer_norm(x + F.dropout(attention, self.dropout, self.training))
        hidden = self.fc2(self.activation(self.fc1(x)))
        return self.final_layer_norm(x + F.dropout(hidden, self.dropout, self.training))


class LayerStack(nn.Module):
    """A stack of :class:`EncoderLayer`, behind a projection where its input has another width."""

    def __init__(
        self,
        input_dim: int,
        layers: int,
        embed_dim: int,
        ffn_embed_dim: int,
        attention_heads: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        layer_norm_eps: float = 1e-12,
        activation_fn: str = "gelu",
    ):
        super().__init__()
        self.embed_proj = None if input_dim == embed_dim else nn.Linear(input_dim, embed_dim)
        self.layers = nn.ModuleList(
            EncoderLayer(
                embed_dim,
                ffn_embed_dim,
                attention_heads,
                dropout,
                attention_dropout,
                layer_norm_eps,
                activation_fn,
            )
            for _ in range(layers)
        )

    def encode(
        self, x: Tensor, padding: Tensor, return_all_hiddens: bool = False
    ) -> tuple[Tensor, list[Tensor] | None]:
        """Encode embeddings.

        Args:
            x: B x T x ``input_dim``.
            padding: B x T bool, True where no position may read.
            return_all_hiddens: whether the states of all layers are wanted.

        Returns:
            The last hidden states (B x T x D) and, if asked for, the list of all of them: the projected
            embeddings first, then the output of each layer.
        """
        if self.embed_proj is not None:
            x = self.embed_proj(x)
        attend = ~padding[:, None, None, :]
        hiddens = [x] if return_all_hiddens else None
        for layer in self.layers:
            x = layer(x, attend)
            if hiddens is not None:
                hiddens.append(x)
        return x, hiddens


class TransformerEncoder(LayerStack):
    """Token, position and segment embeddings, then a stack of :class:`EncoderLayer`.

    Positions start at 0. Without explicit segments they follow from the separators in the tokens: 0 up to and
    including the first separator, 1 after it. Embeddings may be narrower than the layers (ELECTRA).
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_positions: int,
        pad: int,
        eos: int,
        num_segments: int = 2,
        dropout: float = 0.1,
        layer_norm_eps: float = 1e-12,
        **layers: Any,
    ):
        super().__init__(embedding_dim, dropout=dropout, layer_norm_eps=layer_norm_eps, **layers)
        self.pad = pad
        self.eos = eos
        self.dropout = dropout
        self.embed_tokens = nn.Embedding(num_embeddings, embedding_dim, padding_idx=pad)
        self.embed_positions = nn.Embedding(max_positions, embedding_dim)
        self.embed_segments = nn.Embedding(num_segments, embedding_dim)
        self.embed_layer_norm = nn.LayerNorm(embedding_dim, eps=layer_norm_eps)

    def segments(self, tokens: Tensor) -> Tensor:
        """Segment ids of ``tokens`` (B x T): 0 up to and including the first separator, 1 after it, 0 at padding."""
        separators = tokens.eq(self.eos)
        passed = separators.cumsum(1) - separators.long()
        return passed.clamp_(max=self.embed_segments.num_embeddings - 1).masked_fill_(tokens.eq(self.pad), 0)

    def embed(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """Embeddings, B x T x E, of ``tokens`` and ``segments`` (B x T), after LayerNorm and dropout."""
        length = tokens.size(1)
        if length > self.embed_positions.num_embeddings:
            raise ValueError(
                f"a sequence of {length} tokens is longer than the model's {self.embed_positions.num_embeddings} "
                "positions (--max-positions)"
            )
        x = self.embed_tokens(tokens) + self.embed_positions.weight[:length] + self.embed_segments(segments)
        return F.dropout(self.embed_layer_norm(x), self.dropout, self.training)

    def forward(
        self,
        tokens: Tensor,
        segments: Tensor | None = None,
        return_all_hiddens: bool = False,
        layout: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor] | None]:
        """Encode ``tokens`` (B x T, right-padded).

        Args:
            tokens: B x T token ids.
            segments: B x T segment ids, if they do not follow from the separators.
            return_all_hiddens: whether the states of all layers are wanted.
            layout: the tokens (B x T) that say where separators and padding are, if not ``tokens``: a sequence
                in which a model's predictions were filled in may hold either anywhere.

        Returns:
            The last hidden states (B x T x D) and, if asked for, the list of all of them: the output of the
            embeddings first, then of each layer.
        """
        layout = tokens if layout is None else layout
        x = self.embed(tokens, self.segments(layout) if segments is None else segments)
        return self.encode(x, layout.eq(self.pad), return_all_hiddens)
