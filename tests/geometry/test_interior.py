"""Geometry of faces between elements: both sides agree, whichever way the elements lie."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.basis import gauss
from femops.geometry.interior import PLUS, InteriorGeometry, interior_faces, outer_boundary
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
    assert len(set(zip(*faces.elements, strict=True))) == faces.num_elements


def test_outer_boundary() -> None:
    """Boundary entries between elements do not count, but need attributes of their own."""
    assert outer_boundary(femops.box((3, 3), periodic=True)) is False
    box = femops.box((2, 1))
    assert outer_boundary(box) is True
    ends = np.vstack([box.boundary, [[1, 4]]])  # the face in the middle
    for last, expected in ((7, [1, 2, 3, 4]), (1, None)):
        attributes = [*box.boundary_attributes, last]
        mesh = femops.Mesh.from_arrays(
            None,
            box.elements,
            boundary=ends,
            boundary_attributes=attributes,
            coordinates=box.coordinates,
        )
        if expected:
            assert outer_boundary(mesh) == expected
            continue
        with pytest.raises(femops.errors.SpaceError, match="give them different attributes"):
            outer_boundary(mesh)


def test_sides_that_differ_are_refused() -> None:
    """A node that one element alone has moved."""
    mesh = femops.box((2, 1))
    moved = mesh.coordinates.copy()
    moved[0, 3, 1] += 0.01
    torn = femops.Mesh.from_arrays(None, mesh.elements, coordinates=moved)
    with pytest.raises(femops.errors.GeometryError, match="not the same seen from both"):
        femops.form(lambda u: {"jump": u.jump}, femops.L2(torn, order=1), faces="interior")
