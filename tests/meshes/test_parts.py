"""Parts of meshes: the first elements."""

import numpy as np
import pytest

import femops
from femops_meshes.errors import MeshArgumentError
from femops_meshes.partitioning.parts import first_elements
from support.cases.kernels import make_mesh, turned

MESHES = {
    "line": lambda: turned(femops.box((7,), order=2)),
    "ball": lambda: make_mesh("unstructured", 3, "many"),
    "ring": lambda: femops.box((5, 4), order=2, periodic=(True, False)),
}


@pytest.mark.parametrize("kind", MESHES)
@pytest.mark.parametrize("count", [1, 3, -1])
def test_the_first_dofs_of_the_part_are_the_wholes(kind, count):
    mesh = MESHES[kind]()
    count = count % mesh.num_elements
    part = first_elements(mesh, count)
    assert part.num_elements == count
    np.testing.assert_array_equal(part.coordinates, mesh.coordinates[:count])
    for make in (
        lambda m: femops.H1(m, 4, ncomp=2),
        lambda m: femops.L2(m, 2),
    ):
        whole, piece = make(mesh), make(part)
        expected = whole.restriction.indices[:count]
        np.testing.assert_array_equal(piece.restriction.indices, expected)
        assert piece.ndofs == expected.max() + 1 == len(np.unique(expected))


def test_attributes_and_the_boundary():
    mesh = femops.box((3, 1))
    plain = np.array(mesh.elements)
    mesh = femops.Mesh.from_arrays(
        None, plain, element_attributes=[3, 5, 7], coordinates=np.array(mesh.coordinates)
    )
    part = first_elements(mesh, 2)
    np.testing.assert_array_equal(part.element_attributes, [3, 5])
    assert part.num_boundary == 6  # the face where it was cut off among them
    assert set(part.boundary_attributes) == {1}
    assert part.volume() == pytest.approx(2 / 3)
    part.validate()


def test_counts_of_all_elements_and_of_too_few_or_many():
    mesh = femops.box((3, 2))
    assert first_elements(mesh, 6) is mesh
    for count in (0, -1, 7):
        with pytest.raises(MeshArgumentError, match=f"count is {count}: the mesh has 6 elements"):
            first_elements(mesh, count)
