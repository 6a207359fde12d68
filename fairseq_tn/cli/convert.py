"""Convert checkpoints from and to Hugging Face."""

import argparse
from pathlib import Path

from fairseq_tn.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    directions = parser.add_subparsers(dest="direction", metavar="DIRECTION", required=True)

    text = (
        "Hugging Face folder (BERT, RoBERTa, XLM-R, ELECTRA) -> dict.txt, model.pt (fairseq checkpoint), hf/"
    )
    command = directions.add_parser("from-hf", help=text, description=text)
    command.add_argument("folder", type=Path, metavar="FOLDER", help="a Hugging Face model's folder on disk")
    command.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where to write")
    command.add_argument("--seed", type=int, default=1, help="for what FOLDER lacks (default: 1)")
    electra = command.add_argument_group("ELECTRA, where FOLDER holds the discriminator or a generator alone")
    electra.add_argument(
        "--generator",
        type=Path,
        metavar="FOLDER",
        help="the generator's folder (default: generator/ in FOLDER, if there is one; else initial values)",
    )
    electra.add_argument(
        "--embeddings",
        choices=("discriminator", "generator"),
        help="whose embeddings to take for both halves if they differ (default: refuse)",
    )
    electra.add_argument(
        "--generator-size",
        type=float,
        metavar="SHARE",
        help="width of a generator of initial values / width of the discriminator (default: the architecture's)",
    )

    text = "fairseq checkpoint of tn_bert, tn_electra or roberta -> Hugging Face folder"
    command = directions.add_parser("to-hf", help=text, description=text)
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a .pt file of fairseq-train")
    command.add_argument("--dict", type=Path, required=True, metavar="dict.txt", help="its vocabulary")
    command.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where to write")
    command.add_argument(
        "--like",
        type=Path,
        metavar="FOLDER",
        help="folder with the tokenizer and config.json (default: hf/ beside dict.txt or the checkpoint); for a "
        "RoBERTa that was trained from nothing, the folder with GPT-2's encoder.json and vocab.bpe does",
    )
    command.add_argument(
        "--architecture",
        metavar="CLASS",
        help="class of transformers to write, which says which heads: BertForPreTraining, BertForMaskedLM, BertModel, "
        "RobertaForMaskedLM, RobertaModel, ElectraForPreTraining, ElectraForMaskedLM or ElectraModel (default: all "
        "heads; transformers lists those that the class which loads them has no use for; ELECTRA: the discriminator in "
        "FOLDER and the generator in FOLDER/generator)",
    )
    command.add_argument(
        "--dtype", choices=("float32", "float16", "bfloat16"), default="float32", help="default: float32"
    )


def run(args: argparse.Namespace) -> None:
    import fairseq_tn

    fairseq_tn.register()
    try:
        if args.direction == "from-hf":
            _from_hf(args)
        else:
            _to_hf(args)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"{error.filename or args.output}: {error.strerror or error}") from None


def _from_hf(args: argparse.Namespace) -> None:
    from fairseq_tn.convert.from_hf import DICTIONARY_FILE, ORIGINAL_FOLDER, convert_from_hf

    done = convert_from_hf(
        args.folder, args.output, args.seed, args.generator, args.embeddings, args.generator_size
    )
    (checkpoint,) = done.written
    _report(
        done.notes,
        f"{checkpoint.parameters:,} parameters written to {checkpoint.path}; beside it {DICTIONARY_FILE} and "
        f"{ORIGINAL_FOLDER}/",
        "options for fairseq-train: " + " ".join(done.options),
    )


def _to_hf(args: argparse.Namespace) -> None:
    from fairseq_tn.convert.roberta_vocabulary import hugging_face_tokenizer
    from fairseq_tn.convert.to_hf import convert_to_hf, find_like

    like = args.like or find_like(args.checkpoint, args.dict)
    with hugging_face_tokenizer(like, args.dict) as folder:
        done = convert_to_hf(args.checkpoint, args.dict, args.output, folder, args.architecture, args.dtype)
    _report(
        done.notes,
        *(
            f"{one.parameters:,} parameters written to {one.path} ({one.architecture}, {args.dtype}); read again, they "
            "give the checkpoint's outputs"
            for one in done.written
        ),
    )


def _report(notes: list[str], *lines: str) -> None:
    print("\n".join([*(f"note: {note}" for note in notes), *lines]))
