"""From segmented Chinese text to training with whole-word masking, as the documents say."""

import pytest
from training import train_arguments

from fairseq_tn.cli import main

TEXT = "我们 喜欢 音乐 ，\n喜欢 中文 wiki 2 。\n\n音乐 很 好听 。\n\n中文 也 很 好听 ，\n我们 喜欢 。\n"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.smoke
def test_words_survive_encoding_and_preprocessing_and_steer_masking(server, tmp_path, capsys):
    characters = sorted(set(TEXT) - set(" \n"))
    vocabulary = [*SPECIALS, *characters, *(f"##{letter}" for letter in "wik")]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    encoded, data = tmp_path / "encoded", tmp_path / "data"
    prefixes = []
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text(TEXT, encoding="utf-8")
        options = ["--tokenizer", tmp_path / "vocab.txt", tmp_path / f"{split}.txt", "--workers", 1]
        options += ["--output", encoded / split, "--word-boundaries"]
        assert main(["encode", *map(str, options)]) == 0
        prefixes += [f"--{split}pref", encoded / split]
    options = ["--only-source", "--srcdict", encoded / "dict.txt", *prefixes, "--destdir", data]
    assert server.run("fairseq-preprocess", options).code == 0
    assert main(["prepare", "words", *map(str, prefixes), "--destdir", str(data)]) == 0
    assert "train.words.bin: 21 words, 35 tokens" in capsys.readouterr().out

    sizes = {"tokens_per_sample": 24, "max_update": 2, "mask_whole_words": True, "disable_validation": True}
    runs = server.run_together(
        [
            ("fairseq-train", train_arguments(data, tmp_path / name, "bert_pretraining", **sizes, **options))
            for name, options in {"told": {}, "vocabulary": {"word_boundaries": "vocabulary"}}.items()
        ]
    )
    for run in runs:
        assert run.code == 0, run.log[-2500:]
    assert ["as the data's side files tell" in run.log for run in runs] == [True, False]
    # other tokens are masked
    losses = [run.lines("train_inner")[0]["mlm_loss"] for run in runs]
    assert losses[0] != losses[1]
