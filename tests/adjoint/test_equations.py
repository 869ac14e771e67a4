"""Equations of all kinds: energies, operators, built-in forms, products; and refused ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import Sensitivity, moved
from femops.errors import OperatorError, TraceError
from support.cases.differences import check_slopes, difference
from support.cases.random_forms.spaces import mesh_of

MESH = mesh_of(2, "curved")
V, V2, K = femops.H1(MESH, 2), femops.H1(MESH, 2, ncomp=2), femops.H1(MESH, 1)
FIXED = V.boundary_dofs(where=lambda x: x[0] < 1e-9)
RANDOM = np.random.default_rng(6)
U = V.interpolate(lambda x: 1.0 + x[0] * x[1])
KAPPA = 1.5 + RANDOM.random(K.size)


def direct(J: Any, b: Any, rtol: float) -> Any:
    return np.linalg.solve(J.assemble().toarray(), b)


# --- energies -------------------------------------------------------------------------------------


def energy(u: Any, kappa: Any, a: Any, x: Any) -> Any:
    return 0.5 * kappa * femops.inner(u.grad, u.grad) + a * u**4 - x[0] * u


def surface_energy(u: Any, n: Any, h: Any, a: Any) -> Any:
    return a * u**2 * n[0] ** 2 / h


def minimum(point: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Goal, equation and state: energies inside and outside, and a residual that is none."""
    mesh = moved(femops.H1(MESH, 2, ncomp=2), point["mesh"])
    W = femops.H1(mesh, 2)
    a, kappa = float(point["a"]), femops.GridFunction(femops.H1(mesh, 1), point["kappa"])
    E = femops.functional(energy, W, kappa=kappa, a=a)
    E = E + 0.5 * femops.functional(surface_energy, W, boundary="all", a=a)
    F = 2.0 * E.derivative + femops.residual(lambda u, a: {"value": a * u.grad[0]}, W, a=a)
    F = F.constrained(FIXED)
    goal = femops.functional(lambda u, a: a * u**2, W, a=a)
    start = W.zeros()
    start[FIXED] = point["dirichlet"][FIXED]
    u, info = femops.newton(F, start, point["load"], rtol=1e-13, linear=direct)
    assert info.converged
    return goal, F, u


def test_an_energy_is_an_equation() -> None:
    sizes = {"kappa": K.size, "mesh": V2.size, "load": V.size, "dirichlet": V.size}
    point = {n: 0.02 * RANDOM.standard_normal(size) for n, size in sizes.items()}
    point |= {"a": np.array(0.7), "kappa": KAPPA, "mesh": V2.zeros()}
    slopes = femops.gradient(*minimum(point), [*point], linear=direct)

    def value(point: dict[str, Any]) -> float:
        goal, _, u = minimum(point)
        return float(goal(u))

    step = check_slopes(value, point, slopes)
    inner = ("kappa", "a", "mesh")
    bent = slopes.hessian_product({n: step[n] for n in inner})

    def slope(t: float) -> Any:
        moved = {n: x + t * step[n] if n in inner else x for n, x in point.items()}
        found = femops.gradient(*minimum(moved), [*point], linear=direct)
        return np.concatenate([np.ravel(found[name]) for name in inner])

    turned = difference(slope, 1e-4)
    for name in inner:
        expected, turned = turned[: np.size(bent[name])], turned[np.size(bent[name]) :]
        assert np.ravel(bent[name]) == pytest.approx(expected, abs=1e-5 * abs(expected).max()), name


def test_the_sensitivity_of_an_energy() -> None:
    E = femops.functional(energy, V, kappa=2.0, a=0.7)
    S = Sensitivity(E.derivative, U, "kappa")
    expected = femops.diffusion(V) @ U
    along, back = S @ 1.0, S.T @ U
    assert along == pytest.approx(expected, abs=1e-12)
    assert back == pytest.approx(U @ expected, rel=1e-12)
    bent = femops.functional(lambda u, k: k * femops.inner(u.reference_grad, u.grad), V, k=1.0)
    for wrt in ("k", "mesh"):
        with pytest.raises(TraceError, match=r"reference_grad, by which nothing"):
            _ = Sensitivity(bent.derivative, U, wrt) @ np.zeros(() if wrt == "k" else V2.size)


# --- operators ------------------------------------------------------------------------------------


def test_values_and_loads_of_an_operator() -> None:
    A = femops.diffusion(V, kappa=2.0) + femops.mass(V, 3.0)
    A = (A + femops.convection(V, np.array([1.0, 0.5]))).constrained(FIXED)
    b, values = RANDOM.standard_normal((2, V.size))
    goal = femops.functional(lambda u, x: u**2 * x[0], V)

    def value(t: float, name: str) -> float:
        B = A.update(kappa=2.0 + t * (name == "kappa"))
        load, given = b + t * (name == "load"), values + t * (name == "dirichlet")
        return goal(direct(B, B.rhs(load, given), 0.0))

    slopes = femops.gradient(
        goal, A, direct(A, A.rhs(b, values), 0.0), ["kappa", "load", "dirichlet"], linear=direct
    )
    for name in slopes:
        expected = difference(lambda t, name=name: value(t, name))
        assert np.sum(slopes[name]) == pytest.approx(expected, rel=1e-7), name


