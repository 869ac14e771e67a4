"""Forms on several fields of different spaces, and functionals of these."""

import copy
import pickle
from threading import Thread

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, TraceError, VectorError
from femops.operators.coarsening import in_precision
from femops.operators.execution import host


def wavy(x):
    return x + 0.05 * np.sin(3.0 * x[::-1])


def product(counts):
    mesh = femops.box(counts, mapping=wavy, order=2)
    V = femops.H1(mesh, order=2, ncomp=len(counts))
    return femops.Product(v=V, e=femops.L2(mesh, order=1, family="bernstein"))


def coupled(v, e, x, kappa):
    return {
        "v": {"grad": e * v.grad * (1 + x[0]), "value": kappa * v.value * e},
        "e": {"value": np.trace(np.atleast_2d(v.grad)) * e**2},
        "work": e * np.atleast_1d(v.value)[0],
        "least": e * e - kappa,
    }


@pytest.mark.parametrize("counts", [(7,), (3, 5), (3, 2, 1)])
def test_coupled_form_is_the_integral(counts):
    W = product(counts)
    V, E = W.spaces["v"], W.spaces["e"]
    F = femops.residual(coupled, W, integrals=["work"], minima=["least"], quadrature=4, kappa=0.5)
    u = np.random.default_rng(1).standard_normal(W.size)
    v, e = W.split(u)
    residual, found = F.evaluate(u)
    given = femops.GridFunction(E, e.copy())

    def stiffness(v, x, e):
        return {"grad": e * v.grad * (1 + x[0]), "value": 0.5 * e * v.value}

    A = femops.form(stiffness, V, e=given, quadrature=4)

    def heat(v, e):
        return {"value": np.trace(np.atleast_2d(v.grad)) * e**2}

    B = femops.form(heat, V, E, e=given, quadrature=4)
    assert np.allclose(W.split(residual)[0], A @ v, atol=1e-13)
    assert np.allclose(W.split(residual)[1], B @ v, atol=1e-13)
    points = E.values(e, 4)
    assert found["least"] == pytest.approx((points**2).min() - 0.5, abs=1e-14)
    first = V.components(v)[:, 0]
    mixed = femops.mass(femops.H1(V.mesh, order=2), rho=given, quadrature=4)
    assert found["work"] == pytest.approx((mixed @ first).sum(), abs=1e-13)
    element = F.element_of("least")
    assert (points[element] ** 2).min() == (points**2).min()


def test_constrained_dofs_have_no_residual_and_threads_change_no_bit():
    from femops_kernels.cpu import machine

    W = product((9, 9, 9))
    F = femops.residual(coupled, W, integrals=["work"], minima=["least"], kappa=0.5)
    dofs = W.spaces["v"].boundary_dofs()
    u = np.random.default_rng(2).standard_normal(W.size)
    before, results = machine.get_threads(), []
    try:
        for threads in (1, 2):
            machine.set_threads(threads)
            assert F.compiled.threads() == threads
            results.append(F.evaluate(u))
    finally:
        machine.set_threads(before)
    (one, found), (two, again) = results
    assert np.array_equal(one, two)
    assert found == again
    held = F.constrained(dofs).residual(u)
    assert not held[dofs].any()
    free = np.setdiff1d(np.arange(W.size), dofs)
    assert np.array_equal(held[free], one[free])


def in_the_plane():
    options = {"integrals": ["work"], "minima": ["least"], "quadrature": 4}
    return femops.residual(coupled, product((3, 5)), **options, kappa=0.5)


def test_threads_do_not_get_the_functionals_of_others(monkeypatch):
    F = in_the_plane()
    u = np.random.default_rng(4).standard_normal(F.space.size)
    expected, found = F.evaluate(u), F._found

    def interrupted(_):
        other = Thread(target=lambda: F.residual(2 * u))
        other.start()
        other.join(0.2)
        return found()

    monkeypatch.setattr(type(F), "_found", interrupted)
    residual, functionals = F.evaluate(u)
    assert np.array_equal(residual, expected[0])
    assert functionals == expected[1]


def test_copies_and_pickles_are_the_same_form():
    F = in_the_plane().constrained([1])
    u = np.random.default_rng(4).standard_normal(F.space.size)
    residual, found = F.evaluate(u)
    for twin in (copy.deepcopy(F), pickle.loads(pickle.dumps(F))):
        again, functionals = twin.evaluate(u)
        assert np.array_equal(again, residual)
        assert functionals == found


