import json
import re
import sys

import pytest

from fairseq_tn.cli import main

EVIL = "<img src=x onerror=alert(1)> & | `c`"


def write_run(folder, criterion="bert_pretraining", finished=True, extra=()):
    folder.mkdir(parents=True)
    lines = [
        "{'_name': None, 'common': {'_name': None, 'seed': 3}, 'criterion': "
        f"{{'_name': '{criterion}', 'tacl_weight': 1.5}}, 'optimization': {{'lr': [0.5], 'max_update': 30}}}}",
        "num. shared model params: 4,193 (num. trained: 4,001)",
    ]
    for step in (10, 20, 30):
        values = {
            "loss": 9 - step / 10,
            "mlm_loss": 8 - step / 10,
            "wps": 1234,
            "wpb": 100,
            "num_updates": step,
        }
        values |= dict.fromkeys(extra, step)
        lines.append(json.dumps({"epoch": 1, **{key: str(value) for key, value in values.items()}}))
    lines.append(json.dumps({"epoch": 1, "valid_mlm_loss": "5.5", "valid_num_updates": "30"}))
    if finished:
        lines.append("done training in 77.7 seconds")
    (folder / "train.log").write_text("\n".join(lines))
    (folder / "command.txt").write_text(f"fairseq-train data --criterion {criterion}")
    return folder


def write_evaluation(path, **changes):
    scores = {"checkpoint": "a.pt", "mlm_loss": 6.0, "mlm_acc": 20.0, "self_similarity": [0.1, 0.41]}
    example = {
        "before": EVIL,
        "gold": "began",
        "predicted": "started",
        "probability": 0.25,
        "after": "to run",
    }
    result = {
        "kind": "pretraining",
        "versions": {"torch": "2.x"},
        "machine": {"cores": "2"},
        "data": {
            "folder": "data",
            "split": "valid",
            "sentence_pairs": True,
            "tokens_per_sample": 64,
            "vocabulary": 100,
            "sequences": 10,
            "tokens": 640,
            "positions": 90,
            "corpora": {"train": {"documents": 7, "sentences": 71, "tokens": 4242}},
        },
        "synonyms": "synonyms.txt",
        "teacher": None,
        "models": {
            "mt": scores,
            "other": {**scores, "mlm_loss": 5.0, "nsp_acc": 61.5, "self_similarity": []},
        },
        "examples": {"mt": [{**example, "synonyms": ["started", "start"]}], "other": []},
        **changes,
    }
    path.write_text(json.dumps(result), encoding="utf-8")
    return path


def report(tmp_path, *options):
    status = main(["report", *map(str, options), "--output", str(tmp_path / "out")])
    assert status == 0
    return tuple(
        (tmp_path / "out" / name).read_text(encoding="utf-8") for name in ("report.html", "report.md")
    )


def test_the_whole_report(tmp_path, capsys):
    runs = [write_run(tmp_path / "mt"), write_run(tmp_path / "tacl", "tacl_contrastive", extra=["tacl_loss"])]
    evaluation = write_evaluation(tmp_path / "eval.json")
    html, markdown = report(
        tmp_path, *runs, "--evaluation", evaluation, "--settings", f"text={EVIL}", "steps=30", "--title", EVIL
    )
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "out" / f"report.{end}") for end in ("md", "html")
    ]
    assert "<img" not in html
    assert "<img" not in markdown
    for text in (html, markdown):
        for word in (
            "61.50",
            "0.4100",
            "1,234",
            "3,000",
            "4,001",
            "4,242",
            "tacl_contrastive",
            "Self-similarity",
        ):
            assert word in text, word
        assert text.count("fairseq-train data --criterion") == 2
    assert html.count("<svg") == 4  # loss, mlm_loss, tacl_loss, self-similarity
    assert '<td class="best">5.000</td>' in html
    assert "| **5.000** |" in markdown
    assert "**began** → **started**" in markdown
    images = re.findall(r"\]\(([^)]*\.png)\)", markdown)
    assert len(images) == 4
    for image in images:
        assert (tmp_path / "out" / image).read_bytes().startswith(b"\x89PNG")


