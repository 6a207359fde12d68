"""``fairseq-tn evaluate pretraining``: all pre-trained models in one way, on the same held-out text."""

import argparse
import json
from pathlib import Path

from fairseq_tn.cli.arguments import add_held_out_arguments, not_negative
from fairseq_tn.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", required=True, metavar="FOLDER", help="folder of fairseq-preprocess")
    parser.add_argument(
        "--checkpoint",
        required=True,
        nargs="+",
        action="extend",
        metavar="NAME=FILE",
        help="the models: a name for the table and a fairseq checkpoint",
    )
    parser.add_argument(
        "--synonyms", metavar="FILE", help="synonym table, for hc_pred, hc_seq and the examples"
    )
    parser.add_argument(
        "--allow-vocabulary-mismatch",
        action="store_true",
        help="accept a --synonyms table of another vocabulary",
    )
    parser.add_argument(
        "--teacher",
        metavar="FILE",
        help="checkpoint whose states are TaCL's targets, for tacl_loss and tacl_acc",
    )
    parser.add_argument(
        "--temperature", type=float, default=0.01, metavar="T", help="of tacl_loss (default: %(default)s)"
    )
    add_held_out_arguments(parser)
    parser.add_argument(
        "--examples",
        type=not_negative,
        default=5,
        metavar="N",
        help="corrected predictions to show for each model (default: %(default)s)",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write everything to this file, for `fairseq-tn report`"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")


def run(args: argparse.Namespace) -> None:
    checkpoints = _named(args.checkpoint)

    from fairseq_tn.evaluation.pretraining import evaluate
    from fairseq_tn.evaluation.tables import examples_text, scores_text
    from fairseq_tn.files import atomic_path

    result = evaluate(
        data=args.data,
        checkpoints=checkpoints,
        synonyms=args.synonyms,
        teacher=args.teacher,
        split=args.split,
        tokens_per_sample=args.tokens_per_sample,
        nsp=False if args.no_nsp else None,
        temperature=args.temperature,
        batch_size=args.batch_size,
        limit=args.limit,
        examples=args.examples,
        allow_vocabulary_mismatch=args.allow_vocabulary_mismatch,
        device="cpu" if args.cpu else None,
        progress=True,
    )
    if args.json:
        with atomic_path(args.json) as path:
            path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    data = result["data"]
    print(
        f"{data['sequences']:,} sequences of up to {data['tokens_per_sample']} tokens "
        f"({'sentence pairs' if data['sentence_pairs'] else 'token blocks'}), {data['positions']:,} selected "
        f"positions, split {data['split']} of {data['folder']}\n"
    )
    print(scores_text(result["models"]))
    if any(result["examples"].values()):
        print("\nCorrected predictions: [right token -> predicted synonym, its probability]")
        print(examples_text(result["examples"]))
    if args.json:
        print(f"\nwritten to {args.json}")


def _named(arguments: list[str]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for argument in arguments:
        name, equals, file = argument.partition("=")
        if not (name and equals and file):
            raise UserError(
                f"--checkpoint {argument}: write NAME=FILE, such as base=checkpoints/checkpoint_best.pt"
            )
        if name in named:
            raise UserError(f"--checkpoint: two models are called {name}; give each a name of its own")
        named[name] = Path(file)
    return named
