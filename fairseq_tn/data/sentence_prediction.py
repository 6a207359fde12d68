"""Writing what fairseq's ``sentence_prediction`` task reads, from the files of GLUE.

A folder holds ``input0/`` and, for pairs, ``input1/`` with a split's sentences, each ended by ``</s>``; ``label/``
with classes as a binarised "sentence" of one symbol, or scores as text; ``index/`` with what GLUE's server calls each
row; and ``glue.json``. The task puts ``<s>`` before the first sentence (``--init-token 0``), so that a model reads
``<s> A </s>`` or ``<s> A </s> B </s>``.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, indexed_dataset

from fairseq_tn.data.dictionary import UNKNOWN
from fairseq_tn.data.encode import Encoder
from fairseq_tn.data.examples import digest_of_examples
from fairseq_tn.data.glue import HIGHEST_SCORE, TASKS, GlueSplit, GlueTask
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_folder, read_json

MANIFEST = "glue.json"
_AT_A_TIME = 2000


@dataclass
class PreparedSplit:
    """What was written of a split.

    Attributes:
        source: where it was read.
        rows: examples.
        labelled: whether the right answers are there.
        truncated: examples that had to be cut.
        skipped: broken lines left out.
        tokens, unknown: tokens of the sentences, special ones not counted, and those of them that are ``<unk>``.
        examples: digest of the examples, whatever the vocabulary.
    """

    source: str
    rows: int
    labelled: bool
    truncated: int
    skipped: int
    tokens: int
    unknown: int
    examples: str


@dataclass(frozen=True)
class Prepared:
    """A prepared folder."""

    folder: Path
    task: GlueTask
    max_length: int
    splits: dict[str, PreparedSplit]

    @classmethod
    def load(cls, folder: str | Path) -> "Prepared":
        """Read what :func:`write_folder` wrote.

        Raises:
            UserError: the folder is something else
        """
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            raise UserError(
                f"{folder / MANIFEST} is missing; give a folder that `fairseq-tn prepare glue` made"
            )
        content = read_json(folder / MANIFEST)
        try:
            splits = {name: PreparedSplit(**split) for name, split in content["splits"].items()}
            return cls(folder, TASKS[content["task"]], content["max_length"], splits)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{folder / MANIFEST} is of another version ({error}); run `fairseq-tn prepare glue` again"
            ) from error

    def indices(self, split: str) -> list[str]:
        """What GLUE's server calls each row of a split."""
        return (self.folder / "index" / f"{split}.txt").read_text(encoding="utf-8").split("\n")[:-1]


