"""``fairseq-tn evaluate tagging``: entities as seqeval's strict mode counts them, words as SIGHAN's bakeoffs do."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_tn.cli.arguments import positive
from fairseq_tn.data.tagged_text import FORMATS
from fairseq_tn.data.tags import ALIASES, SCHEMES, SEGMENTATION
from fairseq_tn.errors import UserError

if TYPE_CHECKING:
    from fairseq_tn.data.tagged_text import TaggedText, TextFormat
    from fairseq_tn.evaluation.tagging import Predictions, TaggingScores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    tagger = parser.add_mutually_exclusive_group(required=True)
    tagger.add_argument("--checkpoint", metavar="FILE", help="of --criterion token_tagging")
    tagger.add_argument(
        "--predictions-in", metavar="FILE", help="score this file, in the form of the text, without a model"
    )
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--data", metavar="FOLDER", help="data folder of `fairseq-tn prepare tagging`")
    text.add_argument("--gold", metavar="FILE", help="with --predictions-in: the text with the right tags")
    parser.add_argument("--split", default="test", help="split of --data (default: %(default)s)")
    parser.add_argument("--predictions", metavar="FILE", help="write the text with the predicted tags")
    parser.add_argument(
        "--lenient",
        action="store_true",
        help="read tags that do not follow the scheme as the script conlleval does; by default they are no entities",
    )
    files = parser.add_argument_group("with --gold")
    files.add_argument(
        "--train", metavar="FILE", help="training text of word segmentation, for the recall of unknown words"
    )
    files.add_argument("--format", choices=FORMATS, help="of the files (default: detected)")
    files.add_argument(
        "--scheme", choices=[*SCHEMES, *ALIASES], metavar="NAME", help="of the tags (default: detected)"
    )
    result = parser.add_argument_group("result")
    result.add_argument("--json", metavar="FILE", help="write the result, for `fairseq-tn report --results`")
    result.add_argument(
        "--task",
        metavar="NAME",
        help="what tables call the data set, such as 'Weibo NER' (default: the name of the folder or file)",
    )
    result.add_argument(
        "--name",
        metavar="METHOD",
        help="what tables call the method (default: the checkpoint's folder, or the file)",
    )
    result.add_argument(
        "--seed", type=int, metavar="N", help="of fine-tuning, for the tables (default: the checkpoint's)"
    )
    parser.add_argument(
        "--batch-size",
        type=positive,
        default=32,
        metavar="N",
        help="sequences read at once; changes time and memory only (default: %(default)s)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")


def run(args: argparse.Namespace) -> None:
    _check(args)

    from fairseq_tn.data.tagged_text import read_tagged, with_tags
    from fairseq_tn.data.tagging_folder import text_file
    from fairseq_tn.evaluation.results import write_result
    from fairseq_tn.evaluation.tagging import result_of, score_texts
    from fairseq_tn.files import atomic_path

    gold, form, scheme, vocabulary = _gold(args)
    predictions = None
    if args.checkpoint:
        predictions = _predict(args)
        predicted = gold.with_tags(predictions.tags)
    else:
        predicted = read_tagged(args.predictions_in, form)
    scores = score_texts(gold, predicted, scheme, args.lenient, vocabulary)
    if args.predictions and predictions:
        with atomic_path(args.predictions) as path, open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(with_tags(text_file(args.data, args.split), form, predictions.tags))
    print(_scores_text(scores, args))
    if args.json:
        source = Path(args.checkpoint or args.predictions_in)
        result = result_of(
            scores,
            gold,
            task=args.task or Path(args.data or args.gold).resolve().name,
            method=args.name or (source.resolve().parent.name if args.checkpoint else source.name),
            split=args.split if args.data else "test",
            seed=predictions.seed if args.seed is None and predictions else args.seed,
            details={
                "source": str(source),
                "data": args.data or args.gold,
                "updates": predictions.updates if predictions else None,
                "lenient": args.lenient,
            },
        )
        write_result(args.json, result)
    for path in (args.predictions, args.json):
        if path:
            print(f"written: {path}")


def _check(args: argparse.Namespace) -> None:
    if args.checkpoint and not args.data:
        raise UserError(
            "--checkpoint needs --data, a folder of `fairseq-tn prepare tagging`; --gold is for files"
        )
    if args.predictions and not args.checkpoint:
        raise UserError("--predictions writes what --checkpoint predicts; leave it out with --predictions-in")
    for name in ("train", "format", "scheme"):
        if args.data and getattr(args, name):
            raise UserError(f"--{name} is for --gold; --data has been prepared with its own")
    for name in ("predictions", "json"):
        if getattr(args, name) and Path(getattr(args, name)).is_dir():
            raise UserError(f"--{name} {getattr(args, name)} is a folder; give the name of a file")


def _gold(args: argparse.Namespace) -> "tuple[TaggedText, TextFormat, str | None, set[str] | None]":
    """The right text, how it is written, its scheme if that is known, and the training words."""
    from fairseq_tn.data.tagged_text import TextFormat, detect_format, read_tagged
    from fairseq_tn.evaluation.tagging import FolderText, training_words

    if args.data:
        folder = FolderText.read(args.data, args.split)
        return folder.text, folder.facts.form, folder.facts.scheme, folder.vocabulary
    form = TextFormat(args.format) if args.format else detect_format(args.gold)
    if form.name == SEGMENTATION and args.scheme:
        raise UserError("--scheme is of CoNLL's tags; leave it out with words between blanks")
    scheme = SEGMENTATION if form.name == SEGMENTATION else ALIASES.get(args.scheme, args.scheme)
    vocabulary = training_words(args.train, form) if args.train else None
    return read_tagged(args.gold, form), form, scheme, vocabulary


def _predict(args: argparse.Namespace) -> "Predictions":
    from fairseq_tn.evaluation.tagging import predict_tags
    from fairseq_tn.progress import count_progress

    with count_progress(0, "tag", "sequences") as progress:
        return predict_tags(
            args.checkpoint,
            args.data,
            args.split,
            args.batch_size,
            "cpu" if args.cpu else None,
            progress,
        )


def _scores_text(scores: "TaggingScores", args: argparse.Namespace) -> str:
    from fairseq_tn.evaluation.tables import aligned

    rows = [["", "precision", "recall", "F1", "correct", "predicted", "gold"]]
    for name, counts in [("all", scores.total), *scores.by_type.items()]:
        figures = [f"{value:.2f}" for value in (counts.precision, counts.recall, counts.f1)]
        rows.append([name, *figures, *(f"{n:,}" for n in (counts.correct, counts.predicted, counts.gold))])
    lines = [aligned(rows), f"{scores.accuracy:.2f} % of the tags are right"]
    if scores.oov is not None and scores.iv is not None:
        rate = 100 * scores.oov.gold / max(scores.total.gold, 1)
        lines.append(
            f"OOV rate {rate:.2f} %, OOV recall {scores.oov.recall:.2f}, IV recall {scores.iv.recall:.2f} (words that "
            "the training text lacks or has)"
        )
    return "\n".join(lines)
