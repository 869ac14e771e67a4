"""Gradients of goals, beside finite differences of solves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

import femops
from femops.adjoint import Sensitivity, moved, taylor
from femops.errors import ConvergenceWarning, OperatorError
from support.cases.differences import check_slopes
from support.cases.differentiable import (
    BENT,
    direct,
    equation,
    goal_inside,
    goal_outside,
    outside,
)

V, K, X = femops.H1(BENT, 2), femops.H1(BENT, 1), femops.H1(BENT, 2, ncomp=2)
SOURCES = np.array([-1.0, 2.0])
FIXED = V.boundary_dofs(where=lambda x: x[0] < 1e-9)


def solved(point: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Goal, residual and solution of a nonlinear problem on a curved mesh, with a flux."""
    mesh = moved(X, point["mesh"])
    V, K, a = femops.H1(mesh, 2), femops.H1(mesh, 1), float(point["a"])
    options = {"kappa": femops.GridFunction(K, point["kappa"]), "a": a, "c": SOURCES}
    F = femops.residual(equation, V, **options)
    F = (F + 0.5 * femops.residual(outside, V, boundary="all", a=a)).constrained(FIXED)
    J = femops.functional(goal_inside, V, **options)
    J = J + 2.0 * femops.functional(goal_outside, V, boundary="all", a=a)
    start = V.zeros()
    start[FIXED] = point["dirichlet"][FIXED]
    u, info = femops.newton(F, start, point["load"], rtol=1e-13, linear=direct)
    assert info.converged
    return J, F, u


def value(point: dict[str, Any]) -> float:
    J, _, u = solved(point)
    return J(u)


@pytest.fixture(scope="module")
def point() -> dict[str, Any]:
    random = np.random.default_rng(2)
    return {
        "kappa": 1.5 + 0.3 * random.random(K.size),
        "a": 2.0,
        "mesh": X.zeros(),
        "load": 0.1 * random.standard_normal(V.size),
        "dirichlet": 0.6 + 0.2 * random.standard_normal(V.size),
    }


@pytest.fixture(scope="module")
def slopes(point: dict[str, Any]) -> femops.adjoint.Gradient:
    return femops.gradient(*solved(point), [*point], linear=direct)


def direction(point: dict[str, Any], name: str) -> Any:
    random = np.random.default_rng(3)
    scale = 0.01 if name == "mesh" else 1.0
    return scale * random.standard_normal(np.shape(point[name]))


def test_each_control(point: dict[str, Any], slopes: Any) -> None:
    check_slopes(value, point, slopes)


def test_second_derivatives(point: dict[str, Any], slopes: Any) -> None:
    steps = {name: direction(point, name) for name in ("kappa", "a", "mesh")}
    bent = slopes.hessian_product(steps)
    slope, curvature = (
        sum(float(np.sum(found[name] * step)) for name, step in steps.items())
        for found in (slopes, bent)
    )
    rates = taylor(value, point, steps, slope, curvature, step=0.002, halvings=2)
    assert rates == pytest.approx(3.0, abs=0.1)


def test_the_second_derivative_is_symmetric(slopes: Any, point: dict[str, Any]) -> None:
    one, other = direction(point, "kappa"), direction(point, "mesh")
    still = {"kappa": 0.0 * one, "a": 0.0, "mesh": 0.0 * other}
    ahead = slopes.hessian_product(still | {"kappa": one})["mesh"] @ other
    back = slopes.hessian_product(still | {"mesh": other})["kappa"] @ one
    assert ahead == pytest.approx(back, rel=1e-9)


def test_a_goal_without_an_equation() -> None:
    V = femops.H1(BENT, 2)
    u = V.interpolate(lambda x: x[0] * x[1])
    J = femops.functional(lambda u, c: c[0] * u + c[1] * u**2, V, c=np.array([1.0, 2.0]))
    found = femops.gradient(J, u=u, wrt="c")
    expected = [femops.functional(f, V)(u) for f in (lambda u: u, lambda u: u**2)]
    assert found.adjoint is None
    assert repr(found) == "Gradient(c: (2,))"
    assert found["c"] == pytest.approx(expected, rel=1e-13)


def test_values_at_points() -> None:
    V = femops.H1(BENT, 2)
    rule = femops.basis.gauss(4)
    weights = np.random.default_rng(4).random((BENT.num_elements, 16))
    u = V.interpolate(lambda x: 1.0 + x[0])
    J = femops.functional(lambda u, w: w**2 * u, V, w=weights, quadrature=rule)
    found = femops.gradient(J, u=u, wrt="w")["w"]
    measure = np.concatenate([block.weighted_det for block in femops.geometry.Geometry(BENT, rule)])
    assert found == pytest.approx(2.0 * weights * V.values(u, rule) * measure, rel=1e-12)


