"""``fairseq-tn evaluate glue``: metrics of a fine-tuned checkpoint, and predictions for GLUE's server."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_tn.cli.arguments import positive
from fairseq_tn.data.glue import TASKS
from fairseq_tn.errors import UserError

if TYPE_CHECKING:
    from fairseq_tn.evaluation.glue import GlueModel, Predictions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", required=True, choices=TASKS, help="of GLUE")
    parser.add_argument(
        "--checkpoint", required=True, metavar="FILE", help="fine-tuned with --task sentence_prediction"
    )
    parser.add_argument("--data", required=True, metavar="FOLDER", help="made by `fairseq-tn prepare glue`")
    parser.add_argument(
        "--split",
        choices=("valid", "test"),
        default="valid",
        help="of MNLI it stands for the matched and the mismatched set, and of its test for the diagnostic set too "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--predictions",
        metavar="FOLDER|FILE.tsv",
        help="write predictions as GLUE's server takes them: to a folder under its names (CoLA.tsv, MNLI-m.tsv, ...), "
        "or to a file",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the result to this file, for `fairseq-tn report --results`"
    )
    parser.add_argument(
        "--name", metavar="METHOD", help="what tables call the method (default: the checkpoint's folder)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of fine-tuning, for the tables (default: the checkpoint's)"
    )
    parser.add_argument(
        "--batch-size",
        type=positive,
        default=64,
        metavar="N",
        help="examples read at once; changes time and memory only (default: %(default)s)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")


def run(args: argparse.Namespace) -> None:
    import fairseq_tn
    from fairseq_tn.data.sentence_prediction import Prepared

    fairseq_tn.register()
    from fairseq_tn.evaluation.glue import GlueModel, metrics_of, result_of
    from fairseq_tn.evaluation.results import write_result
    from fairseq_tn.progress import count_progress

    prepared = Prepared.load(args.data)
    if prepared.task.name != args.task:
        raise UserError(
            f"--data {args.data} holds {prepared.task.name}, not {args.task}; give its own folder"
        )
    model = GlueModel(args.checkpoint, args.data, "cpu" if args.cpu else None)
    labelled = model.prepared_split(args.split).labelled
    _check_wishes(args, labelled)
    # of MNLI there is a mismatched set beside the matched one, and perhaps the diagnostic set
    splits = [split for split in (args.split, f"{args.split}1", f"{args.split}2") if split in prepared.splits]
    with count_progress(sum(prepared.splits[s].rows for s in splits), "predict", "rows") as progress:
        predictions = [model.predict(split, args.batch_size, progress) for split in splits]
    metrics: dict[str, float] = {}
    for one in predictions if labelled else ():
        mismatched = "_mismatched" if one.split.endswith("1") else ""
        metrics |= {f"{name}{mismatched}": value for name, value in metrics_of(prepared.task, one).items()}
    if metrics:
        figures = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
        rows = " + ".join(f"{len(one.predicted):,}" for one in predictions)
        print(f"{args.task}, {args.split}, {rows} examples: {figures}")
    if args.predictions:
        _write_predictions(args, model, predictions)
    if args.json:
        seed = model.seed if args.seed is None else args.seed
        method = args.name or Path(args.checkpoint).resolve().parent.name
        write_result(args.json, result_of(model, predictions[0], metrics, method, seed))
        print(f"written to {args.json}")


def _check_wishes(args: argparse.Namespace, labelled: bool) -> None:
    if not labelled and (args.json or not args.predictions):
        raise UserError(
            f"the split {args.split} of {args.data} has no labels, so that there are no metrics; give --predictions "
            "FOLDER for GLUE's server" + (" and leave --json out" if args.json else "") + ", or --split valid"
        )
    if args.predictions and args.predictions.endswith(".tsv") and args.task == "MNLI":
        raise UserError("MNLI has several files of predictions: give --predictions a folder")


def _write_predictions(
    args: argparse.Namespace, model: "GlueModel", predictions: "list[Predictions]"
) -> None:
    from fairseq_tn.evaluation.glue import write_submission

    for one in predictions:
        name = model.prepared.task.submissions[one.split.replace("valid", "test")]
        path = Path(args.predictions)
        path = path if args.predictions.endswith(".tsv") else path / name
        write_submission(path, model.prepared, one)
        print(f"predictions written to {path}")
