"""The tables of downstream results in all their forms."""

import json

import numpy as np
import pytest
from small_results import files, result, scores

from fairseq_tn.cli import main
from fairseq_tn.evaluation.comparison import compare
from fairseq_tn.evaluation.document import Strong, Table
from fairseq_tn.evaluation.downstream import downstream_blocks, downstream_json, downstream_latex
from fairseq_tn.evaluation.glue_averages import AVERAGES
from fairseq_tn.evaluation.published import PUBLISHED
from fairseq_tn.evaluation.results import write_result

EVIL = r"a_b & 50% <b>|\x"
RESULTS = files(
    result("mt", 1, scores(1, 1, 0, 0)),
    result("mt", 2, scores(1, 0, 0, 0)),
    result(EVIL, 1, scores(1, 1, 1, 0)),
    result(
        "mt",
        1,
        scores(1, 0),
        task="SQuAD 2.0",
        kind="squad",
        examples="s",
        metrics={"accuracy": 50, "f1": 50},
    ),
)


def tables(comparison):
    return [block for block in downstream_blocks(comparison) if isinstance(block, Table)]


def test_overview_and_details():
    overview, rte, squad = tables(compare(RESULTS, "mt", 100))
    assert overview.head == ["method", "RTE, valid (accuracy)", "SQuAD 2.0, valid (accuracy)"]
    assert overview.rows[:2] == [["mt (baseline)", "37.50 ± 17.68", "50.00"], [EVIL, Strong("75.00"), "–"]]
    assert [row[0] for row in overview.rows[2:]] == [f"{one.method} (published)" for one in PUBLISHED]
    # only what the papers have of these columns
    assert [row[1:] for row in overview.rows[2:]] == [["66.40", "–"], *[["–", "–"]] * 3]
    mt, evil, bert = rte.rows
    assert bert == ["BERT-base (published)", "–", "66.40", *["–"] * 5]
    assert mt == ["mt", "2", "37.50", "17.68", "50.00", "–", "–", "–"]
    assert evil[:6] == [EVIL, "1", Strong("75.00"), "–", "75.00", "+37.50"]
    # of another metric the paper's figures stand beside
    assert squad.rows[1][:1] + squad.rows[1][5:6] == ["BERT-base (published)", "76.80"]
    assert all(len(row) == len(table.head) for table in (overview, rte, squad) for row in table.rows)


def test_without_a_baseline():
    _, rte, _ = tables(compare(RESULTS))
    assert rte.head == ["method", "seeds", "mean accuracy", "deviation", "best"]


def test_a_chinese_data_set_has_its_published_figures():
    table = tables(
        compare(
            files(result("mt", 1, {"correct": [1], "predicted": [2], "gold": [1]}, "f1", task="Weibo NER"))
        )
    )
    assert [row[2] for row in table[1].rows] == ["66.67", "68.20", "69.54"]
    (tacl,) = (one for one in PUBLISHED if one.method.endswith("TaCL"))
    assert tacl.value("SQuAD 2.0", "f1") == 77.5
    assert tacl.value("weibo", "f1") == 69.54
    assert tacl.value("Weibonese", "f1") is None
    assert tacl.value("SQuAD 1.1", "spearman") is None


def glue(missing=()):
    """A result of each task; the metrics are told apart by their values."""
    metrics = {
        "CoLA": {"matthews": 10, "accuracy": 11},
        "SST-2": {"accuracy": 20},
        "MRPC": {"accuracy": 30, "f1": 31},
        "STS-B": {"spearman": 40, "pearson": 41},
        "QQP": {"accuracy": 50, "f1": 51},
        "MNLI": {"accuracy": 60, "accuracy_mismatched": 62},
        "QNLI": {"accuracy": 70},
        "RTE": {"accuracy": 80},
        "WNLI": {"accuracy": 90},
    }
    return {task: values for task, values in metrics.items() if task not in missing}


def test_averages_by_hand():
    bert, electra, leaderboard = (average.of(glue()) for average in AVERAGES)
    assert bert == pytest.approx((10 + 20 + 31 + 40 + 51 + 60 + 62 + 70 + 80) / 9)
    assert electra == pytest.approx((10 + 20 + 30 + 40 + 50 + 60 + 70 + 80) / 8)
    assert leaderboard == pytest.approx((10 + 20 + 30.5 + 40.5 + 50.5 + 61 + 70 + 80 + 90) / 9)
    assert [average.of(glue(["WNLI"])) is None for average in AVERAGES] == [False, False, True]
    assert all(average.of(glue(["RTE"])) is None for average in AVERAGES)


