"""examples/reproduce and its runner: each row's YAML, what is planned, what is left out, and what is reported."""

import subprocess
import warnings
from pathlib import Path

import pytest
import small_results
import yaml
from corpus import make_corpus
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from recipes import COMMANDS, ROOT
from reproduction import results
from reproduction.__main__ import main
from reproduction.plan import Inputs, Options, Planner
from reproduction.rows import CONFIG, ROWS, TASKS, chosen_rows, chosen_tasks
from reproduction.settings import Hardware, identity, load_config, pretraining_config
from reproduction.steps import Store

import fairseq_tn
from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.results import write_result

TRAINING = [row for row in ROWS.values() if row.trains]
CPU = Hardware(0)
PLACES = {"save_dir", "tensorboard_logdir", "user_dir"}


def config(row, small=False, hardware=CPU, **options):
    given = {"data": Path("data"), "save_dir": Path("run"), "start": Path("model.pt")}
    if row.start is None or (small and row.family == "electra"):
        del given["start"]
    if row.synonyms:
        given["synonyms"] = Path("synonyms.txt")
    return pretraining_config(row, small=small, hardware=hardware, **given, **options)


# --- the YAML files -----------------------------------------------------------------------------------------------


def test_every_row_that_trains_has_a_yaml_and_no_other():
    files = {path.stem for path in CONFIG.glob("*.yaml")}
    assert {name for name in files if not name.startswith("settings_")} == {row.name for row in TRAINING}
    used = {name for row in TRAINING for name in yaml.safe_load(row.config.read_text())["defaults"]}
    assert {name for name in files if name.startswith("settings_")} == used - {"_self_"}


PLUGINS = ("task", "model", "criterion", "optimizer", "lr_scheduler")
KNOWN = OmegaConf.structured(FairseqConfig)
# by the place and the hardware of a run
CHANGED = {("common", "user_dir"), ("common", "fp16"), ("checkpoint", "save_dir")}


def checked(cfg) -> dict:
    """The configuration with fairseq's defaults; an option that does not exist is an error."""
    fairseq_tn.register()
    cfg = OmegaConf.create({part: node for part, node in cfg.items() if part != "hydra"})
    for part, node in cfg.items():
        if part not in PLUGINS:
            OmegaConf.merge(KNOWN[part], node)
    add_defaults(cfg)
    return OmegaConf.to_container(cfg)


@pytest.mark.parametrize("row", TRAINING, ids=lambda row: row.name)
def test_options_of_the_yaml_exist(row):
    cfg = checked(config(row))
    for part, node in OmegaConf.to_container(load_config(row.config)).items():
        for key, value in node.items():
            if part != "hydra" and value != "???" and (part, key) not in CHANGED:
                assert cfg[part][key] == value, f"{part}.{key}"
    assert (cfg["criterion"].get("synonyms") is not None) == (row.synonyms is not None)
    assert load_config(row.config).checkpoint.save_dir == f"outputs/reproduce/{row.name}"


SMALL = [row for row in chosen_rows([], True, True) if row.trains]


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_small_rows_have_the_method_of_the_row(row):
    small, full = config(row, small=True), config(row)
    assert checked(small)["optimization"]["max_update"] == 160
    assert small.criterion == full.criterion
    changed = {"data", "tokens_per_sample"}
    assert {key: value for key, value in small.task.items() if key not in changed} == {
        key: value for key, value in full.task.items() if key not in changed
    }


@pytest.mark.parametrize("row", TRAINING, ids=lambda row: row.name)
def test_a_row_and_its_settings_hold_different_keys(row):
    """Releases of Hydra do not agree on which of two would count."""
    own = yaml.safe_load(row.config.read_text())
    (base,) = (name for name in own.pop("defaults") if name != "_self_")
    shared = yaml.safe_load((CONFIG / f"{base}.yaml").read_text())
    assert [(part, key) for part in own for key in own[part] if key in shared.get(part, {})] == []


