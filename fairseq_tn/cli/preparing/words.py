"""``fairseq-tn prepare words``: the word boundaries of encoded text, beside the binarised data."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trainpref",
        metavar="PREFIX",
        help="what fairseq-preprocess was given: the file that fairseq-tn encode --word-boundaries wrote, which has "
        "PREFIX.words beside it; several, separated by commas, are the splits train, train1, ...",
    )
    for split in ("valid", "test"):
        parser.add_argument(f"--{split}pref", metavar="PREFIX", help=f"the same for {split}")
    parser.add_argument(
        "--destdir",
        required=True,
        metavar="FOLDER",
        help="the data folder that fairseq-preprocess wrote; train.words.bin and .idx appear beside train.bin",
    )


def run(args: argparse.Namespace) -> None:
    import os

    from fairseq_tn.data.segmented_text import WORDS
    from fairseq_tn.data.streams import file_size
    from fairseq_tn.data.word_boundaries import write_boundaries
    from fairseq_tn.errors import UserError
    from fairseq_tn.progress import bytes_progress

    given = {split: getattr(args, f"{split}pref") for split in ("train", "valid", "test")}
    splits = {
        split + (str(number) if number else ""): prefix + WORDS
        for split, prefixes in given.items()
        if prefixes is not None
        for number, prefix in enumerate(prefixes.split(","))
    }
    if not splits:
        raise UserError("give --trainpref, --validpref or --testpref, as to fairseq-preprocess")
    for words in splits.values():
        if not os.path.exists(words):
            raise UserError(f"{words} is missing: fairseq-tn encode writes it with --word-boundaries")
    for split, words in splits.items():
        path = os.path.join(args.destdir, split)
        with bytes_progress(file_size(words), f"prepare {split}") as progress:
            number, tokens = write_boundaries(words, path, progress)
        print(f"{path}{WORDS}.bin: {number:,} words, {tokens:,} tokens")
    print(f"{args.destdir}: give --mask-whole-words to fairseq-train; it finds them")
