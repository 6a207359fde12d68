"""Compose the report of several training runs and their evaluation."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fairseq_tn.analysis.environment import machine, versions
from fairseq_tn.analysis.plots import require_matplotlib, similarity_by_layer, training_curves
from fairseq_tn.analysis.training_log import LOG_NAME, TrainingRun, read_run
from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.comparison import Comparison
from fairseq_tn.evaluation.document import (
    Block,
    Change,
    Code,
    Document,
    Heading,
    Plot,
    Strong,
    Table,
    Terms,
    Text,
    image_files,
    to_html,
    to_markdown,
)
from fairseq_tn.evaluation.downstream import downstream_blocks, downstream_json, downstream_latex
from fairseq_tn.evaluation.measures import best, present
from fairseq_tn.evaluation.tables import number
from fairseq_tn.files import atomic_path

IMAGES = "report_files"

# measure in the log: (title, label of the axis)
CURVES = {
    "loss": ("Loss that is minimised", "loss (bits)"),
    "mlm_loss": ("Masked LM: loss", "mlm_loss (bits)"),
    "mlm_acc": ("Masked LM: accuracy", "mlm_acc (%)"),
    "nsp_loss": ("Next sentence: loss", "nsp_loss (bits)"),
    "nsp_acc": ("Next sentence: accuracy", "nsp_acc (%)"),
    "tacl_loss": ("TaCL: loss", "tacl_loss (bits)"),
    "tacl_acc": ("TaCL: accuracy", "tacl_acc (%)"),
    "gen_loss": ("Generator: loss", "gen_loss (bits)"),
    "gen_acc": ("Generator: accuracy", "gen_acc (%)"),
    "disc_loss": ("Discriminator: loss", "disc_loss (bits)"),
    "disc_acc": ("Discriminator: accuracy", "disc_acc (%)"),
    "disc_bacc": ("Discriminator: balanced accuracy", "disc_bacc (%)"),
    "sr_loss": ("Soft regularisation", "sr_loss (1 - cosine; sentence level: bits)"),
    "emb_cos": ("Mean cosine of the embedding's rows", "emb_cos (cosine)"),
    "hc_pred": ("Hard correction: wrong predictions corrected", "hc_pred (%)"),
    "hc_seq": ("Hard correction: sequences touched", "hc_seq (%)"),
}

SETTINGS = (
    "criterion",
    "task",
    "arch",
    "data",
    "tokens_per_sample",
    "no_nsp",
    "batch_size",
    "max_tokens",
    "update_freq",
    "max_update",
    "optimizer",
    "lr",
    "lr_scheduler",
    "warmup_updates",
    "weight_decay",
    "clip_norm",
    "synonyms",
    "soft_reg_weight",
    "soft_reg_level",
    "temperature",
    "tacl_weight",
    "mlm_weight",
    "nsp_weight",
    "finetune_from_model",
    "teacher_checkpoint",
    "fp16",
    "bf16",
    "cpu",
    "distributed_world_size",
    "seed",
)


def write_report(
    runs: Sequence[str | Path],
    output: str | Path,
    evaluation: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
    title: str = "Training report",
    commands: str | None = None,
    comparison: Comparison | None = None,
) -> list[Path]:
    """Write ``report.html``, ``report.md`` and the images of the latter, and downstream results as LaTeX and JSON too.

    Args:
        runs: run folders; without any, the report is about the evaluation alone.
        output: folder to write to; other files in it stay.
        evaluation: JSON of ``fairseq-tn evaluate pretraining``.
        settings: further facts for the head of the report, such as the source of the text.
        title: heading of the report.
        commands: commands to show.
        comparison: results on downstream tasks, written to ``report.tex`` and ``report.json`` as well.

    Returns:
        The files, but for the images.

    Raises:
        UserError: nothing to report, a missing folder, an unreadable evaluation, matplotlib missing.
    """
    if not runs and evaluation is None and comparison is None:
        raise UserError("nothing to report; give run folders, --evaluation FILE or --results FILE")
    if runs or evaluation is not None:
        require_matplotlib()
    result = read_evaluation(Path(evaluation)) if evaluation is not None else None
    document = compose([read_run(run) for run in runs], result, settings or {}, title, commands, comparison)
    output = Path(output)
    # the images first: a page that is there finds its images
    for name, content in image_files(document).items():
        with atomic_path(output / IMAGES / name) as path:
            path.write_bytes(content)
    written = []
    texts = {"report.md": to_markdown(document, IMAGES), "report.html": to_html(document)}
    if comparison is not None:
        texts["report.tex"] = downstream_latex(comparison)
        texts["report.json"] = json.dumps(downstream_json(comparison), indent=2, ensure_ascii=False) + "\n"
    for name, text in texts.items():
        with atomic_path(output / name) as path:
            path.write_text(text, encoding="utf-8")
        written.append(output / name)
    return written


def read_evaluation(path: Path) -> dict[str, Any]:
    """The JSON of ``fairseq-tn evaluate pretraining``.

    Raises:
        UserError: missing, not JSON, or another kind of JSON.
    """
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--evaluation {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"--evaluation {path}: not JSON ({error})") from error
    if not isinstance(result, dict) or result.get("kind") != "pretraining":
        raise UserError(f"--evaluation {path}: not written by `fairseq-tn evaluate pretraining --json FILE`")
    return result


def compose(
    runs: Sequence[TrainingRun],
    evaluation: Mapping[str, Any] | None,
    settings: Mapping[str, str],
    title: str,
    commands: str | None = None,
    comparison: Comparison | None = None,
) -> Document:
    """The report as a document."""
    labels = _labels(runs)
    # a model and the run that it came from look the same in every plot if they have one name
    order = [*labels, *(name for name in (evaluation or {}).get("models", {}) if name not in labels)]
    document = Document(title)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    models = len(evaluation["models"]) if evaluation else 0
    document.blocks += [
        Text(f"{_contents(len(runs), models, comparison)}; written {now}."),
        *([Terms(list(settings.items()))] if settings else []),
        *(downstream_blocks(comparison) if comparison is not None else []),
        *(_evaluation(evaluation) if evaluation is not None or comparison is None else []),
        *_corrections(evaluation),
        *_training(runs, labels, order),
        *_similarity(evaluation, order),
        *_what_was_run(runs, labels, evaluation, commands),
    ]
    return document


def _labels(runs: Sequence[TrainingRun]) -> list[str]:
    """Names of the runs: their folders' names, or as much of the path as tells them apart."""
    parts = [run.folder.resolve().parts for run in runs]
    depth = 1
    while depth < max(map(len, parts), default=1) and len({p[-depth:] for p in parts}) < len({*parts}):
        depth += 1
    return ["/".join(p[-depth:]) for p in parts]


