"""Multigrid on locally refined meshes: iterations do not grow with the cycles of refinement."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.linalg import spsolve

import femops
from femops_meshes import Mesh

RTOL = 1e-9


def iterations(mesh: Mesh, order: int, *, exact: bool = False) -> int:
    """Iterations of Poisson's equation; ``exact`` compares the solution with SciPy's factors."""
    V = femops.H1(mesh, order)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, 1.0))
    u, info = femops.cg(A, b, M=femops.multigrid(A), rtol=RTOL)
    assert info.converged
    if exact:
        found = spsolve(A.assemble().tocsc(), b)
        assert np.abs(u - found).max() <= 1e-6 * np.abs(found).max()
    return info.iterations


@pytest.mark.parametrize("order", [2, 4])
def test_ten_cycles_towards_a_corner(order: int) -> None:
    mesh, found = femops.l_shape(4), list[int]()
    for cycle in range(10):
        found.append(iterations(mesh, order, exact=cycle == 6))
        near = np.linalg.norm(mesh.element_centers(), axis=1)
        mesh = mesh.refined(near < np.quantile(near, 0.12))
    assert mesh.forest is not None
    assert mesh.forest.depth == 10
    assert max(found) <= iterations(femops.l_shape(8), order) + 2


@pytest.mark.parametrize("order", [2, 3])
def test_cycles_in_space(order: int) -> None:
    mesh = femops.box((2, 2, 2), mapping=lambda x: x + 0.05 * np.sin(3 * x[::-1]))
    most = iterations(mesh.refine(1), order) + 2
    for _ in range(3):
        mesh = mesh.refined(lambda x: np.linalg.norm(x - 0.5, axis=0) < 0.4)
        assert iterations(mesh, order, exact=mesh.num_elements < 100) <= most


@pytest.mark.parametrize("dim", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_a_coefficient_that_jumps(dim: int) -> None:
    """deal.II's step-50: an L-shape with factors 1 and 100, refined where the error is."""
    mesh = femops.l_shape(2, dim=dim).refine(1)
    strong = (mesh.element_centers() < -0.5).any(axis=1)
    mesh = mesh.with_attributes(1 + strong.astype(int))

    def problem(mesh: Mesh) -> tuple[femops.Operator, femops.Vector]:
        V = femops.H1(mesh, 2)
        kappa = femops.by_attribute(mesh, {1: 1.0, 2: 100.0})
        A = femops.diffusion(V, kappa).constrained(V.boundary_dofs())
        return A, A.rhs(femops.load(V, 1.0))

    for on, _, _ in femops.adapt.loop(problem, mesh, max_dofs=8000, mark=0.5):
        A, b = problem(on)
        info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-8)[1]
        assert info.iterations <= 10