def keep(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of a pair stay: the longer sentence loses its end first, the second one if they are equal.

    It is what taking off one token at a time from the longer sentence (BERT's way) ends with.
    """
    first = min(first, max((room + 1) // 2, room - second))
    return first, min(second, room - first)


def write_folder(
    task: GlueTask,
    splits: dict[str, GlueSplit],
    encoder: Encoder,
    output: str | Path,
    max_length: int = 128,
    progress: Callable[[int], Any] = lambda rows: None,
) -> Prepared:
    """Write ``splits`` as the tokens of ``encoder`` to the folder ``output``, whole or not at all.

    Args:
        task: of GLUE.
        splits: from :func:`~fairseq_tn.data.glue.read_task`.
        encoder: writes the symbols of the model's dictionary.
        output: a new folder, or one that this function wrote for the same task.
        max_length: most tokens of an example, ``<s>`` and ``</s>`` included.
        progress: is told how many more rows are done.

    Raises:
        UserError: the tokenizer has no dictionary, ``max_length`` leaves no room, or ``output`` holds something else
    """
    output = Path(output)
    special = 1 + len(task.texts)
    if max_length < special + len(task.texts):
        raise UserError(
            f"--max-length {max_length} leaves no room for text; give {special + len(task.texts)} or more"
        )
    text = encoder.dict_text()
    if text is None:
        raise UserError(
            "this tokenizer has no vocabulary of its own; give the dict.txt of the model with --dict"
        )
    _check_output(output, task)
    prepared = Prepared(output, task, max_length, {})
    with atomic_folder(output) as temporary:
        inputs = [temporary / f"input{number}" for number in range(len(task.texts))]
        for folder in (*inputs, temporary / "label", temporary / "index"):
            folder.mkdir()
        for folder in inputs:
            (folder / "dict.txt").write_text(text, encoding="utf-8", newline="\n")
        dictionary = Dictionary.load(str(inputs[0] / "dict.txt"))
        label_dictionary = _write_label_dictionary(task, temporary / "label" / "dict.txt")
        for name, split in splits.items():
            prepared.splits[name] = _write_inputs(
                split, name, inputs, encoder, dictionary, max_length, progress
            )
            if split.labelled:
                _write_labels(task, split, temporary / "label" / name, label_dictionary)
            rows = "".join(f"{example.row}\n" for example in split.examples)
            (temporary / "index" / f"{name}.txt").write_text(rows, encoding="utf-8", newline="\n")
        manifest = {
            "task": task.name,
            "max_length": max_length,
            "splits": {name: asdict(split) for name, split in prepared.splits.items()},
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return prepared


def _check_output(output: Path, task: GlueTask) -> None:
    if output.is_file():
        raise UserError(f"--output {output} is a file; name a folder")
    if not output.is_dir() or not any(output.iterdir()):
        return
    there = Prepared.load(output).task.name if (output / MANIFEST).is_file() else "other files"
    if there != task.name:
        raise UserError(f"--output {output} holds {there} already; name a folder of its own for {task.name}")


def _builder(prefix: Path, dictionary: Dictionary) -> Any:
    return indexed_dataset.make_builder(
        indexed_dataset.data_file_path(str(prefix)), impl="mmap", vocab_size=len(dictionary)
    )


def _write_inputs(
    split: GlueSplit,
    name: str,
    folders: Sequence[Path],
    encoder: Encoder,
    dictionary: Dictionary,
    max_length: int,
    progress: Callable[[int], Any],
) -> PreparedSplit:
    builders = [_builder(folder / name, dictionary) for folder in folders]
    room = max_length - 1 - len(folders)
    counts = PreparedSplit(
        split.source, len(split.examples), split.labelled, 0, split.skipped, 0, 0, _digest(split)
    )
    ids, end = dictionary.indices, [dictionary.eos()]
    for sentences in _encoded(split, encoder, progress):
        lengths = [len(symbols) for symbols in sentences]
        kept = keep(lengths[0], lengths[1], room) if len(lengths) == 2 else (min(lengths[0], room),)
        counts.truncated += kept != tuple(lengths)
        for builder, symbols, length in zip(builders, sentences, kept, strict=True):
            builder.add_item(torch.IntTensor([ids[symbol] for symbol in symbols[:length]] + end))
            counts.tokens += length
            counts.unknown += symbols[:length].count(UNKNOWN)
    for builder, folder in zip(builders, folders, strict=True):
        builder.finalize(indexed_dataset.index_file_path(str(folder / name)))
    return counts


def _encoded(
    split: GlueSplit, encoder: Encoder, progress: Callable[[int], Any]
) -> Iterator[tuple[list[str], ...]]:
    """The symbols of each example's sentences."""
    for begin in range(0, len(split.examples), _AT_A_TIME):
        part = split.examples[begin : begin + _AT_A_TIME]
        columns = zip(*(example.texts for example in part), strict=True)
        yield from zip(*(encoder.encode(list(column)) for column in columns), strict=True)
        progress(len(part))


def _digest(split: GlueSplit) -> str:
    return digest_of_examples("\t".join((*example.texts, example.label or "")) for example in split.examples)


def _write_label_dictionary(task: GlueTask, path: Path) -> Dictionary | None:
    if not task.labels:
        return None
    # the order of the classes is that of the file, whatever the training set holds
    path.write_text("".join(f"{label} 1\n" for label in task.labels), encoding="utf-8", newline="\n")
    return Dictionary.load(str(path))


def _write_labels(task: GlueTask, split: GlueSplit, prefix: Path, dictionary: Dictionary | None) -> None:
    labels = [str(example.label) for example in split.examples]
    if dictionary is None:
        scores = "".join(f"{float(label) / HIGHEST_SCORE!r}\n" for label in labels)
        prefix.with_name(f"{prefix.name}.label").write_text(scores, encoding="utf-8", newline="\n")
        return
    items = {label: torch.IntTensor([dictionary.index(label), dictionary.eos()]) for label in task.labels}
    builder = _builder(prefix, dictionary)
    for label in labels:
        builder.add_item(items[label])
    builder.finalize(indexed_dataset.index_file_path(str(prefix)))
