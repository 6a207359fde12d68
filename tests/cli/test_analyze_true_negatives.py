"""`fairseq-tn analyze false-negatives`, `corrections` and `embeddings`: what they print and write, and bad input."""

import json
import math
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))

from small_world import LENGTH, binarise, make_world

from fairseq_tn.cli import main
from fairseq_tn.convert.from_hf import convert_from_hf, task_dictionary

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

from small_bert import write_bert

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # fairseq's use of hydra


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = make_world(tmp_path_factory.mktemp("world"))
    # a run from model b to model a, and another vocabulary
    run = world.root / "runs" / "hc"
    run.mkdir(parents=True)
    states = [torch.load(world.checkpoints[name], weights_only=False) for name in "ba"]
    for updates in (900, 100, 1000):
        history = [{**states[0]["optimizer_history"][-1], "num_updates": updates}]
        state = {**states[0], "model": {}, "optimizer_history": history}
        share = updates / 1000
        for key, value in states[0]["model"].items():
            other = states[1]["model"][key]
            state["model"][key] = torch.lerp(value, other, share) if value.is_floating_point() else value
        torch.save(state, run / (f"checkpoint_at_{updates}.pt" if updates < 1000 else "checkpoint_7_1000.pt"))
    (run / "dict.txt").write_bytes((world.data / "dict.txt").read_bytes())
    write_bert(world.root / "other_hf", seed=9, shuffle=8)
    convert_from_hf(world.root / "other_hf", world.root / "other")
    return world


def run(capsys, *arguments) -> str:
    assert main(["analyze", *map(str, arguments)]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def fails(capsys, *arguments) -> str:
    """The line of the error."""
    assert main(["analyze", *map(str, arguments)]) == 1
    captured = capsys.readouterr()
    line = captured.err.strip().splitlines()[-1]
    assert line.startswith("fairseq-tn analyze: error: ")
    assert "Traceback" not in captured.err
    return line


def rates_of(world, *models, **options):
    given = {
        "data": world.data,
        "synonyms": world.table,
        "wordnet": None,
        "tokens_per_sample": LENGTH,
        **options,
    }
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in given.items() if v not in (None, True)]
    flags += [f"--{k.replace('_', '-')}" for k, v in given.items() if v is True]
    return ["false-negatives", "--cpu", "--model", *models, *flags]


def test_false_negatives_of_a_run_and_a_model(world, small_wordnet, tmp_path, capsys):
    command = rates_of(
        world,
        world.root / "runs" / "hc",
        f"B={world.checkpoints['b']}",
        wordnet=small_wordnet,
        json=tmp_path / "new" / "rates.json",
        plot=tmp_path / "plots",
        resamples=50,
        bins=3,
    )
    out = run(capsys, *command)
    result = json.loads((tmp_path / "new" / "rates.json").read_text(encoding="utf-8"))
    assert list(result["models"]) == ["hc@100", "hc@900", "hc@1000", "B"]
    assert [one["updates"] for one in result["models"].values()][:3] == [100, 900, 1000]
    assert result["paper"]["sequence_level"] == 7.07
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert "paper: BERT-base (table 2)" in out
    assert "1.41" in lines["paper:"]
    for name, one in result["models"].items():
        rate = one["prediction_level"]
        assert rate["value"] == pytest.approx(100 * rate["found"] / rate["of"])
        first = next(line for line in out.splitlines() if line.startswith(f"{name} "))
        assert f"{rate['value']:.2f}" in first
        assert sum(group["of"] for group in one["groups"]["part of speech"].values()) == rate["of"]
        assert sum(group["found"] for group in one["groups"]["frequency"].values()) == rate["found"]
        assert set(one["groups"]["part of speech"]) == {"noun", "verb", "adjective", "adverb", "none"}
    assert "10 %" in lines["hc@100"]
    assert "90 %" in lines["hc@900"]
    assert result["differences"]["B"]["less"] == "hc@1000"
    assert result["settings"]["frequency_in"] == "the training text"
    for name in ("false-negatives-training", "false-negatives-groups"):
        assert (tmp_path / "plots" / f"{name}.png").stat().st_size > 5000
        assert "<svg" in (tmp_path / "plots" / f"{name}.svg").read_text()
    again = tmp_path / "again.json"
    run(
        capsys,
        *(again if str(part) == f"--json={tmp_path}/new/rates.json" else part for part in command[:-4]),
        f"--wordnet={small_wordnet}",
        "--resamples=50",
        "--bins=3",
        f"--json={again}",
    )
    assert json.loads(again.read_text())["models"] == result["models"]


