"""Task ``bert_pretraining``: masked language modelling with sentence pairs (NSP) or with blocks of tokens."""

import functools
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, List, Optional  # noqa: UP035 (fairseq's command line understands typing.List only)

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import register_task
from omegaconf import II, MISSING
from torch import nn

from fairseq_tn.checkpoints import keep_checkpoint, updates_to_keep
from fairseq_tn.data.blocks import BREAK_MODES
from fairseq_tn.data.corpus import Corpus
from fairseq_tn.data.masking import Masker
from fairseq_tn.data.pretraining import PretrainingDataset
from fairseq_tn.data.word_boundaries import has_boundaries
from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vocabularies import read_gpt2_tokens
from fairseq_tn.tasks.encoder import EncoderTask, load_dictionary

logger = logging.getLogger(__name__)

# Beyond it a run mostly learns its corpus by heart.
_MANY_EPOCHS = 100

# Where --mask-whole-words learns of words: from side files if there are any, from them, from the symbols.
_BOUNDARIES = ("auto", "data", "vocabulary")

# leave_unmasked_prob and random_token_prob of models that do not say otherwise
_BERT_MASKING = (0.1, 0.1)


@dataclass
class BertPretrainingConfig(FairseqDataclass):
    """Options of the task."""

    data: str = field(
        default=MISSING,
        metadata={
            "help": "data folder made by fairseq-preprocess --only-source from text with one sentence a line and "
            "a blank line between documents; several folders, separated by colons, are read in turn, one an epoch"
        },
    )
    tokens_per_sample: int = field(
        default=256, metadata={"help": "most tokens of a sequence, special tokens included"}
    )
    no_nsp: bool = field(
        default=False,
        metadata={
            "help": "train on blocks of running text without next sentence prediction, instead of sentence pairs"
        },
    )
    sample_break_mode: ChoiceEnum(list(BREAK_MODES)) = field(  # type: ignore[valid-type]
        default="none",
        metadata={
            "help": "with --no-nsp: 'none' fills every block, 'complete' takes as many whole sentences as fit, "
            "'complete_doc' does so within a document, 'eos' is one sentence a block"
        },
    )
    mask_prob: float = field(
        default=0.15, metadata={"help": "share of the tokens (special ones excepted) that are predicted"}
    )
    leave_unmasked_prob: Optional[float] = field(
        default=None,
        metadata={
            "help": "share of the predicted tokens that the model sees unchanged (default: 0.1; 0.15 for ELECTRA)"
        },
    )
    random_token_prob: Optional[float] = field(
        default=None,
        metadata={
            "help": "share of the predicted tokens that are replaced by a random one; the rest become <mask> "
            "(default: 0.1; 0 for ELECTRA)"
        },
    )
    short_seq_prob: float = field(
        default=0.1, metadata={"help": "share of the sentence pairs that aim at a random, shorter length"}
    )
    mask_whole_words: bool = field(
        default=False, metadata={"help": "predict whole words: all pieces of a word or none"}
    )
    mask_fate_per_word: bool = field(
        default=False,
        metadata={
            "help": "with --mask-whole-words: all pieces of a word become <mask>, stay or are replaced together, "
            "instead of each by itself as in BERT"
        },
    )
    word_boundaries: ChoiceEnum(list(_BOUNDARIES)) = field(  # type: ignore[valid-type]
        default="auto",
        metadata={
            "help": "with --mask-whole-words: what tells where words begin. 'data': SPLIT.words.bin in the data "
            "folders, made by fairseq-tn prepare words; 'vocabulary': the symbols (##, @@, ...); 'auto': the former "
            "if a data folder has any"
        },
    )
    gpt2_encoder: Optional[str] = field(
        default=None,
        metadata={"help": "GPT-2's encoder.json, for --mask-whole-words with a dictionary of GPT-2 ids"},
    )
    keep_checkpoints_at: List[float] = field(  # noqa: UP006
        default_factory=list,
        metadata={
            "help": "parts of the run, such as 0.25,0.5,1: the checkpoint that is saved there, or next after it, is "
            "kept as checkpoint_at_UPDATE.pt whatever --keep-interval-updates removes"
        },
    )
    # Mirrors of fairseq's own options. They have no help text: with one, fairseq-train would set them to None.
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")
    max_epoch: int = II("optimization.max_epoch")
    max_update: int = II("optimization.max_update")
    update_freq: List[int] = II("optimization.update_freq")  # noqa: UP006, RUF009
    save_interval_updates: int = II("checkpoint.save_interval_updates")
    save_dir: str = II("checkpoint.save_dir")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")


