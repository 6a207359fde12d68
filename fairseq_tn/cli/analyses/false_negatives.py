"""``fairseq-tn analyze false-negatives``: table 2 of True Negatives, for any model and over training."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_tn.cli.analyses.common import (
    add_model_arguments,
    add_result_arguments,
    check_outputs,
    opened_models,
    write_results,
)
from fairseq_tn.cli.arguments import add_held_out_arguments, positive
from fairseq_tn.errors import UserError

if TYPE_CHECKING:
    from fairseq_tn.analysis.false_negatives import Difference, FalseNegatives, Grouping, Rate
    from fairseq_tn.analysis.models import AnalysedModel, ModelSource

_PART, _FREQUENCY = "part of speech", "frequency"
_RATES = {
    "prediction_level": "% of wrong predictions",
    "sequence_level": "% of sequences",
}
_PAPER = "paper: BERT-base"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, tokenizer=False, runs=True)
    parser.add_argument("--data", required=True, metavar="FOLDER", help="folder of fairseq-preprocess")
    parser.add_argument("--synonyms", required=True, metavar="FILE", help="synonym table")
    parser.add_argument(
        "--allow-vocabulary-mismatch",
        action="store_true",
        help="accept a --synonyms table of another vocabulary",
    )
    add_held_out_arguments(parser)
    parser.add_argument(
        "--wordnet",
        metavar="FOLDER",
        help="WordNet's files or NLTK's folder, for the parts of speech (default: where it is installed)",
    )
    parser.add_argument(
        "--gpt2-encoder", metavar="FILE", help="GPT-2's encoder.json, for a vocabulary of its ids"
    )
    parser.add_argument(
        "--bins", type=positive, default=5, metavar="N", help="groups of frequency (default: %(default)s)"
    )
    parser.add_argument(
        "--resamples",
        type=positive,
        default=1000,
        metavar="N",
        help="of the bootstrap, for the intervals (default: %(default)s)",
    )
    add_result_arguments(parser)


@dataclass(frozen=True)
class _Found:
    """A model's rates; ``series`` is the name of the run that it is a checkpoint of, or its own."""

    name: str
    series: str
    path: str
    updates: int | None
    accuracy: float | None
    rates: "FalseNegatives"


def run(args: argparse.Namespace) -> None:
    check_outputs(args)

    from fairseq_tn.analysis.false_negatives import false_negatives, predict
    from fairseq_tn.analysis.held_out import checkpoint_facts, held_out_task, sequence_length
    from fairseq_tn.analysis.models import model_sources, with_runs_expanded
    from fairseq_tn.progress import count_progress
    from fairseq_tn.synonyms.table import SynonymTable

    models = with_runs_expanded(model_sources(args.model, dictionaries=args.dict))
    facts = [checkpoint_facts(source.path) for _, source in models if source.path.is_file()]
    length = sequence_length(facts, args.tokens_per_sample)
    nsp = not args.no_nsp and any(one.uses_nsp for one in facts)
    task = held_out_task(args.data, args.split, length, nsp, args.seed)
    dataset, symbols = task.dataset(args.split), task.source_dictionary.symbols
    table = SynonymTable.load(args.synonyms, symbols, allow_mismatch=args.allow_vocabulary_mismatch)
    wordnet, gpt2_tokens = _parts_of_speech(args, symbols)

    def check(model: "AnalysedModel") -> None:
        model.check_lm_head()
        if model.dictionary.symbols != symbols:
            raise UserError(
                f"{model.name} has another vocabulary ({len(model.dictionary):,} symbols) than the data {args.data} "
                f"({len(symbols):,}); compare models of one vocabulary, on data binarised with their dict.txt"
            )
        if length > model.max_tokens:
            raise UserError(
                f"--tokens-per-sample {length} is more than the {model.max_tokens} positions of {model.path}"
            )

    found: list[_Found] = []
    groupings: dict[str, Grouping] = {}
    counted = ""
    number = len(dataset) if args.limit is None else min(args.limit, len(dataset))
    sources: list[ModelSource] = [source for _, source in models]
    series = {source.name: name for name, source in models}
    for model in opened_models(args, with_tokenizer=False, sources=sources, check=check):
        with count_progress(number, model.name, "sequences") as progress:
            predictions = predict(model, dataset, table, args.limit, args.batch_size, progress)
        if not groupings:
            groupings, counted = _groupings(args, task, predictions.gold, wordnet, gpt2_tokens, number)
        rates = false_negatives(predictions, groupings, args.resamples, args.seed)
        right = (~predictions.wrong).mean() if len(predictions.gold) else None
        found.append(
            _Found(
                name=model.name,
                series=series[model.name],
                path=str(model.path),
                updates=model.updates,
                accuracy=None if right is None else 100 * float(right),
                rates=rates,
            )
        )
        positions = len(predictions.gold)
    found = _in_order(found)
    last = _last_of_each(found)

    print(
        f"{number:,} sequences of {args.data}, split {args.split}: "
        f"{'sentence pairs' if nsp else 'token blocks'} of at most {length} tokens, {positions:,} masked positions"
    )
    print(f"synonyms: {args.synonyms}, {len(table):,} tokens, {table.num_pairs:,} pairs")
    print("in brackets: 95 % intervals of the bootstrap over sequences\n")
    print(_main_table(found))
    if len(last) > 1:
        print(f"\nLess {last[0].name}, in percentage points\n{_differences(last)}")
    if wordnet is None:
        print("\nno parts of speech: WordNet is not installed (or give its folder with --wordnet)")
    for name, grouping in groupings.items():
        text = "part of speech (WordNet)" if name == _PART else f"frequency in {counted}"
        print(f"\nPrediction level by {text} of the right token (%)\n{_group_table(last, name, grouping)}")
    write_results(
        args,
        _result(args, found, last, nsp, length, number, positions, counted, table.header),
        _figures(args, found, last),
    )


