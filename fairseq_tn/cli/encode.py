"""Write text as tokens of a vocabulary, for ``fairseq-preprocess``.

Reads UTF-8 text, one sentence a line, with a blank line between documents; or JSON lines, one document each.
"""

import argparse
import sys
from pathlib import Path

from fairseq_tn.cli.arguments import add_tokenizer_argument, add_word_arguments, chosen_encoder, positive

_MANY_UNKNOWN = 10  # per cent
_LONG_WORDS = 6  # tokens on average


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tokenizer_argument(parser)
    parser.add_argument(
        "inputs", nargs="+", metavar="INPUT", help="text or JSON lines (plain, .gz or .bz2), UTF-8"
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="PREFIX",
        help="file to write, as fairseq-preprocess --trainpref takes it; dict.txt (--srcdict) is written beside it",
    )
    parser.add_argument("--workers", type=positive, metavar="N", help="processes (default: all cores)")

    text = parser.add_argument_group("what the input holds")
    text.add_argument(
        "--field",
        metavar="NAME",
        help="read JSON lines: each object is a document, this field its text; line breaks part its sentences",
    )
    text.add_argument(
        "--split-sentences", action="store_true", help="lines are paragraphs: split them into sentences"
    )

    text.add_argument(
        "--word-boundaries",
        action="store_true",
        help="blanks part the text into words, as a segmenter's output: write how many tokens each word has to "
        "PREFIX.words, for fairseq-tn prepare words. Between Chinese (Japanese, Thai) characters these blanks are "
        "not encoded",
    )

    vocabulary = parser.add_argument_group("vocabulary")
    vocabulary.add_argument(
        "--dict",
        metavar="FILE",
        help="fairseq's dict.txt of the model; default: the one beside a SentencePiece model or encoder.json, else "
        "made from the tokenizer, else (moses, words) built from the text",
    )
    vocabulary.add_argument(
        "--threshold", type=int, metavar="N", help="a built dictionary holds words that occur N times or more"
    )
    vocabulary.add_argument(
        "--nwords",
        type=int,
        metavar="N",
        help="a built dictionary holds the N most frequent words, fairseq's four special symbols among them",
    )

    add_word_arguments(parser)


def run(args: argparse.Namespace) -> None:
    from fairseq_tn.data.encode import encode_corpus
    from fairseq_tn.data.encoders import MOSES, SUBWORD_NMT, WORDS
    from fairseq_tn.data.parallel import available_cores
    from fairseq_tn.data.streams import file_size
    from fairseq_tn.data.text import TextReader
    from fairseq_tn.errors import UserError
    from fairseq_tn.progress import bytes_progress

    if args.word_boundaries and args.tokenizer in (MOSES, SUBWORD_NMT, WORDS):
        raise UserError(
            f"--word-boundaries: the symbols of --tokenizer {args.tokenizer} show the words themselves; leave it out"
        )
    encoder = chosen_encoder(args)
    if encoder.dict_text() is not None and (args.threshold is not None or args.nwords is not None):
        raise UserError("--threshold and --nwords limit a dictionary built from the text; leave them out")
    print(encoder.describe(), file=sys.stderr)
    total = sum(map(file_size, args.inputs))
    with bytes_progress(total, "encode") as progress:
        counts = encode_corpus(
            encoder,
            args.inputs,
            args.output,
            args.workers or available_cores(),
            progress,
            TextReader(args.field, args.split_sentences),
            args.threshold or 0,
            args.nwords or 0,
            args.word_boundaries,
        )
    share = 100 * counts.unknown / max(counts.tokens, 1)
    dictionary = Path(args.output).parent / "dict.txt"
    print(
        f"{args.output}: {counts.documents:,} documents, {counts.sentences:,} sentences, {counts.tokens:,} tokens "
        f"({counts.unknown:,} <unk>, {share:.2f} %); {counts.dropped:,} lines without a token left out"
    )
    if args.word_boundaries:
        _report_words(args.output, counts.tokens, counts.words)
    if share > _MANY_UNKNOWN:
        print(
            f"warning: {share:.0f} % of the tokens are <unk>: do tokenizer, dictionary and text belong together?",
            file=sys.stderr,
        )
    print(f"{dictionary}: give it to fairseq-preprocess --srcdict")


def _report_words(output: str, tokens: int, words: int) -> None:
    length = tokens / max(words, 1)
    print(f"{output}.words: {words:,} words, {length:.2f} tokens each; for fairseq-tn prepare words")
    if tokens == words or length > _LONG_WORDS:
        found = "every word is one token" if tokens == words else f"a word has {length:.1f} tokens on average"
        print(f"warning: {found}: do blanks part the text into words?", file=sys.stderr)
