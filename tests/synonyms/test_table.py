import copy
import gzip
import logging
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.errors import UserError
from fairseq_tn.synonyms import SynonymTable
from fairseq_tn.synonyms.table import read_table
from fairseq_tn.synonyms.vocabularies import vocabulary_digest

SYMBOLS = ["<s>", "<pad>", "</s>", "<unk>", "big", "large", "stay", "remain", "#", "café"]
SYNONYMS = {"big": ["large"], "large": ["big"], "stay": ["remain", "large"], "#": ["café"]}


class FakeDictionary:
    """As much of fairseq's Dictionary as a table may use."""

    def __init__(self, symbols):
        self.symbols = symbols

    def __len__(self):
        return len(self.symbols)


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_round_trip(tmp_path):
    path = tmp_path / "table"
    SynonymTable(SYMBOLS, SYNONYMS, {"source": "my head", "options": "none: at all"}).save(path)
    table = SynonymTable.load(path, SYMBOLS)
    assert table.header == {
        "source": "my head",
        "options": "none: at all",
        "vocabulary": vocabulary_digest(SYMBOLS),
    }
    assert {token: table.synonyms(token) for token in table.tokens} == SYNONYMS
    assert (len(table), table.num_pairs) == (4, 5)
    assert table.synonyms("nothing") == []
    table.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "table"]


def test_mask_and_fillers_may_come_later(tmp_path):
    SynonymTable(SYMBOLS, SYNONYMS).save(tmp_path / "table")
    dictionary = FakeDictionary([*SYMBOLS, "madeupword0000", "<mask>"])
    table = SynonymTable.load(tmp_path / "table", dictionary)
    assert table.contains(torch.tensor([4]), torch.tensor([5])).item()


def test_hand_made_table(tmp_path):
    text = "\ufeff# my own table\r\n\r\nbig\tlarge  large\r\n#\tcafé\r\n# note: a remark\r\nlarge\tbig"
    table = SynonymTable.load(write(tmp_path / "table", text), FakeDictionary(SYMBOLS))
    assert [table.synonyms(token) for token in ("big", "#", "large")] == [["large"], ["café"], ["big"]]
    assert table.num_pairs == 3


pair_tables = st.dictionaries(
    st.integers(0, 29), st.sets(st.integers(0, 29), min_size=1, max_size=29), max_size=30
).map(lambda table: {g: sorted(ps - {g}) for g, ps in table.items() if ps - {g}})


@given(pair_tables, st.integers(-3, 33))
def test_contains_holds_exactly_the_pairs(pairs, other):
    symbols = [f"w{n}" for n in range(30)]
    table = SynonymTable(symbols, {symbols[g]: [symbols[p] for p in ps] for g, ps in pairs.items()})
    ids = torch.arange(-3, 34)
    gold, predicted = torch.meshgrid(ids, ids, indexing="ij")
    expected = torch.tensor([[p in pairs.get(g, ()) for p in ids.tolist()] for g in ids.tolist()])
    found = table.contains(gold, predicted)
    assert found.dtype == torch.bool
    assert torch.equal(found, expected)
    # transposed (not contiguous), of other integers, without dimensions
    assert torch.equal(table.contains(gold.t(), predicted.t()), expected.t())
    assert torch.equal(table.contains(gold.int(), predicted.int()), expected)
    one = table.contains(torch.tensor(other), torch.tensor(4))
    assert one.shape == ()
    assert one.item() == (4 in pairs.get(other, ()))


@pytest.mark.parametrize("shape", [(0,), (0, 7), (3, 0)])
def test_contains_of_nothing(shape):
    empty = torch.zeros(shape, dtype=torch.int64)
    found = SynonymTable(SYMBOLS, SYNONYMS).contains(empty, empty)
    assert found.shape == shape
    assert found.dtype == torch.bool


def test_contains_in_a_vocabulary_of_a_million():
    symbols = [f"w{n}" for n in range(1_000_000)]
    table = SynonymTable(symbols, {"w999999": ["w0", "w999998"], "w0": ["w999999"]})
    gold = torch.tensor([999_999, 999_999, 0, 999_998, 999_999, 1_000_000, 2**31 - 1])
    predicted = torch.tensor([0, 999_998, 999_999, 999_999, 1, 0, 2**31 - 1])
    assert table.contains(gold, predicted).tolist() == [True, True, True, False, False, False, False]