def _parts_of_speech(args: argparse.Namespace, symbols: Sequence[str]) -> tuple[Any, Any]:
    """WordNet and what the ids of GPT-2 stand for; None where there is none."""
    from fairseq_tn.synonyms.vocabularies import detect_style, read_gpt2_tokens
    from fairseq_tn.synonyms.wordnet import find_wordnet, locate_wordnet

    if args.wordnet is None and locate_wordnet() is None:
        return None, None
    tokens = read_gpt2_tokens(args.gpt2_encoder) if args.gpt2_encoder else None
    if tokens is None and detect_style(symbols) == "gpt2-ids":
        raise UserError(
            "this vocabulary holds GPT-2 ids, which have no part of speech; name their tokens with --gpt2-encoder "
            "encoder.json"
        )
    return find_wordnet(args.wordnet, download=False), tokens


def _groupings(
    args: argparse.Namespace, task: Any, gold: Any, wordnet: Any, gpt2_tokens: Any, number: int
) -> "tuple[dict[str, Grouping], str]":
    """The groups of positions, and the text that frequencies were counted in."""
    from fairseq_tn.analysis.false_negatives import by_frequency, by_part_of_speech, token_counts
    from fairseq_tn.data.corpus import Corpus
    from fairseq_tn.progress import count_progress

    symbols = task.source_dictionary.symbols
    groupings = {}
    if wordnet is not None:
        groupings[_PART] = by_part_of_speech(gold, symbols, wordnet, gpt2_tokens)
    train = Path(args.data.split(":")[0]) / "train"
    if train.with_suffix(".idx").is_file():
        corpus, counted = Corpus(str(train), task.source_dictionary), "the training text"
        with count_progress(int(corpus.sizes.sum()), "counting", "tokens") as progress:
            counts = corpus.counts(progress)
    else:
        counted = "the evaluated text"
        counts = token_counts(task.dataset(args.split), range(number), len(symbols))
    groupings[_FREQUENCY] = by_frequency(gold, counts, args.bins)
    return groupings, counted


def _in_order(found: "list[_Found]") -> "list[_Found]":
    """Series in the order of their first model, each by its updates."""
    series = list(dict.fromkeys(one.series for one in found))
    return sorted(found, key=lambda one: (series.index(one.series), one.updates or 0))


def _last_of_each(found: "list[_Found]") -> "list[_Found]":
    """The last model of each series."""
    return list({one.series: one for one in found}.values())


def _main_table(found: "list[_Found]") -> str:
    from fairseq_tn.analysis.false_negatives import PAPER
    from fairseq_tn.evaluation.tables import aligned

    rows = [["model", "updates", "of the run", "right (%)", "wrong", "false neg.", "prediction level (%)"]]
    rows[0] += ["sequence level (%)"]
    ends = {one.series: one.updates for one in found}
    for one in found:
        several = sum(other.series == one.series for other in found) > 1
        share = (
            f"{100 * one.updates / end:.4g} %"
            if several and one.updates and (end := ends[one.series])
            else "–"
        )
        rate = one.rates.prediction_level
        rows.append(
            [
                one.name,
                "–" if one.updates is None else f"{one.updates:,}",
                share,
                "–" if one.accuracy is None else f"{one.accuracy:.2f}",
                f"{rate.of:,}",
                f"{rate.found:,}",
                _cell(rate),
                _cell(one.rates.sequence_level),
            ]
        )
    paper = [f"{PAPER[rate]:.2f}{' ' * 15}" for rate in _RATES]
    rows.append([f"{_PAPER} (table 2)", "–", "100 %", "–", "–", "–", *paper])
    return aligned(rows)


