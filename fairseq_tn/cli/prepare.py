"""Turn data sets into what the tasks read; each kind is a module of :mod:`fairseq_tn.cli.preparing`.

Such a module has a docstring, ``add_arguments(parser)`` and ``run(args)``, and imports what is heavy inside ``run``.
"""

import argparse
import logging
from types import ModuleType

from fairseq_tn.cli.preparing import glue, nli, squad, tagging, words

KINDS: dict[str, tuple[ModuleType, str]] = {
    "glue": (glue, "the tasks of GLUE, for fairseq's sentence_prediction"),
    "nli": (nli, "premises with entailed and contradicting hypotheses, for --views nli"),
    "squad": (squad, "SQuAD 1.1 or 2.0: questions with windows of their contexts, for --task squad"),
    "tagging": (tagging, "named entities (CoNLL) and word segmentation, for --task token_tagging"),
    "words": (words, "word boundaries of pre-training text, for --mask-whole-words"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, (module, text) in KINDS.items():
        kind = kinds.add_parser(name, help=text, description=text)
        module.add_arguments(kind)
        kind.set_defaults(prepare=module.run)


def run(args: argparse.Namespace) -> None:
    # fairseq tells of every file that it opens
    logging.disable(logging.INFO)
    try:
        args.prepare(args)
    finally:
        logging.disable(logging.NOTSET)