def _count(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _contents(runs: int, models: int, comparison: Comparison | None) -> str:
    parts = [_count(runs, "training run"), _count(models, "evaluated model")]
    if comparison is not None:
        fine_tuned = sum(len(row.seeds) for data_set in comparison.data_sets for row in data_set.rows)
        parts = [part for part in parts if not part.startswith("no ")] + [
            _count(fine_tuned, "fine-tuned model")
        ]
    return " and ".join(parts)


def _evaluation(evaluation: Mapping[str, Any] | None) -> list[Block]:
    blocks: list[Block] = [Heading("The models on held-out text")]
    if evaluation is None:
        return [*blocks, Text("No evaluation was given to this report.")]
    data, models = evaluation["data"], evaluation["models"]
    measures = present(models)
    winners = {measure.key: best(models, measure) for measure in measures}
    rows = []
    for name, scores in models.items():
        cells: list[str | Strong] = [name]
        for measure in measures:
            text = number(scores, measure)
            cells.append(Strong(text) if name in winners[measure.key] else text)
        rows.append(cells)
    arrows = {"high": " ↑", "low": " ↓", None: ""}
    head = ["model", *(measure.title + arrows[measure.better] for measure in measures)]
    explanations = {"high": "High is good.", "low": "Low is good.", None: ""}
    similarity = any(measure.key == "self_similarity" for measure in measures)
    single = max((scores.get("single_token_sequences", 0) for scores in models.values()), default=0)
    return [
        *blocks,
        Text(
            f"All models read the same {data['sequences']:,} sequences of up to {data['tokens_per_sample']} tokens "
            f"({'sentence pairs' if data['sentence_pairs'] else 'token blocks'}; {data['tokens']:,} tokens in all) of "
            f"the split {data['split']}, with the same {data['positions']:,} positions selected for prediction. "
            "The best values are marked where a direction is good; the marks say nothing about chance. "
            "A dash: does not apply or was not measured."
            + (
                f" {_count(single, 'sequence')} of one token left out of self-similarity."
                if similarity and single
                else ""
            )
        ),
        Table(head, rows),
        Terms([(m.title, f"{m.explanation} {explanations[m.better]}".strip()) for m in measures]),
    ]


def _corrections(evaluation: Mapping[str, Any] | None) -> list[Block]:
    if not evaluation or not evaluation.get("synonyms"):
        return []
    blocks: list[Block] = [
        Heading("Corrected predictions in context"),
        Text(
            "Wrong predictions that the synonym table lists as a synonym of the right token. The model saw a mask "
            "at the marked place; shown are the right token and what the model predicted."
        ),
    ]
    for name, examples in evaluation.get("examples", {}).items():
        blocks.append(Heading(name, 3))
        if not examples:
            blocks.append(Text("None in this text."))
        for c in examples:
            others = ", ".join(c["synonyms"][:12]) + (", …" if len(c["synonyms"]) > 12 else "")
            note = f"probability {c['probability']:.2f}; synonyms of {c['gold']}: {others}"
            blocks.append(Change(c["before"], c["gold"], c["predicted"], c["after"], note))
    return blocks


def _training(runs: Sequence[TrainingRun], labels: Sequence[str], order: Sequence[str]) -> list[Block]:
    if not runs:
        return []
    rows = [
        [
            label,
            f"{run.updates:,}",
            "–" if run.seconds is None else f"{run.seconds:,.0f}",
            "–" if run.tokens is None else f"{run.tokens:,}",
            "–" if run.tokens_per_second is None else f"{run.tokens_per_second:,.0f}",
            "–" if run.trained_parameters is None else f"{run.trained_parameters:,}",
            f"{run.starts}",
            "yes" if run.finished else "no",
        ]
        for label, run in zip(labels, runs, strict=True)
    ]
    head = ["run", "updates", "seconds", "tokens", "tokens/s", "trained parameters", "starts", "finished"]
    blocks: list[Block] = [
        Heading("Training"),
        Table(head, rows),
        Text(
            "Seconds: from the first update to the end, validation and saving included, over all starts of a run. "
            "Tokens/s: the median of fairseq's wps over the log intervals, so that those pauses do not count; it and "
            "the number of tokens count what the task counts (here: real tokens, no padding)."
        ),
    ]
    remarks = [
        (label, "; ".join(run.remarks)) for label, run in zip(labels, runs, strict=True) if run.remarks
    ]
    if remarks:
        blocks.append(Terms(remarks))
    splits = sorted(
        {split for run in runs for split, _ in run.curves} - {"train"}, key=lambda s: (s != "valid", s)
    )
    validation = splits[0] if splits else "valid"
    drawn: list[Block] = []
    for metric, (title, axis) in CURVES.items():
        curves = {
            label: (run.curves.get(("train", metric), {}), run.curves.get((validation, metric), {}))
            for label, run in zip(labels, runs, strict=True)
        }
        curves = {label: pair for label, pair in curves.items() if any(pair)}
        if curves:
            drawn.append(Plot(f"curve_{metric}", title, training_curves(curves, axis, order)))
    if drawn:
        blocks += [
            Heading("Training curves", 3),
            Text(
                f"Thin lines: training (mean over a log interval). Thick lines with marks: validation on {validation}. "
                "What is minimised differs from run to run: the first plot does not compare them."
            ),
            *drawn,
        ]
    return blocks


def _similarity(evaluation: Mapping[str, Any] | None, order: Sequence[str]) -> list[Block]:
    if not evaluation:
        return []
    values = {
        name: [float("nan") if v is None else v for v in scores["self_similarity"]]
        for name, scores in evaluation["models"].items()
        if scores.get("self_similarity")
    }
    if not values:
        return []
    figure = similarity_by_layer(values, order)
    caption = (
        "Mean cosine between two different tokens of a sequence, layer by layer; layer 0: the embeddings"
    )
    return [Heading("Self-similarity by layer"), Plot("self_similarity", caption, figure)]


def _what_was_run(
    runs: Sequence[TrainingRun],
    labels: Sequence[str],
    evaluation: Mapping[str, Any] | None,
    commands: str | None,
) -> list[Block]:
    blocks: list[Block] = [Heading("What was run")]
    if commands:
        blocks += [Heading("Commands", 3), Code(commands.strip())]
    for label, run in zip(labels, runs, strict=True):
        if run.command and not commands:
            blocks += [Heading(f"Command of {label}", 3), Code(run.command)]
    configured = [(label, run) for label, run in zip(labels, runs, strict=True) if run.settings]
    if configured:
        rows = []
        for option in SETTINGS:
            values = [_setting(run, option) for _, run in configured]
            if any(value not in ("", "None") for value in values):
                rows.append([option, *("–" if value in ("", "None") else value for value in values)])
        blocks += [
            Heading("Settings", 3),
            Table(["option", *(label for label, _ in configured)], rows, numeric=False),
        ]
    elif runs:
        blocks.append(Text(f"The settings of the runs are not in their {LOG_NAME}."))
    if evaluation:
        data = evaluation["data"]
        files = [(name, scores["checkpoint"]) for name, scores in evaluation["models"].items()]
        facts = [("data", data["folder"]), ("vocabulary", f"{data['vocabulary']:,} symbols")]
        facts += [(key, str(evaluation[key])) for key in ("synonyms", "teacher") if evaluation.get(key)]
        blocks += [Heading("Evaluation", 3), Terms([*facts, *files])]
        sizes = [
            [split, *(f"{size[key]:,}" for key in ("documents", "sentences", "tokens"))]
            for split, size in data.get("corpora", {}).items()
        ]
        if sizes:
            blocks += [Heading("Data", 3), Table(["split", "documents", "sentences", "tokens"], sizes)]
    # the evaluation knows the GPU, and the results of the table are its own
    where = "of the evaluation" if evaluation else "of this report"
    used = evaluation or {"versions": versions(), "machine": machine()}
    blocks += [
        Heading(f"Versions and machine {where}", 3),
        Terms([*used["versions"].items(), *used["machine"].items()]),
    ]
    return blocks


def _setting(run: TrainingRun, option: str) -> str:
    """The value of an option in the logged configuration, as a user would write it."""
    section = run.settings.get({"arch": "model"}.get(option, option))
    value: Any = section.get("_name") if isinstance(section, dict) else run.setting(option)
    if option == "arch":
        # from the command line the architecture's name stands beside the model's
        value = section.get("arch") or value if isinstance(section, dict) else run.setting("arch")
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
