from fairseq_tn.synonyms import compare_tables


def test_sizes_overlap_and_differences():
    first = {"stay": ["remain", "rest"], "big": ["large"], "fast": ["quick"]}
    second = {"stay": ["rest", "wait", "remain"], "big": ["huge"], "old": ["aged", "ancient"]}
    result = compare_tables(first, second)
    assert (result.tokens.first, result.tokens.second, result.tokens.both) == (3, 3, 2)
    assert (result.pairs.first, result.pairs.second, result.pairs.both) == (4, 6, 2)
    assert result.tokens.jaccard == 2 / 4
    assert result.pairs.jaccard == 2 / 8
    assert result.only_first == {"big": ["large"], "fast": ["quick"]}
    assert result.only_second == {"stay": ["wait"], "big": ["huge"], "old": ["aged", "ancient"]}


def test_a_table_and_itself_and_nothing():
    table = {"stay": ["remain"]}
    assert compare_tables(table, table).pairs.jaccard == 1
    assert compare_tables({}, {}).tokens.jaccard == 1
    assert compare_tables(table, {}).pairs.jaccard == 0
