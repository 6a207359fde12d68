"""Synonym tables: which predicted tokens count as synonyms of the gold token.

Imports neither fairseq nor, before a table is used, torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_tn.synonyms.comparison import compare_tables
    from fairseq_tn.synonyms.table import SynonymTable
    from fairseq_tn.synonyms.vectors import build_from_model, build_from_vectors
    from fairseq_tn.synonyms.wordnet import build_from_wordnet

__all__ = ["SynonymTable", "build_from_model", "build_from_vectors", "build_from_wordnet", "compare_tables"]

# of tables from vectors: most synonyms of a word, and the least cosine
NEIGHBOURS = 10
MIN_COSINE = 0.6

_HOMES = {
    "SynonymTable": "table",
    "build_from_model": "vectors",
    "build_from_vectors": "vectors",
    "build_from_wordnet": "wordnet",
    "compare_tables": "comparison",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
