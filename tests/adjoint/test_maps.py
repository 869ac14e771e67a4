"""Maps: their values, Taylor rates of their derivatives, and products of both modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import FunctionalMap, OperatorMap, ResidualMap, SolveMap
from femops.errors import OperatorError, VectorError
from support.cases.differentiable import CONTROLS, KAPPA, MESH, OPTIONS, F, K, V, direct

FIXED = V.boundary_dofs(where=lambda x: x[0] < 1e-9)
POINTS = (MESH.num_elements, 16)
WEIGHTED = ("kappa", "a", "w", "c")


def linear(u: Any, kappa: Any, a: Any, w: Any, c: Any) -> Any:
    return {"value": (w + a) * u, "grad": kappa * u.grad + c * u}


def weighted(u: Any, kappa: Any, a: Any, w: Any, c: Any) -> Any:
    return a * kappa * u**2 + w * u + c[0] * femops.inner(u.grad, u.grad) + c[1] * u


WEIGHTS = np.linspace(0.5, 1.0, POINTS[0] * 16).reshape(POINTS)
A = femops.form(linear, V, **OPTIONS, w=WEIGHTS).constrained(FIXED)
J = femops.functional(weighted, V, **OPTIONS, w=WEIGHTS)
START = V.interpolate(lambda x: 0.1 + x[1])

MAPS = {
    "operator": OperatorMap(A),
    "functional": FunctionalMap(J, WEIGHTED),
    "residual": ResidualMap(F, CONTROLS),
    "residual of an operator": ResidualMap(A, WEIGHTED),
    "solve": SolveMap(F, CONTROLS, linear=direct, rtol=1e-13, u0=START),
    "solve an operator": SolveMap(A, WEIGHTED, rtol=1e-13, u0=START),
    "solve with values in b": SolveMap(2.0 * A, WEIGHTED, rtol=1e-13),
}


def sample(function: Any, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    found = {name: 1.0 + 0.2 * random.random(shape) for name, shape in function.inputs.items()}
    return found | ({"load": 0.1 * found["load"]} if "load" in found else {})


@pytest.mark.parametrize("name", MAPS)
def test_rates_and_the_transpose(name: str) -> None:
    function = MAPS[name]
    values, tangents = sample(function, 1), sample(function, 4)
    y = 1.0 + np.random.default_rng(3).random(function.shape)
    ahead, back = function.jvp(values, tangents), function.vjp(values, y)
    assert [*back] == [*function.inputs]
    assert all(back[n].shape == function.inputs[n] for n in back)
    total = sum(float(np.sum(back[n] * tangents[n])) for n in back)
    exact = 1e-13 if "solve" not in name else 1e-9
    assert float(np.sum(y * ahead)) == pytest.approx(total, rel=exact)
    if name == "operator":
        return
    rates = femops.adjoint.taylor(
        lambda point: float(np.sum(y * function(point))), values, tangents, total
    )
    assert rates[-2:] == pytest.approx(2.0, abs=0.05)
    # derivatives by some inputs are those among all, with a result that is passed too
    found = function(values)
    some = function.vjp(values, y, ["a"], found)
    assert some["a"] == pytest.approx(back["a"], rel=1e-9)
    along = float(np.sum(y * function.jvp(values, {"a": 2.0}, found)))
    assert along == pytest.approx(2.0 * float(some["a"]), rel=1e-9)


def test_values() -> None:
    u = START.copy()
    assert MAPS["functional"]({"u": u}) == J(u)
    assert np.array_equal(MAPS["residual"]({"u": u}), F.residual(u))
    assert np.array_equal(MAPS["operator"]({"u": u}), A @ u)
    product = MAPS["operator"]
    assert isinstance(product, OperatorMap)
    many = np.stack([u, 2.0 * u], axis=1)
    assert product.batched(many)[:, 1] == pytest.approx(2.0 * (A @ u), rel=1e-12)
    assert product.batched(many, transposed=True)[:, 0] == pytest.approx(A.T @ u, rel=1e-12)
    solution = MAPS["solve"]({"load": V.zeros()})
    assert np.array_equal(solution[FIXED], START[FIXED])
    assert abs(F.residual(solution)).max() < 1e-12


def test_a_load_means_what_it_means_to_cg() -> None:
    C = femops.diffusion(V, 1.0).constrained(V.boundary_dofs())
    b = C.rhs(V.zeros(), 1.0)
    solve, free = SolveMap(C, rtol=1e-12), np.setdiff1d(np.arange(V.size), C.constrained_dofs)
    assert solve({"load": b}) == pytest.approx(np.ones(V.size), rel=1e-9)
    both = solve.of_loads({}, np.stack([b, 3.0 * b], axis=1))
    assert both[:, 1] == pytest.approx(np.full(V.size, 3.0), rel=1e-9)
    inverse = np.linalg.inv((A @ np.eye(V.size)).T)
    y = np.random.default_rng(3).random(V.size)
    held = SolveMap(A, rtol=1e-13).vjp({"load": b}, y)["load"]
    assert held == pytest.approx(inverse @ y, rel=1e-8)
    # with u0, entries of b at constrained dofs do not count, as in `Operator.rhs`
    of_u0 = SolveMap(A, rtol=1e-13, u0=START).vjp({"load": b}, y)["load"]
    assert not of_u0[FIXED].any()
    assert of_u0[free].any()


def test_fields_in_a_product_in_single_precision() -> None:
    W = femops.Product(u=femops.H1(MESH, 2, ncomp=2), p=K)

    def stokes(u: Any, p: Any, nu: Any) -> Any:
        return {"u": {"grad": nu * u.grad - p * np.eye(2)}, "p": {"value": u.div + nu * p**3}}

    R = femops.residual(stokes, W, nu=1.0, dtype="float32").constrained([0, 3])
    function = ResidualMap(R, "nu")
    random = np.random.default_rng(5)
    u, du, y = random.standard_normal((3, W.size)).astype(np.float32)
    values, tangents = {"u": u, "nu": 2.0}, {"u": du, "nu": np.float32(0.5)}
    ahead, back = function.jvp(values, tangents), function.vjp(values, y)
    assert ahead.dtype == back["u"].dtype == back["nu"].dtype == np.float32
    total = back["u"] @ du + 0.5 * back["nu"]
    assert ahead @ y == pytest.approx(total, rel=1e-4)


def test_the_load_of_gradient() -> None:
    """Derivatives of a goal are those of femops.gradient."""
    solve, mean = SolveMap(F, "kappa", linear=direct, rtol=1e-12, u0=START), FunctionalMap(J)
    values = {"load": V.zeros(), "kappa": KAPPA.vector}
    u = solve(values)
    back = solve.vjp(values, mean.vjp({"u": u}, 1.0)["u"], result=u)
    expected = femops.gradient(J, F, u, ["load", "kappa"], linear=direct)
    partial = FunctionalMap(J, "kappa").vjp({"u": u}, 1.0)["kappa"]
    assert back["load"] == pytest.approx(expected["load"], rel=1e-9, abs=1e-12)
    assert back["kappa"] + partial == pytest.approx(expected["kappa"], rel=1e-9, abs=1e-12)


def residual(**values: Any) -> Any:
    return MAPS["residual"](values)


OF_X = femops.functional(lambda u, k: k * u, V, k=lambda x: x[0])
NAMED = femops.functional(lambda w, u: w * u, V, u=2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FunctionalMap(lambda u: u, "k"), "J is a function: give a"),
        (lambda: FunctionalMap(J, "q"), "nothing depends on 'q': there are coefficients kappa, a"),
        (lambda: FunctionalMap(J, 3), "controls is 3: give a"),
        (lambda: FunctionalMap(J, "mesh"), "the mesh is no control of a map: femops.gradient has"),
        (lambda: FunctionalMap(J, ["a", "a"]), "a name twice"),
        (lambda: FunctionalMap(NAMED, "u"), "an input is called 'u': rename the coefficient"),
        (lambda: FunctionalMap(OF_X, "k"), "k is a function of x, by which nothing can be"),
        (lambda: OperatorMap(F), "A is a Residual: give a"),
        (lambda: SolveMap(J), "F is a Functional: give a"),
        (lambda: residual(u=START, q=1.0), "'q' is no input: there are u, kappa"),
        (lambda: residual(a=1.0), r"u is missing: give an array of shape \(35,\)"),
        (lambda: MAPS["residual"].jvp({"u": START}, {"q": 1.0}), "'q' is no input: there are u"),
        (lambda: MAPS["residual"].vjp({"u": START}, START, ["q"]), "'q' is no input: there are u"),
        (lambda: residual(u=START.astype(np.float32)), "u has type float32: convert it to float64"),
        (lambda: residual(u=START[1:]), r"u has shape \(34,\): give \(35,\)"),
        (lambda: residual(u=START, c=np.ones(3)), r"c has shape \(3,\): give \(2,\)"),
        (lambda: residual(u=START, kappa=1.0), r"kappa has shape \(\): give \(12,\)"),
        (lambda: residual(u=START, a=np.ones(1)), r"a has shape \(1,\): give a number"),
        (lambda: residual(u="text"), "u has type <U4: convert it to float64"),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises((OperatorError, VectorError), match=message):
        make()
