"""Task ``token_tagging``: named entities, word segmentation, and whatever else gives each token a tag."""

import logging
from dataclasses import dataclass, field
from typing import Any

from fairseq.data import Dictionary
from fairseq.tasks import register_task
from omegaconf import MISSING

from fairseq_tn.data.tagging import TaggingDataset
from fairseq_tn.data.tagging_folder import MADE_BY, TaggingFacts
from fairseq_tn.tasks.fine_tuning import FineTuningConfig, FineTuningTask, load_dictionary

logger = logging.getLogger(__name__)


@dataclass
class TokenTaggingConfig(FineTuningConfig):
    """Options of the task."""

    data: str = field(default=MISSING, metadata={"help": "data folder made by `fairseq-tn prepare tagging`"})


@register_task("token_tagging", dataclass=TokenTaggingConfig)
class TokenTaggingTask(FineTuningTask):
    """Gives batches of sequences with tags (see :meth:`TaggingDataset.collater`).

    facts: what the data folder says of its tags.
    """

    cfg: TokenTaggingConfig

    def __init__(self, cfg: TokenTaggingConfig, dictionary: Dictionary, facts: TaggingFacts):
        super().__init__(cfg, dictionary)
        self.facts = facts

    @classmethod
    def setup_task(cls, cfg: TokenTaggingConfig, **kwargs: Any) -> "TokenTaggingTask":
        """Read what the data folder is about; raises UserError if it is none of this task."""
        facts = TaggingFacts.read(cfg.data)
        dictionary = load_dictionary(cfg.data)
        logger.info("dictionary: %d symbols; %d tags (%s)", len(dictionary), len(facts.labels), facts.scheme)
        return cls(cfg, dictionary, facts)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model.

        Raises:
            UserError: in a run that trains or validates, the model has too few positions for the sequences
        """
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            self.check_length(model)
        return model

    def check_length(self, model: Any) -> None:
        """Raise UserError if the model has too few positions for a sequence of the data folder."""
        limit = model.max_positions()
        remedy = f"run `{MADE_BY}` again with --max-tokens {limit}"
        self.check_positions(model, self.max_positions(), remedy)

    def max_positions(self) -> int:
        """Return the length that no sequence exceeds."""
        return max(self.facts.longest.values())

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split.

        Raises:
            UserError: the split is missing, damaged or of another dictionary
        """
        train = split == self.mirrored("train_subset", "train")
        self.datasets[split] = TaggingDataset(
            self.cfg.data, split, self.facts, self.dictionary, self.mirrored("seed", 1), train
        )
        logger.info("%s: %d sequences", split, len(self.datasets[split]))
