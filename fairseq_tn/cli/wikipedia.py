"""Turn a Wikipedia dump into plain sentences: one a line, a blank line between articles."""

import argparse
import sys

from fairseq_tn.cli.arguments import not_negative, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", metavar="DUMP", help="pages-articles dump: .xml, .xml.bz2 or .xml.gz")
    parser.add_argument("--output", required=True, metavar="FILE", help="text file to write")
    parser.add_argument("--workers", type=positive, metavar="N", help="processes (default: all cores)")
    parser.add_argument(
        "--min-characters",
        type=not_negative,
        metavar="N",
        help="leave out articles with less text than this (default: %(default)s)",
        default=300,
    )


def run(args: argparse.Namespace) -> None:
    from fairseq_tn.data.parallel import available_cores
    from fairseq_tn.data.streams import file_size
    from fairseq_tn.data.wikipedia import extract_sentences
    from fairseq_tn.progress import bytes_progress

    with bytes_progress(file_size(args.dump), "wikipedia") as progress:
        counts = extract_sentences(
            args.dump, args.output, args.workers or available_cores(), args.min_characters, progress
        )
    print(
        f"{args.dump}: {counts.pages:,} pages; left out {counts.redirects:,} redirects, "
        f"{counts.other_namespaces:,} of other namespaces, {counts.disambiguations:,} disambiguations, "
        f"{counts.stubs:,} stubs",
        file=sys.stderr,
    )
    print(
        f"{args.output}: {counts.articles:,} articles, {counts.sentences:,} sentences, "
        f"{counts.characters:,} characters"
    )