BUILT_IN: dict[str, Any] = {
    "diffusion": lambda: femops.diffusion(V, 2.0),
    "tensor": lambda: femops.diffusion(V, np.array([[2.0, 0.5], [0.1, 1.0]])),
    "symmetric": lambda: femops.diffusion(V, np.array([[2.0, 0.5], [0.5, 1.0]])),
    "mass": lambda: femops.mass(V2, 3.0).at_level("full"),
    "helmholtz": lambda: 2.0 * femops.helmholtz(V, 2.0, 1.5),
    "convection": lambda: femops.convection(V, np.array([1.0, 2.0])),
    "boundary mass": lambda: femops.boundary_mass(V, 2.0),
    "elasticity": lambda: femops.elasticity(V2, 1.0, 2.0).at_level("matrix-free"),
    "neo-Hookean": lambda: femops.neo_hookean(V2, 1.0, 2.0),
    "p-Laplacian": lambda: femops.p_laplacian(V, 3.5, 0.2),
}


@pytest.mark.parametrize("case", BUILT_IN)
def test_built_in_forms(case: str) -> None:
    F = BUILT_IN[case]()
    u = 0.005 * RANDOM.standard_normal(F.space.size)
    applied = "residual" if isinstance(F, femops.Residual) else "apply"
    form = F.parts[0].form if isinstance(F, femops.Residual) else F.summands[0][1].source
    for name, given in form.coefficients.items():
        step = 0.1 * RANDOM.standard_normal(np.shape(given.value))
        step = step + step.T if case == "symmetric" else step

        def value(t: float, name: str = name, given: Any = given, step: Any = step) -> Any:
            return getattr(F.update(**{name: given.value + t * step}), applied)(u)

        expected = difference(value)
        found = Sensitivity(F, u, name) @ step
        assert found == pytest.approx(expected, abs=1e-9 * abs(expected).max()), name


def coupled(a: Any, b: Any, k: Any, c: Any) -> Any:
    return {"a": {"grad": k * a.grad, "value": c * b}, "b": {"value": b + c * a}}


W = femops.Product(a=V, b=K)


@pytest.mark.parametrize(
    "F",
    [
        femops.form(coupled, W, k=2.0, c=3.0)["a", "a"],
        femops.form(coupled, W, k=2.0, c=3.0)["a", "b"],
        femops.convection(V, np.array([1.0, 2.0])).T,
        femops.residual(lambda u, k: {"grad": k * u.grad, "value": -k}, V, k=2.0).jacobian(U),
        femops.residual(lambda u, k: {"value": k * u**3}, V, k=2.0).jacobian(U),
        femops.functional(lambda u, k: k * u**2 + u, V, k=2.0).derivative.jacobian(U),
    ],
)
def test_refused_operators(F: Any) -> None:
    with pytest.raises(OperatorError, match="can't be differentiated: it is a"):
        Sensitivity(F, U, "k")


@pytest.mark.parametrize("make", [femops.form, femops.residual])
def test_fields_that_are_not_used(make: Any) -> None:
    F = make(lambda a, b, k: {"a": {"grad": k * a.grad}, "b": {}}, W, k=2.0)
    w = RANDOM.standard_normal(W.size)
    expected = W.join(a=femops.diffusion(V) @ W.split(w)[0], b=K.zeros())
    assert Sensitivity(F, w, "k") @ 1.0 == pytest.approx(expected, abs=1e-12)


def test_functionals_of_a_residual_are_left_out() -> None:
    def form(u: Any, k: Any) -> Any:
        return {"value": k * u**3, "grad": u.grad, "sum": k * u, "least": u}

    F = femops.residual(form, V, integrals=["sum"], minima=["least"], k=2.0)
    expected = femops.functional(lambda u: u**4, V)(U)
    found = Sensitivity(F, U, "k").T @ U
    assert found == pytest.approx(expected, rel=1e-13)


# --- meshes ---------------------------------------------------------------------------------------


def torn() -> femops.Mesh:
    """Neighbours do not agree about where their nodes are."""
    X = femops.L2(femops.box((2, 2), order=2), 2, ncomp=2)
    return moved(X, 0.005 * np.random.default_rng(1).standard_normal(X.size))


MESHES: dict[str, Any] = {
    "periodic": lambda: femops.box((3, 3), periodic=(True, False)),
    "periodic, from a file": lambda: femops.read_mesh(femops.sample("periodic.mesh")),
    "torn": torn,
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", MESHES)
@pytest.mark.parametrize("family", ["H1", "L2"])
def test_nodes_of_other_meshes(kind: str, family: str) -> None:
    mesh = MESHES[kind]()
    X, space = getattr(femops, family)(mesh, 2, ncomp=2), femops.H1(mesh, 2)
    u, step = RANDOM.standard_normal(space.size), 0.02 * RANDOM.standard_normal(X.size)

    def goal(space: Any) -> Any:
        return femops.functional(lambda u, x: u.grad @ u.grad + np.sin(x[0]) * u, space)

    slopes = femops.gradient(goal(space), u=u, wrt={"mesh": X})
    expected = difference(lambda t: goal(femops.H1(moved(X, t * step), 2))(u), 2e-3)
    assert slopes["mesh"] @ step == pytest.approx(expected, rel=1e-5)


def test_choices_and_eigenvalues() -> None:
    x = V2.interpolate(lambda x: (x[0], 2.0 * x[1]))
    J = femops.functional(lambda u, k: femops.eigh_sym(k * u.sym_grad)[0][1] ** 2, V2, k=2.0)
    assert femops.gradient(J, u=x, wrt="k")["k"] == pytest.approx(J(x), rel=1e-12)
    J = femops.functional(lambda u, k: femops.where(k > 0, np.sqrt(k), 0.0) + k, V, k=-2.0)
    volume = femops.functional(lambda u: 1.0 + 0.0 * u, V)(U)
    assert femops.gradient(J, u=U, wrt="k")["k"] == pytest.approx(volume, rel=1e-12)
