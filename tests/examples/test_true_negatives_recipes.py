"""The recipes of True Negatives, BERT's and ELECTRA's: each YAML trains, and is the run of its script."""

import importlib.util
import json
import warnings

import pytest
import recipes
import torch
from corpus import make_corpus
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.options import get_training_parser, parse_args_and_arch
from omegaconf import OmegaConf
from recipes import ROOT, option
from training import MODEL_SIZES, flags, train_arguments

import fairseq_tn

METHODS = ("baseline", "hc", "hc_sr", "sr_sentence", "sr_word")
MODELS = {"true_negatives": ("base", "large"), "electra": ("base", "small")}
CONFIGS = [
    (folder, model, method) for folder, models in MODELS.items() for model in models for method in METHODS
]
FOLDERS = list(MODELS)
CRITERIONS = {"baseline": "bert_pretraining", "hc": "mlm_hard_correction"}
# what stands for the paper's models: as small as it gets, but for the length of the sequences
SIZES = {
    "true_negatives": {**MODEL_SIZES, "max_positions": 512},
    "electra": {
        **MODEL_SIZES,
        "max_positions": 512,
        "embedding_dim": 16,
        "generator_size": 0.5,
        "generator_attention_heads": 2,
    },
}
# what else a test changes: two epochs, which are two updates of so small a corpus, on the CPU
CHANGES = {
    "common.cpu": True,
    "common.log_interval": 1,
    "dataset.num_workers": 0,
    "optimization.max_epoch": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recipes")


@pytest.fixture(scope="module")
def data(folder):
    return make_corpus(folder / "data")


@pytest.fixture(scope="module")
def files(server, data, folder):
    """The options --data, --init and --synonyms of each recipe."""
    synonyms = folder / "synonyms.txt"
    synonyms.write_text("w1\tw2 w3\nw2\tw1\n", encoding="utf-8")
    found = {}
    for name, arch, criterion in (
        ("true_negatives", "tn_bert", "bert_pretraining"),
        ("electra", "tn_electra", "electra"),
    ):
        changes = {"arch": arch, "task": "bert_pretraining", "no_nsp": True, "max_update": 1}
        arguments = train_arguments(
            data, folder / name, criterion, **SIZES[name], **changes, disable_validation=True
        )
        run = server.run("fairseq-train", arguments)
        assert run.code == 0, run.log[-2500:]
        found[name] = {"data": data, "init": run.folder / "checkpoint_last.pt", "synonyms": synonyms}
    return found


def wanted(name: str, model: str, method: str, files: dict) -> dict:
    """Those of the files that the recipe asks for."""
    asked = {"data": True, "init": (name, model) != ("electra", "small"), "synonyms": method.startswith("hc")}
    return {key: value for key, value in files.items() if asked[key]}


def command(name: str, *arguments, **options) -> list[str]:
    return recipes.command(ROOT / "examples" / name, *arguments, **options)


def dashed(options: dict) -> list:
    return [word for key, value in options.items() for word in (f"--{key}", value)]


def parsed(words: list[str]) -> dict:
    """What fairseq-train makes of the words."""
    fairseq_tn.register()
    place = words.index("--user-dir")
    args = parse_args_and_arch(get_training_parser(), input_args=words[:place] + words[place + 2 :])
    with warnings.catch_warnings():  # of Hydra, at fairseq's way to call it
        warnings.simplefilter("ignore")
        return OmegaConf.to_container(convert_namespace_to_omegaconf(args), resolve=True)


# --- the script and the YAML are the same run ---------------------------------------------------------------------


@pytest.mark.parametrize(("name", "model", "method"), CONFIGS)
def test_yaml_trains_two_steps_with_the_configuration_of_the_command(
    name, model, method, server, files, tmp_path
):
    given = wanted(name, model, method, files[name])
    places = {"data": "task.data", "init": "checkpoint.finetune_from_model", "synonyms": "criterion.synonyms"}
    overrides = [f"{places[key]}={value}" for key, value in given.items()]
    overrides += [f"{key}={json.dumps(value)}" for key, value in CHANGES.items()]
    overrides += [f"+model.{size}={value}" for size, value in SIZES[name].items()]
    arguments = ["--config-dir", ROOT / "examples" / name / "config", "--config-name", f"{method}_{model}"]
    arguments += [f"common.user_dir={ROOT / 'fairseq_tn'}", f"checkpoint.save_dir={tmp_path / 'yaml'}"]
    output = tmp_path / "command"
    output.mkdir()
    asked = ("--model", model, "--method", method, "--gpus", 1, "--output", output)
    words = command(name, *asked, *dashed(given), cwd=tmp_path)
    assert "--fp16" in words
    words.remove("--fp16")
    words += flags({key.rpartition(".")[2]: value for key, value in CHANGES.items()} | SIZES[name])
    commands = [("fairseq-hydra-train", [*arguments, "common.fp16=false", *overrides])]
    trained = (name, model, method) in [
        ("true_negatives", "base", "hc_sr"),
        ("electra", "small", "sr_sentence"),
    ]
    if trained:
        commands.append(("fairseq-train", words))
    runs = server.run_together(commands, cwd=tmp_path)
    for run in runs:
        assert run.code == 0, run.log[-2500:]
        assert run.checkpoint()["optimizer_history"][-1]["num_updates"] == 2
    of_yaml, of_command = recipes.settings(runs[0].checkpoint()["cfg"]), recipes.settings(parsed(words))
    different = {
        key: (of_yaml.get(key), of_command.get(key))
        for key in of_yaml.keys() | of_command.keys()
        # a model fills in the sizes that its architecture implies
        if of_yaml.get(key) != of_command.get(key) and not (key[0] == "model" and key not in of_command)
    }
    assert different == {}
    if trained:
        first, second = (run.weights() for run in runs)
        assert first.keys() == second.keys()
        assert all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.mark.parametrize("name", FOLDERS)
def test_every_yaml_is_tested(name):
    found = sorted(path.stem for path in (ROOT / "examples" / name / "config").glob("*.yaml"))
    recipes_of = [f"{method}_{model}" for model in MODELS[name] for method in METHODS]
    assert found == sorted([*recipes_of, *(f"settings_{model}" for model in MODELS[name])])


# --- what the scripts compute -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "model", "method"), CONFIGS)
def test_paper_settings(name, model, method):
    given = wanted(name, model, method, {"data": "d", "init": "i", "synonyms": "s"})
    words = command(name, "--model", model, "--method", method, "--gpus", 8, *dashed(given))
    batch = 8 * int(option(words, "--batch-size")) * int(option(words, "--update-freq"))
    from_scratch = (name, model) == ("electra", "small")
    lengths, updates, rates = ("128", "1000000", "5e-4") if from_scratch else ("512", "200000", "5e-5")
    assert batch == 128
    assert option(words, "--tokens-per-sample") == lengths
    assert option(words, "--max-update") == option(words, "--total-num-update") == updates
    assert option(words, "--lr") == rates
    assert ("--finetune-from-model" in words) == (not from_scratch)
    assert ("--synonyms" in words) == (method in ("hc", "hc_sr"))
    assert ("--soft-reg-weight" in words) == (method in ("sr_word", "sr_sentence", "hc_sr"))
    assert ("sentence" in words) == (method == "sr_sentence")
    criterion = "electra" if name == "electra" else CRITERIONS.get(method, "mlm_soft_reg")
    assert option(words, "--criterion") == criterion


def test_electra_small_can_go_on_from_weights():
    words = command(
        "electra", "--model", "small", "--method", "baseline", "--data", "d", "--init", "i", "--gpus", 0
    )
    assert option(words, "--finetune-from-model") == "i"


COMPLETE = (
    "--model",
    "base",
    "--method",
    "hc",
    "--data",
    "d",
    "--init",
    "i",
    "--synonyms",
    "s",
    "--gpus",
    "1",
)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"--method": None}, "--method"),
        ({"--method": "sr"}, "--method sr: give baseline"),
        ({"--model": None}, "--model"),
        ({"--model": "huge"}, "--model huge"),
        ({"--data": None}, "--data"),
        ({"--init": None}, "--init"),
        ({"--synonyms": None}, "needs --synonyms"),
        ({"--method": "sr_word"}, "no use for --synonyms"),
        ({"--gpus": "3"}, "3 GPUs"),
        ({"--precision": "bf16"}, "--precision"),
        ({"--bogus": "1"}, "--bogus"),
        ({"--small": ""}, "--small has a model of its own"),
        ({}, "d/dict.txt is missing"),
    ],
)
def test_bad_arguments_are_one_line(name, changed, named):
    """The last one is complete, but for the files; only then would training start."""
    options = dict(zip(COMPLETE[::2], COMPLETE[1::2], strict=True)) | changed
    arguments = [word for pair in options.items() if pair[1] is not None for word in pair if word]
    done = recipes.script(ROOT / "examples" / name, *arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == "" or not changed


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("missing", ["init", "synonyms"])
def test_missing_files_are_one_line(name, missing, files):
    given = files[name] | {missing: "elsewhere"}
    arguments = ("--model", "base", "--method", "hc", "--gpus", 0, *dashed(given))
    done = recipes.script(ROOT / "examples" / name, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("train.sh: error: elsewhere is missing: ")
    assert done.stderr.count("\n") == 1


# --- small --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "remedy"), [("true_negatives", "quickstart"), ("electra", "prepare_small")])
def test_small_names_what_has_to_be_run_first(name, remedy, tmp_path):
    """From another folder, with a file of its own that is missing."""
    done = recipes.script(
        ROOT / "examples" / name, "--small", "--method", "hc", "--data", "missing", cwd=tmp_path
    )
    assert done.returncode == 2
    assert remedy in done.stderr
    assert done.stderr.count("\n") == 1


def test_small_bert_trains(server, files, tmp_path):
    given = files["true_negatives"]
    words = command(
        "true_negatives", "--small", "--method", "hc_sr", "--gpus", 0, *dashed(given), cwd=tmp_path
    )
    assert option(words, "--max-update") == "120"
    words += flags(
        {"max_update": 3, "total_num_update": 3, "warmup_updates": 1, "num_workers": 0, **MODEL_SIZES}
    )
    words += flags({"max_positions": 512})
    (tmp_path / option(words, "--save-dir")).mkdir(parents=True)
    run = server.run("fairseq-train", words, cwd=tmp_path)
    assert run.code == 0, run.log[-2500:]
    assert '"valid_hc_pred"' in run.log


def _learned():
    spec = importlib.util.spec_from_file_location("learned", ROOT / "examples" / "electra" / "learned.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_small_electra_trains_and_what_it_has_learned_is_told(server, files, tmp_path, monkeypatch, capsys):
    given = {key: files["electra"][key] for key in ("data", "synonyms")}
    words = command("electra", "--small", "--method", "hc", "--gpus", 0, *dashed(given), cwd=tmp_path)
    words += flags({"max_update": 4, "total_num_update": 4, "warmup_updates": 1, "num_workers": 0})
    words += flags({**SIZES["electra"], "save_interval_updates": 2})
    (tmp_path / option(words, "--save-dir")).mkdir(parents=True)
    run = server.run("fairseq-train", words, cwd=tmp_path)
    assert run.code == 0, run.log[-2500:]
    monkeypatch.setattr("sys.argv", ["learned.py", str(given["data"]), str(tmp_path / run.folder)])
    _learned().main()
    told = capsys.readouterr().out
    assert "| 2 |" in told
    assert "| 4 |" in told
    assert "hc_pred" in told
    assert "bits after 4 updates" in told


def test_unigram_entropy(tmp_path):
    """Counts plus one in training: a 3, b 1, of 4 + 2; held out: a, b, b."""
    make_corpus(tmp_path, train=[[["a", "a"], ["a", "b"]]], valid=[[["a"], ["b", "b"]]])
    expected = -(torch.log2(torch.tensor(4 / 6)) + 2 * torch.log2(torch.tensor(2 / 6))) / 3
    assert _learned().unigram_entropy(tmp_path) == pytest.approx(expected.item())


def test_verdict_counts_from_where_the_curve_stays():
    verdict = _learned().verdict
    curve = {10: 9.0, 20: 7.0, 30: 8.5, 40: 7.5, 50: 7.0}
    assert verdict("generator", "bits", curve, 8, falling=True).endswith("below it since update 40")
    assert verdict("generator", "bits", curve, 6, falling=True).endswith("not below it")
    assert verdict("discriminator", "%", {10: 61.0}, 60, falling=False).endswith("above it since update 10")