def _cell(rate: "Rate | Difference", sign: str = "") -> str:
    if rate.value is None:
        return "–"
    interval = "" if rate.low is None else f" [{rate.low:{sign}.2f}, {rate.high:{sign}.2f}]"
    # + 0.0: a small negative number is rounded to 0, not to -0
    return f"{round(rate.value, 2) + 0.0:{sign}.2f}{interval:>15}"


def _differences(last: "list[_Found]") -> str:
    from fairseq_tn.analysis.false_negatives import differences
    from fairseq_tn.evaluation.tables import aligned

    rows = [["model", "prediction level", "sequence level"]]
    for one in last[1:]:
        rows.append([one.name, *(_cell(d, "+") for d in differences(one.rates, last[0].rates))])
    return aligned(rows)


def _group_table(last: "list[_Found]", name: str, grouping: "Grouping") -> str:
    from fairseq_tn.evaluation.tables import aligned

    rows = [["model", "group", "positions", "wrong", "false neg.", "prediction level (%)"]]
    for one in last:
        for number, label in enumerate(grouping.labels):
            rate = one.rates.groups[name][label]
            positions = int((grouping.group == number).sum())
            rows.append([one.name, label, f"{positions:,}", f"{rate.of:,}", f"{rate.found:,}", _cell(rate)])
    return aligned(rows, left=2)


def _result(
    args: argparse.Namespace,
    found: "list[_Found]",
    last: "list[_Found]",
    nsp: bool,
    length: int,
    number: int,
    positions: int,
    counted: str,
    header: dict[str, str],
) -> dict[str, Any]:
    from fairseq_tn.analysis.false_negatives import PAPER, PAPER_SOURCE, differences

    return {
        "kind": "false-negatives",
        "settings": {
            "data": args.data,
            "split": args.split,
            "synonyms": args.synonyms,
            "table": header,
            "sentence_pairs": nsp,
            "tokens_per_sample": length,
            "limit": args.limit,
            "resamples": args.resamples,
            "seed": args.seed,
            "frequency_in": counted,
        },
        "sequences": number,
        "positions": positions,
        "paper": {**PAPER, "source": PAPER_SOURCE},
        "models": {
            one.name: {
                "path": one.path,
                "series": one.series,
                "updates": one.updates,
                "mlm_acc": one.accuracy,
                "prediction_level": asdict(one.rates.prediction_level),
                "sequence_level": asdict(one.rates.sequence_level),
                "groups": {
                    name: {label: asdict(rate) for label, rate in rates.items()}
                    for name, rates in one.rates.groups.items()
                },
            }
            for one in found
        },
        "differences": {
            one.name: dict(
                zip(_RATES, map(asdict, differences(one.rates, last[0].rates)), strict=True),
                less=last[0].name,
            )
            for one in last[1:]
        },
    }


def _figures(args: argparse.Namespace, found: "list[_Found]", last: "list[_Found]") -> dict[str, Any]:
    if not args.plot:
        return {}
    from fairseq_tn.analysis.false_negatives import PAPER
    from fairseq_tn.analysis.plots import measures_over_training, rates_by_group

    figures: dict[str, Any] = {}
    curves: dict[str, dict[str, dict[int, tuple[float, float, float]]]] = {}
    for key, label in _RATES.items():
        curves[label] = {}
        for one in found:
            if (point := _point(getattr(one.rates, key))) and one.updates is not None:
                curves[label].setdefault(one.series, {})[one.updates] = point
    if any(len(curve) > 1 for runs in curves.values() for curve in runs.values()):
        references = {label: (PAPER[key], f"{_PAPER}, end") for key, label in _RATES.items()}
        figures["false-negatives-training"] = measures_over_training(curves, references)
    groups = {
        name: {
            one.name: {
                label: point for label, rate in one.rates.groups[name].items() if (point := _point(rate))
            }
            for one in last
        }
        for name in last[0].rates.groups
    }
    figures["false-negatives-groups"] = rates_by_group(
        {f"{name} of the right token": models for name, models in groups.items()},
        _RATES["prediction_level"],
        (PAPER["prediction_level"], f"{_PAPER}, all tokens"),
    )
    return figures


def _point(rate: "Rate") -> tuple[float, float, float] | None:
    if rate.value is None:
        return None
    if rate.low is None or rate.high is None:
        return (rate.value,) * 3
    return rate.value, rate.low, rate.high
