"""Transform a SQuAD file to test robustness: swap synonyms, or add sentences that look like answers.

Each action writes the transformed file and, beside it, the original of the same questions. ``fairseq-tn evaluate squad
--pairs`` compares a model on both.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_tn.cli.arguments import positive
from fairseq_tn.errors import UserError

if TYPE_CHECKING:
    from fairseq_tn.evaluation.robustness.squad_pairs import SquadFile
    from fairseq_tn.synonyms.relations import Relations


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1, not {text}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    swap = actions.add_parser(
        "swap-synonyms",
        help="replace words of contexts by synonyms of WordNet",
        description="Replace words of contexts by WordNet's synonyms of the same part of speech, inflected alike. "
        "Answers, their words and the names in questions stay.",
    )
    _add_files(swap)
    swap.add_argument(
        "--share",
        type=_share,
        default=0.1,
        metavar="X",
        help="of a context's words to replace, as far as there are words with fitting synonyms; one at least "
        "(default: %(default)s)",
    )
    swap.add_argument(
        "--max-words", type=positive, metavar="N", help="most words of a context (default: any number)"
    )

    add = actions.add_parser(
        "add-sentence-diverse",
        help="add a sentence to each context that looks like an answer to its question",
        description="Add a sentence to each context: its question about something else, as a statement with a fake "
        "answer of the same kind, at a random place. Every question gets a context of its own.",
    )
    _add_files(add)
    add.add_argument(
        "--vectors",
        metavar="FILE",
        help="word vectors (word2vec, GloVe or fastText's .vec, plain or gzip): change words for near ones by them "
        "(default: for WordNet's concepts next to their own)",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN.json", help="a SQuAD 1.1 or 2.0 file with answers, in English")
    parser.add_argument("output", metavar="OUT.json", help="the transformed file to write")
    parser.add_argument(
        "--original",
        metavar="FILE",
        help="write the original of the same questions here (default: OUT.original.json)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of all choices (default: %(default)s)"
    )
    parser.add_argument(
        "--wordnet", metavar="FOLDER", help="WordNet's files; by default found, or downloaded by NLTK"
    )


def run(args: argparse.Namespace) -> None:
    from fairseq_tn.evaluation.robustness.language import load_pipeline
    from fairseq_tn.evaluation.robustness.squad_pairs import read_for_transformation
    from fairseq_tn.synonyms.relations import Relations
    from fairseq_tn.synonyms.wordnet import find_wordnet

    original = Path(args.original) if args.original else _beside(Path(args.output))
    if len({path.resolve() for path in (Path(args.input), Path(args.output), original)}) < 3:
        raise UserError("IN.json, OUT.json and --original must be three files; give other names")
    for path in (Path(args.output), original):
        if path.is_dir():
            raise UserError(f"{path} is a folder; give the name of a file")
    file = read_for_transformation(args.input)
    load_pipeline()
    relations = Relations(find_wordnet(args.wordnet))
    (_swap if args.action == "swap-synonyms" else _add)(args, file, relations, original)


def _beside(output: Path) -> Path:
    return output.with_name(f"{output.name.removesuffix('.json')}.original.json")


def _swap(args: argparse.Namespace, file: "SquadFile", relations: "Relations", original: Path) -> None:
    from fairseq_tn.evaluation.robustness.squad_pairs import write_pairs
    from fairseq_tn.evaluation.robustness.synonym_swaps import SynonymSwapper
    from fairseq_tn.progress import count_progress

    with count_progress(0, "swap synonyms", "characters") as progress:
        pairs, counts = SynonymSwapper(relations, args.share, args.max_words, args.seed).transform(
            file, progress
        )
    _refuse_nothing(pairs, counts.foreign, args.input)
    write_pairs(file, pairs, args.output, original)
    print(
        f"{counts.transformed:,} of {counts.contexts:,} contexts, {counts.questions:,} questions "
        f"({counts.unanswerable:,} unanswerable): {counts.swapped:,} of {counts.words:,} words replaced"
    )
    _report(
        {
            "contexts without a fitting synonym": counts.ineligible,
            "contexts not in English": counts.foreign,
            "questions with an answer that is not at its answer_start": counts.misplaced,
        }
    )
    print(f"written: {args.output}, {original}")


def _add(args: argparse.Namespace, file: "SquadFile", relations: "Relations", original: Path) -> None:
    from fairseq_tn.evaluation.robustness.distractors import DistractorAdder
    from fairseq_tn.evaluation.robustness.near_words import NearWords
    from fairseq_tn.evaluation.robustness.question_changes import QuestionChanger
    from fairseq_tn.evaluation.robustness.squad_pairs import write_pairs
    from fairseq_tn.progress import count_progress

    vectors = NearWords.read(args.vectors, relations, sys.stderr.isatty()) if args.vectors else None
    with count_progress(0, "add sentences", "characters") as progress:
        adder = DistractorAdder(QuestionChanger(relations, vectors), args.seed)
        pairs, counts = adder.transform(file, progress)
    _refuse_nothing(pairs, counts.foreign, args.input)
    write_pairs(file, pairs, args.output, original)
    print(
        f"{counts.turned:,} of {counts.questions:,} questions ({counts.unanswerable:,} unanswerable), in "
        f"{counts.contexts:,} of {len(file.paragraphs):,} contexts: a sentence added to each"
    )
    patterns = ", ".join(f"{name} {number:,}" for name, number in counts.patterns.most_common())
    print(f"forms: {patterns}")
    _report(
        {f"questions {reason}": number for reason, number in counts.not_turned.most_common()}
        | {
            "questions with a context that is not in English": counts.foreign,
            "questions with an answer that is not at its answer_start": counts.misplaced,
        }
    )
    print(f"written: {args.output}, {original}")


def _report(left_out: dict[str, int]) -> None:
    for what, number in left_out.items():
        if number:
            print(f"left out: {number:,} {what}")


def _refuse_nothing(pairs: list, foreign: int, path: str) -> None:
    if not pairs:
        why = "no context is in English" if foreign else "there is nothing that the rules can change"
        raise UserError(f"{path}: {why}; nothing is written")
