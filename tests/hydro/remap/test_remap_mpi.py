"""Advection and remap on ranks: the bits of one process, on ranks without elements too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import femops
from femops.errors import HydroError, SolverError
from femops.hydro.remap import (
    PUBLISHED,
    Advection,
    advection_mesh,
    advection_problem,
    verify_advection,
)
from femops.hydro.remap.neighbours import Elements, Lattice, Neighbours
from support.cases.rank_operators import of_rank_0
from tests.hydro.remap.cases import meshes

MESHES = meshes()
RUNS = {  # problem, mesh, refinements, order, methods
    "jacobi": (5, "periodic-square", 1, 2, {"ho": 1, "lo": 2}),
    "hexagon": (0, "periodic-hexagon", 1, 3, {"ho": 1, "lo": 4}),
    "moving": (14, "inline-quad", 1, 3, {"ho": 3, "lo": 4}),
    "cubes": (10, "cube01_hex", 0, 2, {"ho": 1, "lo": 1}),
    "one method": (0, "periodic-cube", 0, 1, {"ho": 3, "lo": 0, "fct": 0}),
}


def shared(comm, mesh):
    return femops.distribute(mesh if comm.rank == 0 else None, comm)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("name", MESHES)
def test_neighbours_are_those_of_one_process(comm, name, order):
    mesh = MESHES[name]
    divided = shared(comm, mesh)
    mine, u = Elements.of(divided).numbers, None
    u = np.random.default_rng(0).random((mesh.num_elements, (order + 1) ** mesh.dim))
    faces, all_faces = Neighbours(divided, order), Neighbours(mesh, order)
    assert np.array_equal(faces.outer, all_faces.outer[mine])
    assert np.array_equal(faces.jumps(u[mine]), all_faces.jumps(u)[mine])
    lattice, whole = Lattice(divided, order), Lattice(mesh, order)
    for found, expected in zip(lattice.bounds(u[mine]), whole.bounds(u), strict=True):
        assert np.array_equal(found, expected[mine])
    marked = u > 0.95
    assert np.array_equal(lattice.spread(marked[mine]), whole.spread(marked)[mine])


def advected(mesh, name, dt=0.01, t_final=0.02):
    number, _, _, order, methods = RUNS[name]
    run = Advection(advection_problem(number), mesh, order, t_final, dt, **methods)
    return run, run.run()


@pytest.mark.parallel(2, 3, 4)
@pytest.mark.parametrize("name", RUNS)
def test_runs_have_the_same_bits(comm, name):
    _, built_in, refine, _, _ = RUNS[name]
    mesh = advection_mesh(built_in).refine(refine)
    run, found = advected(divided := shared(comm, mesh), name)

    def alone():
        other, expected = advected(mesh, name)
        return expected, femops.integrate(*_field(other.function(expected)))

    expected, whole = of_rank_0(comm, alone)
    mine = Elements.of(divided).numbers
    u = expected.coefficients.reshape(mesh.num_elements, -1)[mine]
    assert np.array_equal(found.coefficients, u.reshape(-1))
    assert np.array_equal(found.nodes, expected.nodes[mine])
    for fact in ("mass", "mass_before", "minimum", "maximum", "steps"):
        assert getattr(found, fact) == getattr(expected, fact)
    total = femops.integrate(*_field(run.function(found)))
    assert total == pytest.approx(whole, rel=1e-13)


def _field(function):
    return function.space, function.vector


@pytest.mark.parallel(2)
def test_a_rank_without_elements(comm):
    mesh = femops.box((2, 1))
    divided = femops.box((2, 1), comm=comm, reproducible=True)
    _, found = advected(divided, "moving")
    _, expected = advected(mesh, "moving")
    assert found.mass == expected.mass
    assert (found.minimum, found.maximum) == (expected.minimum, expected.maximum)


@pytest.mark.parallel(3)
@pytest.mark.parametrize("name", ["jacobi", "one method"])
def test_steps_that_are_too_long_end_all_ranks_alike(comm, name):
    _, built_in, refine, _, _ = RUNS[name]
    mesh, messages = advection_mesh(built_in).refine(refine), []
    for one in (shared(comm, mesh), mesh):
        with pytest.raises((HydroError, SolverError), match="smaller dt") as error:
            advected(one, name, dt=1.0, t_final=200.0)
        messages.append(str(error.value))
    assert messages[0] == messages[1] or name == "one method"  # its limit has round-off


@pytest.mark.parallel(2)
def test_a_mesh_that_tangles_on_one_rank_ends_all(comm):
    """The vortex turns the mesh further than its elements can follow."""
    mesh, messages = advection_mesh("inline-quad").refine(1), []
    for one in (shared(comm, mesh), mesh):
        with pytest.raises(HydroError, match=r"the mesh tangles at t = .* inverted") as error:
            advected(one, "moving", t_final=3.0)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.parallel(2)
def test_a_published_run(comm, monkeypatch):
    """Its beginning: the facts of one process."""
    monkeypatch.setitem(PUBLISHED, 7, replace(PUBLISHED[7], t_final=0.028))
    mine, alone = verify_advection(7, comm=comm), verify_advection(7)
    assert mine | {"seconds": 0} == alone | {"seconds": 0}
    assert mine["steps"] == 2
