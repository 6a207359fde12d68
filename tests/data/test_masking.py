import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_tn.data.masking import Masker
from fairseq_tn.data.random_streams import Stream, generator
from fairseq_tn.errors import UserError

WORDS = [f"w{n}" for n in range(50)]
PIECES = [f"##p{n}" for n in range(10)]
SYMBOLS = [
    *("<s>", "<pad>", "</s>", "<unk>"),
    *WORDS,
    *PIECES,
    *("[unused3]", "[CLS]", "[MASK]", "madeupword0000", "<mask>"),
]
INDEX = {symbol: number for number, symbol in enumerate(SYMBOLS)}
MASK = INDEX["<mask>"]
NEVER_SELECTED = {INDEX[s] for s in ("<s>", "<pad>", "</s>", "<unk>", "[CLS]", "[MASK]", "<mask>")}
ORDINARY = {INDEX[s] for s in WORDS + PIECES}

ids = st.lists(st.integers(0, len(SYMBOLS) - 1), min_size=1, max_size=60)
seeds = st.integers(0, 2**40)


def masker(**options):
    return Masker.for_vocabulary(SYMBOLS, num_special=4, mask_index=MASK, **options)


def rng(seed):
    return generator(seed, 1, Stream.MASKING)


@given(ids, seeds, st.floats(0.01, 1), st.booleans())
def test_selects_only_tokens_of_the_text_and_changes_only_selected_ones(tokens, seed, mask_prob, whole_words):
    tokens = np.array(tokens)
    masked, selected = masker(mask_prob=mask_prob, whole_words=whole_words)(tokens, rng(seed))
    assert selected.tolist() == sorted(set(selected.tolist()))
    assert not NEVER_SELECTED & set(tokens[selected].tolist())
    others = np.delete(np.arange(len(tokens)), selected)
    assert (masked[others] == tokens[others]).all()
    assert all(
        new in (MASK, old) or new in ORDINARY
        for new, old in zip(masked[selected].tolist(), tokens[selected].tolist(), strict=True)
    )
    maskable = sum(token not in NEVER_SELECTED for token in tokens.tolist())
    assert (len(selected) > 0) == (maskable > 0)


@given(ids, seeds, st.floats(0.01, 1))
def test_number_of_selected_tokens_is_the_share_rounded_up_or_down(tokens, seed, mask_prob):
    _, selected = masker(mask_prob=mask_prob)(np.array(tokens), rng(seed))
    share = mask_prob * sum(token not in NEVER_SELECTED for token in tokens)
    assert len(selected) in {math.floor(share), math.ceil(share), 1 if share else 0}
    if share >= 1:
        assert len(selected) in {math.floor(share), math.ceil(share)}


def words_of(tokens):
    """Plain definition: a word is a token and the ## pieces right after it; a special ends a word."""
    words, previous = [], None
    for position, token in enumerate(tokens):
        if token in NEVER_SELECTED:
            previous = None
        elif SYMBOLS[token].startswith("##") and previous is not None:
            previous.append(position)
        else:
            previous = [position]
            words.append(previous)
    return words


@given(ids, seeds)
def test_whole_words_are_selected_whole(tokens, seed):
    _, selected = masker(whole_words=True, mask_prob=0.3)(np.array(tokens), rng(seed))
    chosen = set(selected.tolist())
    words = words_of(tokens)
    assert all(chosen.issuperset(word) or chosen.isdisjoint(word) for word in words)
    # one word beyond the target at most
    longest = max((len(word) for word in words), default=0)
    assert len(chosen) < 0.3 * sum(map(len, words)) + longest + 1e-9 or len(chosen) == longest


def test_a_special_parts_words():
    tokens = np.array([INDEX[token] for token in ("##p1", "</s>", "##p2")])
    draw = masker(whole_words=True, mask_prob=0.5)
    assert {tuple(draw(tokens, rng(seed))[1].tolist()) for seed in range(50)} == {(0,), (2,)}


