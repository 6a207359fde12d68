"""``fairseq-tn prepare nli``: premises with entailed and contradicting hypotheses, for ``--views nli``."""

import argparse

from fairseq_tn.cli.arguments import (
    add_dict_argument,
    add_tokenizer_argument,
    add_word_arguments,
    chosen_encoder,
    positive,
)
from fairseq_tn.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--train",
        required=True,
        metavar="FILE",
        help="triples: a .csv with the header sent0,sent1,hard_neg (as SimCSE's nli_for_simcse.csv), a .jsonl with "
        "these keys, or three columns separated by tabs; or the labelled pairs of SNLI and MultiNLI (.jsonl, .txt, "
        "GLUE's train.tsv), which are joined to triples",
    )
    parser.add_argument("--valid", metavar="FILE", help="the same, for validation")
    add_tokenizer_argument(parser)
    add_dict_argument(parser)
    parser.add_argument("--output", required=True, metavar="FOLDER", help="folder to give to fairseq-train")
    parser.add_argument(
        "--max-length",
        type=positive,
        default=64,
        metavar="N",
        help="most tokens of a sentence, <s> and </s> included; --tokens-per-sample must not be less (default: "
        "%(default)s)",
    )
    add_word_arguments(parser)


def run(args: argparse.Namespace) -> None:
    if args.max_length < 3:
        raise UserError(f"--max-length {args.max_length} leaves no room for text; give 3 or more")

    from fairseq_tn.data.nli import write_folder
    from fairseq_tn.progress import count_progress

    files = {"train": args.train, **({"valid": args.valid} if args.valid else {})}
    with count_progress(0, "prepare nli", "triples") as progress:
        counts = write_folder(files, chosen_encoder(args), args.output, args.max_length, progress)
    for split, found in counts.items():
        if found.incomplete:
            print(
                f"{split}: {found.incomplete:,} premises without an entailed or a contradicting hypothesis left out"
            )
        print(
            f"{split}: {found.triples:,} triples, {found.truncated:,} sentences truncated to {args.max_length} tokens, "
            f"{found.tokens:,} tokens ({found.unknown:,} <unk>); from {files[split]}"
        )
    print(
        f"{args.output}: give it to fairseq-train --task sentence_contrastive --views nli --no-nsp --sample-break-mode "
        f"eos --tokens-per-sample {args.max_length}"
    )