def test_hydra_merges_the_defaults_as_the_runner_does():
    hydra = pytest.importorskip("hydra", minversion="1.1")  # has no compose before
    GlobalHydra.instance().clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with hydra.initialize_config_dir(str(CONFIG)):
            composed = hydra.compose("electra-base-hc")
    ours = load_config(CONFIG / "electra-base-hc.yaml")
    del ours["hydra"]
    assert composed == ours


@pytest.mark.parametrize("key", ["criterion.tacl_wieght", "task.no_npv", "dataset.batchsize", "model.layers"])
def test_a_key_that_no_option_has_is_an_error(key):
    with pytest.raises(Exception, match=key.partition(".")[2]):
        checked(config(ROWS["bert-base-tacl"], overrides=[f"{key}=1"]))


@pytest.mark.parametrize(
    ("row", "example"),
    [
        ("bert-base-mt", "tacl/config/mt_base"),
        ("bert-large-mt", "tacl/config/mt_large"),
        ("bert-base-tacl", "tacl/config/tacl_base"),
        ("bert-large-tacl", "tacl/config/tacl_large"),
        ("bert-base-mlm", "true_negatives/config/baseline_base"),
        ("bert-large-sr-sentence", "true_negatives/config/sr_sentence_large"),
        ("bert-base-hc", "true_negatives/config/hc_base"),
        ("bert-large-hc-sr", "true_negatives/config/hc_sr_large"),
        ("electra-small", "electra/config/baseline_small"),
        ("electra-small-hc", "electra/config/hc_small"),
        ("electra-base-sr", "electra/config/sr_word_base"),
        ("electra-base-hc-sr", "electra/config/hc_sr_base"),
    ],
)
def test_rows_are_the_runs_of_the_recipes(row, example):
    """But for where they write, and how often: rows keep checkpoints for a curve."""

    def settings(cfg) -> dict:
        leaves = OmegaConf.to_container(cfg)
        found = {
            f"{part}.{key}": value
            for part, node in leaves.items()
            for key, value in node.items()
            if key not in PLACES
        }
        for key in ("checkpoint.save_interval_updates", "task.keep_checkpoints_at"):
            found.pop(key, None)
        return found

    assert settings(load_config(ROWS[row].config)) == settings(
        load_config(ROOT / "examples" / f"{example}.yaml")
    )


# --- sizes and hardware -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "sequences", "batch", "frequency"),
    [(1, None, 32, 8), (8, None, 32, 1), (8, 5, 4, 8), (0, 3, 2, 128), (16, None, 16, 1)],
)
def test_an_update_has_as_many_sequences_on_any_hardware(gpus, sequences, batch, frequency):
    cfg = config(ROWS["bert-base-tacl"], hardware=Hardware(gpus, "fp16", sequences))
    assert (cfg.dataset.batch_size, list(cfg.optimization.update_freq)) == (batch, [frequency])
    assert batch * frequency * max(gpus, 1) == 256
    assert cfg.common.fp16 == (gpus > 0)
    assert cfg.common.get("cpu", False) == (gpus == 0)
    same = config(ROWS["bert-base-tacl"], hardware=Hardware(4)) if gpus else config(ROWS["bert-base-tacl"])
    assert identity(cfg) == identity(same)


def test_what_a_sentence_is_told_from_is_no_matter_of_hardware():
    """Accumulated batches are no candidates: fewer GPUs are another run, unless as much fits into them together."""
    row = ROWS["bert-base-simcse"]
    before = identity(config(row, hardware=Hardware(8)))
    assert before["sequences_contrasted"] == 256
    assert identity(config(row, hardware=Hardware(4))) != before
    assert identity(config(row, hardware=Hardware(8, "fp16", 16))) != before
    assert identity(config(row, hardware=Hardware(4, "fp16", 64))) == before
    assert "sequences_contrasted" not in identity(config(ROWS["bert-base-tacl"], hardware=Hardware(8)))


@pytest.mark.parametrize(
    "override",
    ["dataset.batch_size=null", "optimization=3", "optimization.update_freq=[]", "dataset.batch_size=0"],
)
def test_numbers_that_cannot_be_shared_out_are_named(override):
    with pytest.raises(UserError, match="must be a whole number"):
        config(ROWS["bert-base-tacl"], overrides=[override])


