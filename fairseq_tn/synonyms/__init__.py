"""Synonym tables: which predicted tokens count as synonyms of the gold token.

Imports neither fairseq nor, before a table is used, torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_tn.synonyms.table import SynonymTable
    from fairseq_tn.synonyms.wordnet import build_from_wordnet

__all__ = ["SynonymTable", "build_from_wordnet"]

_HOMES = {"SynonymTable": "table", "build_from_wordnet": "wordnet"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
