"""Build, show and compare synonym tables."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms import MIN_COSINE, NEIGHBOURS

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

    vectors = build.add_argument_group("--source vectors and --source model")
    vectors.add_argument(
        "--vectors", metavar="FILE", help="word2vec (text or binary), GloVe or fastText's .vec, plain or gzip"
    )
    vectors.add_argument("--checkpoint", metavar="FILE", help="the model whose input embedding is taken")
    vectors.add_argument(
        "--neighbours", metavar="K", type=int, help=f"most synonyms of a word (default: {NEIGHBOURS})"
    )
    vectors.add_argument(
        "--min-cosine", metavar="C", type=float, help=f"least cosine of a synonym (default: {MIN_COSINE:g})"
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

    compare = actions.add_parser(
        "compare",
        help="print what two tables have in common",
        description="Print the sizes and the overlap of two tables, and examples of what only one of them holds.",
    )
    compare.add_argument("first", metavar="A", help="a table")
    compare.add_argument("second", metavar="B", help="another, of the same vocabulary")
    _add_gpt2_encoder(compare)


def _add_gpt2_encoder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpt2-encoder", metavar="FILE", help="GPT-2's encoder.json, for a vocabulary of GPT-2 ids (RoBERTa)"
    )


def run(args: argparse.Namespace) -> int:
    return {"build": _build, "show": _show, "compare": _compare}[args.action](args)


def _from_wordnet(args: argparse.Namespace, symbols: list[str]) -> "SynonymTable":
    from fairseq_tn.synonyms.wordnet import build_from_wordnet

    return build_from_wordnet(
        symbols,
        wordnet=args.wordnet,
        exact_lemmas=args.exact_lemmas,
        gpt2_tokens=_gpt2_tokens(args),
        progress=sys.stderr.isatty(),
    )


def _from_vectors(args: argparse.Namespace, symbols: list[str]) -> "SynonymTable":
    from fairseq_tn.synonyms.vectors import build_from_vectors

    return build_from_vectors(symbols, args.vectors, **_vector_options(args))


def _from_model(args: argparse.Namespace, symbols: list[str]) -> "SynonymTable":
    from fairseq_tn.synonyms.vectors import build_from_model

    return build_from_model(symbols, args.checkpoint, **_vector_options(args))


def _vector_options(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "neighbours": NEIGHBOURS if args.neighbours is None else args.neighbours,
        "min_cosine": MIN_COSINE if args.min_cosine is None else args.min_cosine,
        "gpt2_tokens": _gpt2_tokens(args),
        "progress": sys.stderr.isatty(),
    }


def _gpt2_tokens(args: argparse.Namespace) -> dict[str, str] | None:
    from fairseq_tn.synonyms.vocabularies import read_gpt2_tokens

    return None if args.gpt2_encoder is None else read_gpt2_tokens(args.gpt2_encoder)


SOURCES: dict[str, Callable[[argparse.Namespace, list[str]], "SynonymTable"]] = {
    "model": _from_model,
    "vectors": _from_vectors,
    "wordnet": _from_wordnet,
}
# the options of each source; the first is needed, unless it is WordNet's
SOURCE_OPTIONS = {
    "model": ("checkpoint", "neighbours", "min_cosine"),
    "vectors": ("vectors", "neighbours", "min_cosine"),
    "wordnet": ("wordnet", "exact_lemmas"),
}


def _check_source_options(args: argparse.Namespace) -> None:
    own = SOURCE_OPTIONS[args.source]
    for name in dict.fromkeys(name for names in SOURCE_OPTIONS.values() for name in names):
        option = "--" + name.replace("_", "-")
        if name not in own and getattr(args, name) not in (None, False):
            raise UserError(f"{option} means nothing to --source {args.source}; leave it out")
    if args.source != "wordnet" and getattr(args, own[0]) is None:
        raise UserError(f"--source {args.source} needs --{own[0]} FILE")


def _build(args: argparse.Namespace) -> int:
    from fairseq_tn.synonyms.vocabularies import read_symbols

    _check_source_options(args)
    if Path(args.output).is_dir():
        raise UserError(f"--output {args.output} is a folder; name a file")
    if Path(args.output).exists() and Path(args.vocab).exists() and Path(args.output).samefile(args.vocab):
        raise UserError(f"--output {args.output} is the vocabulary itself; name another file")
    symbols = read_symbols(args.vocab)
    table = SOURCES[args.source](args, symbols)
    if not len(table):
        remedy = (
            "is it a vocabulary of another language?" if args.source == "wordnet" else "lower --min-cosine"
        )
        raise UserError(
            f"no token of {args.vocab} has a synonym in {table.header['source']} "
            f"({table.header['options']}); {remedy}"
        )
    table.save(args.output)
    share = 100 * len(table) / len(symbols)
    print(f"{table.header['source']} ({table.header['options']})")
    if "words" in table.header:
        print(f"of the vocabulary's words, {table.header['words']}")
    print(
        f"{len(table):,} of {len(symbols):,} tokens ({share:.1f} %) have synonyms, {table.num_pairs:,} pairs"
    )
    print("for example")
    writing = _writing(table.tokens, args)
    for token in _examples({token: table.synonyms(token) for token in table.tokens}, writing):
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


def _examples(synonyms: Mapping[str, list[str]], writing: Callable[[str], str], number: int = 4) -> list[str]:
    """A few tokens spread over the table, rather words with several synonyms than figures and names."""
    tokens = [
        token
        for token, others in synonyms.items()
        if writing(token).strip("▁Ġ").isalpha() and len(writing(token)) > 3 and len(others) > 2
    ] or [*synonyms]
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


def _compare(args: argparse.Namespace) -> int:
    from fairseq_tn.synonyms.comparison import compare_tables
    from fairseq_tn.synonyms.table import read_table

    paths = (args.first, args.second)
    (first_header, first), (second_header, second) = map(read_table, paths)
    digests = [header.get("vocabulary") for header in (first_header, second_header)]
    if None not in digests and digests[0] != digests[1]:
        print(
            f"fairseq-tn synonyms: warning: {args.first} and {args.second} were made for different vocabularies",
            file=sys.stderr,
        )
    result = compare_tables(first, second)
    for letter, path, header in zip("AB", paths, (first_header, second_header), strict=True):
        options = f" ({header['options']})" if "options" in header else ""
        print(f"{letter}: {path}, {header.get('source', 'unknown source')}{options}")
    print(f"{'':9}{'A':>11}{'B':>11}{'both':>11}{'only A':>11}{'only B':>11}{'Jaccard':>9}")
    for name, overlap in (("tokens", result.tokens), ("pairs", result.pairs)):
        numbers = (
            overlap.first,
            overlap.second,
            overlap.both,
            overlap.first - overlap.both,
            overlap.second - overlap.both,
        )
        print(
            f"{name:9}" + "".join(f"{number:11,}" for number in numbers) + f"{100 * overlap.jaccard:7.1f} %"
        )
    writing = _writing([*first, *second], args)
    for letter, only in (("A", result.only_first), ("B", result.only_second)):
        if only:
            print(f"pairs only in {letter}, for example")
            for token in _examples(only, writing):
                print(f"  {writing(token)}: {' '.join(map(writing, only[token][:8]))}")
    return 0
