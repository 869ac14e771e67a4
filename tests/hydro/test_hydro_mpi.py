"""Gas dynamics on ranks: fields and crashes of one process.

Runs are tried in `ale/test_ale_mpi.py`, and in `operators/execution/test_lanes_mpi.py`.
"""

import numpy as np
import pytest

import femops
from femops.errors import HydroError
from femops.hydro import Lagrangian, Simulation, Snapshot, built_in, problem
from femops.parallel import Serial
from support.cases.rank_operators import own_piece


def begun(comm):
    case = problem("sedov")
    mesh = built_in(case.mesh[2]).refine(2) if comm.rank == 0 else None
    return Simulation.begin(Lagrangian(case, femops.distribute(mesh, comm, reproducible=True)))


@pytest.mark.parallel(2, timeout=120)
def test_fields_and_crashes_are_those_of_one_process(comm):
    mine, whole = begun(comm), begun(Serial())
    for run in (mine, whole):
        run.run(1.0, max_steps=2)
    ours, alone = Snapshot.of(mine), Snapshot.of(whole)
    for name in ("density", "velocity"):
        field, expected = getattr(ours, name), getattr(alone, name)
        assert np.array_equal(field.vector, expected.vector[own_piece(field.space)])
    messages = []
    for run in (mine, whole):
        V, E = run.equations.V, run.equations.E
        state = run.state.copy()
        position, _, energy = run.equations.space.split(state)
        far = V.dof_coordinates().sum(axis=1) > 1.9
        V.components(position)[far] = 0.9  # the last element, of the last rank
        run.state = state
        with pytest.raises(HydroError, match=r"step 3 .*inverted.* at \(0\.9") as error:
            run.run(1.0)
        messages.append(str(error.value))
        energy[E.dof_coordinates().sum(axis=1) > 1.8] = np.nan
        run.state = state
        with pytest.raises(HydroError, match="energy is not finite") as error:
            run.run(1.0)
        messages.append(str(error.value))
    assert messages[:2] == messages[2:]
