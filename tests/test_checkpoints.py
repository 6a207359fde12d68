"""Which checkpoints are kept for good."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.checkpoints import checkpoints_of_run, keep_checkpoint, updates_to_keep
from fairseq_tn.errors import UserError

RECIPE = [0.0625, 0.125, 0.25, 0.5, 0.8, 1.0]


def test_the_schedule_of_the_recipe_is_exact():
    assert updates_to_keep(RECIPE, 150_000, 1875) == [9375, 18750, 37500, 75000, 120_000, 150_000]


def test_a_share_between_two_saves_takes_the_later():
    assert updates_to_keep(RECIPE, 160, 10) == [10, 20, 40, 80, 130, 160]


def test_a_run_shorter_than_the_interval_keeps_its_end():
    assert updates_to_keep(RECIPE, 2, 1875) == [2]


def test_the_end_needs_no_interval():
    assert updates_to_keep([1.0], 150, 0) == [150]


def test_nothing_is_kept_unasked():
    assert updates_to_keep([], 0, 0) == []


def test_binary_fractions_do_not_move_an_update():
    assert updates_to_keep([0.07, 0.29, 0.57], 100, 1) == [7, 29, 57]


@given(st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=8), st.integers(1, 10**6), st.integers(1, 10**5))
def test_every_kept_update_is_saved_and_the_first_one_at_or_after_its_share(shares, max_update, interval):
    saved = set(range(interval, max_update + 1, interval)) | {max_update} if max_update < 10**4 else None
    kept = updates_to_keep(shares, max_update, interval)
    assert kept == sorted(set(kept))
    for update in kept:
        assert update == max_update or (update % interval == 0 and 0 < update < max_update)
    for share in shares:
        wanted = min(max_update, max(1, share * max_update))
        first = next(update for update in kept if update >= wanted - 1e-5)
        assert first - wanted < interval + 1
        if saved is not None:
            assert first in saved


@pytest.mark.parametrize(
    ("shares", "max_update", "interval", "named"),
    [
        ([0.0], 100, 10, "--keep-checkpoints-at 0:"),
        ([0.5, 50], 100, 10, "--keep-checkpoints-at 50:"),
        ([float("nan")], 100, 10, "--keep-checkpoints-at nan:"),
        ([0.5], 0, 10, "--max-update"),
        ([0.5, 1.0], 150_000, 0, "--save-interval-updates, for example 1875"),
    ],
)
def test_what_cannot_be_kept_is_refused(shares, max_update, interval, named):
    with pytest.raises(UserError) as refused:
        updates_to_keep(shares, max_update, interval)
    assert named in str(refused.value)


def test_a_kept_checkpoint_is_a_copy_of_its_own(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(b"first")
    kept = keep_checkpoint(last, 25)
    last.write_bytes(b"second")
    assert kept == tmp_path / "checkpoint_at_25.pt"
    assert kept.read_bytes() == b"first"
    assert keep_checkpoint(str(last), 25).read_bytes() == b"second"  # a repeated run
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint_at_25.pt", "checkpoint_last.pt"]


def test_the_checkpoints_of_a_run_come_in_the_order_of_their_updates(tmp_path):
    names = ["checkpoint_at_100.pt", "checkpoint_3_90.pt", "checkpoint_12_100.pt", "checkpoint_at_9.pt"]
    others = ["checkpoint_last.pt", "checkpoint3.pt", "checkpoint_1_2.pt.tmp", "checkpoint_best_1.5.pt"]
    for name in [*names, *others, "checkpoint_at_7-shard0.pt"]:
        (tmp_path / name).touch()
    found = checkpoints_of_run(tmp_path)
    assert list(found) == [9, 90, 100]
    # of two of the same updates the one that is kept for good
    assert [path.name for path in found.values()] == [names[3], names[1], names[0]]
    assert checkpoints_of_run(tmp_path / "nowhere") == {}
