"""SQuAD files as windows, and logits as answers."""

import json

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_squad import make_squad, one_question, write_squad, write_words_dict
from small_tokenizers import train_gpt2, train_sentencepiece, train_wordpiece

from fairseq_tn.cli.preparing.squad import describe
from fairseq_tn.data.answers import AnswerSearch, best_spans
from fairseq_tn.data.encoders import EncoderOptions, load_encoder
from fairseq_tn.data.squad import read_squad
from fairseq_tn.data.squad_split import SquadDataset, SquadSplit, most_context
from fairseq_tn.data.squad_windows import WindowSettings, prepare_squad, window_places
from fairseq_tn.errors import UserError

SMALL = WindowSettings(max_length=16, stride=4, max_query_length=5)


def words(folder):
    return load_encoder("words", EncoderOptions(dictionary=str(write_words_dict(folder))))


def dictionary_of(folder):
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    dictionary.add_symbol("<mask>")
    return dictionary


def prepared(tmp_path, content, encoder=None, settings=SMALL, version_2=False, split="train"):
    file = write_squad(tmp_path / "file.json", content)
    encoder = encoder or words(tmp_path / "words")
    counts = prepare_squad({split: file}, encoder, tmp_path / "data", settings, version_2)
    return SquadSplit(tmp_path / "data", split, dictionary_of(tmp_path / "data")), counts[split]


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda file: file.pop("data"), "data is missing"),
        (lambda file: file["data"].append(3), r"data\[1\] is not an object"),
        (lambda file: file["data"][0].pop("paragraphs"), r"data\[0\]\.paragraphs is missing"),
        (lambda file: paragraph(file).pop("context"), r"data\[0\]\.paragraphs\[0\]\.context is missing"),
        (lambda file: paragraph(file).update(context=" "), r"paragraphs\[0\]\.context is empty"),
        (lambda file: question(file).pop("id"), r"qas\[0\]\.id is missing"),
        (lambda file: question(file).update(question=3), r"qas\[0\]\.question is missing or not text"),
        (lambda file: question(file).pop("answers"), r"qas\[0\]\.answers is missing"),
        (lambda file: question(file).update(answers=[]), r"qas\[0\] has no answer; give --version-2"),
        (lambda file: question(file)["answers"][0].pop("text"), r"answers\[0\]\.text is missing"),
        (lambda file: question(file)["answers"][0].update(answer_start="1"), r"answers\[0\]\.answer_start"),
        (
            lambda file: question(file).update(is_impossible=True),
            r"qas\[0\] has no answer .*give --version-2",
        ),
        (lambda file: question(file).update(is_impossible="no"), r"is_impossible is not true or false"),
        (
            lambda file: paragraph(file)["qas"].append(question(file)),
            r"qas\[1\] has the id 'q' of .*qas\[0\]",
        ),
        (lambda file: paragraph(file).update(qas=[]), "holds no question"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, change, place):
    content = one_question("w1 w2", "w2", 3)
    change(content)
    with pytest.raises(UserError, match=place) as error:
        read_squad(write_squad(tmp_path / "file.json", content), version_2=False)
    assert str(error.value).startswith(str(tmp_path / "file.json"))
    assert "\n" not in str(error.value)


def paragraph(file):
    return file["data"][0]["paragraphs"][0]


def question(file):
    return paragraph(file)["qas"][0]


def test_version_2_reads_both_ways_to_have_no_answer(tmp_path):
    content = one_question("w1 w2", "w2", 3, is_impossible=True, plausible_answers=[])
    paragraph(content)["qas"].append({"id": "r", "question": "w1", "answers": [], "is_impossible": False})
    (found,) = read_squad(write_squad(tmp_path / "file.json", content), version_2=True)
    assert [(one.id, one.answers, one.impossible) for one in found.questions] == [
        ("q", (), True),
        ("r", (), True),
    ]


# --- windows ------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(length=st.integers(0, 60), room=st.integers(1, 20), stride=st.integers(1, 20))
def test_windows_cover_the_context(length, room, stride):
    stride = min(stride, room)
    places = window_places(length, room, stride)
    covered = [token for first, number in places for token in range(first, first + number)]
    assert set(covered) == set(range(length))
    assert [first for first, _ in places] == list(range(0, len(places) * stride, stride))
    assert all(number == room for _, number in places[:-1])
    # no window is needless: the one before the last does not reach the end
    assert len(places) == 1 or places[-2][0] + room < length


