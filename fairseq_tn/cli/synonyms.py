"""Build and show synonym tables."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_tn.errors import UserError

if TYPE_CHECKING:
    from fairseq_tn.synonyms import SynonymTable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    build = actions.add_parser(
        "build",
        help="build the synonym table of a vocabulary",
        description="Build the synonym table of a vocabulary, for --synonyms in training.",
    )
    build.add_argument("--source", choices=sorted(SOURCES), default="wordnet", help="default: %(default)s")
    build.add_argument("--vocab", metavar="DICT", required=True, help="the vocabulary, a fairseq dict.txt")
    build.add_argument("--output", metavar="FILE", required=True, help="the table to write")
    build.add_argument(
        "--gpt2-encoder", metavar="FILE", help="GPT-2's encoder.json, for a dict.txt of GPT-2 ids (RoBERTa)"
    )
    wordnet = build.add_argument_group("--source wordnet")
    wordnet.add_argument(
        "--exact-lemmas",
        action="store_true",
        help="give no synonyms to inflected forms; by default they have those of their base forms",
    )
    wordnet.add_argument(
        "--wordnet", metavar="FOLDER", help="WordNet's files; by default found, or downloaded by NLTK"
    )

    show = actions.add_parser(
        "show",
        help="print the synonyms of tokens",
        description="Print the synonyms of tokens; the exit status is 1 when one of them has none.",
    )
    show.add_argument("tokens", metavar="TOKEN", nargs="+")
    show.add_argument("--table", metavar="FILE", required=True)


def run(args: argparse.Namespace) -> int:
    return _build(args) if args.action == "build" else _show(args)


def _from_wordnet(args: argparse.Namespace, symbols: list[str]) -> "SynonymTable":
    from fairseq_tn.synonyms.vocabularies import read_gpt2_tokens
    from fairseq_tn.synonyms.wordnet import build_from_wordnet

    return build_from_wordnet(
        symbols,
        wordnet=args.wordnet,
        exact_lemmas=args.exact_lemmas,
        gpt2_tokens=None if args.gpt2_encoder is None else read_gpt2_tokens(args.gpt2_encoder),
        progress=sys.stderr.isatty(),
    )


SOURCES: dict[str, Callable[[argparse.Namespace, list[str]], "SynonymTable"]] = {"wordnet": _from_wordnet}


def _build(args: argparse.Namespace) -> int:
    from fairseq_tn.synonyms.vocabularies import read_symbols

    if Path(args.output).is_dir():
        raise UserError(f"--output {args.output} is a folder; name a file")
    if Path(args.output).exists() and Path(args.vocab).exists() and Path(args.output).samefile(args.vocab):
        raise UserError(f"--output {args.output} is the vocabulary itself; name another file")
    symbols = read_symbols(args.vocab)
    table = SOURCES[args.source](args, symbols)
    if not len(table):
        raise UserError(
            f"no token of {args.vocab} has a synonym in {table.header['source']} "
            f"({table.header['options']}); is it a vocabulary of another language?"
        )
    table.save(args.output)
    share = 100 * len(table) / len(symbols)
    print(f"{table.header['source']} ({table.header['options']})")
    print(
        f"{len(table):,} of {len(symbols):,} tokens ({share:.1f} %) have synonyms, {table.num_pairs:,} pairs"
    )
    print("for example")
    for token in _examples(table):
        print(f"  {token}: {' '.join(table.synonyms(token)[:8])}")
    print(f"written to {args.output}")
    return 0


def _examples(table: "SynonymTable", number: int = 4) -> list[str]:
    """A few tokens spread over the table, rather words with several synonyms than figures and names."""
    tokens = [
        t for t in table.tokens if t.isalpha() and len(t) > 3 and len(table.synonyms(t)) > 2
    ] or table.tokens
    return tokens[:: max(1, len(tokens) // number)][:number]


def _show(args: argparse.Namespace) -> int:
    from fairseq_tn.synonyms.table import read_table

    _, synonyms = read_table(args.table)
    for token in args.tokens:
        print(f"{token}: {' '.join(synonyms[token])}" if token in synonyms else f"{token}: no synonyms")
    return 0 if all(token in synonyms for token in args.tokens) else 1
