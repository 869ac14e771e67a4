"""Gas dynamics on ranks, and forms on several fields: the bits of one process."""

import numpy as np
import pytest

import femops
from femops.errors import HydroError
from femops.hydro import Lagrangian, Simulation, Snapshot, built_in, load_run, problem, save_run
from femops.parallel import Serial
from support.cases.rank_operators import own_piece


def begun(comm, name, *, reproducible=True, cg_tol=1e-8):
    case, refine = problem(name), 1 if name == "triple-point" else 2
    mesh = built_in(case.mesh[2]).refine(refine) if comm.rank == 0 else None
    mesh = femops.distribute(mesh, comm, reproducible=reproducible)
    return Simulation.begin(Lagrangian(case, mesh, cg_tol=cg_tol))


@pytest.mark.parallel(2, 3, timeout=120)
@pytest.mark.parametrize("name", ["sedov", "triple-point"])
def test_reproducible_runs_have_the_same_bits(comm, name):
    mine, whole = begun(comm, name), begun(Serial(), name)
    for run in (mine, whole):
        run.run(1.0, max_steps=3)
    assert (mine.t, mine.dt, mine.e_norm) == (whole.t, whole.dt, whole.e_norm)
    parts = zip(
        mine.equations.space.spaces.values(),
        mine.equations.space.split(mine.state),
        whole.equations.space.split(whole.state),
        strict=True,
    )
    for space, found, expected in parts:
        assert np.array_equal(found, expected[own_piece(space)])


@pytest.mark.parallel(2, timeout=120)
def test_other_meshes_agree_to_round_off(comm):
    mine = begun(comm, "taylor-green", reproducible=False, cg_tol=1e-14)
    whole = Simulation.begin(
        Lagrangian(problem("taylor-green"), built_in("square01_quad").refine(2), cg_tol=1e-14)
    )
    for run in (mine, whole):
        run.run(1.0, max_steps=3)
    assert mine.e_norm == pytest.approx(whole.e_norm, rel=1e-13)
    before = whole.equations.total_energy(whole.state)
    assert mine.equations.total_energy(mine.state) == pytest.approx(before, rel=1e-13)


@pytest.mark.parallel(2, timeout=120)
def test_a_run_goes_on_on_another_number_of_ranks(comm, tmp_path):
    path = comm.broadcast(tmp_path / "half.state")
    run = begun(comm, "sedov")
    run.run(1.0, max_steps=2)
    save_run(path, run)
    run.run(1.0, max_steps=4)
    alone = load_run(path, begun(Serial(), "sedov").equations)
    alone.run(1.0, max_steps=4)
    assert (run.t, run.dt, run.e_norm) == (alone.t, alone.dt, alone.e_norm)


@pytest.mark.parallel(2, timeout=120)
def test_fields_and_crashes_are_those_of_one_process(comm):
    mine, whole = begun(comm, "sedov"), begun(Serial(), "sedov")
    for run in (mine, whole):
        run.run(1.0, max_steps=2)
    ours, alone = Snapshot.of(mine), Snapshot.of(whole)
    for name in ("density", "velocity"):
        field, expected = getattr(ours, name), getattr(alone, name)
        assert np.array_equal(field.vector, expected.vector[own_piece(field.space)])
    messages = []
    for run in (mine, whole):
        V, E = run.equations.V, run.equations.E
        position, _, energy = run.equations.space.split(run.state)
        far = V.dof_coordinates().sum(axis=1) > 1.9
        run._forces, V.components(position)[far] = None, 0.9  # the last element, of the last rank
        with pytest.raises(HydroError, match=r"step 3 .*inverted.* at \(0\.9") as error:
            run.run(1.0)
        messages.append(str(error.value))
        energy[E.dof_coordinates().sum(axis=1) > 1.8] = np.nan
        with pytest.raises(HydroError, match="energy is not finite") as error:
            run.run(1.0)
        messages.append(str(error.value))
    assert messages[:2] == messages[2:]


@pytest.mark.parallel(3)
def test_coupled_form_on_ranks(comm):
    def coupled(v, e):
        return {
            "v": {"grad": e * v.grad, "value": v.value * v[0]},
            "e": {"value": v.div},
            "least": e + v[0],
            "all": e * e,
        }

    def evaluated(ranks):
        mesh = femops.box((8, 9), comm=ranks, reproducible=True)
        W = femops.Product(v=femops.H1(mesh, 2, ncomp=2), e=femops.L2(mesh, 1))
        F = femops.residual(coupled, W, minima=["least"], integrals=["all"])
        F = F.constrained(W.spaces["v"].boundary_dofs(1))
        v = W.spaces["v"].interpolate(lambda x: (np.sin(x[0] + x[1]), x[0] * x[1]))
        e = W.spaces["e"].interpolate(lambda x: np.cos(3 * x[0] - x[1]))
        return W, *F.evaluate(W.join(v=v, e=e))

    W, mine, found = evaluated(comm)
    V, whole, expected = evaluated(Serial())
    assert found == expected
    for space, part, of_all in zip(W.spaces.values(), W.split(mine), V.split(whole), strict=True):
        assert np.array_equal(part, of_all[own_piece(space)])
