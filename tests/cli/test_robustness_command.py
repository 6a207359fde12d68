"""Both transformations from the command line, and the table of their pairs, on a small file."""

import json
import sys
from pathlib import Path

import pytest
from small_attacks import make_file, questions_of, same_but_offsets, write

from fairseq_tn.cli import main

ACTIONS = ("swap-synonyms", "add-sentence-diverse")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("attacks") / "in.json", make_file())


@pytest.fixture(scope="module")
def command(relations):
    """Run an action of the command; WordNet is read once for all."""
    from fairseq_tn.synonyms import relations as relations_module
    from fairseq_tn.synonyms import wordnet

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wordnet, "find_wordnet", lambda path: relations.wordnet)
        patch.setattr(relations_module, "Relations", lambda found: relations)
        yield lambda action, *arguments: main(["robustness", action, *map(str, arguments)])


@pytest.fixture(scope="module")
def written(command, source):
    """The outputs of both actions with the default options."""
    for action in ACTIONS:
        assert command(action, source, source.parent / f"{action}.json") == 0
    return source.parent


def test_swaps_change_words_only(written, source):
    before, after = (questions_of(written / f"swap-synonyms{end}.json") for end in (".original", ""))
    everything = questions_of(source)
    assert list(before) == list(after)
    # the German context is left out
    assert set(everything) - set(before) == {"3-0"}
    for identity, (context, entry) in before.items():
        assert context == everything[identity][0]
        assert entry == everything[identity][1]
        changed, transformed = after[identity]
        assert same_but_offsets(entry, transformed)
        assert changed != context
        assert len(changed.split()) == len(context.split())


def test_added_sentences_are_all_that_changes(written, source):
    before, after = (questions_of(written / f"add-sentence-diverse{end}.json") for end in (".original", ""))
    everything = questions_of(source)
    assert list(before) == list(after)
    assert {"0-0", "0-1", "0-3", "2-0"} <= set(before)
    # not English; no question; both have no sentence
    assert not {"3-0", "1-3"} & set(before)
    for identity, (context, entry) in before.items():
        assert (context, entry) == everything[identity]
        changed, transformed = after[identity]
        assert same_but_offsets(entry, transformed)
        extra = len(changed) - len(context)
        assert extra > 10
        # without the added part it is the original
        begins = [n for n in range(len(context) + 1) if changed[:n] + changed[n + extra :] == context]
        assert begins
        sentence = changed[begins[0] : begins[0] + extra].strip()
        assert sentence.endswith(".") or changed[begins[-1] :].strip().endswith(".")
        assert all(answer["text"] not in sentence for answer in entry["answers"])


def test_a_seed_decides_everything(command, source, tmp_path):
    for action in ACTIONS:
        texts = []
        for number, seed in enumerate((1, 1, 2)):
            assert command(action, source, tmp_path / f"{number}.json", "--seed", seed) == 0
            texts.append((tmp_path / f"{number}.json").read_bytes())
        assert texts[0] == texts[1]
        assert texts[0] != texts[2]


def test_counts_are_told(command, source, tmp_path, capsys):
    content = make_file()
    content["data"][0]["paragraphs"][0]["qas"][1]["answers"][0]["answer_start"] += 1
    del content["data"][0]["paragraphs"][0]["qas"][3]["is_impossible"]
    path = write(tmp_path / "in.json", content)
    assert (
        command("add-sentence-diverse", path, tmp_path / "out.json", "--original", tmp_path / "o.json") == 0
    )
    told = capsys.readouterr().out
    assert "of 11 questions (1 unanswerable)" in told
    assert "left out: 1 questions with an answer that is not at its answer_start" in told
    assert "left out: 1 questions with a context that is not in English" in told
    assert "left out: 1 questions without a clear question word" in told
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.json", "o.json", "out.json"]
    assert "0-1" not in questions_of(tmp_path / "o.json")
    # without answers it is unanswerable, and is marked now
    for name in ("o.json", "out.json"):
        assert questions_of(tmp_path / name)["0-3"][1]["is_impossible"] is True
    assert command("swap-synonyms", path, tmp_path / "s.json", "--max-words", 1) == 0
    told = capsys.readouterr().out
    assert "3 of 4 contexts, 9 questions (1 unanswerable): 3 of " in told
    assert "left out: 1 contexts not in English" in told


def test_files_of_version_1_stay_files_of_version_1(command, tmp_path):
    content = make_file()
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [entry for entry in paragraph["qas"] if entry["answers"]]
            for entry in paragraph["qas"]:
                del entry["is_impossible"]
    path = write(tmp_path / "in.json", content)
    for action in ACTIONS:
        assert command(action, path, tmp_path / "out.json") == 0
        assert all("is_impossible" not in entry for _, entry in questions_of(tmp_path / "out.json").values())


