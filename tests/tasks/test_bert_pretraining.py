import logging
import math

import numpy as np
import pytest
import torch
from corpus import make_corpus, random_documents, write_dict, write_split
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import fairseq_tn
from fairseq_tn.data.word_boundaries import write_boundaries
from fairseq_tn.errors import UserError
from fairseq_tn.models.bert import TnBertConfig
from fairseq_tn.tasks.bert_pretraining import BertPretrainingConfig, run_epochs

fairseq_tn.register()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def command_line(folder, *arguments):
    """The task that fairseq-train makes of its arguments."""
    parser = options.get_training_parser()
    base = [
        str(folder),
        "--task",
        "bert_pretraining",
        "--criterion",
        "bert_pretraining",
        "--arch",
        "tn_bert_tiny",
    ]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [*base, *arguments]))
    return tasks.setup_task(cfg.task)


def setup(folder, groups=None, **task_options):
    """The task, and a whole configuration as Hydra makes it: the task's mirrored options are references."""
    cfg = OmegaConf.merge(
        OmegaConf.structured(FairseqConfig),
        {
            "task": OmegaConf.structured(BertPretrainingConfig(data=str(folder), **task_options)),
            "model": OmegaConf.structured(TnBertConfig(_name="tn_bert_tiny")),
        },
        groups or {},
    )
    cfg.task._name = "bert_pretraining"
    return tasks.setup_task(cfg.task), cfg


