"""Reading tagged text in the forms in which people have it."""

import pytest

from fairseq_tn.data.tagged_text import TextFormat, detect_format, has_places, read_tagged, with_tags
from fairseq_tn.errors import UserError

CONLL, SEGMENTED = TextFormat("conll"), TextFormat("segmentation")


def write(folder, content, name="text"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def tags_of(text):
    return [text.names[number] for number in text.tags]


FORMS = {
    "two columns": "EU B-ORG\nsagt O\n\nBonn B-LOC\n",
    "four columns": "EU NNP I-NP B-ORG\nsagt VB O O\n\nBonn NN O B-LOC\n",
    "tabs": "EU\tB-ORG\nsagt\tO\n\nBonn\tB-LOC\n",
    "documents": "-DOCSTART- -X- O O\n\nEU a b B-ORG\nsagt a b O\n\n-DOCSTART- -X- O O\n\nBonn a b B-LOC\n",
    "short documents": "-DOCSTART- O\nEU a b B-ORG\nsagt a b O\n-DOCSTART-\nBonn a b B-LOC\n",
    "CRLF, BOM and no last line break": "\ufeffEU B-ORG\r\nsagt O\r\n\r\nBonn B-LOC",
    "blank lines": "\n\nEU B-ORG  \nsagt O\n \t\n\nBonn  B-LOC\n\n\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_conll_forms(form, tmp_path):
    path = write(tmp_path, FORMS[form])
    assert detect_format(path) == CONLL
    text = read_tagged(path, CONLL)
    assert text.sentences == [["EU", "sagt"], ["Bonn"]]
    assert tags_of(text) == ["B-ORG", "O", "B-LOC"]
    line = next(n for n, line in enumerate(FORMS[form].split("\n"), 1) if line.startswith("Bonn"))
    assert text.place(2) == f"{path}, line {line}"


def test_places_in_words_as_in_the_second_release_of_weibo(tmp_path):
    content = (
        "科0\tB-ORG\n技1\tI-ORG\np10\tO\n\n20\tO\n\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}0\tO\n"
    )
    path = write(tmp_path, content)
    form = detect_format(path)
    assert form == TextFormat("conll", places=True)
    text = read_tagged(path, form)
    assert text.sentences == [["科", "技", "p"], ["2", "\N{REPLACEMENT CHARACTER}" * 2]]
    assert "".join(with_tags(path, form, tags_of(text))) == content


@pytest.mark.parametrize(
    "content",
    ["科0\tO\n技\tO\n", "科1\tO\n技0\tO\n", "10\tO\n20\tO\nx\tO\n", "A1\tO\n"],
    ids=["one without", "a sentence begins in a word", "numbers and a word", "begins with 1"],
)
def test_tokens_that_merely_end_in_digits_stay(content, tmp_path):
    path = write(tmp_path, content)
    assert not has_places(content.split("\n"))
    assert detect_format(path) == CONLL
    tokens = [line.split("\t")[0] for line in content.split("\n") if line]
    assert read_tagged(path, CONLL).sentences == [tokens]


def test_unicode_blanks_are_tokens_and_part_nothing(tmp_path):
    path = write(tmp_path, "\u3000 O\n\x85 O\n\u2028\tO\n")
    assert read_tagged(path, CONLL).sentences == [["\u3000", "\x85", "\u2028"]]


def test_halves_of_characters_as_in_the_first_release_of_weibo(tmp_path):
    path = write(tmp_path, b"\xed\xa0\xbd\tO\n\xed\xb2\x8b\tO\n")
    text = read_tagged(path, CONLL)
    assert text.sentences == [["\N{REPLACEMENT CHARACTER}"] * 2]
    assert text.halves == 2


@pytest.mark.parametrize("blank", ["  ", " ", "\u3000", "\t"])
def test_segmentation(blank, tmp_path):
    lines = ["共同 创造 美好 的 新世纪", "——", "二〇〇一年 新年"]
    content = "".join(line.replace(" ", blank) + "\n" for line in lines)
    path = write(tmp_path, content)
    assert detect_format(path) == SEGMENTED
    text = read_tagged(path, SEGMENTED)
    assert text.sentences == [line.replace(" ", "") for line in lines]
    assert "".join(tags_of(text)) == "BEBEBESBME" + "BE" + "BMMMEBE"
    assert "".join(with_tags(path, SEGMENTED, tags_of(text))) == content
    assert text.place(10) == f"{path}, line 2"


def test_segmentation_in_columns(tmp_path):
    path = write(tmp_path, "共 B\n同 E\n的 S\n")
    assert detect_format(path) == CONLL
    assert tags_of(read_tagged(path, CONLL)) == ["B", "E", "S"]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "CRLF, BOM and no last line break"])
def test_other_tags_in_the_same_text(form, tmp_path):
    path = write(tmp_path, FORMS[form])
    same = "".join(with_tags(path, CONLL, ["B-ORG", "O", "B-LOC"]))
    assert [line.rstrip() for line in same.split("\n")] == [line.rstrip() for line in FORMS[form].split("\n")]
    other = read_tagged(write(tmp_path, "".join(with_tags(path, CONLL, ["O", "I-X", "O"])), "other"), CONLL)
    assert tags_of(other) == ["O", "I-X", "O"]
    assert other.sentences == read_tagged(path, CONLL).sentences


def test_other_words_in_the_same_text(tmp_path):
    path = write(tmp_path, "ab c\n\nde\n")
    assert "".join(with_tags(path, SEGMENTED, ["S", "B", "E", "S", "B"])) == "a bc\n\nd e\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("a O\nb c O\n", "line 2: 3 columns, where the lines before have 2"),
        ("a O\n\nb\n", "line 3: only one column"),
        ("a O\n\tO\n", "line 2: no token"),
        ("-DOCSTART- -X- O\n", "holds no sentence"),
        (b"a O\n\xff O\n", "line 2: not UTF-8"),
    ],
)
def test_bad_conll(content, message, tmp_path):
    with pytest.raises(UserError, match=message) as error:
        read_tagged(write(tmp_path, content), CONLL)
    assert str(tmp_path) in str(error.value)


def test_a_token_without_its_place(tmp_path):
    with pytest.raises(UserError, match="line 2: the token 'b' lacks the number"):
        read_tagged(write(tmp_path, "a0 O\nb O\n"), TextFormat("conll", places=True))


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        detect_format(tmp_path / "missing")


def test_neither_columns_nor_words(tmp_path):
    with pytest.raises(UserError, match="--format"):
        detect_format(write(tmp_path, "a O\nb c O\n"))
    with pytest.raises(UserError, match=r"line 3 has 1 columns, most lines have 2\)"):
        detect_format(write(tmp_path, "a O\n\nb\nc O\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [("b c O", "line 20: 3 columns, where the lines before have 2"), ("b", "line 20: only one column")],
)
def test_a_ragged_line_among_many_is_named(line, message, tmp_path):
    path = write(tmp_path, "a O\n" * 19 + line + "\n")
    assert detect_format(path) == CONLL
    with pytest.raises(UserError, match=message):
        read_tagged(path, CONLL)


def test_a_wrong_tag_is_named_with_its_line(tmp_path):
    text = read_tagged(write(tmp_path, "a O\n\nb O\nc PER\n"), CONLL)
    with pytest.raises(UserError, match="line 4: the tag 'PER' has no prefix"):
        text.check_tags("iob2")
