"""The Hilbert order: steps to neighbours, and pieces of it judged by the order of the whole."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from femops_meshes import hilbert_order
from femops_meshes.topology.ordering import hilbert_cells, hilbert_index


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_hilbert_visits_each_cell_once_stepping_to_neighbours(dim):
    for bits in (1, 2, 3):
        cells = np.indices((2**bits,) * dim).reshape(dim, -1).T
        index = hilbert_index(cells, bits)
        np.testing.assert_array_equal(np.sort(index), np.arange(len(cells)))
        steps = np.abs(np.diff(cells[np.argsort(index)], axis=0)).sum(axis=1)
        assert (steps == 1).all()


def test_the_order_of_points_is_a_permutation_whatever_the_scale():
    for dim, scale in ((1, 1e-30), (2, 1.0), (3, 1e30)):
        points = np.random.default_rng(dim).normal(size=(50, dim)) * scale
        order = hilbert_order(points)
        np.testing.assert_array_equal(np.sort(order), np.arange(50))
        np.testing.assert_array_equal(order, hilbert_order(points * 4))
    assert len(hilbert_order(np.zeros((0, 2)))) == 0
    assert hilbert_order(np.zeros((3, 2))).tolist() == [0, 1, 2]


def whole_order(counts):
    """Cells of a grid, sorted by their place along the curve through the cube around it."""
    cells = np.array(list(np.ndindex(*counts)))
    bits = max(1, (max(counts) - 1).bit_length())
    return cells[np.argsort(hilbert_index(cells, bits))]


@settings(max_examples=30)
@given(st.lists(st.integers(1, 11), min_size=1, max_size=3), st.data())
def test_a_piece_is_a_piece_of_the_whole(counts, data):
    expected = whole_order(counts)
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    np.testing.assert_array_equal(hilbert_cells(counts), expected)
    np.testing.assert_array_equal(hilbert_cells(counts, start, stop), expected[start:stop])
    np.testing.assert_array_equal(hilbert_cells(counts, start), expected[start:])


def test_long_thin_grids():
    """The place along the curve would not fit into 64 bits."""
    far = 10**11
    assert hilbert_cells((10**12,), far, far + 3).ravel().tolist() == [far, far + 1, far + 2]
    cells = hilbert_cells((2**24 + 5, 2, 1), 2**24, 2**24 + 4)
    assert len(np.unique(cells, axis=0)) == 4
    assert (np.abs(np.diff(cells, axis=0)).sum(axis=1) == 1).all()
    assert (cells[:, 2] == 0).all()


def test_memory_goes_with_the_piece():
    def peak(counts, start, stop):
        tracemalloc.start()
        try:
            assert len(hilbert_cells(counts, start, stop)) == stop - start
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    alone = peak((16, 16, 16), 0, 4096)
    for counts in ((1000, 1000, 1000), (7, 12345, 9876), (10**6, 10**6, 10**6)):
        assert peak(counts, 10**8 + 1, 10**8 + 4097) < 4 * alone
