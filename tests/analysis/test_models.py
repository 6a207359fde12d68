"""Opening models with their tokenizers, against transformers."""

import bz2
import sys
from pathlib import Path

import pytest
import torch
import transformers

from fairseq_tn.analysis.models import model_sources, named_paths, open_model, read_sentences
from fairseq_tn.convert.from_hf import convert_from_hf
from fairseq_tn.errors import UserError

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

from small_bert import write_bert
from small_roberta import write_roberta

LINE = "the capital of France"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """``KIND/hf`` as transformers writes it and ``KIND/fairseq`` converted from it, with transformers' model."""
    root = tmp_path_factory.mktemp("models")
    models = {}
    for kind, write in (("bert", write_bert), ("roberta", write_roberta)):
        models[kind] = write(root / kind / "hf")
        convert_from_hf(root / kind / "hf", root / kind / "fairseq")
    return root, models


def resaved(checkpoint, target, **settings):
    """Save a checkpoint elsewhere with other settings of ``cfg``, each ``group__name``."""
    state = torch.load(checkpoint, weights_only=False)
    for key, value in settings.items():
        group, name = key.split("__")
        state["cfg"].setdefault(group, {})[name] = value
    target.parent.mkdir(parents=True)
    torch.save(state, target)
    return target


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("place", ["hf", "fairseq/model.pt"])
def test_layers_are_those_of_transformers(folders, kind, place):
    root, models = folders
    model = open_model("m", root / kind / place, device="cpu")
    sequence = model.encode([LINE])[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(root / kind / "hf")
    with torch.no_grad():
        expected = models[kind](
            **tokenizer(LINE, return_tensors="pt"), output_hidden_states=True
        ).hidden_states
    layers = model.layers(torch.from_numpy(sequence)[None])
    assert len(layers) == len(expected) == 3
    for layer, states in zip(layers, expected, strict=True):
        torch.testing.assert_close(layer, states, rtol=0, atol=2e-5)
    assert model.max_tokens == 32


@pytest.mark.parametrize("place", ["hf", "fairseq/model.pt", "fairseq/hf"])
def test_labels_of_gpt2_ids_are_tokens(folders, place):
    root, _ = folders
    tokenizer = str(root / "roberta" / place) if place == "fairseq/hf" else None
    path = root / "roberta" / ("fairseq/model.pt" if tokenizer else place)
    model = open_model("m", path, tokenizer, device="cpu")
    labels = model.labels(model.encode([LINE + " é"])[0])
    assert (labels[0], labels[-1]) == ("<s>", "</s>")
    assert "".join(labels[1:-1]).replace("Ġ", " ").startswith(LINE)
    assert "Ġ" in labels[2:-1]  # a lone blank
    assert labels[-3:-1] == ["Ã", "©"]  # halves of a character stay in GPT-2's letters
    assert all(symbol.isdecimal() for symbol in model.symbols(model.encode([LINE])[0])[1:-1])


def test_long_sequences_keep_their_end(folders):
    root, _ = folders
    model = open_model("m", root / "bert/hf", device="cpu")
    sequence = model.encode(["a b c d " * 20])[0]
    cut = model.cut(sequence)
    assert len(sequence) == 82
    assert cut.tolist() == [*sequence[:31], model.dictionary.eos()]
    assert model.cut(cut) is cut


@pytest.mark.parametrize("batch_tokens", [1, 20, 10000])
def test_batches_hold_every_sequence_once(folders, batch_tokens, monkeypatch):
    monkeypatch.setattr("fairseq_tn.analysis.models._CHUNK", 4)
    root, _ = folders
    model = open_model("m", root / "bert/hf", device="cpu")
    sequences = model.encode(["a " * (1 + number % 7) for number in range(11)])
    seen = {}
    for numbers, tokens in model.batches(iter(sequences), batch_tokens):
        assert tokens.numel() <= batch_tokens or len(tokens) == 1
        for number, row in zip(numbers, tokens, strict=True):
            assert int(number) not in seen
            seen[int(number)] = row[row != model.dictionary.pad()].tolist()
    assert [seen[number] for number in range(11)] == [sequence.tolist() for sequence in sequences]


def test_tokenizer_and_dictionary_are_found_where_training_began(folders, tmp_path):
    start = folders[0] / "bert/fairseq/model.pt"
    first = resaved(
        start, tmp_path / "one/a.pt", checkpoint__finetune_from_model=str(start), task__data="gone"
    )
    second = resaved(
        start, tmp_path / "two/b.pt", checkpoint__finetune_from_model=str(first), task__data="gone"
    )
    assert open_model("m", second, device="cpu").encode([LINE])[0].tolist() == (
        open_model("m", start, device="cpu").encode([LINE])[0].tolist()
    )


def test_a_run_that_names_itself_ends(folders, tmp_path):
    target = tmp_path / "one/a.pt"
    resaved(
        folders[0] / "bert/fairseq/model.pt",
        target,
        checkpoint__finetune_from_model=str(target),
        task__data="gone",
    )
    with pytest.raises(UserError, match=r"no dict.txt beside .*a\.pt.*--dict"):
        open_model("m", target)


def test_what_is_missing_is_named(folders, tmp_path):
    checkpoint = folders[0] / "bert/fairseq/model.pt"
    alone = resaved(checkpoint, tmp_path / "alone/a.pt", task__data=None)
    dictionary = checkpoint.parent / "dict.txt"
    (alone.parent / "dict.txt").write_bytes(dictionary.read_bytes())
    with pytest.raises(UserError, match=r"no folder hf/ with a tokenizer beside .*--tokenizer"):
        open_model("m", alone)
    assert open_model("m", alone, with_tokenizer=False, device="cpu").encoder is None
    assert open_model("m", alone, str(checkpoint.parent / "hf"), device="cpu").encoder is not None
    with pytest.raises(UserError, match=r"--dict .*none does not exist"):
        open_model("m", checkpoint, dictionary=tmp_path / "none")
    with pytest.raises(UserError, match=r"--dict belongs to fairseq checkpoints"):
        open_model("m", folders[0] / "bert/hf", dictionary=dictionary)
    with pytest.raises(UserError, match=r"is not a checkpoint"):
        open_model("m", dictionary)


def test_names_of_models(tmp_path):
    for name in ("a/x.pt", "a/y.pt", "b/x.pt", "with=sign.pt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def named(*arguments):
        return {name: str(path.relative_to(tmp_path)) for name, path in named_paths(arguments).items()}

    a, b = tmp_path / "a/x.pt", tmp_path / "b/x.pt"
    assert named(str(a), str(b)) == {"a": "a/x.pt", "b": "b/x.pt"}
    assert named(str(a), f"{tmp_path}/a/y.pt") == {"a": "a/x.pt", "a/y": "a/y.pt"}
    assert named(str(tmp_path / "b"), f"TaCL={a}") == {"b": "b", "TaCL": "a/x.pt"}
    assert list(named_paths([f"{tmp_path}/with=sign.pt"]).values()) == [tmp_path / "with=sign.pt"]
    for arguments, message in (
        ([f"m={a}", f"m={b}"], "name the models differently"),
        ([str(a), str(a), str(a)], "name the models differently"),
        ([f"={a}"], "name the models differently"),
        ([str(tmp_path / "none")], "does not exist"),
    ):
        with pytest.raises(UserError, match=message):
            named_paths(arguments)


def test_tokenizers_and_dictionaries_of_models(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.pt").touch()
    models = [f"one={tmp_path}/a.pt", f"two={tmp_path}/a.pt", f"three={tmp_path}/folder"]
    sources = model_sources(models, ["words", "two=moses"], ["d.txt"])
    assert [(s.name, s.tokenizer, s.dictionary) for s in sources] == [
        ("one", "words", "d.txt"),
        ("two", "moses", "d.txt"),
        ("three", "words", None),  # a folder has its own
    ]
    assert model_sources(models)[0].tokenizer is None
    with pytest.raises(
        UserError, match="--tokenizer four=words: no model is called four; there are one, two, three"
    ):
        model_sources(models, ["four=words"])
    with pytest.raises(UserError, match="--dict is given twice for all models"):
        model_sources(models, [], ["a", "b"])
    with pytest.raises(UserError, match="--dict is given twice for one"):
        model_sources(models, [], ["one=a", "one=b"])


def test_sentences_of_a_text(tmp_path):
    text = tmp_path / "text"
    text.write_text("\ufeffone\n\n two \n\n\nthree. Four.", encoding="utf-8")
    assert list(read_sentences(text)) == ["one", " two ", "three. Four."]
    assert list(read_sentences(text, 2)) == ["one", " two "]
    assert list(read_sentences(text, split=True))[-2:] == ["three.", "Four."]
    text.write_bytes(bz2.compress(b"packed\n"))
    assert list(read_sentences(text)) == ["packed"]
    for content, message in (
        (b"", "is empty"),
        (b"\n \n", "holds no text"),
        (b"good\n\xff\n", "line 2: not UTF-8"),
    ):
        text.write_bytes(content)
        with pytest.raises(UserError, match=message):
            list(read_sentences(text))