@settings(max_examples=50)
@given(length=st.integers(1, 60), room=st.integers(1, 20), stride=st.integers(1, 20))
@example(length=310, room=300, stride=250)  # windows whose lengths differ so much that it counts
def test_most_context_token_by_token(length, room, stride):
    places = window_places(length, room, min(stride, room))
    own = most_context(*(np.array(column, np.int32) for column in zip(*places, strict=True)))
    expected = {}
    for token in range(length):
        best = None
        for number, (first, count) in enumerate(places):
            if first <= token < first + count:
                score = min(token - first, first + count - 1 - token) + 0.01 * count
                if best is None or score > best[0]:
                    best = score, number
        expected.setdefault(best[1], []).append(token)
    for number, (begin, end) in enumerate(own.tolist()):
        assert list(range(begin, end)) == expected.get(number, [])


@pytest.mark.parametrize("kind", ["words", "wordpiece", "sentencepiece", "gpt2"])
def test_every_answer_is_recovered_from_its_windows(tmp_path, kind):
    content = make_squad(12, seed=1, length=60)
    paragraph(content)["qas"].append(  # longer than the limit
        {"id": "long", "question": "key w1 " * 9 + "?", "answers": question(content)["answers"]}
    )
    lines = [one["context"] for article in content["data"] for one in article["paragraphs"]]
    settings = WindowSettings(40, 8, 12)
    encoder = {
        "words": lambda: words(tmp_path / "words"),
        "wordpiece": lambda: load_encoder(str(train_wordpiece(lines, tmp_path, 60))),
        "sentencepiece": lambda: load_encoder(str(train_sentencepiece(lines, tmp_path, 60))),
        "gpt2": lambda: train_gpt2(lines, tmp_path, 300) and load_encoder(str(tmp_path)),
    }[kind]()
    split, counts = prepared(tmp_path, content, encoder, settings)
    assert (counts.questions, counts.paragraphs) == (25, 12)
    assert counts.misplaced == counts.unaligned == counts.dropped == counts.unknown == 0
    assert counts.cut_questions >= 1
    assert counts.longest == split.corpus.sizes.max() <= 40
    assert counts.windows == len(split.windows) > 25
    dictionary = dictionary_of(tmp_path / "data")
    dataset = SquadDataset(
        split, 1, dictionary.bos(), dictionary.pad(), dictionary.eos(), "train", train=True
    )
    encoded = {line: [dictionary.index(s) for s in encoder.encode([line])[0]] for line in lines}
    found = {}
    for number, window in enumerate(split.windows):
        item = dataset[number]
        tokens, offset = item["tokens"].tolist(), int(window["offset"])
        context = split.contexts[split.questions[window["question"]].context]
        first, count = int(window["first"]), int(window["number"])
        assert tokens[0] == dictionary.bos()
        assert tokens[offset - 1] == tokens[-1] == dictionary.eos()
        assert tokens[offset:-1] == encoded[context.text][first : first + count]
        query = encoder.encode([split.questions[window["question"]].text])[0][:12]
        assert tokens[1 : offset - 1] == [dictionary.index(symbol) for symbol in query]
        if item["end"]:
            begin, end = (item[name] - offset + first for name in ("start", "end"))
            found.setdefault(int(window["question"]), set()).add(
                context.text[context.begin[begin] : context.end[end]]
            )
    inexact = 0
    for number, one in enumerate(split.questions):
        texts = found[number]
        assert len(texts) == 1
        inexact += texts != set(one.answers)
        assert all(one.answers[0] in text for text in texts)
    assert inexact == counts.inexact
    assert sorted(dataset.ordered_indices().tolist()) == list(range(len(dataset)))


def test_windows_without_the_answer_point_to_the_beginning(tmp_path):
    context = " ".join(["w1"] * 20 + ["w2"])
    split, _ = prepared(tmp_path, one_question(context, "w2", 60))
    # <s> 3 words </s> leaves 10 of 21 words, every 4
    assert split.windows["first"].tolist() == [0, 4, 8, 12]
    assert split.windows["start"].tolist() == split.windows["end"].tolist() == [0, 0, 0, 5 + 8]


