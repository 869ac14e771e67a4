"""Gradients through steps in time, beside finite differences and with all kinds of schedules."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import Steps, moved
from femops.errors import OperatorError, SolverError, VectorError
from support.cases.differences import check_slopes
from support.cases.differentiable import MESH, K, V, euler, last, rate

FIXED = V.boundary_dofs(where=lambda x: x[0] < 1e-9)
COUNT = 4
RANDOM = np.random.default_rng(0)
START = RANDOM.standard_normal(V.size)
POINT = {"kappa": 1.0 + 0.3 * RANDOM.random(K.size), "dt": 0.1, "initial": START}


def steps(
    kappa: Any, dt: float, count: int = COUNT, *, rtol: float = 1e-12, **options: Any
) -> Steps:
    field = femops.GridFunction(K, kappa)
    old = femops.GridFunction(V, V.zeros())
    F = femops.residual(euler, V, old=old, kappa=field, dt=dt, t=0.0).constrained(FIXED)
    goals = {
        "final": femops.functional(last, V, kappa=field),
        "running": femops.functional(rate, V, dt=dt, t=0.0),
    }
    given = goals | {"at": lambda n: {"t": 0.1 * n}} | options
    return Steps(F, count, rtol=rtol, **given)


def value(point: dict[str, Any]) -> float:
    return steps(point["kappa"], point["dt"]).run(point["initial"])[0]


def test_gradients() -> None:
    reached, slopes = steps(POINT["kappa"], POINT["dt"]).gradient(START, [*POINT])
    assert reached == value(POINT)
    check_slopes(value, POINT, slopes)


@pytest.fixture(scope="module")
def found() -> tuple[float, dict[str, Any]]:
    """Of solves that are rough, which is enough to compare bits."""
    return steps(POINT["kappa"], POINT["dt"], rtol=1e-3).gradient(START, [*POINT])


@pytest.mark.filterwarnings("ignore:Numba not available:RuntimeWarning")  # a schedule is slower
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SingleMemoryStorageSchedule", ()),
        ("SingleDiskStorageSchedule", ()),
        ("Revolve", (COUNT, 2)),
        ("MultistageCheckpointSchedule", (COUNT, 2, 1)),
        ("MixedCheckpointSchedule", (COUNT, 3)),
        ("TwoLevelCheckpointSchedule", (3, 2)),
        ("HRevolve", (COUNT, 1, 2)),
    ],
)
def test_schedules_have_the_same_bits(found: Any, name: str, arguments: tuple[int, ...]) -> None:
    schedules = pytest.importorskip("checkpoint_schedules")
    schedule = getattr(schedules, name)(*arguments)
    one = steps(POINT["kappa"], POINT["dt"], rtol=1e-3)
    reached, slopes = one.gradient(START, [*POINT], schedule)
    assert reached == found[0]
    assert all(np.array_equal(slopes[key], found[1][key]) for key in slopes)


# --- values at constrained dofs -------------------------------------------------------------------


def in_place(n: int, u: Any) -> Any:
    """Values that are a function of time, and an argument that is returned."""
    u[FIXED] = 0.1 * n
    return u


def kept(n: int, u: Any) -> Any:
    """Another first guess, with the values of the state before the step at some dofs."""
    guess = 0.5 * u
    guess[FIXED[1:]] = u[FIXED[1:]]
    guess[FIXED[0]] = 0.1 * n
    return guess


@pytest.mark.parametrize("begin", [in_place, kept])
def test_essential_values(begin: Any) -> None:
    one = steps(POINT["kappa"], POINT["dt"], 3, begin=begin)
    _, slopes = one.gradient(START, "initial")
    check_slopes(lambda point: one.run(point["initial"])[0], {"initial": START}, slopes)


# --- other equations and sizes --------------------------------------------------------------------


def midpoint(u: Any, w: Any, old: Any, kappa: Any, f: Any, t: Any) -> Any:
    """Crank-Nicolson: a coefficient has no gradient, so the second field is the state before."""
    return {
        "u": {"value": (u - old) / 0.1 - t * f, "grad": 0.5 * kappa * (u.grad + w.grad)},
        "w": {"value": w - old},
    }


def direct(J: Any, b: Any, rtol: float) -> Any:
    return np.linalg.solve(J.assemble().toarray(), b)


def by_matrices(count: int) -> tuple[float, dict[str, Any]]:
    """The goal and its derivatives by an adjoint of dense matrices."""
    M, K = (make(V).assemble().toarray() for make in (femops.mass, femops.diffusion))
    free = np.ones(V.size)
    free[FIXED] = 0.0
    now, before = (free[:, np.newaxis] * (M / 0.1 + s * K) for s in (0.5, -0.5))
    now, before = (A + np.diag(1.0 - free) for A in (now, before))
    loads, states = free * (M @ np.ones(V.size)), [START]
    for n in range(1, count + 1):
        states.append(np.linalg.solve(now, before @ states[-1] + 2.0 * np.cos(n) * loads))
    found = {"kappa": 0.0, "f": 0.0, "initial": 2.0 * M @ states[-1]}
    for n in range(count, 0, -1):
        adjoint = np.linalg.solve(now.T, found["initial"])
        found["kappa"] -= adjoint @ (free * (K @ (0.5 * (states[n] + states[n - 1]))))
        found["f"] += np.cos(n) * adjoint @ loads
        found["initial"] = before.T @ adjoint
    return states[-1] @ M @ states[-1], found


@pytest.mark.parametrize("count", [1, 4])
def test_an_adjoint_of_matrices(count: int) -> None:
    W = femops.Product(u=V, w=V)
    old = femops.GridFunction(V, V.zeros())
    F = femops.residual(midpoint, W, old=old, kappa=1.0, f=2.0, t=0.0)
    F = F.constrained(W.positions(u=FIXED))
    goal = femops.functional(lambda u, w: u**2 + 0.0 * w, W)
    given = {"old": {"u": "old"}, "linear": direct, "rtol": 1e-9}
    one = Steps(F, count, final=goal, at=lambda n: {"t": np.cos(n)}, **given)
    reached, slopes = one.gradient(W.join(u=START, w=V.zeros()), ["kappa", "f", "initial"])
    value_by_hand, by_hand = by_matrices(count)
    assert reached == pytest.approx(value_by_hand, rel=1e-12)
    assert slopes["initial"][V.size :] == pytest.approx(0.0)
    for name, derivative in by_hand.items():
        mine = slopes[name][: V.size] if name == "initial" else slopes[name]
        assert mine == pytest.approx(derivative, abs=1e-12 * abs(derivative).max()), name


def linear(u: Any, old: Any, k: Any) -> Any:
    return {"value": (u - old) / 0.1, "grad": k * u.grad}


def decay(count: int, k: float = 1.0, rtol: float = 1e-10, dtype: str = "float64") -> Steps:
    old = femops.GridFunction(V, V.zeros())
    F = femops.residual(linear, V, old=old, k=k, dtype=dtype)
    goal = femops.functional(lambda u: u**2, V, dtype=dtype)
    return Steps(F.constrained(FIXED), count, final=goal, rtol=rtol)


def test_small_and_large_states() -> None:
    one = decay(2)
    expected, slopes = one.gradient(START, ["k", "initial"])
    for scale in (1e-20, 1e20):
        reached, found = one.gradient(scale * START, ["k", "initial"])
        assert reached == pytest.approx(scale**2 * expected, rel=1e-8)
        assert found["k"] == pytest.approx(scale**2 * slopes["k"], rel=1e-8, abs=0.0)
        error = abs(found["initial"] - scale * slopes["initial"]).max()
        assert error < 1e-8 * scale * abs(slopes["initial"]).max()


def test_a_steady_state_is_a_step() -> None:
    """The first guess is the solution to rounding, which is all that a step can reach."""
    start = 1e6 * (1.0 + START * (V.dof_coordinates()[:, 0] > 1e-9))
    start[FIXED] = 1e6
    one, other = (decay(count, k=50.0).run(start)[0] for count in (8, 10))
    assert one == pytest.approx(other, rel=1e-8)


def test_an_adjoint_that_is_not_solved() -> None:
    """Steps end at float32's rounding, but linear equations can't be solved to 1e-10."""
    one = decay(2, rtol=1e-10, dtype="float32")
    with pytest.raises(SolverError, match=r"adjoint \(step 2\) .* solved to 1e-10"):
        one.gradient(START.astype(np.float32), "k")


def test_nodes_that_move() -> None:
    X = femops.H1(MESH, 1, ncomp=2)

    def on(nodes: Any) -> Steps:
        W = femops.H1(moved(X, nodes), 2)
        old = femops.GridFunction(W, W.zeros())
        F = femops.residual(euler, W, old=old, kappa=1.0, dt=0.1, t=1.0).constrained(FIXED)
        final = femops.functional(lambda u, x: x[0] * u**2, W)
        running = femops.functional(lambda u, x: x[1] * u, W)
        return Steps(F, 2, final=final, running=running, rtol=1e-12)

    point = {"mesh": X.zeros()}
    slopes = on(point["mesh"]).gradient(START, "mesh")[1]
    check_slopes(lambda point: on(point["mesh"]).run(START)[0], point, slopes)


def test_two_fields() -> None:
    W = femops.Product(a=V, b=V)

    def chain(a: Any, b: Any, a0: Any, b0: Any, k: Any) -> Any:
        return {"a": {"value": a - a0 + k * a * b}, "b": {"value": b - b0 - k * a * b}}

    at = {name: femops.GridFunction(V, V.zeros()) for name in ("a0", "b0")}
    goal = femops.functional(lambda a, b: a**2 + b, W)

    def run(k: float) -> Steps:
        F = femops.residual(chain, W, **at, k=k)
        return Steps(F, 2, running=goal, old={"a": "a0", "b": "b0"}, rtol=1e-12)

    point = {"k": 0.2, "initial": 1.0 + 0.1 * np.random.default_rng(3).random(W.size)}
    _, slopes = run(0.2).gradient(point["initial"], [*point])
    check_slopes(lambda point: run(point["k"]).run(point["initial"])[0], point, slopes)


# --- schedules ------------------------------------------------------------------------------------


def test_files_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedules = pytest.importorskip("checkpoint_schedules")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files: list[int] = []

    def at(n: int) -> dict[str, float]:
        files.append(len([*tmp_path.rglob("*.npy")]))
        return {"t": 1.0 / (5 - n)}  # fails in step 5

    schedule = schedules.SingleDiskStorageSchedule(move_data=True)
    one = steps(POINT["kappa"], 0.1, at=at, rtol=1e-3)
    slopes = one.gradient(START, "dt", schedule)[1]
    assert files == [0, 0, 2, 4, 6, 6, 4, 2, 0]  # two states of a step
    assert not [*tmp_path.iterdir()]
    longer = steps(POINT["kappa"], 0.1, at=at, count=5, rtol=1e-3)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            longer.gradient(START, "dt", schedules.SingleDiskStorageSchedule())
        assert not [*tmp_path.iterdir()]
    assert one.gradient(START, "dt")[1]["dt"] == slopes["dt"]


def test_schedules_that_do_not_fit() -> None:
    schedules = pytest.importorskip("checkpoint_schedules")
    one, used = steps(POINT["kappa"], 0.1, rtol=1e-3), schedules.SingleMemoryStorageSchedule()
    one.gradient(START, "dt", used)
    cases = {
        "schedule is a Revolve for 3 steps, but there are 4: give": schedules.Revolve(3, 2),
        "schedule is a Revolve for 7 steps, but there are 4: give": schedules.Revolve(7, 2),
        "schedule is a SingleMemoryStorageSchedule that has been used": used,
        "schedule is 'Revolve': give checkpoint_schedules.Revolve": "Revolve",
        "schedule is an ABCMeta: give checkpoint_schedules.Revolve": schedules.Revolve,
        "which ends before the first step is reached": schedules.NoneCheckpointSchedule(),
    }
    for message, schedule in cases.items():
        with pytest.raises(OperatorError, match=message):
            one.gradient(START, "dt", schedule)


# --- bad input ------------------------------------------------------------------------------------


def slopes_of(wrt: Any, **options: Any) -> Any:
    return steps(POINT["kappa"], 0.1, **options).gradient(START, wrt)


OLD = femops.GridFunction(V, START)
CHANGE = femops.functional(lambda u, old: (u - old) ** 2, V, old=OLD)
LAST = femops.functional(lambda u, kappa: kappa * u, V, kappa=3.0)


def test_bad_input() -> None:
    for wrt, options, message in (
        ("t", {"final": None, "running": None}, "final and running are None: give one"),
        ("t", {"count": 0}, "count is 0: give a number of steps, at least 1"),
        ("t", {"old": "before"}, "old is 'before': give the name"),
        ("t", {"old": {}}, "old is {}: give the name"),
        ("t", {}, "t has another value in each step"),
        ("dt", {"at": lambda n: {"dt": 0.1} if n > 1 else {}}, "dt has another value in each"),
        ("q", {}, "nothing depends on 'q'"),
        ((), {}, "give names of coefficients"),
        ("dt", {"at": lambda n: {"time": 0.1 * n}}, r"at\(1\) returned a value of 'time': return"),
        ("dt", {"at": lambda n: {"old": OLD}}, r"at\(1\) returned a value of 'old': return"),
        ("dt", {"at": lambda n: None}, r"at\(1\) returned None: return a dict"),
        ("dt", {"running": CHANGE}, "has the coefficient old, in F the state before the step"),
        ("kappa", {"final": LAST}, "kappa has different values in the goal and in the residual"),
        ("dt", {"begin": lambda n, u: 0.5 * u}, r"begin\(4, u\) computes values at constrained"),
    ):
        with pytest.raises(OperatorError, match=message):
            slopes_of(wrt, **options)


def test_bad_names_and_guesses() -> None:
    F = femops.residual(lambda u, old, initial: {"value": u - initial * old}, V, old=OLD, initial=1)
    one = Steps(F, 2, final=femops.functional(lambda u: u, V))
    with pytest.raises(OperatorError, match="initial is a coefficient, and"):
        one.gradient(START, "initial")
    with pytest.raises(VectorError, match=r"begin\(1, u\) is None: give"):
        slopes_of("dt", begin=lambda n, u: None)
    with pytest.raises(VectorError, match="u0 has entries that are not finite"):
        one.run(np.nan * START)


def test_a_step_that_is_not_solved() -> None:
    def two(J: Any, b: Any, rtol: float) -> Any:
        return femops.cg(J, b, rtol=rtol, maxiter=2, warn=False)

    message = r"step 1 is not solved: \|F\| is .* rtol is 1e-12: give a larger one"
    with pytest.raises(SolverError, match=message):
        slopes_of("dt", linear=two)
