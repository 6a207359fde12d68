"""Checkpoints of tn_electra: fairseq opens, builds and trains what was converted, and transformers reads the result."""

import dataclasses

import pytest
import torch
import transformers
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import preprocess, train
from safetensors.torch import load_file
from small_electra import write_electra
from training import PACKAGE, flags

from fairseq_tn.cli import main
from fairseq_tn.convert.electra import command_line, join, load_vocabulary, model_config, outputs
from fairseq_tn.convert.from_hf import convert_from_hf, task_dictionary
from fairseq_tn.convert.to_hf import convert_to_hf, read_checkpoint
from fairseq_tn.models.electra import TnElectraModel, resolve_sizes

TEXT = ["the capital the France .", "a b c d e f g h i j", "k l m n o p q r s t u v w x y z ."]


def convert(folder, discriminator=None, generator=None, **both):
    write_electra(folder, discriminator, generator, **both)
    return convert_from_hf(folder / "discriminator", folder / "fairseq", generator=folder / "generator")


def parse(data, *arguments):
    parser = options.get_training_parser(default_task="bert_pretraining")
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(data), *arguments]))


def config(width, layers, embedding_size, heads, **others):
    """``config.json`` of a half whose feed-forward network has four times its width."""
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    sizes |= {"intermediate_size": 4 * width, "embedding_size": embedding_size}
    return {**sizes, "max_position_embeddings": 512, "type_vocab_size": 2, **others}


ODD = {"layer_norm_eps": 1e-7, "type_vocab_size": 3, "attention_probs_dropout_prob": 0.0}


@pytest.mark.parametrize(
    ("discriminator", "generator", "expected"),
    [
        # the released models; the small one has a generator as large as its discriminator
        (
            config(256, 12, 128, 4),
            config(256, 12, 128, 4),
            ["--arch", "tn_electra_small", "--generator-embed-dim", "256"],
        ),
        (config(768, 12, 768, 12), config(256, 12, 768, 4), ["--arch", "tn_electra_base"]),
        (config(1024, 24, 1024, 16), config(256, 24, 1024, 4), ["--arch", "tn_electra_large"]),
        # the small one of the paper, and halves that are alone
        (config(256, 12, 128, 4), config(64, 12, 128, 1), ["--arch", "tn_electra_small"]),
        (config(768, 12, 768, 12), None, ["--arch", "tn_electra_base"]),
        (None, config(256, 12, 768, 4), ["--arch", "tn_electra_base"]),
        (None, config(64, 12, 128, 1), ["--arch", "tn_electra_small"]),
        # generators whose width no usual number of heads divides, and models like no architecture
        (config(400, 2, 400, 4), None, None),
        (config(400, 2, 128, 4, **ODD), config(100, 3, 128, 2, **ODD), None),
        (config(24, 2, 16, 3, hidden_dropout_prob=0.2, hidden_act="relu"), None, None),
        (None, config(24, 2, 16, 3), None),
    ],
)
def test_the_printed_options_are_those_of_the_model(discriminator, generator, expected):
    halves = {"": discriminator, "generator": generator}
    cfgs = {part: model_config(half, part) for part, half in halves.items() if half}
    model, notes = join(cfgs, dict.fromkeys(cfgs), {})
    assert notes == []
    printed = command_line(model)
    if expected is not None:
        assert printed == [*expected, "--no-nsp"]
    cfg = parse("data", *printed)
    resolve_sizes(cfg.model)
    for field in dataclasses.fields(model):
        if field.name != "_name":
            assert getattr(cfg.model, field.name) == getattr(model, field.name), field.name
    assert cfg.task.no_nsp


def test_the_printed_options_build_the_model_of_the_checkpoint(tmp_path):
    done = convert(tmp_path)
    cfg = parse(tmp_path, *done.options)

    class Task:
        source_dictionary = task_dictionary(tmp_path / "fairseq/dict.txt")

    model = TnElectraModel.build_model(cfg.model, Task())
    _, state, _ = read_checkpoint(tmp_path / "fairseq/model.pt")
    model.load_state_dict(state)


def test_fairseq_opens_the_checkpoint_without_binarised_data(tmp_path):
    convert(tmp_path)
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(tmp_path / "fairseq/model.pt")], arg_overrides={"data": str(tmp_path / "fairseq")}
    )
    assert (cfg.model.encoder_embed_dim, cfg.model.generator_embed_dim) == (24, 12)
    assert cfg.task.no_nsp
    _, state, saved = read_checkpoint(tmp_path / "fairseq/model.pt")
    expected = TnElectraModel(saved, task.source_dictionary)
    expected.load_state_dict(state)
    tokens = torch.randint(4, 60, (2, 9))
    found, wanted = outputs(model.eval(), tokens), outputs(expected.eval(), tokens)
    assert all(torch.equal(value, wanted[name]) for name, value in found.items())


def test_a_trained_model_predicts_in_transformers_what_it_predicts_here(tmp_path):
    done = convert(tmp_path)
    (tmp_path / "text.txt").write_text("\n".join(TEXT * 4) + "\n", encoding="utf-8")
    encode = ["encode", "--tokenizer", tmp_path / "fairseq/hf", tmp_path / "text.txt"]
    assert main([*map(str, encode), "--output", str(tmp_path / "encoded/train")]) == 0
    arguments = {"only_source": True, "srcdict": tmp_path / "fairseq/dict.txt", "destdir": tmp_path / "data"}
    arguments |= {"trainpref": tmp_path / "encoded/train", "validpref": tmp_path / "encoded/train"}
    preprocess.main(options.get_preprocessing_parser().parse_args(flags(arguments)))
    settings = {
        "user_dir": PACKAGE,
        "save_dir": tmp_path / "run",
        "criterion": "electra",
        "finetune_from_model": tmp_path / "fairseq/model.pt",
        "batch_size": 4,
        "optimizer": "adam",
        "lr": 1e-3,
        "max_update": 20,
        "num_workers": 0,
        "cpu": True,
        "no_epoch_checkpoints": True,
        "disable_validation": True,
    }
    train.main(parse(tmp_path / "data", *done.options, *flags(settings)))

    checkpoint = tmp_path / "run/checkpoint_last.pt"
    convert_to_hf(checkpoint, tmp_path / "fairseq/dict.txt", tmp_path / "back")
    for original, back in (("discriminator", "back"), ("generator", "back/generator")):
        before, after = (load_file(tmp_path / name / "model.safetensors") for name in (original, back))
        assert before.keys() == after.keys()
        assert not [name for name in before if torch.equal(before[name], after[name])]

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    batch = tokenizer(
        ["the [MASK] . France", "a b c [MASK] e [MASK]"],
        ["capital x [MASK]", "the y"],
        padding=True,
        return_tensors="pt",
    )
    real = batch["attention_mask"].bool()
    assert not real.all()
    assert batch["token_type_ids"].any()
    (ours,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    order = torch.argsort(torch.tensor(load_vocabulary(tmp_path / "discriminator").fairseq_to_hf()))
    classes = transformers.AutoModelForPreTraining, transformers.AutoModelForMaskedLM
    with torch.no_grad():
        found = outputs(ours.eval(), order[batch["input_ids"]])
        replaced, words = (
            loader.from_pretrained(path).eval()(**batch).logits
            for loader, path in zip(classes, (tmp_path / "back", tmp_path / "back/generator"), strict=True)
        )
    torch.testing.assert_close(found["discriminator_head."][real], replaced[real], rtol=0, atol=1e-5)
    torch.testing.assert_close(found["lm_head."][..., order][real], words[real], rtol=0, atol=1e-5)
