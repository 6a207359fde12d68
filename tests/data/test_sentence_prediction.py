"""What is written for fairseq's sentence_prediction, read by that task itself."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from hypothesis import given
from hypothesis import strategies as st
from small_glue import FORMS, SENTENCES, rows, write_task
from small_tokenizers import train_wordpiece

from fairseq_tn.data.encoders import EncoderOptions, load_encoder
from fairseq_tn.data.glue import TASKS, read_task
from fairseq_tn.data.sentence_prediction import Prepared, keep, write_folder
from fairseq_tn.errors import UserError
from fairseq_tn.models.encoder import TransformerEncoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    return load_encoder(str(train_wordpiece(SENTENCES, folder, 80)))


@pytest.fixture
def prepare(encoder, tmp_path):
    def run(name, output="prepared", **options):
        task = TASKS[name]
        splits = read_task(task, write_task(tmp_path / name, name))
        return write_folder(task, splits, encoder, tmp_path / output, **options)

    return run


def open_task(prepared, **options):
    config = SentencePredictionConfig(
        data=str(prepared.folder),
        num_classes=max(1, len(prepared.task.labels)),
        init_token=0,
        no_shuffle=True,
    )
    config.regression_target = not prepared.task.labels
    config.seed = 1
    for name, value in options.items():
        setattr(config, name, value)
    return SentencePredictionTask.setup_task(config)


@pytest.mark.parametrize("name", FORMS)
def test_fairseq_reads_every_task(name, prepare, encoder):
    prepared = prepare(name)
    task = open_task(prepared)
    words = task.source_dictionary
    for split, wanted in (
        ("train", rows(name, 12)),
        ("valid", rows(name, 7, 5)),
        ("test", rows(name, 5, 20)),
    ):
        data = task.load_dataset(split)
        assert len(data) == len(wanted) == prepared.splits[split].rows
        batch = data.collater([data[i] for i in range(len(data))])
        for tokens, length, row in zip(*batch["net_input"].values(), wanted, strict=True):
            symbols = ["<s>"]
            for text in row[: len(prepared.task.texts)]:
                symbols += [*encoder.encode([text])[0], "</s>"]
            assert [words[i] for i in tokens[:length]] == symbols
        assert ("target" in batch) == (split != "test")
        if split != "test":
            labels = [row[2] for row in wanted]
            if prepared.task.labels:
                assert [prepared.task.labels[i] for i in batch["target"].flatten()] == labels
            else:
                np.testing.assert_allclose(5 * batch["target"].flatten(), [float(label) for label in labels])
    assert prepared.indices("test") == [str(100 + n) for n in range(5)]
    assert Prepared.load(prepared.folder) == prepared


def test_segments_follow(prepare):
    prepared = prepare("RTE")
    task = open_task(prepared)
    data = task.load_dataset("valid")
    tokens = data.collater([data[0]])["net_input"]["src_tokens"]
    sizes = {"embed_dim": 8, "ffn_embed_dim": 8, "layers": 1, "attention_heads": 1}
    rest = {"dropout": 0.0, "attention_dropout": 0.0, "layer_norm_eps": 1e-12, "activation_fn": "gelu"}
    model = TransformerEncoder(
        len(task.source_dictionary), 8, 64, pad=1, eos=2, num_segments=2, **sizes, **rest
    )
    first = tokens[0].tolist().index(2) + 1
    assert model.segments(tokens).tolist() == [[0] * first + [1] * (tokens.size(1) - first)]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(2, 40))
def test_the_longer_sentence_loses_its_end_first(first, second, room):
    a, b = first, second
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    assert keep(first, second, room) == (a, b)


def test_truncation_is_counted(prepare, encoder):
    prepared = prepare("RTE", max_length=9)
    data = open_task(prepared).load_dataset("train")
    lengths = [[len(symbols) for symbols in encoder.encode(list(row[:2]))] for row in rows("RTE", 12)]
    assert data.sizes[0].tolist() == [min(9, 3 + sum(pair)) for pair in lengths]
    assert prepared.splits["train"].truncated == sum(sum(pair) > 6 for pair in lengths) > 0
    assert prepared.splits["train"].tokens == sum(min(6, sum(pair)) for pair in lengths)
    single = prepare("CoLA", "single", max_length=4)
    assert max(open_task(single).load_dataset("train").sizes[0]) == 4


def test_unlike_vocabularies_have_the_same_examples(prepare, tmp_path):
    prepared = prepare("RTE")
    (tmp_path / "dict.txt").write_text("the 1\ncat 1\n")
    words = load_encoder("words", EncoderOptions(dictionary=str(tmp_path / "dict.txt")))
    splits = read_task(TASKS["RTE"], tmp_path / "RTE")
    other = write_folder(TASKS["RTE"], splits, words, tmp_path / "words")
    assert other.splits["valid"].unknown > 0
    assert other.splits["valid"].examples == prepared.splits["valid"].examples
    assert other.splits["valid"].examples != other.splits["train"].examples


def test_outputs_of_something_else_stay(prepare, tmp_path, encoder):
    first = prepare("RTE")
    assert prepare("RTE", max_length=20).max_length == 20
    assert Prepared.load(first.folder).max_length == 20
    with pytest.raises(UserError, match="holds RTE already"):
        prepare("CoLA")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(UserError, match="holds other files already"):
        prepare("CoLA", "full")
    with pytest.raises(UserError, match="is a file"):
        prepare("CoLA", "full/thesis.tex")
    with pytest.raises(UserError, match="--max-length 4"):
        prepare("RTE", "new", max_length=4)
    with pytest.raises(UserError, match="--dict"):
        write_folder(TASKS["RTE"], {}, load_encoder("words"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_interrupted_and_broken_folders(prepare, tmp_path, encoder):
    splits = read_task(TASKS["RTE"], write_task(tmp_path / "RTE", "RTE"))
    broken = SimpleNamespace(dict_text=encoder.dict_text, encode=lambda lines: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_folder(TASKS["RTE"], splits, broken, tmp_path / "prepared")
    assert not (tmp_path / "prepared").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["RTE"]
    with pytest.raises(UserError, match=r"glue.json is missing"):
        Prepared.load(tmp_path)
    (tmp_path / "glue.json").write_text('{"task": "RTE"}')
    with pytest.raises(UserError, match="another version"):
        Prepared.load(tmp_path)


def test_labels_that_correlations_need_are_whole_numbers(prepare):
    """fairseq's criterion makes numbers of the labels' symbols for Matthews' correlation and F1."""
    for name in ("CoLA", "MRPC", "QQP"):
        task = open_task(prepare(name, name + "-out"))
        symbols = task.label_dictionary.string(torch.tensor([0, 1]) + task.label_dictionary.nspecial).split()
        assert [int(symbol) for symbol in symbols] == [0, 1]