def test_sequences_that_cannot_be_shared_out_are_named():
    with pytest.raises(UserError, match="256 sequences"):
        config(ROWS["bert-base-tacl"], hardware=Hardware(3))


def test_settings_are_another_run_s_identity():
    row = ROWS["bert-base-tacl"]
    before = identity(config(row))
    for change in ("criterion.temperature=0.02", "optimization.lr=[1e-5]", "common.seed=2"):
        assert identity(config(row, overrides=[change])) != before
    assert identity(config(row, updates=100)) != before
    with pytest.raises(UserError, match="KEY=VALUE"):
        config(row, overrides=["temperature"])


def test_another_length_scales_warm_up_and_saving():
    cfg = config(ROWS["bert-base-tacl"], updates=1600)
    assert (cfg.optimization.max_update, cfg.lr_scheduler.total_num_update) == (1600, 1600)
    assert (cfg.lr_scheduler.warmup_updates, cfg.checkpoint.save_interval_updates) == (160, 20)


# --- plans --------------------------------------------------------------------------------------------------------


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.fixture
def there(tmp_path) -> Inputs:
    """English text, one BERT, and RTE."""
    touch(tmp_path / "corpora" / "en" / "dict.txt", tmp_path / "data" / "glue" / "RTE" / "train.tsv")
    touch(*(tmp_path / "models" / "bert-base-uncased" / name for name in ("model.pt", "dict.txt", "hf/x")))
    return Inputs(tmp_path / "models", tmp_path / "corpora", tmp_path / "data")


def planned(tmp_path, inputs, names, tasks=("RTE",), skip=False, curve=None, **options):
    planner = Planner(Store(tmp_path / "out"), inputs, Options(CPU, **options))
    rows = chosen_rows(names, not names, options.get("small", False))
    return planner.plan(rows, [TASKS[task] for task in tasks], skip, curve and TASKS[curve])


def test_a_row_is_trained_and_then_fine_tuned_with_each_seed(there, tmp_path):
    plan = planned(tmp_path, there, ["bert-base", "bert-base-hc"], seeds=2)
    names = [step.name for step in plan.steps]
    assert names == [
        "bert-base/RTE-1",
        "bert-base/RTE-2",
        "bert-base-hc/pre-train",
        "bert-base-hc/RTE-1",
        "bert-base-hc/RTE-2",
    ]
    train, tune = plan.steps[2:4]
    assert train.trains
    assert [step.name for step in train.after] == ["synonyms/en-wordnet"]
    assert tune.after == (train,)
    words = list(tune.command)
    assert words[words.index("--checkpoint") + 1].endswith("rows/bert-base-hc/pre-train/checkpoint_last.pt")
    assert words[words.index("--gpus") + 1] == "0"


def test_what_is_missing_is_skipped_by_name(there, tmp_path):
    plan = planned(tmp_path, there, [], tasks=("RTE", "CoLA", "SQuAD 2.0"), skip=True)
    trained = set(plan.pretraining)
    assert {"bert-base-tacl", "model-2", "bert-base-sr-sentence"} <= trained
    for name in ("bert-large-tacl", "bert-base-chinese-tacl", "electra-small", "electra-base"):
        assert name in plan.skipped
    assert "--vectors" in plan.skipped["bert-base-hc-vectors"]
    assert "glue/CoLA/train.tsv" in plan.skipped["CoLA"]
    assert "train-v2.0.json" in plan.skipped["SQuAD 2.0"]
    assert {evaluation.task.name for evaluation in plan.evaluations} == {"RTE"}


@pytest.mark.parametrize(
    ("name", "message"),
    [("bert-large-tacl", "bert-large-uncased in --models"), ("electra-small", "owt/dict.txt in --corpora")],
)
def test_a_row_asked_for_by_name_is_not_skipped(name, message, there, tmp_path):
    with pytest.raises(UserError, match=f"{name}: no {message}"):
        planned(tmp_path, there, [name])


def test_hugging_face_folders_are_converted_once(there, tmp_path):
    (there.models / "bert-base-uncased" / "model.pt").unlink()
    plan = planned(tmp_path, there, ["bert-base-mt", "bert-base-tacl"])
    conversions = {step for train in plan.pretraining.values() for step in train.after}
    assert [step.name for step in conversions] == ["models/bert-base-uncased"]


