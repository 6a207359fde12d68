import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.evaluation.document import (
    Change,
    Code,
    Document,
    Heading,
    Mark,
    Passage,
    Plot,
    Strong,
    Table,
    Terms,
    Text,
    image_files,
    to_html,
    to_markdown,
)

EVIL = '<script>alert("1")</script> & | `x` *y*'


def everything(text: str) -> Document:
    blocks = [
        Heading(text),
        Text(text),
        Code(text),
        Table([text, text], [[text, Strong(text)]]),
        Terms([(text, text)]),
        Change(text, text, text, text, text),
        Passage([text, Mark("bad", text, text, text), f" {text} ", Mark("good", text, "not shown", text)]),
    ]
    return Document(text, blocks)


class Page(HTMLParser):
    """The tags and the text of a page; complains about tags that do not match."""

    VOID = frozenset({"meta", "br"})

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def parse(page: str) -> Page:
    parser = Page()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_html_escapes_every_kind_of_block():
    page = parse(to_html(everything(EVIL)))
    assert "script" not in page.tags
    assert page.text.count(EVIL) == 21  # the title twice, and 19 in the blocks


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=30))
def test_any_text_survives_in_html(text):
    assert text in parse(to_html(Document("t", [Text(text)]))).text


def test_markdown_escapes_what_would_be_read_as_markup():
    text = to_markdown(everything(EVIL), "images")
    outside = re.sub(r"```+\n.*?\n```+", "", text, flags=re.DOTALL)
    assert "<script>" not in outside
    assert "\\|" in outside
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}


def test_code_that_holds_fences_stays_code():
    text = to_markdown(Document("t", [Code("a\n```\nb")]), "images")
    assert "````\na\n```\nb\n````" in text


def test_unknown_blocks_are_refused():
    with pytest.raises(TypeError):
        to_html(Document("t", ["text"]))


def test_plots_are_inside_the_page_and_beside_the_markdown():
    from fairseq_tn.analysis.plots import similarity_by_layer, training_curves

    names = ["one & <two>", "b"]
    curve = {1: 2.0, 2: 1.0}
    document = Document(
        "t",
        [
            Plot(
                "first", "A & B", training_curves(dict.fromkeys(names, (curve, curve)), "loss (bits)", names)
            ),
            Plot("second", "C", similarity_by_layer({n: [0.1, 0.2] for n in names}, names)),
        ],
    )
    html = to_html(document)
    page = parse(html)
    assert page.tags.count("svg") == 2
    for label in ("updates", "loss (bits)", "one & <two>", "layer (0: embeddings)", "A & B"):
        assert label in page.text
    assert all(link is None or link.startswith("#") for link in page.links)
    assert "currentColor" in html
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    references = set(re.findall(r'(?:url\(|href=")#([^")]*)', html))
    assert references <= set(ids)
    for svg in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL):
        ET.fromstring(svg)
    images = image_files(document)
    assert sorted(images) == ["first.png", "second.png"]
    assert all(content.startswith(b"\x89PNG") for content in images.values())
    markdown = to_markdown(document, "images")
    assert "](images/first.png)" in markdown


def test_lines_differ_without_colour():
    from fairseq_tn.analysis.plots import training_curves

    names = [f"run {number}" for number in range(8)]
    figure = training_curves({name: ({}, {1: 1.0}) for name in names}, "loss", names)
    lines = [line for line in figure.axes[0].lines if line.get_label() in names]
    assert (
        len(
            {
                (
                    line.get_linestyle(),
                    line._dash_pattern[1] and tuple(line._dash_pattern[1]),
                    line.get_marker(),
                )
                for line in lines
            }
        )
        == 8
    )


def test_marks_of_a_passage_are_told_apart_by_signs_too():
    passage = Passage(
        ["The", " ", Mark("near", "big", "large", "p"), "ger dog ", Mark("good", "ran", "ran", "q"), "."]
    )
    html = to_html(Document("t", [passage]))
    assert '<mark class="near" title="p">≈ <b>big</b> → large</mark>ger dog ' in html
    assert '<mark class="good" title="q">✓ <b>ran</b></mark>.' in html
    assert "> The ≈ **big** → largeger dog ✓ **ran**." in to_markdown(Document("t", [passage]), "images")
    assert to_markdown(Document("t", [Passage([" ", Mark("bad", "a", "b", ""), " ", "x"])]), "i").endswith(
        "> ✗ **a** → b x\n"
    )
