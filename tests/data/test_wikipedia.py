"""Dumps: which pages are kept, what is written, and files that are no dumps."""

import bz2
import gzip
import re
from xml.sax.saxutils import escape

import pytest

from fairseq_tn.cli import main
from fairseq_tn.data.wikipedia import article_sentences, extract_sentences
from fairseq_tn.errors import UserError

HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
<siteinfo><sitename>Test</sitename><namespaces><namespace key="0" case="first-letter" />
<namespace key="6" case="first-letter">Kuva</namespace></namespaces></siteinfo>
"""


def page(title, text, namespace=0, extra=""):
    return (
        f"<page><title>{escape(title)}</title><ns>{namespace}</ns><id>1</id>{extra}<revision><id>2</id>"
        f"<model>wikitext</model><text xml:space='preserve'>{escape(text)}</text></revision></page>\n"
    )


def article(name, sentences=20):
    return "".join(f"[[{name}]] has a sentence with the number {number}. " for number in range(sentences))


def dump(*pages):
    return (HEADER + "".join(pages) + "</mediawiki>\n").encode()


SMALL = dump(
    page(
        "First",
        "{{Infobox}}\n" + article("First") + "\n== See also ==\n* [[x]]\n[[Kuva:a.b|thumb|Caption here.]]",
    ),
    page("Moved", "#REDIRECT [[First]]", extra="<redirect title='First' />"),
    page("Talk:First", article("Talk"), namespace=1),
    page("Stub", "It is short."),
    page("Many", article("Many") + "{{disambig}}"),
    page("Last", article("Last", 10)),
)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_kept(tmp_path, compress, workers):
    (tmp_path / "dump").write_bytes(compress(SMALL[:900]) + compress(SMALL[900:]))
    positions = []
    counts = extract_sentences(tmp_path / "dump", tmp_path / "out", workers, progress=positions.append)
    documents = (tmp_path / "out").read_text(encoding="utf-8").split("\n\n")
    assert [document.strip().split("\n") for document in documents] == [
        [f"{name} has a sentence with the number {number}." for number in range(length)]
        for name, length in (("First", 20), ("Last", 10))
    ]
    assert (counts.pages, counts.articles, counts.redirects, counts.other_namespaces) == (6, 2, 1, 1)
    assert (counts.disambiguations, counts.stubs, counts.sentences) == (1, 1, 30)
    assert positions[-1] == (tmp_path / "dump").stat().st_size


def test_processes_keep_the_order(tmp_path):
    (tmp_path / "dump").write_bytes(
        dump(*(page(f"N{number}", article(f"N{number}", 150)) for number in range(100)))
    )
    extract_sentences(tmp_path / "dump", tmp_path / "one", 1)
    extract_sentences(tmp_path / "dump", tmp_path / "two", 2)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    names = re.findall(r"(?:\A|\n\n)(N\d+) ", (tmp_path / "one").read_text())
    assert names == [f"N{number}" for number in range(100)]


def test_minimal_length(tmp_path):
    (tmp_path / "dump").write_bytes(SMALL)
    assert extract_sentences(tmp_path / "dump", tmp_path / "out", min_characters=1).articles == 3
    assert extract_sentences(tmp_path / "dump", tmp_path / "out", min_characters=500).articles == 1
    with pytest.raises(UserError, match="no article with 5000 characters"):
        extract_sentences(tmp_path / "dump", tmp_path / "none", min_characters=5000)
    assert not (tmp_path / "none").exists()


def test_scraps_and_sentences_with_formulas_go():
    text = (
        "A title\n\nThe area is <math>x^2</math> here. The rest stays. 1.\n\n"
        + "A long line without a stop " * 3
    )
    assert article_sentences(text) == ["The rest stays.", ("A long line without a stop " * 3).strip()]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (bz2.compress(b""), "not a Wikipedia dump"),
        (b"Plain text.\nNothing else.\n", "not a Wikipedia dump"),
        (bz2.compress(b"Plain text.\n"), "not a Wikipedia dump"),
        (b"<html><body>x</body></html>", "not a Wikipedia dump"),
        (SMALL[:-20], "truncated or damaged"),
        (SMALL[: len(SMALL) // 2], "truncated or damaged"),
        (bz2.compress(SMALL)[:-30], "truncated"),
        (gzip.compress(SMALL, mtime=0)[:-30], "truncated"),
        (dump(), "no pages"),
    ],
)
def test_bad_dumps(tmp_path, content, message):
    (tmp_path / "dump").write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        extract_sentences(tmp_path / "dump", tmp_path / "out")
    assert str(tmp_path / "dump") in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_command(tmp_path, capsys):
    (tmp_path / "dump.xml").write_bytes(SMALL)
    arguments = [
        "wikipedia",
        str(tmp_path / "dump.xml"),
        "--output",
        str(tmp_path / "new" / "text"),
        "--workers",
        "1",
    ]
    assert main(arguments) == 0
    assert "2 articles, 30 sentences" in capsys.readouterr().out
    assert main([*arguments, "--min-characters", "9999"]) == 1
    assert main(["wikipedia", str(tmp_path / "missing"), "--output", str(tmp_path / "x")]) == 1
    assert "missing does not exist" in capsys.readouterr().err
