"""Nonlinear forms: residuals against the integral, Jacobians against complex steps, Newton."""

import pickle
from importlib import import_module

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, SolverError, VectorError
from femops.pointwise import qdata_split
from support.cases.kernels import bend, turned
from support.cases.levels import neo_hookean, p_laplacian
from support.oracles.forms import FormOracle


def cubic(u, x, k):
    value = u.value
    return {"value": k * value**3 + np.sin(x[0]) * value, "grad": (1.0 + value * value) * u.grad}


FORMS = {
    # made by femops, function at a point, its coefficients
    "cubic": (lambda V: femops.residual(cubic, V, k=2.5), cubic, {"k": 2.5}),
    "p_laplacian": (lambda V: femops.p_laplacian(V, 3.5, 0.2), p_laplacian, {"p": 3.5, "c": 0.2}),
    "neo_hookean": (lambda V: femops.neo_hookean(V, 1.3, 0.7), neo_hookean, {"lam": 1.3, "c": 0.7}),
}


def make_space(name, dim):
    """On a curved mesh."""
    mesh = turned(femops.box((3, 2, 1)[:dim], order=2, mapping=bend))
    return femops.H1(mesh, 2, ncomp=dim if name == "neo_hookean" else 1)


@pytest.mark.parametrize(
    ("name", "dim"), [("cubic", 1), ("cubic", 3), ("p_laplacian", 2), ("neo_hookean", 2)]
)
def test_residual_and_jacobian(name, dim):
    V, (make, function, given) = make_space(name, dim), FORMS[name]
    rng = np.random.default_rng(dim)
    u, d = (scale * rng.standard_normal(V.size) for scale in (0.01, 1.0))
    form, oracle = make(V), FormOracle.of(V)
    residual = oracle.residual(function, u, **given)
    np.testing.assert_allclose(form.residual(u), residual, rtol=0, atol=1e-12 * abs(residual).max())
    dense, jacobian = oracle.matrix(function, u, **given), form.jacobian(u)
    assert dense.error(jacobian @ d, d) < 1e-12
    assert dense.T.error(jacobian.T @ d, d) < 1e-12
    atol = 1e-12 * abs(dense.matrix).max()
    np.testing.assert_allclose(jacobian.assemble().toarray(), dense.matrix, rtol=0, atol=atol)
    np.testing.assert_allclose(jacobian.diagonal(), dense.matrix.diagonal(), rtol=0, atol=atol)


@pytest.mark.parametrize(("name", "level"), [("cubic", "full"), ("neo_hookean", "element")])
def test_jacobians_at_every_level(name, level):
    V = make_space(name, 2)
    rng = np.random.default_rng(5)
    u, d = 0.01 * rng.standard_normal(V.size), rng.standard_normal(V.size)
    partial = FORMS[name][0](V).constrained(V.boundary_dofs()).jacobian(u)
    product, adjoint = partial @ d, partial.T @ d
    u[:] = 7.0  # the operator has a state of its own
    operator = partial.at_level(level)
    assert operator.level == level
    for A in (operator, pickle.loads(pickle.dumps(operator))):
        np.testing.assert_allclose(A @ d, product, rtol=0, atol=1e-12 * np.abs(product).max())
        np.testing.assert_allclose(A.T @ d, adjoint, rtol=0, atol=1e-12 * np.abs(adjoint).max())


@pytest.mark.parametrize("name", ["cubic", "neo_hookean"])
def test_sweeps_compute_what_numpy_keeps_at_points(name, monkeypatch):
    V = make_space(name, 2)
    u = 0.01 * np.random.default_rng(1).standard_normal(V.size)
    form = FORMS[name][0](V)
    expected = form.jacobian(u).summands[0][1].data.points
    monkeypatch.setattr("femops.operators.execution.host._COMPILED_FROM", 0)
    found = form.jacobian(u)
    points = found.summands[0][1].data.points
    assert points is not expected
    np.testing.assert_allclose(points, expected, rtol=0, atol=1e-13 * np.abs(expected).max())
    again = form.jacobian(2 * u)  # the program is kept, its data are those of another state
    assert np.abs(again.summands[0][1].data.points - points).max() > 0.0