def test_the_page_asks_no_other_host(tmp_path):
    html, _ = report(
        tmp_path, write_run(tmp_path / "mt"), "--evaluation", write_evaluation(tmp_path / "e.json")
    )
    addresses = set(re.findall(r"https?://[^\"' )]*", html))
    # names of XML namespaces, which nobody fetches
    assert addresses <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert "<script" not in html


def test_without_an_evaluation(tmp_path):
    html, markdown = report(tmp_path, write_run(tmp_path / "mt"))
    assert "No evaluation was given" in html
    assert "No evaluation was given" in markdown
    assert "**fairseq_tn**: " in markdown  # versions of this machine stand in


def test_without_runs(tmp_path):
    html, _ = report(tmp_path, "--evaluation", write_evaluation(tmp_path / "e.json"))
    assert "no training runs and 2 evaluated models" in html


def test_interrupted_and_empty_runs_are_shown_as_such(tmp_path):
    interrupted = write_run(tmp_path / "broken_off", finished=False)
    (tmp_path / "nothing").mkdir()
    _, markdown = report(tmp_path, interrupted, tmp_path / "nothing")
    rows = {row.split(" | ")[0].strip("| "): row for row in markdown.splitlines() if row.startswith("| ")}
    assert rows["broken_off"].rstrip("| ").endswith("no")
    assert "| 0 | – | – | – | – | 0 | no |" in rows["nothing"]
    assert "no training records found" in markdown


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = [write_run(tmp_path / parent / "mt") for parent in ("first", "second")]
    _, markdown = report(tmp_path, *runs)
    assert "| first/mt |" in markdown
    assert "| second/mt |" in markdown


def test_commands_replace_those_of_the_runs(tmp_path):
    (tmp_path / "commands.txt").write_text("fairseq-tn encode <x>\nfairseq-train everything\n")
    html, _ = report(tmp_path, write_run(tmp_path / "mt"), "--commands", tmp_path / "commands.txt")
    assert "fairseq-tn encode &lt;x&gt;" in html
    assert "fairseq-train data --criterion" not in html


def test_other_files_of_the_output_stay(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    for _ in range(2):
        report(tmp_path, "--evaluation", write_evaluation(tmp_path / "e.json"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "mine.txt",
        "report.html",
        "report.md",
        "report_files",
    ]


def not_json(tmp_path):
    (tmp_path / "e.json").write_text("{")
    return ["--evaluation", tmp_path / "e.json"], "e.json: not JSON"


def another_kind(tmp_path):
    return ["--evaluation", write_evaluation(tmp_path / "e.json", kind="glue")], "evaluate pretraining"


def no_evaluation(tmp_path):
    return ["--evaluation", tmp_path / "none.json"], "none.json"


def no_run(tmp_path):
    return [tmp_path / "nowhere"], "nowhere"


def no_setting(tmp_path):
    return ["--settings", "lonely"], "KEY=VALUE"


def no_commands(tmp_path):
    return ["--commands", tmp_path / "none.txt"], "none.txt"


def nothing(tmp_path):
    return [], "nothing to report"


@pytest.mark.parametrize(
    "case", [not_json, another_kind, no_evaluation, no_run, no_setting, no_commands, nothing]
)
def test_bad_input_is_one_clear_line(case, tmp_path, capsys):
    options, words = case(tmp_path)
    assert main(["report", *map(str, options), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1
    assert words in error[0]
    assert not (tmp_path / "out").exists()


def test_missing_matplotlib_is_said_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(write_run(tmp_path / "mt")), "--output", str(tmp_path / "out")]) == 1
    assert "pip install 'fairseq_tn[analysis]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
