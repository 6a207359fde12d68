"""What the recipes of fine-tuning take for a model: a checkpoint, a converted folder, a Hugging Face folder."""

import os
import shlex

import pytest
import recipes
from convert.small_bert import write_bert
from recipes import ROOT, option

TEXT = {
    "glue": ["--data", "{text}"],
    "squad": ["--train", "{text}", "--valid", "{text}"],
    "tagging": ["--train", "{text}"],
}
EXTRA = {"glue": ["--task", "RTE"], "squad": ["--version", "2.0"], "tagging": []}


def run(name, checkpoint, folder, *arguments):
    text = folder / "text"
    text.touch()
    words = [word.format(text=text) for word in EXTRA[name] + TEXT[name]]
    words += ["--checkpoint", str(checkpoint), "--output", str(folder / "out"), "--gpus", "0", "--dry-run"]
    return recipes.script(ROOT / "examples" / "finetune" / name, *words, *arguments)


def commands(done):
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.replace("\\\n", "").splitlines()]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "small-bert"
    write_bert(folder, "BertModel")
    return folder


def test_a_hugging_face_folder_is_converted_once_for_all_recipes(original, tmp_path):
    converted = tmp_path / "out" / "models" / "small-bert"
    times = []
    for name in TEXT:
        done = run(name, original, tmp_path)
        prepare, train, evaluate, *_ = commands(done)
        # only these two count their updates in what is prepared
        assert ("1 stands in its place" in done.stderr) == (name != "tagging")
        assert option(prepare, "--tokenizer") == str(converted / "hf")
        assert option(prepare, "--dict") == str(converted / "dict.txt")
        assert option(train, "--finetune-from-model") == str(converted / "model.pt")
        assert option(train, "--encoder-embed-dim") == "24"
        assert option(evaluate, "--name") == "small-bert"
        times.append((converted / "model.pt").stat().st_mtime_ns)
    assert len(set(times)) == 1
    # the folder that conversion made is a model too
    _, train, *_ = commands(run("glue", converted, tmp_path, "--method", "again"))
    assert option(train, "--finetune-from-model") == str(converted / "model.pt")
    assert "again" in option(train, "--save-dir")
    # a folder whose files changed is converted anew
    os.utime(original / "model.safetensors", ns=(times[0] + 10**12, times[0] + 10**12))
    commands(run("glue", original, tmp_path))
    assert (converted / "model.pt").stat().st_mtime_ns > times[0]


def test_another_folder_of_the_same_name_is_not_taken_for_it(original, tmp_path):
    converted = tmp_path / "out" / "models" / "small-bert"
    converted.mkdir(parents=True)
    (converted / "source.txt").write_text("/elsewhere/small-bert\n")
    done = run("glue", original, tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "/elsewhere/small-bert" in done.stderr


def test_a_file_of_a_hugging_face_folder(original, tmp_path):
    done = run("glue", original / "model.safetensors", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"give --checkpoint the folder {original}" in done.stderr


def test_a_folder_without_a_model(original, tmp_path):
    (tmp_path / "empty").mkdir()
    done = run("glue", tmp_path / "empty", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "neither model.pt nor config.json" in done.stderr


def test_a_folder_without_a_tokenizer(original, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).symlink_to(original / name)
    done = run("squad", bare, tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "tokenizer" in done.stderr
    assert not (tmp_path / "out" / "models" / "bare" / "source.txt").exists()