def test_a_matrix_and_products_of_a_sensitivity() -> None:
    V = femops.H1(BENT, 2, ncomp=2)
    random = np.random.default_rng(5)
    u, v, d = random.standard_normal((3, V.size))
    tensor, step = random.standard_normal((2, 2, 2))

    def form(u: Any, D: Any, c: Any) -> Any:
        return {"value": D @ u.value, "grad": (1.0 + c) * D @ u.grad}

    P = femops.H1(BENT, 1)
    c = random.standard_normal(P.size)
    A = femops.form(form, V, D=tensor, c=femops.GridFunction(P, c)) + femops.mass(V)
    S = Sensitivity(A, u, "D")
    changed = femops.form(form, V, D=step, c=femops.GridFunction(P, c)) @ u
    assert S.shape == (V.size, 4)
    assert repr(S.T) == f"Sensitivity(by D, transposed: 4 x {V.size}, float64)"
    assert S @ step == pytest.approx(changed, abs=1e-12 * abs(changed).max())
    assert np.sum((S.T @ v) * step) == pytest.approx(v @ changed, rel=1e-12)
    flat = aslinearoperator(S)
    assert flat.rmatvec(v) == pytest.approx((S.T @ v).ravel(), rel=1e-15)
    product = S.T @ v
    for found in (-(-S.T @ v), 0.5 * (S.T * 2.0 @ v), v @ S):
        assert (found == product).all()
    assert (aslinearoperator(-S).matvec(step.ravel()) == -(S @ step)).all()
    S = Sensitivity(A.constrained([0, 5]), u, "c")
    assert v @ (S @ d[: P.size]) == pytest.approx((S.T @ v) @ d[: P.size], rel=1e-12)
    assert (S @ d[: P.size])[[0, 5]] == pytest.approx(0.0, abs=0.0)


def test_representers_do_not_depend_on_the_mesh() -> None:
    found = []
    for n in (4, 8):
        mesh = femops.box((n, n))
        V = femops.H1(mesh, 2)
        k = femops.GridFunction(V, V.zeros() + 1.0)
        J = femops.functional(lambda u, k: u * k**2, V, k=k)
        slopes = femops.gradient(J, u=V.interpolate(lambda x: x[0]), wrt="k")
        found.append(femops.integrate(V, slopes.representer("k") ** 2))
        boundary = V.boundary_dofs()
        smooth = slopes.representer("k", femops.diffusion(V).constrained(boundary))
        assert not smooth[boundary].any()
        assert femops.integrate(V, slopes.representer("k", "H1")) == pytest.approx(1.0, rel=1e-9)
    assert found == pytest.approx([4.0 / 3.0] * 2, rel=1e-9)


ZERO = V.zeros()
KAPPA = femops.GridFunction(V, ZERO + 1.0)
CUBIC = femops.GridFunction(femops.H1(BENT, 3), femops.H1(BENT, 3).zeros())


def first_of(x: Any) -> Any:
    return x[0]


def mean(**coefficients: Any) -> femops.Functional:
    return femops.functional(lambda u, k=1.0: u * k, V, **coefficients)


def test_controls_that_are_refused() -> None:
    coarse = femops.functional(lambda u, k: u * k, V, k=CUBIC, quadrature=3)
    points = V.values(ZERO, V.quadrature())
    for goal, wrt, message in (
        (mean(k=2.0), "q", "nothing depends on 'q': there are k, mesh"),
        (mean(k=2.0), "load", "'load' is a control of an equation: give F"),
        (mean(k=lambda x: x[0]), "k", "k is a function of x, by which nothing can be"),
        (mean(k=first_of) + mean(k=first_of), "k", "k is a function of x, by which nothing can be"),
        (mean(k=lambda x: x[0]), "mesh", "k is a function of x, or an array at points, which"),
        (mean(k=2.0), (), "wrt is empty: give names"),
        (mean(k=2.0), np.ones((2, 2)), "wrt is an array of shape .*: give names"),
        (mean(k=2.0), {"k": V}, "a space for 'k': only 'mesh' takes one"),
        (mean(k=2.0), {"mesh": V}, "nodes move in a space on their mesh with ncomp=2"),
        (mean(k=2.0) + mean(k=3.0), "k", "k has different values in the goal and in"),
        (mean(k=points) + mean(k=points), "k", "k is an array at points: .* to one integral over"),
        (lambda u: u, "k", "goal is a function: give a"),
        (coarse, "k", "k has order 3, an integral 3 quadrature points .*quadrature=4 or more"),
    ):
        with pytest.raises(OperatorError, match=message):
            femops.gradient(goal, u=ZERO, wrt=wrt)


