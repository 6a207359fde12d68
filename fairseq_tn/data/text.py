"""From the lines of a file to lines of sentences: plain text, or JSON lines with a document each."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from fairseq_tn.data.sentences import split_sentences
from fairseq_tn.errors import UserError

# a line of nothing else ends a document; control characters and line separators are no such blanks
_BLANKS = (
    " \t\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
# halves of characters, which JSON can spell and UTF-8 cannot
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class TextReader:
    """How the lines of a file become sentences.

    field: every line is a JSON object, one document, whose text is in this field; line breaks in the text
        part sentences (or paragraphs), and blank lines in it do not end the document. None: plain text, a blank
        line between documents.
    split_sentences: lines hold paragraphs, which are split by rule.
    """

    field: str | None = None
    split_sentences: bool = False

    def lines(self, text: str, path: Path, first_line: int) -> list[str]:
        """Return sentences, ``""`` between documents.

        Args:
            text: some whole lines of the file
            path, first_line: where they are, for messages

        Raises:
            UserError: a line is no JSON object with the field (names file and line)
        """
        lines = text.split("\n")
        if text.endswith("\n") or not text:
            lines.pop()
        if self.field is not None:
            lines = [
                sentence
                for number, line in enumerate(lines, start=first_line)
                if line.strip()
                for sentence in self._document(line, f"{path}, line {number}")
            ]
        lines = ["" if not line.strip(_BLANKS) else line for line in lines]
        if self.split_sentences:
            # what the rule finds nothing in stays a line, so that it is not taken for a document's end
            lines = [sentence for line in lines for sentence in (split_sentences(line) or [line])]
        return lines

    def _document(self, line: str, place: str) -> list[str]:
        """The lines of a document and the blank line after it."""
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):  # beside bad JSON, an integer of thousands of digits
            raise UserError(f"{place}: not JSON; --field reads one JSON object a line") from None
        if not isinstance(content, dict):
            raise UserError(f"{place}: not a JSON object; --field reads one JSON object a line")
        if self.field not in content:
            raise UserError(
                f"{place}: no field {self.field!r} (it has {', '.join([*content][:10]) or 'none'}); name another with "
                "--field"
            )
        text = content[self.field]
        if not isinstance(text, str):
            raise UserError(
                f"{place}: the field {self.field!r} is not a string but {type(text).__name__}; name a field "
                "of text with --field"
            )
        text = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
        lines = [part for part in text.split("\n") if part.strip(_BLANKS)]
        return [*lines, ""] if lines else []
