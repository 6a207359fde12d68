"""The data folder of the task ``token_tagging``: what ``fairseq-tn prepare tagging`` writes and everything else reads.

For each split ``SPLIT.bin`` and ``.idx`` hold the pieces of its sequences (with ``</s>``), ``SPLIT.tags.bin`` and
``.idx`` for each piece the number of its token's tag plus one, 0 where a piece is not the first of its token, and
``SPLIT.txt`` the text in the form in which it was given. ``tagging.json`` says what the numbers mean, ``words.txt``
holds the words of the training text of word segmentation, and ``dict.txt`` is fairseq's dictionary.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from fairseq_tn.data.tagged_text import TextFormat
from fairseq_tn.data.tags import SCHEMES, SEGMENTATION, TagSet
from fairseq_tn.errors import UserError
from fairseq_tn.files import read_json

FACTS, WORDS = "tagging.json", "words.txt"
MADE_BY = "fairseq-tn prepare tagging"
_VERSION = 1


@dataclass(frozen=True)
class TaggingFacts:
    """What a data folder is about.

    scheme: of the tags, see :data:`fairseq_tn.data.tags.SCHEMES`; or ``segmentation``.
    labels: the tags of the training set, which a model can predict.
    others: tags that occur in other splits only; their numbers follow.
    form: how ``SPLIT.txt`` is written.
    longest: split -> pieces of its longest sequence, ``<s>`` and ``</s>`` included.
    """

    scheme: str
    labels: tuple[str, ...]
    others: tuple[str, ...]
    form: TextFormat
    longest: dict[str, int]

    @property
    def tag_set(self) -> TagSet:
        """All tags by number."""
        return TagSet.of((*self.labels, *self.others), self.scheme)

    def write(self, folder: Path) -> None:
        """Write ``tagging.json``."""
        content = {"version": _VERSION, **dataclasses.asdict(self)}
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        (folder / FACTS).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, folder: str | Path) -> "TaggingFacts":
        """Read ``tagging.json``; raises UserError if the folder is no such data folder."""
        path = Path(folder) / FACTS
        if not path.is_file():
            raise UserError(f"{path} is missing: give a data folder that `{MADE_BY}` made")
        content = read_json(path)
        try:
            if content["version"] != _VERSION or content["scheme"] not in {*SCHEMES, SEGMENTATION}:
                raise ValueError
            facts = cls(
                content["scheme"],
                tuple(content["labels"]),
                tuple(content["others"]),
                TextFormat(**content["form"]),
                dict(content["longest"]),
            )
            assert facts.tag_set
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{path} is damaged or of another version; run {MADE_BY} again") from None
        return facts


def text_file(folder: str | Path, split: str) -> Path:
    """The text of a split."""
    return Path(folder) / f"{split}.txt"


def tags_prefix(folder: str | Path, split: str) -> str:
    """The path of a split's tags, without extension."""
    return os.path.join(folder, f"{split}.tags")