def test_the_element_of_a_least_value_needs_an_evaluation():
    W = product((3, 2))
    F = femops.residual(coupled, W, integrals=["work"], minima=["least"], kappa=0.5)
    u = np.random.default_rng(0).standard_normal(F.space.size)
    with pytest.raises(OperatorError, match="not been evaluated"):
        F.element_of("least")
    F.evaluate(u)
    F.element_of("least")
    for twin in (copy.copy(F), F.constrained([0])):
        with pytest.raises(OperatorError, match="not been evaluated"):
            twin.element_of("least")


def test_reference_gradient_is_that_of_the_element():
    mesh = femops.box((4, 2), upper=(2.0, 3.0))
    W = femops.Product(r=femops.H1(mesh, order=1, ncomp=2), e=femops.L2(mesh, order=0))

    def size(r, e):
        return {"r": {}, "area": femops.det(r.grad), "least": femops.svd_min(r.reference_grad)}

    F = femops.residual(size, W, integrals=["area"], minima=["least"])
    u = W.join(r=W.spaces["r"].interpolate(lambda x: 2 * x), e=W.spaces["e"].zeros())
    residual, found = F.evaluate(u)
    assert not residual.any()
    assert found["area"] == pytest.approx(24.0)
    assert found["least"] == pytest.approx(1.0)


@pytest.mark.parametrize("level", ["partial", "full"])
def test_jacobian_is_the_derivative(level):
    W = product((3, 4))

    def nonlinear(v, e, x, kappa):
        return {
            "v": {"grad": np.exp(e.value) * v.grad, "value": kappa * v.value * v[0] * x[1]},
            "e": {"value": v.div * e**2 + femops.svd_min(v.grad) * e},
            "least": e.value,
        }

    dofs = W.spaces["v"].boundary_dofs(1)
    F = femops.residual(nonlinear, W, minima=["least"], kappa=0.5).constrained(dofs)
    rng = np.random.default_rng(3)
    u, step, h = rng.standard_normal(W.size), rng.standard_normal(W.size), 1e-6
    step[dofs] = 0.0
    J = F.jacobian(u, level)
    difference = (F.residual(u + h * step) - F.residual(u - h * step)) / (2 * h)
    assert np.abs(J @ step - difference).max() < 1e-6 * np.abs(difference).max()
    assert np.array_equal((J @ np.ones(W.size))[dofs], np.ones(len(dofs)))
    assert all(J[test, field] is not None for test in "ve" for field in "ve")


def weighted(weight, inverse):
    return {"weight": {"grad": inverse**2 * weight.grad}, "inverse": {"value": weight * inverse}}


def directed(v, v_direction):
    return {"v": {"grad": v_direction**2 * v.grad}, "v_direction": {"value": v * v_direction}}


@pytest.mark.parametrize("function", [weighted, directed])
def test_fields_may_have_names_that_a_trace_has_too(function):
    V = femops.H1(femops.box((2, 2)), order=2)
    W = femops.Product(**dict.fromkeys(function.__code__.co_varnames, V))
    F = femops.residual(function, W)
    rng = np.random.default_rng(3)
    u, step, h = rng.standard_normal(W.size), rng.standard_normal(W.size), 1e-6
    difference = (F.residual(u + h * step) - F.residual(u - h * step)) / (2 * h)
    assert np.abs(F.jacobian(u) @ step - difference).max() < 1e-6 * np.abs(difference).max()


def test_a_jacobian_keeps_its_state():
    """Whatever is done to the array later; other levels, transposes and copies are of it too."""
    F = in_the_plane()
    rng = np.random.default_rng(4)
    u, x = rng.standard_normal(F.space.size), rng.standard_normal(F.space.size)
    kept = u.copy()
    J, expected = F.jacobian(u), F.jacobian(kept) @ x
    u[:] = np.nan
    for A in (J, J.at_level("full"), J.at_level("auto"), J.T.T, pickle.loads(pickle.dumps(J))):
        assert np.allclose(A @ x, expected, rtol=1e-12, atol=1e-12 * abs(expected).max())
    bad = F.jacobian(u) @ x  # a bad state shows in its residual
    assert np.isnan(bad).any()
    assert np.array_equal(F.jacobian(kept) @ x, expected)