def test_a_window_that_ends_before_the_answer_does_not_have_it(tmp_path):
    """The second answer begins in the third window, which ends before its last word."""
    words_of = [f"w{n}" for n in range(21)]
    context = " ".join(words_of)
    content = one_question(context, "w18", context.index("w18"))
    text = "w17 w18"
    answers = [{"text": text, "answer_start": context.index(text)}]
    paragraph(content)["qas"].append({"id": "r", "question": "key w1 ?", "answers": answers})
    split, _ = prepared(tmp_path, content)
    assert split.windows["first"].tolist() == 2 * [0, 4, 8, 12]
    assert split.windows["start"].tolist() == [0, 0, 0, 5 + 6, 0, 0, 0, 5 + 5]
    assert split.windows["end"].tolist() == [0, 0, 0, 5 + 6, 0, 0, 0, 5 + 6]


def test_counts_of_answers_that_do_not_fit(tmp_path):
    content = one_question("w1 w2\u200b, w3\nw4", " w2\u200b", 2)
    good = question(content)["answers"][0]
    more = [
        ("r", [{"text": "w3", "answer_start": 7}]),  # misplaced
        ("s", [{"text": "w3", "answer_start": 7}, {"text": "w3", "answer_start": 8}]),
        ("t", [{"text": "2", "answer_start": 4}]),  # within a token
        *((f"u{n}", [good]) for n in range(20)),
    ]
    paragraph(content)["qas"] += [{"id": i, "question": "w1", "answers": a} for i, a in more]
    split, counts = prepared(tmp_path, content)
    assert (counts.answers, counts.misplaced, counts.inexact, counts.dropped) == (25, 2, 1 + 21, 1)
    assert "2 answers not at their answer_start (the first: question 'r')" in describe(
        counts, version_2=False
    )
    assert [one.id for one in split.questions][:3] == ["q", "s", "t"]
    valid, counts = prepared(tmp_path, content, split="valid")
    assert (counts.questions, counts.dropped) == (24, 0)
    assert valid.windows["start"].tolist()[:2] == [6, -1]
    assert valid.golds["r"] == ("w3",)


def test_offsets_of_something_else_are_an_error(tmp_path):
    with pytest.raises(
        UserError, match=r"1 of 1 answers do not stand at their answer_start, as that of question 'q'"
    ):
        prepared(tmp_path, one_question("w1 w2", "w2", 2))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (WindowSettings(20, 4, 17), "--max-length 20 leaves no room"),
        (WindowSettings(20, 13, 5), "--stride 13 is longer than the 12 tokens"),
    ],
)
def test_settings_that_leave_something_out(tmp_path, settings, named):
    with pytest.raises(UserError, match=named):
        prepared(tmp_path, one_question("w1 w2", "w2", 3), settings=settings)


def test_a_vocabulary_is_needed(tmp_path):
    with pytest.raises(UserError, match=r"--dict"):
        prepared(tmp_path, one_question("w1 w2", "w2", 3), load_encoder("words"))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "squad.json").unlink(), r"squad\.json is missing"),
        (lambda folder: (folder / "squad.json").write_text("{}"), r"squad\.json is not of"),
        (
            lambda folder: (folder / "train.windows.npy").write_bytes(b"x"),
            r"windows\.npy is missing or damaged",
        ),
        (lambda folder: np.save(folder / "train.windows.npy", np.zeros(3)), r"windows\.npy does not belong"),
        (lambda folder: (folder / "train.jsonl").write_text("{}\n"), r"train\.jsonl is missing or damaged"),
        (lambda folder: (folder / "train.jsonl").write_text(""), r"train\.jsonl does not belong"),
        (lambda folder: (folder / "train.idx").unlink(), r"train\.idx is missing: .* prepare squad"),
    ],
)
def test_damaged_folders(tmp_path, damage, named):
    prepared(tmp_path, one_question("w1 w2", "w2", 3))
    damage(tmp_path / "data")
    with pytest.raises(UserError, match=named):
        SquadSplit(tmp_path / "data", "train", dictionary_of(tmp_path / "data")).questions  # noqa: B018
    if (tmp_path / "data/squad.json").exists() and "splits" in (tmp_path / "data/squad.json").read_text():
        with pytest.raises(UserError, match="has no split test, only train"):
            SquadSplit(tmp_path / "data", "test", dictionary_of(tmp_path / "data"))


