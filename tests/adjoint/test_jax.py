"""femops in JAX: transformations of products, functionals, residuals and solves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, TraceError, VectorError

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import femops.jax  # noqa: E402
from support.cases.differentiable import (  # noqa: E402
    CONTROLS,
    A,
    F,
    J,
    K,
    V,
    complex_product,
    direct,
    problem,
)
from support.cuda.guarded import gpu  # noqa: E402


@pytest.fixture(autouse=True)
def wide() -> Any:
    """64-bit numbers of JAX, in these tests alone, on the host if nothing else is said."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    with jax.default_device(jax.devices("cpu")[0]):
        yield
    jax.config.update("jax_enable_x64", before)


FUNCTIONS = {
    "functional": femops.jax.functional(J, *CONTROLS),
    "residual": femops.jax.residual(F, *CONTROLS),
    "solve": femops.jax.solve(F, *CONTROLS, linear=direct, rtol=1e-13),
}
PRODUCT = femops.jax.operator(A)


def inputs(seed: int = 0) -> tuple[Any, dict[str, Any]]:
    random = np.random.default_rng(seed)
    u, kappa = 0.2 * random.random(V.size), 1.0 + random.random(K.size)
    controls = {"kappa": kappa, "a": random.random(), "c": random.random(2)}
    return jnp.asarray(u), {name: jnp.asarray(value) for name, value in controls.items()}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_modes(name: str, compiled: bool) -> None:
    function = FUNCTIONS[name]
    function = jax.jit(function) if compiled else function
    u, controls = inputs()
    check_grads(lambda u, m: function(u, **m), (u, controls), order=1, modes=["fwd", "rev"])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_product_and_its_derivatives_of_any_order(compiled: bool) -> None:
    product = jax.jit(PRODUCT) if compiled else PRODUCT
    u, v = inputs()[0], inputs(1)[0]
    assert np.asarray(product(u)) == pytest.approx(A @ np.asarray(u), rel=1e-14)
    assert jax.jvp(product, (u,), (v,))[1] == pytest.approx(A @ np.asarray(v), rel=1e-14)
    assert jax.vjp(product, u)[1](v)[0] == pytest.approx(A.T @ np.asarray(v), rel=1e-12)
    matrix = A.assemble().toarray()
    derivative = jax.jacrev if compiled else jax.jacfwd
    assert derivative(product)(u) == pytest.approx(matrix, abs=1e-13)
    hessian = jax.hessian(lambda u: 0.5 * u @ product(u))(u)
    assert hessian == pytest.approx(0.5 * (matrix + matrix.T), abs=1e-13)


def test_complex_products() -> None:
    """Derivatives are those of JAX for the matrix."""
    C = complex_product()
    product, matrix = femops.jax.operator(C), jnp.asarray(C.assemble().toarray())
    u, v = (inputs(k)[0] + 1j * inputs(k + 2)[0] for k in (0, 1))

    def found(product: Any) -> list[Any]:
        def energy(u: Any) -> Any:
            return jnp.real(jnp.vdot(u, product(u)))

        slope, many = jax.grad(energy), jax.vmap(product)
        pulls = jax.vjp(product, u)[1](v)[0], jax.vjp(many, jnp.stack([u, v]))[1](jnp.stack([v, u]))
        return [product(u), pulls[0], *pulls[1][0], slope(u), jax.jvp(slope, (u,), (v,))[1]]

    for mine, exact in zip(found(product), found(lambda u: matrix @ u), strict=True):
        np.testing.assert_allclose(mine, exact, rtol=1e-12, atol=1e-13)


def test_many_vectors_are_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    from femops.adjoint.maps import OperatorMap

    shapes, batched = [], OperatorMap.batched

    def counted(self: Any, X: Any, **options: Any) -> Any:
        shapes.append(X.shape)
        return batched(self, X, **options)

    monkeypatch.setattr(OperatorMap, "batched", counted)
    X = jnp.stack([inputs(seed)[0] for seed in range(6)]).reshape(2, 3, V.size)
    for many in (jax.vmap(jax.vmap(PRODUCT)), jax.jit(jax.vmap(jax.vmap(PRODUCT)))):
        found = many(X)
        assert found.shape == X.shape
        assert found[1, 2] == pytest.approx(A @ np.asarray(X[1, 2]), rel=1e-12)
    turned = jax.vmap(PRODUCT, in_axes=1, out_axes=1)(X[0].T)
    rows = np.asarray(jax.vmap(PRODUCT)(X[0]))
    assert turned == pytest.approx(rows.T, rel=1e-14)
    assert shapes == [(V.size, 6)] * 2 + [(V.size, 3)] * 2


