"""Models with their tokenizers, as the analyses read them: fairseq checkpoints and Hugging Face folders."""

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_tn.checkpoints import checkpoints_of_run
from fairseq_tn.data.encode import Encoder
from fairseq_tn.data.encoders import EncoderOptions, load_encoder
from fairseq_tn.data.gpt2 import ENCODER, Gpt2Encoder
from fairseq_tn.data.streams import InputStream
from fairseq_tn.data.text import TextReader
from fairseq_tn.errors import UserError
from fairseq_tn.files import read_json
from fairseq_tn.models.access import all_layers, pretraining_outputs

# tokens of a batch, padding included
BATCH_TOKENS = 8192
# sequences that are sorted by length at a time: little padding, and memory that does not grow with the text
_CHUNK = 4096


@dataclass
class AnalysedModel:
    """A model in eval mode and float32.

    name: for tables and plots.
    path: the checkpoint or folder.
    model: ``tn_bert``, ``tn_electra`` or fairseq's ``roberta``.
    dictionary: fairseq's, ``<mask>`` included.
    encoder: its tokenizer; None if none was needed.
    tokenizer: the file or folder of the tokenizer, or its kind.
    max_tokens: the longest input, special tokens included.
    updates: for how many the checkpoint was trained, if it says so.
    missing: the beginnings of the names of weights that a Hugging Face folder lacks, and that are random therefore.
    """

    name: str
    path: Path
    model: nn.Module
    dictionary: Any
    encoder: Encoder | None
    tokenizer: str | None
    max_tokens: int
    updates: int | None
    missing: tuple[str, ...] = ()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def encode(self, lines: list[str]) -> list[np.ndarray]:
        """``<s> tokens </s>`` of each line as int64 ids, not cut to ``max_tokens``."""
        assert self.encoder is not None
        index, bos, eos = self.dictionary.index, self.dictionary.bos(), self.dictionary.eos()
        return [
            np.array([bos, *map(index, symbols), eos], dtype=np.int64)
            for symbols in self.encoder.encode(lines)
        ]

    def cut(self, sequence: np.ndarray) -> np.ndarray:
        """The sequence, or its beginning and its last token where it is longer than the model."""
        if len(sequence) <= self.max_tokens:
            return sequence
        return np.append(sequence[: self.max_tokens - 1], sequence[-1])

    def batches(
        self, sequences: Iterable[np.ndarray], batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield (numbers of the sequences, B x T tokens on the model's device, right-padded).

        Sequences are read as they are needed and sorted by length within a few thousand; B x T is at most
        ``batch_tokens`` unless a single sequence is longer. Every order gives the same numbers with the same
        sequences.
        """
        chunk: list[np.ndarray] = []
        first = 0
        for sequence in sequences:
            chunk.append(sequence)
            if len(chunk) == _CHUNK:
                yield from self._sorted_batches(chunk, first, batch_tokens)
                first += len(chunk)
                chunk = []
        yield from self._sorted_batches(chunk, first, batch_tokens)

    def _sorted_batches(
        self, chunk: list[np.ndarray], first: int, batch_tokens: int
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        lengths = np.array([len(sequence) for sequence in chunk])
        order = np.argsort(-lengths, kind="stable")
        begin = 0
        while begin < len(order):
            width = int(lengths[order[begin]])
            rows = order[begin : begin + max(1, batch_tokens // max(width, 1))]
            tokens = np.full((len(rows), width), self.dictionary.pad(), dtype=np.int64)
            for row, number in enumerate(rows):
                tokens[row, : lengths[number]] = chunk[number]
            yield rows + first, torch.from_numpy(tokens).to(self.device)
            begin += len(rows)

    @torch.no_grad()
    def layers(self, tokens: Tensor) -> list[Tensor]:
        """States (B x T x D) of every layer, the output of the embeddings first; of ELECTRA the discriminator's."""
        return all_layers(self.model, tokens)

    @torch.no_grad()
    def logits(self, tokens: Tensor, selected: Tensor) -> Tensor:
        """Masked-LM logits (K x V) at flat indices (K) of ``tokens`` (B x T)."""
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        masked.view(-1)[selected] = True
        net_input = {"src_tokens": tokens, "src_lengths": tokens.ne(self.dictionary.pad()).sum(1)}
        logits, _, _ = pretraining_outputs(
            self.model, net_input, selected.sort().values, masked, lm=True, states=False
        )
        assert logits is not None
        return logits

    def check_lm_head(self) -> None:
        """Raise UserError if the masked-LM head is not the model's own."""
        if any("lm_head." in part or part.startswith("generator.") for part in self.missing):
            raise UserError(
                f"{self.path} has no masked-LM head, so that its predictions would be random; give a model with one "
                "(BertForMaskedLM, RobertaForMaskedLM, ElectraForMaskedLM or a checkpoint of pre-training)"
            )

    def symbols(self, sequence: Iterable[int]) -> list[str]:
        """The symbols of ids."""
        return [self.dictionary[int(token)] for token in sequence]

    def labels(self, sequence: Iterable[int]) -> list[str]:
        """The symbols of ids as people read them: the tokens that GPT-2's ids stand for, not their numbers."""
        symbols = self.symbols(sequence)
        if not isinstance(self.encoder, Gpt2Encoder):
            return symbols
        return [self.encoder.token(symbol) for symbol in symbols]


def named_paths(arguments: Sequence[str]) -> dict[str, Path]:
    """Names and paths of ``--model`` arguments, each ``PATH`` or ``NAME=PATH``.

    Without a name a folder gives its own, a file that of its folder, and a file whose folder gives nothing new its
    own too.

    Raises:
        UserError: two models have one name, or one is not there
    """
    named: dict[str, Path] = {}
    for argument in arguments:
        name, equals, file = argument.partition("=")
        given = bool(equals) and not Path(argument).exists()
        path = Path(file if given else argument)
        if not path.exists():
            raise UserError(f"--model {path} does not exist; give a checkpoint or a Hugging Face folder")
        if not given:
            whole = path.resolve()
            name = whole.name if whole.is_dir() else whole.parent.name
            if name in named and not whole.is_dir():
                name = f"{name}/{whole.stem}"
        if not name or name in named:
            raise UserError(f"--model {argument}: name the models differently, with NAME={path}")
        named[name] = path
    return named


@dataclass(frozen=True)
class ModelSource:
    """Where a model and what belongs to it are; the fields are those of :func:`open_model`."""

    name: str
    path: Path
    tokenizer: str | None = None
    dictionary: str | None = None

    def open(self, device: torch.device | str | None = None, with_tokenizer: bool = True) -> AnalysedModel:
        """Read the model; see :func:`open_model`."""
        return open_model(self.name, self.path, self.tokenizer, self.dictionary, device, with_tokenizer)


def model_sources(
    models: Sequence[str], tokenizers: Sequence[str] = (), dictionaries: Sequence[str] = ()
) -> list[ModelSource]:
    """What ``--model``, ``--tokenizer`` and ``--dict`` name.

    Args:
        models: ``PATH`` or ``NAME=PATH``, see :func:`named_paths`.
        tokenizers: ``NAME=TOKENIZER`` of one model, or ``TOKENIZER`` of all that are not named.
        dictionaries: ``NAME=FILE`` of one checkpoint, or ``FILE`` of all that are not named.

    Raises:
        UserError: something is named twice, or named for a model that is not there
    """
    paths = named_paths(models)
    tokenizer_of = _by_model("--tokenizer", tokenizers, paths)
    dictionary_of = _by_model("--dict", dictionaries, paths)
    return [
        ModelSource(
            name,
            path,
            tokenizer_of.get(name, tokenizer_of.get("")),
            # Hugging Face folders have their own vocabulary
            dictionary_of.get(
                name, dictionary_of.get("") if path.is_file() or checkpoints_of_run(path) else None
            ),
        )
        for name, path in paths.items()
    ]


def with_runs_expanded(sources: Iterable[ModelSource]) -> list[tuple[str, ModelSource]]:
    """The models with their series: each folder of a run gives its checkpoints, ``NAME@UPDATES``, in their order.

    Checkpoints of one folder that are named one by one make up a series, too. Its name is the folder's, unless another
    series has that name: then it is that of its first model.

    Returns:
        pairs of the name of a series and a model

    Raises:
        UserError: a folder holds neither a Hugging Face model nor checkpoints whose names tell their updates
    """
    found = []
    series: dict[Path, str] = {}
    for source in sources:
        if not source.path.is_dir():
            is_of_run = source.path.name.startswith("checkpoint")
            place = source.path.resolve().parent if is_of_run else source.path.resolve()
            found.append((series.setdefault(place, source.name), source))
        elif (source.path / "config.json").is_file():
            found.append((source.name, source))
        else:
            checkpoints = checkpoints_of_run(source.path)
            if not checkpoints:
                raise UserError(
                    f"--model {source.path} holds neither a Hugging Face model (config.json) nor checkpoints of a run "
                    "(checkpoint_at_UPDATES.pt, checkpoint_EPOCH_UPDATES.pt); name the checkpoints themselves"
                )
            found += [
                (source.name, replace(source, name=f"{source.name}@{updates}", path=path))
                for updates, path in checkpoints.items()
            ]
    names = [source.name for _, source in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two models are called {name}: name the runs differently, with NAME=FOLDER")
    members = Counter(name for name, _ in found)
    for place, name in series.items():
        if members[name] > 1 and place.name not in members:
            members[place.name] = members.pop(name)
            found = [(place.name if old == name else old, source) for old, source in found]
    return found


def _by_model(option: str, arguments: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """Values by the names of models; the value of all models has the name ``""``."""
    values: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or Path(argument).exists():
            name, value = "", argument
        elif name not in names:
            raise UserError(f"{option} {argument}: no model is called {name}; there are {', '.join(names)}")
        if name in values:
            raise UserError(
                f"{option} is given twice for {name or 'all models'}; write {option} NAME=... for each"
            )
        values[name] = value
    return values


def open_model(
    name: str,
    path: Path,
    tokenizer: str | None = None,
    dictionary: str | Path | None = None,
    device: torch.device | str | None = None,
    with_tokenizer: bool = True,
) -> AnalysedModel:
    """Read a model with its tokenizer.

    Args:
        name: for tables and plots.
        path: a fairseq checkpoint, or a Hugging Face folder.
        tokenizer: what ``fairseq-tn encode --tokenizer`` takes, or a RoBERTa folder; default: the Hugging Face
            folder, or the ``hf/`` beside the checkpoint, its dict.txt or a checkpoint that it was trained from.
        dictionary: dict.txt or the data folder with it; default: beside the checkpoint, else that of its data, else
            that of the checkpoint that it was trained from.
        device: default: the GPU, if there is one.
        with_tokenizer: whether text will be encoded.

    Raises:
        UserError: something is missing or does not fit
    """
    import fairseq_tn

    fairseq_tn.register()
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    opened = (_open_folder if path.is_dir() else _open_checkpoint)(
        path, tokenizer, dictionary, with_tokenizer
    )
    model, symbols, encoder, tokenizer, updates, missing = opened
    limit = model.max_positions()
    return AnalysedModel(
        name=name,
        path=path,
        model=model.float().to(place).eval().requires_grad_(False),
        dictionary=symbols,
        encoder=encoder,
        tokenizer=tokenizer,
        max_tokens=limit if isinstance(limit, int) else min(limit),
        updates=updates,
        missing=missing,
    )


# model, dictionary, encoder, where it is from, updates, what is missing
_Opened = tuple[Any, Any, Encoder | None, str | None, int | None, tuple[str, ...]]


def _open_folder(
    folder: Path, tokenizer: str | None, dictionary: str | Path | None, with_tokenizer: bool
) -> _Opened:
    from fairseq_tn.convert.from_hf import load_hugging_face, new_dictionary

    if dictionary is not None:
        raise UserError(f"--dict belongs to fairseq checkpoints; {folder} has its own vocabulary")
    loaded = load_hugging_face(folder)
    tokenizer = (tokenizer or str(folder)) if with_tokenizer else None
    encoder = _load_tokenizer(tokenizer) if tokenizer else None
    return loaded.model, new_dictionary(loaded.vocabulary), encoder, tokenizer, None, tuple(loaded.missing)


def _open_checkpoint(
    path: Path, tokenizer: str | None, dictionary: str | Path | None, with_tokenizer: bool
) -> _Opened:
    from fairseq_tn.convert.from_hf import DICTIONARY_FILE, ORIGINAL_FOLDER, task_dictionary
    from fairseq_tn.models.loading import build_from_checkpoint, read_checkpoint

    state = read_checkpoint(path, "--model")
    if dictionary is not None:
        file = Path(dictionary)
        file = file / DICTIONARY_FILE if file.is_dir() else file
        if not file.is_file():
            raise UserError(f"--dict {file} does not exist; give the dict.txt that {path} was trained with")
    else:
        found = next((f for f in _folders(path, state) if (f / DICTIONARY_FILE).is_file()), None)
        if found is None:
            raise UserError(
                f"no {DICTIONARY_FILE} beside {path}, in its data folder or where its training started; give it with "
                "--dict"
            )
        file = found / DICTIONARY_FILE
    symbols = task_dictionary(file)
    encoder = None
    if with_tokenizer:
        if tokenizer is None:
            # GPT-2's files stand beside dict.txt, other tokenizers in hf/
            place = next(
                (
                    place
                    for folder in itertools.chain([file.parent], _folders(path, state))
                    for place, mark in ((folder, folder / ENCODER), (folder / ORIGINAL_FOLDER,) * 2)
                    if mark.exists()
                ),
                None,
            )
            if place is None:
                raise UserError(
                    f"no folder {ORIGINAL_FOLDER}/ with a tokenizer beside {path}, {file} or where its training "
                    "started; give what its text was encoded with as --tokenizer"
                )
            tokenizer = str(place)
        encoder = _load_tokenizer(tokenizer, file)
    history = state.get("optimizer_history") or [{}]
    model = build_from_checkpoint(state, symbols, path, "--model")
    return model, symbols, encoder, tokenizer if with_tokenizer else None, history[-1].get("num_updates"), ()


def _folders(path: Path, state: dict[str, Any]) -> Iterator[Path]:
    """Where the vocabulary of a checkpoint may be: beside it, its data, and the same of what it was trained from."""
    from fairseq_tn.models.loading import read_checkpoint

    seen: set[Path] = set()
    while True:
        seen.add(path.resolve())
        yield path.parent
        if data := str((state["cfg"].get("task") or {}).get("data") or "").split(":")[0]:
            yield Path(data)
        start = (state["cfg"].get("checkpoint") or {}).get("finetune_from_model")
        if not start or not Path(start).is_file() or Path(start).resolve() in seen:
            return
        path = Path(start)
        state = read_checkpoint(path, "--finetune-from-model")


def _load_tokenizer(tokenizer: str, dictionary: Path | None = None) -> Encoder:
    path = Path(tokenizer)
    if not path.exists():
        # words and pieces are looked up in the model's dictionary
        return load_encoder(
            tokenizer, EncoderOptions(dictionary=None if dictionary is None else str(dictionary))
        )
    if not (path.is_dir() and _is_byte_level(path)):
        return load_encoder(tokenizer)
    from fairseq_tn.convert.roberta_vocabulary import write_encoder_files

    # RoBERTa's own files, as GPT-2's
    with tempfile.TemporaryDirectory() as temporary:
        write_encoder_files(path, Path(temporary))
        return load_encoder(temporary)


def _is_byte_level(folder: Path) -> bool:
    """Whether a Hugging Face folder holds the byte-level BPE of RoBERTa."""
    if (folder / ENCODER).is_file():
        return False
    if (folder / "tokenizer.json").is_file():
        model = read_json(folder / "tokenizer.json").get("model")
        return isinstance(model, dict) and model.get("type") == "BPE"
    return (folder / "vocab.json").is_file()


def read_sentences(path: str | Path, limit: int | None = None, split: bool = False) -> Iterator[str]:
    """The sentences (lines with text) of a UTF-8 file, plain, gzip or bzip2, up to ``limit``.

    Args:
        path: one sentence a line; blank lines part documents and are skipped.
        limit: most sentences.
        split: lines are paragraphs, which are split by rule.

    Raises:
        UserError: the file is missing, empty, damaged or not UTF-8
    """
    reader = TextReader(split_sentences=split)
    number = 0
    with InputStream(path) as stream:
        for line, data in stream.blocks():
            try:
                text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
            except UnicodeDecodeError as error:
                bad = line + data.count(b"\n", 0, error.start)
                raise UserError(
                    f"{path}, line {bad}: not UTF-8; convert the file, for example with iconv"
                ) from None
            for sentence in reader.lines(text, Path(path), line):
                if not sentence:
                    continue
                if number == limit:
                    return
                number += 1
                yield sentence
    if not number:
        raise UserError(f"{path} holds no text; give a file with one sentence a line")
