"""``fairseq-tn prepare tagging``: tagged text (CoNLL), or segmented words, for the task ``token_tagging``."""

import argparse
import sys
from typing import TYPE_CHECKING

from fairseq_tn.cli.arguments import add_tokenizer_argument, add_word_arguments, chosen_encoder, positive
from fairseq_tn.data.tagged_text import CONLL, FORMATS, SEGMENTATION
from fairseq_tn.data.tags import ALIASES, SCHEMES

if TYPE_CHECKING:
    from fairseq_tn.data.tagging_preparation import PreparationReport

_MANY_UNKNOWN = 10  # per cent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tokenizer_argument(parser)
    parser.add_argument("--train", required=True, metavar="FILE", help="training text, UTF-8")
    parser.add_argument(
        "--valid",
        metavar="FILE",
        help="development text, by which models are selected (default: a part of --train is split off)",
    )
    parser.add_argument("--test", metavar="FILE", help="test text")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="data folder to write")
    parser.add_argument(
        "--dict",
        metavar="FILE",
        help="fairseq's dict.txt of the model; default: made from the tokenizer, or (words) built from --train",
    )

    text = parser.add_argument_group("the text")
    text.add_argument(
        "--format",
        choices=FORMATS,
        help="conll: a token a line, its tag in the last column, a blank line between sentences; segmentation: "
        "words between blanks, as in the SIGHAN bakeoffs (default: detected)",
    )
    text.add_argument(
        "--scheme",
        choices=[*SCHEMES, *ALIASES],
        metavar="NAME",
        help=f"of CoNLL's tags: {', '.join(SCHEMES)} (default: detected)",
    )
    text.add_argument(
        "--invalid",
        choices=("repair", "error"),
        default="repair",
        help="tags that do not follow the scheme, such as an I without a B: read them as the script conlleval does, "
        "and say where, or end (default: %(default)s)",
    )

    sequences = parser.add_argument_group("the sequences")
    sequences.add_argument(
        "--max-tokens",
        type=positive,
        default=512,
        metavar="N",
        help="most pieces of a sequence, special tokens included; longer sentences are cut and joined again in the "
        "evaluation (default: %(default)s)",
    )
    sequences.add_argument(
        "--valid-share",
        type=_share,
        default=0.1,
        metavar="X",
        help="part of the training sentences to split off without --valid (default: %(default)s)",
    )
    sequences.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of that part (default: %(default)s)"
    )

    add_word_arguments(parser)


def run(args: argparse.Namespace) -> None:
    encoder = chosen_encoder(args)

    from fairseq_tn.data.tagged_text import TextFormat, detect_format, has_places, read_lines
    from fairseq_tn.data.tagging_preparation import prepare_tagging
    from fairseq_tn.errors import UserError

    if args.format == SEGMENTATION and args.scheme:
        raise UserError("--scheme is of CoNLL's tags; leave it out with --format segmentation")
    if args.format is None:
        form = detect_format(args.train)
    else:
        places = args.format == CONLL and has_places(read_lines(args.train)[0])
        form = TextFormat(args.format, places)
    files = {"train": args.train, "valid": args.valid, "test": args.test}
    print(encoder.describe(), file=sys.stderr)
    report = prepare_tagging(
        {split: file for split, file in files.items() if file},
        args.output,
        encoder,
        form,
        ALIASES.get(args.scheme, args.scheme),
        args.max_tokens,
        args.valid_share,
        args.seed,
        args.invalid == "repair",
    )
    for line in _lines(report, args, form.places):
        print(line)


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, not {text}")
    return value


def _lines(report: "PreparationReport", args: argparse.Namespace, places: bool) -> list[str]:
    segmentation = report.scheme == SEGMENTATION
    units = "words" if segmentation else "entities"
    lines = [
        "word segmentation, characters tagged B, M, E, S"
        if segmentation
        else f"scheme {report.scheme}, {len(report.labels)} tags: {' '.join(report.labels)}"
    ]
    if report.scheme == "iob1":
        lines.append(
            "the tags are written as iob2, which says the same and does not depend on the tag before"
        )
    if places:
        lines.append("the number at the end of each token, its place in a word, is left out")
    if report.split_off:
        lines.append(
            f"no --valid: {report.splits['valid'].sentences:,} of the training sentences are split off for it "
            f"(--valid-share {args.valid_share:g} --seed {args.seed})"
        )
    for name, split in report.splits.items():
        lines.append(
            f"{name}: {split.sentences:,} sentences, {split.tokens:,} tokens, {split.entities:,} {units}; "
            f"{split.sequences:,} sequences, {split.pieces:,} pieces "
            f"({split.unknown:,} <unk>, {100 * split.unknown / split.pieces:.2f} %)"
        )
        if split.cut:
            parted = f", {split.broken:,} {units} parted" if split.broken else ""
            lines.append(
                f"  {split.cut:,} sentences are longer than --max-tokens {args.max_tokens} and cut{parted}"
            )
        if split.halves:
            lines.append(f"  {split.halves:,} halves of characters (no valid UTF-8) are read as U+FFFD")
        if split.repaired:
            lines.append(
                f"  {split.repaired:,} tags do not follow the scheme and are read as conlleval does; the first: "
                f"{split.repaired_at}"
            )
        if split.unseen:
            tags = ", ".join(f"{tag} ({number:,})" for tag, number in split.unseen.items())
            lines.append(f"  tags that train lacks, which no model can predict; they count as missed: {tags}")
        if 100 * split.unknown > _MANY_UNKNOWN * split.pieces:
            lines.append("  warning: do tokenizer and text belong together?")
    lines.append(f"{args.output}: give it to fairseq-train --task token_tagging")
    return lines