def test_neo_hookean_at_rest_is_linear_elasticity():
    V = make_space("neo_hookean", 2)
    u = np.random.default_rng(0).standard_normal(V.size)
    rest = femops.neo_hookean(V, 1.3, 0.7).jacobian(np.zeros(V.size))
    linear = femops.elasticity(V, 1.3, 0.7)
    np.testing.assert_allclose(rest @ u, linear @ u, atol=1e-12)
    assert np.abs(femops.neo_hookean(V).residual(np.zeros(V.size))).max() < 1e-14


def test_constrained_dofs_are_held():
    V = make_space("cubic", 2)
    held = V.boundary_dofs()
    form = femops.residual(cubic, V, k=1.0)
    u = V.interpolate(lambda x: 1 + x[0])
    free = np.setdiff1d(np.arange(V.size), held)
    constrained = form.constrained(held)
    np.testing.assert_array_equal(constrained.residual(u)[held], 0.0)
    np.testing.assert_array_equal(constrained.residual(u)[free], form.residual(u)[free])
    d = np.random.default_rng(0).standard_normal(V.size)
    np.testing.assert_array_equal((constrained.jacobian(u) @ d)[held], d[held])
    np.testing.assert_array_equal(constrained.unconstrained.residual(u), form.residual(u))
    column = np.stack([u, d], axis=1)[:, 0]  # whose memory has gaps
    np.testing.assert_array_equal(constrained.residual(column), constrained.residual(u))
    np.testing.assert_array_equal(constrained.jacobian(column) @ d, constrained.jacobian(u) @ d)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "k",
    [0.5, lambda x: 1 + x[0] ** 2, "field", np.array([[3.0]])],
    ids=["number", "function", "field", "another shape"],
)
def test_update_is_the_form_made_anew(k):
    """Residual, Jacobian and constraints; the form that was updated stays as it was."""
    V = make_space("cubic", 2)
    rng = np.random.default_rng(1)
    u, d = rng.standard_normal((2, *V.shape))
    k = femops.GridFunction(V, V.interpolate(lambda x: 2 + x[1])) if isinstance(k, str) else k

    def form(u, x, k):
        return cubic(u, x, k if np.ndim(k) == 0 else k[0, 0])

    held = V.boundary_dofs()
    old = femops.residual(form, V, k=2.5).constrained(held)
    before, jacobian = old.residual(u), old.jacobian(u) @ d
    new = old.update(k=k)
    made = femops.residual(form, V, k=k).constrained(held)
    np.testing.assert_array_equal(new.constrained_dofs, made.constrained_dofs)
    for got, expected in (
        (new.residual(u), made.residual(u)),
        (new.jacobian(u) @ d, made.jacobian(u) @ d),
        (new.update(k=2.5).residual(u), before),
        (old.residual(u), before),
        (old.jacobian(u) @ d, jacobian),
    ):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13 * np.abs(expected).max())
    assert np.abs(new.residual(u) - before).max() > 1e-3
    twin = pickle.loads(pickle.dumps(femops.neo_hookean(make_space("neo_hookean", 2)).update(mu=3)))
    assert twin.residual(np.zeros(twin.space.size)).shape == (twin.space.size,)


def test_update_makes_no_new_split(monkeypatch):
    """What is stored depends on the trace, and on which coefficients vary, not on their values."""
    V = femops.H1(femops.box((2, 2)), 2)
    old, u = femops.GridFunction(V, V.interpolate(lambda x: x[0])), V.interpolate(lambda x: x[1])

    def step(u, old, k):
        return {"value": k * (u - old) + u**3, "grad": u.grad}

    F = femops.residual(step, V, old=old, k=1.0) + femops.residual(
        lambda u: {"value": u**4}, V, boundary=1
    )
    F.residual(u)
    F.jacobian(u).diagonal()
    with monkeypatch.context() as patch:
        patch.setattr(qdata_split, "_split", None)
        later = F.update(k=2.0, old=femops.GridFunction(V, u))
        found, diagonal = later.residual(u), later.jacobian(u).diagonal()
    fresh = femops.residual(step, V, old=femops.GridFunction(V, u), k=2.0) + femops.residual(
        lambda u: {"value": u**4}, V, boundary=1
    )
    assert np.array_equal(found, fresh.residual(u))
    assert np.array_equal(diagonal, fresh.jacobian(u).diagonal())


