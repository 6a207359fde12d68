import argparse
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms import build_from_model
from fairseq_tn.synonyms.vocabularies import vocabulary_digest

SYMBOLS = ["<s>", "<pad>", "</s>", "<unk>", "big", "##ger", "large", "Big", "1990", "small", "huge"]
NAMES = [
    "encoder.embed_tokens.weight",
    "encoder.sentence_encoder.embed_tokens.weight",
    "decoder.sentence_encoder.embed_tokens.weight",
]


def embedding(rows=12):
    weight = torch.zeros(rows, 3)
    weight[4] = torch.tensor([1, 0, 0.1])  # big
    weight[5] = torch.tensor([1, 0, 0.1])  # ##ger
    weight[6] = torch.tensor([2, 0.4, 0])  # large
    weight[7] = torch.tensor([1, 0, 0.1])  # Big
    weight[8] = torch.tensor([1, 0, 0.1])  # 1990
    weight[9] = torch.tensor([0, 1.0, 0])  # small
    weight[10] = torch.tensor([1, 0.5, 0])  # huge
    weight[11:] = torch.tensor([1, 0, 0.1])  # <mask>
    return weight


def digest(symbols):
    data = bytes.fromhex(vocabulary_digest(symbols))
    return torch.tensor([int.from_bytes(data[i : i + 4], "big") for i in range(0, 16, 4)])


def save(path, state, **more):
    torch.save({"model": state, **more}, path)
    return path


def rows_of(table):
    return {token: table.synonyms(token) for token in table.tokens}


EXPECTED = {
    "big": ["large", "huge"],
    "large": ["big", "huge"],
    "Big": ["large", "huge"],
    "huge": ["large", "big"],
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_embeddings_of_every_name(name, dtype, tmp_path):
    path = save(tmp_path / "model.pt", {"other.weight": torch.ones(2), name: embedding().to(dtype)})
    table = build_from_model(SYMBOLS, path, style="wordpiece")
    assert rows_of(table) == EXPECTED
    assert table.header["source"] == "model model.pt"
    assert table.header["options"] == "10 neighbours, cosine at least 0.6, wordpiece vocabulary"


@pytest.mark.parametrize(
    ("symbols", "rows"),
    [
        (SYMBOLS, 11),
        (SYMBOLS, 12),
        ([*SYMBOLS, "<mask>"], 12),
        ([*SYMBOLS, "madeupword0000"], 12),
        ([*SYMBOLS, "madeupword0000"], 13),
    ],
)
def test_rows_of_mask_and_fillers(symbols, rows, tmp_path):
    path = save(tmp_path / "model.pt", {NAMES[0]: embedding(rows), "vocabulary_digest": digest(SYMBOLS)})
    assert rows_of(build_from_model(symbols, path, style="wordpiece")) == EXPECTED


def test_checkpoints_with_what_fairseq_adds(tmp_path):
    extra = {"best": np.float64(1.5)}
    path = save(
        tmp_path / "model.pt", {NAMES[1]: embedding()}, args=argparse.Namespace(arch="x"), extra_state=extra
    )
    code = f"""
import sys
from fairseq_tn.synonyms import build_from_model
assert len(build_from_model({SYMBOLS!r}, {str(path)!r}, style="wordpiece")) == 4
assert "fairseq" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_checkpoints_from_before_zip_archives(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"model": {NAMES[2]: embedding()}}, path, _use_new_zipfile_serialization=False)
    assert rows_of(build_from_model(SYMBOLS, path, style="wordpiece")) == EXPECTED


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({NAMES[0]: embedding(13)}, r"another vocabulary \(13 rows\) than the one given with --vocab \(11"),
        ({NAMES[0]: embedding()[:10]}, "another vocabulary"),
        (
            {NAMES[0]: embedding(), "vocabulary_digest": digest(SYMBOLS[::-1])},
            "another vocabulary",
        ),
        ({"weight": embedding()}, "holds no input embedding"),
        ({NAMES[0]: embedding() / 0}, "infinite or undefined"),
    ],
    ids=["more", "fewer", "digest", "name", "undefined"],
)
def test_checkpoints_that_do_not_fit(state, message, tmp_path):
    with pytest.raises(UserError, match=message):
        build_from_model(SYMBOLS, save(tmp_path / "model.pt", state), style="wordpiece")


def test_files_that_are_no_checkpoints(tmp_path):
    path = tmp_path / "model.pt"
    with pytest.raises(UserError, match="is missing"):
        build_from_model(SYMBOLS, path)
    path.write_text("text")
    with pytest.raises(UserError, match="is not a checkpoint"):
        build_from_model(SYMBOLS, path)
    torch.save([1, 2], path)
    with pytest.raises(UserError, match="holds no input embedding"):
        build_from_model(SYMBOLS, path)
    # nothing in a file is run
    path.write_bytes(pickle.dumps({"model": print}, protocol=2))
    with pytest.raises(UserError, match="is damaged or no fairseq checkpoint"):
        build_from_model(SYMBOLS, path)


def test_a_model_and_its_dictionary(tmp_path):
    from fairseq.data import Dictionary

    import fairseq_tn
    from fairseq_tn.models.bert import TnBertConfig, TnBertModel

    fairseq_tn.register()
    dictionary = Dictionary()
    for symbol in [*SYMBOLS[4:], "<mask>"]:
        dictionary.add_symbol(symbol)
    sizes = {"encoder_layers": 1, "encoder_embed_dim": 3, "encoder_attention_heads": 1, "max_positions": 4}
    model = TnBertModel(TnBertConfig(**sizes), dictionary)
    with torch.no_grad():
        model.encoder.embed_tokens.weight.copy_(embedding())
    path = save(tmp_path / "model.pt", model.state_dict())
    assert rows_of(build_from_model(SYMBOLS, path, style="wordpiece")) == EXPECTED
    with pytest.raises(UserError, match="another vocabulary"):
        build_from_model([*SYMBOLS[:-2], "huge", "small"], path, style="wordpiece")
