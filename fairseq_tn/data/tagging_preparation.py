"""From tagged text to the data folder of the task ``token_tagging`` (see :mod:`fairseq_tn.data.tagging_folder`)."""

import dataclasses
import itertools
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset
from numpy.typing import NDArray

from fairseq_tn.data.dictionary import build_dict_text
from fairseq_tn.data.encode import Encoder
from fairseq_tn.data.tagged_text import TaggedText, TextFormat, read_lines, read_tagged, spelled, with_tags
from fairseq_tn.data.tagging_folder import WORDS, TaggingFacts, tags_prefix, text_file
from fairseq_tn.data.tags import (
    SEGMENTATION,
    SEGMENTATION_TAGS,
    Spans,
    TagSet,
    detect_scheme,
    is_iob1,
    lenient_spans,
    sequence_starts,
    write_tags,
)
from fairseq_tn.data.token_pieces import PieceTable, pieces_of_tokens
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_folder

_SPECIAL_PIECES = 2  # <s> and </s>
# after these a sentence may be cut: punctuation that closes or separates
_CLOSING = ("Po", "Pe", "Pf")


@dataclass
class SplitReport:
    """What became of a split.

    sentences, tokens: of the text.
    entities: entities, or words of word segmentation.
    sequences: after long sentences were cut.
    cut: sentences that were cut.
    broken: entities that a cut parts.
    unknown: pieces that are ``<unk>``.
    pieces: all pieces.
    repaired: tags that were changed because they did not follow the scheme.
    repaired_at: where the first of them is.
    unseen: tokens whose tag the training set does not have.
    halves: lone halves of characters that were read as U+FFFD.
    """

    sentences: int
    tokens: int
    entities: int
    sequences: int = 0
    cut: int = 0
    broken: int = 0
    unknown: int = 0
    pieces: int = 0
    repaired: int = 0
    repaired_at: str = ""
    unseen: Counter[str] = field(default_factory=Counter)
    halves: int = 0


@dataclass
class PreparationReport:
    """What was written: the scheme as it was found, the labels, each split, and whether valid was split off."""

    scheme: str
    labels: tuple[str, ...]
    splits: dict[str, SplitReport]
    split_off: bool


@dataclass
class _Split:
    """A text with its entities, and which of its sentences are meant."""

    text: TaggedText
    starts: NDArray[np.bool_]
    spans: Spans
    tags: NDArray[np.int64]  # repaired, numbers of the complete tag set
    repaired: NDArray[np.bool_]
    chosen: NDArray[np.int64]
    report: SplitReport = field(init=False)

    def __post_init__(self) -> None:
        mask = _token_mask(self)
        repaired = np.flatnonzero(self.repaired & mask)
        self.report = SplitReport(
            sentences=len(self.chosen),
            tokens=int(mask.sum()),
            entities=int(mask[self.spans.begin].sum()),
            repaired=len(repaired),
            repaired_at=self.text.place(int(repaired[0])) if len(repaired) else "",
            halves=self.text.halves,
        )


