"""Functions of the user that solvers call, on many ranks: one rank may have one, or raise."""

import numpy as np
import pytest

import femops
from femops.errors import RankError
from femops.solvers import cg_bodies


def problem(comm, n=5):
    V = femops.H1(femops.box((n, n), comm=comm), 2)
    A = (femops.diffusion(V) + femops.mass(V)).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, 1.0))


def newton(A, b, **told):
    F = femops.residual(lambda u: {"value": u + u**3, "grad": u.grad}, A.space)
    return femops.newton(F.constrained(A.constrained_dofs), A.space.zeros(), b, **told)


SOLVERS = {
    "cg": femops.cg,
    "multigrid": lambda A, b, **told: femops.cg(A, b, M=femops.multigrid(A), **told),
    "columns": lambda A, b, **told: femops.cg(A, np.column_stack([b, b]), **told),
    "minres": femops.minres,
    "gmres": femops.gmres,
    "newton": newton,
}


@pytest.mark.parallel(2)
@pytest.mark.parametrize(
    ("solver", "name"),
    [
        (solver, name)
        for solver in SOLVERS
        for name in ("progress", "callback")
        if (solver, name) != ("columns", "callback")
    ],
)
def test_one_rank_alone_has_a_function(comm, solver, name):
    """Ranks without the function did not take part in what it needs, and all waited forever."""
    A, b = problem(comm)
    seen = []

    def fails(*_):
        raise KeyError("mine")

    _, info = SOLVERS[solver](A, b, **{name: None if comm.rank else lambda *_: seen.append(1)})
    assert info.converged
    assert bool(seen) == (comm.rank == 0)
    with pytest.raises((RankError, KeyError), match="mine"):
        SOLVERS[solver](A, b, **{name: fails if comm.rank else None})


@pytest.mark.parallel(2)
def test_ranks_whose_clocks_differ_report_the_same_iterations(comm, monkeypatch):
    """Each chose by its own clock when to report, and ranks waited for each other forever."""
    A, b = problem(comm, 10)
    now, seen = [0.0], []

    def clock():
        now[0] += 0.05 * (1 + comm.rank)
        return now[0]

    monkeypatch.setattr(cg_bodies, "perf_counter", clock)
    told = {"merged": False, "progress": lambda count, _: seen.append(count)}
    _, info = femops.cg(A, b, rtol=1e-13, **told)
    assert info.converged
    assert info.iterations > 32
    assert seen == comm.broadcast(seen)


@pytest.mark.parallel(2)
@pytest.mark.parametrize("method", ["rk4", "bs32"])
def test_a_callback_of_time_steps_raises_on_one_rank(comm, method):
    def fails(t, u):
        if comm.rank:
            raise KeyError("mine")

    given = {"end": 1.0, "dt": 0.1, "method": method, "comm": comm, "callback": fails}
    with pytest.raises((RankError, KeyError), match="mine"):
        femops.runge_kutta(lambda t, u: -comm.sum(u), np.ones(2), **given)
