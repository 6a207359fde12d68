import bz2
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.cli import main
from fairseq_tn.data.text import TextReader
from fairseq_tn.errors import UserError


def read(text, **options):
    return TextReader(**options).lines(text, "in", 1)


def test_plain_text_is_as_it_is():
    assert read("one. Two.\n \t\u3000\r\nthree\n") == ["one. Two.", "", "three"]
    assert read("no end") == ["no end"]
    assert read("\n") == [""]


def test_paragraphs_are_split():
    assert read("One went. Two came.\n\nThree?\n", split_sentences=True) == [
        "One went.",
        "Two came.",
        "",
        "Three?",
    ]
    # no line is lost, or becomes a blank one, which would end the document
    assert read("\x0b\n", split_sentences=True) == ["\x0b"]


@given(
    st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=5), max_size=5)
)
def test_json_documents_keep_their_lines(documents):
    text = "".join(json.dumps({"body": "\n".join(lines), "n": 1}) + "\n" for lines in documents)
    expected = []
    for lines in documents:
        kept = [line for line in "\n".join(lines).split("\n") if read(line + "\n") != [""]]
        expected += [*kept, ""] if kept else []
    assert read(text, field="body") == expected


def test_halves_of_characters_are_replaced():
    assert read('{"t": "a\\ud83d b"}\n\n{"t": "\\ud83e\\udd17"}\n', field="t") == [
        "a\ufffd b",
        "",
        "\U0001f917",
        "",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("text", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"text": "x", "id": ' + "1" * 5000 + "}", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"title": "x", "body": "y"}', r"no field 'text' \(it has title, body\)"),
        ("{}", r"no field 'text' \(it has none\)"),
        ('{"text": null}', "the field 'text' is not a string but NoneType"),
        ('{"text": ["x"]}', "the field 'text' is not a string but list"),
    ],
)
@pytest.mark.parametrize("opener", [open, gzip.open, bz2.open])
def test_errors_name_file_and_line(tmp_path, monkeypatch, capsys, line, message, opener):
    monkeypatch.setattr("fairseq_tn.data.streams.BLOCK_BYTES", 200)
    path = tmp_path / "in.jsonl"
    with opener(path, "wt", encoding="utf-8") as file:
        file.write('{"text": "good"}\n' * 50 + "\n" + line + "\n")
    arguments = ["encode", str(path), "--tokenizer", "moses", "--output", str(tmp_path / "out" / "train")]
    assert main([*arguments, "--field", "text", "--workers", "1"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(UserError, match=f"in.jsonl, line 52: {message}"):
        raise UserError(error)
    assert not list((tmp_path / "out").iterdir())