def test_values_at_constrained_dofs() -> None:
    C = femops.diffusion(V, 1.0).constrained(V.boundary_dofs())
    solve = femops.jax.solve(C, rtol=1e-13)
    b = jnp.asarray(C.rhs(V.zeros(), 1.0))
    assert np.asarray(solve(b)) == pytest.approx(np.ones(V.size), rel=1e-9)
    check_grads(solve, (b,), order=1, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("linear", ["auto", direct])
def test_loads_are_solved_for_at_once(linear: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from femops.adjoint.equations import LinearEquations

    B = femops.form(lambda u, k: {"grad": k * u.grad, "value": u}, V, k=1.0)
    B = B.constrained(V.boundary_dofs([1]))
    solve = femops.jax.solve(B, "k", linear=linear, u0=V.interpolate(lambda x: x[1]))
    loads = jnp.stack([inputs(seed)[0] for seed in range(6)]).reshape(2, 3, V.size)
    expected = [[solve(b, k=2.0) for b in row] for row in loads]
    shapes, solved = [], LinearEquations.solve_with_values

    def counted(self: Any, J: Any, right: Any, *given: Any, **options: Any) -> Any:
        shapes.append(right.shape)
        return solved(self, J, right, *given, **options)

    monkeypatch.setattr(LinearEquations, "solve_with_values", counted)
    found = jax.vmap(jax.vmap(lambda b: solve(b, k=2.0)))(loads)
    assert np.asarray(found) == pytest.approx(np.asarray(expected), rel=1e-8, abs=1e-10)
    assert shapes[0] == (V.size, 6)
    assert len(shapes) == (1 if linear == "auto" else 7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name: str) -> None:
    """Batches of some inputs, with derivatives on either side of vmap."""
    function = FUNCTIONS[name]
    u, controls = inputs()
    a = jnp.asarray([0.1, 0.3])

    def value(a: Any, kappa: Any) -> Any:
        return (function(u, a=a, kappa=kappa) ** 2).sum()

    def total(a: Any, kappa: Any) -> Any:
        return jax.vmap(value, (0, None))(a, kappa).sum()

    kappa = controls["kappa"]
    single = [jax.grad(value, (0, 1))(one, kappa) for one in a]
    inner = jax.vmap(jax.grad(value, (0, 1)), (0, None))(a, kappa)
    outer = jax.grad(total, (0, 1))(a, kappa)
    for k, (by_a, by_kappa) in enumerate(single):
        assert inner[0][k] == outer[0][k] == pytest.approx(float(by_a), rel=1e-9)
        assert inner[1][k] == pytest.approx(np.asarray(by_kappa), rel=1e-8)
    assert outer[1] == pytest.approx(sum(np.asarray(g) for _, g in single), rel=1e-8)
    ahead = jax.jvp(total, (a, kappa), (jnp.ones(2), kappa))[1]
    assert float(ahead) == pytest.approx(float(outer[0].sum() + outer[1] @ kappa), rel=1e-8)
    assert jax.vmap(value, (0, None))(a[:0], kappa).shape == (0,)


def test_values_are_not_copied() -> None:
    u = jnp.asarray(V.zeros() + 1.0)
    found = PRODUCT(u)
    pointer = np.asarray(found).ctypes.data
    assert found.unsafe_buffer_pointer() == pointer
    assert pointer % 64 == 0


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["product", *FUNCTIONS])
def test_on_a_gpu(name: str, compiled: bool) -> None:
    """Values and derivatives of the host. Arrays stay on the GPU."""
    there = problem(gpu())
    u, controls = inputs()
    controls = {} if name == "product" else controls
    functions = {
        "product": femops.jax.operator(there.A),
        "functional": femops.jax.functional(there.J, *CONTROLS),
        "residual": femops.jax.residual(there.F, *CONTROLS),
        "solve": femops.jax.solve(there.F, *CONTROLS, rtol=1e-13),
    }

    def results(function: Any, platform: str) -> Any:
        function = jax.jit(function) if compiled else function
        place = jax.devices(platform)[0]
        given = jax.device_put((u, controls), place)
        ones = jax.device_put(jax.tree.map(jnp.ones_like, given), place)

        def value(u: Any, controls: Any) -> Any:
            return function(u, **controls)

        found, ahead = jax.jvp(value, given, ones)
        back = jax.grad(lambda *given: jnp.sin(value(*given)).sum(), (0, 1))(*given)
        many = jax.vmap(value, (0, None))(jnp.stack([given[0]] * 3), given[1])
        arrays = jax.tree.leaves((found, ahead, back, many, function(given[0])))
        assert all(x.devices() == {place} for x in arrays)
        return [np.asarray(x) for x in arrays]

    expected = results(({"product": PRODUCT} | FUNCTIONS)[name], "cpu")
    for mine, host in zip(results(functions[name], "gpu"), expected, strict=True):
        assert mine == pytest.approx(host, rel=1e-8, abs=1e-10)


def test_controls_that_are_left_out_or_numbers() -> None:
    f = FUNCTIONS["functional"]
    u = jnp.asarray(V.interpolate(lambda x: x[0]))
    assert float(f(u)) == pytest.approx(J(np.asarray(u)), rel=1e-15)
    assert float(f(u, a=2)) == pytest.approx(J.update(a=2.0)(np.asarray(u)), rel=1e-15)
    assert float(jax.grad(lambda a: f(u, a=a))(2.0)) > 0.0


def test_controls_by_position() -> None:
    u, controls = inputs()
    function, values = FUNCTIONS["residual"], list(controls.values())
    assert (function(u, *values) == function(u, **controls)).all()
    assert (function(u, values[0], c=values[2]) == function(u, kappa=values[0], c=values[2])).all()
    slope = jax.grad(FUNCTIONS["functional"], argnums=2)(u, *values)
    named = jax.grad(lambda m: FUNCTIONS["functional"](u, **m))(controls)
    assert float(slope) == pytest.approx(float(named["a"]), rel=1e-13)
    two = jax.vmap(function, in_axes=(0, None))(jnp.stack([u, 2.0 * u]), values[0])
    assert np.allclose(two[1], function(2.0 * u, values[0]), rtol=1e-13)


def test_single_precision_without_wide_numbers() -> None:
    jax.config.update("jax_enable_x64", False)
    W = femops.functional(lambda u, k: k * u**2, V, k=1.0, dtype="float32")
    f = femops.jax.functional(W, "k")
    u = jnp.ones(V.size)
    assert float(jax.jit(jax.grad(lambda k: f(u, k=k)))(2.0)) == pytest.approx(1.0, rel=1e-5)
    with pytest.raises(OperatorError, match=r"JAX has no complex128 now, .* dtype=.complex64"):
        femops.jax.operator(complex_product())(np.zeros(V.size))
    with pytest.raises(OperatorError, match="JAX has no float64 now, in which"):
        PRODUCT(u)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda u: PRODUCT(u[1:]), r"u has shape \(34,\): give \(35,\)"),
        (lambda u: PRODUCT(u.astype("float32")), "u has type float32: convert it by"),
        (lambda u: jax.jit(PRODUCT)(u.astype("float32")), "u has type float32: convert it by"),
        (lambda u: PRODUCT(u, k=1.0), "'k' is no input: there are u"),
        (lambda u: PRODUCT(u, u), "2 values by position are too many: there are u"),
        (lambda u: FUNCTIONS["solve"](u, u, kappa=u), "too many: there are load, kappa, a, c"),
        (lambda _: FUNCTIONS["solve"](), "load is missing: give an array"),
        (lambda u: FUNCTIONS["residual"](u, c="text"), "c has type"),
        (jax.grad(FUNCTIONS["residual"]), "scalar"),
        (jax.hessian(FUNCTIONS["functional"]), "second derivatives of FunctionalMap"),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises((OperatorError, VectorError, TypeError), match=message):
        call(jnp.asarray(V.zeros()))


def test_functions_of_jax_in_a_form() -> None:
    with pytest.raises(TraceError, match="JAX's functions do not take symbols"):
        femops.residual(lambda u: {"value": jnp.exp(u)}, V)
    with pytest.raises(VectorError, match=r"u is a .*Tracer: .* functions of femops"):
        jax.grad(J)(jnp.ones(V.size))