def test_contains_follows_the_device():
    # the meta device stands for any other than the CPU: what is computed has no values, but must live there
    table = SynonymTable(SYMBOLS, SYNONYMS)
    ids = torch.zeros(2, 3, dtype=torch.int64, device="meta")
    found = table.contains(ids, ids)
    assert (found.device.type, found.shape, found.dtype) == ("meta", (2, 3), torch.bool)
    assert table.contains(torch.tensor([4]), torch.tensor([5])).item()


def test_table_travels_to_workers():
    table = SynonymTable(SYMBOLS, SYNONYMS)
    for other in (copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert other.contains(torch.tensor([4, 4]), torch.tensor([5, 6])).tolist() == [True, False]
        assert other.synonyms("stay") == ["remain", "large"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "table is empty"),
        ("# source: nothing\n\n", "table is empty"),
        ("big\tlarge\nlarge big\n", "table, line 2: expected 'token<TAB>synonym"),
        ("big\tlarge\n\tbig\n", "table, line 2: expected 'token<TAB>synonym"),
        ("big\tlarge\tbig\n", "table, line 1: expected 'token<TAB>synonym"),
        ("very big\tlarge\n", "table, line 1: expected 'token<TAB>synonym"),
        ("#comment\n", "table, line 1: expected 'token<TAB>synonym"),
        ("# a\n\nbig\t \n", "table, line 3: 'big' has no synonyms"),
        ("big\tlarge big\n", "table, line 1: 'big' is listed as its own synonym"),
        ("big\tlarge\nstay\tremain\nbig\tlarge\n", "table, line 3: 'big' has a line already"),
        ("big\tlarge\nstay\tr\xe9main\n".encode("latin-1"), "table, line 2: not UTF-8"),
        (gzip.compress(b"big\tlarge\n", mtime=0), "table is compressed; unpack it"),
        (b"\0\1\2\3", "table, line 1: expected"),
        (b"\x80\x04\x95", "table, line 1: not UTF-8"),
    ],
)
def test_bad_tables_are_named(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as caught:
        SynonymTable.load(write(tmp_path / "table", content), SYMBOLS)
    assert "\n" not in str(caught.value)


def test_missing_table_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone: No such file.*fairseq-tn synonyms build"):
        read_table(tmp_path / "gone")
    with pytest.raises(UserError, match="Is a directory"):
        read_table(tmp_path)


def test_table_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match="cannot write the synonym table"):
        SynonymTable(SYMBOLS, SYNONYMS).save(tmp_path)
    assert list(tmp_path.parent.glob(f".{tmp_path.name}*")) == []


def test_table_of_another_vocabulary(tmp_path, caplog):
    path = tmp_path / "table"
    SynonymTable(SYMBOLS, SYNONYMS).save(path)
    swapped = [*SYMBOLS[:4], *reversed(SYMBOLS[4:])]
    with pytest.raises(UserError, match=r"made for another vocabulary.*--allow-vocabulary-mismatch"):
        SynonymTable.load(path, swapped)
    with caplog.at_level(logging.WARNING):
        table = SynonymTable.load(path, swapped, allow_mismatch=True)
    assert "made for another vocabulary" in caplog.text
    assert table.num_pairs == 5
    gold, predicted = (torch.tensor([swapped.index(token)]) for token in ("stay", "remain"))
    assert table.contains(gold, predicted).item()


def test_tokens_that_the_vocabulary_lacks(tmp_path, caplog):
    path = write(tmp_path / "table", "big\tlarge huge\nhuge\tbig\nstay\tabide\n")
    with pytest.raises(UserError, match=r"lacks 2 of the 5 tokens .*table \(such as abide, huge\)"):
        SynonymTable.load(path, SYMBOLS)
    with caplog.at_level(logging.WARNING):
        table = SynonymTable.load(path, SYMBOLS, allow_mismatch=True)
    assert "lacks 2 of the 5 tokens" in caplog.text
    assert "3 of its 4 pairs are dropped" in caplog.text
    assert (len(table), table.num_pairs, table.synonyms("big")) == (1, 1, ["large"])
    with pytest.raises(UserError, match="no pair of the synonym table"):
        SynonymTable.load(path, ["<s>", "huge"], allow_mismatch=True)