def test_update_refuses_what_the_form_has_not():
    form = femops.p_laplacian(femops.H1(femops.box((2, 2)), 1), 3.0)
    for wrong, words in (
        ({"nu": 0.3}, "has no coefficient 'nu': it has p, epsilon"),
        ({"epsilon": 0}, "epsilon is 0: it must be positive"),
        ({"p": np.zeros((2, 2))}, "p has shape"),
    ):
        with pytest.raises(OperatorError, match=words):
            form.update(**wrong)


def test_newton_finds_a_manufactured_solution():
    """-div((1 + u^2) grad u) + u^3 = f with u = 1 + x y / 2, exact in the space."""
    V = femops.H1(femops.box((3, 3)), 2)

    def form(u):
        return {"value": u * u * u, "grad": (1.0 + u * u) * u.grad}

    def exact(x):
        return 1.0 + 0.5 * x[0] * x[1]

    def load(x):
        u, slope = exact(x), 0.25 * (x[0] ** 2 + x[1] ** 2)
        return u**3 - 2.0 * u * slope

    dofs = V.boundary_dofs()
    F = femops.residual(form, V, quadrature=6).constrained(dofs)
    u0 = V.zeros()
    u0[dofs] = V.interpolate(exact)[dofs]
    seen = []
    u, info = femops.newton(F, u0, femops.load(V, load, quadrature=6), callback=seen.append)
    assert info.converged
    assert info.iterations == len(seen) == len(info.residuals) - 1 <= 8
    np.testing.assert_allclose(u, V.interpolate(exact), atol=1e-8)


@pytest.mark.parametrize("linear", ["cg", "minres", "gmres"])
def test_newton_with_every_linear_solver(linear):
    V = femops.H1(femops.disc(2), 3)
    F = femops.p_laplacian(V, 4.0, 0.01).constrained(V.boundary_dofs())
    start = V.interpolate(lambda x: 1.0 - x[0] ** 2 - x[1] ** 2)
    start[V.boundary_dofs()] = 0.0
    u, info = femops.newton(F, start, femops.load(V, 1.0), linear=linear, rtol=1e-9)
    assert info.converged, info
    assert info.linear_iterations > 0
    # |grad u|^2 grad u = -x / 2: u = 3/4 2^(-1/3) (1 - r^(4/3)) for epsilon = 0
    r = np.linalg.norm(V.dof_coordinates(), axis=1)
    assert np.abs(u - 0.75 * 0.5 ** (1 / 3) * (1 - r ** (4 / 3))).max() < 4e-3


@pytest.mark.parametrize("level", ["full", "element"])
def test_newton_keeps_jacobians_at_a_level(level, monkeypatch):
    V = femops.H1(femops.box((3, 3)), 2)
    F = femops.p_laplacian(V, 3.0, 0.1).constrained(V.boundary_dofs())
    expected, _ = femops.newton(F, V.zeros(), femops.load(V, 1.0), rtol=1e-11)
    seen = []

    def watched(J, *given, **options):
        seen.append(J.level)
        return femops.cg(J, *given, **options)

    monkeypatch.setattr(import_module("femops.solvers.newton_steps"), "cg", watched)
    u, info = femops.newton(F, V.zeros(), femops.load(V, 1.0), rtol=1e-11, level=level)
    assert info.converged
    assert set(seen) == {level}
    np.testing.assert_allclose(u, expected, rtol=0, atol=1e-10)


def test_newton_comes_to_a_residual_of_zero():
    """Of one free dof, with tolerances that only zero meets."""
    V = femops.H1(femops.box((1,)), 1)
    F = femops.residual(lambda u: {"value": u.value}, V).constrained([0])
    u, info = femops.newton(F, np.array([0.0, 0.5]), rtol=0.0, atol=0.0)
    assert info.converged
    assert info.residuals[-1] == 0.0
    assert not u.any()


