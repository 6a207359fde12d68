#!/usr/bin/env python3
"""Check on a GPU what CPUs cannot show: half-precision training of every criterion, and no waiting for the device.

    python scripts/gpu_check.py                                 # one GPU, at most 10 minutes
    python scripts/gpu_check.py --device cpu --layers 2 --width 64 --batch 4 --length 32 --updates 4

For MLM, HC, SR and TaCL (temperature 0.01), on synthetic text, from one common checkpoint:

* fairseq-train in fp32, bf16 and fp16: no overflow, finite losses, and the same curves within noise;
* torch's synchronisation guard set to "error" around the teacher, the criterion's forward and the backward pass;
* tokens/s and peak memory of a training step.

Prints a table and ends with status 1 if a check failed. On a CPU there is neither half precision nor the guard: a
second fp32 run takes the place of the others and must equal the first.
"""

import argparse
import json
import logging
import math
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from bench import accelerator, plain
from contestants import PRECISIONS, Contestant, configuration, fairseq_contestant
from pretraining_steps import PAIRS
from synthetic import write_checkpoint, write_corpus, write_synonyms

import fairseq_tn
from fairseq_tn.analysis.environment import machine, versions
from fairseq_tn.models.bert import TnBertConfig

LABELS = {"mlm": "MLM + NSP", "hc": "HC", "sr": "SR", "tacl": "TaCL"}
CURVES = ("mlm_loss", "tacl_loss", "sr_loss")
# Two curves agree when means over a window differ by at most this share, or by this much where a loss is small:
# the runs share data and start, but neither dropout nor rounding.
WINDOW, SHARE, FLOOR = 10, 0.02, 0.05
SPEED_STEPS = 10


