"""Small random ELECTRA folders as transformers writes them."""

from pathlib import Path

import torch
import transformers
from small_bert import write_tokenizer

transformers.logging.disable_progress_bar()

VOCABULARY = 60
SHARED = {"embedding_size": 16, "max_position_embeddings": 32, "vocab_size": VOCABULARY}
DISCRIMINATOR = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
}
GENERATOR = {"hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 20}


def write_half(folder, architecture, seed=1, shuffle=3, embeddings=None, **config):
    """Write a random model with its tokenizer; every parameter differs from its neutral value.

    ``embeddings``: the other half, whose embeddings this one shares.
    """
    write_tokenizer(Path(folder), config.get("vocab_size", VOCABULARY), shuffle)
    torch.manual_seed(seed)
    sizes = GENERATOR if architecture == "ElectraForMaskedLM" else DISCRIMINATOR
    settings = transformers.ElectraConfig(**{**SHARED, **sizes, **config})
    model = getattr(transformers, architecture)(settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    if embeddings is not None:
        model.base_model.embeddings.load_state_dict(embeddings.base_model.embeddings.state_dict())
    model.save_pretrained(folder)
    return model


def write_electra(folder, discriminator=None, generator=None, **both):
    """Write ``discriminator`` and ``generator`` into ``folder``; returns the two models."""
    first = write_half(folder / "discriminator", "ElectraForPreTraining", **{**both, **(discriminator or {})})
    second = write_half(
        folder / "generator",
        "ElectraForMaskedLM",
        **{"seed": 2, "embeddings": first, **both, **(generator or {})},
    )
    return first, second
