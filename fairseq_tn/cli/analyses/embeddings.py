"""``fairseq-tn analyze embeddings``: mean cosine, effective rank, principal components, neighbours."""

import argparse
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
    from fairseq_tn.analysis.embeddings import Geometry

_SETS = {"ordinary": "ordinary rows", "all": "all rows"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, tokenizer=False, runs=True)
    parser.add_argument(
        "--words",
        nargs="+",
        action="extend",
        default=[],
        metavar="WORD",
        help="show the nearest neighbours of these (default: of words drawn at random)",
    )
    parser.add_argument(
        "--sample",
        type=not_negative,
        default=8,
        metavar="N",
        help="how many words to draw, without --words (default: %(default)s)",
    )
    parser.add_argument(
        "--neighbours",
        type=positive,
        default=6,
        metavar="K",
        help="neighbours of each word (default: %(default)s)",
    )
    parser.add_argument(
        "--gpt2-encoder", metavar="FILE", help="GPT-2's encoder.json, for a vocabulary of its ids"
    )
    add_result_arguments(parser)


def run(args: argparse.Namespace) -> None:
    check_outputs(args)

    import numpy as np

    from fairseq_tn.analysis.embeddings import embedding_rows, geometry, neighbours, token_of_word
    from fairseq_tn.analysis.models import model_sources, with_runs_expanded
    from fairseq_tn.synonyms.vocabularies import (
        detect_style,
        read_gpt2_tokens,
        whole_words,
        words_with_letters,
    )

    gpt2_tokens = read_gpt2_tokens(args.gpt2_encoder) if args.gpt2_encoder else None
    models = with_runs_expanded(model_sources(args.model, dictionaries=args.dict))
    sources = [source for _, source in models]
    series = {source.name: name for name, source in models}
    last = {name: source.name for name, source in models}  # of each series
    found: dict[str, dict[str, Geometry]] = {}
    about: dict[str, dict[str, Any]] = {}
    near: dict[str, dict[str, list[tuple[str, float]] | None]] = {}
    asked = list(args.words)
    unnamed = False
    for model in opened_models(args, with_tokenizer=False, sources=sources, check=embedding_rows):
        embedding, ordinary = embedding_rows(model)
        found[model.name] = {"ordinary": geometry(embedding[ordinary]), "all": geometry(embedding)}
        about[model.name] = {
            "path": str(model.path),
            "series": series[model.name],
            "updates": model.updates,
        }
        if model.name not in last.values():
            continue
        symbols = model.dictionary.symbols
        if gpt2_tokens is None and detect_style(symbols) == "gpt2-ids":
            unnamed = True
            continue
        words = whole_words(symbols, gpt2_tokens=gpt2_tokens)
        if not asked and args.sample:
            candidates = list(dict.fromkeys(words_with_letters(words).values()))
            drawn = np.random.default_rng(args.seed).permutation(len(candidates))[: args.sample]
            asked = [candidates[place] for place in sorted(drawn.tolist())]
        places = {word: token_of_word(word, symbols, words) for word in asked}
        known = {word: place for word, place in places.items() if place is not None}
        lists = neighbours(embedding, list(known.values()), ordinary, args.neighbours)
        shown = {
            word: [(_label(symbols[other], gpt2_tokens), cosine) for other, cosine in row]
            for word, row in zip(known, lists, strict=True)
        }
        near[model.name] = {word: shown.get(word) for word in asked}
    for word in args.words:
        if near and all(rows[word] is None for rows in near.values()):
            raise UserError(f"--words {word}: no model has it as a single token; give another word")

    print(_table(found, about))
    if unnamed:
        print("\nno neighbours: the vocabulary holds GPT-2 ids; name their tokens with --gpt2-encoder")
    if near and asked:
        print(f"\nNearest rows by cosine\n{_neighbour_table(near, asked)}")
    result = {
        "kind": "embeddings",
        "settings": {"seed": args.seed, "neighbours": args.neighbours},
        "models": {
            name: {
                **about[name],
                "rows": {key: _numbers(one) for key, one in sets.items()},
                "neighbours": near.get(name, {}),
            }
            for name, sets in found.items()
        },
    }
    write_results(args, result, _figures(args, found, about, list(last.values())))


def _label(symbol: str, gpt2_tokens: dict[str, str] | None) -> str:
    return symbol if gpt2_tokens is None else gpt2_tokens.get(symbol, symbol)


def _table(found: "dict[str, dict[str, Geometry]]", about: dict[str, dict[str, Any]]) -> str:
    from fairseq_tn.evaluation.tables import aligned

    first = next(iter(found.values()))["ordinary"]
    components = [f"{number} comp. (%)" for number in first.variance]
    rows = [["model", "rows", "updates", "number", "width", "mean cosine", "effective rank", *components]]
    for name, sets in found.items():
        for key, title in _SETS.items():
            one, updates = sets[key], about[name]["updates"]
            rows.append(
                [
                    name,
                    title.removesuffix(" rows"),
                    "–" if updates is None else f"{updates:,}",
                    f"{one.rows:,}",
                    str(one.width),
                    "–" if one.mean_cosine is None else f"{one.mean_cosine:.4f}",
                    f"{one.effective_rank:.1f}",
                    *(f"{share:.2f}" for share in one.variance.values()),
                ]
            )
    note = (
        "ordinary: without specials, [unused] and madeupword rows; comp.: share of the variance that so many principal "
        "components explain"
    )
    return f"{aligned(rows, left=2)}\n{note}"


def _neighbour_table(near: "dict[str, dict[str, list[tuple[str, float]] | None]]", asked: list[str]) -> str:
    from fairseq_tn.evaluation.tables import aligned

    rows = []
    for word in asked:
        for name, shown in near.items():
            row = shown[word]
            text = "–" if row is None else "  ".join(f"{other} {cosine:.2f}" for other, cosine in row)
            rows.append([word, name, text])
    return aligned(rows, left=3)


def _numbers(one: "Geometry") -> dict[str, Any]:
    return {
        "number": one.rows,
        "width": one.width,
        "mean_cosine": one.mean_cosine,
        "effective_rank": one.effective_rank,
        "variance": {str(number): share for number, share in one.variance.items()},
        "singular_values": one.singular_values.tolist(),
    }


def _figures(
    args: argparse.Namespace,
    found: "dict[str, dict[str, Geometry]]",
    about: dict[str, dict[str, Any]],
    last: list[str],
) -> dict[str, Any]:
    if not args.plot:
        return {}
    from fairseq_tn.analysis.plots import measures_over_training, spectra

    figures: dict[str, Any] = {
        "embedding-spectrum": spectra(
            {name: found[name]["ordinary"].singular_values.tolist() for name in last}
        )
    }
    curves: dict[str, dict[str, dict[int, tuple[float, float, float]]]] = {}
    for name, sets in found.items():
        values = {
            "mean cosine of two rows": sets["ordinary"].mean_cosine,
            "effective rank": sets["ordinary"].effective_rank,
        }
        for label, value in values.items():
            if value is not None and about[name]["updates"] is not None:
                runs = curves.setdefault(label, {})
                runs.setdefault(about[name]["series"], {})[about[name]["updates"]] = (value,) * 3
    # colours in the order of the models, curves in that of the updates
    curves = {
        label: {name: dict(sorted(curve.items())) for name, curve in runs.items()}
        for label, runs in curves.items()
    }
    if any(len(curve) > 1 for runs in curves.values() for curve in runs.values()):
        figures["embedding-training"] = measures_over_training(curves, from_zero=False)
    return figures
