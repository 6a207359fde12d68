"""What the analyses share: options for models and results, opening the models, writing the results."""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_tn.cli.arguments import not_negative
from fairseq_tn.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fairseq_tn.analysis.models import AnalysedModel, ModelSource


def add_model_arguments(parser: argparse.ArgumentParser, tokenizer: bool = True, runs: bool = False) -> None:
    """``--model --dict --cpu`` and, for analyses that read text, ``--tokenizer``."""
    parser.add_argument(
        "--model",
        required=True,
        nargs="+",
        action="extend",
        metavar="[NAME=]PATH",
        help="the models: fairseq checkpoints or Hugging Face folders, with names for tables and plots if you like"
        + ("; the folder of a run stands for its checkpoints that name their updates" if runs else ""),
    )
    if tokenizer:
        parser.add_argument(
            "--tokenizer",
            nargs="+",
            action="extend",
            default=[],
            metavar="[NAME=]TOKENIZER",
            help="of all models, or of the one of that name; what `fairseq-tn encode --tokenizer` takes (default: the "
            "Hugging Face folder, or the hf/ beside the checkpoint, its dict.txt or the model it started from)",
        )
    parser.add_argument(
        "--dict",
        nargs="+",
        action="extend",
        default=[],
        metavar="[NAME=]FILE",
        help="dict.txt of all checkpoints, or of the one of that name (default: beside the checkpoint, or in the data "
        "that it was trained on)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")


def add_result_arguments(parser: argparse.ArgumentParser, plot: bool = True) -> None:
    """``--seed --json`` and, for analyses that draw, ``--plot``."""
    parser.add_argument(
        "--seed",
        type=not_negative,
        default=1,
        metavar="N",
        help="of every random choice (default: %(default)s)",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything to this file")
    if plot:
        parser.add_argument("--plot", metavar="FOLDER", help="write the figures there, as PNG and SVG")


def opened_models(
    args: argparse.Namespace,
    with_tokenizer: bool = True,
    sources: "Sequence[ModelSource] | None" = None,
    check: "Callable[[AnalysedModel], object]" = lambda model: None,
) -> "Iterator[AnalysedModel]":
    """The models of ``--model``, one after the other: only one is in memory unless the caller keeps it.

    Args:
        with_tokenizer: whether text will be encoded.
        sources: other models than those of ``--model``.
        check: raises UserError for a model that does not fit.

    Raises:
        UserError: one of them cannot be opened or does not fit; it is raised before the first model is given
    """
    from fairseq_tn.analysis.models import model_sources

    if sources is None:
        sources = model_sources(args.model, getattr(args, "tokenizer", []), args.dict)
    device = "cpu" if args.cpu else None
    for source in sources[1:]:  # the first is opened right away
        check(source.open("cpu", with_tokenizer))
    for number, source in enumerate(sources):
        model = source.open(device, with_tokenizer)
        if number == 0:
            check(model)
        yield model


def check_outputs(args: argparse.Namespace) -> None:
    """Find what would stop the results from being written before the work is done.

    Raises:
        UserError: --json names a folder, --plot a file, or figures are wanted and matplotlib is missing
    """
    if args.json and Path(args.json).is_dir():
        raise UserError(f"--json {args.json} is a folder; give the name of a file")
    if plot := getattr(args, "plot", None):
        from fairseq_tn.analysis.plots import require_matplotlib

        if Path(plot).exists() and not Path(plot).is_dir():
            raise UserError(f"--plot {plot} is a file; give the name of a folder")
        require_matplotlib()


def write_results(
    args: argparse.Namespace, result: Mapping[str, Any], figures: "Mapping[str, Figure] | None" = None
) -> None:
    """Write ``--json`` and ``--plot`` as far as they are given and print what was written.

    Args:
        result: what the JSON file holds; versions are added. Numbers that are not defined must be None.
        figures: name of the file without its ending -> figure.
    """
    from fairseq_tn.analysis.environment import machine, versions
    from fairseq_tn.files import atomic_path

    written = []
    if args.json:
        content = {**result, "versions": versions(), "machine": machine()}
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        with atomic_path(args.json) as path:
            path.write_text(text, encoding="utf-8")
        written.append(args.json)
    if figures and args.plot:
        from fairseq_tn.analysis.plots import save_figure

        for name, figure in figures.items():
            written += map(str, save_figure(figure, Path(args.plot), name))
    if written:
        print("\nwritten: " + ", ".join(written))
