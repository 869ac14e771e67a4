"""MFEM's own meshes, where they are present: numbering and operators, judged by the oracle."""

import numpy as np
import pytest

import femops
from support.cases.kernels import random_vector
from support.mesh_files import FILES, NEEDED
from support.oracles import connectivity
from support.oracles.naive import Oracle


@pytest.mark.sample(3)
@NEEDED
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_numbering_and_operators(path):
    p = 3
    mesh = femops.read_mesh(path)
    space = femops.H1(mesh, p)
    indices = space.restriction.indices
    lower, upper = mesh.bounding_box()
    period = np.zeros(mesh.dim) if mesh.continuous else upper - lower
    positions = connectivity.node_positions(mesh.coordinates, p)
    if path.stem != "periodic-hexagon":  # glued by translations that are not along the axes
        assert connectivity.faults(positions, indices, period) == []
    assert connectivity.first_touch_faults(indices) == []
    oracle = Oracle(mesh.coordinates, indices)
    ones, u = np.ones(space.size), random_vector(space, "float64")
    mass = femops.mass(space)
    enough = max(p + 2, mesh.dim * mesh.order // 2 + 1)
    exact = Oracle(mesh.coordinates, indices, q1d=enough).volume()
    assert mesh.volume() == pytest.approx(exact, rel=1e-13)
    whole = femops.mass(space, quadrature=enough).apply(ones)
    assert ones @ whole == pytest.approx(exact, rel=1e-13)
    assert oracle.mass().error(mass.apply(u), u) < 1e-13
    assert oracle.diffusion().error(femops.diffusion(space).apply(u), u) < 1e-13


@NEEDED
def test_the_files_called_periodic_are_periodic():
    torn = [path.stem for path in FILES if not femops.read_mesh(path).continuous]
    assert torn == [path.stem for path in FILES if path.stem.startswith("periodic")]
