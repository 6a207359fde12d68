"""Types of command-line values, and options, that several subcommands share."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairseq_tn.data.encode import Encoder


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {value}")
    return value


def not_negative(text: str) -> int:
    """A whole number of 0 or more."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, not {value}")
    return value


def add_tokenizer_argument(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """``--tokenizer``; a command that has it takes ``--dict``, in words of its own, and the options below too."""
    parser.add_argument(
        "--tokenizer",
        required=required,
        metavar="PATH|NAME",
        help="a BERT model's Hugging Face folder, vocab.txt or tokenizer.json (WordPiece); a SentencePiece "
        "FILE.model; a folder with GPT-2's encoder.json and vocab.bpe (RoBERTa); moses (plain words, lower-cased); "
        "words (plain words, text tokenised already); subword-nmt (BPE codes, text tokenised already)",
    )


def add_dict_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--dict``, which may be made from the tokenizer."""
    parser.add_argument(
        "--dict",
        metavar="FILE",
        help="fairseq's dict.txt of the model; default: the one beside a SentencePiece model or encoder.json, else "
        "made from the tokenizer",
    )


def add_word_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the tokenizers that split text into words."""
    words = parser.add_argument_group("--tokenizer moses or subword-nmt")
    words.add_argument("--language", metavar="CODE", help="language of Moses' rules (default: en)")
    words.add_argument("--keep-case", action="store_true", help="do not lower-case Moses' words")
    words.add_argument(
        "--codes", metavar="FILE", help="BPE codes of subword-nmt learn-bpe; with moses, for its words"
    )
    words.add_argument(
        "--vocabulary",
        metavar="FILE",
        help="output of subword-nmt get-vocab: undo merges that give other symbols; dict.txt if there is no --dict",
    )
    words.add_argument(
        "--vocabulary-threshold", type=int, metavar="N", help="rarer symbols of --vocabulary do not count"
    )


def chosen_encoder(args: argparse.Namespace) -> "Encoder":
    """The encoder that the options name; UserError if there is none."""
    from fairseq_tn.data.encoders import EncoderOptions, load_encoder

    return load_encoder(
        args.tokenizer,
        EncoderOptions(
            args.dict, args.language, args.keep_case, args.codes, args.vocabulary, args.vocabulary_threshold
        ),
    )


def add_held_out_arguments(parser: argparse.ArgumentParser) -> None:
    """``--split --tokens-per-sample --no-nsp --batch-size --limit``: how held-out data are read."""
    parser.add_argument("--split", default="valid", help="split of the data (default: %(default)s)")
    parser.add_argument(
        "--tokens-per-sample",
        type=positive,
        metavar="N",
        help="longest sequence in tokens (default: the shortest that a checkpoint was trained with)",
    )
    parser.add_argument(
        "--no-nsp",
        action="store_true",
        help="token blocks instead of sentence pairs (default: pairs if a checkpoint was trained with them)",
    )
    parser.add_argument(
        "--batch-size",
        "--max-sentences",
        type=positive,
        default=32,
        metavar="N",
        help="sequences read at once; changes time and memory only (default: %(default)s)",
    )
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="only the first N sequences (default: all)"
    )
