"""Train an uncased WordPiece vocabulary on text, for models that start from scratch; needs the extra ``hf``.

python examples/electra/train_vocabulary.py work/text/train.txt --size 30522 --output work/vocab.txt
"""

import argparse
from pathlib import Path

from fairseq_tn.files import atomic_path


def main() -> None:
    """Write ``vocab.txt``, the special tokens first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="+", type=Path, help="UTF-8 text")
    parser.add_argument("--size", type=int, default=30522, help="tokens in all (default: %(default)s)")
    parser.add_argument(
        "--characters",
        type=int,
        default=200,
        help="characters at most, the most frequent ones (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, required=True, help="the vocab.txt to write")
    args = parser.parse_args()
    for path in args.text:
        if not (path.is_file() and path.stat().st_size):
            parser.error(f"{path}: no such file, or it is empty")
    try:
        from tokenizers import BertWordPieceTokenizer
    except ImportError:
        parser.error("needs the tokenizers library: pip install 'fairseq_tn[hf]'")
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train(
        [str(path) for path in args.text],
        vocab_size=args.size,
        limit_alphabet=args.characters,
        show_progress=False,
    )
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    with atomic_path(args.output) as path:
        path.write_text("".join(f"{token}\n" for token, _ in tokens), encoding="utf-8")
    print(f"{args.output}: {len(tokens):,} tokens")


if __name__ == "__main__":
    main()