@pytest.mark.parametrize("whole_words", [False, True])
def test_expected_share_is_exact(whole_words):
    text = "<s> w1 ##p1 ##p2 w2 w3 ##p3 w4 w5 ##p4 </s> w6 w7 ##p5 w8 </s>"
    tokens = np.array([INDEX[token] for token in text.split(" ")] * 3)
    draw = masker(whole_words=whole_words)
    counts = np.array([len(draw(tokens, rng(seed))[1]) for seed in range(8000)])
    # 39 maskable tokens in words of 1 to 3
    assert abs(counts.mean() - 0.15 * 39) < 0.03
    assert set(counts.tolist()) <= ({3, 4, 5, 6, 7, 8} if whole_words else {5, 6})


def test_every_token_is_as_likely_and_the_fates_are_80_10_10():
    tokens = np.array([INDEX["<s>"], *(INDEX[word] for word in WORDS), INDEX["</s>"]])
    draw = masker()
    hits = np.zeros(len(tokens))
    fates = {"mask": 0, "kept": 0, "random": 0}
    drawn = np.zeros(len(SYMBOLS))
    for seed in range(5000):
        masked, selected = draw(tokens, rng(seed))
        hits[selected] += 1
        new, old = masked[selected], tokens[selected]
        fates["mask"] += int((new == MASK).sum())
        fates["kept"] += int((new == old).sum())
        fates["random"] += int(((new != MASK) & (new != old)).sum())
        np.add.at(drawn, new[(new != MASK) & (new != old)], 1)
    total = hits.sum()
    assert abs(hits[1:-1] / 5000 - 0.15).max() < 0.025
    assert abs(fates["mask"] / total - 0.8) < 0.006
    # a random draw may hit the token itself: one in 60
    assert abs(fates["random"] / total - 0.1 * 59 / 60) < 0.006
    assert abs(fates["kept"] / total - (0.1 + 0.1 / 60)) < 0.006
    ordinary = drawn[sorted(ORDINARY)]
    assert drawn.sum() == ordinary.sum()
    assert abs(ordinary / ordinary.sum() - 1 / 60).max() < 0.006


def test_shares_of_the_fates_follow_the_options():
    tokens = np.array([INDEX[word] for word in WORDS])
    masked, selected = masker(mask_prob=1, leave_unmasked_prob=1, random_token_prob=0)(tokens, rng(1))
    assert len(selected) == 50
    assert (masked == tokens).all()
    masked, _ = masker(mask_prob=1, leave_unmasked_prob=0, random_token_prob=0)(tokens, rng(1))
    assert (masked == MASK).all()
    masked, _ = masker(mask_prob=1, leave_unmasked_prob=0, random_token_prob=1)(tokens, rng(1))
    assert set(masked.tolist()) <= ORDINARY


@settings(max_examples=50)
@given(
    st.tuples(
        st.integers(-(2**63), 2**63), st.integers(1, 10**6), st.sampled_from(Stream), st.integers(0, 10**12)
    ),
    st.tuples(
        st.integers(-(2**63), 2**63), st.integers(1, 10**6), st.sampled_from(Stream), st.integers(0, 10**12)
    ),
)
def test_generators_repeat_and_differ(one, other):
    numbers = generator(*one).random(4).tolist()
    assert generator(*one).random(4).tolist() == numbers
    if one != other:
        assert generator(*other).random(4).tolist() != numbers


def test_neighbouring_items_have_different_numbers():
    streams = [generator(s, e, k, i) for s in (1, 2) for e in (1, 2) for k in Stream for i in (0, 1)]
    assert len({tuple(g.random(2)) for g in streams}) == len(streams)


GPT2_TOKENS = {"10": "a", "11": "Ġgood", "12": "ness", "13": "Ġof", "14": "Ġ##", "15": "Ġmen"}