def test_a_singular_adjoint_equation() -> None:
    F = femops.residual(lambda u, k: {"grad": k * u.grad}, V, k=KAPPA)
    with pytest.warns(ConvergenceWarning, match="adjoint equation is not solved"):
        femops.gradient(mean(k=KAPPA), F, ZERO, "k")


# --- several goals and load cases -----------------------------------------------------------------


def cases(name: str) -> tuple[Any, Any, Any]:
    """Goals, an equation and its states."""
    K = femops.L2(femops.box((3, 2)), 0)
    V = femops.H1(K.mesh, 2)
    k = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[0]))
    forms: dict[str, Any] = {
        "symmetric": lambda u, k: {"grad": k * u.grad, "value": u},
        "convection": lambda u, k: {"grad": k * u.grad, "value": u + 3.0 * u.grad[0]},
        "nonlinear": lambda u, k: {"grad": k * (1.0 + u**2) * u.grad, "value": u},
    }
    make = femops.residual if name == "nonlinear" else femops.form
    F = make(forms[name], V, k=k).constrained(V.boundary_dofs([1]))
    loads = [femops.load(V, f) for f in (1.0, lambda x: x[0] * x[1], lambda x: 5.0 * x[1])]
    if name == "nonlinear":
        states = [femops.newton(F, V.zeros(), b, rtol=1e-12)[0] for b in loads]
    else:
        states = [femops.gmres(F, F.rhs(b), rtol=1e-12)[0] for b in loads]
    goals = [
        femops.functional(g, V, k=k) for g in (lambda u, k: k * u**2, lambda u, k: u + 0.0 * k)
    ]
    return goals, F, np.stack(states, axis=1)


@pytest.mark.parametrize(
    "name", [pytest.param("symmetric", marks=pytest.mark.exhaustive), "convection", "nonlinear"]
)
def test_several_goals_and_load_cases(name: str) -> None:
    (energy, mean), F, U = cases(name)
    given: list[tuple[Any, Any, list[Any]]] = [
        (energy, U, [(energy, U[:, j]) for j in range(3)]),
        ([energy, mean], U[:, 0].copy(), [(energy, U[:, 0]), (mean, U[:, 0])]),
        ([energy, mean, energy], U, [(energy, U[:, 0]), (mean, U[:, 1]), (energy, U[:, 2])]),
    ]
    step = {"k": np.linspace(-1.0, 1.0, 6)}
    for goal, u, pairs in given:
        found = femops.adjoint.gradients(goal, F, u, ["k", "load"], rtol=1e-13)
        for j, (mine, (one, state)) in enumerate(zip(found, pairs, strict=True)):
            alone = femops.gradient(one, F, state.copy(), ["k", "load"], rtol=1e-13)
            assert mine["k"] == pytest.approx(alone["k"], rel=1e-9, abs=1e-12)
            assert mine["load"] == pytest.approx(alone["load"], rel=1e-9, abs=1e-12)
            if j == 0:
                continue
            bent = alone.hessian_product(step)["k"]
            assert mine.hessian_product(step)["k"] == pytest.approx(bent, rel=1e-8, abs=1e-11)
    partial = femops.adjoint.gradients(energy, u=U, wrt="k")
    assert [slopes.adjoint for slopes in partial] == [None] * 3


def test_cases_that_do_not_fit() -> None:
    (energy, _), F, U = cases("symmetric")
    for goals, columns, message in (
        ([energy, energy], 3, "there are 2 goals, and u has 3 columns"),
        ([energy], 0, "u has 0 columns"),
        ([], 1, "goal is a list: give a functional"),
        ([energy, 2.0], 2, "give a functional, or a list of them"),
    ):
        with pytest.raises(OperatorError, match=message):
            femops.adjoint.gradients(goals, F, U[:, :columns], "k")


