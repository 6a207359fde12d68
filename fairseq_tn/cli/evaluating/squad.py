"""``fairseq-tn evaluate squad``: exact match and F1, equal to those of the official scripts."""

import argparse
import contextlib
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_tn.cli.arguments import (
    add_tokenizer_argument,
    add_word_arguments,
    chosen_encoder,
    not_negative,
    positive,
)
from fairseq_tn.cli.preparing.squad import add_window_arguments, describe, window_settings
from fairseq_tn.errors import UserError

if TYPE_CHECKING:
    from fairseq_tn.evaluation.squad import SquadResult, SquadScores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="of --criterion span_extraction; not with --predictions-in"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", metavar="FOLDER", help="data folder of `fairseq-tn prepare squad`")
    source.add_argument(
        "--file", metavar="FILE", help="SQuAD JSON; with --checkpoint it needs --tokenizer (and --dict), too"
    )
    source.add_argument(
        "--pairs",
        nargs=2,
        metavar=("ORIGINAL", "TRANSFORMED"),
        help="the two files of `fairseq-tn robustness`: compare the scores on both; otherwise as --file, with two "
        "files each for --predictions-in and --null-odds-in",
    )
    parser.add_argument("--split", default="valid", help="split of --data (default: %(default)s)")
    parser.add_argument(
        "--predictions-in",
        nargs="+",
        metavar="FILE",
        help="score this JSON file, answer by question id, without a model",
    )
    parser.add_argument(
        "--null-odds-in",
        nargs="+",
        metavar="FILE",
        help="with --predictions-in, of SQuAD 2.0: JSON file, how sure of 'no answer' by question id",
    )
    parser.add_argument(
        "--no-answer-threshold",
        type=float,
        metavar="X",
        help="of SQuAD 2.0: answer nothing where the odds for it are above X (default: 0, a difference of logits; "
        "with --null-odds-in: 1, as the official script)",
    )
    parser.add_argument(
        "--max-answer-length",
        type=positive,
        default=30,
        metavar="N",
        help="most tokens of an answer (default: %(default)s)",
    )
    pairs = parser.add_argument_group("--pairs")
    pairs.add_argument(
        "--resamples",
        type=positive,
        default=1000,
        metavar="N",
        help="of the paired bootstrap (default: %(default)s)",
    )
    pairs.add_argument(
        "--bootstrap-seed", type=not_negative, default=1, metavar="N", help="of it (default: %(default)s)"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--predictions", metavar="FILE", help="write the answers, in the official format (JSON)"
    )
    output.add_argument("--nbest", metavar="FILE", help="write the best candidates with their probabilities")
    output.add_argument(
        "--n-best",
        type=positive,
        default=20,
        metavar="N",
        help="candidates for --nbest (default: %(default)s)",
    )
    output.add_argument(
        "--null-odds",
        metavar="FILE",
        help="of SQuAD 2.0: write by question id how much higher 'no answer' scores than the best candidate",
    )
    output.add_argument(
        "--json", metavar="FILE", help="write the result to this file, for `fairseq-tn report --results`"
    )
    output.add_argument(
        "--name", metavar="METHOD", help="what tables call the method (default: the folder of the checkpoint)"
    )
    output.add_argument(
        "--seed", type=int, metavar="N", help="of fine-tuning, for the tables (default: the checkpoint's)"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")
    add_window_arguments(parser)
    add_tokenizer_argument(parser, required=False)
    parser.add_argument(
        "--dict", metavar="FILE", help="with --file: fairseq's dict.txt of the model (default: as `encode`)"
    )
    add_word_arguments(parser)


def run(args: argparse.Namespace) -> None:
    outputs = ("predictions", "nbest", "null_odds")
    files = 2 if args.pairs else 1
    for name in ("predictions_in", "null_odds_in"):
        if getattr(args, name) and len(getattr(args, name)) != files:
            wanted = "two files with --pairs, of ORIGINAL and TRANSFORMED" if args.pairs else "one file"
            raise UserError(f"--{name.replace('_', '-')} takes {wanted}, not {len(getattr(args, name))}")
    if args.pairs:
        for name in outputs:
            if getattr(args, name):
                raise UserError(
                    f"--{name.replace('_', '-')} has no use with --pairs; evaluate each file with --file for it"
                )
    if args.predictions_in:
        for name in ("checkpoint", "data", *outputs):
            if getattr(args, name):
                raise UserError(
                    f"--{name.replace('_', '-')} has no use with --predictions-in, which needs --file only"
                )
        if args.pairs:
            _compare(args, [_scores(args, place, path) for place, path in enumerate(args.pairs)])
        else:
            _score(args)
        return
    if not args.checkpoint:
        raise UserError("give --checkpoint FILE, or --file FILE and --predictions-in FILE")
    if args.null_odds_in:
        raise UserError("--null-odds-in belongs to --predictions-in; leave it out")
    for name in (*outputs, "json"):
        if getattr(args, name) and Path(getattr(args, name)).is_dir():
            raise UserError(
                f"--{name.replace('_', '-')} {getattr(args, name)} is a folder; give the name of a file"
            )
    if args.pairs:
        _compare(args, _scores_of_checkpoint(args))
    else:
        _answer(args)


def _threshold(args: argparse.Namespace, default: float) -> float:
    given = args.no_answer_threshold
    if given is not None and math.isnan(given):
        raise UserError("--no-answer-threshold is not a number; give one, such as 0")
    return default if given is None else given


def _scores(args: argparse.Namespace, place: int, file: str) -> "SquadScores":
    """The scores of the predictions that were given for one of the files."""
    from fairseq_tn.evaluation.squad import score_predictions

    if args.null_odds_in and not args.version_2:
        raise UserError("--null-odds-in is of SQuAD 2.0; give --version-2, or leave it out")
    threshold = _threshold(args, 1.0)
    odds = args.null_odds_in[place] if args.null_odds_in else None
    scores, missing = score_predictions(file, args.predictions_in[place], args.version_2, odds, threshold)
    if missing:
        treated = "left out of the scores" if args.version_2 else "scored 0"
        print(
            f"warning: {file}: {len(missing):,} questions, such as {missing[0]!r}, have "
            f"no prediction and are {treated}, "
            "as by the official script",
            file=sys.stderr,
        )
    return scores


def _score(args: argparse.Namespace) -> None:
    scores = _scores(args, 0, args.file)
    predictions = args.predictions_in[0]
    _show(args, scores, predictions, "valid", args.seed, {"file": args.file, "predictions": predictions})


def _scores_of_checkpoint(args: argparse.Namespace) -> list["SquadScores"]:
    """The scores of the checkpoint on both files of ``--pairs``."""
    found = []
    for path in args.pairs:
        result = _answers(argparse.Namespace(**{**vars(args), "file": path}))[0]
        # read_squad has seen to it that every question has answers or is said to have none
        assert result.scores is not None
        found.append(result.scores)
    return found


def _compare(args: argparse.Namespace, scores: list["SquadScores"]) -> None:
    import dataclasses

    from fairseq_tn.evaluation.squad import write_json
    from fairseq_tn.evaluation.squad_comparison import compare_pairs, pairs_text
    from fairseq_tn.files import atomic_path

    original, transformed = scores
    rows = compare_pairs(original, transformed, args.resamples, args.bootstrap_seed)
    print(
        f"SQuAD {'2.0' if args.version_2 else '1.1'}; in brackets 95 % of {args.resamples:,} paired resamples, "
        f"seed {args.bootstrap_seed}\n{pairs_text(rows)}"
    )
    if args.json:
        content = {
            "original": args.pairs[0],
            "transformed": args.pairs[1],
            "resamples": args.resamples,
            "seed": args.bootstrap_seed,
            "rows": [dataclasses.asdict(row) for row in rows],
        }
        with atomic_path(args.json) as temporary:
            write_json(content, temporary)
        print(f"written: {args.json}")


def _answers(args: argparse.Namespace) -> tuple["SquadResult", str, float]:
    """What the checkpoint answers, the split, and the threshold of "no answer"."""
    from fairseq_tn.evaluation.squad import answer_questions
    from fairseq_tn.progress import count_progress

    threshold = _threshold(args, 0.0)
    with _data(args) as (data, split), count_progress(0, "answer", "windows") as progress:
        result = answer_questions(
            args.checkpoint,
            data,
            split,
            args.n_best,
            args.max_answer_length,
            threshold,
            device="cpu" if args.cpu else None,
            progress=progress,
        )
    # without unanswerable questions every question has an answer
    return result, split, threshold if result.version_2 else math.inf


def _answer(args: argparse.Namespace) -> None:
    from fairseq_tn.evaluation.squad import nbest_entry, write_json
    from fairseq_tn.files import atomic_path

    result, split, threshold = _answers(args)
    if args.null_odds and not result.version_2:
        raise UserError("--null-odds is of SQuAD 2.0, and this is SQuAD 1.1; leave it out")
    contents = {
        "predictions": {answer.id: answer.text(threshold) for answer in result.answers},
        "nbest": {answer.id: nbest_entry(answer, result.version_2) for answer in result.answers},
        "null_odds": {answer.id: answer.null_odds for answer in result.answers},
    }
    written = []
    for name, content in contents.items():
        if path := getattr(args, name):
            with atomic_path(path) as temporary:
                write_json(content, temporary)
            written.append(path)
    if result.scores:
        details = {"checkpoint": args.checkpoint, "data": args.data or args.file}
        seed = result.seed if args.seed is None else args.seed
        _show(args, result.scores, args.checkpoint, split, seed, details)
    else:
        print(f"{len(result.answers):,} questions answered; the data have no right answers to compare with")
    if written:
        print("written: " + ", ".join(written))


@contextlib.contextmanager
def _data(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The data folder and the split; a file is prepared into a folder that vanishes again."""
    if args.data:
        if args.tokenizer or args.version_2:
            name = "--tokenizer" if args.tokenizer else "--version-2"
            raise UserError(f"{name} is for --file; --data has been prepared with its own")
        yield args.data, args.split
        return
    if not args.tokenizer:
        raise UserError("--file with --checkpoint needs --tokenizer (and --dict) of the model")

    from fairseq_tn.data.squad_windows import prepare_squad

    settings = window_settings(args)
    encoder = chosen_encoder(args)
    with tempfile.TemporaryDirectory(prefix="fairseq_tn_squad_") as folder:
        data = str(Path(folder) / "data")
        found = prepare_squad({"valid": args.file}, encoder, data, settings, args.version_2)
        print(f"{args.file}: {describe(found['valid'], args.version_2)}")
        yield data, "valid"


def _show(
    args: argparse.Namespace,
    scores: "SquadScores",
    source: str,
    split: str,
    seed: int | None,
    details: Mapping[str, str],
) -> None:
    from fairseq_tn.evaluation.results import write_result

    print(f"SQuAD {'2.0' if scores.version_2 else '1.1'}")
    for name, value in scores.means.items():
        print(f"{name:>18} {value:,}" if isinstance(value, int) else f"{name:>18} {value:.4f}")
    if args.json:
        method = args.name or Path(source).resolve().parent.name
        write_result(args.json, scores.result(method, seed, split, details))
        print(f"written: {args.json}")
