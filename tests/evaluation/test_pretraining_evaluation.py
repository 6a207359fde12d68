"""The evaluation against a plain computation through transformers, one sequence at a time, in float64."""

import json
import math
import random
import sys
from pathlib import Path

import pytest
import torch
from fairseq.data import indexed_dataset

from fairseq_tn.cli import main
from fairseq_tn.convert.from_hf import convert_from_hf, load_hugging_face, task_dictionary
from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.pretraining import evaluate
from fairseq_tn.tasks.bert_pretraining import BertPretrainingConfig, BertPretrainingTask

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

from small_bert import write_bert

LENGTH = 20


def binarise(folder, split, dictionary, documents):
    prefix = f"{folder}/{split}"
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=len(dictionary))
    for document in documents:
        for sentence in [*document, []]:
            tokens = [*(dictionary.index(token) for token in sentence), dictionary.eos()]
            builder.add_item(torch.tensor(tokens))
    builder.finalize(f"{prefix}.idx")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two converted models, a teacher and a student, and text of their vocabulary."""
    root = tmp_path_factory.mktemp("world")
    world = {"root": root, "hf": {}, "checkpoint": {}}
    for seed, name in enumerate(("teacher", "student")):
        model = write_bert(root / "hf" / name, seed=seed, shuffle=3)
        world["hf"][name] = model.double()
        convert_from_hf(root / "hf" / name, root / name)
        world["checkpoint"][name] = root / name / "model.pt"
    data = root / "data"
    data.mkdir()
    (data / "dict.txt").write_bytes((root / "student" / "dict.txt").read_bytes())
    dictionary = task_dictionary(data / "dict.txt")
    rng = random.Random(5)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    documents = [
        [[rng.choice(letters) for _ in range(rng.randint(2, 9))] for _ in range(rng.randint(2, 6))]
        for _ in range(12)
    ]
    binarise(data, "valid", dictionary, documents)
    binarise(data, "train", dictionary, documents[:3])
    return {**world, "data": data, "dictionary": dictionary}


def items(world, nsp=True):
    from omegaconf import OmegaConf

    options = BertPretrainingConfig(data=str(world["data"]), tokens_per_sample=LENGTH, no_nsp=not nsp)
    task = BertPretrainingTask.setup_task(OmegaConf.structured(options))
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    return [dataset[index] for index in range(len(dataset))]


def run_transformers(world, name, tokens, eos):
    """Logits, NSP logits and all hidden states of one sequence of fairseq ids."""
    to_hf = torch.tensor(load_hugging_face(world["root"] / "hf" / name).vocabulary.fairseq_to_hf())
    first = tokens.tolist().index(eos)
    segments = (torch.arange(len(tokens)) > first).long()
    with torch.no_grad():
        output = world["hf"][name](
            to_hf[tokens].unsqueeze(0), token_type_ids=segments.unsqueeze(0), output_hidden_states=True
        )
    # columns of the logits in fairseq's order
    return output.prediction_logits[0][:, to_hf], output.seq_relationship_logits[0], output.hidden_states


def cosines(a, b):
    return (a / a.norm(dim=-1, keepdim=True)) @ (b / b.norm(dim=-1, keepdim=True)).T


def reference(world, name, synonyms):
    eos = world["dictionary"].eos()
    mlm, mlm_hits, nsp, nsp_hits, tacl, tacl_hits, wrong, corrected, touched = [0.0] * 9
    similarity, positions, corrections = [], 0, set()
    sequences = items(world)
    for item in sequences:
        source, masked = torch.from_numpy(item["source"]).long(), torch.from_numpy(item["masked"]).long()
        logits, nsp_logits, states = run_transformers(world, name, masked, eos)
        nsp -= nsp_logits.log_softmax(-1)[item["label"]].item()
        nsp_hits += int(nsp_logits.argmax().item() == item["label"])
        teacher = run_transformers(world, "teacher", source, eos)[2][-1][0]
        hit = False
        for position in item["selected"].tolist():
            gold, predicted = source[position].item(), logits[position].argmax().item()
            mlm -= logits[position].log_softmax(-1)[gold].item()
            mlm_hits += gold == predicted
            wrong += gold != predicted
            if (gold, predicted) in synonyms:
                corrected += 1
                hit = True
                corrections.add((item["id"], position, gold, predicted))
            row = cosines(states[-1][0][position : position + 1], teacher)[0] / 0.01
            tacl -= row.log_softmax(-1)[position].item()
            tacl_hits += row.argmax().item() == position
            positions += 1
        touched += hit
        layers = run_transformers(world, name, source, eos)[2]
        n = len(source)
        similarity.append([((cosines(s[0], s[0]).sum() - n) / (n * (n - 1))).item() for s in layers])
    number = len(sequences)
    return {
        "mlm_loss": mlm / positions / math.log(2),
        "mlm_acc": 100 * mlm_hits / positions,
        "nsp_loss": nsp / number / math.log(2),
        "nsp_acc": 100 * nsp_hits / number,
        "tacl_loss": tacl / positions / math.log(2),
        "tacl_acc": 100 * tacl_hits / positions,
        "hc_pred": 100 * corrected / wrong,
        "hc_seq": 100 * touched / number,
        "self_similarity": torch.tensor(similarity).mean(0).tolist(),
        "positions": positions,
        "sequences": number,
    }, corrections


@pytest.fixture(scope="module")
def table(world):
    """Every second pair (gold, prediction) of the student, so that some wrong predictions are corrected."""
    dictionary, pairs = world["dictionary"], {}
    for item in items(world):
        masked = torch.from_numpy(item["masked"]).long()
        logits = run_transformers(world, "student", masked, dictionary.eos())[0]
        for position in item["selected"].tolist():
            gold, predicted = int(item["source"][position]), logits[position].argmax().item()
            if gold != predicted and (gold + predicted) % 2:
                pairs.setdefault(gold, set()).add(predicted)
    path = world["root"] / "synonyms.txt"
    symbols = dictionary.symbols
    path.write_text(
        "".join(f"{symbols[g]}\t{' '.join(symbols[p] for p in sorted(ps))}\n" for g, ps in pairs.items())
    )
    return path, {(gold, predicted) for gold, others in pairs.items() for predicted in others}


@pytest.mark.parametrize("batch_size", [1, 7])
def test_equals_a_plain_computation(world, table, batch_size):
    path, pairs = table
    expected, corrections = reference(world, "student", pairs)
    assert 0 < expected["hc_pred"] < 100
    result = evaluate(
        world["data"],
        {"student": world["checkpoint"]["student"], "itself": world["checkpoint"]["teacher"]},
        synonyms=path,
        teacher=world["checkpoint"]["teacher"],
        tokens_per_sample=LENGTH,
        batch_size=batch_size,
        examples=1000,
        device="cpu",
    )
    json.dumps(result, allow_nan=False)
    scores = result["models"]["student"]
    for key, value in expected.items():
        assert scores[key] == pytest.approx(value, rel=2e-4, abs=1e-5), key
    assert result["data"]["sentence_pairs"] is True
    assert scores["tokens"] == sum(len(item["source"]) for item in items(world))
    assert result["models"]["itself"]["mlm_loss"] != scores["mlm_loss"]
    mask = world["dictionary"].index("<mask>")
    symbols = world["dictionary"].symbols
    seen = {
        (index, position): item["masked"][position]
        for index, item in enumerate(items(world))
        for position in item["selected"]
    }
    hidden = [c for c in corrections if seen[c[0], c[1]] == mask]
    shown = [(c["gold"], c["predicted"]) for c in result["examples"]["student"]]
    assert sorted(shown) == sorted((symbols[gold], symbols[predicted]) for _, _, gold, predicted in hidden)


def test_an_example_stands_in_its_sentence(world, table):
    result = evaluate(
        world["data"],
        {"s": world["checkpoint"]["student"]},
        synonyms=table[0],
        tokens_per_sample=LENGTH,
        examples=3,
    )
    texts = [" ".join(world["dictionary"].symbols[t] for t in item["source"]) for item in items(world)]
    assert 0 < len(result["examples"]["s"]) <= 3
    for c in result["examples"]["s"]:
        assert any(f"{c['before']} {c['gold']} {c['after']}".strip() in text for text in texts)
        assert c["predicted"] in c["synonyms"]
        assert c["gold"] != c["predicted"]
        assert 0 < c["probability"] <= 1


def test_without_pairs_table_and_teacher(world):
    result = evaluate(
        world["data"], {"s": world["checkpoint"]["student"]}, nsp=False, tokens_per_sample=LENGTH, limit=3
    )
    scores = result["models"]["s"]
    assert result["data"]["sentence_pairs"] is False
    assert scores["sequences"] == 3
    assert [scores[key] for key in ("nsp_loss", "nsp_acc", "tacl_acc", "hc_pred", "hc_seq")] == [None] * 5
    assert scores["mlm_loss"] > 0
    assert result["examples"] == {}


def test_a_checkpoint_without_nsp_training_is_still_evaluated(world, tmp_path):
    state = torch.load(world["checkpoint"]["student"], weights_only=False)
    state["cfg"]["task"]["no_nsp"] = True
    torch.save(state, tmp_path / "blocks.pt")
    result = evaluate(
        world["data"],
        {"pairs": world["checkpoint"]["student"], "blocks": tmp_path / "blocks.pt"},
        tokens_per_sample=LENGTH,
    )
    pairs, blocks = result["models"]["pairs"], result["models"]["blocks"]
    assert result["data"]["sentence_pairs"] is True
    assert blocks["mlm_loss"] == pairs["mlm_loss"]
    assert pairs["nsp_acc"] is not None
    assert blocks["nsp_acc"] is None


def test_roberta_of_fairseq_is_evaluated(world, tmp_path):
    from argparse import Namespace

    from fairseq.models.roberta import RobertaModel
    from fairseq.models.roberta.model import base_architecture

    class Task:
        source_dictionary = world["dictionary"]

    args = Namespace(arch="roberta_base", _name="roberta_base", encoder_layers=2, encoder_embed_dim=24)
    args.encoder_ffn_embed_dim, args.encoder_attention_heads = 32, 2
    args.max_positions = args.tokens_per_sample = 32
    base_architecture(args)
    model = RobertaModel.build_model(args, Task).eval()
    state = {
        "args": None,
        "cfg": {"task": {"_name": "masked_lm", "data": "", "tokens_per_sample": 32}, "model": args},
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 7, "criterion_name": "", "best_loss": 1.0}],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}, "val_loss": 1.0},
    }
    torch.save(state, tmp_path / "roberta.pt")
    scores = evaluate(world["data"], {"r": tmp_path / "roberta.pt"}, tokens_per_sample=LENGTH)["models"]["r"]
    total = count = 0.0
    similarity = []
    for item in items(world, nsp=False):
        source, masked = torch.from_numpy(item["source"]).long(), torch.from_numpy(item["masked"]).long()
        with torch.no_grad():
            logits = model(masked.unsqueeze(0))[0][0].double()
            states = model(source.unsqueeze(0), features_only=True)[0][0].double()
        for position in item["selected"].tolist():
            total -= logits[position].log_softmax(-1)[source[position]].item()
            count += 1
        n = len(source)
        similarity.append((cosines(states, states).sum().item() - n) / (n * (n - 1)))
    assert scores["mlm_loss"] == pytest.approx(total / count / math.log(2), rel=1e-4)
    assert scores["self_similarity"][-1] == pytest.approx(sum(similarity) / len(similarity), abs=1e-5)
    assert len(scores["self_similarity"]) == 3
    assert scores["nsp_acc"] is None
    assert scores["updates"] == 7


def command(world, *options):
    return ["evaluate", "pretraining", "--data", str(world["data"]), "--cpu", *map(str, options)]


def test_the_command_prints_a_table_and_writes_json(world, table, tmp_path, capsys):
    file = tmp_path / "new" / "eval.json"
    options = ["--checkpoint", f"a={world['checkpoint']['student']}", f"b={world['checkpoint']['teacher']}"]
    options += ["--synonyms", table[0], "--tokens-per-sample", LENGTH, "--json", file]
    assert main(command(world, *options)) == 0
    out = capsys.readouterr().out
    result = json.loads(file.read_text(encoding="utf-8"))
    assert list(result["models"]) == ["a", "b"]
    assert f"{result['models']['b']['mlm_loss']:.3f}" in out
    assert result["data"]["corpora"]["train"]["documents"] == 3
    assert result["data"]["corpora"]["valid"]["documents"] == 12


def bad_vocabulary(world, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "dict.txt").write_text("other 1\n")
    dictionary = task_dictionary(data / "dict.txt")
    binarise(data, "valid", dictionary, [[["other"]] * 9] * 3)
    return ["--data", data, "--checkpoint", f"a={world['checkpoint']['student']}"], "dict.txt"


def no_checkpoint(world, tmp_path):
    return ["--checkpoint", f"a={tmp_path / 'nothing.pt'}"], "nothing.pt"


def broken_checkpoint(world, tmp_path):
    (tmp_path / "broken.pt").write_bytes(b"no checkpoint")
    return ["--checkpoint", f"a={tmp_path / 'broken.pt'}"], "broken.pt"


def no_name(world, tmp_path):
    return ["--checkpoint", world["checkpoint"]["student"]], "NAME=FILE"


def same_name(world, tmp_path):
    return ["--checkpoint", *[f"a={world['checkpoint']['student']}"] * 2], "two models are called a"


def no_data(world, tmp_path):
    return ["--data", tmp_path / "nowhere", "--checkpoint", f"a={world['checkpoint']['student']}"], "nowhere"


def no_split(world, tmp_path):
    return ["--split", "test", "--checkpoint", f"a={world['checkpoint']['student']}"], "test"


def training_split(world, tmp_path):
    return ["--split", "train", "--checkpoint", f"a={world['checkpoint']['student']}"], "--split train"


def too_long(world, tmp_path):
    options = ["--checkpoint", f"a={world['checkpoint']['student']}", "--tokens-per-sample", 33]
    return options, "--tokens-per-sample 33"


def cold(world, tmp_path):
    return ["--checkpoint", f"a={world['checkpoint']['student']}", "--temperature", 0], "--temperature"


def no_table(world, tmp_path):
    return [
        "--checkpoint",
        f"a={world['checkpoint']['student']}",
        "--synonyms",
        tmp_path / "none.txt",
    ], "none.txt"


def wide_teacher(world, tmp_path):
    write_bert(tmp_path / "hf", hidden_size=48, shuffle=3)
    convert_from_hf(tmp_path / "hf", tmp_path / "wide")
    options = [
        "--checkpoint",
        f"a={world['checkpoint']['student']}",
        "--teacher",
        tmp_path / "wide" / "model.pt",
    ]
    return options, "48 wide"


@pytest.mark.parametrize(
    "case",
    [
        bad_vocabulary,
        no_checkpoint,
        broken_checkpoint,
        no_name,
        same_name,
        no_data,
        no_split,
        training_split,
        too_long,
        cold,
        no_table,
        wide_teacher,
    ],
)
def test_bad_input_is_one_clear_line(case, world, tmp_path, capsys):
    options, words = case(world, tmp_path)
    file = tmp_path / "eval.json"
    assert main(command(world, *options, "--json", file)) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("fairseq-tn evaluate: error: ")
    assert words in error
    assert not file.exists()


def test_no_model_is_an_error(world):
    with pytest.raises(UserError, match="--checkpoint"):
        evaluate(world["data"], {})