def arguments(args: argparse.Namespace, folder: Path, criterion: str) -> list[str]:
    """The command line of ``fairseq-train`` for a criterion."""
    own: dict[str, list[Any]] = {
        "mlm": ["--task", "bert_pretraining", "--criterion", "bert_pretraining"],
        "hc": [
            *("--task", "bert_pretraining", "--criterion", "mlm_hard_correction", "--nsp-weight", "1"),
            *("--synonyms", folder / "synonyms.txt"),
        ],
        "sr": ["--task", "bert_pretraining", "--criterion", "mlm_soft_reg", "--nsp-weight", "1"],
        "tacl": [
            *("--task", "teacher_student", "--criterion", "tacl_contrastive", "--temperature", "0.01"),
            *("--teacher-checkpoint", folder / "model.pt"),
        ],
    }
    heads = max(1, args.width // 64)
    parts = [
        *(folder / "data", "--arch", "tn_bert", *own[criterion]),
        *("--encoder-layers", args.layers, "--encoder-embed-dim", args.width),
        *("--encoder-ffn-embed-dim", 4 * args.width, "--encoder-attention-heads", heads),
        *("--tokens-per-sample", args.length, "--max-positions", args.length, "--batch-size", args.batch),
        *(
            "--optimizer",
            "adam",
            "--lr",
            "1e-4",
            "--weight-decay",
            "0.01",
            "--clip-norm",
            "1.0",
            "--seed",
            "1",
        ),
    ]
    return [str(part) for part in parts]


def train(flags: Sequence[str], precision: str, log: Path) -> None:
    """``fairseq-train`` in a process of its own, with its output in a file."""
    with log.open("w", encoding="utf-8") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    from fairseq.distributed import utils as distributed_utils
    from fairseq_cli.train import main as fairseq_train

    logging.basicConfig(format="| %(name)s | %(message)s", level=logging.INFO, force=True)
    fairseq_tn.register()
    distributed_utils.call_main(configuration(flags, precision), fairseq_train)


class Training:
    """A training run in the background."""

    def __init__(self, args: argparse.Namespace, folder: Path, criterion: str, run: str):
        self.log = folder / f"{criterion} {run}.log"
        flags = [
            *arguments(args, folder, criterion),
            *("--finetune-from-model", str(folder / "model.pt"), "--distributed-world-size", "1"),
            *(
                "--save-dir",
                str(folder / "unused"),
                "--no-save",
                "--disable-validation",
                "--num-workers",
                "1",
            ),
            *("--max-update", str(args.updates), "--log-format", "json", "--log-interval", "1"),
        ]
        precision = run if run in PRECISIONS else "fp32"
        self.process = multiprocessing.get_context("spawn").Process(
            target=train, args=(flags, precision, self.log)
        )
        self.process.start()

    def wait(self) -> dict[str, Any]:
        """The curves and how often the gradients overflowed; ends the script if the run failed."""
        self.process.join()
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        if self.process.exitcode:
            raise SystemExit(
                f"gpu_check.py: error: training ended with {self.process.exitcode}\n{text[-3000:]}"
            )
        return read_log(text)


def read_log(text: str) -> dict[str, Any]:
    """Curves (bits, one value an update) and overflows of the log of a run."""
    lines = [json.loads(found) for found in re.findall(r"\| train_inner \| (\{.*\})", text)]
    curves = {
        name: [float(line[name]) for line in lines if name in line]
        for name in CURVES
        if any(name in line for line in lines)
    }
    return {"curves": curves, "overflows": text.count("overflow detected")}


def largest_difference(one: Sequence[float], other: Sequence[float]) -> tuple[float, bool]:
    """The largest difference of two curves' window means, and whether all windows agree within noise."""
    worst, agree = 0.0, len(one) == len(other) > 0
    window = min(WINDOW, max(1, len(one)))
    for begin in range(0, min(len(one), len(other)) - window + 1, window):
        first, second = (statistics.mean(curve[begin : begin + window]) for curve in (one, other))
        difference = abs(first - second)
        worst = max(worst, difference)
        agree = agree and difference <= max(SHARE * abs(first), FLOOR)  # False for NaN
    return worst, agree


def guarded_step(run: Contestant, indices: Sequence[int]) -> str | None:
    """Forward (teacher included) and backward with every synchronising call an error; returns the error."""
    batch = run.batch(indices)
    guard = run.device.type == "cuda"
    try:
        if guard:
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
        loss, _ = run.forward(batch)
        loss.backward()
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return where(error)
    finally:
        if guard:
            torch.cuda.set_sync_debug_mode("default")
        run.optimizer.zero_grad()
    return None


def where(error: BaseException) -> str:
    """The innermost line of this package that an error went through."""
    found, traceback = "backward pass", error.__traceback__
    while traceback is not None:
        file = Path(traceback.tb_frame.f_code.co_filename)
        if file.parent.parent.name == "fairseq_tn" or file.parent.name == "fairseq_tn":
            found = f"{file.name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def step_costs(args: argparse.Namespace, folder: Path, criterion: str, precision: str) -> dict[str, Any]:
    """Synchronising calls, tokens/s and peak memory of a training step in this process."""
    own = argparse.Namespace(device=args.device, precision=precision)
    run = fairseq_contestant(criterion, LABELS[criterion], own, arguments(args, folder, criterion))
    order = run.dataset.ordered_indices()[::-1].tolist()  # full sequences first
    batches = [order[i * args.batch : (i + 1) * args.batch] for i in range(SPEED_STEPS + 2)]
    batches = [batch for batch in batches if len(batch) == args.batch]
    for batch in batches[:2]:  # also copies the synonym table to the device
        run.step(batch)
    waits = guarded_step(run, batches[0])
    peak = run.peak_bytes(batches[0])
    speeds = []
    for batch in batches[2:]:
        tokens, parts = run.step(batch)
        speeds.append(tokens / (sum(parts.values()) - parts["data"]))
    return {"waits": waits, "peak_bytes": peak, "tokens_per_second": statistics.median(speeds)}


def check(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Run everything; one row for each criterion and precision."""
    dictionary = write_corpus(
        folder / "data", args.vocabulary, {"train": args.batch * args.length * max(args.updates, 20)}
    )
    write_synonyms(folder / "synonyms.txt", dictionary, min(PAIRS, 2 * args.vocabulary))
    sizes = TnBertConfig(
        _name="tn_bert",
        encoder_layers=args.layers,
        encoder_embed_dim=args.width,
        max_positions=args.length,
    )
    write_checkpoint(folder / "model.pt", sizes, dictionary)
    precisions = ("fp32", "bf16", "fp16") if args.device == "cuda" else ("fp32", "fp32 again")
    rows = []
    for criterion in args.only:
        begun = time.monotonic()
        # side by side: they mostly start up; speed is measured afterwards
        trainings = [Training(args, folder, criterion, precision) for precision in precisions]
        runs = [training.wait() for training in trainings]
        for precision, run in zip(precisions, runs, strict=True):
            row = {"criterion": criterion, "precision": precision, **run, "failures": []}
            if precision in PRECISIONS:
                row.update(step_costs(args, folder, criterion, precision))
            judge(row, runs[0]["curves"], exact=precision == "fp32 again", updates=args.updates)
            rows.append(row)
        print(f"{LABELS[criterion]}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return rows


def judge(row: dict[str, Any], reference: dict[str, list[float]], exact: bool, updates: int) -> None:
    """Fill in ``differences`` and ``failures`` of a row."""
    row["differences"], failures = {}, row["failures"]
    if "mlm_loss" not in row["curves"]:
        failures.append("no losses in the log")
    for name, curve in row["curves"].items():
        if len(curve) != updates:
            failures.append(f"{len(curve)} of {updates} updates logged {name}")
        if not all(map(math.isfinite, curve)):
            failures.append(f"{name} is not finite")
        worst, agree = largest_difference(reference.get(name, []), curve)
        row["differences"][name] = worst
        if not agree or (exact and curve != reference[name]):
            failures.append(f"{name} differs from fp32")
    if row["overflows"]:
        failures.append(f"{row['overflows']} overflows")
    if row.get("waits"):
        failures.append(f"waits for the device at {row['waits']}")


def markdown(report: dict[str, Any]) -> str:
    """The report as a Markdown table."""
    settings = report["settings"]
    lines = [
        ", ".join(f"{name} {value}" for name, value in report["machine"].items()),
        "",
        ", ".join(f"{name} {value}" for name, value in report["versions"].items()),
        "",
        "{layers} layers x {width}, batch {batch} x {length}, vocabulary {vocabulary:,}, {updates} updates, "
        "{device}".format(**settings),
        "",
        "| criterion | precision | mlm_loss | tacl_loss | off fp32 | overflows | waits | tokens/s | memory | |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in report["rows"]:
        guarded = settings["device"] == "cuda" and "waits" in row
        peak = row.get("peak_bytes")
        cells = [
            LABELS[row["criterion"]],
            row["precision"],
            *(ends(row["curves"].get(name)) for name in ("mlm_loss", "tacl_loss")),
            f"{max(row['differences'].values(), default=math.nan):.3f}",
            str(row["overflows"]),
            (row["waits"] or "none") if guarded else "not checked",
            f"{row['tokens_per_second']:,.0f}" if "tokens_per_second" in row else "",
            f"{peak / 2**20:,.0f} MiB" if peak else "",
            "; ".join(row["failures"]) or "ok",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ends(curve: Sequence[float] | None) -> str:
    """First and last value of a curve."""
    return f"{curve[0]:.2f} .. {curve[-1]:.2f}" if curve else ""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    description, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default: %(default)s")
    for name, default, what in (
        ("layers", 12, "of the model"),
        ("width", 768, "of the hidden states, a multiple of 64"),
        ("batch", 32, "sequences"),
        ("length", 128, "most tokens of a sequence"),
        ("updates", 60, "of each training run"),
        ("vocabulary", 30_522, "symbols"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{what} (%(default)s)")
    parser.add_argument("--threads", type=int, metavar="N", help="of torch (default: torch's own choice)")
    parser.add_argument(
        "--only", default=",".join(LABELS), metavar="NAME,NAME", help="criterions (%(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write curves and all results")
    parser.add_argument("--markdown", action="store_true", help="print the table for a Markdown page")
    args = parser.parse_args(argv)
    args.only = args.only.split(",")
    for name in ("layers", "width", "batch", "updates"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be 1 or more")
    if args.length < 16 or args.vocabulary < 100:
        parser.error("--length must be 16 or more and --vocabulary 100 or more")
    if unknown := set(args.only) - set(LABELS):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; there are {', '.join(LABELS)}")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("this machine has no GPU that torch can use; --device cpu tries the script out")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Check and print; returns the exit status."""
    args = parse(argv)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # fairseq's use of Hydra, once per configuration
    fairseq_tn.register()
    if args.threads:
        torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        rows = check(args, Path(folder))
    report = {
        "machine": machine() | accelerator(args),
        "versions": versions(),
        "settings": {name: value for name, value in vars(args).items() if name not in ("json", "markdown")},
        "rows": rows,
    }
    print(markdown(report) if args.markdown else plain(markdown(report)))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return int(any(row["failures"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
