"""Files and pictures of locally refined meshes."""

import pickle

import numpy as np
import pytest

import femops
import femops_meshes
from femops.errors import CheckpointError, SpaceError
from femops.io.plots.sampling import boundary_faces
from femops.parallel.mesh import checksum
from support.refined import REFINED, tree
from support.vtk import needs_vtk, read_vtk


def refined(dim):
    mesh = femops.box((3, 2, 2)[:dim]).refined([0, 2]).refined([1])
    return mesh.mapped(lambda x: x + 0.05 * x[::-1] ** 2, 2)


def polynomial(x):
    return x[0] ** 2 - x[0] * x[-1]


@needs_vtk
@pytest.mark.parametrize("suffix", ["vtu", "vtkhdf"])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_vtk_shows_the_nodes_of_each_element(tmp_path, dim, suffix):
    if suffix == "vtkhdf":
        pytest.importorskip("h5py", reason="needs the extra hdf")
    mesh = refined(dim)
    V = femops.H1(mesh, 3)
    u = V.interpolate(polynomial)
    path = femops.save(tmp_path / f"u.{suffix}", V, u=u)
    grid = read_vtk(path)
    assert grid.n_cells == mesh.num_elements
    at = np.ascontiguousarray(grid.points[:, :dim])
    assert np.allclose(grid["u"], femops.Probe(mesh, at)(V, u), atol=1e-10)
    # elements of one size share all nodes, others their vertices
    assert grid.n_points == mesh.topology.lattice_size(3)
    for e in range(mesh.num_elements):
        points = grid.points[grid.get_cell(e).point_ids[: 2**dim]][:, :dim]
        corners = mesh.coordinates[e].reshape(*(3,) * dim, dim)[(slice(None, None, 2),) * dim]
        assert {*map(tuple, np.round(points, 12))} == {
            *map(tuple, np.round(corners.reshape(-1, dim), 12))
        }


def test_mfem_fields_have_the_values_that_hang(tmp_path):
    mesh = femops.box((2, 2)).refined([0])
    V = femops.H1(mesh, 2, ncomp=2)
    u = V.interpolate(lambda x: (x[0] ** 2, x[0] * x[1]))
    path = femops.save(tmp_path / "u.gf", V, u=u)
    values = np.loadtxt(path, skiprows=5)
    assert len(values) == mesh.topology.lattice_size(2) > V.ndofs
    with pytest.raises(SpaceError, match=r"also numbers nodes that hang.*femops.save"):
        V.file_dofs()
    W = femops.L2(mesh, 1)
    w = W.interpolate(lambda x: x[0])
    rows = np.loadtxt(femops.save(tmp_path / "w.gf", W, w=w), skiprows=5)
    assert np.array_equal(rows[W.file_dofs()], w)


KEPT = {
    "cubes": lambda: tree("random cubes"),
    "turned": lambda: REFINED[2]().refined([0]),
    "periodic": lambda: tree("periodic"),
    "line": lambda: tree("line"),
    "another order": lambda: tree("squares").reordered(np.arange(24)[::-1]),
    "moved after it": lambda: tree("disc").mapped(lambda x: 1.1 * x + 0.01 * x**2, 3),
    # nodes of parents that came back differ by round-off from those that there were
    "coarsened": lambda: femops.adapt.change(
        femops.ball(1).curved(3).refined([0, 5]).refined([3]), [20], range(16)
    ),
    "as before": lambda: femops.disc(2).refined([3, 5]).coarsened(),
}


def same_mesh(mesh, again):
    """The same elements, positions, attributes and names, and the same dofs."""
    assert number_of(mesh) == number_of(again)
    assert mesh.element_names == again.element_names
    assert mesh.boundary_names == again.boundary_names
    V, W = femops.H1(mesh, 3), femops.H1(again, 3)
    assert np.array_equal(V.restriction.indices, W.restriction.indices)


def number_of(mesh):
    return checksum(mesh, np.arange(mesh.num_elements), np.arange(mesh.num_vertices))


@pytest.mark.parametrize("name", KEPT)
def test_states_keep_the_mesh(tmp_path, name):
    """It comes back bit by bit, and so does what it is refined and coarsened to."""
    mesh = KEPT[name]()
    mesh = mesh.with_names({"all": 1}, {"a side": 1} if mesh.num_boundary else {})
    V = femops.H1(mesh, 2)
    u = np.random.default_rng(0).standard_normal(V.size)
    path = femops.io.save_state(tmp_path / "u.state", {"u": (V, u)}, {"step": 1})
    again = femops.read_mesh(path)
    same_mesh(mesh, again)
    state = femops.io.load_state(path, {"u": femops.H1(again, 2)})
    assert state.vectors["u"].tobytes() == u.tobytes()
    some = np.arange(mesh.num_elements) % 5 == 0
    same_mesh(mesh.refined(some), again.refined(some))
    same_mesh(mesh.coarsened(), again.coarsened())
    same_mesh(mesh.refine(), femops.read_mesh(path, refine=1))