def test_sweeps_fill_what_depends_on_the_fields(monkeypatch):
    """Of each state by one sweep over all of them."""
    filled = []
    plain = host._run
    monkeypatch.setattr(host, "_run", lambda *given: filled.append(plain(*given)))

    def warm(v, e):
        return {
            "v": {"grad": e * e * v.grad},
            "e": {"value": v.div * np.exp(e.value), "grad": e.grad},
        }

    W = product((3, 4))
    F = femops.residual(warm, W)
    rng = np.random.default_rng(3)
    u, x = rng.standard_normal(W.size), rng.standard_normal(W.size)
    expected = F.jacobian(u) @ x
    assert not filled
    monkeypatch.setattr(host, "_COMPILED_FROM", 0)
    for state in (u, -u, u):
        found = F.jacobian(state) @ x
    assert len(filled) == 3
    assert np.abs(found - expected).max() < 1e-13 * np.abs(expected).max()


def test_lanes_of_another_width_have_numbers_of_their_own(monkeypatch):
    """What one form's derivatives share at points is by lane."""
    monkeypatch.setattr(host, "_COMPILED_FROM", 0)
    W = product((3, 4))
    F = femops.residual(lambda v, e: {"v": {"grad": (1 + v @ v) * v.grad}}, W, lanes=2)
    A = F.jacobian(np.random.default_rng(7).standard_normal(W.size))["v", "v"]
    x = np.random.default_rng(8).standard_normal(A.shape[0])
    expected = A @ x
    other = in_precision(A.at_level("full"), "float64", "partial")
    assert np.abs(other @ x - expected).max() < 1e-12


@pytest.mark.parametrize("family", ["gauss", "bernstein"])
def test_multigrid_takes_the_state_to_coarser_spaces(family):
    """A field of another space too, whose order is higher than theirs."""
    mesh = femops.box((5, 5), mapping=wavy)
    W = femops.Product(v=femops.H1(mesh, 4), e=femops.L2(mesh, 3, family=family))

    def warm(v, e):
        return {"v": {"grad": (1 + e * e) * v.grad, "value": v**3}, "e": {"value": e * v}}

    V, E = W.spaces.values()
    state = W.join(v=V.interpolate(lambda x: np.sin(3 * x[0])), e=E.interpolate(lambda x: 1 + x[1]))
    A = femops.residual(warm, W).jacobian(state)["v", "v"].constrained(V.boundary_dofs())
    info = femops.cg(A, A.rhs(femops.load(V, 1.0)), rtol=1e-10, M=femops.multigrid(A))[1]
    assert info.converged
    assert info.iterations <= 7


def test_what_is_wrong_is_told():
    W, value = product((2, 2)), {"v": {"value": 0.0}}
    F = femops.residual(lambda v, e: {"v": {"value": v.value * e}}, W)
    refused = [
        (lambda: femops.residual(lambda v, e: value, W, integrals=["w"]), TraceError, "no 'w'"),
        (lambda: femops.residual(lambda v, e: value, W, integrals=["v"]), OperatorError, "two res"),
        (lambda: femops.residual(lambda v, e: {}, W), OperatorError, "<lambda> returns nothing"),
        (lambda: F.residual(np.zeros(3)), VectorError, "entries"),
        (lambda: F.element_of("v"), OperatorError, "no minimum"),
    ]
    for ask, kind, words in refused:
        with pytest.raises(kind, match=words):
            ask()


@pytest.mark.parametrize("level", ["full", "element", "partial", "matrix-free"])
def test_a_field_that_cancels(level):
    """It is no field of the operator, and its symbols are no inputs of the kernel."""
    mesh = femops.box((3, 2), mapping=lambda x: x + 0.05 * np.sin(3 * x[::-1]))
    V = femops.H1(mesh, 2)
    W = femops.Product(u=V, p=V, q=femops.L2(mesh, 1))
    state = np.random.default_rng(0).standard_normal(W.size)

    def cancelling(u, p, q):
        return {"p": {"grad": ((u - u) + 1 + p * p) * p.grad, "value": (q - q) * p + p}}

    def plain(u, p, q):
        return {"p": {"grad": (1 + p * p) * p.grad, "value": p}}

    found, expected = (femops.residual(form, W) for form in (cancelling, plain))
    J, K = (F.jacobian(state, level=level) for F in (found, expected))
    for ours, theirs in ((J @ state, K @ state), (J.T @ state, K.T @ state)):
        assert np.abs(ours - theirs).max() < 1e-13 * np.abs(theirs).max()
    assert np.abs(found.residual(state) - expected.residual(state)).max() < 1e-13
