"""Checkpoints of vectors, and meshes, of triangles and tetrahedra."""

import json

import numpy as np
import pytest

import femops
from femops.errors import CheckpointError
from femops.io.checkpoint.kept_mesh import KeptMesh
from femops.io.checkpoint.state import _FIXED, _PREFIX, _REST
from support.cases.rank_states import bits, same
from support.mixed_meshes import MIXED_MESHES, mixed_mesh
from support.simplex_meshes import SIMPLEX_MESHES, renumbered


@pytest.mark.parametrize("name", SIMPLEX_MESHES)
def test_the_same_bits_come_back(tmp_path, name):
    mesh, again = SIMPLEX_MESHES[name](), SIMPLEX_MESHES[name]()  # as after a restart
    spaces = {"a": (femops.H1, 3, 1), "b": (femops.H1, 1, 2), "c": (femops.L2, 2, 1)}
    given = {
        key: (kind(mesh, p, ncomp=n), bits((kind(mesh, p, ncomp=n).size,), "f8"))
        for key, (kind, p, n) in spaces.items()
    }
    path = femops.io.save_state(tmp_path / "run.state", given, {"step": 3})
    others = {key: kind(again, p, ncomp=n) for key, (kind, p, n) in spaces.items()}
    state = femops.io.load_state(path, others)
    assert state.values == {"step": 3}
    for key, (_, u) in given.items():
        same(state.vectors[key], u)


@pytest.mark.parametrize("name", SIMPLEX_MESHES)
def test_a_kept_mesh_comes_back(tmp_path, name):
    mesh = SIMPLEX_MESHES[name]().with_names(boundary={"left": 1})
    mesh = mesh.reordered(np.random.default_rng(0).permutation(mesh.num_elements))
    V = femops.H1(mesh, 3)
    u = bits(V.shape, "f8")
    path = femops.io.save_state(tmp_path / "run.state", {"u": (V, u)}, keep_mesh=True)
    again = femops.read_mesh(path)
    assert again.cell is mesh.cell
    for part in ("elements", "coordinates", "element_attributes", "file_elements"):
        np.testing.assert_array_equal(getattr(again, part), getattr(mesh, part))
    order = np.lexsort(mesh.topology.boundary_faces.T[::-1])
    np.testing.assert_array_equal(again.boundary, mesh.boundary[order])
    np.testing.assert_array_equal(again.boundary_attributes, mesh.boundary_attributes[order])
    assert again.boundary_names == mesh.boundary_names
    again.validate()
    same(femops.io.load_state(path, {"u": femops.H1(again, 3)}).vectors["u"], u)


MIXED = MIXED_MESHES | {
    "refined": lambda: mixed_mesh(1, seed=3).refine(),
    "prisms of a box": lambda: femops.box((2, 1, 2), cells="prisms"),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_kept_mesh_of_several_shapes_comes_back(tmp_path, name):
    mesh = MIXED[name]().with_names({"all": 1}, {"low": lambda x: x[-1] < 0.5})
    mesh = mesh.reordered(np.random.default_rng(0).permutation(mesh.num_elements))
    V, D = femops.H1(mesh, 3), femops.L2(mesh, 1, ncomp=2)
    u, d = bits(V.shape, "f8"), bits(D.shape, "f4")
    path = femops.io.save_state(tmp_path / "a.state", {"u": (V, u), "d": (D, d)}, keep_mesh=True)
    again = femops.read_mesh(path)
    assert [part.cell for part in again.parts] == [part.cell for part in mesh.parts]
    for one, other in zip(again.parts, mesh.parts, strict=True):
        for kept in ("elements", "coordinates", "element_attributes", "file_elements"):
            np.testing.assert_array_equal(getattr(one, kept), getattr(other, kept))
        order = np.lexsort(other.topology.boundary_faces.T[::-1])
        np.testing.assert_array_equal(one.boundary, other.boundary[order])
        np.testing.assert_array_equal(one.boundary_attributes, other.boundary_attributes[order])
        np.testing.assert_array_equal(one.topology.joined, other.topology.joined)
    assert again.boundary_names == mesh.boundary_names
    again.validate()
    spaces = {"u": femops.H1(again, 3), "d": femops.L2(again, 1, ncomp=2)}
    state = femops.io.load_state(path, spaces)
    same(state.vectors["u"], u)
    same(state.vectors["d"], d)
    assert femops.read_mesh(path, refine=1).num_elements == mesh.refine().num_elements


def test_a_vector_of_other_cells_does_not_fit(tmp_path):
    cubes = femops.box((2, 2))
    mesh = cubes.simplices()
    V = femops.H1(mesh, 2)
    path = femops.io.save_state(tmp_path / "run.state", {"u": (V, V.zeros())})
    for other in (cubes, renumbered(mesh)):
        with pytest.raises(CheckpointError, match="on another mesh"):
            femops.io.load_state(path, {"u": femops.H1(other, 2)})


def test_no_degree_is_kept_that_triangles_do_not_have(tmp_path):
    """36 nodes are those of degree 7, and also those of a square of degree 5."""
    V = femops.H1(femops.box((2, 2), cells="triangles"), 1)
    path = femops.io.save_state(tmp_path / "run.state", {"u": (V, V.zeros())}, keep_mesh=True)
    data = path.read_bytes()
    _, length, _ = _REST.unpack(data[_PREFIX.size : _FIXED])
    described = json.loads(data[_FIXED : _FIXED + length])["mesh"]
    assert KeptMesh.parsed(described).degree == 1
    described["tables"]["nodes"]["ncomp"] = 2 * 36
    with pytest.raises(ValueError, match="rows of other lengths"):
        KeptMesh.parsed(described)
