"""Multigrid whose levels relax by the nodes of each element, by fast diagonalisation."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse.linalg import spsolve

import femops
from femops.errors import ConvergenceWarning, SolverError
from femops.operators.execution.modes import ElementModes, looks_stretched
from femops.operators.execution.transfer import compiled_modes
from femops.solvers.multigrid import choice
from femops.solvers.multigrid.choice import Elements
from femops.solvers.multigrid.elements import element_matrices
from femops.solvers.multigrid.level_matrices import energies
from support.cases.multigrid import SQUARE, noise, poisson
from support.cuda import guarded
from support.cuda.guarded import GuardedDevice

device = guarded.small_device


def graded(x: Any) -> Any:
    """Cells become flat towards x = 0, and all are bent."""
    return np.stack([np.expm1(3.0 * x[0]) / 19.0, *(x[1:] + 0.05 * np.sin(5.0 * x[0]))])


def iterations(A: Any, M: Any) -> int:
    b = noise(A)
    x, info = femops.cg(A, b, M=M, rtol=1e-9)
    assert np.linalg.norm(b - A @ x) <= 2e-9 * np.linalg.norm(b)
    return int(info.iterations)


def positive(n: int, rng: Any) -> Any:
    half = rng.standard_normal((n, n))
    return half @ half.T + n * np.eye(n)


@pytest.mark.parametrize(
    ("dim", "order", "ncomp", "kind"), [(1, 3, 2, "f8"), (2, 4, 1, "f4"), (3, 2, 2, "f8")]
)
def test_modes_are_inverses_of_kronecker_sums(
    dim: int, order: int, ncomp: int, kind: str, device: GuardedDevice
) -> None:
    """Of any symmetric and positive 1-D matrices."""
    rng, n = np.random.default_rng(dim), order + 1
    K, M = positive(n, rng), positive(n, rng)
    values, vectors = eigh(K, M)
    for where in (None, device):
        V = femops.H1(femops.box((3, 2, 3)[:dim]), order, ncomp, device=where)
        elements = V.restriction.indices
        factors, scales = rng.random((len(elements), dim + 1)) + 0.1, rng.random(len(elements))
        x = rng.standard_normal((V.size // ncomp, ncomp)).astype(kind)
        expected = np.zeros_like(x, dtype=float)
        for dofs, given, scale in zip(elements, factors, scales, strict=True):
            total = np.zeros((n**dim, n**dim))
            for along, factor in enumerate(given):
                term = np.eye(1)
                for d in range(dim):
                    term = np.kron(K if d == along else M, term)
                total += factor * term
            expected[dofs] += scale * np.linalg.solve(total, x[dofs])
        y = V.memory.put(np.zeros(V.size, kind))
        compiled = compiled_modes(V, ElementModes(vectors, values, factors, scales), np.dtype(kind))
        compiled.apply(V.memory.put(x.reshape(-1)), y)
        off = abs(V.memory.get(y) - expected.reshape(-1)).max() / abs(expected).max()
        assert off < (1e-5 if kind == "f4" else 1e-12)


@pytest.mark.parametrize("ncomp", [1, 2])
def test_blocks_are_parts_of_the_matrix_where_elements_are_alike(ncomp: int) -> None:
    """The sum of the inverses of these parts, each between square roots of shares."""
    mesh = femops.box((3, 4), upper=(1.0, 4.0), periodic=True)
    V, low = (femops.H1(mesh, order, ncomp) for order in (3, 1))
    A, B = (femops.diffusion(W, kappa=2.0) + femops.mass(W, rho=5.0) for W in (V, low))
    matrix, expected = A.assemble().toarray(), np.zeros((V.size, V.size))
    dofs = V.restriction.indices
    root = np.sqrt(1.0 / np.bincount(dofs.reshape(-1)))
    for nodes, c in product(dofs, range(ncomp)):
        part, at = np.ix_(nodes * ncomp + c, nodes * ncomp + c), root[nodes]
        expected[part] += at[:, np.newaxis] * np.linalg.inv(matrix[part]) * at
    blocks = Elements(V, energies(element_matrices(B), 2), 1.0 / A.diagonal())
    scales = blocks.scales[: V.size]
    found = np.zeros((V.size, V.size))
    for k, unit in enumerate(np.eye(V.size)):
        blocks.apply(scales * unit, found[k])
    np.testing.assert_allclose(found * scales, expected, atol=1e-12 * abs(expected).max())


@pytest.mark.parametrize(
    ("make", "fewer"),
    [
        (lambda: femops.box((4, 4, 4), mapping=graded), 0.7),
        (lambda: femops.box((9, 4), mapping=graded), 0.7),
        (lambda: femops.disc(1).refine(3), 0.75),
    ],
)
def test_stretched_elements_are_seen(make: Any, fewer: float) -> None:
    A = poisson(make(), 4)
    M = femops.multigrid(A)
    assert M.relaxation == "elements"
    assert "couplings in an element differ by a factor of " in M.relaxation_reason
    assert iterations(A, M) <= 11
    assert iterations(A, M) <= fewer * iterations(A, femops.multigrid(A, relaxation="points"))


def plate(order: int, cells: int, thin: float, **more: Any) -> Any:
    mesh = femops.box((cells, cells, cells), upper=(thin, thin, 1.0))
    V = femops.H1(mesh, order, 3, **more)
    return femops.elasticity(V, E=1.0, nu=0.3).constrained(V.boundary_dofs())


def test_stretched_fields_take_elements_where_these_are_quicker(device: GuardedDevice) -> None:
    counts, found = [], []
    for where in (None, device):
        A = plate(3, 3, 20.0, device=where)
        M = femops.multigrid(A)
        assert M.relaxation == "elements"
        reason = r"by points a cycle has the factor 0\.\d{4}, by elements 0\.\d{4}$"
        assert re.fullmatch(reason, M.relaxation_reason)
        x, info = femops.cg(A, A.space.memory.put(noise(A)), M=M, rtol=1e-9)
        found.append(A.space.memory.get(x))
        counts.append(info.iterations)
    A = plate(3, 3, 20.0)
    expected = spsolve(A.assemble().tocsc(), noise(A))
    for x in found:
        np.testing.assert_allclose(x, expected, atol=1e-7 * abs(expected).max())
    assert counts[0] == counts[1]
    assert counts[0] <= 0.5 * iterations(A, femops.multigrid(A, relaxation="points"))


@pytest.mark.parametrize("family", [pytest.param("gll", marks=pytest.mark.exhaustive), "hermite"])
def test_interior_penalty_on_stretched_cells(family: Any) -> None:
    V = femops.L2(femops.box((8, 8), upper=(20.0, 1.0)), 3, family=family)
    A = femops.interior_penalty(V)
    M = femops.multigrid(A)
    assert M.relaxation == "elements"
    b = femops.load(V, 1.0)
    x, info = femops.cg(A, b, M=M, rtol=1e-9)
    expected = spsolve(A.assemble().tocsc(), b)
    np.testing.assert_allclose(x, expected, atol=1e-7 * abs(expected).max())
    _, slow = femops.cg(A, b, M=femops.multigrid(A, relaxation="points"), rtol=1e-9)
    assert info.iterations <= 0.8 * slow.iterations


def test_stretched_fields_keep_points_that_suffice() -> None:
    M = femops.multigrid(plate(2, 3, 3.0))
    assert (M.relaxation, M.relaxation_reason) == ("points", "they suffice")


def test_blocks_of_large_fields_are_taken_where_they_are_quicker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    V = femops.H1(femops.box((8, 8), upper=(10.0, 1.0)), 3, 2)
    A = femops.elasticity(V, E=1.0, nu=0.3).constrained(V.boundary_dofs())
    assert femops.multigrid(A).relaxation == "lines"
    monkeypatch.setattr(choice, "_IN_CACHE", 100)  # as if cycles by lines took ten times as long
    assert femops.multigrid(A).relaxation == "elements"


def test_iterations_hardly_grow_on_the_disc() -> None:
    """Its elements near the rim become slenderer where it is refined."""
    meshes = [femops.disc(1).refine(times) for times in range(1, 5)]
    counts = [iterations(A, femops.multigrid(A)) for A in (poisson(m, 4) for m in meshes)]
    assert max(counts) <= 8
    assert max(counts) - min(counts) <= 2


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: femops.box((4, 3, 3)), False),
        (lambda: femops.box((4, 4), upper=(1.0, 2.1)), True),
        (lambda: femops.disc(1).refine(2), True),
        (lambda: femops.box((5,)), False),
    ],
)
def test_kernels_are_compiled_ahead_where_meshes_look_stretched(make: Any, expected: bool) -> None:
    mesh = make()
    assert looks_stretched(mesh) == expected
    if mesh.dim > 1:  # small problems of one direction have factors alone
        M = femops.multigrid(poisson(mesh.refine(2), 2))
        assert (M.relaxation == "elements") == expected


def test_coefficients_that_vary_in_an_element() -> None:
    def kappa(x: Any) -> Any:
        return np.exp(5.0 * np.sin(7.0 * x[0]) * np.cos(5.0 * x[1]))

    A = poisson(femops.box((8, 8)), 4, kappa=kappa)
    counts = [iterations(A, femops.multigrid(A, relaxation=r)) for r in ("points", "elements")]
    assert counts[1] <= counts[0]


def test_a_reaction_that_outweighs_diffusion_is_seen() -> None:
    V = femops.H1(femops.box((12, 4), mapping=graded), 3)
    A = (femops.diffusion(V, kappa=1e-6) + femops.mass(V)).constrained(V.boundary_dofs())
    assert femops.multigrid(A).relaxation == "points"  # no direction is strong
    assert iterations(A, femops.multigrid(A, relaxation="elements")) <= 6


def test_elements_that_are_not_possible_are_replaced_aloud() -> None:
    fine = femops.box((40, 40))
    for A in (poisson(fine, 1), femops.interior_penalty(femops.L2(fine, 1))):
        with pytest.warns(ConvergenceWarning, match="'elements' is not.* a space of order 2"):
            assert femops.multigrid(A, relaxation="elements").relaxation == "points"
    with pytest.raises(SolverError, match="the matrix of an element is not positive"):
        Elements(femops.H1(SQUARE, 2), np.zeros((SQUARE.num_elements, 3)), np.ones(81))