def test_curve_fine_tunes_the_start_and_every_kept_checkpoint(there, tmp_path):
    plan = planned(tmp_path, there, ["bert-base-mt", "bert-base-tacl"], curve="RTE")
    updates = [
        evaluation.update for evaluation in plan.evaluations if evaluation.row.name == "bert-base-tacl"
    ]
    assert updates == [0, 9375, 18750, 37500, 75000, 120000, 150000]
    starts = {evaluation.step.name for evaluation in plan.evaluations if evaluation.update == 0}
    assert starts == {"start-bert-base-uncased/RTE-1"}


def test_fine_tuning_on_squad_never_goes_on_with_another_model_s_run(there, tmp_path):
    touch(*(there.data / "squad" / f"{split}-v2.0.json" for split in ("train", "dev")))
    (evaluation,) = planned(tmp_path, there, ["bert-base-tacl"], ["SQuAD 2.0"]).evaluations
    run = tmp_path / "out" / "rows" / "bert-base-tacl" / "fine-tune" / "runs" / "2.0-bert-base-tacl-1"
    touch(run / "checkpoint_last.pt")
    Store(tmp_path / "out").prepare(evaluation.step)
    assert not run.exists()


def test_small_rows_stand_for_large_ones():
    assert [row.name for row in chosen_rows(["bert-large-tacl", "bert-base-tacl"], False, True)] == [
        "bert-base-tacl"
    ]
    assert [row.name for row in chosen_rows(["electra-base-hc"], False, True)] == ["electra-small-hc"]
    assert len(chosen_rows([], True, False)) == len(ROWS)
    with pytest.raises(UserError, match="bert-huge is no row"):
        chosen_rows(["bert-huge"], False, False)
    with pytest.raises(UserError, match="--tasks Rte"):
        chosen_tasks(["Rte"], False)


def test_small_plan_shares_text_and_start(tmp_path):
    touch(
        tmp_path / "init" / "config.json",
        tmp_path / "dump.bz2",
        tmp_path / "zh.txt",
        tmp_path / "vectors.txt",
    )
    inputs = Inputs(
        init=tmp_path / "init",
        dump=tmp_path / "dump.bz2",
        chinese=tmp_path / "zh.txt",
        vectors=tmp_path / "vectors.txt",
    )
    plan = planned(tmp_path, inputs, [], tasks=(), skip=True, small=True)
    assert len(plan.pretraining) == 21
    assert not plan.skipped
    starts = {step.name for train in plan.pretraining.values() for step in train.after if step.trains}
    assert starts == {"start/en", "start/zh"}
    without = planned(
        tmp_path, Inputs(init=inputs.init, dump=inputs.dump), [], tasks=(), skip=True, small=True
    )
    assert {"bert-base-chinese-tacl", "bert-base-hc-vectors", "electra-small-hc-vectors"} <= set(
        without.skipped
    )


def test_files_of_tasks_are_found_by_their_names(tmp_path):
    for release in (".conll", "_2nd_conll"):
        for split in ("train", "dev", "test"):
            touch(tmp_path / "ner_zh" / "weibo" / f"weiboNER{release}.{split}")
    found = TASKS["Weibo NER"].find(tmp_path)
    assert {split: path.name for split, path in found.items()} == {
        "train": "weiboNER_2nd_conll.train",
        "valid": "weiboNER_2nd_conll.dev",
        "test": "weiboNER_2nd_conll.test",
    }
    touch(tmp_path / "squad" / "train-v1.1.json")
    assert TASKS["SQuAD 1.1"].find(tmp_path) is None
    touch(tmp_path / "squad" / "dev-v1.1.json")
    assert set(TASKS["SQuAD 1.1"].find(tmp_path)) == {"train", "valid"}


# --- results ------------------------------------------------------------------------------------------------------


