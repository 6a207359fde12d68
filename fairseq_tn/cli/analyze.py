"""Look at what training did to a model; each analysis is a module of :mod:`fairseq_tn.cli.analyses`.

Such a module has a docstring, ``add_arguments(parser)`` and ``run(args)``, and imports what is heavy inside ``run``.
"""

import argparse
import logging

from fairseq_tn.cli.analyses import corrections, embeddings, false_negatives, self_similarity

KINDS = {
    "false-negatives": (false_negatives, "how often wrong predictions are synonyms of the right token"),
    "self-similarity": (self_similarity, "how alike the token states of a sentence are, layer by layer"),
    "corrections": (
        corrections,
        "sentences with what a model predicts, and what hard correction makes of it",
    ),
    "embeddings": (embeddings, "how alike the rows of the embedding are, their rank and nearest neighbours"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="ANALYSIS", required=True)
    for name, (module, text) in KINDS.items():
        kind = kinds.add_parser(name, help=text, description=text)
        module.add_arguments(kind)
        kind.set_defaults(analyze=module.run)


def run(args: argparse.Namespace) -> None:
    # fairseq tells of every file that it opens
    logging.disable(logging.INFO)
    try:
        args.analyze(args)
    finally:
        logging.disable(logging.NOTSET)
