"""Wikitext to plain paragraphs.

An own parser: the general ones build a tree of every page, are several times slower, and leave footnotes,
captions and cells of tables in the text. Nested constructs are resolved in one pass with a stack, so that
broken markup costs linear time too.
"""

import dataclasses
import html
import re
from collections.abc import Iterable


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# canonical names, and old or local aliases that a dump does not list
_FILE_NAMES = _names(
    "file image media bild datei imagen archivo imagem ficheiro arquivo immagine fichier afbeelding bestand plik "
    "grafika изображение файл 文件 檔案 档案 图像 圖像 图片 圖片 ファイル 画像 파일 그림 صورة ملف"
)
_CATEGORY_NAMES = _names(
    "category kategorie catégorie categoría categoria categorie kategoria категория 分类 分類 カテゴリ 분류 تصنيف"
)
_SISTER_PROJECTS = _names("w wikt wiktionary s wikisource q b n v c commons d m meta species voy")
_MEDIA_FILE = re.compile(
    r"\.(?:jpe?g|png|svg|gif|tiff?|webp|ogg|ogv|oga|webm|pdf|djvu|midi?|wav|mp3|flac|stl)$", re.I
)
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z-]+)?$")

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
# stands where a formula was; the sentence around it is not whole
FORMULA = "\ufffc"

# these go with what they enclose
_ELEMENT = re.compile(
    r"<(/?)(ref|references|math|chem|ce|gallery|timeline|table|score|hiero|imagemap|syntaxhighlight|source|pre|graph"
    r"|mapframe|maplink|templatestyles|inputbox|categorytree|includeonly|style|script|ul|ol|dl|h[1-6])"
    r"\b(?:[^<>\"]|\"[^\"<]*\")*?(/?)>",
    re.I,
)
_NESTING = {"table", "ul", "ol", "dl"}
_FORMULAS = {"math", "chem", "ce", "hiero", "score"}
_PARAGRAPH_TAG = re.compile(r"</?(?:p|div|blockquote|center|li|poem|section|tr|td|th)\b[^<>]*>", re.I)
_LINE_BREAK = re.compile(r"<br\b[^<>]*>", re.I)
_TAG = re.compile(r"</?[a-z][a-z0-9]*\b[^<>]*>", re.I)
# "|}}" ends a template, "|}}}" a table and a template
_BRACKETS = re.compile(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}(?!\}(?!\}))")
_OPENING = {"}}": "{{", "]]": "[[", "|}": "{|"}
_EXTERNAL = re.compile(r"\[(?:https?:|ftps?:|mailto:|news:|irc:|//)[^\s\]<>]*\s*([^\]\n]*)\]", re.I)
_URL = re.compile(r"(?:https?|ftp)://[^\s<>\[\]|{}]+(?<![.,;:!?)])", re.I)
_QUOTES = re.compile(r"'''''|''''|'''|''")
_MAGIC_WORD = re.compile(r"__(?:[A-ZÀ-Þ][A-ZÀ-Þ_]*|[^\x00-\x7f\s]+)__")
_VARIANT = re.compile(r"-\{([^{}]*)\}-")
_HEADING = re.compile(r"=.*=$")
_HATNOTE = re.compile(r"''.*''[.。]?$")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")

# parentheses whose content was markup: "( ; )", "(, born 1900)", "(Greek: ; )"
_HOLLOW = re.compile(r"[(（\[［][\s,;:，；：、)）\]］]|[\s,;:，；：、][)）\]］]")
_EMPTY_PAIR = re.compile(
    r"\s?(?:\(\s*(?:(?:or|and)\b|[\s,;:/–—-])*\)|\[\s*[,;:]*\s*\]|（[\s,;:，；：、]*）|［\s*］)"
)
_AFTER_OPENING = re.compile(r"([(（])(?:\s*[,;:，；：、])+\s*|(\()\s+")
_BEFORE_CLOSING = re.compile(r"(?:\s*[,;:，；：、])+\s*([)）])|\s+(\))")
_DOUBLED = re.compile(r"([,;，；、])(?:\s*[,;，；、])+")
_LOOSE_STOP = re.compile(r"(?: |[,;](?=\.))([,.](?=\s|$))")

_DISAMBIGUATION = re.compile(
    r"__DISAMBIG__|\{\{\s*(?:template:)?(?:"
    r"(?:[\w ,/-]+ )?(?:disambiguation(?: page| cleanup)?|disambig(?:-cleanup)?|disam|disamb|dab|dbig)"
    r"|(?:hn|geo|road|school|number|mountain|hospital|ship|math)dis(?:-cleanup)?"
    r"|begriffsklärung|homonymie|homonymes|desambigua(?:ción|ção)|desambig|disambigua|ujednoznacznienie|dp"
    r"|неоднозначность|многозначность|aimai|曖昧さ回避|消歧义页?|消歧義頁?|消歧页|동음이의(?: 문서)?|توضيح"
    r")\s*(?:\||\}\})",
    re.I,
)