def finished(plan, store, scores) -> None:
    """Mark the evaluations as done, with these scores."""
    for evaluation, score in zip(plan.evaluations, scores, strict=True):
        one = small_results.result(evaluation.row.name, evaluation.seed, small_results.scores(score, score))
        write_result(evaluation.result, one)
        store.finish(evaluation.step, 60)


@pytest.fixture
def evaluated(there, tmp_path):
    """Two rows with two seeds."""
    plan = planned(tmp_path, there, ["bert-base", "bert-base-tacl"], seeds=2)
    store = Store(tmp_path / "out")
    finished(plan, store, (0.5, 0.6, 0.7, 0.7))
    return plan, store


def test_table_shows_measured_and_published_figures(evaluated):
    plan, store = evaluated
    skipped, failed = {"SQuAD 1.1": "no file"}, {"x": "it broke\nhere"}
    text = results.table([ROWS["bert-base"]], plan, store, skipped=skipped, failed=failed)
    lines = text.splitlines()
    assert "| row | what trains | last validation | RTE (accuracy) | minutes |" in lines
    assert "| `bert-base` | BERT as it is | – | 55.0 ± 7.1 / 66.4 | 2.0 |" in lines
    assert any(line.startswith("| `bert-base-tacl` |") and "70.0 ± 0.0 / –" in line for line in lines)
    assert "- failed: **x**: it broke" in lines
    assert "- skipped: **SQuAD 1.1**: no file" in lines
    assert "2 seeds" in lines[0]
    assert "cores" in lines[0]


@pytest.mark.parametrize(
    ("row", "task", "metric", "figure"),
    [
        ("bert-base", "SQuAD 2.0", "f1", "76.8"),
        ("bert-base", "MRPC", "f1", "88.9"),
        ("bert-base-tacl", "SQuAD 1.1", "f1", "89.0"),
        ("bert-base-chinese-tacl", "Weibo NER", "f1", "69.5"),
        ("bert-base-tacl", "RTE", "accuracy", "–"),
        ("bert-large-tacl", "SQuAD 2.0", "f1", "–"),
        ("electra-base-hc", "SQuAD 2.0", "f1", "–"),
    ],
)
def test_published_figures_are_those_with_a_source(row, task, metric, figure):
    assert results._published(ROWS[row], TASKS[task], metric) == figure


