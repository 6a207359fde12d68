"""Turn training runs, their evaluation and downstream results into a report: one web page, and Markdown with images."""

import argparse
from pathlib import Path

from fairseq_tn.cli.arguments import not_negative, positive
from fairseq_tn.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN_FOLDER",
        help="folder of a run: train.log (of --log-format json --log-file), TensorBoard files, command.txt if you like",
    )
    parser.add_argument("--evaluation", metavar="FILE", help="JSON of `fairseq-tn evaluate pretraining`")
    parser.add_argument(
        "--results",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="JSON of `fairseq-tn evaluate glue|squad|tagging`, one file a run: means over seeds by task and "
        "method, as LaTeX (report.tex) and JSON (report.json) too",
    )
    parser.add_argument(
        "--baseline",
        metavar="METHOD",
        help="method of --results (their --name) that the others are compared with, by a paired bootstrap",
    )
    parser.add_argument(
        "--resamples",
        type=positive,
        default=1000,
        metavar="N",
        help="of the bootstrap (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=not_negative, default=1, metavar="N", help="of the bootstrap (default: %(default)s)"
    )
    parser.add_argument(
        "--settings",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="facts for the head of the report, such as text='Wikipedia, 107 articles'",
    )
    parser.add_argument("--title", metavar="TEXT", help="heading of the report")
    parser.add_argument(
        "--commands", metavar="FILE", help="text file with the commands that were run, to be shown"
    )
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="where report.html, report.md and so on are written"
    )


def run(args: argparse.Namespace) -> None:
    settings = {}
    for argument in args.settings:
        key, equals, value = argument.partition("=")
        if not (key and equals):
            raise UserError(f"--settings {argument}: write KEY=VALUE")
        settings[key] = value
    commands = None
    if args.commands:
        try:
            commands = Path(args.commands).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UserError(f"--commands {args.commands}: {error.strerror}") from error

    if args.baseline is not None and not args.results:
        raise UserError("--baseline is a method of --results; give their files too")

    from fairseq_tn.evaluation.comparison import compare, read_results
    from fairseq_tn.evaluation.report import write_report

    comparison = None
    title = args.title or ("Training report" if args.runs or args.evaluation else "Downstream results")
    if args.results:
        comparison = compare(read_results(args.results), args.baseline, args.resamples, args.seed)
    for path in write_report(args.runs, args.output, args.evaluation, settings, title, commands, comparison):
        print(path)