def test_options_reach_the_data(folder):
    arguments = (
        "--tokens-per-sample 24 --no-nsp --sample-break-mode eos --mask-prob 0.5 --seed 9 --mask-whole-words "
        "--mask-fate-per-word"
    )
    task = command_line(folder, *arguments.split())
    task.load_dataset("train")
    dataset = task.dataset("train")
    assert not task.uses_nsp
    assert task.max_positions() == dataset.tokens_per_sample == 24
    assert dataset.seed == 9
    assert dataset.masker.mask_prob == 0.5
    assert dataset.masker.word_marks is not None
    assert dataset.masker.fate_per_word
    assert len(dataset) == sum(-(-len(line) // 22) for doc in random_documents(40, seed=1) for line in doc)


def test_defaults(folder):
    task = command_line(folder)
    task.load_dataset("train")
    assert task.uses_nsp
    assert task.max_positions() == 256
    assert task.source_dictionary is task.target_dictionary
    assert task.source_dictionary.symbols[-1] == "<mask>"
    plain = Dictionary.load(str(folder / "dict.txt"))
    assert task.source_dictionary.symbols[:-1] == plain.symbols
    masker = task.dataset("train").masker
    assert (masker.mask_prob, masker.leave_unmasked_prob, masker.random_token_prob) == (0.15, 0.1, 0.1)
    assert task.dataset("train").short_seq_prob == 0.1


@pytest.fixture
def with_words(tmp_path):
    """Data folders, of which the first alone has word boundaries: every line is one word."""
    folders = [make_corpus(tmp_path / name) for name in ("first", "second")]
    for split, seed, number in (("train", 1, 40), ("valid", 2, 8)):
        documents = random_documents(number, seed=seed)
        lines = ["\n".join(str(len(line)) for line in document) + "\n" for document in documents]
        (tmp_path / f"{split}.words").write_text("\n".join(lines))
        write_boundaries(tmp_path / f"{split}.words", folders[0] / split)
    return folders


def test_side_files_tell_the_words_by_default(with_words):
    folder, plain = with_words
    sentences = {"mask_whole_words": True, "no_nsp": True, "sample_break_mode": "eos"}
    told, _ = setup(folder, **sentences)
    told.load_dataset("train")
    dataset = told.dataset("train")
    assert all(len(dataset[n]["selected"]) == len(dataset[n]["source"]) - 2 for n in range(len(dataset)))
    datasets = []
    for place in with_words:
        task, _ = setup(place, word_boundaries="vocabulary", **sentences)
        task.load_dataset("train")
        datasets.append(task.dataset("train"))
    assert not any(dataset.corpus.has_word_boundaries for dataset in datasets)
    task, _ = setup(plain, **sentences)
    task.load_dataset("train")
    datasets.append(task.dataset("train"))
    for items in zip(*datasets, strict=True):
        assert len({tuple(item["selected"].tolist()) for item in items}) == 1


def test_side_files_without_whole_words_change_nothing(with_words):
    items = []
    for folder in with_words:
        task, _ = setup(folder)
        task.load_dataset("train")
        items.append([item["selected"].tolist() for item in task.dataset("train")])
    assert items[0] == items[1]


def test_side_files_are_needed_in_all_folders_or_none(with_words):
    both = ":".join(map(str, with_words))
    task, _ = setup(both, mask_whole_words=True)
    task.load_dataset("train", epoch=1)
    with pytest.raises(
        UserError, match=r"second/train\.words\.idx, .* is missing: .*--word-boundaries vocab"
    ):
        task.load_dataset("train", epoch=2)
    task, _ = setup(both, mask_whole_words=True, word_boundaries="vocabulary")
    task.load_dataset("train", epoch=2)
    task, _ = setup(with_words[1], mask_whole_words=True, word_boundaries="data")
    with pytest.raises(UserError, match=r"second/train\.words\.idx, .* is missing"):
        task.load_dataset("train")
    task, _ = setup(with_words[0], word_boundaries="data")
    with pytest.raises(UserError, match=r"--word-boundaries is an option of --mask-whole-words"):
        task.load_dataset("train")


def test_the_train_subset_alone_changes_with_the_epoch(folder):
    for split in ("train", "valid"):
        task, _ = setup(folder, {"dataset": {"train_subset": split}})
        for loaded in ("train", "valid"):
            task.load_dataset(loaded, epoch=2)
            assert task.dataset(loaded).train == (loaded == split)
            assert task.dataset(loaded).epoch == (2 if loaded == split else 1)


def test_a_task_without_the_rest_of_a_configuration(folder):
    cfg = OmegaConf.structured(BertPretrainingConfig(data=str(folder), tokens_per_sample=16))
    task = tasks.TASK_REGISTRY["bert_pretraining"].setup_task(cfg)
    task.load_dataset("train")
    assert task.dataset("train").seed == 1
    assert task.dataset("train").train


def test_folders_take_turns(tmp_path):
    folders = []
    for number in range(3):
        folder = make_corpus(tmp_path / str(number))
        write_split(
            folder, "train", random_documents(number + 2, seed=number), Dictionary.load(f"{folder}/dict.txt")
        )
        folders.append(str(folder))
    task, _ = setup(":".join(folders))
    assert task.has_sharded_data("train")
    for epoch in range(1, 6):
        task.load_dataset("train", epoch=epoch)
        assert task.dataset("train").corpus.name == f"{folders[(epoch - 1) % 3]}/train"
        assert task.dataset("train").epoch == epoch


def iterate(task, cfg, epoch, skip=0):
    task.load_dataset("train", epoch=epoch)
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_sentences=8, seed=cfg.common.seed, epoch=epoch
    )
    if skip:
        iterator.load_state_dict({"version": 2, "epoch": epoch, "iterations_in_epoch": skip, "shuffle": True})
    return [batch["net_input"]["src_tokens"].tolist() for batch in iterator.next_epoch_itr()]


def test_a_resumed_run_repeats_the_rest(folder):
    task, cfg = setup(folder, tokens_per_sample=32)
    whole = iterate(task, cfg, epoch=2)
    assert iterate(task, cfg, epoch=1) != whole
    again, _ = setup(folder, tokens_per_sample=32)
    assert iterate(again, cfg, epoch=2, skip=3) == whole[3:]


class Criterion(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = []

    def freeze_unused(self, model):
        self.frozen.append(model)


def test_the_criterion_may_freeze_heads_of_the_model(folder, monkeypatch):
    task, cfg = setup(folder)
    criterion = Criterion()
    monkeypatch.setattr("fairseq.criterions.build_criterion", lambda *args, **kwargs: criterion)
    assert task.build_criterion(cfg.criterion) is criterion
    assert criterion.frozen == []
    model = task.build_model(cfg.model)
    task.build_criterion(cfg.criterion)
    assert criterion.frozen == [model]


def test_sequences_longer_than_the_positions_of_the_model(folder):
    task, cfg = setup(folder, {"model": {"max_positions": 32}}, tokens_per_sample=64)
    with pytest.raises(UserError, match=r"--tokens-per-sample is 64, and the model has 32 positions"):
        task.build_model(cfg.model)
    assert task.build_model(cfg.model, from_checkpoint=True) is not None


def announce(caplog, folder, optimization, epoch=1, **task_options):
    task, cfg = setup(folder, {"optimization": optimization}, **task_options)
    model = task.build_model(cfg.model)
    model.encoder.embed_positions.weight.requires_grad_(False)
    task.load_dataset("train", epoch=epoch)
    task.get_batch_iterator(task.dataset("train"), max_sentences=4, epoch=epoch)
    with caplog.at_level(logging.INFO, logger="fairseq_tn"):
        task.begin_epoch(epoch, model)
        task.begin_epoch(epoch + 1, model)
    lines = [record for record in caplog.records if record.name == "fairseq_tn.tasks.bert_pretraining"]
    return task, model, [line for line in lines if "this run sees" in line.getMessage()]


@pytest.mark.parametrize("epoch", [1, 3])
def test_the_start_line(caplog, folder, epoch):
    limits = {"max_update": 100, "update_freq": [2]}
    task, model, lines = announce(caplog, folder, limits, epoch, no_nsp=True, tokens_per_sample=32)
    assert len(lines) == 1
    tokens = sum(len(line) for document in random_documents(40, seed=1) for line in document)
    sequences = math.ceil(tokens / 30)
    assert len(task.dataset("train")) == sequences
    per_epoch = math.ceil(math.ceil(sequences / 4) / 2)
    parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert parameters < sum(parameter.numel() for parameter in model.parameters())
    message = lines[0].getMessage()
    assert f"corpus: {tokens:,} tokens in {sequences:,} sequences of at most 32 tokens" in message
    assert f"sees it {100 / per_epoch:.4g} times" in message
    assert f"{parameters:,} parameters train" in message


def test_a_run_that_sees_its_corpus_too_often_warns(caplog, folder):
    _, _, lines = announce(caplog, folder, {"max_epoch": 101})
    assert [line.levelname for line in lines] == ["INFO", "WARNING"]
    assert "101 times" in lines[1].getMessage()
    caplog.clear()
    _, _, lines = announce(caplog, folder, {"max_epoch": 100})
    assert [line.levelname for line in lines] == ["INFO"]
    caplog.clear()
    # two folders: half as often each
    _, _, lines = announce(caplog, f"{folder}:{folder}", {"max_epoch": 101})
    assert [line.levelname for line in lines] == ["INFO"]
    assert "50.5 times" in lines[0].getMessage()


def test_a_run_without_an_end(caplog, folder):
    _, _, lines = announce(caplog, folder, {})
    assert [line.levelname for line in lines] == ["INFO"]
    assert "until it is stopped" in lines[0].getMessage()


@pytest.mark.parametrize(
    ("batches", "update_freq", "max_update", "max_epoch", "expected"),
    [
        (100, [1], 250, 0, 2.5),
        (100, [1], 250, 2, 2),
        (100, [1], 0, 7, 7),
        (100, [1], 0, 0, math.inf),
        (101, [10], 22, 0, 2),
        # an epoch of 100 updates, one of 50, then 25 each
        (100, [1, 2, 4], 100, 0, 1),
        (100, [1, 2, 4], 125, 0, 1.5),
        (100, [1, 2, 4], 200, 0, 4),
        (100, [1, 2, 4], 40, 0, 0.4),
    ],
)
def test_run_epochs(batches, update_freq, max_update, max_epoch, expected):
    assert run_epochs(batches, update_freq, max_update, max_epoch) == pytest.approx(expected)


def test_a_missing_dictionary(tmp_path):
    with pytest.raises(UserError, match=r"dict\.txt is missing.*fairseq-preprocess"):
        setup(tmp_path)


def test_a_broken_dictionary(tmp_path):
    (tmp_path / "dict.txt").write_text("no count\n")
    with pytest.raises(UserError, match=r"dict\.txt is not a fairseq dictionary"):
        setup(tmp_path)


def test_a_missing_corpus(tmp_path):
    write_dict(tmp_path, ["a"])
    task, _ = setup(tmp_path)
    with pytest.raises(UserError, match=r"train\.idx is missing"):
        task.load_dataset("train")


def test_a_single_document(tmp_path):
    make_corpus(tmp_path, train=random_documents(1))
    task, _ = setup(tmp_path)
    with pytest.raises(
        UserError, match=f"NSP needs at least two documents, {tmp_path}/train has one; .*--no-nsp"
    ):
        task.load_dataset("train")
    task, _ = setup(tmp_path, no_nsp=True)
    task.load_dataset("train")
    assert np.sum(task.dataset("train").sequences.length) == task.dataset("train").corpus.num_tokens


@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_short_seq_prob(folder, value):
    with pytest.raises(UserError, match="--short-seq-prob is"):
        setup(folder, short_seq_prob=value)