# templates that stand for words of the sentence; the number is the argument that is shown
_TEXT_TEMPLATES = {
    **dict.fromkeys(
        (
            "nowrap",
            "nobr",
            "nobreak",
            "small",
            "big",
            "abbr",
            "sic",
            "angbr",
            "em",
            "strong",
            "tooltip",
            "math",
            "mvar",
            "var",
        ),
        1,
    ),
    **dict.fromkeys(("lang", "transl", "transliteration", "script", "color", "wikt-lang"), -1),
    **dict.fromkeys(("quote", "blockquote", "cquote", "quotation", "nihongo"), 1),
}
_SIGN_TEMPLATES = {
    **dict.fromkeys(("ndash", "spaced ndash", "snd", "spnd", "spaced en dash", "en dash"), " – "),
    **dict.fromkeys(("mdash", "em dash", "spaced mdash"), "—"),
    **dict.fromkeys(("'", "`"), "'"),
    **dict.fromkeys(("nbsp", "space", "thinsp", "spaces"), " "),
    "'s": "'s",
    "·": " · ",
    "!": "|",
    "=": "=",
}


def is_disambiguation(title: str, text: str) -> bool:
    """Whether a page only lists the meanings of its title."""
    return title.endswith(("(disambiguation)", "（消歧义）", "(消歧义)", "(Begriffsklärung)")) or bool(
        _DISAMBIGUATION.search(text)
    )


@dataclasses.dataclass(frozen=True)
class Namespaces:
    """Lower-cased names of the wiki's file and category namespaces."""

    files: frozenset[str] = _FILE_NAMES
    categories: frozenset[str] = _CATEGORY_NAMES

    @classmethod
    def with_names(cls, files: Iterable[str], categories: Iterable[str]) -> "Namespaces":
        """The known names and those that a dump's header lists."""
        default = cls()
        return cls(
            default.files | {name.lower() for name in files},
            default.categories | {name.lower() for name in categories},
        )


def plain_paragraphs(text: str, namespaces: Namespaces | None = None) -> list[str]:
    """Return the paragraphs of a page without markup, one string each.

    Gone are templates, tables, references, headings, lists, galleries, files, categories, links to other
    languages, comments, HTML and magic words; links keep their label; entities are decoded. ``FORMULA`` stands
    where a formula was.
    """
    text = _COMMENT.sub("", text)
    text = _drop_elements(text)
    text = _PARAGRAPH_TAG.sub("\n\n", text)
    text = _LINE_BREAK.sub(" ", text)
    text = _resolve_brackets(text, namespaces or Namespaces())
    text = _VARIANT.sub(_variant, text)
    text = _TAG.sub("", text)
    text = _EXTERNAL.sub(r"\1", text)
    if "://" in text:
        text = _URL.sub("", text)
    text = _MAGIC_WORD.sub("", text)
    paragraphs = []
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        if _is_prose(line):
            lines.append(_clean_line(line))
        elif lines:
            paragraph = _join(lines)
            lines = []
            if paragraph:
                paragraphs.append(paragraph)
    return paragraphs


def _is_prose(line: str) -> bool:
    stripped = line.strip()
    indented = stripped.startswith(":")
    content = stripped.lstrip(": ")
    if not content or content[0] in "*#;|!" or _HEADING.match(content) or content.startswith(("{|", "----")):
        return False
    return not (indented and _HATNOTE.match(content))


def _clean_line(line: str) -> str:
    line = line.strip().lstrip(":")
    if "''" in line:
        line = _QUOTES.sub(lambda match: "'" if len(match.group()) == 4 else "", line)
    line = html.unescape(line)
    if not line.isascii():
        line = _INVISIBLE.sub("", line)
    line = " ".join(line.split())
    if _HOLLOW.search(line):
        for _ in range(2):  # an emptied pair may have been the content of another
            line = _AFTER_OPENING.sub(r"\1\2", line)
            line = _BEFORE_CLOSING.sub(r"\1\2", line)
            line = _EMPTY_PAIR.sub("", line)
            line = _DOUBLED.sub(r"\1", line)
    line = _LOOSE_STOP.sub(r"\1", line)
    return " ".join(line.split())


def _join(lines: list[str]) -> str:
    """Join the lines of a paragraph; Chinese and Japanese put no blank between words."""
    joined = ""
    for line in lines:
        if joined and line and not (_is_cjk(joined[-1]) or _is_cjk(line[0])):
            joined += " "
        joined += line
    return joined


def _is_cjk(character: str) -> bool:
    return "\u3000" <= character <= "\u9fff" or "\uff00" <= character <= "\uffef" or character >= "\U00020000"


