"""The TaCL recipe: its script and its YAML train, alike, and keep the checkpoints that they say."""

from functools import partial

import pytest
import recipes
import torch
import yaml
from corpus import make_corpus, random_documents
from recipes import ROOT, option
from training import MODEL_SIZES, flags, train_arguments

from fairseq_tn.data.word_boundaries import write_boundaries

RECIPE = ROOT / "examples" / "tacl"
CONFIGS = sorted(path.stem for path in (RECIPE / "config").glob("*.yaml"))
# what stands for the paper's model: as small as it gets, but for the length of the sequences
SIZES = {**MODEL_SIZES, "max_positions": 256}
script = partial(recipes.script, RECIPE)
command = partial(recipes.command, RECIPE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recipe")


@pytest.fixture(scope="module")
def data(folder):
    """With the files that tell words beside them, which ``--words`` reads: every line is a word."""
    made = make_corpus(folder / "data")
    for split, seed, number in (("train", 1, 40), ("valid", 2, 8)):
        documents = random_documents(number, seed=seed)
        words = "\n".join("".join(f"{len(line)}\n" for line in document) for document in documents)
        (folder / f"{split}.words").write_text(words)
        write_boundaries(folder / f"{split}.words", made / split)
    return made


@pytest.fixture(scope="module")
def init(server, data, folder):
    """A checkpoint to start from."""
    options = {**SIZES, "max_update": 1, "disable_validation": True}
    run = server.run("fairseq-train", train_arguments(data, folder / "init", "bert_pretraining", **options))
    assert run.code == 0, run.log[-2500:]
    return run.folder / "checkpoint_last.pt"


# --- the script and the YAML are the same run ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_yaml_and_command_train_two_steps_with_the_same_configuration(name, server, data, init, tmp_path):
    """On this corpus an epoch is an update, so that two epochs are two steps of an otherwise unchanged recipe."""
    criterion, model, *switches = name.split("_")
    output = tmp_path / "command"
    output.mkdir()
    files = ("--data", data, "--init", init, "--output", output)
    options = ("--criterion", criterion, "--model", model, *(f"--{switch}" for switch in switches))
    words = command(*options, "--gpus", 1, *files, cwd=tmp_path)
    assert "--fp16" in words
    words.remove("--fp16")
    words += flags({"cpu": True, "num_workers": 0, "max_epoch": 2, "log_interval": 1, **SIZES})
    runs = {
        "yaml": (
            "fairseq-hydra-train",
            [
                "--config-dir",
                RECIPE / "config",
                "--config-name",
                name,
                f"common.user_dir={ROOT / 'fairseq_tn'}",
                f"task.data={data}",
                f"checkpoint.finetune_from_model={init}",
                f"checkpoint.save_dir={tmp_path / 'yaml'}",
                "common.fp16=false",
                "common.cpu=true",
                "common.log_interval=1",
                "dataset.num_workers=0",
                "optimization.max_epoch=2",
                *(f"+model.{size}={value}" for size, value in SIZES.items()),
            ],
        ),
        "command": ("fairseq-train", words),
    }
    done = dict(zip(runs, server.run_together(list(runs.values()), cwd=tmp_path), strict=True))
    for run in done.values():
        assert run.code == 0, run.log[-2500:]
        assert run.checkpoint()["optimizer_history"][-1]["num_updates"] == 2
        assert ("as the data's side files tell" in run.log) == ("words" in switches)
        assert "kept: [9375, 18750, 37500, 75000, 120000, 150000]" in run.log
    first, second = (recipes.settings(run.checkpoint()["cfg"]) for run in done.values())
    assert first == second
    weights = done["yaml"].weights()
    assert all(torch.equal(value, weights[name]) for name, value in done["command"].weights().items())


def test_every_yaml_is_tested_and_has_its_command():
    assert CONFIGS == ["mt_base", "mt_large", "tacl_base", "tacl_chinese_words", "tacl_large"]
    for name in CONFIGS:
        config = yaml.safe_load((RECIPE / "config" / f"{name}.yaml").read_text())
        batch = config["dataset"]["batch_size"] * config["optimization"]["update_freq"][0]
        assert batch * config["distributed_training"]["distributed_world_size"] == 256


def test_chinese_is_base_with_other_data():
    files = ("--data", "d", "--init", "i", "--gpus", 2, "--output", "o")
    assert command("--model", "chinese", *files) == command("--model", "base", *files)


@pytest.mark.parametrize("criterion", ["tacl", "mt"])
def test_words(criterion):
    files = ("--criterion", criterion, "--data", "d", "--init", "i", "--gpus", 2)
    for model, masking in (
        ("large", ["--mask-whole-words"]),
        ("chinese", ["--mask-whole-words", "--word-boundaries", "data"]),
    ):
        words, plain = command("--model", model, "--words", *files), command("--model", model, *files)
        assert option(words, "--save-dir") == f"outputs/tacl/{criterion}-{model}-words"
        place = words.index("--mask-whole-words")
        assert words[place : place + len(masking)] == masking
        assert len(words) == len(plain) + len(masking)


# --- what the script computes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["base", "large"])
@pytest.mark.parametrize("gpus", [0, 1, 2, 8, 256])
@pytest.mark.parametrize("fits", [None, 1, 24, 1000])
def test_256_sequences_an_update(model, gpus, fits):
    limit = [] if fits is None else ["--sequences-per-gpu", fits]
    words = command("--model", model, "--data", "d", "--init", "i", "--gpus", gpus, *limit)
    processes, at_once = int(option(words, "--distributed-world-size")), int(option(words, "--batch-size"))
    assert processes == max(gpus, 1)
    assert processes * at_once * int(option(words, "--update-freq")) == 256
    assert at_once <= (fits or {"base": 32, "large": 16}[model])
    assert ("--cpu" in words) == (gpus == 0)
    assert ("--fp16" in words) == (gpus > 0)


def test_as_script():
    files = ("--model", "base", "--data", "d", "--init", "i", "--gpus", 1)
    paper, original = command(*files), command(*files, "--as-script")
    assert set(original) - set(paper) == {"--tacl-padding", "--teacher-dropout", "0"}
    assert option(original, "--weight-decay") == "0"
    baseline = command(*files, "--as-script", "--criterion", "mt")
    assert "--tacl-padding" not in baseline
    assert option(baseline, "--weight-decay") == "0"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--model"),
        (("--model", "small", "--data", "d", "--init", "i"), "--model small"),
        (("--model", "huge", "--data", "d", "--init", "i"), "--model huge"),
        (("--model", "base", "--init", "i"), "--data"),
        (("--model", "base", "--data", "d"), "--init"),
        (("--model", "base", "--data", "d", "--init", "i", "--gpus", "3"), "3 GPUs"),
        (("--model", "base", "--data", "d", "--init", "i", "--gpus", "two"), "--gpus two"),
        (
            ("--model", "base", "--data", "d", "--init", "i", "--gpus", "1", "--precision", "fp8"),
            "--precision",
        ),
        (("--model", "base", "--data", "d", "--init", "i", "--criterion", "hc"), "--criterion hc"),
        (("--model", "base", "--data"), "--data needs a value"),
        (("--small", "--model", "base"), "--small"),
        (("--bogus",), "--bogus"),
    ],
)
def test_bad_arguments_are_one_line(arguments, named):
    done = script(*arguments, "--dry-run") if arguments[-1:] != ("--data",) else script(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


# --- small --------------------------------------------------------------------------------------------------------


def test_small_from_another_folder_and_its_checkpoints(server, data, init, tmp_path):
    """The steps are cut to 32; what is kept follows."""
    done = script("--small", "--data", "missing", "--init", init, "--gpus", 0, cwd=tmp_path)
    assert done.returncode == 2
    assert "scripts/quickstart.sh" in done.stderr
    words = command("--small", "--data", data, "--init", init, "--gpus", 0, cwd=tmp_path)
    assert option(words, "--max-update") == "160"
    (tmp_path / "outputs" / "tacl" / "tacl-small").mkdir(parents=True)
    words += [
        "--max-update",
        "32",
        "--total-num-update",
        "32",
        "--save-interval-updates",
        "2",
        "--num-workers",
        "0",
    ]
    words += ["--batch-size", "4"]
    for size, value in MODEL_SIZES.items():
        words += ["--" + size.replace("_", "-"), str(value)]
    words += ["--max-positions", "256"]
    run = server.run("fairseq-train", words, cwd=tmp_path)
    assert run.code == 0, run.log[-2500:]
    kept = {path.name for path in (tmp_path / run.folder).glob("checkpoint_at_*")}
    assert kept == {f"checkpoint_at_{update}.pt" for update in (2, 4, 8, 16, 26, 32)}
