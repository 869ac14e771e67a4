"""The restriction and its transpose."""

import numpy as np
import pytest

from femops.errors import SpaceError, VectorError
from femops.spaces.restriction import ElementRestriction

INDICES = np.array([[0, 1, 2], [2, 3, 4], [4, 1, 5]])


@pytest.fixture
def restriction():
    return ElementRestriction(INDICES, 6)


@pytest.mark.parametrize("trailing", [(), (2,), (2, 3)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_adjoint_and_matrix(restriction, dtype, tolerance, trailing):
    rng = np.random.default_rng(1)
    u = rng.normal(size=(6, *trailing)).astype(dtype)
    v = rng.normal(size=(3, 3, *trailing)).astype(dtype)
    gathered, added = restriction.gather(u), restriction.scatter_add(v)
    assert (gathered.dtype, added.dtype) == (dtype, dtype)
    assert (gathered.shape, added.shape) == (v.shape, u.shape)
    assert np.vdot(gathered, v) == pytest.approx(np.vdot(u, added), rel=tolerance)
    matrix = np.zeros(restriction.shape)
    matrix[np.arange(9), INDICES.ravel()] = 1
    expected = np.tensordot(matrix.T, v.reshape(9, *trailing), axes=1)
    np.testing.assert_allclose(added, expected, rtol=10 * tolerance)


def test_multiplicity_owner_and_first_touch(restriction):
    np.testing.assert_array_equal(restriction.multiplicity(), [1, 2, 2, 1, 2, 1])
    np.testing.assert_array_equal(restriction.owner, [0, 1, 2, 4, 5, 8])
    np.testing.assert_array_equal(restriction.first_touch, [0, 3, 5, 6])


def test_indices_are_int64_contiguous_and_fixed():
    indices = np.asfortranarray(INDICES.astype(np.int32))
    table = ElementRestriction(indices, 6).indices
    assert table.dtype == np.int64
    assert table.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0] = 1


def test_bad_vectors_and_tables_are_refused(restriction):
    for vector, match in (
        (np.zeros(7), r"l_vec has shape \(7,\), the restriction 6 dofs"),
        (np.zeros(6, dtype=int), r"l_vec has type int64.*astype\(numpy.float64\)"),
        (np.zeros(6, dtype=complex), "l_vec has type complex128"),
        ([0.0] * 6, "l_vec is a list"),
        (np.array(1.0), r"l_vec has shape \(\)"),
    ):
        with pytest.raises(VectorError, match=match):
            restriction.gather(vector)
    for vector in (np.zeros((3, 2)), np.zeros(9), np.zeros((3, 3), dtype=int)):
        with pytest.raises(VectorError, match="e_vec has"):
            restriction.scatter_add(vector)
    for indices, match in (
        (np.zeros(3, dtype=int), "shape"),
        (np.zeros((2, 3)), "float64"),
        (np.array([[0, -1]]), "from -1 to 0"),
        (np.array([[0, 6]]), "must lie in 0 to 5"),
    ):
        with pytest.raises(SpaceError, match=match):
            ElementRestriction(indices, 6)


def test_repr(restriction):
    assert repr(restriction) == "ElementRestriction(3 elements of 3 nodes, 6 dofs)"


def test_sums_by_blocks_and_shares(restriction):
    """Blocks of elements add in the order of one table, so all bits are the same."""
    v = np.random.default_rng(2).normal(size=(3, 3, 2))
    summed = restriction.sum_blocks([(0, v[:1]), (1, v[1:])], (2,))
    np.testing.assert_array_equal(summed, restriction.scatter_add(v))
    for dtype in (np.float32, np.float64):
        shares = restriction.shares(dtype)
        assert shares.dtype == dtype
        np.testing.assert_array_equal(shares, 1 / restriction.multiplicity().astype(dtype))


def test_indices_that_are_written_later_do_not_change_a_restriction():
    table = np.array([[0, 1], [1, 2]])
    restriction = ElementRestriction(table, 3)
    table[:] = 0
    assert restriction.gather(np.arange(3.0)).tolist() == [[0.0, 1.0], [1.0, 2.0]]