def prepare_tagging(
    files: Mapping[str, str | Path],
    output: str | Path,
    encoder: Encoder,
    form: TextFormat,
    scheme: str | None = None,
    max_tokens: int = 512,
    valid_share: float = 0.1,
    seed: int = 1,
    repair_tags: bool = True,
) -> PreparationReport:
    """Write a data folder.

    Args:
        files: split -> file; ``train`` is needed, without ``valid`` a part of it is split off
        output: the folder
        encoder: how tokens are written in pieces
        form: how all files are written
        scheme: of the tags; None: detected
        max_tokens: most pieces of a sequence, ``<s>`` and ``</s>`` included; longer sentences are cut
        valid_share, seed: how many of the training sentences are split off, drawn with this seed
        repair_tags: read tag sequences that do not follow the scheme as ``conlleval`` does; otherwise refuse them

    Raises:
        UserError: a file is missing, damaged or of another form or scheme (names file and line), there is nothing
            to learn, or too little to split off
    """
    limit = max_tokens - _SPECIAL_PIECES
    if limit < 1:
        raise UserError(f"--max-tokens is {max_tokens}; it must be 3 or more")
    texts = {split: read_tagged(path, form) for split, path in files.items()}
    found = scheme or _detect(texts)
    for text in texts.values():
        text.check_tags("iob2" if found == "iob1" else found)
    names = sorted({name for text in texts.values() for name in text.names})
    written = TagSet.of(names, found).with_all_roles()
    splits = {split: _read_split(text, written, repair_tags) for split, text in texts.items()}
    split_off = "valid" not in splits
    if split_off:
        splits = _split_off(splits, valid_share, seed)
    if not splits["train"].report.entities:
        rest = " in what is left after a development set is split off" if split_off else ""
        raise UserError(f"{texts['train'].path} has no entity{rest}: all tags are O")
    # IOB1 is written as IOB2
    known = TagSet.of(written.names, "iob2" if found == "iob1" else found)
    labels = _labels(splits["train"], known)
    others = sorted(
        {known.names[n] for split in splits.values() for n in np.unique(_chosen_tags(split))} - {*labels}
    )
    with atomic_folder(output) as folder:
        table, dictionary = _pieces(texts, splits, encoder, folder, limit)
        longest = {}
        numbers = {label: number for number, label in enumerate([*labels, *others])}
        for name, split in splits.items():
            targets = np.array([numbers.get(label, -1) for label in known.names])[split.tags]
            for number, label in enumerate(others, start=len(labels)):
                if occurrences := int((targets[_token_mask(split)] == number).sum()):
                    split.report.unseen[label] = occurrences
            longest[name] = _write_split(
                folder,
                name,
                split,
                targets,
                table,
                dictionary,
                num_tags=len(numbers),
                limit=limit,
                free=name != "train",
            )
            text_file(folder, name).write_text("".join(_text_lines(split, form, known)), encoding="utf-8")
        if found == SEGMENTATION:
            train = texts["train"]
            spans = splits["train"].spans
            words = sorted(set(spelled(train.sentences, spans.begin.tolist(), spans.end.tolist())))
            (folder / WORDS).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        TaggingFacts(known.scheme, labels, tuple(others), form, longest).write(folder)
    return PreparationReport(found, labels, {name: split.report for name, split in splits.items()}, split_off)


def _detect(texts: Mapping[str, TaggedText]) -> str:
    """The scheme of all texts; UserError, naming the line, where they mix schemes."""
    seen: list[str] = []
    for text in texts.values():
        for number, name in enumerate(text.names):
            seen.append(name)
            if detect_scheme(seen) is None:
                place = text.place(int(np.flatnonzero(text.tags == number)[0]))
                raise UserError(
                    f"{place}: the tag {name!r} and the tags before it are of no one scheme (BIO, BIOES, BMES, BMEWO, "
                    "BILOU); bring the files into one, or name it with --scheme"
                )
    scheme = detect_scheme(seen)
    assert scheme is not None
    if scheme != "iob2":
        return scheme
    texts["train"].check_tags(scheme)
    train = texts["train"]
    tag_set = TagSet.of(train.names, scheme)
    return "iob1" if is_iob1(train.tags, sequence_starts(train.lengths), tag_set) else scheme


def _read_split(text: TaggedText, written: TagSet, repair_tags: bool) -> _Split:
    numbers = {name: number for number, name in enumerate(written.names)}
    tags = np.array([numbers[name] for name in text.names])[text.tags]
    starts = sequence_starts(text.lengths)
    spans = lenient_spans(tags, starts, written)
    written_tags = tags
    if written.scheme != SEGMENTATION or not isinstance(text.sentences[0], str):
        written_tags = write_tags(spans, len(tags), written)
    repaired = written_tags != tags
    if written.scheme == "iob1":  # what it says in its own way is no error
        repaired[:] = False
    split = _Split(text, starts, spans, written_tags, repaired, np.arange(len(text.sentences)))
    if split.report.repaired and not repair_tags:
        name = written.names[tags[np.flatnonzero(repaired)[0]]]
        raise UserError(
            f"{split.report.repaired_at}: the tag {name!r} does not follow the scheme {written.scheme}; mend the "
            "file, or let such tags be read as conlleval does (--invalid repair)"
        )
    return split


