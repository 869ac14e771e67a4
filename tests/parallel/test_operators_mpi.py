"""Operators on many ranks: what all ranks compute is what one does, every form at every level."""

import pytest

import femops
from femops.parallel import Serial
from kernel_cases import make_mesh
from level_cases import cover
from parallel.operator_cases import compare, own_piece, whole_mesh


def check(case, comm, alone, ranks, tolerance):
    """What ranks have against what one has alone, assembled too."""
    mine, whole = compare(case, comm, alone, ranks, tolerance)
    out = own_piece(mine.test_space)
    rows, matrix = mine.assemble(), whole.assemble()
    assert rows.shape == (mine.test_space.size, whole.space.size)
    most = abs(matrix).max()
    assert abs(rows - matrix[out]).max() <= tolerance * most if rows.shape[0] else True


def check_equal(comm, case):
    mesh = whole_mesh(case)
    check(case, comm, mesh, femops.distribute(mesh, comm), 10 * case.tolerance)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("case", cover(), ids=str)
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_equal_to_serial(comm, case):
    check_equal(comm, case)


@pytest.mark.parallel(1, 4, 8)
@pytest.mark.parametrize("case", cover()[::8], ids=str)
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_equal_to_serial_on_more(comm, case):
    check_equal(comm, case)


def check_reproducible(comm, case):
    mesh = make_mesh(case.mesh, case.dim, "blocks")
    alone = femops.distribute(mesh, Serial(), reproducible=True)
    ranks = femops.distribute(mesh, comm, reproducible=True)
    assert comm.max(int(ranks.num_elements == 0)) == 0
    check(case, comm, alone, ranks, 0.0)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("case", cover(), ids=str)
def test_reproducible(comm, case):
    """The same bits on any number of ranks."""
    check_reproducible(comm, case)


@pytest.mark.parallel(4, 8)
@pytest.mark.parametrize("case", cover()[1::8], ids=str)
def test_reproducible_on_more(comm, case):
    check_reproducible(comm, case)
