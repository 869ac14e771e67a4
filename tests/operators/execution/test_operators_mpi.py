"""Operators on many ranks: what all ranks compute is what one does, every form at every level."""

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from support.cases.kernels import bend, make_mesh, smooth
from support.cases.levels import cover
from support.cases.rank_operators import build, compare, every_fifth, own_piece, results, whole_mesh


def check(case, comm, alone, ranks, tolerance):
    """What ranks have against what one has alone, assembled too."""
    mine, matrix = compare(case, comm, alone, ranks, tolerance)
    rows, out = mine.assemble(), own_piece(mine.test_space)
    assert rows.shape == (mine.test_space.size, matrix.shape[1])
    most = abs(matrix).max()
    assert abs(rows - matrix[out]).max() <= tolerance * most if rows.shape[0] else True


@pytest.mark.sample(9)
@pytest.mark.parallel(2, 3, 4, 8)
@pytest.mark.parametrize("case", cover(), ids=str)
def test_equal_to_serial(comm, case):
    mesh = whole_mesh(case)
    check(case, comm, lambda: mesh, femops.distribute(mesh, comm), 10 * case.tolerance)


@pytest.mark.sample(9)
@pytest.mark.parallel(2, 3, 4, 8)
@pytest.mark.parametrize("case", cover()[::-1], ids=str)
def test_the_same_bits(comm, case):
    """On any number of ranks."""
    mesh = make_mesh(case.mesh, case.dim, "blocks")
    ranks = femops.distribute(mesh, comm, reproducible=True)
    assert comm.max(int(ranks.num_elements == 0)) == 0

    def alone():
        return femops.distribute(mesh, Serial(), reproducible=True)

    check(case, comm, alone, ranks, 0.0)


@pytest.mark.sample(40)
@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("case", cover(), ids=str)
def test_many_vectors(comm, case, reproducible):
    """A panel of vectors: what one has, with the same bits if the mesh is reproducible."""
    mesh = whole_mesh(case)
    mine = build(case, femops.distribute(mesh, comm, reproducible=reproducible))
    alone = femops.distribute(mesh, Serial(), reproducible=reproducible)
    whole = build(case, alone if reproducible else mesh)
    u = np.random.default_rng(5).standard_normal((whole.space.size, 19)).astype(case.dtype)
    gap = np.abs(mine @ u[own_piece(mine.space)] - (whole @ u)[own_piece(mine.test_space)])
    tolerance = 0.0 if reproducible else 10 * case.tolerance
    assert gap.max(initial=0.0) <= tolerance * np.abs(whole @ u).max()


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("level", ["full", "element", "partial", "matrix-free"])
def test_reproducible_where_a_rank_has_little(comm, dim, level):
    """One element, or one face: libraries compute a single row in another way than many."""

    def results_of(ranks):
        V = femops.H1(femops.box((17,) * dim, mapping=bend, comm=ranks, reproducible=True), 3)
        A = femops.diffusion(V, smooth, level=level) + femops.mass(V, level=level)
        if dim > 1:
            A = A + femops.boundary_mass(V, smooth, level=level)
        u = V.interpolate(smooth)
        found = {"load": femops.load(V, smooth), **results(A.constrained(every_fifth(V)), u, True)}
        return V, found, A.assemble(), [femops.l2_norm(V, u), femops.integrate(V, smooth)]

    V, found, rows, norms = results_of(comm)
    _, serial, matrix, expected = results_of(Serial())
    out = own_piece(V)
    assert norms == expected
    assert all(np.array_equal(found[name], values[out]) for name, values in serial.items())
    assert abs(rows - matrix[out]).max() == 0.0 if rows.shape[0] else True