def _split_off(splits: Mapping[str, _Split], share: float, seed: int) -> dict[str, _Split]:
    """``valid``: a part of the training sentences; what is left, and the other splits."""
    train = splits["train"]
    number = len(train.text.sentences)
    if number < 2:
        raise UserError(
            f"{train.text.path} has one sentence, from which no development set can be split off; give --valid"
        )
    wanted = min(number - 1, max(1, round(share * number)))
    drawn = np.sort(np.random.default_rng(seed).permutation(number)[:wanted])
    rest = np.setdiff1d(train.chosen, drawn)
    parts = {
        "train": dataclasses.replace(train, chosen=rest),
        "valid": dataclasses.replace(train, chosen=drawn),
    }
    parts["valid"].report.halves = 0  # they are the file's, and said of what is left
    return {**parts, **{name: split for name, split in splits.items() if name != "train"}}


def _token_mask(split: _Split) -> NDArray[np.bool_]:
    """Which tokens of the text are in the sentences that are meant."""
    mask = np.zeros(len(split.text.sentences), bool)
    mask[split.chosen] = True
    return np.repeat(mask, split.text.lengths)


def _chosen_tags(split: _Split) -> NDArray[np.int64]:
    return split.tags[_token_mask(split)]


def _labels(train: _Split, tag_set: TagSet) -> tuple[str, ...]:
    """The tags of the training set, O first."""
    if tag_set.scheme == SEGMENTATION:
        return SEGMENTATION_TAGS
    used = np.unique(_chosen_tags(train))
    return tuple(sorted((tag_set.names[n] for n in used), key=lambda name: (name != "O", name)))


def _pieces(
    texts: Mapping[str, TaggedText],
    splits: Mapping[str, _Split],
    encoder: Encoder,
    folder: Path,
    limit: int,
) -> tuple[tuple[dict[str, int], PieceTable, NDArray[np.bool_]], Dictionary]:
    """Write ``dict.txt``. Returns tokens by number, their pieces, which close something; and the dictionary."""
    train = splits["train"]
    sentences = (train.text.sentences[number] for number in train.chosen.tolist())
    counts = Counter(itertools.chain.from_iterable(sentences))
    tokens = list(counts)
    everything = itertools.chain.from_iterable(
        sentence for text in texts.values() for sentence in text.sentences
    )
    tokens += [token for token in dict.fromkeys(everything) if token not in counts]
    symbols = pieces_of_tokens(encoder, tokens)
    content = encoder.dict_text()
    if content is None:
        occurrences: Counter[str] = Counter()
        for token, pieces in zip(tokens, symbols, strict=True):
            for piece in pieces:
                occurrences[piece] += counts[token]
        content = build_dict_text(occurrences, threshold=1)
    path = folder / "dict.txt"
    path.write_text(content, encoding="utf-8", newline="\n")
    dictionary = Dictionary.load(str(path))
    numbers = {token: number for number, token in enumerate(tokens)}
    table = PieceTable([[dictionary.index(piece) for piece in pieces[:limit]] for pieces in symbols])
    closing = np.array([unicodedata.category(token[-1]) in _CLOSING for token in tokens])
    return (numbers, table, closing), dictionary


