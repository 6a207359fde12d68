"""A report as a list of blocks, and its two forms: one web page, and Markdown with images beside it.

Blocks hold plain text; escaping is the business of the two writers here.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Union

from fairseq_tn.analysis.plots import as_png, as_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Strong:
    """A table cell to be marked."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of text; the first column is a row's name, the others are numbers unless ``numeric`` is False."""

    head: Sequence[str]
    rows: Sequence[Sequence[Union[str, Strong]]]
    numeric: bool = True


@dataclass(frozen=True)
class Terms:
    """Terms and their explanations."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Change:
    """A replaced token in its context, and a note below."""

    before: str
    old: str
    new: str
    after: str
    note: str


@dataclass(frozen=True)
class Mark:
    """A token of a passage to be marked: what stood there, what it became, and how that is judged.

    ``note`` is shown where there is room. ``kind`` gives colour and line; the sign before the text says the same.
    """

    kind: Literal["good", "near", "bad"]
    old: str
    new: str
    note: str

    @property
    def sign(self) -> str:
        return {"good": "✓", "near": "≈", "bad": "✗"}[self.kind]


@dataclass(frozen=True)
class Passage:
    """Running text with marks in it; spaces are those of the parts."""

    parts: Sequence[Union[str, Mark]]


@dataclass(frozen=True)
class Plot:
    """A figure; ``name`` is the stem of its file, ``caption`` says what it shows."""

    name: str
    caption: str
    figure: "Figure"


Block = Union[Heading, Text, Code, Table, Terms, Change, Passage, Plot]


@dataclass
class Document:
    title: str
    blocks: list[Block] = field(default_factory=list)

    def plots(self) -> list[Plot]:
        return [block for block in self.blocks if isinstance(block, Plot)]


_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --dim: #5b616a; --paper: #ffffff; --line: #d9dce1;
  --soft: #f3f4f6; --mark: #e3f1e9; --near: #fdf0cf; --bad: #fbe3e0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e7ea; --dim: #a3a9b3; --paper: #16181c; --line: #363b43;
  --soft: #20242a; --mark: #1d3a2c; --near: #4a3c12; --bad: #4b2623; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1rem 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.4rem 0 .4rem; }
p { max-width: 46rem; margin: .5rem 0; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .35rem .7rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { vertical-align: bottom; font-weight: 600; color: var(--dim); }
tbody th { font-weight: 600; position: sticky; left: 0; background: var(--paper); }
table.numbers td, table.numbers thead th + th { text-align: right; white-space: nowrap; }
table.numbers thead th + th { white-space: normal; min-width: 5.2rem; }
table:not(.numbers) td { min-width: 8rem; max-width: 26rem; overflow-wrap: anywhere; }
td.best { background: var(--mark); font-weight: 700; }
pre { background: var(--soft); padding: .7rem .9rem; border-radius: 6px; overflow-x: auto; font-size: .82rem;
  white-space: pre-wrap; }
dl { display: grid; grid-template-columns: minmax(9rem, max-content) 1fr; gap: .35rem 1rem; font-size: .92rem;
  max-width: 60rem; }
dt { font-weight: 600; } dd { margin: 0; color: var(--dim); }
@media (max-width: 36rem) { dl { display: block; } dd { margin: 0 0 .5rem; } }
.change { background: var(--soft); border-radius: 6px; padding: .55rem .8rem; margin: .5rem 0; max-width: 60rem; }
.change ins { text-decoration: none; font-weight: 700; background: var(--mark); padding: 0 .2em; border-radius: 3px; }
.change b { text-decoration: underline; text-underline-offset: .15em; }
.change small { display: block; color: var(--dim); }
.passage { background: var(--soft); border-radius: 6px; padding: .55rem .8rem; max-width: 60rem; line-height: 1.9; }
.passage mark { display: inline-block; max-width: 100%; color: inherit; line-height: 1.5; padding: .1em .3em;
  border-radius: 3px; }
.passage .good { background: var(--mark); }
.passage .near { background: var(--near); border-bottom: 2px solid; }
.passage .bad { background: var(--bad); border-bottom: 2px dotted; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.2rem; }
figure { margin: .6rem 0; max-width: 36rem; } figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: .88rem; color: var(--dim); }
"""


