"""The command line ``fairseq-tn``; one file a subcommand.

A subcommand module has a docstring (its help), ``add_arguments(parser)`` and ``run(args)``. Only the module
that is asked for is imported, so that ``--help`` and light commands answer at once.
"""

import argparse
import importlib
import signal
import sys

from fairseq_tn import __version__
from fairseq_tn.errors import UserError

COMMANDS = {
    "doctor": "check this machine: versions, what is supported, what is missing and how to get it",
    "path": "print the folder to give to --user-dir",
    "wikipedia": "turn a Wikipedia dump into plain sentences",
    "encode": "write text as tokens of a vocabulary, for fairseq-preprocess",
    "synonyms": "build, show and compare synonym tables",
    "convert": "convert checkpoints from and to Hugging Face",
    "prepare": "turn data sets into what the fine-tuning tasks read",
    "evaluate": "evaluate checkpoints and predictions",
    "analyze": "look at what training did to a model: self-similarity, false negatives, corrections, embeddings",
    "robustness": "transform SQuAD files: swap synonyms, or add sentences that look like answers",
    "report": "turn training runs into a report with tables and plots",
}


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``fairseq-tn``; returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="fairseq-tn", description="TaCL and pre-training on true negatives for fairseq"
    )
    parser.add_argument("--version", action="version", version=f"fairseq_tn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    module = None
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == chosen:
            module = importlib.import_module(f"fairseq_tn.cli.{name}")
            module.add_arguments(command)
    args = parser.parse_args(argv)
    assert module is not None  # argparse has refused any other word
    # job schedulers end jobs by SIGTERM, closed terminals by SIGHUP (which nohup ignores): leave as after an error,
    # so that temporary files are removed
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) != signal.SIG_IGN:
            signal.signal(ending, lambda number, frame: sys.exit(128 + number))
    try:
        return module.run(args) or 0
    except UserError as error:
        print(f"fairseq-tn {args.command}: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # the reader of our output has left, as in `fairseq-tn ... | head`
        sys.stderr.close()
        return 128 + signal.SIGPIPE
    except OSError as error:
        # a full or read-only disk, a file where a folder is needed, missing permissions
        name = f"{error.filename}: " if error.filename else ""
        print(f"fairseq-tn {args.command}: error: {name}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"fairseq-tn {args.command}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
