#!/usr/bin/env python3
"""Measure training steps of MLM, HC, SR, TaCL and ELECTRA beside fairseq's own and transformers with full logits.

    python scripts/bench.py --markdown
    python scripts/bench.py --layers 12 --width 768 --device cuda --precision bf16 --json bench.json
    python scripts/bench.py --only glue,hf-glue --batch 32 --markdown
    python scripts/bench.py --only squad,hf-squad --batch 8 --length 384 --markdown

Every round runs one step of each contestant (A B C ... C A B ...), so that whatever else the machine does hits all
of them alike; what is compared are medians of per-round ratios. A step is what the trainer does on one worker: fetch
and collate a batch, forward (for TaCL the teacher's too), backward, then scale, clip and apply the gradients. Padding
is no token. Needs no network and no data: the text is synthetic.

Fine-tuning: the steps of the recipes here, and those of transformers' run_glue.py and run_qa.py as they come, which pad
to --length.
"""

import argparse
import json
import logging
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from contestants import PRECISIONS, VOCABULARY, Clock, Contestant
from fine_tuning_steps import fine_tuning_makers
from pretraining_steps import Maker, pretraining_makers
from tqdm import tqdm

import fairseq_tn
from fairseq_tn.analysis.environment import machine, versions

PARTS = ("data", "forward", "backward", "optimiser")
WARM_UP = 2
PRETRAINING = ("mlm", "hc", "sr", "sr-sentence", "electra", "tacl", "fairseq", "hf-mlm", "hf-tacl")
FINE_TUNING = ("glue", "hf-glue", "squad", "hf-squad")
NAMES = (*PRETRAINING, *FINE_TUNING)
# (what, of which contestant, to which, quantity, relation, limit): at 4 layers x 256, 16 x 128, two cores
TARGETS = (
    ("time of HC / time of MLM", "hc", "mlm", "time", "<=", 1.01),
    ("time of SR / time of MLM", "sr", "mlm", "time", "<=", 1.01),
    ("time of TaCL / time of MLM", "tacl", "mlm", "time", "<=", 1.30),
    ("time of MLM / time of fairseq's masked_lm", "mlm", "fairseq", "time", "<=", 1.00),
    ("tokens/s of TaCL / tokens/s of TaCL with full logits", "tacl", "hf-tacl", "tokens/s", ">=", 2.5),
    ("tokens/s of GLUE / tokens/s of transformers' script", "glue", "hf-glue", "tokens/s", ">=", 1.0),
    ("tokens/s of SQuAD / tokens/s of transformers' script", "squad", "hf-squad", "tokens/s", ">=", 1.0),
)


def contestants(args: argparse.Namespace, folder: Path) -> list[Contestant]:
    """Those of ``--only``, in the order of a round."""
    makers: dict[str, Maker] = {}
    if not set(args.only).isdisjoint(PRETRAINING):
        makers |= pretraining_makers(args, folder / "pretraining")
    if not set(args.only).isdisjoint(FINE_TUNING):
        makers |= fine_tuning_makers(args, folder / "fine_tuning")
    return [makers[name](name) for name in NAMES if name in args.only]