def test_table_goes_between_the_marks_of_a_document(tmp_path):
    document = tmp_path / "page.md"
    document.write_text(f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n")
    for text in ("new\n", "newer \\1\n"):
        results.write_table(text, tmp_path / "table.md", document)
    assert document.read_text() == f"before\n{results.BEGIN}\nnewer \\1\n{results.END}\nafter\n"
    document.write_text("no marks\n")
    with pytest.raises(UserError, match="it has no line"):
        results.write_table("new\n", tmp_path / "table.md", document)


def test_curve_has_the_means_by_update(there, tmp_path):
    plan = planned(tmp_path, there, ["bert-base-tacl"], curve="RTE")
    store = Store(tmp_path / "out")
    finished(plan, store, (0.5, 0.52, 0.54, 0.56, 0.6, 0.62, 0.7))
    paths = results.curve(plan, store, TASKS["RTE"], tmp_path)
    assert [path.suffix for path in paths] == [".tsv", ".png", ".svg"]
    lines = paths[0].read_text().splitlines()
    assert lines[1] == "bert-base-tacl\t0\t1\t50.00\t"
    assert lines[-1] == "bert-base-tacl\t150000\t1\t70.00\t"


def test_documentation_names_every_row():
    page = (ROOT / "examples" / "reproduce" / "README.md").read_text(encoding="utf-8")
    assert [name for name in ROWS if f"`{name}`" not in page] == []
    document = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert results.BEGIN in document
    assert results.END in document.split(results.BEGIN)[1]


# --- the command --------------------------------------------------------------------------------------------------


def test_list_names_rows_and_tasks(capsys):
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*ROWS, *TASKS))
    columns = {
        line.index(ROWS[name].paper)
        for line in shown.splitlines()
        if (name := line[2:].split(" ")[0]) in ROWS
    }
    assert len(columns) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bert-huge", "bert-huge is no row"),
        ("bert-base-tacl", "no en/dict.txt in --corpora (not given)"),
        ("bert-base-tacl --data /nowhere", "--data /nowhere: there is no such"),
        ("bert-base-tacl --tasks rte", "--tasks rte"),
        ("bert-base-tacl --curve rte", "--curve rte"),
        (
            "bert-base-mt --baseline bert --corpora THERE/corpora --models THERE/models",
            "--baseline bert is no row",
        ),
        ("bert-base-mt --docs THERE/x.md --corpora THERE/corpora --models THERE/models", "it has no line"),
        (
            "bert-base-mt --curve RTE --corpora THERE/corpora --models THERE/models",
            "--curve RTE: no glue/RTE",
        ),
        ("bert-base-mt --curve PKU --corpora THERE/corpora --models THERE/models", "another language"),
        ("bert-base --tasks none --corpora THERE/corpora --models THERE/models", "these rows train nothing"),
        ("bert-base-mt --corpora THERE/corpora --models THERE/models -- lr", "lr after --"),
        ("--all --corpora THERE/corpora --models THERE/data", "nothing can be done"),
        ("bert-base-mt --gpus -1", "--gpus is -1"),
    ],
)
def test_bad_arguments_are_one_line(arguments, message, there, tmp_path, capsys):
    words = arguments.replace("THERE", str(tmp_path)).split()
    if "--" not in words:  # so that what is not refused writes nothing elsewhere, and trains nothing
        words += ["--output", str(tmp_path / "out"), "--dry-run"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("reproduce.sh: error: ")
    assert error.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_line(there, tmp_path, capsys):
    given = [
        "--corpora",
        there.corpora,
        "--models",
        there.models,
        "--output",
        there.corpora / "en/dict.txt/x",
    ]
    assert main(["bert-base-mt", "--gpus", "0", *map(str, given)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("reproduce.sh: error: ")
    assert "Not a directory" in error
    assert error.count("\n") == 1


def test_torchrun_on_cpus_is_refused(tmp_path, monkeypatch, capsys):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    assert main(["electra-small", "--output", str(tmp_path / "out"), "--gpus", "0"]) == 2
    assert "torchrun started 2 processes" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.smoke
def test_a_row_from_end_to_end(tmp_path, capsys):
    """Two updates of a tiny ELECTRA; a second call has nothing to do; a changed setting is to be trained."""
    make_corpus(tmp_path / "owt")
    touch(tmp_path / "models" / "bert-base-uncased" / "model.pt")
    sizes = {"encoder_layers": 1, "encoder_embed_dim": 32, "encoder_attention_heads": 2, "embedding_dim": 16}
    sizes |= {"encoder_ffn_embed_dim": 32, "generator_attention_heads": 2, "generator_size": 0.5}
    overrides = [f"model.{key}={value}" for key, value in sizes.items()]
    overrides += ["dataset.num_workers=0", "task.tokens_per_sample=16", "dataset.batch_size=4"]
    given = [
        "--models",
        tmp_path / "models",
        "--corpora",
        tmp_path,
        "--output",
        tmp_path / "out",
        "--gpus",
        0,
    ]
    arguments = ["electra-small-sr", *map(str, given), "--updates", "2", "--tasks", "none"]
    script = ROOT / "scripts" / "reproduce.sh"
    done = subprocess.run(
        [script, "--no-install", *arguments, "--", *overrides], env=COMMANDS, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "out" / "rows" / "electra-small-sr" / "pre-train"
    log = (folder / "train.log").read_text()
    assert '"train_num_updates": "2"' in log
    assert "sr_loss" in log
    assert (folder / "checkpoint_at_2.pt").is_file()
    assert "| `electra-small-sr` |" in (tmp_path / "out" / "table.md").read_text()
    written = (folder / "checkpoint_last.pt").stat().st_mtime_ns
    assert main([*arguments, "--", *overrides]) == 0
    assert "done before" in capsys.readouterr().out
    assert (folder / "checkpoint_last.pt").stat().st_mtime_ns == written
    assert main([*arguments, "--dry-run", "--", *overrides, "common.seed=2"]) == 0
    assert capsys.readouterr().out == "to do  electra-small-sr/pre-train\n"