def to_html(document: Document) -> str:
    """One self-contained page: no script, no request to any other file or host."""
    parts: list[str] = []
    row: list[str] = []
    for block in [*document.blocks, None]:
        if isinstance(block, Plot):
            row.append(_html_plot(block))
            continue
        if row:  # neighbouring plots share a row where there is room
            parts.append('<div class="plots">' + "\n".join(row) + "</div>")
            row = []
        if block is not None:
            parts.append(_html_block(block))
    title = html.escape(document.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _html_plot(plot: Plot) -> str:
    return f"<figure><figcaption>{html.escape(plot.caption)}</figcaption>{as_svg(plot.figure, plot.name)}</figure>"


def _html_block(block: Block) -> str:
    e = html.escape
    match block:
        case Heading():
            return f"<h{block.level}>{e(block.text)}</h{block.level}>"
        case Text():
            return f"<p>{e(block.text)}</p>"
        case Code():
            return f"<pre>{e(block.text)}</pre>"
        case Terms():
            return (
                "<dl>"
                + "".join(f"<dt>{e(term)}</dt><dd>{e(text)}</dd>" for term, text in block.items)
                + "</dl>"
            )
        case Table():
            head = "".join(f'<th scope="col">{e(cell)}</th>' for cell in block.head)
            body = "".join(f"<tr>{''.join(map(_html_cell, range(len(row)), row))}</tr>" for row in block.rows)
            kind = ' class="numbers"' if block.numeric else ""
            return f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        case Change():
            return (
                f'<div class="change">{e(block.before)} <b>{e(block.old)}</b> → <ins>{e(block.new)}</ins> '
                f"{e(block.after)}<small>{e(block.note)}</small></div>"
            )
        case Passage():
            return f'<p class="passage" dir="auto">{"".join(map(_html_part, block.parts))}</p>'
    raise TypeError(block)


def _html_part(part: str | Mark) -> str:
    if isinstance(part, str):
        return html.escape(part)
    old, new, note = (html.escape(text) for text in (part.old, part.new, part.note))
    change = f"<b>{old}</b>" if part.kind == "good" else f"<b>{old}</b> → {new}"
    return f'<mark class="{part.kind}" title="{note}">{part.sign} {change}</mark>'


def _html_cell(column: int, cell: str | Strong) -> str:
    if isinstance(cell, Strong):
        return f'<td class="best">{html.escape(cell.text)}</td>'
    if column == 0:
        return f'<th scope="row">{html.escape(cell)}</th>'
    return f"<td>{html.escape(cell)}</td>"


def to_markdown(document: Document, images: str) -> str:
    """Markdown; plot NAME is expected in ``images``/NAME.png."""
    parts = [f"# {_md(document.title)}"]
    for block in document.blocks:
        match block:
            case Heading():
                parts.append(f"{'#' * block.level} {_md(block.text)}")
            case Text():
                parts.append(_md(block.text))
            case Code():
                fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block.text)), default=0))
                parts.append(f"{fence}\n{block.text}\n{fence}")
            case Terms():
                parts.append("\n".join(f"- **{_md(term)}**: {_md(text)}" for term, text in block.items))
            case Table():
                lines = ["| " + " | ".join(map(_md, block.head)) + " |"]
                align = "---:" if block.numeric else "---"
                lines.append("|" + "|".join([" --- ", *([f" {align} "] * (len(block.head) - 1))]) + "|")
                for row in block.rows:
                    cells = (f"**{_md(c.text)}**" if isinstance(c, Strong) else _md(c) for c in row)
                    lines.append("| " + " | ".join(cells) + " |")
                parts.append("\n".join(lines))
            case Change():
                change = f"**{_md(block.old)}** → **{_md(block.new)}**"
                parts.append(f"> {_md(block.before)} {change} {_md(block.after)}\\\n> {_md(block.note)}")
            case Passage():
                parts.append("> " + "".join(map(_md_part, block.parts)).strip())
            case Plot():
                parts.append(f"{_md(block.caption)}\n\n![{_md(block.caption)}]({images}/{block.name}.png)")
    return "\n\n".join(parts) + "\n"


def _md_part(part: str | Mark) -> str:
    if isinstance(part, str):
        # the spaces at its ends part it from its neighbours
        before, after = (" " if part[place].isspace() else "" for place in (0, -1)) if part else ("", "")
        return before + _md(part) + after if part.strip() else before
    change = f"**{_md(part.old)}**" if part.kind == "good" else f"**{_md(part.old)}** → {_md(part.new)}"
    return f"{part.sign} {change}"


def image_files(document: Document) -> dict[str, bytes]:
    """File name -> PNG of every plot."""
    return {f"{plot.name}.png": as_png(plot.figure) for plot in document.plots()}


def _md(text: str) -> str:
    """Text that Markdown shows as it is, in a table cell too."""
    text = " ".join(text.split())
    text = re.sub(r"([\\`*\[\]|#~]|(?<!\w)_|_(?!\w))", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
