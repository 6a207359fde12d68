"""Text to subword-nmt's pieces (``@@`` continues a word), by its own package."""

import io
from collections.abc import Sequence
from pathlib import Path

from fairseq_tn.data.dictionary import UNKNOWN, FairseqDictionary, can_be_symbol, read_counts
from fairseq_tn.data.offsets import AlignedSymbols, align_words, find_words, piece_letters
from fairseq_tn.data.words import WordSplitter, check_case
from fairseq_tn.errors import UserError

CONTINUES = "@@"
_END_OF_WORD = "</w>"
_CACHED_WORDS = 1_000_000


class SubwordNmtEncoder:
    """Encodes lines of text as pieces of words by BPE codes; pieces that the dictionary lacks are ``<unk>``."""

    def __init__(
        self,
        splitter: WordSplitter,
        codes: str | Path,
        dictionary: FairseqDictionary | None = None,
        vocabulary: str | Path | None = None,
        threshold: int = 0,
    ):
        """Load the codes.

        Args:
            splitter: how a line becomes the words that the codes cut up
            codes: file of ``subword-nmt learn-bpe``
            dictionary: fairseq's dict.txt; by default the vocabulary's symbols
            vocabulary: file of ``subword-nmt get-vocab``; merges whose result it lacks are undone, as
                ``subword-nmt apply-bpe --vocabulary`` does
            threshold: symbols of the vocabulary that are rarer count as missing there

        Raises:
            UserError: the package or a vocabulary is missing, the codes are broken, or they do not write what
                the dictionary holds
        """
        try:
            from subword_nmt.apply_bpe import BPE
        except ImportError:
            raise UserError(
                "encoding with BPE codes needs the subword-nmt library: pip install 'fairseq_tn[subword-nmt]'"
            ) from None
        counts = None if vocabulary is None else read_counts(vocabulary)
        if dictionary is None:
            if vocabulary is None or counts is None:
                raise UserError(
                    f"{codes}: codes alone do not say which symbols the model knows; give its dictionary with "
                    "--dict, or the output of subword-nmt get-vocab with --vocabulary"
                )
            dictionary = FairseqDictionary.of_counts(vocabulary, counts)
        self._splitter, self._codes, self._dictionary = splitter, Path(codes), dictionary
        text, results = _read_codes(self._codes)
        dictionary.check(lambda symbol: _is_writable(symbol, results), f"the codes of {codes}")
        check_case(dictionary, splitter)
        kept = None if counts is None else {symbol for symbol, count in counts.items() if count >= threshold}
        self._bpe = BPE(io.StringIO(text), separator=CONTINUES, vocab=kept)
        self._merges = len(self._bpe.bpe_codes)
        self._known = frozenset(filter(can_be_symbol, self._dictionary.symbols))

    def dict_text(self) -> str:
        """The content of ``dict.txt`` for ``fairseq-preprocess --srcdict``."""
        return self._dictionary.text

    def describe(self) -> str:
        """One line for people: what the text is encoded with."""
        return (
            f"subword-nmt, {self._merges:,} merges from {self._codes}, {len(self._known):,} symbols from "
            f"{self._dictionary.path}, {self._splitter.describe()}"
        )

    def encode(self, lines: list[str]) -> list[list[str]]:
        """Return the symbols of each line."""
        known, segment = self._known, self._bpe.segment_tokens
        if len(self._bpe.cache) > _CACHED_WORDS:
            # the package remembers every word that it has met
            self._bpe.cache.clear()
        return [
            [piece if piece in known else UNKNOWN for piece in segment(self._splitter.words(line))]
            for line in lines
        ]

    def encode_with_offsets(self, lines: list[str]) -> list[AlignedSymbols]:
        """Return the symbols of each line and the characters that each stands for."""
        found = []
        for line in lines:
            symbols: list[str] = []
            places: list[Sequence[int]] = []
            cased_words = self._splitter.split(line)
            for cased, letters in zip(cased_words, find_words(line, cased_words), strict=True):
                word = cased.lower() if self._splitter.lower_case else cased
                pieces = self._bpe.segment_tokens([word])
                # all pieces but the last end with the mark of continuation
                lengths = [len(piece) - len(CONTINUES) for piece in pieces[:-1]]
                lengths.append(len(word) - sum(lengths))
                symbols += [piece if piece in self._known else UNKNOWN for piece in pieces]
                places += piece_letters(letters, cased, word, lengths)
            found.append(align_words(line, symbols, places))
        return found


def _read_codes(path: Path) -> tuple[str, frozenset[str]]:
    """The text of a file of codes, and what its merges result in, without the end-of-word marks."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the codes {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(
            f"the codes {path} are not UTF-8 text; give a file of subword-nmt learn-bpe"
        ) from None
    lines = text.rstrip("\n").split("\n")
    first = 1 if lines[0].startswith("#version:") else 0
    if first and lines[0].split()[-1] not in ("0.1", "0.2"):
        raise UserError(f"{path}, line 1: codes of an unknown version, {lines[0]}; learn them again")
    if len(lines) == first or not any(lines):
        raise UserError(f"the codes {path} are empty; give a file of subword-nmt learn-bpe")
    results = set()
    for number, line in enumerate(lines[first:], start=first + 1):
        pair = line.strip("\r\n ").split(" ")
        if len(pair) != 2:
            raise UserError(
                f"{path}, line {number}: expected two symbols to merge, as subword-nmt learn-bpe writes"
            )
        results.add("".join(pair).removesuffix(_END_OF_WORD))
    return text, frozenset(results)


def _is_writable(symbol: str, results: frozenset[str]) -> bool:
    piece = symbol.removesuffix(CONTINUES)
    return len(piece) <= 1 or piece in results