@pytest.mark.parametrize(
    "words",
    [
        "a good|##ness of ## men",
        "▁a ▁good|ness ▁of ▁#|# ▁men",
        "a Ġgood|ness Ġof Ġ## Ġmen",
        "a go@@|od@@|ness of #@@|# men",
        "a goodness of ## men",
        "10 11|12 13 14 15",
    ],
    ids=["wordpiece", "sentencepiece", "gpt2", "subword-nmt", "words", "gpt2-ids"],
)
def test_the_same_words_are_masked_in_each_style(words):
    words = [word.split("|") for word in words.split(" ")]
    pieces = [piece for word in words for piece in word]
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *dict.fromkeys(pieces), "<mask>"]
    draw = Masker.for_vocabulary(
        symbols, 4, len(symbols) - 1, whole_words=True, mask_prob=0.01, gpt2_tokens=GPT2_TOKENS
    )
    tokens = np.array([0, *(symbols.index(piece) for piece in pieces), 2])
    starts = np.cumsum([1, *map(len, words)]).tolist()
    expected = {tuple(range(start, start + len(word))) for start, word in zip(starts, words, strict=False)}
    # so small a share selects a single word
    assert {tuple(draw(tokens, rng(seed))[1].tolist()) for seed in range(200)} == expected


def test_gpt2_ids_need_their_tokens():
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *GPT2_TOKENS, "<mask>"]
    with pytest.raises(UserError, match=r"--mask-whole-words.*--gpt2-encoder"):
        Masker.for_vocabulary(symbols, 4, len(symbols) - 1, whole_words=True)


@given(ids, seeds)
def test_one_fate_a_word(tokens, seed):
    tokens = np.array(tokens)
    options = {"mask_prob": 0.5, "leave_unmasked_prob": 0.3, "random_token_prob": 0.3}
    draw = masker(whole_words=True, fate_per_word=True, **options)
    masked, selected = draw(tokens, rng(seed))
    for word in words_of(tokens.tolist()):
        if word[0] in selected:
            assert len(set((masked[word] == MASK).tolist())) == 1
    # which words are predicted does not depend on it
    assert selected.tolist() == masker(whole_words=True, **options)(tokens, rng(seed))[1].tolist()


def test_the_fates_of_words_are_80_10_10():
    text = "w1 ##p1 ##p2 w2 ##p3 w4 w5 ##p4 w7 ##p5 w8"
    tokens = np.array([INDEX[token] for token in text.split(" ")] * 3)
    draw = masker(whole_words=True, fate_per_word=True)
    words = words_of(tokens.tolist())
    fates = {"mask": 0, "kept": 0, "random": 0}
    for seed in range(6000):
        masked, selected = draw(tokens, rng(seed))
        for word in words:
            if word[0] in selected:
                if (masked[word] == MASK).all():
                    fates["mask"] += 1
                else:
                    fates["kept" if (masked[word] == tokens[word]).all() else "random"] += 1
    total = sum(fates.values())
    assert abs(fates["mask"] / total - 0.8) < 0.01
    # a word of one piece may be replaced by itself: one draw in 60
    assert abs(fates["random"] / total - 0.1) < 0.01
    assert abs(fates["kept"] / total - 0.1) < 0.01


def test_one_fate_a_word_needs_words():
    with pytest.raises(UserError, match=r"--mask-fate-per-word.*--mask-whole-words"):
        masker(fate_per_word=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_prob": 0}, "--mask-prob is 0"),
        ({"mask_prob": 1.5}, "--mask-prob is 1.5"),
        ({"random_token_prob": -0.1}, "--random-token-prob is -0.1"),
        ({"leave_unmasked_prob": 0.7, "random_token_prob": 0.6}, "more than 1 together"),
    ],
)
def test_bad_probabilities(options, message):
    with pytest.raises(UserError, match=message):
        masker(**options)


def test_dictionary_without_ordinary_symbols():
    with pytest.raises(UserError, match=r"dict\.txt"):
        Masker.for_vocabulary(["<s>", "<pad>", "</s>", "<unk>", "madeupword0000", "<mask>"], 4, 5)
