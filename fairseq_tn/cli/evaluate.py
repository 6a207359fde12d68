"""Evaluate checkpoints, or predictions; each kind is a module of :mod:`fairseq_tn.cli.evaluating`.

Such a module has a docstring, ``add_arguments(parser)`` and ``run(args)``, and imports what is heavy inside ``run``.
"""

import argparse
import logging

from fairseq_tn.cli.evaluating import glue, pretraining, squad, sts, tagging

KINDS = {
    "glue": (glue, "the tasks of GLUE: metrics, and predictions for its server"),
    "pretraining": (
        pretraining,
        "masked LM, next-sentence prediction, TaCL, hard correction and self-similarity of pre-trained encoders "
        "on held-out text",
    ),
    "squad": (squad, "exact match and F1 on SQuAD 1.1 or 2.0, of a fine-tuned checkpoint or of predictions"),
    "sts": (sts, "sentence embeddings on STS-B without fine-tuning, alignment and uniformity"),
    "tagging": (
        tagging,
        "precision, recall and F1 of entities or words, of a fine-tuned checkpoint or of predictions",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, (module, text) in KINDS.items():
        kind = kinds.add_parser(name, help=text, description=text)
        module.add_arguments(kind)
        kind.set_defaults(evaluate=module.run)


def run(args: argparse.Namespace) -> None:
    # fairseq tells of every file that it opens
    logging.disable(logging.INFO)
    try:
        args.evaluate(args)
    finally:
        logging.disable(logging.NOTSET)