def test_checkpoints_that_are_named_one_by_one_are_a_series(world, tmp_path, capsys):
    folder = world.root / "runs" / "hc"
    files = [folder / "checkpoint_7_1000.pt", folder / "checkpoint_at_100.pt"]

    def series_of(*models):
        run(capsys, *rates_of(world, *models, json=tmp_path / "r.json", resamples=2))
        found = json.loads((tmp_path / "r.json").read_text())["models"]
        return [(name, one["series"], one["updates"]) for name, one in found.items()]

    assert series_of(*files) == [("hc/checkpoint_at_100", "hc", 100), ("hc", "hc", 1000)]
    named = [f"late={files[0]}", f"early={files[1]}"]
    assert series_of(*named) == [("early", "hc", 100), ("late", "hc", 1000)]
    assert series_of(f"late={files[0]}") == [("late", "late", 1000)]
    # the folder's name is taken
    assert [name for _, name, _ in series_of(*named, f"hc={world.checkpoints['a']}")][:2] == ["late", "late"]


def test_a_hugging_face_folder_and_its_conversion_have_the_same_rates(world, tmp_path, capsys):
    run(
        capsys,
        *rates_of(
            world,
            f"hf={world.root / 'hf' / 'a'}",
            f"fairseq={world.checkpoints['a']}",
            no_nsp=True,
            resamples=5,
            limit=9,
            json=tmp_path / "r.json",
        ),
    )
    result = json.loads((tmp_path / "r.json").read_text())
    models = result["models"]
    assert models["hf"]["groups"] == models["fairseq"]["groups"]
    assert models["hf"]["sequence_level"] == models["fairseq"]["sequence_level"]
    assert result["settings"]["sentence_pairs"] is False
    assert result["sequences"] == 9


def test_without_wordnet_and_training_text_there_are_still_frequencies(world, tmp_path, capsys, monkeypatch):
    from fairseq_tn.synonyms import wordnet

    monkeypatch.setattr(wordnet, "locate_wordnet", lambda: None)
    data = tmp_path / "data"
    data.mkdir()
    for file in ("dict.txt", "valid.bin", "valid.idx"):
        (data / file).write_bytes((world.data / file).read_bytes())
    out = run(capsys, *rates_of(world, world.checkpoints["a"], data=data, resamples=2))
    assert "no parts of speech: WordNet is not installed" in out
    assert "frequency in the evaluated text" in out


def other_table(world, tmp_path):
    text = world.table.read_text()
    (tmp_path / "table.txt").write_text(text.replace("# vocabulary: ", "# vocabulary: 0"))
    return tmp_path / "table.txt"


def test_a_table_of_another_vocabulary_is_refused_unless_allowed(world, tmp_path, capsys):
    table = other_table(world, tmp_path)
    model = world.checkpoints["a"]
    assert "--allow-vocabulary-mismatch" in fails(capsys, *rates_of(world, model, synonyms=table))
    out = run(capsys, *rates_of(world, model, synonyms=table, allow_vocabulary_mismatch=True, resamples=2))
    assert f"synonyms: {table}" in out
    corrections = ["corrections", "--model", model, "--text", world.text, "--synonyms", table]
    assert "--allow-vocabulary-mismatch" in fails(capsys, *corrections)
    run(capsys, *corrections, "--allow-vocabulary-mismatch")


def no_table(world, tmp_path):
    return rates_of(world, world.checkpoints["a"], synonyms=tmp_path / "none.txt"), "none.txt"


def other_vocabulary(world, tmp_path):
    return rates_of(world, world.checkpoints["a"], world.root / "other" / "model.pt"), "another vocabulary"


