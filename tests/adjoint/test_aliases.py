"""Gradients belong to the values that they were asked for at: later changes do not reach them."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import Sensitivity
from femops.errors import OperatorError, SolverError
from support.cases.differentiable import OPTIONS, K, V, equation, goal_inside


def made() -> tuple[Any, Any, Any, Any]:
    """Goal, residual, state and the array of a field."""
    values = K.interpolate(lambda x: 1.0 + x[0])
    options = OPTIONS | {"kappa": femops.GridFunction(K, values)}
    F = femops.residual(equation, V, **options).constrained(V.boundary_dofs())
    u, _ = femops.newton(F, V.zeros(), rtol=1e-12)
    return femops.functional(goal_inside, V, **options), F, u, values


STEP = {"kappa": K.zeros() + 1.0}


def test_arrays_of_the_user_change() -> None:
    J, F, u, values = made()
    slopes, S = femops.gradient(J, F, u, ["kappa", "a", "load"]), Sensitivity(F, u, "kappa")
    before, rows = slopes.hessian_product(STEP), S.T @ u
    weights = u.copy()
    for array in (u, values, slopes["load"], slopes.adjoint):
        array[:] = 0.5
    assert np.array_equal(slopes.hessian_product(STEP)["kappa"], before["kappa"])
    assert np.array_equal(S.T @ weights, rows)


def test_variables_that_a_function_reads() -> None:
    """The form keeps the old value, so derivatives with the new one would be of another goal."""
    rate = {"rate": 1.0}
    J = femops.functional(lambda u, k: k * rate["rate"] * u, V, k=2.0)
    F = femops.residual(lambda u, k: {"value": rate["rate"] * k * u**2}, V, k=2.0)
    S = femops.residual(lambda u, k: {"value": rate["rate"] * k * u}, V, boundary="all", k=2.0)
    A = femops.form(lambda u, k: {"value": rate["rate"] * k * u}, V, k=2.0)
    u = V.zeros() + 1.0
    for _ in range(2):
        assert femops.gradient(J, u=u, wrt="k")["k"] == pytest.approx(J(u) / 2.0)
        assert [Sensitivity(R, u, "k").shape for R in (F, S, A)] == [(V.size, 1)] * 3
        J, F, S, A = (made.update(k=2.0) for made in (J, F, S, A))
    rate["rate"] = 3.0
    message = "reads a variable that has changed since the form was made: give it as a coefficient"
    with pytest.raises(OperatorError, match=message):
        femops.gradient(J, u=u, wrt="k")
    for R in (F, S, A):
        with pytest.raises(OperatorError, match=message):
            Sensitivity(R, u, "k")


def test_an_equation_for_several_goals() -> None:
    J, F, u, _ = made()
    other = femops.functional(lambda u: u**3, V)
    once = femops.gradient(J, F, u, "a")["a"]
    both = femops.gradient(J + other, F, u, "a")["a"] - femops.gradient(other, F, u, "a")["a"]
    assert both == pytest.approx(once, rel=1e-9)
    assert np.array_equal(femops.gradient(J, F, u, "a")["a"], once)
    assert np.array_equal(femops.gradient(J, F, u, ["mesh", "a", "kappa"])["a"], once)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
def test_copies(copied: Any) -> None:
    J, F, u, _ = made()
    slopes, S = femops.gradient(J, F, u, ["kappa", "a"]), Sensitivity(F, u, "kappa")
    other = femops.gradient(*copied((J, F, u)), ["kappa", "a"])
    assert np.array_equal(other["kappa"], slopes["kappa"])
    assert np.array_equal(copied(S).T @ u, S.T @ u)
    bent = copied(slopes).hessian_product(STEP)
    assert np.array_equal(bent["a"], slopes.hessian_product(STEP)["a"])


def test_threads() -> None:
    J, F, u, _ = made()
    slopes, found = femops.gradient(J, F, u, ["kappa", "a"]), list[Any]()
    fresh = femops.gradient(J, F, u, ["kappa", "a"])

    def work() -> None:
        found.extend(fresh.hessian_product(STEP)["a"] for _ in range(4))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert {float(one) for one in found} == {float(slopes.hessian_product(STEP)["a"])}


def test_single_precision() -> None:
    J, F, u, values = made()
    slopes = femops.gradient(J, F, u, ["kappa", "a", "load", "dirichlet", "mesh"])
    options = OPTIONS | {"kappa": femops.GridFunction(K, values), "dtype": "float32"}
    F = femops.residual(equation, V, **options).constrained(V.boundary_dofs())
    J = femops.functional(goal_inside, V, **options)
    rough = femops.gradient(J, F, u.astype(np.float32), [*slopes], rtol=1e-6)
    for name, value in slopes.items():
        assert rough[name] == pytest.approx(value, abs=1e-5 * abs(value).max()), name
        assert rough[name].dtype == ("float64" if name == "a" else "float32")


def test_names_that_mean_something_else() -> None:
    u = V.interpolate(lambda x: 1.0 + x[0])
    J = femops.functional(lambda w, u, **more: u * w**2, V, u=2.0)
    assert femops.gradient(J, u=u, wrt="u")["u"] == pytest.approx(J(u) / 2.0, rel=1e-13)
    A = femops.form(lambda x, k: {"value": k * x}, V, k=2.0)
    found = Sensitivity(A, u, "k").T @ u
    assert found == pytest.approx(u @ (femops.mass(V) @ u), rel=1e-13)


def test_a_preconditioner_of_each_jacobian() -> None:
    """One of the transpose would be wrong for the change of the state."""
    F = femops.residual(
        lambda u, k: {"grad": k * u.grad, "value": 30.0 * (1.0 + k * u) * u.grad[0] - 1.0}, V, k=2.0
    ).constrained(V.boundary_dofs())
    u, _ = femops.newton(F, V.zeros(), rtol=1e-12)
    J = femops.functional(lambda u, x: u * x[1], V)
    given: list[Any] = []

    def exact(A: Any) -> Any:
        given.append(A.assemble().toarray())
        return np.linalg.inv(given[-1])

    slopes = femops.gradient(J, F, u, "k", preconditioner=exact, rtol=1e-11)
    slopes.hessian_product({"k": 1.0})
    slopes.hessian_product({"k": 1.0})
    assert len(given) == 2
    assert given[0] == pytest.approx(given[1].T, abs=1e-12)


U = V.zeros() + 1.0


def test_names_of_gradients() -> None:
    """A coefficient has a name that `gradient` needs for itself."""
    for form, given, message in (
        (lambda u, mesh: {"value": mesh * u**2}, {"mesh": 2.0}, "mesh is a coefficient, and a"),
        (lambda u, load: {"value": load * u**2}, {"load": 2.0}, "load is a coefficient, and a"),
        (lambda u, u__state: {"value": u__state * u}, {"u__state": 2.0}, "own: rename u__state"),
    ):
        F = femops.residual(form, V, **given)
        with pytest.raises(OperatorError, match=message):
            femops.gradient(femops.functional(lambda u: u**2, V), F, U, [*given])


def test_refused_directions() -> None:
    J, F, u, _ = made()
    slopes = femops.gradient(J, F, u, ["kappa", "a"])
    for direction, message in (
        ({"kappa": np.ones(3)}, r"a value of kappa has shape \(3,\): give \(12,\)"),
        ({"a": "b"}, r"a value of a is 'b': give numbers of shape \(\)"),
        ({"a": [1.0, [2.0]]}, r"a value of a is a list: give numbers of shape \(\)"),
        ({"load": U}, "'load' is no control with a second derivative: there are kappa, a"),
        (3, "directions is 3: give a dict"),
    ):
        with pytest.raises(OperatorError, match=message):
            slopes.hessian_product(direction)


def test_second_derivatives_do_not_warn_if_asked_not_to() -> None:
    J, F, u, _ = made()
    options: dict[str, Any] = {"rtol": 1e-15, "linear": "gmres", "warn": False}
    femops.gradient(J, F, u, ["kappa", "a"], **options).hessian_product(STEP)


def test_states_that_are_not_finite() -> None:
    J, F, u, _ = made()
    u[3] = np.nan
    with pytest.raises(SolverError, match="not finite"):
        femops.gradient(J, F, u, "a")


def test_taylor_takes_slopes_of_libraries_and_refuses_other_shapes() -> None:
    ones, test = np.ones(3), femops.adjoint.taylor
    for slope in (np.array(6.0), np.float32(6.0), 6):
        assert test(lambda m: m @ m, ones, ones, slope) == pytest.approx(2.0, abs=1e-6)
    with pytest.raises(OperatorError, match=r"slope is an array .* gradient @ dir"):
        test(lambda m: m @ m, ones, ones, 2.0 * ones)
    with pytest.raises(OperatorError, match="are no point and direction"):
        test(lambda m: m @ m, ones, np.ones(4), 6.0)
    with pytest.raises(OperatorError, match="the direction has 'q', the point has k"):
        test(lambda point: point["k"], {"k": 1.0}, {"q": 1.0}, 1.0)
