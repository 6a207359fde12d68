"""Text to SentencePiece symbols, by the sentencepiece library."""

import itertools
from pathlib import Path

from fairseq_tn.data.dictionary import UNKNOWN, can_be_symbol, dict_text, find_dictionary
from fairseq_tn.data.offsets import AlignedSymbols, align
from fairseq_tn.errors import UserError


class SentencePieceEncoder:
    """Encodes lines of text as the pieces of a SentencePiece model (unigram or BPE).

    Text is only ever text: control symbols of the model are spelled in pieces, and a piece that bears the name
    of one of fairseq's special symbols is written ``<unk>``.
    """

    def __init__(self, model: str | Path, dictionary: str | Path | None = None):
        """Load a model.

        Args:
            model: the ``.model`` file
            dictionary: fairseq's dict.txt of that model; by default the one in the model's folder; without any,
                the vocabulary is the model's pieces in their order, as XLM-R has it

        Raises:
            UserError: a file is missing or broken, or the dictionary is of another vocabulary
        """
        import sentencepiece

        self._model = Path(model)
        try:
            content = self._model.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {model}: {error.strerror}; give a SentencePiece model") from None
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(content)
        except RuntimeError:
            raise UserError(f"{model} is no SentencePiece model, or damaged; get it again") from None
        processor = self._processor
        number = processor.GetPieceSize()
        if not number:
            raise UserError(f"{model} is a SentencePiece model without pieces; get it again")
        pieces = [processor.IdToPiece(index) for index in range(number)]
        written = [
            piece
            for index, piece in enumerate(pieces)
            if can_be_symbol(piece) and not (processor.IsControl(index) or processor.IsUnknown(index))
        ]
        self._dictionary = find_dictionary(dictionary, model)
        if self._dictionary is None:
            self._dict_text = dict_text((piece, 1) for piece in written)
            known = set(written)
        else:
            self._dictionary.check(set(written).__contains__, f"the SentencePiece model {model}")
            self._dict_text = self._dictionary.text
            known = set(written).intersection(self._dictionary.symbols)
        self._known = len(known)
        self._symbols = [piece if piece in known else UNKNOWN for piece in pieces]

    def dict_text(self) -> str:
        """The content of ``dict.txt`` for ``fairseq-preprocess --srcdict``."""
        return self._dict_text

    def describe(self) -> str:
        """One line for people: what the text is encoded with."""
        beside = f", {self._known:,} of them in {self._dictionary.path}" if self._dictionary else ""
        return f"SentencePiece, {len(self._symbols):,} pieces, from {self._model}{beside}"

    def encode(self, lines: list[str]) -> list[list[str]]:
        """Return the symbols of each line."""
        symbols = self._symbols
        # one thread: work is shared out by processes here
        encoded = self._processor.Encode([line.strip() for line in lines], out_type=int, num_threads=1)
        return [[symbols[index] for index in line] for line in encoded]

    def encode_with_offsets(self, lines: list[str]) -> list[AlignedSymbols]:
        """Return the symbols of each line and the characters that each stands for.

        Of the pieces of one character (bytes, or letters of a ligature) the last bears the offsets.
        """
        found = []
        for line in lines:
            pieces = self._encode_with_surfaces(line.strip())
            surfaces = [surface for _, surface in pieces]
            # they follow each other without a gap; what the model drops at the beginning has none
            begin = max(0, line.find("".join(surfaces)))
            edges = [begin + length for length in itertools.accumulate(map(len, surfaces), initial=0)]
            symbols = [self._symbols[index] for index, _ in pieces]
            found.append(align(line, symbols, edges[:-1], edges[1:]))
        return found

    def _encode_with_surfaces(self, line: str) -> list[tuple[int, str]]:
        try:
            encoded = self._processor.Encode(line, return_type="proto")
        except TypeError:  # before 0.2.2
            encoded = self._processor.Encode(line, out_type="immutable_proto")  # type: ignore[arg-type]
        return [(piece.id, piece.surface) for piece in encoded.pieces]
