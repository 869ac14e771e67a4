"""What is decided by a tolerance loses nothing: thin elements, small couplings, uneven rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.basis import Basis1D, Quadrature1D
from femops.geometry.jacobians import ElementClass, LegendreGeometry, classify
from femops_kernels.simd.matrix import Matrix1D
from femops_meshes.coordinates.mapping import lagrange_derivative_matrix
from support.cases.kernels import kernels, random_vector
from support.cases.levels import LEVELS

# --- 1-D matrices in place of points --------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("small", [1e-14, 1e-30, 1e-200])
@pytest.mark.parametrize("level", ["partial", "matrix-free"])
def test_small_couplings_of_components_are_kept(small: float, level: str) -> None:
    V = femops.H1(femops.box((3, 2)), 2, ncomp=2)

    def coupled(u: Any, c: Any) -> dict[str, Any]:
        return {"value": [u[0] + c * u[1], u[1]]}

    A = femops.form(coupled, V, c=small, level=level)
    assert kernels(A) == ["Kernel"]
    M = femops.mass(V, level=level)
    assert kernels(M) == ["SeparableKernel"]
    u = np.zeros(V.shape)
    u[1::2] = random_vector(femops.H1(V.mesh, 2), "float64")
    expected = small * (M @ u)[1::2]
    assert abs((A @ u)[::2] - expected).max() <= 1e-13 * abs(expected).max()
    assert kernels(femops.form(coupled, V, c=0.0, level=level)) == ["SeparableKernel"]


@pytest.mark.parametrize("small", [1e-14, 1e-30])
def test_small_entries_of_a_tensor_are_kept(small: float) -> None:
    """Of linear functions of x and y; nodes are the points, so that masses are diagonal."""
    V = femops.H1(femops.box((2, 2)), 2)
    tensor = np.array([[1.0, small], [small, 1.0]])
    A = femops.diffusion(V, tensor, quadrature=femops.basis.lobatto(3))
    assert kernels(A) == ["Kernel"]
    straight = femops.diffusion(V, np.diag([1.0, 1.0]), quadrature=femops.basis.lobatto(3))
    assert kernels(straight) == ["SeparableKernel"]
    column = np.zeros(V.ndofs)
    column[V.restriction.indices[0, 0]] = 1.0  # a corner
    across = V.restriction.indices[0, 4]  # the middle of its element, on no line with it
    derivatives = Basis1D("gll", 2).gradient(femops.basis.lobatto(3).points)
    weights = femops.basis.lobatto(3).weights
    entry = 2.0 * small * (weights[0] * derivatives[0, 1]) * (weights[1] * derivatives[1, 0])
    assert (A @ column)[across] == pytest.approx(entry, rel=1e-12)


def test_turned_boxes_stay_what_they_are() -> None:
    """Their axes are those of space in another order."""
    mesh = femops.box((2, 3), mapping=lambda x: np.stack([-x[1], x[0]]))
    assert kernels(femops.diffusion(femops.H1(mesh, 2), 3.0)) == ["SeparableKernel"]


# --- geometry -------------------------------------------------------------------------------------


def wavy(size: float, thickness: float, at: float = 0.0) -> femops.Mesh:
    """A layer whose upper side moves by a millionth of its thickness."""

    def move(x: Any) -> Any:
        return np.stack([at + size * x[0], thickness * x[1] * (1.0 + 1e-6 * x[0] * (1 - x[0]))])

    return femops.box((1, 1), order=2, mapping=move)


@pytest.mark.parametrize(
    ("size", "thickness", "at"), [(1.0, 1e-8, 0.0), (1e-3, 1e-11, 1e6), (1e8, 1.0, 0.0)]
)
def test_thin_elements_keep_their_shape(size: float, thickness: float, at: float) -> None:
    mesh = wavy(size, thickness, at)
    assert not LegendreGeometry(mesh).affine
    assert classify(mesh).tolist() == [ElementClass.CURVED]
    V = femops.H1(mesh, 2)
    one = V.interpolate(1.0)
    volume = size * thickness * (1.0 + 1e-6 / 6.0)
    for level in LEVELS:
        found = one @ (femops.mass(V, level=level) @ one)
        # of differences of coordinates that are far away only so much is left
        assert found == pytest.approx(volume, rel=1e-13 if at == 0.0 else 1e-6 * 1e-2)


@pytest.mark.parametrize("shift", [0.0, 1e6, -3.0])
def test_boxes_are_affine_wherever_they_are(shift: float) -> None:
    for order in (1, 2, 3):
        for counts in ((5, 4), (3, 200)):
            lower = (shift, shift / 2)
            upper = (shift + 1.0, shift / 2 + 1.0)
            mesh = femops.box(counts, lower=lower, upper=upper, order=order)
            assert LegendreGeometry(mesh).affine
            assert set(classify(mesh)) == {ElementClass.AFFINE}


# --- even and odd parts ---------------------------------------------------------------------------


def rules(n: int) -> list[Quadrature1D]:
    return [femops.basis.gauss(n), femops.basis.lobatto(n)]


@pytest.mark.parametrize("family", ["gll", "gauss", "bernstein", "hermite"])
def test_matrices_of_the_librarys_own_points_are_symmetric(family: Any) -> None:
    for p in (*range(1, 13), 24, *(() if family == "hermite" else (64,))):
        basis = Basis1D(family, p)
        for rule in (rule for more in (1, 2, 3, p + 1) for rule in rules(p + more)):
            b, g = basis.interpolation(rule.points), basis.gradient(rule.points)
            slopes = lagrange_derivative_matrix(rule.points, rule.points)
            mass, stiffness = (b.T * rule.weights) @ b, (g.T * rule.weights) @ g
            found = [Matrix1D(m).symmetry for m in (b, g, slopes, mass, stiffness)]
            assert found == [1, -1, -1, 1, 1]


@pytest.mark.parametrize("level", ["partial", "matrix-free"])
@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize("uneven", [2e-13, 1e-12])
def test_a_rule_that_is_nearly_symmetric_is_taken_as_it_is(
    uneven: float, box: bool, level: str
) -> None:
    """Against sums over its points, each as it is."""
    even = femops.basis.gauss(5)
    points = even.points + uneven * np.array([1.0, -2.0, 3.0, 0.5, 1.5])
    rule = Quadrature1D(points, even.weights, "uneven")
    mesh = femops.box((1,), mapping=None if box else lambda x: x + 0.2 * x**2, order=2)
    V = femops.H1(mesh, 4)
    b, g = V.basis.interpolation(rule.points), V.basis.gradient(rule.points)
    jacobian = 1.0 + (0.0 if box else 0.4) * rule.points
    dense = (b.T * (rule.weights * jacobian)) @ b + (g.T * (rule.weights / jacobian)) @ g
    order = V.restriction.indices[0]
    mass, stiffness = (f(V, quadrature=rule, level=level) for f in (femops.mass, femops.diffusion))
    A = mass + stiffness
    u = random_vector(V, "float64")
    expected = dense @ u[order]
    gap = abs((A @ u)[order] - expected).max()
    assert gap <= 1e-14 * (abs(dense) @ abs(u[order])).max()


def test_a_function_may_give_as_many_constant_components_as_there_are_points():
    V = femops.H1(femops.box((3,)), order=1, ncomp=2)
    A = femops.form(
        lambda u, c: {"value": np.array([c[0] * u[0], c[1] * u[1]])},
        V,
        quadrature=2,
        c=lambda x: [3.0, 5.0],
    )
    u = np.zeros(V.shape)
    u[::2], u[1::2] = 1.0, 10.0
    assert u @ (A @ u) == pytest.approx(3.0 + 500.0, rel=1e-14)
