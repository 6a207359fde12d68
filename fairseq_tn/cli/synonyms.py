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
    _add_gpt2_encoder(build)
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
    show.add_argument(
        "tokens", metavar="TOKEN", nargs="+", help="a symbol of the vocabulary, or the word that it writes"
    )
    show.add_argument("--table", metavar="FILE", required=True)
    _add_gpt2_encoder(show)


def _add_gpt2_encoder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpt2-encoder", metavar="FILE", help="GPT-2's encoder.json, for a vocabulary of GPT-2 ids (RoBERTa)"
    )


def run(args: argparse.Namespace) -> int:
    return _build(args) if args.action == "build" else _show(args)


def _from_wordnet(args: argparse.Namespace, symbols: list[str]) -> "SynonymTable":
    from fairseq_tn.synonyms.wordnet import build_from_wordnet

    return build_from_wordnet(
        symbols,
        wordnet=args.wordnet,
        exact_lemmas=args.exact_lemmas,
        gpt2_tokens=_gpt2_tokens(args),
        progress=sys.stderr.isatty(),
    )


def _gpt2_tokens(args: argparse.Namespace) -> dict[str, str] | None:
    from fairseq_tn.synonyms.vocabularies import read_gpt2_tokens

    return None if args.gpt2_encoder is None else read_gpt2_tokens(args.gpt2_encoder)


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
    writing = _writing(table.tokens, args)
    for token in _examples(table, writing):
        print(f"  {writing(token)}: {' '.join(map(writing, table.synonyms(token)[:8]))}")
    print(f"written to {args.output}")
    return 0


def _writing(tokens: list[str], args: argparse.Namespace) -> Callable[[str], str]:
    """How a symbol is printed: ids of GPT-2 as the words that they stand for, others as they are."""
    from fairseq_tn.synonyms.vocabularies import detect_style, whole_words

    if detect_style(tokens) != "gpt2-ids":
        return lambda symbol: symbol
    gpt2 = _gpt2_tokens(args) or {}
    words = whole_words([*gpt2], "gpt2-ids", gpt2) if gpt2 else {}
    return lambda symbol: words.get(symbol, symbol)


def _examples(table: "SynonymTable", writing: Callable[[str], str], number: int = 4) -> list[str]:
    """A few tokens spread over the table, rather words with several synonyms than figures and names."""
    tokens = [
        token
        for token in table.tokens
        if writing(token).strip("▁Ġ").isalpha() and len(writing(token)) > 3 and len(table.synonyms(token)) > 2
    ] or table.tokens
    return tokens[:: max(1, len(tokens) // number)][:number]


def _show(args: argparse.Namespace) -> int:
    from fairseq_tn.synonyms.table import read_table
    from fairseq_tn.synonyms.vocabularies import detect_style, symbols_by_word, whole_words

    _, synonyms = read_table(args.table)
    style = detect_style(synonyms)
    if style == "gpt2-ids" and args.gpt2_encoder is None:
        raise UserError(
            f"{args.table} is a table of GPT-2 ids; give the words to them with --gpt2-encoder encoder.json"
        )
    by_word = symbols_by_word(whole_words([*synonyms], style, _gpt2_tokens(args)))
    writing = _writing([*synonyms], args)
    missing = False
    for token in args.tokens:
        symbols = [token] if token in synonyms else by_word.get(token.lower(), [])
        for symbol in symbols:
            print(f"{writing(symbol)}: {' '.join(map(writing, synonyms[symbol]))}")
        if not symbols:
            print(f"{token}: no synonyms")
            missing = True
    return 1 if missing else 0