def matrix_peak(args: argparse.Namespace) -> float:
    """Operations per second of a large matrix product, the best of three."""
    size = 8192 if args.device == "cuda" else 2048
    one = torch.randn(size, size, device=args.device, dtype=PRECISIONS[args.precision])
    best = float("inf")
    for _ in range(3):
        clock = Clock(torch.device(args.device))
        with clock.part("product"):
            one @ one
        best = min(best, clock.seconds["product"])
    return 2 * size**3 / best


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds; returns what ``--json`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        runs = contestants(args, Path(folder))
        # fairseq's blocks and ours differ in number: take what both have in whole batches, but for the last, short one
        available = (min(len(run.order) for run in runs) - 1) // args.batch * args.batch
        if available < args.batch:
            raise SystemExit("bench.py: error: the corpus has too few sequences")

        def places(number: int) -> list[int]:
            return [(number * args.batch + i) % available for i in range(args.batch)]

        results: dict[str, dict[str, Any]] = {}
        for run in runs:
            for number in range(WARM_UP):
                run.step(places(number))
            results[run.name] = {
                "label": run.label,
                "parameters": sum(p.numel() for p in run.model.parameters() if p.requires_grad),
                "flops": run.flops(places(0)),
                "peak_bytes": run.peak_bytes(places(0)),
                "tokens": [],
                "rounds": [],
            }
        matrix_peak(args)
        peaks, order = [], random.Random(1)
        for number in tqdm(range(args.rounds), desc="rounds", disable=args.rounds < 5):
            peaks.append(matrix_peak(args))
            # what ran before leaves caches and free memory behind: nobody is always the first
            for run in order.sample(runs, len(runs)):
                tokens, seconds = run.step(places(WARM_UP + number))
                results[run.name]["tokens"].append(tokens)
                results[run.name]["rounds"].append(seconds)
    reference = runs[0].name
    for result in results.values():
        rounds = result["rounds"]
        times = [sum(parts.values()) for parts in rounds]
        result["seconds"] = statistics.median(times)
        for part in PARTS:
            result[part] = statistics.median(parts[part] for parts in rounds)
        result["tokens_per_second"] = statistics.mean(result["tokens"]) / result["seconds"]
        result["share_of_peak"] = statistics.median(
            result["flops"] / seconds / peak for seconds, peak in zip(times, peaks, strict=True)
        )
        result["ratio"] = ratio(rounds, results[reference]["rounds"])
    settings = {name: getattr(args, name) for name in SETTINGS}
    return {
        "machine": machine() | accelerator(args),
        "versions": versions() | {"transformers": metadata.version("transformers")},
        "settings": settings | {"threads": torch.get_num_threads(), "vocabulary": VOCABULARY},
        "matrix_peak": statistics.median(peaks),
        "reference": reference,
        "contestants": results,
        "targets": targets(results),
    }


SETTINGS = ("layers", "width", "batch", "length", "rounds", "clock", "device", "precision")


def accelerator(args: argparse.Namespace) -> dict[str, str]:
    """The GPU, if it is used."""
    return {"GPU": torch.cuda.get_device_name()} if args.device == "cuda" else {}


def ratio(rounds: Sequence[dict[str, float]], reference: Sequence[dict[str, float]]) -> float:
    """Median over the rounds of one step's time divided by the other's in the same round."""
    return statistics.median(
        sum(one.values()) / sum(other.values()) for one, other in zip(rounds, reference, strict=True)
    )


def targets(results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The ratios that are promised, as measured; only those of contestants that ran."""
    found = []
    for what, one, other, quantity, relation, limit in TARGETS:
        if one in results and other in results:
            rounds = results[one]["rounds"], results[other]["rounds"]
            value = ratio(*rounds) if quantity == "time" else ratio(*reversed(rounds))
            found.append({"what": what, "value": value, "relation": relation, "limit": limit})
    return found


def markdown(report: dict[str, Any]) -> str:
    """The report as a Markdown table with what was measured where."""
    settings, results = report["settings"], report["contestants"]
    reference = results[report["reference"]]["label"]
    lines = [
        ", ".join(f"{name} {value}" for name, value in report["machine"].items()),
        "",
        ", ".join(f"{name} {value}" for name, value in report["versions"].items()),
        "",
        "{layers} layers x {width}, batch {batch} x {length} tokens, vocabulary {vocabulary:,}, {precision}, "
        "{device}, threads: {threads}, {clock} time, {rounds} interleaved rounds; ".format(**settings)
        + f"matrix product: {report['matrix_peak'] / 1e9:,.0f} GFLOP/s",
        "",
        f"| step | tokens/s | ms | data | forward | backward | optimiser | x {reference} | of peak | memory |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results.values():
        memory = result["peak_bytes"]
        cells = [
            result["label"],
            f"{result['tokens_per_second']:,.0f}",
            *(f"{1000 * result[part]:.3g}" for part in ("seconds", *PARTS)),
            f"{result['ratio']:.3f}",
            f"{result['share_of_peak']:.0%}",
            "?" if memory is None else f"{memory / 2**20:,.0f} MiB",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if report["targets"]:
        lines += ["", "| ratio (median of the rounds) | measured | target |", "|---|---:|---:|"]
        for target in report["targets"]:
            lines.append("| {what} | {value:.3f} | {relation} {limit:.2f} |".format(**target))
    return "\n".join(lines)


def plain(table: str) -> str:
    """A Markdown table with its columns aligned."""
    lines = []
    rows: list[list[str]] = []
    for line in [*table.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        if rows:
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for row in rows:
                if not row[0].startswith("---"):
                    first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
                    lines.append("  ".join([first.strip().ljust(widths[0]), *others]))
            rows = []
        lines.append(line)
    return "\n".join(lines).rstrip()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    description, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=4, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--width", type=int, default=256, metavar="N", help="of the hidden states, a multiple of 64"
    )
    parser.add_argument("--batch", type=int, default=16, metavar="N", help="sequences (%(default)s)")
    parser.add_argument(
        "--length", type=int, default=128, metavar="N", help="tokens each, at most (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="default: %(default)s")
    parser.add_argument("--threads", type=int, metavar="N", help="of torch (default: one per core)")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: count the time that this process computes, for a CPU that others use too; implies --threads 1",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: %(default)s")
    parser.add_argument(
        "--only",
        default=",".join(PRETRAINING),
        metavar="NAME,NAME",
        help=f"contestants of {', '.join(NAMES)} (%(default)s); ratios are to the first of them",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round and all results")
    parser.add_argument("--markdown", action="store_true", help="print tables for a Markdown page")
    args = parser.parse_args(arguments)
    args.only = args.only.split(",")
    for name in ("layers", "width", "batch", "rounds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be 1 or more")
    if args.width % 64 and args.width > 64:
        parser.error("--width must be a multiple of 64, or less than 64")
    if args.length < 8:
        parser.error("--length must be 8 or more")
    if unknown := set(args.only) - set(NAMES):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this machine has no GPU that torch can use")
    if args.device == "cuda" and args.clock == "cpu":
        parser.error("--clock cpu cannot time a GPU")
    if args.device == "cpu" and args.precision != "fp32":
        parser.error(
            f"--precision {args.precision} needs --device cuda: fairseq has no half precision on CPUs"
        )
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    args = parse(arguments)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # fairseq's use of Hydra, once per configuration
    fairseq_tn.register()
    if args.clock == "cpu":
        Clock.timer = staticmethod(time.process_time)
        args.threads = 1  # several threads also compute while they wait for each other
    if args.threads:
        torch.set_num_threads(args.threads)
    report = measure(args)
    table = markdown(report)
    print(table if args.markdown else plain(table))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
