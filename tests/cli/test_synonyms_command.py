import pytest

from fairseq_tn.cli import main
from fairseq_tn.synonyms import SynonymTable


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("stay 9\nremain 5\n##ing 4\nrest 4\nwent 1\nmove 1\nmadeupword0000 0\n")
    return path


def build(vocabulary, output, *options):
    return main(
        ["synonyms", "build", "--vocab", str(vocabulary), "--output", str(output), *map(str, options)]
    )


def test_build_and_show(vocabulary, tmp_path, small_wordnet, capsys):
    output = tmp_path / "new" / "synonyms.txt"
    assert build(vocabulary, output, "--source", "wordnet", "--wordnet", small_wordnet) == 0
    printed = capsys.readouterr().out
    assert "4 of 11 tokens (36.4 %) have synonyms, 7 pairs" in printed
    assert f"written to {output}" in printed
    assert len(output.read_text().splitlines()) == 3 + 4

    symbols = ["<s>", "<pad>", "</s>", "<unk>", "stay", "remain", "##ing", "rest", "went", "move", "<mask>"]
    assert SynonymTable.load(output, symbols).num_pairs == 7

    assert main(["synonyms", "show", "stay", "went", "--table", str(output)]) == 0
    assert capsys.readouterr().out == "stay: remain rest\nwent: move\n"
    assert main(["synonyms", "show", "stay", "nothing", "--table", str(output)]) == 1
    assert capsys.readouterr().out == "stay: remain rest\nnothing: no synonyms\n"


def test_exact_lemmas(vocabulary, tmp_path, small_wordnet, capsys):
    assert build(vocabulary, tmp_path / "table", "--wordnet", small_wordnet, "--exact-lemmas") == 0
    assert "WordNet 3.0 (exact lemmas, wordpiece vocabulary)\n3 of 11 tokens" in capsys.readouterr().out


def test_gpt2_vocabulary_needs_its_encoder(tmp_path, small_wordnet, capsys):
    vocabulary = tmp_path / "dict.txt"
    vocabulary.write_text("262 10\n318 5\n")
    assert build(vocabulary, tmp_path / "table", "--wordnet", small_wordnet) == 1
    assert "give GPT-2's encoder.json" in capsys.readouterr().err
    encoder = tmp_path / "encoder.json"
    encoder.write_text('{"Ġstay": 262, "Ġrest": 318}')
    options = ["--wordnet", small_wordnet, "--gpt2-encoder", encoder]
    assert build(vocabulary, tmp_path / "table", *options) == 0
    assert (tmp_path / "table").read_text().endswith("\n262\t318\n318\t262\n")
    assert "\n  stay: rest\n  rest: stay\n" in capsys.readouterr().out

    show = ["synonyms", "show", "stay", "318", "--table", str(tmp_path / "table")]
    assert main(show) == 1
    assert "--gpt2-encoder" in capsys.readouterr().err
    assert main([*show, "--gpt2-encoder", str(encoder)]) == 0
    assert capsys.readouterr().out == "stay: rest\nrest: stay\n"


def test_vocabulary_without_synonyms_leaves_no_table(tmp_path, small_wordnet, capsys):
    vocabulary = tmp_path / "dict.txt"
    vocabulary.write_text("家 1\n狗 1\n", encoding="utf-8")
    assert build(vocabulary, tmp_path / "table", "--wordnet", small_wordnet) == 1
    assert "is it a vocabulary of another language?" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dict.txt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": "gone.txt"}, "cannot read the vocabulary"),
        ({"output": "."}, "is a folder; name a file"),
        ({"wordnet": "gone"}, "no WordNet in"),
    ],
)
def test_bad_options(vocabulary, tmp_path, small_wordnet, capsys, options, message):
    chosen = {"vocabulary": vocabulary.name, "output": "table", "wordnet": small_wordnet, **options}
    paths = {name: tmp_path / path for name, path in chosen.items()}
    assert build(paths["vocabulary"], paths["output"], "--wordnet", paths["wordnet"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "table").exists()


def test_show_names_a_bad_table(tmp_path, capsys):
    (tmp_path / "table").write_text("stay remain\n")
    assert main(["synonyms", "show", "stay", "--table", str(tmp_path / "table")]) == 1
    assert "table, line 1: expected" in capsys.readouterr().err


def test_the_vocabulary_is_not_overwritten(vocabulary, tmp_path, small_wordnet, capsys):
    before = vocabulary.read_text()
    link = tmp_path / "link"
    link.symlink_to(vocabulary)
    for output in (vocabulary, link):
        assert build(vocabulary, output, "--wordnet", small_wordnet) == 1
        assert "is the vocabulary itself" in capsys.readouterr().err
    assert vocabulary.read_text() == before