def broken(change):
    content = make_file()
    change(content["data"][1]["paragraphs"][0])
    return content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (broken(lambda p: p.pop("context")), "data[1].paragraphs[0].context is missing"),
        (
            broken(lambda p: p["qas"][1]["answers"][0].pop("answer_start")),
            "qas[1].answers[0].answer_start is missing",
        ),
        (
            broken(lambda p: p["qas"][0].update(plausible_answers=[{"text": 3}])),
            "qas[0].plausible_answers[0].text",
        ),
        (
            broken(lambda p: p["qas"][0].update(plausible_answers={})),
            "qas[0].plausible_answers is not a list",
        ),
        ({"data": []}, "holds no question"),
        ({"data": make_file()["data"][1:], "x": 1}, None),
    ],
)
def test_malformed_files_are_named_by_element(command, tmp_path, capsys, content, said):
    path = write(tmp_path / "in.json", content)
    status = command("swap-synonyms", path, tmp_path / "out.json")
    error = capsys.readouterr().err
    assert status == (1 if said else 0)
    if said:
        assert said in error
        assert str(path) in error
        assert error.count("\n") == 1
        assert not (tmp_path / "out.json").exists()


def test_other_languages_and_equal_names_are_refused(command, source, tmp_path, capsys):
    content = make_file()
    content["data"] = [{"paragraphs": content["data"][1]["paragraphs"][1:]}]
    for action in ACTIONS:
        assert command(action, write(tmp_path / "in.json", content), tmp_path / "out.json") == 1
        assert "no context is in English; nothing is written" in capsys.readouterr().err
        assert command(action, source, source) == 1
        assert "must be three files" in capsys.readouterr().err
        assert command(action, source, tmp_path) == 1
        assert "is a folder" in capsys.readouterr().err


def test_without_the_extra_one_line_says_what_to_install(command, source, tmp_path, capsys, monkeypatch):
    from fairseq_tn.evaluation.robustness.language import load_pipeline

    load_pipeline.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    assert command("swap-synonyms", source, tmp_path / "out.json") == 1
    error = capsys.readouterr().err
    assert "need spacy: pip install 'fairseq_tn[robustness]'" in error
    assert error.count("\n") == 1


@pytest.fixture
def predictions(written, tmp_path):
    """All right on the original; on the transformed file the first three answers are wrong."""
    paths = [written / f"add-sentence-diverse{end}.json" for end in (".original", "")]
    answers = {
        identity: entry["answers"][0]["text"] if entry["answers"] else ""
        for identity, (_, entry) in questions_of(paths[0]).items()
    }
    files = [write(tmp_path / "first.json", answers)]
    files.append(write(tmp_path / "second.json", answers | dict.fromkeys(list(answers)[:3], "wrong")))
    return paths, files, len(answers)


def test_the_table_of_pairs(predictions, tmp_path, capsys):
    paths, files, number = predictions
    words = ["--pairs", *paths, "--predictions-in", *files, "--version-2", "--json", tmp_path / "table.json"]
    assert main(["evaluate", "squad", *map(str, words)]) == 0
    told = capsys.readouterr().out
    after = 100 * (number - 3) / number
    line = next(line for line in told.splitlines() if line.startswith("all") and "EM" in line).split()
    assert line[:4] == ["all", "EM", str(number), "100.00"]
    assert f"{after:.2f}" in line
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [(row["questions"], row["metric"]) for row in rows] == [
        (group, metric) for group in ("all", "answerable", "unanswerable") for metric in ("EM", "F1")
    ]
    drop = rows[0]["drop"]
    assert drop["value"] == pytest.approx(100 - after)
    assert 0 <= drop["low"] <= drop["value"] <= drop["high"] <= 100
    assert rows[0]["original"] == {"value": 100.0, "low": 100.0, "high": 100.0}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--predictions-in", "{first}"), "--predictions-in takes two files with --pairs"),
        (
            ("--predictions-in", "{first}", "{second}", "--predictions", "x"),
            "--predictions has no use with --pairs",
        ),
        (("--predictions-in", "{first}", "{second}"), "give --version-2"),
        ((), "give --checkpoint FILE"),
    ],
)
def test_bad_pairs(predictions, change, said, capsys):
    paths, files, _ = predictions
    named = [word.format(first=files[0], second=files[1]) for word in change]
    assert main(["evaluate", "squad", "--pairs", *map(str, paths), *named]) == 1
    assert said in capsys.readouterr().err


def test_pairs_of_other_questions_or_answers_are_refused(predictions, source, tmp_path, capsys):
    paths, files, _ = predictions
    more = ["--predictions-in", str(files[0]), str(files[1]), "--version-2"]
    assert main(["evaluate", "squad", "--pairs", str(source), str(paths[1]), *more]) == 1
    assert "are not in TRANSFORMED" in capsys.readouterr().err
    content = json.loads(paths[1].read_text())
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["text"] = "other"
    assert (
        main(["evaluate", "squad", "--pairs", str(paths[0]), str(write(tmp_path / "o.json", content)), *more])
        == 1
    )
    assert "has other right answers in TRANSFORMED" in capsys.readouterr().err