@register_task("bert_pretraining", dataclass=BertPretrainingConfig)
class BertPretrainingTask(EncoderTask):
    """Gives batches of masked sequences (see :meth:`PretrainingDataset.collater`)."""

    cfg: BertPretrainingConfig

    def __init__(self, cfg: BertPretrainingConfig, dictionary: Dictionary):
        super().__init__(cfg, dictionary)
        if not 0 <= cfg.short_seq_prob <= 1:
            raise UserError(f"--short-seq-prob is {cfg.short_seq_prob}; it must be from 0 to 1")
        self._updates_to_keep: list[int] = []
        self._batches_per_epoch: int | None = None
        self._announced = False

    @classmethod
    def setup_task(cls, cfg: BertPretrainingConfig, **kwargs: Any) -> "BertPretrainingTask":
        """Load the dictionary of the (first) data folder and make the task.

        Raises:
            UserError: the folder has no usable ``dict.txt``, or an option is out of range
        """
        folder = utils.split_paths(cfg.data)[0]
        dictionary = load_dictionary(folder, "fairseq-preprocess")
        logger.info("dictionary: %d symbols from %s", len(dictionary), os.path.join(folder, "dict.txt"))
        return cls(cfg, dictionary)

    @functools.cached_property
    def masker(self) -> Masker:
        """The masking that the options ask for; made with the first data, so that checkpoints open without."""
        told = self._told_boundaries
        tokens = self.cfg.gpt2_encoder if self.cfg.mask_whole_words and not told else None
        unmasked, random = getattr(self._model, "masking", _BERT_MASKING)
        return Masker.for_vocabulary(
            self.dictionary.symbols,
            num_special=self.dictionary.nspecial,
            mask_index=self.dictionary.index("<mask>"),
            whole_words=self.cfg.mask_whole_words,
            mask_prob=self.cfg.mask_prob,
            leave_unmasked_prob=_given(self.cfg.leave_unmasked_prob, unmasked),
            random_token_prob=_given(self.cfg.random_token_prob, random),
            fate_per_word=self.cfg.mask_fate_per_word,
            gpt2_tokens=None if tokens is None else read_gpt2_tokens(tokens),
            told=told,
        )

    @functools.cached_property
    def _told_boundaries(self) -> bool:
        """Whether side files tell where words begin: of all splits in all data folders, or of none."""
        asked = str(self.cfg.word_boundaries)
        if not self.cfg.mask_whole_words:
            if asked != "auto":
                raise UserError(
                    "--word-boundaries is an option of --mask-whole-words; add that, or leave it out"
                )
            return False
        told = asked == "data" or (
            asked == "auto" and any(map(has_boundaries, utils.split_paths(self.cfg.data)))
        )
        logger.info(
            "whole words: as %s", "the data's side files tell" if told else "the vocabulary shows them"
        )
        return told

    @property
    def uses_nsp(self) -> bool:
        """Whether batches are sentence pairs with ``sentence_target``."""
        return not self.cfg.no_nsp

    def max_positions(self) -> int:
        """Return the length that no sequence exceeds."""
        return self.cfg.tokens_per_sample

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split; of several data folders, the one whose turn it is.

        Raises:
            UserError: the split is missing, empty, damaged, of another dictionary, or cannot give pairs; or what
                tells its words is missing or of other text
        """
        folders = utils.split_paths(self.cfg.data)
        path = os.path.join(folders[(epoch - 1) % len(folders)], split)
        self.datasets[split] = PretrainingDataset(
            Corpus(path, self.dictionary, combine, word_boundaries=self._told_boundaries),
            self.masker,
            self.cfg.tokens_per_sample,
            nsp=self.uses_nsp,
            break_mode=str(self.cfg.sample_break_mode),
            short_seq_prob=self.cfg.short_seq_prob,
            seed=self.mirrored("seed", 1),
            epoch=epoch,
            train=split == self.mirrored("train_subset", "train"),
            bos=self.dictionary.bos(),
            eos=self.dictionary.eos(),
            pad=self.dictionary.pad(),
        )
        logger.info("%s: %d sequences from %s", split, len(self.datasets[split]), path)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model and remember it for :meth:`build_criterion`.

        Raises:
            UserError: in a run that trains or validates, the model has too few positions for its sequences
        """
        model = super().build_model(cfg, from_checkpoint)
        limit = model.max_positions()
        if not from_checkpoint and isinstance(limit, int) and limit < self.cfg.tokens_per_sample:
            raise UserError(
                f"--tokens-per-sample is {self.cfg.tokens_per_sample}, and the model has {limit} positions; "
                "lower it, or raise --max-positions of a model that is trained from scratch"
            )
        return model

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Return fairseq's iterator, and note how many batches an epoch of training has."""
        iterator = super().get_batch_iterator(dataset, *args, **kwargs)
        if self._batches_per_epoch is None and getattr(dataset, "train", False):
            self._batches_per_epoch = len(iterator)
        return iterator

    def train_step(
        self,
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
    ) -> Any:
        """fairseq's step; ``is_dummy`` marks what a worker computes for nothing when it has run out of data."""
        if ignore_grad:
            sample = {**sample, "is_dummy": True}
        return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad)

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """At the start of a run or of its resumption, log how large corpus, run and model are.

        Raises:
            UserError: what ``--keep-checkpoints-at`` asks for is out of range or never saved
        """
        super().begin_epoch(epoch, model)
        self._updates_to_keep = updates_to_keep(
            self.cfg.keep_checkpoints_at,
            self.mirrored("max_update", 0),
            self.mirrored("save_interval_updates", 0),
        )
        if self._batches_per_epoch is None or self._announced:
            return
        self._announced = True
        if distributed_utils.get_global_rank() == 0:
            self._announce(model, self._batches_per_epoch)

    def post_save(self, path: str, num_updates: int) -> None:
        """fairseq calls this, where it saves, after it has saved ``path``."""
        if num_updates in self._updates_to_keep:
            logger.info("kept %s", keep_checkpoint(path, num_updates))

    def _announce(self, model: nn.Module, batches_per_epoch: int) -> None:
        dataset = self.dataset(self.mirrored("train_subset", "train"))
        folders = len(utils.split_paths(self.cfg.data))
        epochs = run_epochs(
            batches_per_epoch,
            self.mirrored("update_freq", [1]),
            self.mirrored("max_update", 0),
            self.mirrored("max_epoch", 0),
        )
        passes = epochs / folders
        logger.info(
            "corpus: %s tokens in %s sequences of at most %d tokens%s; this run sees it %s; "
            "%s parameters train",
            f"{dataset.corpus.num_tokens:,}",
            f"{len(dataset):,}",
            self.cfg.tokens_per_sample,
            f" (the first of {folders} data folders)" if folders > 1 else "",
            f"{passes:,.4g} times" if math.isfinite(passes) else "until it is stopped",
            f"{sum(p.numel() for p in model.parameters() if p.requires_grad):,}",
        )
        if self._updates_to_keep:
            logger.info("the checkpoints of these updates are kept: %s", self._updates_to_keep)
        if math.isfinite(passes) and passes > _MANY_EPOCHS:
            logger.warning(
                "this run sees its corpus %s times: expect it to learn %s by heart and not to improve elsewhere; "
                "give more text or lower --max-update / --max-epoch",
                f"{passes:,.0f}",
                self.cfg.data,
            )


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def run_epochs(batches: int, update_freq: Sequence[int], max_update: int, max_epoch: int) -> float:
    """Return how many epochs a run will see.

    Args:
        batches: batches of one worker in an epoch
        update_freq: batches an update, for each epoch; the last one holds on
        max_update, max_epoch: limits of the run; 0 = none

    Returns:
        epochs, perhaps a fraction; infinite without a limit
    """
    longest = max_epoch if max_epoch > 0 else math.inf
    if max_update <= 0:
        return longest
    epochs, updates = 0.0, float(max_update)
    for number, freq in enumerate(update_freq, start=1):
        per_epoch = math.ceil(batches / freq)
        share = updates / per_epoch
        if number < len(update_freq):
            share = min(share, 1.0)
        epochs += share
        updates -= share * per_epoch
        if updates <= 0:
            break
    return min(epochs, longest)
