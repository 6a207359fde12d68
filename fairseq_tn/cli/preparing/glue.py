"""``fairseq-tn prepare glue``: the official files of a GLUE task as fairseq's ``sentence_prediction`` reads them."""

import argparse
import sys

from fairseq_tn.cli.arguments import (
    add_dict_argument,
    add_tokenizer_argument,
    add_word_arguments,
    chosen_encoder,
    positive,
)
from fairseq_tn.data.glue import TASKS

_MANY_UNKNOWN = 10  # per cent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", required=True, choices=TASKS, help="of GLUE")
    parser.add_argument(
        "--data",
        required=True,
        metavar="FOLDER",
        help="the task's official files: train.tsv, dev.tsv and, if there, test.tsv; for MRPC also the original "
        "corpus, msr_paraphrase_train.txt and _test.txt",
    )
    add_tokenizer_argument(parser)
    add_dict_argument(parser)
    parser.add_argument("--output", required=True, metavar="FOLDER", help="folder to give to fairseq-train")
    parser.add_argument(
        "--max-length",
        type=positive,
        default=128,
        metavar="N",
        help="most tokens of an example, <s> and </s> included; of a longer pair the longer sentence is cut first "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="draws the development set of the original MRPC, which has none (default: %(default)s)",
    )
    add_word_arguments(parser)


def run(args: argparse.Namespace) -> None:
    from fairseq_tn.data.glue import read_task
    from fairseq_tn.data.sentence_prediction import write_folder
    from fairseq_tn.progress import count_progress

    task = TASKS[args.task]
    encoder = chosen_encoder(args)
    splits = read_task(task, args.data, args.seed)
    print(encoder.describe(), file=sys.stderr)
    rows = sum(len(split.examples) for split in splits.values())
    with count_progress(rows, f"prepare {task.name}", "rows") as progress:
        prepared = write_folder(task, splits, encoder, args.output, args.max_length, progress)
    for name, split in prepared.splits.items():
        unlabelled = "" if split.labelled else ", without labels"
        skipped = f", {split.skipped:,} broken lines left out" if split.skipped else ""
        print(
            f"{name}: {split.rows:,} rows{unlabelled}, {split.truncated:,} truncated to {args.max_length} tokens, "
            f"{split.tokens:,} tokens ({split.unknown:,} <unk>){skipped}; from {split.source}"
        )
        if 100 * split.unknown > _MANY_UNKNOWN * split.tokens:
            print(
                f"warning: {split.unknown / split.tokens:.0%} of the tokens of {name} are <unk>: do tokenizer, "
                "dictionary and text belong together?",
                file=sys.stderr,
            )
    classes = f"{len(task.labels)} classes" if task.labels else "a score, so --regression-target"
    print(f"{args.output}: give it to fairseq-train --task sentence_prediction --init-token 0 ({classes})")
