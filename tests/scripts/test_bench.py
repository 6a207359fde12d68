"""scripts/bench.py and scripts/gpu_check.py, run as a user runs them, at tiny sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import parse

ROOT = Path(__file__).parents[2]
SMALL = (
    "--device",
    "cpu",
    "--layers",
    "1",
    "--width",
    "32",
    "--batch",
    "4",
    "--length",
    "32",
    "--threads",
    "1",
)


def script(name: str, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / name), *SMALL, *options],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[dict, str]:
    """The results of two rounds and the printed tables."""
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    done = script("bench.py", "--rounds", "2", "--markdown", "--json", str(path))
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text(encoding="utf-8")), done.stdout


def test_bench_measures_every_contestant(measured):
    report, printed = measured
    assert list(report["contestants"]) == [
        *("mlm", "hc", "sr", "sr-sentence", "electra", "tacl", "fairseq", "hf-mlm", "hf-tacl")
    ]
    for result in report["contestants"].values():
        assert len(result["rounds"]) == 2
        assert all(result[part] > 0 for part in ("data", "forward", "backward", "optimiser"))
        assert result["tokens_per_second"] == pytest.approx(4 * 32 / result["seconds"])
        assert 0 < result["share_of_peak"] < 1
        assert f"| {result['label']} | " in printed
    assert report["contestants"]["mlm"]["ratio"] == 1
    assert {"torch", "transformers"} <= report["versions"].keys()
    assert report["machine"]["processor"] in printed
    assert [target["limit"] for target in report["targets"]] == [1.01, 1.01, 1.30, 1.00, 2.5]


def test_bench_counts_the_work_of_each_contestant(measured):
    flops = {name: result["flops"] for name, result in measured[0]["contestants"].items()}
    # embeddings of 30,522 x 32 and some 19 of 128 positions dominate; full logits are at all of them
    encoder = 3 * 2 * 128 * (12 * 32**2 + 2 * 32 * 32)
    assert flops["hf-mlm"] == encoder + 3 * 2 * 128 * (32**2 + 32 * 30_522)
    assert encoder < flops["mlm"] < flops["hf-mlm"] / 4
    assert flops["mlm"] == flops["hc"] == flops["sr"]
    # the teacher's forward pass, and cosines with their gradient
    assert flops["mlm"] + encoder / 3 < flops["tacl"] < flops["mlm"] + encoder
    # the same encoder and head; fairseq selects other positions
    assert flops["fairseq"] == pytest.approx(flops["mlm"], rel=0.3)
    # weights, gradients and two moments, at least
    for result in measured[0]["contestants"].values():
        assert result["peak_bytes"] is None or result["peak_bytes"] > 4 * 4 * result["parameters"]


def test_bench_measures_fine_tuning_beside_the_scripts_of_transformers(tmp_path):
    path = tmp_path / "bench.json"
    only = ("--only", "hf-squad,squad,hf-glue,glue")
    done = script("bench.py", "--rounds", "2", "--length", "96", *only, "--json", str(path))
    assert done.returncode == 0, done.stderr
    report = json.loads(path.read_text(encoding="utf-8"))
    results = report["contestants"]
    assert list(results) == ["glue", "hf-glue", "squad", "hf-squad"]
    width, length, sequences = 32, 96, 4
    head = {"glue": (width + 2) * width, "squad": 2 * width * length}  # pooler and classes; start and end
    for name in ("glue", "squad"):
        ours, theirs = results[name], results[f"hf-{name}"]
        # the same examples, without counting what fills them up
        assert ours["tokens"] == theirs["tokens"]
        assert all(0 < tokens <= sequences * length for tokens in ours["tokens"])
        for result in (ours, theirs):
            assert result["tokens_per_second"] == pytest.approx(sum(result["tokens"]) / 2 / result["seconds"])
        # theirs is padded to the end, and the model is the same
        encoder = 2 * sequences * length * (12 * width**2 + 2 * length * width)
        assert theirs["flops"] == 3 * (encoder + 2 * sequences * head[name])
        assert ours["flops"] < 1.001 * theirs["flops"]  # the pooler runs along for SQuAD
    assert results["glue"]["flops"] < 0.8 * results["hf-glue"]["flops"]
    assert [target["limit"] for target in report["targets"]] == [1.0, 1.0]


def test_bench_refuses_what_it_cannot_measure(capsys):
    with pytest.raises(SystemExit):
        parse(["--only", "mlm,gpt"])
    assert "unknown gpt" in capsys.readouterr().err


def test_gpu_check_compares_runs_of_the_real_trainer(tmp_path):
    path = tmp_path / "check.json"
    done = script(
        "gpu_check.py", "--only", "tacl", "--updates", "3", "--vocabulary", "500", "--json", str(path)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["precision"] for row in rows] == ["fp32", "fp32 again"]
    for row in rows:
        assert row["failures"] == []
        assert {name: len(curve) for name, curve in row["curves"].items()} == {"mlm_loss": 3, "tacl_loss": 3}
        assert row["curves"]["mlm_loss"][0] == pytest.approx(9.0, abs=0.3)  # bits: 500 symbols, untrained
    assert rows[0]["curves"] == rows[1]["curves"]
    assert rows[0]["tokens_per_second"] > 0
