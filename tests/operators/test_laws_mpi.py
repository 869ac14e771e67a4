"""Laws and histories on ranks."""

import numpy as np
import pytest

import femops
from femops.errors import LawError, RankError

pytest.importorskip("numba")
cases = pytest.importorskip("support.cases.laws")


def ageing(u, x, old):
    return {"value": u + old, "grad": u.grad, "history": {"old": cases.root(old + u)}}


def begun(comm):
    V = femops.H1(femops.box((5, 3), comm=comm), 2)
    return V, femops.numba.history(V), V.interpolate(lambda x: x[0] * x[1])


@pytest.mark.parallel(1, 2, 3)
def test_residuals_and_histories(comm, tmp_path):
    V, old, u = begun(comm)
    F = femops.residual(ageing, V, old=old)
    traced = femops.residual(lambda u, x: {"value": u + cases.cardano(u), "grad": u.grad}, V)
    F = old.commit(F, u)
    cases.close(F.residual(u), traced.residual(u))
    folder = comm.broadcast(str(tmp_path), 0)
    file = femops.io.save_state(f"{folder}/step.state", {"old": (old.space, old.vector)})
    again = femops.numba.history(V)
    again.vector = femops.io.load_state(file, {"old": again.space}).vectors["old"]
    assert again.vector.tobytes() == old.vector.tobytes()


@pytest.mark.parallel(1, 3)
def test_ranks_without_elements(comm):
    V = femops.H1(femops.box((2,), comm=comm, reproducible=True), 2)
    old = femops.History(V)
    u = V.interpolate(lambda x: x[0])
    F = old.commit(femops.residual(ageing, V, old=old), u)
    traced = femops.residual(lambda u, x: {"value": u + cases.cardano(u), "grad": u.grad}, V)
    found, expected = F.residual(u), traced.residual(u)
    assert np.abs(found - expected).max(initial=0.0) < 1e-13


@pytest.mark.parallel(2, 3)
def test_all_ranks_raise_if_a_law_does_on_one(comm):
    def written(a):
        if a > 0.9:
            raise ValueError("no convergence")
        return a

    V, _, u = begun(comm)
    one = femops.numba.law(written)
    F = femops.residual(lambda u, x: {"value": one(u)}, V)
    F.residual(0.5 * u)
    with pytest.raises((LawError, RankError), match="no convergence"):
        F.residual(u)
    everywhere = np.isfinite(F.residual(0.5 * u)).all()
    assert everywhere


@pytest.mark.parallel(1, 3)
def test_a_checkpoint_of_a_history_on_other_ranks(comm, tmp_path):
    """The file of one rank has the same bits."""
    V, old, u = begun(comm)
    old.commit(femops.residual(ageing, V, old=old), u)
    folder = comm.broadcast(str(tmp_path), 0)
    there = femops.io.save_state(f"{folder}/there.state", {"old": (old.space, old.vector)})
    if comm.rank == 0:
        V, old, u = begun(None)
        old.commit(femops.residual(ageing, V, old=old), u)
        here = femops.io.save_state(f"{folder}/here.state", {"old": (old.space, old.vector)})
        assert here.read_bytes() == there.read_bytes()


@pytest.mark.parallel(2, 3)
def test_a_step_that_is_too_long_on_one_rank(comm):
    """Newton's method halves it on all ranks: the others ended with a RankError."""

    @femops.numba.law
    def stubborn(a):
        if a > 0.6:
            raise ValueError("no convergence")
        return 400.0 * a**3

    V = femops.H1(femops.distribute(femops.box((8,)), comm), 2)
    F = femops.residual(lambda u, x: {"value": stubborn(u), "grad": u.grad}, V)
    F = F.constrained(V.boundary_dofs())
    b = femops.load(V, lambda x: np.where(x[0] < 0.4, 40.0, 0.0))
    _, info = femops.newton(F, V.zeros(), b)
    assert info.converged
    assert info.iterations > 3
