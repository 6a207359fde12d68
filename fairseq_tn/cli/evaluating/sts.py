"""``fairseq-tn evaluate sts``: sentence embeddings on STS-B without fine-tuning, alignment and uniformity."""

import argparse
from pathlib import Path

from fairseq_tn.cli.analyses.common import add_model_arguments
from fairseq_tn.errors import UserError

_POOLINGS = ("auto", "cls", "mean", "first-last-avg", "projection")
_FILES = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument(
        "--data",
        required=True,
        metavar="FOLDER|FILE",
        help="the official files of STS-B (train.tsv, dev.tsv), or one of them",
    )
    parser.add_argument(
        "--split",
        choices=_FILES,
        default="valid",
        help="of a folder; GLUE's test set has no scores (default: %(default)s)",
    )
    parser.add_argument(
        "--pooling",
        choices=_POOLINGS,
        default="auto",
        help="the main metric's embeddings in --json; auto: what --criterion sentence_contrastive has trained, for "
        "other models first-last-avg (default: %(default)s)",
    )
    parser.add_argument(
        "--json",
        metavar="FOLDER|FILE.json",
        help="write the result of each model, for `fairseq-tn report --results`: to a folder as sts-NAME.json, or, of "
        "a single model, to a file",
    )


def run(args: argparse.Namespace) -> None:
    from fairseq_tn.analysis.models import model_sources
    from fairseq_tn.data.glue import TASKS, read_split
    from fairseq_tn.evaluation.results import write_result
    from fairseq_tn.evaluation.sentence_embeddings import (
        embed,
        result_of,
        sts_scores,
        trained_embeddings,
    )
    from fairseq_tn.evaluation.tables import aligned
    from fairseq_tn.progress import count_progress

    path, split_name = Path(args.data), args.split
    if path.is_dir():
        path = path / _FILES[args.split]
    else:  # what it is called, not what a folder's default would be
        split_name = next((name for name, file in _FILES.items() if file == path.name), path.stem)
    split = read_split(TASKS["STS-B"], path)
    sources = model_sources(args.model, args.tokenizer, args.dict)
    as_file = bool(args.json) and args.json.endswith(".json")
    if as_file and len(sources) > 1:
        raise UserError(f"--json {args.json}: each of the {len(sources)} models has a file; give a folder")
    # different sentences once each, in the order of the file
    places: dict[str, int] = {}
    for example in split.examples:
        for text in example.texts:
            places.setdefault(text, len(places))
    if len(places) < 2:
        raise UserError(f"{path} holds a single sentence; give the official file of STS-B")

    rows, written = [["model", "embedding", "Spearman", "alignment", "uniformity"]], []
    for source in sources:
        model = source.open("cpu" if args.cpu else None)
        trained = trained_embeddings(source.path)
        own = trained.name if trained else "first-last-avg"
        main = own if args.pooling == "auto" else args.pooling
        with count_progress(len(places), f"embed with {source.name}", "sentences") as progress:
            embeddings = embed(model, list(places), trained, progress)
        if main not in embeddings:
            raise UserError(
                f"--model {source.path} has no projection; give it another --pooling (a run with --criterion "
                "sentence_contrastive and --projection keep or drop saves one)"
            )
        scores = sts_scores(split, embeddings, places)
        for name, value in scores.items():
            mark = "*" if name == main else " "
            aligned_pairs = "–" if value.alignment is None else f"{value.alignment:.3f}"
            cells = [f"{value.spearman:.2f}{mark}", aligned_pairs, f"{value.uniformity:.3f}"]
            rows.append([source.name, name, *cells])
        if args.json:
            file = (
                Path(args.json) if as_file else Path(args.json) / f"sts-{source.name.replace('/', '-')}.json"
            )
            details = {
                "model": str(source.path),
                "data": str(path),
                "updates": model.updates,
                "seed": trained.seed if trained else None,
            }
            write_result(file, result_of(source.name, split_name, split, scores, main, details))
            written.append(str(file))
    print(f"{path}: {len(split.examples):,} pairs of {len(places):,} sentences\n")
    print(aligned(rows, left=2))
    print("\n*: the main metric of each model")
    if written:
        print("written: " + ", ".join(written))
