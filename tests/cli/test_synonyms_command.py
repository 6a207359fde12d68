import pytest
import torch

from fairseq_tn.cli import main
from fairseq_tn.synonyms import SynonymTable
from fairseq_tn.synonyms.table import read_table


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


def write_vectors(path):
    path.write_text("the 0 1\nstay 1 0\nremain 1 0.1\nrest 1 0.5\nwent 0 -1\nmove 0.1 -1\n")
    return path


def test_build_from_vectors(vocabulary, tmp_path, capsys):
    vectors = write_vectors(tmp_path / "vectors.txt")
    output = tmp_path / "table"
    assert build(vocabulary, output, "--source", "vectors", "--vectors", vectors, "--neighbours", 1) == 0
    printed = capsys.readouterr().out
    assert "vectors vectors.txt (1 neighbours, cosine at least 0.6, wordpiece vocabulary)" in printed
    assert "of the vocabulary's words, 5 of 5 have vectors" in printed
    assert "5 of 11 tokens (45.5 %) have synonyms, 5 pairs" in printed
    rows = output.read_text().splitlines()[4:]
    assert rows == ["stay\tremain", "remain\tstay", "rest\tremain", "went\tmove", "move\twent"]
    assert read_table(output)[0]["words"] == "5 of 5 have vectors"
    assert build(vocabulary, output, "--source", "vectors", "--vectors", vectors, "--min-cosine", 0.97) == 0
    assert output.read_text().splitlines()[4:] == [
        "stay\tremain",
        "remain\tstay",
        "went\tmove",
        "move\twent",
    ]


def test_build_from_a_model(vocabulary, tmp_path, capsys):
    weight = torch.eye(12)
    weight[5] = weight[4] + 0.1
    torch.save({"model": {"encoder.embed_tokens.weight": weight}}, tmp_path / "model.pt")
    output = tmp_path / "table"
    assert build(vocabulary, output, "--source", "model", "--checkpoint", tmp_path / "model.pt") == 0
    assert output.read_text().splitlines()[4:] == ["stay\tremain", "remain\tstay"]
    assert "model model.pt (10 neighbours" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--source", "vectors"], "--source vectors needs --vectors FILE"),
        (["--source", "model"], "--source model needs --checkpoint FILE"),
        (["--source", "wordnet", "--neighbours", "3"], "--neighbours means nothing to --source wordnet"),
        (["--source", "vectors", "--vectors", "x", "--exact-lemmas"], "--exact-lemmas means nothing to"),
        (["--source", "vectors", "--vectors", "VECTORS", "--neighbours", "0"], "--neighbours 0: give"),
        (["--source", "vectors", "--vectors", "VECTORS", "--min-cosine", "-1.1"], "--min-cosine -1.1: a"),
        (["--source", "vectors", "--vectors", "VECTORS", "--min-cosine", "1"], "; lower --min-cosine"),
        (["--source", "vectors", "--vectors", "gone"], "cannot read the vectors gone"),
        (["--source", "model", "--checkpoint", "VECTORS"], "is not a checkpoint"),
    ],
)
def test_bad_options_of_vectors(options, message, vocabulary, tmp_path, capsys):
    vectors = str(write_vectors(tmp_path / "vectors.txt"))
    options = [vectors if option == "VECTORS" else option for option in options]
    assert build(vocabulary, tmp_path / "table", *options) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "table").exists()


def test_vectors_of_a_gpt2_vocabulary_need_its_encoder(tmp_path, capsys):
    vocabulary, encoder = tmp_path / "dict.txt", tmp_path / "encoder.json"
    vocabulary.write_text("262 10\n318 5\n11 2\n")
    encoder.write_text('{"Ġstay": 262, "Ġremain": 318, "remain": 11}')
    options = ["--source", "vectors", "--vectors", write_vectors(tmp_path / "vectors")]
    assert build(vocabulary, tmp_path / "table", *options) == 1
    assert "with --gpt2-encoder" in capsys.readouterr().err
    assert build(vocabulary, tmp_path / "table", *options, "--gpt2-encoder", encoder) == 0
    assert (tmp_path / "table").read_text().splitlines()[4:] == ["262\t318", "318\t262"]
    assert "\n  stay: remain\n" in capsys.readouterr().out


def test_compare(tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("# source: WordNet 3.0\n# vocabulary: 1\nstay\tremain rest\nmove\twent\n")
    second.write_text("# source: vectors v\n# options: few\n# vocabulary: 1\nstay\trest leave\nrest\tstay\n")
    assert main(["synonyms", "compare", str(first), str(second)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out == (
        f"A: {first}, WordNet 3.0\n"
        f"B: {second}, vectors v (few)\n"
        "                   A          B       both     only A     only B  Jaccard\n"
        "tokens             2          2          1          1          1   33.3 %\n"
        "pairs              3          3          1          2          2   20.0 %\n"
        "pairs only in A, for example\n"
        "  stay: remain\n"
        "  move: went\n"
        "pairs only in B, for example\n"
        "  stay: leave\n"
        "  rest: stay\n"
    )
    second.write_text("# vocabulary: 2\n262\t318\n")
    encoder = tmp_path / "encoder.json"
    encoder.write_text('{"Ġstay": 262, "Ġremain": 318}')
    assert main(["synonyms", "compare", str(second), str(second), "--gpt2-encoder", str(encoder)]) == 0
    assert "only" not in capsys.readouterr().out.split("Jaccard")[1]
    assert main(["synonyms", "compare", str(first), str(second)]) == 0
    assert "were made for different vocabularies" in capsys.readouterr().err
    assert main(["synonyms", "compare", str(first), str(tmp_path / "gone")]) == 1
    assert "cannot read the synonym table" in capsys.readouterr().err


def test_compare_writes_the_words_of_gpt2_ids(tmp_path, capsys):
    (tmp_path / "a").write_text("262\t318\n")
    (tmp_path / "b").write_text("318\t262\n")
    (tmp_path / "encoder.json").write_text('{"Ġstay": 262, "Ġremain": 318}')
    tables = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(["synonyms", "compare", *tables, "--gpt2-encoder", str(tmp_path / "encoder.json")]) == 0
    printed = capsys.readouterr().out
    assert "\n  stay: remain\n" in printed
    assert "\n  remain: stay\n" in printed


def test_wordnet_of_a_chinese_vocabulary_is_warned_of(tmp_path, small_wordnet, caplog):
    characters = "".join(f"{chr(0x4E00 + number)} 1\n" for number in range(199))
    vocabulary = tmp_path / "dict.txt"
    vocabulary.write_text(characters + "stay 1\nremain 1\n", encoding="utf-8")
    assert build(vocabulary, tmp_path / "table", "--wordnet", small_wordnet) == 0
    assert "only 2 of the vocabulary's 201 words have synonyms in WordNet, which is English" in caplog.text
    caplog.clear()
    vocabulary.write_text(characters + "stay 1\nremain 1\nrest 1\n", encoding="utf-8")
    assert build(vocabulary, tmp_path / "table", "--wordnet", small_wordnet) == 0
    assert caplog.text == ""
