"""Write text as tokens of a vocabulary, for ``fairseq-preprocess``.

Reads UTF-8 text, one sentence a line, with a blank line between documents.
"""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="FOLDER|vocab.txt|tokenizer.json",
        help="WordPiece vocabulary of a BERT model: its Hugging Face folder or one of these files",
    )
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="text file (plain, .gz or .bz2), UTF-8")
    parser.add_argument(
        "--output",
        required=True,
        metavar="PREFIX",
        help="file to write, as fairseq-preprocess --trainpref takes it; dict.txt (--srcdict) is written beside it",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: all cores)")


def run(args: argparse.Namespace) -> None:
    from fairseq_tn.data.encode import encode_corpus, load_encoder
    from fairseq_tn.data.parallel import available_cores
    from fairseq_tn.data.streams import file_size
    from fairseq_tn.progress import bytes_progress

    encoder = load_encoder(args.tokenizer)
    print(encoder.describe(), file=sys.stderr)
    total = sum(map(file_size, args.inputs))
    with bytes_progress(total, "encode") as progress:
        counts = encode_corpus(encoder, args.inputs, args.output, args.workers or available_cores(), progress)
    share = 100 * counts.unknown / max(counts.tokens, 1)
    print(
        f"{args.output}: {counts.documents:,} documents, {counts.sentences:,} sentences, {counts.tokens:,} tokens "
        f"({counts.unknown:,} <unk>, {share:.2f} %); {counts.dropped:,} lines without a token left out"
    )
    print(f"{Path(args.output).parent / 'dict.txt'}: give it to fairseq-preprocess --srcdict")
