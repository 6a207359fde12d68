#!/usr/bin/env python3
"""Measure training steps of MLM, HC, SR, TaCL and ELECTRA beside fairseq's own and transformers with full logits.

    python scripts/bench.py --markdown
    python scripts/bench.py --layers 12 --width 768 --device cuda --precision bf16 --json bench.json

Every round runs one step of each contestant (A B C ... C A B ...), so that whatever else the machine does hits all
of them alike; what is compared are medians of per-round ratios. A step is what fairseq's trainer does on
one worker: fetch and collate a batch, forward (for TaCL the teacher's too), backward, then scale, clip and apply
the gradients. Needs no network and no data: the text is synthetic.
"""

import argparse
import contextlib
import ctypes
import json
import logging
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import optim, options, tasks
from fairseq import utils as fairseq_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.fp16_optimizer import FP16Optimizer
from synthetic import write_checkpoint, write_corpus, write_synonyms
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

import fairseq_tn
from fairseq_tn.analysis.environment import machine, versions
from fairseq_tn.models.bert import TnBertConfig

PARTS = ("data", "forward", "backward", "optimiser")
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
VOCABULARY, PAIRS = 30_522, 60_000
WARM_UP = 2
TEMPERATURE = 0.01
# (what, of which contestant, to which, quantity, relation, limit): at 4 layers x 256, 16 x 128, two cores
TARGETS = (
    ("time of HC / time of MLM", "hc", "mlm", "time", "<=", 1.01),
    ("time of SR / time of MLM", "sr", "mlm", "time", "<=", 1.01),
    ("time of TaCL / time of MLM", "tacl", "mlm", "time", "<=", 1.30),
    ("time of MLM / time of fairseq's masked_lm", "mlm", "fairseq", "time", "<=", 1.00),
    ("tokens/s of TaCL / tokens/s of TaCL with full logits", "tacl", "hf-tacl", "tokens/s", ">=", 2.5),
)


class Clock:
    """Splits a step into parts; waits for the device where a part ends."""

    # the time that passes, or the time that this process computes
    timer = staticmethod(time.perf_counter)

    def __init__(self, device: torch.device):
        self.device = device
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def part(self, name: str):
        """Add the time of a ``with`` block to a part."""
        begun = self.timer()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + self.timer() - begun


class Contestant:
    """A way to make a training step.

    Args:
        name, label: short and long name.
        cfg: fairseq's configuration, which names the optimiser and the precision.
        model: is trained.
        dataset: gives items and batches.
        forward: batch -> (loss as a sum, denominator).
        frozen: a model that ``forward`` uses, not trained.
    """

    def __init__(
        self,
        name: str,
        label: str,
        cfg: Any,
        model: nn.Module,
        dataset: Any,
        forward: Callable[[Any], tuple[Tensor, Any]],
        frozen: nn.Module | None = None,
    ):
        self.name, self.label = name, label
        self.cfg, self.model, self.dataset, self.forward = cfg, model.train(), dataset, forward
        self.frozen = frozen
        self.device = next(model.parameters()).device
        parameters = [p for p in model.parameters() if p.requires_grad]
        if cfg.common.fp16 or cfg.common.bf16:
            self.optimizer = FP16Optimizer.build_optimizer(cfg, parameters)
        else:
            self.optimizer = optim.build_optimizer(cfg.optimizer, parameters)

    def batch(self, indices: Sequence[int]) -> dict[str, Any]:
        """Fetch, collate, and move to the device."""
        batch = self.dataset.collater([self.dataset[index] for index in indices])
        return fairseq_utils.move_to_cuda(batch, self.device) if self.device.type == "cuda" else batch

    def step(self, indices: Sequence[int]) -> dict[str, float]:
        """One step; returns the seconds of each part."""
        clock = Clock(self.device)
        with clock.part("data"):
            batch = self.batch(indices)
        with clock.part("forward"):
            loss, denominator = self.forward(batch)
        with clock.part("backward"):
            self.optimizer.backward(loss)
        with clock.part("optimiser"):
            self.optimizer.multiply_grads(1 / denominator)
            with contextlib.suppress(OverflowError):  # fp16: the scale has been lowered, the step is skipped
                self.optimizer.clip_grad_norm(self.cfg.optimization.clip_norm)
                self.optimizer.step()
            self.optimizer.zero_grad()
        return clock.seconds

    def flops(self, indices: Sequence[int]) -> int:
        """Operations in the matrix products of forward and backward."""
        batch = self.batch(indices)
        # torch does not count its fused attention on CPUs
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            self.optimizer.backward(self.forward(batch)[0])
        self.optimizer.zero_grad()
        return counter.get_total_flops()

    def state_bytes(self) -> int:
        """Memory between steps: weights, the optimiser's moments, the frozen model."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        if self.frozen is not None:
            tensors += [*self.frozen.parameters(), *self.frozen.buffers()]
        tensors += getattr(self.optimizer, "fp32_params", None) or []  # one flat tensor, or several
        for state in self.optimizer.optimizer.state.values():
            tensors += [value for value in state.values() if torch.is_tensor(value)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def peak_bytes(self, indices: Sequence[int]) -> int | None:
        """Memory between steps and the most that a step needs beside it; None where it cannot be known."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            self.step(indices)
            return self.state_bytes() + torch.cuda.max_memory_allocated(self.device) - before
        before = resident_bytes(reset=True)
        self.step(indices)
        peak = resident_bytes()
        return None if before is None or peak is None else self.state_bytes() + peak - before


