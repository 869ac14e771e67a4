"""Geometry of faces between elements: both sides agree, whichever way the elements lie."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import femops
from femops.basis import gauss
from femops.geometry.interior import MINUS, PLUS, InteriorGeometry, interior_faces
from support.cases.meshes import MESHES, bend, scrambled_box


@pytest.mark.parametrize("name", ["segment", "curved square", "scrambled square", "ball"])
def test_both_sides_agree(name: str) -> None:
    """Points are the same, normals are opposite."""
    geometry = InteriorGeometry(interior_faces(MESHES[name]()), gauss(3))
    minus = geometry.block(0, geometry.num_elements)
    plus = minus.other
    assert plus.other is minus
    np.testing.assert_allclose(plus.points, minus.points, atol=1e-14)
    np.testing.assert_allclose(plus.normals, -minus.normals, atol=1e-14)
    np.testing.assert_allclose(plus.weighted_det, minus.weighted_det, atol=1e-14)


def test_all_orientations_of_quadrilaterals() -> None:
    """A cube of elements that are turned at random has faces of all orientations."""
    faces = interior_faces(scrambled_box((3, 2, 3), 3, bend, 2))
    assert set(faces.turns[PLUS]) == set(range(8))
    block = InteriorGeometry(faces, gauss(4)).block(0, faces.num_elements)
    np.testing.assert_allclose(block.other.points, block.points, atol=1e-14)
    assert (faces.elements[0] > faces.elements[1]).all()
    pairs = [*zip(*faces.elements[:, faces.counted].tolist(), strict=True)]
    assert len(set(pairs)) == len(pairs) == 3 * 18 - 6 - 9 - 6  # as many as in the box


def test_batches() -> None:
    """Groups begin with batches, batches of common faces lie alike, and each face counts once."""
    faces = interior_faces(femops.box((7, 6, 5)))
    starts, size = faces.group_start, 16
    assert (starts % size == 0).all()
    assert starts[-1] == faces.num_elements
    assert faces.counted.sum() == 6 * 30 + 5 * 35 + 4 * 42
    minus = faces.elements[MINUS]
    for k, (begin, end) in enumerate(pairwise(starts)):
        inside = minus[begin:end]
        assert (inside >= faces.group_elements[k]).all()
        assert (inside < faces.group_elements[k + 1]).all()
    kinds = faces.codes[MINUS].reshape(-1, size)
    alike = (kinds == kinds[:, :1]).all(axis=1)
    assert alike.mean() > 0.6
    weights = InteriorGeometry(faces, gauss(2)).block(0, faces.num_elements).weighted_det
    assert not weights[~faces.counted].any()
    assert weights.sum() == pytest.approx(6 + 5 + 4)  # planes of area 1


def test_sides_that_differ_are_refused() -> None:
    """A node that one element alone has moved."""
    mesh = femops.box((2, 1))
    moved = mesh.coordinates.copy()
    moved[0, 3, 1] += 0.01
    torn = femops.Mesh.from_arrays(None, mesh.elements, coordinates=moved)
    with pytest.raises(femops.errors.GeometryError, match="not the same seen from both"):
        InteriorGeometry(interior_faces(torn), gauss(2)).block(0, 1).normals  # noqa: B018