def _drop_elements(text: str) -> str:
    """Remove the elements that go with their content; an unclosed one ends with its line."""
    tags = list(_ELEMENT.finditer(text))
    if not tags:
        return text
    last_closing = {tag.group(2).lower(): tag.start() for tag in tags if tag.group(1)}
    kept: list[str] = []
    position = 0
    inside: str | None = None
    depth = 0
    for tag in tags:
        name = tag.group(2).lower()
        if inside is None:
            if tag.start() < position:
                continue
            kept.append(text[position : tag.start()])
            if name in _FORMULAS and not tag.group(1):
                kept.append(FORMULA)
            position = tag.end()
            if tag.group(1) or tag.group(3):
                continue
            if last_closing.get(name, -1) > tag.start():
                inside, depth = name, 1
            elif name != "references":
                line_end = text.find("\n", tag.end())
                position = len(text) if line_end < 0 else line_end
        elif name == inside:
            if tag.group(1):
                depth -= 1
                if depth == 0:
                    inside, position = None, tag.end()
            elif name in _NESTING and not tag.group(3):
                depth += 1
    if inside is None:
        kept.append(text[position:])
    return "".join(kept)


def _resolve_brackets(text: str, namespaces: Namespaces) -> str:
    """Replace ``{{templates}}``, ``{| tables |}`` and ``[[links]]``, innermost first, in one pass."""
    # each open bracket with the pieces of text seen since; the outermost level has no bracket
    stack: list[tuple[str, list[str]]] = [("", [])]
    is_open = dict.fromkeys(_OPENING.values(), 0)
    position = 0
    for match in _BRACKETS.finditer(text):
        mark = match.group()
        if "|" in mark and not _starts_line(text, match.start()):
            continue
        stack[-1][1].append(text[position : match.start()])
        position = match.end()
        opening = _OPENING.get(mark)
        if opening is None:
            stack.append((mark, []))
            is_open[mark] += 1
            continue
        if not is_open[opening]:
            continue
        depth = len(stack) - 1
        # a link does not reach out of a template or a table, nor a template out of a table
        while depth and stack[depth][0] != opening and (stack[depth][0] == "[[" or opening == "{|"):
            depth -= 1
        if stack[depth][0] != opening:
            continue
        while len(stack) - 1 > depth:
            inner, pieces = stack.pop()
            is_open[inner] -= 1
            stack[-1][1].extend(pieces)
        content = "".join(stack.pop()[1])
        is_open[opening] -= 1
        if opening == "[[":
            content = _link(content, namespaces)
        elif opening == "{{":
            content = _template(content)
        else:
            content = "\n"
        stack[-1][1].append(content)
    stack[-1][1].append(text[position:])
    while len(stack) > 1:
        mark, pieces = stack.pop()
        content = "".join(pieces)
        if mark == "{|":
            content = ""  # a table that is not closed reaches to the end of the page
        elif mark == "{{":
            content = content[content.find("\n") :] if "\n" in content else ""
        stack[-1][1].append(content)
    return "".join(stack[0][1])


def _starts_line(text: str, position: int) -> bool:
    # a look at a few characters is enough, and keeps a page of one line from costing quadratic time
    return not text[max(0, position - 40) : position].rpartition("\n")[2].strip(" \t:")


def _link(content: str, namespaces: Namespaces) -> str:
    target, separator, label = content.partition("|")
    target = target.strip()
    prefix, colon, rest = target.partition(":")
    if colon and prefix:
        name = prefix.strip().lower().replace("_", " ")
        if name in namespaces.files or name in namespaces.categories or _MEDIA_FILE.search(target):
            return ""
        if _LANGUAGE.match(prefix):
            return ""
        if name in _SISTER_PROJECTS:
            target = rest
    if separator:
        if label.strip():
            return label.rpartition("|")[2] if "|" in label else label
        # the pipe trick: without the namespace and what is in parentheses
        return re.sub(r"\s*[(（][^()（）]*[)）]$", "", rest if colon else target).strip()
    return target.removeprefix(":")


def _template(content: str) -> str:
    content = content.lstrip()
    name, *arguments = content.split("|")
    name = name.strip().lower().replace("_", " ")
    if name in _SIGN_TEMPLATES:
        return _SIGN_TEMPLATES[name]
    positional = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            positional.append(argument.strip())
        elif key.strip() in ("1", "2", "3", "text", "quote"):
            positional.append(value.strip())
    if not positional:
        return ""
    if name in ("convert", "cvt"):
        return " ".join(positional[:2])
    if name in ("circa", "c.", "ca."):
        return "c. " + positional[0]
    if name == "as of":
        month = positional[1] + " " if positional[1:] and positional[1].isalpha() else ""
        start = "as" if any(argument.strip().startswith("lc=") for argument in arguments) else "As"
        return f"{start} of {month}{positional[0]}"
    if name in ("chem", "chem2"):
        return "".join(positional)
    if name in ("frac", "sfrac"):
        return "/".join(positional)
    if name in _TEXT_TEMPLATES:
        return positional[0 if _TEXT_TEMPLATES[name] == 1 else -1]
    return ""


def _variant(match: re.Match[str]) -> str:
    """Chinese language variants: ``-{zh-cn:软件; zh-tw:軟體}-`` shows one, ``-{H|...}-`` none."""
    content = match.group(1)
    flags, separator, rules = content.partition("|")
    if separator:
        if set(flags.replace(" ", "")) & set("HTD-"):
            return ""
        content = rules
    first = content.split(";")[0]
    language, colon, shown = first.partition(":")
    return (shown if colon and re.match(r"\s*zh", language) else first).strip()
