"""Inverse blocks of elements beside those of the assembled matrix."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.sparse.linalg import spsolve

import femops
from femops.errors import OperatorError, SolverError
from femops.operators.assembly import csr
from femops.solvers.block_jacobi import DenseBlocks, FactoredBlocks
from support.cases.kernels import bend, shear, turned
from support.cuda import guarded
from support.cuda.guarded import GuardedDevice

device = guarded.small_device

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


BENT = turned(femops.box((5, 3), mapping=bend))
SHEARED = turned(femops.box((5, 3, 2), mapping=shear))


@pytest.mark.parametrize(
    ("mesh", "order", "options"),
    [
        (femops.box((5,)), 4, {"family": "gll", "ncomp": 2}),
        (BENT, 3, {}),
        (BENT, 4, {"family": "gll"}),
        (BENT, 3, {"family": "hermite", "ncomp": 2}),
        (BENT, 0, {}),
        (SHEARED, 2, {"family": "hermite"}),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_mass_is_inverted_by_directions(mesh, order, options, dtype):
    """With p + 1 points, by 1-D matrices and one number at each point: beside a direct solve."""
    V = femops.L2(mesh, order, **options)
    scales = np.logspace(-15, 15, mesh.num_elements)
    rho = femops.GridFunction(W := femops.L2(mesh, 0), scales[: W.size])
    B = femops.mass(V, rho, quadrature=order + 1, dtype=dtype)
    M = femops.block_jacobi(B)
    assert isinstance(M, FactoredBlocks)
    x = np.random.default_rng(0).standard_normal(V.size).astype(dtype)
    matrix = femops.mass(V, rho, quadrature=order + 1).assemble()
    expected = spsolve(matrix.tocsc(), x.astype(float))
    blocks = (mesh.num_elements, -1)
    errors = np.abs(M @ x - expected).reshape(blocks).max(axis=1)
    most = np.abs(expected).reshape(blocks).max(axis=1)
    assert (errors < (1e-12 if dtype == "float64" else 1e-4) * most).all()
    again = pickle.loads(pickle.dumps(M))
    np.testing.assert_array_equal(again @ x, M @ x)


@pytest.mark.parametrize("level", ["partial", "matrix-free", "element"])
def test_parallelepipeds_with_any_rule(level):
    """The product of inverse 1-D mass matrices, whatever the number of points."""
    V = femops.L2(SHEARED, 3, family="gll", ncomp=2)
    B = -2.0 * femops.mass(V, 3.0, level=level)
    M, x = femops.block_jacobi(B), np.random.default_rng(0).standard_normal(V.size)
    assert isinstance(M, FactoredBlocks)
    np.testing.assert_allclose(M @ x, spsolve(B.assemble().tocsc(), x), rtol=1e-10)


@pytest.mark.parametrize("kind", ["points", "directions", "dense"])
def test_a_device_inverts_mass_as_the_host(kind: str, device: GuardedDevice) -> None:
    mesh, points = (SHEARED, 5) if kind == "directions" else (BENT, 3 + (kind == "dense"))
    V, W = (femops.L2(mesh, 2, ncomp=2, device=d) for d in (None, device))
    rho = femops.GridFunction(F := femops.L2(mesh, 0), np.logspace(-9, 9, F.size))
    here, there = (-3.0 * femops.mass(X, rho, quadrature=points) for X in (V, W))
    x, M = np.random.default_rng(0).standard_normal(V.size), femops.block_jacobi(there)
    assert isinstance(M, DenseBlocks if kind == "dense" else FactoredBlocks)
    expected = femops.block_jacobi(here) @ x
    errors = np.abs((M @ device.upload(x)).get() - expected).reshape(F.size, -1).max(axis=1)
    assert (errors < 1e-12 * np.abs(expected).reshape(F.size, -1).max(axis=1)).all()


def test_other_blocks_are_dense():
    V, twin = femops.L2(BENT, 2), femops.L2(BENT, 2, ncomp=2)
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    sheared = femops.L2(SHEARED, 2)
    inverted = [
        femops.mass(V),  # more points than nodes, and bent elements
        femops.mass(V, lambda x: 2.0 + x[0], quadrature=3) + femops.mass(V, quadrature=3),
        # a number of each element, and one of each point
        femops.mass(sheared, quadrature=3) + femops.mass(sheared, lambda x: x[0], quadrature=3),
        femops.form(lambda u, c: {"value": c @ u}, twin, c=turn, quadrature=3),
    ]
    with_faces = femops.mass(V, quadrature=3) + femops.interior_penalty(V)
    for A in (with_faces, *inverted):
        M, x = femops.block_jacobi(A), np.random.default_rng(0).standard_normal(A.shape[1])
        assert isinstance(M, DenseBlocks)
        if A is not with_faces:
            np.testing.assert_allclose(M @ (A @ x), x, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mesh", [BENT, SHEARED], ids=["at points", "by directions"])
def test_no_inverse_in_the_type(mesh):
    """A reciprocal overflows."""
    V = femops.L2(mesh, 1)
    values = np.append(1e-43, np.ones(mesh.num_elements - 1))
    rho = femops.GridFunction(femops.L2(mesh, 0), values)
    A = femops.mass(V, rho, quadrature=2, dtype="float32")
    with pytest.raises(SolverError, match="1 elements have singular blocks"):
        femops.block_jacobi(A)


def test_blocks_that_are_singular_to_round_off() -> None:
    """A density that vanishes at one point of as many as there are nodes."""
    V = femops.L2(SHEARED, 2)
    rho = np.ones((SHEARED.num_elements, 27))
    rho[3, 7] = 0.0
    with pytest.raises(SolverError, match="1 elements have singular blocks, first number 3"):
        femops.block_jacobi(femops.mass(V, rho, quadrature=3))


@pytest.mark.parametrize("scale", [1e-250, 1e200])
def test_sizes_of_blocks_do_not_matter(scale: float) -> None:
    V = femops.L2(BENT, 2)
    given = femops.interior_penalty(V, scale), femops.interior_penalty(V)
    M, N = map(femops.block_jacobi, given)
    x = np.random.default_rng(0).standard_normal(V.size)
    np.testing.assert_allclose(scale * (M @ x), N @ x, rtol=1e-10)


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
    zero = femops.mass(V, lambda x: np.where(x[0] > 0, 1.0, 0.0), quadrature=2)
    with pytest.raises(SolverError, match="elements have singular blocks, first number"):
        femops.block_jacobi(zero)
    monkeypatch.setattr(csr, "available_memory", lambda: 100)
    with pytest.raises(OperatorError, match=r"block_jacobi needs .* GiB"):
        femops.block_jacobi(femops.mass(V))
