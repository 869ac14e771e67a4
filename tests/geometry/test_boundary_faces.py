"""The order of boundary faces, which decides how fast kernels are."""

from itertools import pairwise

import numpy as np
import pytest

import femops
from femops.geometry.boundary import BoundaryFaces
from femops.geometry.interior import interior_faces


@pytest.mark.parametrize("attributes", [None, [1, 4]])
@pytest.mark.parametrize("shape", [(6, 6, 3), (13, 12, 11), (300, 4)])
def test_groups(shape, attributes):
    """Each face is there once. Groups follow the elements, and are ordered by code inside."""
    mesh = femops.box(shape)
    faces = BoundaryFaces(mesh, attributes)
    assert faces.attributes == (None if attributes is None else tuple(attributes))
    chosen = np.isin(mesh.boundary_attributes, attributes or mesh.boundary_attributes)
    expected = np.unique(mesh.topology.boundary_faces[chosen], axis=0)
    found = np.stack([faces.elements, faces.codes], axis=1)
    np.testing.assert_array_equal(found[np.lexsort(found.T[::-1])], expected)
    assert (faces.group_start[:-1] % 16 == 0).all()
    assert faces.group_start[0] == 0
    assert faces.group_start[-1] == len(expected) > faces.group_start[-2]  # the last one has faces
    assert (np.diff(faces.group_start) >= 0).all()
    ranges = zip(pairwise(faces.group_start), pairwise(faces.group_elements), strict=True)
    for (begin, end), (first, last) in ranges:
        assert (np.diff(faces.codes[begin:end]) >= 0).all()
        inside = (faces.elements[begin:end] >= first) & (faces.elements[begin:end] < last)
        # cuts are at whole batches; the last group has at least one
        assert (~inside).sum() <= (16 if end == len(expected) else 24)
    assert faces.group_elements[0] == 0
    assert faces.group_elements[-1] == mesh.num_elements


def test_groups_are_those_of_the_faces_inside():
    """A chunk has the cells, the faces inside and those of the boundary of the same elements."""
    mesh = femops.box((13, 12, 11))
    expected = interior_faces(mesh).group_elements
    np.testing.assert_array_equal(BoundaryFaces(mesh).group_elements, expected)
