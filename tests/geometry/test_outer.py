"""Boundary faces of one element, beside faces inside a mesh that are listed as boundary faces."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.errors import SpaceError
from femops.geometry.outer import outer_attributes, outer_boundary

BOX = femops.box((2, 1))


def listed(attribute: int) -> femops.Mesh:
    """Two elements, with the face in the middle as a boundary face."""
    return femops.Mesh.from_arrays(
        None,
        BOX.elements,
        coordinates=BOX.coordinates,
        boundary=np.vstack([BOX.boundary, [[1, 4]]]),
        boundary_attributes=[*BOX.boundary_attributes, attribute],
    )


def test_outer_boundary() -> None:
    """Boundary entries between elements do not count, but need attributes of their own."""
    assert outer_boundary(femops.box((3, 3), periodic=True)) is False
    assert outer_boundary(BOX) is True
    assert outer_boundary(listed(7)) == [1, 2, 3, 4]
    with pytest.raises(SpaceError, match="give them different attributes"):
        outer_boundary(listed(1))


def test_attributes_of_faces_inside_are_refused() -> None:
    named = listed(7).with_names(boundary={"wall": (4, 1), "crack": 7})
    assert outer_attributes(named, 2) == [2]
    assert outer_attributes(named, ["wall", 1]) == [1, 4]
    with pytest.raises(SpaceError, match=r"attribute 7 has faces between .*: leave it out"):
        outer_attributes(named, ["wall", "crack"])
    with pytest.raises(SpaceError, match=r"attribute 1 has .*: give its faces of one element"):
        outer_attributes(listed(1), [1, 2])
    with pytest.raises(SpaceError, match="no boundary attribute 9"):
        outer_attributes(named, 9)
