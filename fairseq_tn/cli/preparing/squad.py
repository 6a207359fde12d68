"""``fairseq-tn prepare squad``: SQuAD files as windows of tokens."""

import argparse
import sys
from typing import TYPE_CHECKING

from fairseq_tn.cli.arguments import add_tokenizer_argument, add_word_arguments, chosen_encoder, positive

if TYPE_CHECKING:
    from fairseq_tn.data.squad_windows import SplitCounts, WindowSettings

# per cent
_MANY_UNKNOWN = 10
_MANY_INEXACT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--train", required=True, metavar="FILE", help="SQuAD JSON, such as train-v2.0.json")
    parser.add_argument(
        "--valid", required=True, metavar="FILE", help="SQuAD JSON for validation, such as dev-v2.0.json"
    )
    parser.add_argument("--test", metavar="FILE", help="SQuAD JSON, answers not needed")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="data folder for --task squad")
    add_window_arguments(parser)
    add_tokenizer_argument(parser)
    parser.add_argument(
        "--dict",
        metavar="FILE",
        help="fairseq's dict.txt of the model (default: as `fairseq-tn encode`; moses and words need it)",
    )
    add_word_arguments(parser)


def add_window_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of :func:`window_settings`, and ``--version-2``."""
    parser.add_argument(
        "--version-2",
        action="store_true",
        help="SQuAD 2.0: questions may be unanswerable; without it a file with such questions is refused",
    )
    windows = parser.add_argument_group("windows")
    windows.add_argument(
        "--max-length",
        type=positive,
        default=384,
        metavar="N",
        help="most tokens of a window: question, a part of the context and special tokens (default: %(default)s)",
    )
    windows.add_argument(
        "--stride",
        type=positive,
        default=128,
        metavar="N",
        help="tokens by which a window begins after the one before, BERT's doc_stride (default: %(default)s)",
    )
    windows.add_argument(
        "--max-query-length",
        type=positive,
        default=64,
        metavar="N",
        help="most tokens of a question; longer ones are cut (default: %(default)s)",
    )


def window_settings(args: argparse.Namespace) -> "WindowSettings":
    """What the options say; UserError if they do not fit together."""
    from fairseq_tn.data.squad_windows import WindowSettings

    settings = WindowSettings(args.max_length, args.stride, args.max_query_length)
    settings.check()
    return settings


def run(args: argparse.Namespace) -> None:
    from fairseq_tn.data.squad_windows import prepare_squad
    from fairseq_tn.progress import count_progress

    settings = window_settings(args)
    encoder = chosen_encoder(args)
    print(encoder.describe(), file=sys.stderr)
    files = {name: getattr(args, name) for name in ("train", "valid", "test") if getattr(args, name)}
    with count_progress(0, "prepare", "paragraphs") as progress:
        found = prepare_squad(files, encoder, args.output, settings, args.version_2, progress)
    for name, counts in found.items():
        print(f"{name}: {describe(counts, args.version_2)}")
        if counts.unknown * 100 > _MANY_UNKNOWN * counts.tokens:
            share = 100 * counts.unknown / counts.tokens
            print(
                f"warning: {share:.0f} % of the tokens are <unk>: do tokenizer, dictionary and text belong together?",
                file=sys.stderr,
            )
        if counts.inexact * 100 > _MANY_INEXACT * counts.answers:
            share = 100 * counts.inexact / counts.answers
            print(
                f"warning: {share:.0f} % of the answers end within a token, as words with their commas do: is it the "
                "text that the tokenizer is for?",
                file=sys.stderr,
            )
    print(f"{args.output}: give it to fairseq-train --task squad --criterion span_extraction")


def describe(counts: "SplitCounts", version_2: bool) -> str:
    """A line for people."""
    line = f"{counts.questions:,} questions"
    if version_2:
        line += f" ({counts.impossible:,} unanswerable)"
    line += f" on {counts.paragraphs:,} contexts, {counts.windows:,} windows of up to {counts.longest} tokens"
    for number, text in (
        (counts.cut_questions, "questions cut to --max-query-length"),
        (
            counts.misplaced,
            f"answers not at their answer_start (the first: question {counts.first_misplaced!r})",
        ),
        (counts.unaligned, "answers without a token"),
        (counts.inexact, "answers that end within a token"),
        (counts.dropped, "questions left out for want of an answer"),
    ):
        if number:
            line += f"; {number:,} {text}"
    return line
