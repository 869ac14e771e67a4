"""Bodies of a mesh, and faces that lie on each other but are not joined."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.geometry.bodies import bodies, unjoined_faces
from support.cases.meshes import split_square


def test_halves_that_touch_are_two_bodies() -> None:
    mesh = split_square()
    assert bodies(mesh).tolist() == [0, 1]
    assert unjoined_faces(mesh) == 2
    finer = mesh.refine(2)
    assert np.array_equal(bodies(finer), np.repeat([0, 1], 16))
    assert unjoined_faces(finer) == 2 * 4


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("periodic", [False, True])
def test_joined_meshes_are_one_body(dim: int, periodic: bool) -> None:
    mesh = femops.box((3,) * dim, periodic=periodic)
    assert not bodies(mesh).any()
    assert unjoined_faces(mesh) == 0


def test_thin_layers_and_distant_parts() -> None:
    """Faces near each other are not faces on each other; parts may be far apart."""
    layer = femops.box((2, 1), upper=(1.0, 1e-6))
    assert unjoined_faces(layer) == 0
    apart = femops.Mesh.from_arrays(
        vertices=[[0.0], [1.0], [2.0], [3.0]], elements=[[0, 1], [2, 3]]
    )
    assert bodies(apart).tolist() == [0, 1]
    assert unjoined_faces(apart) == 0
