"""Text to plain words, by sacremoses or at blanks, for vocabularies of whole words."""

from typing import Protocol

from fairseq_tn.data.dictionary import UNKNOWN, FairseqDictionary, can_be_symbol
from fairseq_tn.data.offsets import AlignedSymbols, align_words, find_words
from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vocabularies import detect_style

_CAPITAL_SHARE = 0.01
# sacremoses treats these beside the languages whose abbreviations it knows
_CJK = ("zh", "ja", "ko", "cjk")


class WordSplitter(Protocol):
    """Splits a line of text into words; it must pickle."""

    lower_case: bool

    def words(self, line: str) -> list[str]:
        """Return the words of a line."""

    def split(self, line: str) -> list[str]:
        """Return the words of a line as they stand there, whatever their case."""

    def describe(self) -> str:
        """A few words for people."""


class Blanks:
    """Words are what blanks part: text that is tokenised already."""

    lower_case = False

    def words(self, line: str) -> list[str]:
        """Return the words of a line."""
        return line.split()

    def split(self, line: str) -> list[str]:
        """Return the words of a line."""
        return line.split()

    def describe(self) -> str:
        """A few words for people."""
        return "words at blanks"


class Moses:
    """Words and punctuation marks as the Moses tokenizer parts them, in lower case unless ``keep_case``.

    ``&`` and the like stay as they are: the entities that Moses writes in their place serve its decoder only.
    """

    def __init__(self, language: str = "en", keep_case: bool = False):
        from sacremoses import MosesTokenizer
        from sacremoses.corpus import NonbreakingPrefixes

        known = {*NonbreakingPrefixes().available_langs.values(), *_CJK}
        if language not in known:
            raise UserError(f"--language {language} is unknown to Moses; it knows {', '.join(sorted(known))}")
        self._language = language
        self._tokenizer = MosesTokenizer(language)
        self.lower_case = not keep_case

    def words(self, line: str) -> list[str]:
        """Return the words of a line."""
        words = self.split(line)
        return [word.lower() for word in words] if self.lower_case else words

    def split(self, line: str) -> list[str]:
        """Return the words of a line as they stand there, whatever their case."""
        return self._tokenizer.tokenize(line, escape=False)

    def describe(self) -> str:
        """A few words for people."""
        return f"Moses words ({self._language}, {'lower-cased' if self.lower_case else 'cased'})"


def check_case(dictionary: FairseqDictionary, splitter: WordSplitter) -> None:
    """Raise UserError when a dictionary has capitals and the text is lower-cased."""
    capitals = [symbol for symbol in dictionary.symbols if symbol != symbol.lower()]
    if splitter.lower_case and len(capitals) > _CAPITAL_SHARE * len(dictionary.symbols):
        raise UserError(
            f"{dictionary.path} has capitals, such as in {capitals[0]}, and the text would be lower-cased: "
            "add --keep-case"
        )


class WordEncoder:
    """Encodes lines of text as whole words.

    With a dictionary, words that it lacks are written ``<unk>``. Without, the vocabulary is what the corpus
    turns out to hold: ``dict_text()`` is None. Text is only ever text: a word that bears the name of one of
    fairseq's special symbols is ``<unk>``.
    """

    def __init__(self, splitter: WordSplitter, dictionary: FairseqDictionary | None = None):
        """Combine a way to split and a vocabulary.

        Raises:
            UserError: the dictionary's symbols are no whole words, or are cased while the text is not
        """
        self._splitter = splitter
        self._dictionary = dictionary
        self._known: frozenset[str] | None = None
        if dictionary is not None:
            style = detect_style(dictionary.symbols)
            if style != "words":
                raise UserError(
                    f"{dictionary.path} is of another vocabulary than plain words (its style: {style}); give a "
                    "dictionary of words with --dict"
                )
            check_case(dictionary, splitter)
            self._known = frozenset(filter(can_be_symbol, dictionary.symbols))

    def dict_text(self) -> str | None:
        """The content of ``dict.txt``; None: to be built from the corpus."""
        return None if self._dictionary is None else self._dictionary.text

    def describe(self) -> str:
        """One line for people: what the text is encoded with."""
        if self._dictionary is None:
            return f"{self._splitter.describe()}, dictionary built from the text"
        return f"{self._splitter.describe()}, {len(self._dictionary.symbols):,} in {self._dictionary.path}"

    def encode(self, lines: list[str]) -> list[list[str]]:
        """Return the words of each line."""
        return [self._write(self._splitter.words(line)) for line in lines]

    def encode_with_offsets(self, lines: list[str]) -> list[AlignedSymbols]:
        """Return the words of each line and the characters that each stands for."""
        found = []
        for line in lines:
            cased = self._splitter.split(line)
            words = [word.lower() for word in cased] if self._splitter.lower_case else cased
            found.append(align_words(line, self._write(words), find_words(line, cased)))
        return found

    def _write(self, words: list[str]) -> list[str]:
        if self._known is None:
            return [word if can_be_symbol(word) else UNKNOWN for word in words]
        return [word if word in self._known else UNKNOWN for word in words]
