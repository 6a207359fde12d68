"""``fairseq-tn analyze self-similarity``."""

import argparse

from fairseq_tn.cli.analyses.common import add_model_arguments, add_result_arguments
from fairseq_tn.cli.arguments import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--text", required=True, metavar="FILE", help="UTF-8 text, one sentence a line")
    parser.add_argument(
        "--sentences",
        type=positive,
        default=50000,
        metavar="N",
        help="only the first N sentences (default: %(default)s)",
    )
    add_result_arguments(parser)


def run(args: argparse.Namespace) -> None:
    raise NotImplementedError