def test_a_batch(tmp_path):
    split, _ = prepared(tmp_path, make_squad(3, seed=2))
    dictionary = dictionary_of(tmp_path / "data")
    dataset = SquadDataset(split, 1, 0, 1, 2, "train", train=False)
    order = dataset.ordered_indices()
    assert (np.diff(dataset.sizes[order]) >= 0).all()
    batch = dataset.collater([dataset[0], dataset[1]])
    tokens, lengths = batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"]
    for row in (0, 1):
        assert tokens[row, : lengths[row]].tolist() == dataset[row]["tokens"].tolist()
        assert tokens[row, lengths[row] :].eq(dictionary.pad()).all()
    assert batch["start"].tolist() == split.windows["start"][:2].tolist()
    assert batch["end"].tolist() == split.windows["end"][:2].tolist()
    assert batch["ntokens"] == lengths.sum()


# --- answers ------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), longest=st.integers(1, 9), number=st.integers(1, 50))
def test_best_spans_are_those_of_all_pairs(seed, longest, number):
    rng = torch.Generator().manual_seed(seed)
    start, end = torch.randn(2, 3, 7, generator=rng)
    can_start, can_end = torch.rand(2, 3, 7, generator=rng) < 0.6
    scores, first, last = best_spans(start, end, can_start, can_end, longest, number)
    assert scores.shape == first.shape == last.shape == (3, number)
    for row in range(3):
        pairs = [
            (float(start[row, s] + end[row, e]), s, e)
            for s in range(7)
            for e in range(s, min(7, s + longest))
            if can_start[row, s] and can_end[row, e]
        ]
        pairs.sort(reverse=True)
        for place in range(number):
            if place < len(pairs):
                score, s, e = pairs[place]
                assert scores[row, place].item() == pytest.approx(score)
                assert (first[row, place], last[row, place]) == (s, e)
            else:
                assert scores[row, place] == -np.inf


def test_answers_of_questions_over_their_windows(tmp_path):
    """Random logits; the candidates are those of all pairs of places in all windows."""
    split, _ = prepared(tmp_path, make_squad(6, seed=4, version_2=True), version_2=True)
    rng = torch.Generator().manual_seed(0)
    search = AnswerSearch(split, max_answer_length=3, n_best=5)
    width = int(split.corpus.sizes.max())
    order = torch.randperm(len(split.windows), generator=rng).numpy()
    start, end = torch.randn(2, len(order), width, generator=rng)
    found = [search.add(part, start[part], end[part]) for part in (order[:7], order[7:], order[:2])]
    answers = search.join(found)
    assert [answer.id for answer in answers] == [question.id for question in split.questions]
    for number, answer in enumerate(answers):
        context = split.contexts[split.questions[number].context]
        texts, nulls = {}, []
        for place in np.flatnonzero(split.windows["question"] == number):
            window = split.windows[place]
            nulls.append((start[place, 0] + end[place, 0]).item())
            own = range(*split.own_tokens[place])
            for s in own:
                for e in range(s, min(s + 3, window["first"] + window["number"])):
                    shift = window["offset"] - window["first"]
                    score = (start[place, s + shift] + end[place, e + shift]).item()
                    text = context.text[context.begin[s] : context.end[e]]
                    texts[text] = max(score, texts.get(text, -np.inf))
        best = sorted(texts.items(), key=lambda pair: -pair[1])[:5]
        # a window gives its five best spans; the same text can be among them twice
        assert answer.candidates[0].text == best[0][0]
        assert len({one.text for one in answer.candidates}) == len(answer.candidates) <= 5
        assert [one.score for one in answer.candidates] == pytest.approx(
            [texts[one.text] for one in answer.candidates], abs=1e-5
        )
        assert answer.null.score == pytest.approx(min(nulls), abs=1e-5)
        assert answer.null_odds == pytest.approx(min(nulls) - best[0][1], abs=1e-5)
        assert answer.text(answer.null_odds) == best[0][0]
        assert answer.text(answer.null_odds - 1e-3) == ""


def test_a_context_without_tokens_has_no_answer(tmp_path):
    content = one_question("\u200b", "", 0, answers=[])
    encoder = load_encoder(str(train_sentencepiece(["w1 w2 key ?"] * 5, tmp_path, 20)))
    split, _ = prepared(tmp_path, content, encoder, version_2=True, split="valid")
    assert split.windows["number"].tolist() == [0]
    search = AnswerSearch(split, 3, 2)
    logits = torch.zeros(1, int(split.corpus.sizes[0]))
    (answer,) = search.join([search.add([0], logits, logits)])
    assert answer.candidates == ()
    assert answer.text(0.0) == answer.text(np.inf) == ""
    json.dumps(answer.null_odds, allow_nan=False)