def resident_bytes(reset: bool = False) -> int | None:
    """The most memory that this process has held since the last reset; Linux only."""
    try:
        if reset:
            ctypes.CDLL(None).malloc_trim(0)  # what was freed is to count as free
            Path("/proc/self/clear_refs").write_text("5")
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, AttributeError):
        pass
    return None


def configuration(arguments: Sequence[Any], precision: str) -> Any:
    """fairseq's configuration of a command line of ``fairseq-train`` and a precision.

    Precision is not an argument, since fairseq's command line takes ``--bf16`` for a wish to use a TPU.
    """
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(parser, [str(argument) for argument in arguments])
    )
    if precision != "fp32":
        cfg.common[precision] = True
    return cfg


def common_arguments(args: argparse.Namespace, data: Path) -> list[Any]:
    """What all contestants share."""
    heads = max(1, args.width // 64)
    return [
        *(data, "--tokens-per-sample", args.length, "--max-positions", args.length),
        *("--encoder-layers", args.layers, "--encoder-embed-dim", args.width),
        *("--encoder-ffn-embed-dim", 4 * args.width, "--encoder-attention-heads", heads),
        *("--optimizer", "adam", "--lr", "1e-4", "--weight-decay", "0.01", "--clip-norm", "1.0"),
        *([] if args.device == "cuda" else ["--cpu"]),
    ]


def fairseq_contestant(
    name: str, label: str, args: argparse.Namespace, arguments: Sequence[Any]
) -> Contestant:
    """A criterion and model of fairseq's registries, on the device and in the precision of ``args``."""
    cfg = configuration(arguments, args.precision)
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(1)
    model = task.build_model(cfg.model).to(device=args.device, dtype=PRECISIONS[args.precision])
    criterion = task.build_criterion(cfg.criterion).to(args.device)
    task.load_dataset("train")
    add_teacher_states = getattr(task, "add_teacher_states", None)

    def forward(batch: Any) -> tuple[Tensor, Any]:
        if add_teacher_states is not None:
            batch = add_teacher_states(batch, model)
        loss, denominator, _ = criterion(model, batch)
        return loss, denominator

    return Contestant(
        name, label, cfg, model, task.dataset("train"), forward, getattr(task, "_teacher", None)
    )


def transformers_contestant(
    name: str, label: str, args: argparse.Namespace, like: Contestant, with_teacher: bool
) -> Contestant:
    """BertForMaskedLM as it is usually trained: logits at every position, the loss ignores most of them.

    With a teacher, TaCL as its equation reads: all T x T similarities of student and teacher, of which the
    masked rows are used; the teacher's forward pass records a graph, which is not used.
    """
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=max(1, args.width // 64),
        intermediate_size=4 * args.width,
        max_position_embeddings=args.length,
        pad_token_id=like.dataset.pad,
    )
    torch.manual_seed(1)
    where = {"device": args.device, "dtype": PRECISIONS[args.precision]}
    model = BertForMaskedLM(config).to(**where)
    teacher = BertForMaskedLM(config).to(**where).eval() if with_teacher else None
    if teacher is not None:
        teacher.load_state_dict(model.state_dict())
    pad = like.dataset.pad

    def forward(batch: Any) -> tuple[Tensor, Any]:
        source, masked = batch["source"], batch["target"].ne(pad)
        real = source.ne(pad)
        output = model(
            batch["net_input"]["src_tokens"], attention_mask=real, output_hidden_states=with_teacher
        )
        labels = batch["target"].masked_fill(~masked, -100)
        loss = F.cross_entropy(output.logits.float().transpose(1, 2), labels, reduction="sum")
        if teacher is not None:
            states = F.normalize(output.hidden_states[-1].float(), dim=-1)
            keys = F.normalize(teacher.bert(source, attention_mask=real)[0].detach().float(), dim=-1)
            scores = states @ keys.transpose(1, 2) / TEMPERATURE
            log_probabilities = scores.masked_fill(~real[:, None], float("-inf")).log_softmax(-1)
            diagonal = log_probabilities.diagonal(dim1=1, dim2=2)
            loss = loss - diagonal.masked_fill(~masked, 0.0).sum()
        return loss, masked.sum()

    return Contestant(name, label, like.cfg, model, like.dataset, forward, teacher)


def contestants(args: argparse.Namespace, folder: Path) -> list[Contestant]:
    """All contestants, in the order of a round."""
    data = folder / "data"
    needed = args.batch * args.length * 20
    dictionary = write_corpus(data, VOCABULARY, {"train": needed})
    write_synonyms(folder / "synonyms.txt", dictionary, PAIRS)
    sizes = TnBertConfig(
        _name="tn_bert",
        encoder_layers=args.layers,
        encoder_embed_dim=args.width,
        max_positions=args.length,
    )
    write_checkpoint(folder / "teacher.pt", sizes, dictionary)
    common = common_arguments(args, data)
    ours = [*common, "--arch", "tn_bert", "--no-nsp", "--task"]
    synonyms = ("--synonyms", folder / "synonyms.txt")
    teacher = ("--teacher-checkpoint", folder / "teacher.pt", "--temperature", TEMPERATURE)
    mlm = fairseq_contestant(
        "mlm", "MLM", args, [*ours, "bert_pretraining", "--criterion", "bert_pretraining"]
    )
    makers: dict[str, Callable[[str], Contestant]] = {
        "mlm": lambda name: mlm,
        "hc": lambda name: fairseq_contestant(
            name,
            "MLM with HC",
            args,
            [*ours, "bert_pretraining", "--criterion", "mlm_hard_correction", *synonyms],
        ),
        "sr": lambda name: fairseq_contestant(
            name, "MLM with SR", args, [*ours, "bert_pretraining", "--criterion", "mlm_soft_reg"]
        ),
        "sr-sentence": lambda name: fairseq_contestant(
            name,
            "MLM with SR of sentences",
            args,
            [*ours, "bert_pretraining", "--criterion", "mlm_soft_reg", "--soft-reg-level", "sentence"],
        ),
        "electra": lambda name: fairseq_contestant(
            name,
            "ELECTRA, generator 1/4",
            args,
            [
                *(*common, "--arch", "tn_electra_small", "--embedding-dim", args.width, "--no-nsp"),
                *("--task", "bert_pretraining", "--criterion", "electra"),
            ],
        ),
        "tacl": lambda name: fairseq_contestant(
            name, "TaCL", args, [*ours, "teacher_student", "--criterion", "tacl_contrastive", *teacher]
        ),
        "fairseq": lambda name: fairseq_contestant(
            name,
            "fairseq's masked_lm, roberta",
            args,
            [*common, "--arch", "roberta_base", "--task", "masked_lm", "--criterion", "masked_lm"],
        ),
        "hf-mlm": lambda name: transformers_contestant(
            name, "transformers, MLM, full logits", args, mlm, with_teacher=False
        ),
        "hf-tacl": lambda name: transformers_contestant(
            name, "transformers, TaCL, full logits", args, mlm, with_teacher=True
        ),
    }
    return [make(name) for name, make in makers.items() if name in args.only]


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
        # fairseq's blocks and ours differ in number: take what both have, but for the last, short one
        available = min(len(run.dataset) for run in runs) - 1
        if available < args.batch:
            raise SystemExit("bench.py: error: the corpus has too few sequences")

        def indices(number: int) -> list[int]:
            return [(number * args.batch + i) % available for i in range(args.batch)]

        results: dict[str, dict[str, Any]] = {}
        for run in runs:
            for number in range(WARM_UP):
                run.step(indices(number))
            results[run.name] = {
                "label": run.label,
                "parameters": sum(p.numel() for p in run.model.parameters() if p.requires_grad),
                "flops": run.flops(indices(0)),
                "peak_bytes": run.peak_bytes(indices(0)),
                "rounds": [],
            }
        matrix_peak(args)
        peaks, order = [], random.Random(1)
        for number in tqdm(range(args.rounds), desc="rounds", disable=args.rounds < 5):
            peaks.append(matrix_peak(args))
            # what ran before leaves caches and free memory behind: nobody is always the first
            for run in order.sample(runs, len(runs)):
                results[run.name]["rounds"].append(run.step(indices(WARM_UP + number)))
    tokens = args.batch * args.length
    reference = runs[0].name
    for result in results.values():
        rounds = result["rounds"]
        times = [sum(parts.values()) for parts in rounds]
        result["seconds"] = statistics.median(times)
        for part in PARTS:
            result[part] = statistics.median(parts[part] for parts in rounds)
        result["tokens_per_second"] = tokens / result["seconds"]
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


NAMES = ("mlm", "hc", "sr", "sr-sentence", "electra", "tacl", "fairseq", "hf-mlm", "hf-tacl")


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
    parser.add_argument("--length", type=int, default=128, metavar="N", help="tokens each (%(default)s)")
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
        default=",".join(NAMES),
        metavar="NAME,NAME",
        help="contestants (%(default)s); ratios are to the first of them",
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
