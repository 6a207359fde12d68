"""The order and the batches that all data sets share."""

import numpy as np
import pytest

from fairseq_tn.data.by_length import ByLengthDataset


class Lengths(ByLengthDataset):
    def __init__(self, sizes, **options):
        super().__init__(**options)
        self.sizes = np.array(sizes)


SIZES = [4, 9, 4, 4, 7, 4, 9, 4, 9, 4, 4, 4]


def test_short_sequences_come_first_and_equal_ones_in_another_order_each_epoch():
    dataset = Lengths(SIZES, seed=1)
    orders = []
    for epoch in (1, 2):
        dataset.set_epoch(epoch)
        order = dataset.ordered_indices()
        assert sorted(order) == list(range(len(SIZES)))
        assert dataset.num_tokens_vec(order).tolist() == sorted(SIZES)
        orders.append(order.tolist())
    assert orders[0] != orders[1]
    assert Lengths(SIZES, seed=1, epoch=2).ordered_indices().tolist() == orders[1]
    assert Lengths(SIZES, seed=2).ordered_indices().tolist() != orders[0]


def test_validation_data_keep_their_order():
    dataset = Lengths(SIZES, seed=1, epoch=3, train=False)
    order = dataset.ordered_indices().tolist()
    dataset.set_epoch(4)
    assert dataset.ordered_indices().tolist() == order == Lengths(SIZES, seed=1).ordered_indices().tolist()
    assert dataset.can_reuse_epoch_itr_across_epochs
    assert not Lengths(SIZES, seed=1).can_reuse_epoch_itr_across_epochs


@pytest.mark.parametrize("multiple", [1, 8])
def test_no_sequence_is_left_out_of_the_batches(multiple):
    dataset = Lengths(SIZES, seed=1)
    order = dataset.ordered_indices()
    batches = dataset.batch_by_size(order, max_sentences=8, required_batch_size_multiple=multiple)
    assert np.concatenate(batches).tolist() == order.tolist()
