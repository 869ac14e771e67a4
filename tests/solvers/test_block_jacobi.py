"""Inverse blocks of elements beside those of the assembled matrix."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, SolverError
from femops.operators.assembly import csr

DISC = femops.read_mesh(femops.sample("disc.mesh"))


@pytest.mark.parametrize("mesh", [femops.box((4,)), DISC], ids=["line", "disc"])
@pytest.mark.parametrize("ncomp", [1, 2])
def test_blocks_are_those_of_the_matrix(mesh: femops.Mesh, ncomp: int) -> None:
    V = femops.L2(mesh, order=2, ncomp=ncomp)
    A = femops.interior_penalty(V) + 0.3 * femops.mass(V)
    matrix, n = A.assemble().toarray(), V.p1d**V.dim * ncomp
    M = femops.block_jacobi(A)
    wanted = np.zeros_like(matrix)
    for e in range(mesh.num_elements):
        part = slice(e * n, (e + 1) * n)
        wanted[part, part] = np.linalg.inv(matrix[part, part])
    x = np.random.default_rng(0).standard_normal(V.size)
    np.testing.assert_allclose(M @ x, wanted @ x, rtol=1e-10)
    assert M.symmetric


def test_it_inverts_mass_and_helps_a_solve() -> None:
    V = femops.L2(DISC, order=3)
    B, x = femops.mass(V), np.random.default_rng(1).standard_normal(V.size)
    np.testing.assert_allclose(femops.block_jacobi(B) @ (B @ x), x, rtol=1e-9)
    A, b = femops.interior_penalty(V), femops.load(V, 1.0)
    counts = [
        femops.cg(A, b, M=make(A), rtol=1e-8)[1].iterations
        for make in (femops.block_jacobi, femops.jacobi)
    ]
    assert counts[0] < counts[1]


def test_bad_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    V, H = femops.L2(DISC, order=1), femops.H1(DISC, order=1)
    with pytest.raises(SolverError, match="takes an operator of an L2 space"):
        femops.block_jacobi(femops.mass(H))
    with pytest.raises(SolverError, match="elements have singular blocks, first number 0"):
        femops.block_jacobi(femops.diffusion(femops.L2(femops.box((2,)), order=1)))
    with pytest.raises(SolverError, match="no constrained dofs"):
        femops.block_jacobi(femops.mass(V).constrained([0]))
    monkeypatch.setattr(csr, "available_memory", lambda: 100)
    with pytest.raises(OperatorError, match=r"block_jacobi needs .* GiB"):
        femops.block_jacobi(femops.mass(V))