def test_states_keep_other_meshes_on_demand(tmp_path):
    mesh = femops.read_mesh(femops.sample("disc.mesh"))
    V, path = femops.H1(mesh, 2), tmp_path / "u.state"
    femops.io.save_state(path, {"u": (V, V.zeros())})
    with pytest.raises(CheckpointError, match=r"has no mesh, .* or save with keep_mesh=True"):
        femops.read_mesh(path)
    femops.io.save_state(path, {"u": (V, V.zeros())}, keep_mesh=True)
    again = femops.read_mesh(path)
    same_mesh(mesh, again)
    assert again.forest is None
    assert np.array_equal(again.file_elements, mesh.file_elements)
    same_mesh(mesh.refined([1]), again.refined([1]))


def turned_boundary():
    """Boundary entries that begin at any corner and look inwards, as in files."""
    mesh = femops.box((2, 1, 1))
    points = np.zeros((mesh.num_vertices, 3))
    points[mesh.elements] = mesh.coordinates
    turned = mesh.boundary[:, [2, 0, 3, 1]]
    return femops_meshes.Mesh.from_arrays(points, mesh.elements, boundary=turned)


def lost_names():
    """The elements and faces of the attribute 2 give way to their parents."""
    mesh = femops.box((2, 2)).refined([0])
    numbers = (np.arange(k) == 1 for k in (mesh.num_elements, mesh.num_boundary))
    mesh = mesh.with_attributes(*(1 + one.astype(int) for one in numbers))
    return mesh.with_names({"a": 1, "b": 2, "c": [1, 2]}, {"d": 2}).coarsened()


def inverted():
    """The map of one element is inverted next to a corner, which only halves have points near."""
    bent = femops.box((1, 1)).mapped(lambda x: x - 1.05 * x * (1 - x[::-1]) * (1 - x), 3)
    return bent.refine().refined([0]).refined([0])


@pytest.mark.parametrize("make", [turned_boundary, lost_names, inverted])
def test_states_keep_whatever_mesh_a_program_has(tmp_path, make):
    mesh = make()
    V, path = femops.H1(mesh, 1), tmp_path / "u.state"
    femops.io.save_state(path, {"u": (V, V.zeros())}, keep_mesh=True)
    again = femops.read_mesh(path)
    same_mesh(mesh, again)
    assert femops.io.load_state(path, {"u": femops.H1(again, 1)}).vectors["u"].shape == (V.size,)


def test_states_refuse_meshes_of_a_degree_that_none_reads(tmp_path):
    V = femops.H1(femops.box((1,)).curved(33), 1)
    with pytest.raises(CheckpointError, match=r"degree 33, .* at most degree 32: .*=False"):
        femops.io.save_state(tmp_path / "u.state", {"u": (V, V.zeros())}, keep_mesh=True)


def test_a_state_keeps_one_mesh(tmp_path):
    U, V, W = (femops.H1(mesh, 1) for mesh in (refined(2), refined(2).refined([5]), refined(3)))
    path, given = tmp_path / "u.state", {"u": (U, U.zeros()), "v": (V, V.zeros())}
    with pytest.raises(CheckpointError, match=r"on 2 meshes, and a file keeps one: .*=False"):
        femops.io.save_state(path, given)
    femops.io.save_state(path, given, keep_mesh=False)
    assert [*femops.io.load_state(path, {"u": U, "v": V}).vectors] == ["u", "v"]
    P = femops.L2(femops.box((2, 2)), 0)  # not refined: its program makes it anew
    femops.io.save_state(path, {"w": (W, W.zeros()), "p": (P, P.zeros())})
    assert femops.read_mesh(path).dim == 3


def test_states_go_with_pickled_meshes(tmp_path):
    mesh = refined(2)
    V = femops.H1(mesh, 2)
    u = V.interpolate(polynomial)
    femops.io.save_state(tmp_path / "u.state", {"u": (V, u)})
    again = pickle.loads(pickle.dumps(mesh))
    back = femops.io.load_state(tmp_path / "u.state", {"u": femops.H1(again, 2)})
    assert np.array_equal(back.vectors["u"], u)
    assert again.coarsened().num_elements < again.num_elements


def test_states_go_with_meshes_of_files(tmp_path):
    path = femops.save(tmp_path / "a.mesh", refined(2))
    V = femops.H1(femops.read_mesh(path), 2)
    u = V.interpolate(polynomial)
    femops.io.save_state(tmp_path / "u.state", {"u": (V, u)})
    again = femops.read_mesh(path)
    back = femops.io.load_state(tmp_path / "u.state", {"u": femops.H1(again, 2)})
    assert np.array_equal(back.vectors["u"], u)
    assert again.coarsened().num_elements < again.num_elements


def test_meshes_in_files_can_be_coarsened(tmp_path):
    mesh = refined(3)
    path = femops.save(tmp_path / "a.mesh", mesh)
    again = femops.read_mesh(path)
    assert np.isclose(again.volume(), mesh.volume())
    assert again.coarsened().num_elements == mesh.coarsened().num_elements


def test_pictures_have_the_outer_faces_alone(tmp_path):
    mesh = refined(3)
    faces = boundary_faces(mesh)
    assert len(faces) == mesh.num_boundary
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    V = femops.H1(mesh, 2)
    femops.io.picture(tmp_path / "u.png", V, V.interpolate(polynomial))
    V = femops.H1(refined(2), 2)
    femops.io.picture(tmp_path / "u.png", V, V.interpolate(polynomial))
