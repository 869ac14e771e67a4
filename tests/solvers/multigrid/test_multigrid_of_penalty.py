"""Multigrid for interior penalty: few iterations, and the solution of a direct solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import spsolve

import femops
from femops.errors import SolverError
from support import fixtures

one_thread = fixtures.one_thread

DISC = femops.read_mesh(femops.sample("disc.mesh"))
MESHES = {"box": femops.box((3, 3, 3)), "disc": DISC}


@pytest.mark.parametrize(
    ("mesh", "order", "family"),
    [
        *(("box", 2, "gauss"), ("disc", 2, "bernstein"), ("disc", 4, "hermite")),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                *(("disc", 1, "gauss"), ("disc", 4, "gauss"), ("disc", 3, "bernstein")),
                *(("box", 2, "hermite"), ("box", 3, "hermite")),
                *(("disc", 1, "hermite"), ("disc", 8, "hermite")),
            )
        ),
    ],
)
def test_iterations_and_solution(mesh: str, order: int, family: Any) -> None:
    V = femops.L2(MESHES[mesh], order, family=family)
    A, b = femops.interior_penalty(V), femops.load(V, lambda x: 1.0 + x[0])
    u, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-10)
    assert info.iterations <= 8  # continuous functions of these orders take 5
    exact = spsolve(A.assemble().tocsc(), b)
    assert np.linalg.norm(u - exact) < 1e-8 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    "kind", ["jumps", "elastic", *(pytest.param(k, marks=pytest.mark.exhaustive) for k in "hd")]
)
def test_conductivities_that_jump_and_elasticity(kind: str) -> None:
    """Also of Hermite functions, and by directions."""
    V = femops.L2(DISC, 2, 1 + (kind == "elastic"), family="hermite" if kind == "h" else "gauss")
    if kind == "elastic":
        A, f = femops.elastic_interior_penalty(V, 1.0, 2.0), (1.0, -1.0)
    elif kind == "d":
        A, f = femops.interior_penalty(V, np.diag([1.0, 3.0]), penalty=40.0), 1.0
    else:
        K = femops.L2(DISC, order=0)
        jumps = 10.0 ** np.random.default_rng(0).integers(-2, 3, K.size)
        A, f = femops.interior_penalty(V, femops.GridFunction(K, jumps)), 1.0
    M = femops.multigrid(A)
    assert femops.cg(A, femops.load(V, f), M=M, rtol=1e-8)[1].iterations <= 30


@pytest.mark.parametrize("order", [1, 3])
def test_nodes_inside_elements_where_the_conductivity_jumps(order: int) -> None:
    """As few iterations as without jumps, and with nodes on the faces."""
    V = femops.L2(femops.box((8, 8)), order)
    K = femops.L2(V.mesh, order=0)
    quarters = K.interpolate(lambda x: np.where((x[0] < 0.5) ^ (x[1] < 0.5), 1.0, 1e3))
    A = femops.interior_penalty(V, femops.GridFunction(K, quarters))
    b = femops.load(V, 1.0)
    u, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-9)
    assert info.iterations <= 7
    exact = spsolve(A.assemble().tocsc(), b)
    assert np.linalg.norm(u - exact) < 1e-7 * np.linalg.norm(exact)


def test_operators_without_faces_are_refused() -> None:
    one = femops.interior_penalty(femops.L2(femops.box((1, 1)), order=2))
    for A in (femops.mass(femops.L2(DISC, order=2)), one):
        with pytest.raises(SolverError, match=r"no integrals over faces.*block_jacobi\(A\)"):
            femops.multigrid(A)
    b = femops.load(one.space, 1.0)
    np.testing.assert_allclose(one @ (femops.block_jacobi(one) @ b), b, atol=1e-12)
    jumps = femops.form(lambda u: {"jump": u.jump}, femops.L2(DISC, order=2), faces="interior")
    with pytest.raises(SolverError, match="has only integrals over faces between elements"):
        femops.multigrid(jumps)
