"""Wikipedia dumps to plain sentences."""

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairseq_tn.data.parallel import ordered_map
from fairseq_tn.data.sentences import split_sentences
from fairseq_tn.data.streams import InputStream
from fairseq_tn.data.wikitext import FORMULA, Namespaces, is_disambiguation, plain_paragraphs
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_path

MIN_CHARACTERS = 300

_BATCH_CHARACTERS = 500_000
_LETTER = re.compile(r"[^\W\d_]")
_ENDS = re.compile(r"[.!?…。！？｡؟۔।॥][\"'”’»›)\]}」』》）】 ]*$")
# what is shorter and has no stop is a title, a caption or an item of a list
_SCRAP_CHARACTERS = 40


@dataclasses.dataclass
class WikipediaCounts:
    """Pages of the dump and what became of them; sentences and characters that were written."""

    pages: int = 0
    articles: int = 0
    redirects: int = 0
    other_namespaces: int = 0
    disambiguations: int = 0
    stubs: int = 0
    sentences: int = 0
    characters: int = 0


def article_sentences(text: str, namespaces: Namespaces | None = None) -> list[str]:
    """Return the plain sentences of a page's wikitext; scraps and what a formula leaves are left out."""
    sentences = []
    for paragraph in plain_paragraphs(text, namespaces):
        for sentence in split_sentences(paragraph):
            complete = len(sentence) >= _SCRAP_CHARACTERS or _ENDS.search(sentence)
            if complete and FORMULA not in sentence and _LETTER.search(sentence):
                sentences.append(sentence)
    return sentences


def extract_sentences(
    dump: str | Path,
    output: str | Path,
    workers: int = 1,
    min_characters: int = MIN_CHARACTERS,
    progress: Callable[[int], Any] = lambda position: None,
) -> WikipediaCounts:
    """Write the articles of a dump as plain text: one sentence a line, a blank line between articles.

    ``dump`` is ``pages-articles`` XML, plain, gzip or bzip2. Pages outside the main namespace, redirects,
    disambiguation pages and articles with fewer than ``min_characters`` characters of text are left out.
    Memory does not grow with the dump. ``progress`` is told the position in the file.

    Raises UserError when the file is missing, empty, truncated, no dump, or has no article.
    """
    output = Path(output)
    if output.is_dir():
        raise UserError(f"{output} is a folder; --output takes the name of a file")
    if output.exists() and Path(dump).exists() and output.samefile(dump):
        raise UserError(f"{output} is the dump itself; choose another --output")
    counts = WikipediaCounts()
    with InputStream(dump) as stream, atomic_path(output) as temporary:
        with open(temporary, "wb") as file:
            batches = _batches(read_pages(stream, counts), stream, min_characters)
            for text, position, batch_counts in ordered_map(_extract_batch, batches, workers):
                if text and counts.articles:
                    file.write(b"\n")
                file.write(text)
                for name, number in batch_counts.items():
                    setattr(counts, name, getattr(counts, name) + number)
                progress(position)
        if not counts.articles:
            raise UserError(
                f"{dump} holds no article with {min_characters} characters of text (--min-characters) "
                f"among its {counts.pages:,} pages"
            )
    return counts


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of the main namespace."""

    title: str
    text: str
    namespaces: Namespaces


def read_pages(stream: InputStream, counts: WikipediaCounts) -> Iterator[Page]:
    """Yield the pages of the main namespace that are no redirects; count all of them in ``counts``."""
    root: ElementTree.Element | None = None
    prefix = ""
    namespaces = Namespaces()
    try:
        for event, element in ElementTree.iterparse(stream, ("start", "end")):
            if root is None:
                root = element
                prefix = root.tag[: root.tag.rfind("}") + 1]
                if root.tag != prefix + "mediawiki":
                    raise _no_dump(stream.path)
            if event == "start":
                continue
            if element.tag == prefix + "siteinfo":
                namespaces = _namespaces(element, prefix)
            elif element.tag == prefix + "page":
                page = _page(element, prefix, namespaces, counts)
                root.clear()
                if page is not None:
                    yield page
    except ElementTree.ParseError as error:
        if root is None:
            raise _no_dump(stream.path) from None
        line, column = error.position
        raise UserError(
            f"{stream.path} is truncated or damaged: its XML breaks off at line {line}, column {column} ({error.msg}); "
            "get the dump again"
        ) from None
    if not counts.pages:
        raise UserError(f"{stream.path} holds no pages; give a pages-articles dump")


def _no_dump(path: Path) -> UserError:
    return UserError(
        f"{path} is not a Wikipedia dump (MediaWiki XML, pages-articles); plain text goes to fairseq-tn encode at once"
    )


def _namespaces(siteinfo: ElementTree.Element, prefix: str) -> Namespaces:
    names: dict[str, list[str]] = {}
    for element in siteinfo.iter(prefix + "namespace"):
        names.setdefault(element.get("key", ""), []).append(element.text or "")
    return Namespaces.with_names(names.get("6", []) + names.get("-2", []), names.get("14", []))


def _page(
    element: ElementTree.Element, prefix: str, namespaces: Namespaces, counts: WikipediaCounts
) -> Page | None:
    counts.pages += 1
    if (element.findtext(prefix + "ns") or "0").strip() != "0":
        counts.other_namespaces += 1
        return None
    if element.find(prefix + "redirect") is not None:
        counts.redirects += 1
        return None
    texts = element.findall(f"{prefix}revision/{prefix}text")
    text = (texts[-1].text or "") if texts else ""
    return Page(element.findtext(prefix + "title") or "", text, namespaces)


def _batches(
    pages: Iterator[Page], stream: InputStream, min_characters: int
) -> Iterator[tuple[list[Page], int, int]]:
    batch: list[Page] = []
    characters = 0
    for page in pages:
        batch.append(page)
        characters += len(page.text)
        if characters >= _BATCH_CHARACTERS:
            yield batch, stream.position(), min_characters
            batch, characters = [], 0
    if batch:
        yield batch, stream.position(), min_characters


def _extract_batch(_: None, item: tuple[list[Page], int, int]) -> tuple[bytes, int, dict[str, int]]:
    pages, position, min_characters = item
    counts = dict.fromkeys(("articles", "disambiguations", "stubs", "sentences", "characters"), 0)
    documents = []
    for page in pages:
        if is_disambiguation(page.title, page.text):
            counts["disambiguations"] += 1
            continue
        sentences = article_sentences(page.text, page.namespaces)
        characters = sum(map(len, sentences))
        if not sentences or characters < min_characters:
            counts["stubs"] += 1
            continue
        counts["articles"] += 1
        counts["sentences"] += len(sentences)
        counts["characters"] += characters
        documents.append("".join(sentence + "\n" for sentence in sentences))
    return "\n".join(documents).encode(), position, counts