def test_a_state_that_is_no_solution():
    A = femops.form(lambda u, k: {"value": u, "grad": k * u.grad}, V, k=2.0)
    A = A.constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, 1.0))
    u, goal = direct(A, b, 0.0), femops.functional(lambda u: u**2, V)
    assert np.isfinite(femops.gradient(goal, A, u, "k", linear=direct, b=b)["k"])
    with pytest.warns(femops.errors.ConvergenceWarning, match="does not solve"):
        femops.gradient(goal, A, 1.1 * u, "k", linear=direct, b=b)
    F = femops.residual(lambda u, k: {"value": u**3 - 1.0, "grad": k * u.grad}, V, k=2.0)
    with pytest.warns(femops.errors.ConvergenceWarning, match="does not solve"):
        femops.gradient(goal, F, V.interpolate(0.5), "k", linear=direct, b=0.0)
    assert femops.gradient(goal, F, V.interpolate(1.0), "k", linear=direct, b=0.0)["k"] < 1e-12


def test_a_load_inside_the_residual_needs_no_b():
    goal = femops.functional(lambda u: u**2, V)
    F = femops.residual(lambda u, k: {"value": u - 1.0, "grad": k * u.grad}, V, k=2.0)
    F = F.constrained(V.boundary_dofs())
    u, _ = femops.newton(F, V.zeros(), rtol=1e-10)
    assert np.isfinite(femops.gradient(goal, F, u, "k", linear=direct)["k"])
    for wrong in (0.0 * u, 1.1 * u):
        with pytest.warns(femops.errors.ConvergenceWarning, match=r"F\(u\) = 0.*, or give b"):
            femops.gradient(goal, F, wrong, "k", linear=direct)
        with pytest.warns(femops.errors.ConvergenceWarning, match=r"F\(u\) = 0"):
            femops.adjoint.gradients(goal, F, np.stack([u, wrong], axis=1), "k", linear=direct)
        femops.gradient(goal, F, wrong, ["k", "load"], linear=direct)  # there is a b: F(wrong)
    solved = femops.newton(F, V.zeros(), femops.load(V, 3.0), rtol=1e-10)[0]
    femops.gradient(goal, F, solved, "k", linear=direct, b=femops.load(V, 3.0))
    heat = femops.residual(lambda u, k: {"grad": k * u.grad}, V, k=2.0)  # its load is not in it
    femops.gradient(goal, heat.constrained(V.boundary_dofs()), solved, "k", linear=direct)


def test_states_of_load_cases_that_are_no_solutions():
    A = femops.diffusion(V, 2.0).constrained(V.boundary_dofs())
    B = np.stack([A.rhs(femops.load(V, f)) for f in (1.0, lambda x: x[0])], axis=1)
    U = np.stack([direct(A, b, 0.0) for b in B.T], axis=1)
    goal, options = femops.functional(lambda u: u**2, V), {"linear": direct}
    assert len(femops.adjoint.gradients(goal, A, U, "kappa", b=B, **options)) == 2
    with pytest.warns(femops.errors.ConvergenceWarning, match="does not solve"):
        femops.adjoint.gradients(goal, A, U, "kappa", b=B[:, ::-1], **options)
    with pytest.raises(OperatorError, match="b has 1 columns for 2 states"):
        femops.adjoint.gradients(goal, A, U, "kappa", b=B[:, :1], **options)


def test_derivatives_beyond_float32():
    """A derivative of 1e50, a value of 1e50, and inputs that are not finite themselves."""
    k = femops.GridFunction(V, V.interpolate(1e-25))
    J = femops.functional(lambda u, k: u**2 / k, V, dtype="float32", k=k)
    u = np.ones(V.size, dtype=np.float32)
    assert np.isfinite(J(u))
    with pytest.raises(OperatorError, match=r"derivatives by k are not finite.*float64"):
        femops.gradient(J, u=u, wrt="k")
    high = femops.functional(lambda u: 1e30 * u**2, V, dtype="float32")
    with pytest.raises(OperatorError, match=r"functional is inf at a finite u.*float64"):
        high(1e10 * u)
    u[0] = np.nan
    assert np.isnan(high(u))
    assert np.isnan(femops.gradient(J, u=u, wrt="k")["k"]).any()


def test_reference_slopes_have_a_gradient():
    """By a coefficient, and by the nodes of the mesh, against differences."""
    k, d = (V.interpolate(f) for f in (lambda x: 1.0 + x[0], lambda x: np.sin(3.0 * x[1])))
    u = V.interpolate(lambda x: x[0] * x[1])

    def goal(k):
        k = femops.GridFunction(V, k)
        return femops.functional(lambda u, k: k**2 * femops.inner(u.reference_grad, u.grad), V, k=k)

    slope = femops.gradient(goal(k), u=u, wrt="k")["k"] @ d
    assert slope == pytest.approx((goal(k + 1e-5 * d)(u) - goal(k - 1e-5 * d)(u)) / 2e-5, rel=1e-8)