def test_berts_own_table_has_its_average():
    """The figures of BERT-base in Table 1 of Devlin et al. (2019), whose average is 79.6."""
    row = PUBLISHED[0]
    tasks = {task: {metric: row.value(task, metric) for metric in values} for task, values in glue().items()}
    assert sum(value is not None for values in tasks.values() for value in values.values()) == 9
    assert round(AVERAGES[0].of(tasks), 1) == 79.6 == row.value("GLUE", "average")
    assert "Devlin" in row.source


def test_averages_stand_beside_the_published_one():
    results = []
    for task, metrics in glue(["WNLI"]).items():
        main_metric = next(iter(metrics))
        share = metrics[main_metric] / 100
        name = main_metric if main_metric in ("matthews", "spearman") else "mean"
        columns = scores(*[share] * 4)
        if name != "mean":
            # a correlation of this size
            columns = {"gold": [0, 0, 1, 1], "prediction": [0, 0, 1, 1]}
            metrics = metrics | {main_metric: 100.0}
        results.append(result("mt", 1, columns, name, task=task, examples=task, metrics=metrics))
    overview = tables(compare(files(*results)))[0]
    assert overview.head[-2:] == ["average (BERT, TaCL)", "average (ELECTRA)"]
    assert [row[-2:] for row in overview.rows[1:3]] == [["79.60", "–"], ["81.20", "–"]]
    assert overview.rows[0][-1] == f"{(100 + 20 + 30 + 100 + 50 + 60 + 70 + 80) / 8:.2f}"


def test_latex():
    text = downstream_latex(compare(RESULTS, "mt", 100))
    assert r"a\_b \& 50\% <b>|\textbackslash{}x & \textbf{75.00} & --" in text
    assert r"37.50 $\pm$ 17.68" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3
    assert "half a point" in text


def test_json_is_unrounded():
    content = json.loads(json.dumps(downstream_json(compare(RESULTS, "mt", 100))))
    (mt, evil), _ = (one["rows"] for one in content["data_sets"])
    assert mt["deviation"] == pytest.approx(np.std([50, 25], ddof=1))
    assert evil["difference"]["value"] == 37.5
    assert content["resamples"] == 100


def test_json_has_the_published_figures():
    bert, tacl, *_ = json.loads(json.dumps(downstream_json(compare(RESULTS))))["published"]
    assert (bert["method"], tacl["method"]) == ("BERT-base", "BERT-base + TaCL")
    assert {"task": "SQuAD 2.0", "metric": "f1", "value": 77.5} in tacl["values"]
    assert {"task": "RTE", "metric": "accuracy", "value": 66.4} in bert["values"]
    assert "TaCL" in tacl["source"]


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    paths = []
    for path, one in RESULTS.items():
        write_result(tmp_path / path, one)
        paths.append(str(tmp_path / path))
    return paths


def test_command_writes_four_forms(written, tmp_path, capsys):
    output = tmp_path / "report"
    assert main(["report", "--results", *written, "--baseline", "mt", "--output", str(output)]) == 0
    names = ["report.md", "report.html", "report.tex", "report.json"]
    assert sorted(path.name for path in output.iterdir()) == sorted(names)
    assert capsys.readouterr().out.split() == [str(output / name) for name in names]
    markdown, page = (output / "report.md").read_text(), (output / "report.html").read_text()
    for text in (markdown, page):
        assert "half a point" in text
        assert "37.50 ± 17.68" in text
        assert "4 fine-tuned models" in text
        assert "Downstream results" in text
        assert "average of GLUE: 81.2" in text
        assert "No evaluation was given" not in text
    assert "<b>|" not in page
    assert json.loads((output / "report.json").read_text())["baseline"] == "mt"


def test_command_refuses(written, tmp_path, capsys):
    output = ["--output", str(tmp_path / "report")]
    assert main(["report", "--results", *written, "--baseline", "bert", *output]) == 1
    assert "--baseline bert is none" in capsys.readouterr().err
    assert main(["report", "--baseline", "mt", *output]) == 1
    assert "--baseline is a method of --results" in capsys.readouterr().err
    (tmp_path / "0.json").write_text("{")
    assert main(["report", "--results", *written, *output]) == 1
    assert "0.json is broken JSON" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
