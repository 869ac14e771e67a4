"""Triangles and tetrahedra on many ranks, against the same in one process."""

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from femops.parallel.comm import gathered
from support.cases.levels import LEVELS
from support.refined import shared
from support.simplex_meshes import MESHES, curved, graded

pytestmark = pytest.mark.filterwarnings("ignore:.*ranks have no elements")


def form(u, x):
    return {"value": (2 + x[0]) * u, "grad": (1 + x[-1] ** 2) * u.grad}


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("name", MESHES)
def test_operators(comm, name, dim):
    mesh = MESHES[name](dim)
    for p in (1, 3):
        V = femops.H1(mesh, p)
        matrix = femops.form(form, V).assemble()
        x = np.random.default_rng(p).standard_normal((V.size, 2))
        y, most = matrix @ x, abs(matrix).sum(axis=1).max() * abs(x).max()
        for cut in shared(mesh, comm):
            W = femops.H1(cut, p)
            mine = np.empty(W.restriction.ndofs, dtype=np.int64)
            mine[W.restriction.indices] = V.restriction.indices[cut.part.elements]
            mine = mine[: W.ndofs]
            assert comm.sum(len(mine)) == V.size
            for level in LEVELS:
                A = femops.form(form, W, level=level)
                assert abs(A @ x[mine, 0] - y[mine, 0]).max(initial=0.0) < 1e-14 * most
                assert abs(A @ x[mine] - y[mine]).max(initial=0.0) < 1e-14 * most
            assert abs(A.diagonal() - matrix.diagonal()[mine]).max(initial=0.0) < 1e-14 * most


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("make", [graded, curved])
def test_solutions_and_bits(comm, make):
    mesh = femops.box((4, 3, 3)).simplices() if make is graded else make(2, n=5)
    found = []
    for cut in (
        femops.distribute(mesh, Serial(), reproducible=True),
        femops.distribute(mesh if comm.rank == 0 else None, comm, reproducible=True),
    ):
        V = femops.H1(cut, 3)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        b = A.rhs(femops.load(V, lambda x: 1 + x[0]), 0.0)
        u, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-10)
        assert info.iterations < 12
        wave = V.interpolate(lambda x: np.cos(3 * x[0]))
        product = A @ wave + A.at_level("matrix-free") @ wave
        order = np.argsort(gathered(V.comm, V.numbering.whole[: V.ndofs]))
        values = [gathered(V.comm, each)[order] for each in (product, b, u)]
        x = gathered(V.comm, V.dof_coordinates())[order]
        found.append([info.iterations, *(each[np.lexsort(x.T)] for each in values)])
    one, many = found
    assert one[0] == many[0]
    assert np.array_equal(one[1], many[1])
    assert np.array_equal(one[2], many[2])
    assert abs(one[3] - many[3]).max() < 1e-9 * abs(one[3]).max()


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("dim", [2, 3])
def test_faces_between_elements_of_two_ranks(comm, dim):
    mesh = graded(dim)
    V = femops.L2(mesh, 2)
    matrix = femops.interior_penalty(V).assemble()
    x = np.random.default_rng(dim).standard_normal(V.size)
    y, most = matrix @ x, abs(matrix).sum(axis=1).max() * abs(x).max()
    for cut in shared(mesh, comm):
        W = femops.L2(cut, 2)
        mine = np.empty(W.restriction.ndofs, dtype=np.int64)
        mine[W.restriction.indices] = V.restriction.indices[cut.part.elements]
        mine = mine[: W.ndofs]
        for level in ("partial", "full"):
            A = femops.interior_penalty(W, level=level)
            assert abs(A @ x[mine] - y[mine]).max(initial=0.0) < 1e-14 * most
