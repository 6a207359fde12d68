"""``fairseq-tn analyze corrections``: the sentences of figure 3 of True Negatives, for any model and text."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_tn.cli.analyses.common import (
    add_model_arguments,
    add_result_arguments,
    check_outputs,
    opened_models,
    write_results,
)
from fairseq_tn.cli.arguments import not_negative, positive
from fairseq_tn.errors import UserError

if TYPE_CHECKING:
    from fairseq_tn.analysis.corrections import Corrections, Example, MaskedToken
    from fairseq_tn.evaluation.document import Document

_VERDICTS = ("right", "corrected", "wrong")
_EXPLANATIONS = (
    ("✓ right", "The model's first choice is the token that stood there."),
    (
        "≈ corrected: synonym",
        "The first choice is another token, which the table lists as a synonym of the right one: hard correction "
        "leaves the position out of the loss.",
    ),
    ("✗ wrong", "The first choice is any other token."),
)
_SHOWN_SYNONYMS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--synonyms", required=True, metavar="FILE", help="synonym table")
    parser.add_argument(
        "--allow-vocabulary-mismatch",
        action="store_true",
        help="accept a --synonyms table of another vocabulary",
    )
    parser.add_argument(
        "--text", required=True, metavar="FILE", help="UTF-8 text, one sentence a line (also gzip or bzip2)"
    )
    parser.add_argument(
        "--sentences",
        type=positive,
        default=1000,
        metavar="N",
        help="only the first N sentences (default: %(default)s)",
    )
    parser.add_argument(
        "--split-sentences", action="store_true", help="lines are paragraphs; split them into sentences"
    )
    parser.add_argument(
        "--examples",
        type=not_negative,
        default=10,
        metavar="N",
        help="sentences to show, drawn at random (default: %(default)s)",
    )
    parser.add_argument(
        "--verdict",
        choices=[*_VERDICTS, "any"],
        default="corrected",
        help="only sentences with such a token (default: %(default)s)",
    )
    add_result_arguments(parser, plot=False)
    parser.add_argument("--jsonl", metavar="FILE", help="write the sentences to this file, one a line")
    parser.add_argument("--html", metavar="FILE", help="write a web page with the sentences")


def run(args: argparse.Namespace) -> None:
    check_outputs(args)
    for option in ("jsonl", "html"):
        if (file := getattr(args, option)) and Path(file).is_dir():
            raise UserError(f"--{option} {file} is a folder; give the name of a file")

    from fairseq_tn.analysis.corrections import find_corrections
    from fairseq_tn.analysis.models import model_sources, read_sentences
    from fairseq_tn.progress import count_progress
    from fairseq_tn.synonyms.table import SynonymTable

    if not Path(args.text).is_file() and Path(args.text).exists():
        raise UserError(f"--text {args.text} is read more than once: give a file (not a folder or pipe)")

    def sentences():
        return read_sentences(args.text, args.sentences, args.split_sentences)

    total = sum(1 for _ in sentences())
    sources = model_sources(args.model, args.tokenizer, args.dict)

    def load(model: Any) -> SynonymTable:
        model.check_lm_head()
        return SynonymTable.load(
            args.synonyms, model.dictionary, allow_mismatch=args.allow_vocabulary_mismatch
        )

    found: dict[str, Corrections] = {}
    paths: dict[str, str] = {}
    verdict = None if args.verdict == "any" else args.verdict
    for model in opened_models(args, sources=sources, check=load):
        table = load(model)
        with count_progress(total, model.name, "sentences") as progress:
            found[model.name] = find_corrections(
                model, sentences(), table, args.examples, args.seed, verdict, progress=progress
            )
        paths[model.name] = str(model.path)
    for number, (name, one) in enumerate(found.items()):
        print(("\n" if number else "") + "\n".join(_text(name, one, verdict)))
    if args.jsonl:
        _write(args.jsonl, "".join(_json_lines(found)))
    if args.html:
        from fairseq_tn.evaluation.document import to_html

        _write(args.html, to_html(_document(args, found, verdict)))
    write_results(args, _result(args, found, paths))
    for file in filter(None, (args.jsonl, args.html)):
        print(f"written: {file}")


def _write(file: str, text: str) -> None:
    from fairseq_tn.files import atomic_path

    with atomic_path(file) as path:
        path.write_text(text, encoding="utf-8")


def _summary(one: "Corrections") -> list[str]:
    masked = sum(one.verdicts.values())
    wrong = masked - one.verdicts["right"]
    lines = [
        f"{one.sentences:,} sentences, {masked:,} masked tokens: {one.verdicts['right']:,} right, "
        f"{one.verdicts['corrected']:,} corrected, {one.verdicts['wrong']:,} wrong"
    ]
    if wrong:
        lines.append(
            f"corrected: {100 * one.verdicts['corrected'] / wrong:.2f} % of the wrong predictions, in "
            f"{100 * one.touched / one.sentences:.2f} % of the sentences"
        )
    if one.skipped:
        lines.append(f"{one.skipped:,} sentences without a token that can be masked")
    if one.cut:
        lines.append(f"{one.cut:,} sentences cut to the model's length")
    return lines


def _drawn(one: "Corrections", verdict: str | None) -> str:
    kind = "sentences" if verdict is None else f"sentences with a {verdict} prediction"
    return f"shown: {len(one.examples):,} of {one.fitting:,} {kind}"


def _named(verdict: str) -> str:
    return "corrected: synonym" if verdict == "corrected" else verdict


def _text(name: str, one: "Corrections", verdict: str | None) -> list[str]:
    from fairseq_tn.evaluation.tables import aligned

    lines = [f"{name}: {line}" if number == 0 else line for number, line in enumerate(_summary(one))]
    lines.append(_drawn(one, verdict))
    for example in one.examples:
        lines += ["", f"[{example.sentence}] {_marked(example)}"]
        rows = [
            ["right token", "prediction", "probability", "verdict", "synonyms of the right token"],
            *(
                [
                    token.gold,
                    token.predicted,
                    f"{token.probability:.2f}",
                    _named(token.verdict),
                    _synonyms(token),
                ]
                for token in example.masked
            ),
        ]
        lines += ["    " + line for line in aligned(rows, left=5).splitlines()]
    return lines


def _marked(example: "Example") -> str:
    """The sentence with ``[right -> predicted]`` at masked tokens, ``[right]`` where the prediction is it."""
    written = list(example.written)
    for token in example.masked:
        piece = written[token.position]
        space = piece[: len(piece) - len(piece.lstrip())]
        change = token.gold if token.verdict == "right" else f"{token.gold} -> {token.predicted}"
        written[token.position] = f"{space}[{change}]"
    return "".join(written).strip()


def _synonyms(token: "MaskedToken") -> str:
    """The synonyms that there is room for, the predicted one always among them."""
    shown = token.synonyms[:_SHOWN_SYNONYMS]
    if token.verdict == "corrected" and token.predicted not in shown:
        shown[-1] = token.predicted
    more = len(token.synonyms) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")


def _json_lines(found: "dict[str, Corrections]") -> list[str]:
    lines = []
    for name, one in found.items():
        for example in one.examples:
            content = {
                "model": name,
                "sentence": example.sentence,
                "text": example.text,
                "masked": [asdict(token) for token in example.masked],
            }
            lines.append(json.dumps(content, ensure_ascii=False) + "\n")
    return lines


def _result(
    args: argparse.Namespace, found: "dict[str, Corrections]", paths: dict[str, str]
) -> dict[str, Any]:
    return {
        "kind": "corrections",
        "settings": {
            "text": args.text,
            "synonyms": args.synonyms,
            "sentences": args.sentences,
            "split_sentences": args.split_sentences,
            "verdict": args.verdict,
            "seed": args.seed,
        },
        "models": {name: {"path": paths[name], **asdict(one)} for name, one in found.items()},
    }


def _document(args: argparse.Namespace, found: "dict[str, Corrections]", verdict: str | None) -> "Document":
    from fairseq_tn.evaluation.document import Document, Heading, Passage, Strong, Table, Terms, Text

    document = Document("What hard correction does")
    document.blocks += [
        Text(
            f"15 % of the tokens of each sentence of {Path(args.text).name} were masked, and the model predicted them. "
            f"Synonyms: {Path(args.synonyms).name}; seed {args.seed}."
        ),
        Terms(_EXPLANATIONS),
    ]
    for name, one in found.items():
        document.blocks += [
            Heading(name),
            *map(Text, [*_summary(one), _drawn(one, verdict)]),
        ]
        for example in one.examples:
            document.blocks += [
                Heading(f"Sentence {example.sentence:,}", level=3),
                Passage(_parts(example)),
                Table(
                    ["right token", "prediction", "probability", "verdict", "synonyms of the right token"],
                    [
                        [
                            token.gold,
                            token.predicted,
                            f"{token.probability:.2f}",
                            Strong(_named(token.verdict)) if token.verdict == "corrected" else token.verdict,
                            _synonyms(token) or "–",
                        ]
                        for token in example.masked
                    ],
                    numeric=False,
                ),
            ]
    return document


def _parts(example: "Example") -> Sequence[Any]:
    from fairseq_tn.evaluation.document import Mark

    kinds: Any = {"right": "good", "corrected": "near", "wrong": "bad"}
    masked = {token.position: token for token in example.masked}
    parts: list[Any] = []
    for position, piece in enumerate(example.written):
        token = masked.get(position)
        if token is None:
            parts.append(piece)
            continue
        parts.append(piece[: len(piece) - len(piece.lstrip())])
        note = f"{_named(token.verdict)}, probability {token.probability:.2f}"
        parts.append(Mark(kinds[token.verdict], token.gold, token.predicted, note))
    return parts
