"""Names of attributes, and what keeps them."""

import pickle

import pytest

from femops_meshes import MeshArgumentError, box, write_mfem
from femops_meshes.names import with_numbers


def named():
    mesh = box((2, 2))
    return mesh.with_names({"all": 1}, {"left": [1], "sides": (2, 1, 2)})


def test_names_are_kept():
    mesh = named()
    assert mesh.element_names == {"all": (1,)}
    assert mesh.boundary_names == {"left": (1,), "sides": (1, 2)}
    others = [
        mesh.refine(2),
        mesh.reordered([3, 1, 0, 2]),
        mesh.curved(2),
        mesh.mapped(lambda x: 2 * x),
        pickle.loads(pickle.dumps(mesh)),
        mesh.with_attributes(),
    ]
    for other in others:
        assert other.element_names == mesh.element_names
        assert other.boundary_names == mesh.boundary_names
    assert "left = 1, sides = 1 + 2" in repr(mesh)


def test_new_attributes_have_no_names():
    mesh = named().with_attributes(elements=[5, 5, 6, 6])
    assert mesh.element_names == {}
    assert mesh.boundary_names == named().boundary_names
    assert named().with_names().boundary_names == {}


def test_a_mesh_has_no_names_of_its_own():
    assert box((2,)).element_names == box((2,)).boundary_names == {}


@pytest.mark.parametrize("names", [{"a": 9}, {"a": ()}, {"": 1}, {3: 1}, {"a": [1, 9]}])
def test_bad_names(names):
    with pytest.raises(MeshArgumentError, match="stands for"):
        named().with_names(names)


def test_names_become_numbers():
    names = {"a": (1, 4), "b": (4,)}
    assert with_numbers(None, names) is None
    assert with_numbers(3, names) == [3]
    assert with_numbers("a", names) == [1, 4]
    assert with_numbers(["a", 7, "c"], names) == [1, 4, 7, "c"]


def test_mfem_files_hold_no_names(tmp_path):
    write_mfem(named(), tmp_path / "a.mesh")
    assert "left" not in (tmp_path / "a.mesh").read_text()
