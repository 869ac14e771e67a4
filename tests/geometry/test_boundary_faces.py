"""The order of boundary faces, which decides how fast kernels are."""

from itertools import pairwise

import numpy as np
import pytest

import femops
from femops.geometry.boundary import BoundaryFaces


@pytest.mark.parametrize("attributes", [None, [1, 4]])
def test_groups(attributes):
    """Each face is there once. Groups follow the elements, and are ordered by code inside."""
    mesh = femops.box((6, 6, 3))
    faces = BoundaryFaces(mesh, attributes)
    chosen = np.isin(mesh.boundary_attributes, faces.attributes)
    expected = np.unique(mesh.topology.boundary_faces[chosen], axis=0)
    found = np.stack([faces.elements, faces.codes], axis=1)
    np.testing.assert_array_equal(found[np.lexsort(found.T[::-1])], expected)
    assert len(faces.group_start) == len(faces.group_elements) == -(-len(expected) // 128) + 1
    assert (faces.group_start[:-1] % 16 == 0).all()
    ranges = zip(pairwise(faces.group_start), pairwise(faces.group_elements), strict=True)
    straddling = 0
    for (begin, end), (first, last) in ranges:
        assert (np.diff(faces.codes[begin:end]) >= 0).all()
        assert faces.elements[begin:end].min() >= first
        straddling += (faces.elements[begin:end] >= last).sum()
    assert bool(straddling) == (attributes is None)  # an element has faces in two groups
