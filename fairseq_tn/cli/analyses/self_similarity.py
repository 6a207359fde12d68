"""``fairseq-tn analyze self-similarity``: TaCL's equation 3 by layer, and its figures."""

import argparse
import math
from collections.abc import Sequence
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
    from fairseq_tn.analysis.layer_similarity import CosineMatrix, Estimate, LayerSimilarity
    from fairseq_tn.analysis.models import AnalysedModel

# more do not fit beside each other with labels that can be read
_MATRIX_TOKENS = 64
_NORMAL_95 = 1.96
_TITLES = {
    "without_specials": "Without <s> and </s>",
    "with_specials": "With <s> and </s>",
}
_MEASURES = {
    "self_similarity": "self-similarity",
    "between_sentences": "between sentences",
    "adjusted": "adjusted",
}
_AXES = {
    "self_similarity": "self-similarity (mean cosine)",
    "between_sentences": "mean cosine between sentences",
    "adjusted": "self-similarity, adjusted",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument(
        "--text", required=True, metavar="FILE", help="UTF-8 text, one sentence a line (also gzip or bzip2)"
    )
    parser.add_argument(
        "--sentences",
        type=positive,
        default=50000,
        metavar="N",
        help="only the first N sentences (default: %(default)s)",
    )
    parser.add_argument(
        "--split-sentences", action="store_true", help="lines are paragraphs; split them into sentences"
    )
    parser.add_argument(
        "--matrix",
        nargs="+",
        action="extend",
        default=[],
        metavar="SENTENCE",
        help="draw the cosines of the tokens of this sentence, too",
    )
    parser.add_argument(
        "--matrix-sentences",
        type=not_negative,
        default=0,
        metavar="N",
        help="the same for N sentences of the text with 8 to 24 tokens, drawn at random",
    )
    parser.add_argument(
        "--layer",
        type=not_negative,
        metavar="N",
        help="layer of the matrices, 0: embeddings (default: the last)",
    )
    parser.add_argument("--matrix-specials", action="store_true", help="with <s> and </s> in the matrices")
    add_result_arguments(parser)


def run(args: argparse.Namespace) -> None:
    check_outputs(args)
    if args.matrix or args.matrix_sentences:
        if not (args.plot or args.json):
            raise UserError("the matrices are figures: give a folder for them with --plot (or --json FILE)")
    elif args.layer is not None or args.matrix_specials:
        name = "--matrix-specials" if args.layer is None else "--layer"
        raise UserError(f"{name} is for the matrices: give --matrix or --matrix-sentences too")
    if not Path(args.text).is_file() and Path(args.text).exists():
        raise UserError(f"--text {args.text} is read once for each model: give a file (not a folder or pipe)")

    from fairseq_tn.analysis.layer_similarity import choose_sentences, cosine_matrix, layer_similarity
    from fairseq_tn.analysis.models import read_sentences
    from fairseq_tn.progress import count_progress

    def sentences():
        return read_sentences(args.text, args.sentences, args.split_sentences)

    total = sum(1 for _ in sentences())  # finds bad bytes before the models are read, too
    found: list[LayerSimilarity] = []
    matrices: list[dict[str, CosineMatrix]] = []
    opened: list[dict[str, Any]] = []
    shown = list(args.matrix)
    for model in opened_models(args):
        if not found and args.matrix_sentences:
            drawn = choose_sentences(model, sentences(), args.matrix_sentences, args.seed)
            if len(drawn) < args.matrix_sentences:
                print(f"only {len(drawn)} sentences have 8 to 24 tokens, as matrices of them need\n")
            shown += drawn
        matrices = matrices or [{} for _ in shown]
        for sentence, of_models in zip(shown, matrices, strict=True):
            of_models[model.name] = cosine_matrix(
                model, sentence, args.layer, args.matrix_specials, _MATRIX_TOKENS
            )
        with count_progress(total, model.name, "sentences") as progress:
            found.append(layer_similarity(model, sentences(), args.seed, progress=progress))
        opened.append(_about(model))

    print(f"{total:,} sentences of {args.text}{' (its first)' if total == args.sentences else ''}")
    for one, about in zip(found, opened, strict=True):
        print(_counts(one, about["max_tokens"]))
    print("± is half of a 95 % interval over sentences; layer 0 is the output of the embeddings")
    for token_set, title in _TITLES.items():
        print(f"\n{title}\n{_table(found, token_set)}")
    if len(found) > 1:
        print(f"\nLast layer, less that of {found[0].name}, without <s> and </s>\n{_differences(found)}")
    for sentence, of_models in zip(shown, matrices, strict=True):
        cut = max(of_models.values(), key=lambda matrix: matrix.length)
        if cut.length > _MATRIX_TOKENS:
            print(
                f"\n{sentence[:60]!r}... has {cut.length} tokens; its matrix shows the first {_MATRIX_TOKENS}"
            )
    write_results(args, _result(args, total, found, opened, shown, matrices), _figures(args, found, matrices))


def _about(model: "AnalysedModel") -> dict[str, Any]:
    return {
        "path": str(model.path),
        "updates": model.updates,
        "max_tokens": model.max_tokens,
        "tokenizer": model.tokenizer,
    }


def _counts(one: "LayerSimilarity", max_tokens: int) -> str:
    line = f"{one.name}: {one.measured:,} sentences with {one.tokens:,} tokens"
    if one.skipped:
        line += f"; {one.skipped:,} of fewer than two tokens left out"
    if one.cut:
        line += f"; {one.cut:,} cut to the model's {max_tokens} tokens"
    return line


def _table(found: "Sequence[LayerSimilarity]", token_set: str) -> str:
    from fairseq_tn.evaluation.tables import aligned

    rows = [["model", "layer", *_MEASURES.values()]]
    for one in found:
        for layer in range(one.layers):
            cells = [_cell(one.estimate(measure, token_set, layer)) for measure in _MEASURES]
            rows.append([one.name, str(layer), *cells])
    return aligned(rows)


def _differences(found: "Sequence[LayerSimilarity]") -> str:
    from fairseq_tn.evaluation.tables import aligned

    rows = [["model", *_MEASURES.values()]]
    for one in found[1:]:
        estimates = [one.difference(found[0], measure, "without_specials", -1) for measure in _MEASURES]
        rows.append([one.name, *(_cell(estimate, "+") for estimate in estimates)])
    return aligned(rows)


def _cell(estimate: "Estimate", sign: str = "") -> str:
    if math.isnan(estimate.value):
        return "–"
    error = "–" if math.isnan(estimate.error) else f"{_NORMAL_95 * estimate.error:.4f}"
    return f"{estimate.value:{sign}.4f} ± {error}"


def _result(
    args: argparse.Namespace,
    total: int,
    found: "Sequence[LayerSimilarity]",
    opened: Sequence[dict[str, Any]],
    shown: Sequence[str],
    matrices: "Sequence[dict[str, CosineMatrix]]",
) -> dict[str, Any]:
    return {
        "kind": "self-similarity",
        "settings": {
            "text": args.text,
            "sentences": args.sentences,
            "split_sentences": args.split_sentences,
            "seed": args.seed,
        },
        "sentences": total,
        "models": {
            one.name: {
                **about,
                "sentences": one.measured,
                "tokens": one.tokens,
                "skipped": one.skipped,
                "cut": one.cut,
                "layers": {
                    token_set: [
                        {measure: _numbers(one.estimate(measure, token_set, layer)) for measure in _MEASURES}
                        for layer in range(one.layers)
                    ]
                    for token_set in _TITLES
                },
            }
            for one, about in zip(found, opened, strict=True)
        },
        "last_layer_differences": {
            one.name: {
                token_set: {
                    measure: _numbers(one.difference(found[0], measure, token_set, -1))
                    for measure in _MEASURES
                }
                for token_set in _TITLES
            }
            for one in found[1:]
        },
        "matrices": [
            {
                "sentence": sentence,
                "models": {
                    name: {
                        "layer": matrix.layer,
                        "tokens": matrix.labels,
                        "length": matrix.length,
                        "mean": matrix.mean,
                        "cosines": matrix.cosines.round(6).tolist(),
                    }
                    for name, matrix in of_models.items()
                },
            }
            for sentence, of_models in zip(shown, matrices, strict=True)
        ],
    }


def _numbers(estimate: "Estimate") -> dict[str, float | None]:
    """The estimate for JSON, which knows no nan."""
    values = {"value": estimate.value, "standard_error": estimate.error}
    return {key: None if math.isnan(value) else value for key, value in values.items()}


def _figures(
    args: argparse.Namespace,
    found: "Sequence[LayerSimilarity]",
    matrices: "Sequence[dict[str, CosineMatrix]]",
) -> dict[str, Any]:
    if not args.plot:
        return {}
    from fairseq_tn.analysis.lettering import lettering
    from fairseq_tn.analysis.plots import cosine_matrices, measures_by_layer

    figures: dict[str, Any] = {}
    for token_set, name in (
        ("without_specials", "self-similarity"),
        ("with_specials", "self-similarity-with-specials"),
    ):
        curves: dict[str, dict[str, Any]] = {}
        for measure, label in _AXES.items():
            curves[label] = {}
            for one in found:
                estimates = [one.estimate(measure, token_set, layer) for layer in range(one.layers)]
                widths = [0.0 if math.isnan(e.error) else _NORMAL_95 * e.error for e in estimates]
                curves[label][one.name] = ([e.value for e in estimates], widths)
        figures[name] = measures_by_layer(curves)
    letters = lettering(
        [
            *(one.name for one in found),
            *(label for of_models in matrices for matrix in of_models.values() for label in matrix.labels),
        ]
    )
    if letters.missing:
        print(
            f"\nno installed font has {len(letters.missing)} of the letters ({letters.missing[:10]}): such tokens and "
            "names are labelled by their number; install a font that has them (Chinese: fonts-noto-cjk)"
        )
    for number, of_models in enumerate(matrices, start=1):
        figures[f"matrix-{number}"] = cosine_matrices(of_models, letters)
    return figures