def _write_split(
    folder: Path,
    name: str,
    split: _Split,
    targets: NDArray[np.int64],
    pieces: tuple[dict[str, int], PieceTable, NDArray[np.bool_]],
    dictionary: Dictionary,
    num_tags: int,
    limit: int,
    free: bool,
) -> int:
    """Write pieces and tags of a split and complete its report; returns the length of the longest sequence.

    Args:
        targets: the labels of the text's tokens
        pieces: see :func:`_pieces`
        num_tags: number of all labels
        free: cut without a look at the tags, as text is cut whose tags nobody knows
    """
    numbers, table, closing = pieces
    report = split.report
    mask = _token_mask(split)
    sentences = [split.text.sentences[number] for number in split.chosen.tolist()]
    everything = itertools.chain.from_iterable(sentences)
    tokens = np.fromiter(map(numbers.__getitem__, everything), np.int64, int(mask.sum()))
    inside = np.zeros(len(mask) + 1, np.int64)
    np.add.at(inside, split.spans.begin + 1, 1)
    np.add.at(inside, split.spans.end, -1)
    goes_on = (np.cumsum(inside)[:-1] > 0)[mask]
    counts = table.counts[tokens]
    lengths = split.text.lengths[split.chosen]
    edges = np.concatenate(([0], np.cumsum(lengths)))
    sizes = np.add.reduceat(counts, edges[:-1])
    cuts = [edges[:-1]]
    for sentence in np.flatnonzero(sizes > limit).tolist():
        begin, end = int(edges[sentence]), int(edges[sentence + 1])
        allowed = np.ones(end - begin, bool) if free else ~goes_on[begin:end]
        preferred = np.zeros(end - begin, bool)
        preferred[1:] = closing[tokens[begin : end - 1]]
        places = begin + _cuts(counts[begin:end], allowed, preferred & allowed, limit)
        report.cut += 1
        report.broken += int(goes_on[places].sum())
        cuts.append(places)
    begins = np.sort(np.concatenate(cuts))
    flat, first = table.spell(tokens)
    marks = np.zeros(len(flat), np.int64)
    marks[first] = targets[mask] + 1
    piece_edges = np.append(first[begins], len(flat)).tolist()
    report.sequences, report.pieces = len(begins), len(flat)
    report.unknown = int((flat == dictionary.unk()).sum())
    prefixes = str(folder / name), tags_prefix(folder, name)
    for prefix, values, ending, size in zip(
        prefixes,
        (flat, marks),
        (dictionary.eos(), num_tags + 1),
        (len(dictionary), num_tags + 2),
        strict=True,
    ):
        builder = indexed_dataset.make_builder(
            indexed_dataset.data_file_path(prefix), impl="mmap", vocab_size=size
        )
        for left, right in itertools.pairwise(piece_edges):
            builder.add_item(torch.from_numpy(np.append(values[left:right], ending).astype(np.int64)))
        builder.finalize(indexed_dataset.index_file_path(prefix))
    return int(np.diff(piece_edges).max()) + _SPECIAL_PIECES


def _cuts(
    counts: NDArray[np.int64], allowed: NDArray[np.bool_], preferred: NDArray[np.bool_], limit: int
) -> NDArray[np.int64]:
    """Before which tokens a long sentence is cut so that no part has more than ``limit`` pieces.

    Args:
        counts: pieces of each token, none of more than ``limit``
        allowed: before which tokens it may be cut; where that leaves no choice, it is cut elsewhere
        preferred: where it is cut best; each part is more than half full
        limit: most pieces of a part
    """
    edges = np.concatenate(([0], np.cumsum(counts)))
    cuts: list[int] = []
    begin = 0
    while edges[-1] - edges[begin] > limit:
        last = int(np.searchsorted(edges, edges[begin] + limit, side="right")) - 1
        half = int(np.searchsorted(edges, edges[begin] + limit / 2, side="right"))
        for candidates, start in ((preferred, half), (allowed, begin + 1)):
            places = np.flatnonzero(candidates[start : last + 1])
            if len(places):
                last = start + int(places[-1])
                break
        cuts.append(last)
        begin = last
    return np.array(cuts, np.int64)


def _text_lines(split: _Split, form: TextFormat, tag_set: TagSet) -> Sequence[str]:
    """The text as it was given, with the repaired tags; of a part of a file the sentences alone."""
    if form.name == SEGMENTATION:
        lines = [line + "\n" for line in read_lines(split.text.path)[0]]
    else:
        lines = list(with_tags(split.text.path, form, [tag_set.names[n] for n in split.tags.tolist()]))
    if len(split.chosen) == len(split.text.sentences):
        return lines
    chosen: list[str] = []
    for sentence in split.chosen.tolist():
        line = split.text.first_lines[sentence] - 1
        if form.name == SEGMENTATION:
            chosen.append(lines[line])
        else:
            chosen += [*lines[line : line + len(split.text.sentences[sentence])], "\n"]
    return chosen