def folder_without_checkpoints(world, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint_last.pt").write_bytes(b"")
    return rates_of(world, tmp_path / "run"), "checkpoint_at_UPDATES.pt"


def training_split(world, tmp_path):
    return rates_of(world, world.checkpoints["a"], split="train"), "--split train"


def missing_split(world, tmp_path):
    return rates_of(world, world.checkpoints["a"], split="test"), "test"


def too_long(world, tmp_path):
    return rates_of(world, world.checkpoints["a"], tokens_per_sample=33), "--tokens-per-sample 33"


def too_long_for_a_folder(world, tmp_path):
    return rates_of(world, world.root / "hf" / "a", tokens_per_sample=33), "--tokens-per-sample 33"


def no_wordnet(world, tmp_path):
    return rates_of(world, world.checkpoints["a"], wordnet=tmp_path), f"no WordNet in {tmp_path}"


def json_is_a_folder(world, tmp_path):
    return rates_of(world, world.checkpoints["a"], json=tmp_path), f"--json {tmp_path} is a folder"


def two_runs_of_one_name(world, tmp_path):
    run = tmp_path / "hc"
    run.symlink_to(world.root / "runs" / "hc")
    return rates_of(world, world.root / "runs" / "hc", run), "NAME="


def ids_of_gpt2(world, tmp_path):
    # the first check that knows the vocabulary is that of the table
    data = tmp_path / "data"
    data.mkdir()
    (data / "dict.txt").write_text("".join(f"{n} 1\n" for n in range(60)))
    dictionary = task_dictionary(data / "dict.txt")
    binarise(data, "valid", dictionary, [[[str(n) for n in range(9)]] * 3] * 3)
    (tmp_path / "table.txt").write_text("1\t2\n")
    command = rates_of(world, world.checkpoints["a"], data=data, synonyms=tmp_path / "table.txt")
    return [*command, "--wordnet", world.wordnet], "--gpt2-encoder"


def empty_text(world, tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    return corrections_of(world, tmp_path / "empty.txt"), "holds no text"


def no_text(world, tmp_path):
    return corrections_of(world, tmp_path / "gone.txt"), "gone.txt"


def text_is_a_folder(world, tmp_path):
    return corrections_of(world, tmp_path), "not a folder"


def html_is_a_folder(world, tmp_path):
    return [*corrections_of(world, world.text), "--html", tmp_path], f"--html {tmp_path} is a folder"


def corrections_without_a_table(world, tmp_path):
    command = ["corrections", "--model", world.checkpoints["a"], "--text", world.text]
    return [*command, "--synonyms", tmp_path / "none.txt"], "none.txt"


def no_head(world, tmp_path):
    write_bert(tmp_path / "headless", architecture="BertModel", shuffle=3)
    return rates_of(world, tmp_path / "headless"), "headless has no masked-LM head"


def no_head_for_corrections(world, tmp_path):
    write_bert(tmp_path / "headless", architecture="BertModel", shuffle=3)
    command = ["corrections", "--model", tmp_path / "headless", "--text", world.text]
    return [*command, "--synonyms", world.table], "headless has no masked-LM head"


def unknown_word(world, tmp_path):
    return ["embeddings", "--model", world.checkpoints["a"], "--words", "a", "zebra"], "--words zebra"


def corrections_of(world, text):
    return [
        "corrections",
        "--cpu",
        "--model",
        world.checkpoints["a"],
        "--text",
        text,
        "--synonyms",
        world.table,
    ]


@pytest.mark.parametrize(
    "case",
    [
        no_table,
        other_vocabulary,
        folder_without_checkpoints,
        training_split,
        missing_split,
        too_long,
        too_long_for_a_folder,
        no_wordnet,
        json_is_a_folder,
        two_runs_of_one_name,
        ids_of_gpt2,
        empty_text,
        no_text,
        text_is_a_folder,
        html_is_a_folder,
        corrections_without_a_table,
        no_head,
        no_head_for_corrections,
        unknown_word,
    ],
)
def test_bad_input_is_one_clear_line(case, world, small_wordnet, tmp_path, capsys):
    world.wordnet = small_wordnet
    command, words = case(world, tmp_path)
    assert words in fails(capsys, *command)


class Page(HTMLParser):
    """The text of the marks of a page and of its tables' rows, and whether anything is fetched."""

    def __init__(self):
        super().__init__()
        self.marks, self.rows, self.open, self.fetched = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.fetched += [value for key, value in attrs if key in ("src", "href")]
        if tag == "mark":
            self.marks.append((attributes["class"], ""))
        if tag == "tr":
            self.rows.append("")
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "mark" in self.open:
            kind, text = self.marks[-1]
            self.marks[-1] = (kind, text + data)
        if "tr" in self.open:
            self.rows[-1] += f" {data}"


def test_corrections_as_text_json_lines_and_web_page(world, tmp_path, capsys):
    files = {name: tmp_path / f"c.{name}" for name in ("json", "jsonl", "html")}
    options = [f"--{name}={file}" for name, file in files.items()]
    out = run(capsys, *corrections_of(world, world.text), "--examples", 3, *options)
    examples = [json.loads(line) for line in files["jsonl"].read_text(encoding="utf-8").splitlines()]
    assert len(examples) == 3
    whole = json.loads(files["json"].read_text())["models"]["a"]
    assert [one["masked"] for one in whole["examples"]] == [one["masked"] for one in examples]
    page = Page()
    page.feed(files["html"].read_text(encoding="utf-8"))
    assert page.fetched == []
    kinds = {"right": "good", "corrected": "near", "wrong": "bad"}
    signs = {"right": "✓", "corrected": "≈", "wrong": "✗"}
    expected, rows = [], []
    for example in examples:
        assert example["text"] == world.sentences[example["sentence"] - 1]
        assert any(token["verdict"] == "corrected" for token in example["masked"])
        assert f"[{example['sentence']}] " in out
        for token in example["masked"]:
            change = token["gold"]
            if token["verdict"] != "right":
                assert f"[{token['gold']} -> {token['predicted']}]" in out
                change += f" → {token['predicted']}"
            expected.append((kinds[token["verdict"]], f"{signs[token['verdict']]} {change}"))
            rows.append(f"{token['probability']:.2f}")
    assert page.marks == expected
    shown = [row for row in page.rows if "right token" not in row]
    assert all(probability in row for probability, row in zip(rows, shown, strict=True))
    assert "color-scheme: light dark" in files["html"].read_text()
    assert f"{whole['verdicts']['corrected']:,} corrected" in out
    again = run(capsys, *corrections_of(world, world.text), "--examples", 3)
    assert out.startswith(again.rstrip())


def test_embeddings_of_models_of_two_vocabularies(world, tmp_path, capsys):
    models = [f"a={world.checkpoints['a']}", f"other={world.root / 'other_hf'}", world.root / "runs" / "hc"]
    result = tmp_path / "e.json"
    out = run(
        capsys,
        "embeddings",
        "--model",
        *models,
        "--json",
        result,
        "--plot",
        tmp_path,
        "--neighbours",
        4,
        "--words",
        "a",
        "B",
    )
    found = json.loads(result.read_text())["models"]
    assert list(found) == ["a", "other", "hc@100", "hc@900", "hc@1000"]
    for name, one in found.items():
        line = next(line for line in out.splitlines() if line.startswith(f"{name} "))
        assert f"{one['rows']['ordinary']['mean_cosine']:.4f}" in line
        if name in ("hc@100", "hc@900"):  # the last of a run speaks for it
            assert one["neighbours"] == {}
        else:
            assert len(one["neighbours"]["a"]) == 4
            assert "a" not in [other for other, _ in one["neighbours"]["a"]]
        assert one["rows"]["all"]["number"] > one["rows"]["ordinary"]["number"]
    last, same = (found[name]["rows"]["all"]["singular_values"] for name in ("hc@1000", "a"))
    assert last == pytest.approx(same)
    for figure in ("embedding-spectrum", "embedding-training"):
        assert (tmp_path / f"{figure}.png").stat().st_size > 5000


def test_the_sample_of_words_depends_on_the_seed(world, capsys):
    def words(seed):
        out = run(capsys, "embeddings", "--model", world.checkpoints["a"], "--seed", seed, "--sample", 3)
        return out.split("Nearest rows by cosine\n")[1].rstrip("\n")

    assert words(1) == words(1)
    assert len({words(seed) for seed in range(4)}) > 1
    assert len(words(1).split("\n")) == 3


def test_a_diverged_model_is_refused(world, tmp_path, capsys):
    state = torch.load(world.checkpoints["a"], weights_only=False)
    state["model"]["encoder.embed_tokens.weight"][5] = math.inf
    torch.save(state, tmp_path / "model.pt")
    (tmp_path / "dict.txt").write_bytes((world.data / "dict.txt").read_bytes())
    assert "infinite" in fails(capsys, "embeddings", "--model", tmp_path / "model.pt")