@pytest.mark.parametrize("size", [1e-25, 1e-13, 1.0, 1e25])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_newton_takes_coefficients_of_any_size(dtype, size):
    """The steps are the same, and near the solution only rounding is left, which ends the solve."""
    V, rtol = femops.H1(femops.box((2, 2)), order=2), {"float64": 1e-9, "float32": 1e-12}[dtype]

    def nonlinear(u, k):
        return {"grad": k * (1.0 + u.value**2) * u.grad, "value": -5.0 * k}

    F, start = (
        femops.residual(nonlinear, V, k=k, dtype=dtype).constrained(V.boundary_dofs())
        for k in (size, 1.0)
    )
    expected, _ = femops.newton(start, V.zeros(dtype), rtol=rtol)
    u, info = femops.newton(F, V.zeros(dtype), rtol=rtol)
    assert info.converged
    assert 2 <= info.iterations <= 6
    assert u == pytest.approx(expected, abs={"float64": 1e-8, "float32": 1e-6}[dtype])
    _, info = femops.newton(F, u, rtol=1e-13)
    assert info.converged
    assert info.iterations <= 3


def test_newton_refuses_a_residual_that_underflows():
    V = femops.H1(femops.box((2, 2)), order=2)
    F = femops.residual(lambda u: {"value": u}, V)
    with pytest.raises(SolverError, match="squares underflow: multiply F and b"):
        femops.newton(F, V.zeros(), femops.load(V, 1e-200))
    u, info = femops.newton(F, V.zeros(), femops.load(V, 1e-200), atol=1e-100)
    assert info.converged
    assert not u.any()


def test_newton_reports_and_returns_the_last_good_state():
    V = femops.H1(femops.box((2, 1, 1)), 1, ncomp=3)
    F = femops.neo_hookean(V).constrained(V.boundary_dofs(1))
    crushed = femops.load(V, lambda x: [-50.0 + 0 * x[0], 0.0, 0.0])
    u, info = femops.newton(F, V.zeros(), crushed, maxiter=3, warn=False)
    assert not info.converged
    assert info.reason
    assert np.isfinite(F.residual(u)).all()
    assert info.residuals[-1] == pytest.approx(np.linalg.norm(F.residual(u) - held(F, crushed)))


def held(F, load):
    out = load.copy()
    out[F.constrained_dofs] = 0.0
    return out


def test_bad_arguments():
    V = femops.H1(femops.box((2, 2)), 1, ncomp=2)
    F, S = femops.neo_hookean(V), femops.H1(V.mesh, 1)
    inverted, u = V.interpolate(lambda x: [-2 * x[0], 0 * x[0]]), V.zeros()
    refused = [
        (
            lambda: femops.newton(F, inverted),
            SolverError,
            "begin with another u0, or",
        ),
        (lambda: femops.newton(V, u), SolverError, "F is .*: give a residual"),
        (lambda: femops.newton(F, u, linear="lu"), SolverError, "give 'auto', 'cg'"),
        (lambda: femops.newton(F, u, level="half"), OperatorError, "choose one of full, element"),
        (lambda: F.residual(V.zeros("float32")), VectorError, "float32"),
        (lambda: F.residual(u, out=u), VectorError, "overlaps"),
        (lambda: femops.neo_hookean(S), OperatorError, "ncomp=2"),
        (
            lambda: femops.p_laplacian(S, 3.0, 0.0).residual(np.zeros(9)),
            OperatorError,
            "must be positive",
        ),
    ]
    for ask, kind, words in refused:
        with pytest.raises(kind, match=words):
            ask()


@pytest.mark.parametrize("level", ["full", "element", "partial", "matrix-free"])
def test_a_jacobian_refuses_bad_coefficients(level):
    """At every level, also where what is kept has none of the coefficient in it."""
    V = make_space("neo_hookean", 2)
    J = FORMS["neo_hookean"][0](V).jacobian(V.zeros()).at_level(level)
    with pytest.raises(OperatorError, match="mu is not finite at"):
        J.update(mu=lambda x: np.where(x[0] > 0.5, np.nan, 1.0))
    V = femops.H1(femops.box((3, 2)), 2)
    J = femops.p_laplacian(V, 3.0).jacobian(V.zeros()).at_level(level)
    with pytest.raises(OperatorError, match=r"epsilon is -.* must be positive"):
        J.update(epsilon=lambda x: 0.5 - x[0])
