"""Wikitext: each construct, nested and broken ones among them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.data.wikitext import FORMULA, Namespaces, is_disambiguation, plain_paragraphs


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("'''Bold''' and ''italic'' and '''''both'''''.", "Bold and italic and both."),
        (
            "A [[cat]], two [[dog (animal)|dog]]s, [[Paris, Texas|]] and [[:Category:Pets]].",
            "A cat, two dogs, Paris, Texas and Category:Pets.",
        ),
        ("[[Moon (film)|]] and [[wikt:nice]].", "Moon and nice."),
        ("One.{{cite|a={{b|{{c}}}}|d}} Two.", "One. Two."),
        ("[[File:a.jpg|thumb|A [[cat|big cat]] and {{x}} [http://a.b c].]]Text.", "Text."),
        ("[[Bild:a.jpg|mini]][[Unheard-of:b.svg|x]]Text.[[Category:A]][[de:Katze]][[zh-min-nan:X]]", "Text."),
        ('A.<ref>Note [[x]].</ref> B.<ref name="a/b" /> C.<ref name=x>Y</ref>', "A. B. C."),
        ("A<!-- hidden\n\nstill --> b.", "A b."),
        ("A&nbsp;b &amp; c&#8211;d &lt;e&gt;.", "A b & c–d <e>."),
        ("See [https://x.y/z the site], [https://x.y/z] or https://x.y/?q=1.", "See the site, or."),
        ('A <span style="x">b</span><br/>c <nowiki>d</nowiki> <small>e</small>.', "A b c d e."),
        ("__NOTOC__ Text __FORCETOC__ with __init__.", "Text with __init__."),
        ("Foo ({{IPA|x}}; {{lang-fr|y}}) is.", "Foo is."),
        ("Foo ({{IPA|x}}; born 1900) is.", "Foo (born 1900) is."),
        ("Foo (born 1900, {{age}}) is ({{x}} or {{y}}), so.", "Foo (born 1900) is, so."),
        ("维基（{{x}}；{{y}}）是[[百科全书|百科]]。", "维基是百科。"),
        (
            "It is {{convert|5|km|mi}} {{nowrap|or so}}, {{As of|2011|June}}{{spaced ndash}}good.",
            "It is 5 km or so, As of June 2011 – good.",
        ),
        ("A <math>x^2 < y</math> b <chem>H2O</chem>.", f"A {FORMULA} b {FORMULA}."),
        ("-{zh-hans:软件;zh-hant:軟體}-和-{H|zh-cn:a;zh-tw:b}--{字}-。", "软件和字。"),
        ("A line\nwrapped.", "A line wrapped."),
        ("中文\n换行。", "中文换行。"),
        (": Indented quotation.", "Indented quotation."),
        ("A \u200bb\u00adc\u2028d\u0085e.", "A bc d e."),
    ],
)
def test_inline(wikitext, expected):
    assert plain_paragraphs(wikitext) == [expected]


@pytest.mark.parametrize(
    "block",
    [
        "== Heading ==",
        "===== [[Deep]] =====",
        "{| class=x\n| a || b\n|-\n{|\n| nested\n|}\n| c\n|}",
        ":{|\n| a\n|}",
        "{{Infobox\n| a = [[File:x.png|thumb|y]]\n| b = {{c\n|d}}\n}}",
        "{{wide|\n{|\n| a\n|}}}",
        "<table><tr><td>a<table><tr><td>b</td></tr></table></td></tr></table>",
        "* [[Item]]\n** item\n# item\n; term\n:* item",
        "<gallery>\nFile:a.jpg|Caption.\n</gallery>",
        "<ul><li>item</li></ul>",
        ":''For other uses, see [[Foo (disambiguation)]].''",
        "<source lang=c>\nint x;\n</source>",
        "----",
        "<references>\n<ref name=a>b</ref>\n</references>",
        "<references/>",
        "[[Category:X|sort]]",
        "{{DEFAULTSORT:X}}",
    ],
)
def test_blocks_go(block):
    assert plain_paragraphs(f"Before.\n\n{block}\n\nAfter.") == ["Before.", "After."]
    assert plain_paragraphs(f"Before.\n{block}\nAfter.")[0].startswith("Before.")


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("One {{open\nTwo.", ["One Two."]),
        ("One [[open.\n\nTwo.", ["One open.", "Two."]),
        ("One <ref>open\n\nTwo.", ["One", "Two."]),
        ("One }} ]] two.", ["One two."]),
        ("One.\n{|\n| never closed\n\nTwo.", ["One."]),
        ("{{a|[[b}} One.", ["One."]),
    ],
)
def test_broken_markup(wikitext, expected):
    assert [" ".join(paragraph.split()) for paragraph in plain_paragraphs(wikitext)] == expected


def test_names_of_the_wiki():
    names = Namespaces.with_names(["Tiedosto"], ["Luokka"])
    assert plain_paragraphs("A.[[Tiedosto:x|y]][[Luokka:B]]", names) == ["A."]
    assert plain_paragraphs("A [[Tiedosto:x|y]].") == ["A y."]


def test_disambiguation_pages():
    assert is_disambiguation("A", "'''A''' may be:\n* b\n{{disambiguation|geo}}")
    assert is_disambiguation("A", "{{Place name disambiguation}}")
    assert is_disambiguation("A", "{{消歧义}}")
    assert is_disambiguation("A", "__DISAMBIG__")
    assert is_disambiguation("A (disambiguation)", "")
    assert not is_disambiguation(
        "A", "see [[b]]{{disambiguation needed|date=May}} {{redirect|B|x (disambiguation)}}"
    )


@given(
    st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "[[",
                "]]",
                "{|",
                "|}",
                "|",
                "\n",
                "<ref>",
                "</ref>",
                "<!--",
                "-->",
                "a",
                "'",
                "(",
                ")",
                ";",
                " ",
                "=",
                ":",
                "<math>",
                "&amp;",
            ]
        ),
        max_size=40,
    )
)
def test_no_markup_survives_whatever_comes(pieces):
    for paragraph in plain_paragraphs("".join(pieces)):
        assert paragraph == " ".join(paragraph.split())
        assert paragraph
        for mark in ("{{", "[[", "''", "<ref", "<!--"):
            assert mark not in paragraph


def test_broken_markup_takes_linear_time():
    """Open brackets before as many closing ones of another kind; quadratic code would take minutes."""
    assert plain_paragraphs("[[" * 50_000 + "}}" * 50_000 + "{|" * 50_000 + "<ref>" * 10_000) == []
