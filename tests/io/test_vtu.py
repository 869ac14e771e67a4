"""VTU files, judged by VTK's own reader and VTK's own idea of where its nodes lie."""

import os

import numpy as np
import pytest

import femops
from femops.errors import FemopsError, FileError, GeometryError, SpaceError, VectorError
from femops.io.vtk.nodes import vtk_order
from femops_meshes.coordinates.mapping import gauss_lobatto, lagrange_matrix, tensor_apply
from support.vtk import needs_vtk, read_vtk

pytestmark = needs_vtk

SKEW = {
    1: lambda x: x + 0.1 * x**2,
    2: lambda x: np.array([x[0] + 0.2 * x[1] ** 2, x[1] - 0.1 * x[0] * x[1]]),
    3: lambda x: np.array(
        [x[0] + 0.2 * x[1] * x[2], x[1] - 0.1 * x[0] ** 2, x[2] + 0.1 * x[0] * x[1]]
    ),
}


def mesh_of(dim, order=2, counts=(3, 2, 2), **options):
    return femops.box(counts[:dim], mapping=SKEW[dim], order=order, **options)


def cells(grid):
    """One at a time: VTK hands out the same cell object each time, filled anew."""
    return (grid.GetCell(i) for i in range(grid.n_cells))


def reference_nodes(cell, dim):
    """VTK's parametric coordinates of a cell's nodes, (n, dim)."""
    flat = cell.GetParametricCoords()
    return np.array([flat[i] for i in range(3 * cell.GetNumberOfPoints())]).reshape(-1, 3)[:, :dim]


@pytest.mark.parametrize(
    ("dim", "order", "kind"),
    [
        *((1, 2, femops.H1), (2, 1, femops.L2), (2, 10, femops.H1)),
        *((3, 3, femops.L2), (3, 4, femops.H1)),
    ],
)
def test_every_node_stands_where_vtk_puts_it(tmp_path, dim, order, kind):
    mesh = mesh_of(dim, counts=(2, 1, 2))
    V = kind(mesh, order)
    femops.save(tmp_path / "u.vtu", V)
    grid = read_vtk(tmp_path / "u.vtu")
    assert grid.n_cells == mesh.num_elements
    for e, cell in enumerate(cells(grid)):
        assert cell.GetCellType() == {1: 68, 2: 70, 3: 72}[dim]
        where = grid.points[grid.get_cell(e).point_ids][:, :dim]
        for xi, x in zip(reference_nodes(cell, dim), where, strict=True):
            expected = at(mesh, e, xi)
            np.testing.assert_allclose(x, expected, atol=1e-13)


def at(mesh, e, xi):
    """The point xi of element e, by its coordinates' own basis, direction by direction."""
    nodes = gauss_lobatto(mesh.order + 1)[0]
    lines = [lagrange_matrix(nodes, np.array([t])) for t in xi]
    return tensor_apply(lines, mesh.coordinates[e : e + 1])[0, 0]


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kind", [femops.H1, femops.L2])
def test_values_between_the_nodes(tmp_path, dim, kind):
    """VTK's interpolation inside a cell is the space's polynomial."""
    mesh = mesh_of(dim)
    V = kind(mesh, 4)
    rng = np.random.default_rng(7)
    u = rng.normal(size=V.shape)
    femops.save(tmp_path / "u.vtu", V, u=u)
    grid = read_vtk(tmp_path / "u.vtu")
    for e, cell in enumerate(cells(grid)):
        xi = rng.uniform(size=3)
        weights = np.zeros(cell.GetNumberOfPoints())
        cell.InterpolateFunctions(xi, weights)
        got = weights @ grid["u"][grid.get_cell(e).point_ids]
        lines = [V.basis.interpolation(np.array([t])) for t in xi[:dim]]
        expected = tensor_apply(lines, u[V.restriction.indices[e : e + 1]])[0, 0]
        assert got == pytest.approx(expected, abs=1e-11)


def test_components_types_and_attributes(tmp_path):
    mesh = mesh_of(2).with_attributes(elements=np.arange(1, 7))
    V = femops.H1(mesh, 2, ncomp=2)
    v = V.interpolate(lambda x: (x[0], 2 * x[1]))
    femops.save(tmp_path / "v.vtu", V, v=v, single=v.astype(np.float32))
    grid = read_vtk(tmp_path / "v.vtu")
    assert grid["v"].shape == (grid.n_points, 3)
    np.testing.assert_allclose(grid["v"][:, 2], 0)
    assert grid["single"].dtype == np.float32
    np.testing.assert_array_equal(grid.cell_data["attribute"], mesh.element_attributes)
    W = femops.H1(mesh, 2, ncomp=4)
    femops.save(tmp_path / "w.vtu", W, w=W.zeros())
    assert read_vtk(tmp_path / "w.vtu")["w"].shape[1] == 4


def test_fields_of_other_spaces(tmp_path):
    """Cells have the highest degree; values are those of each field's own polynomials."""
    mesh = mesh_of(2)
    V, Q, R = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1), femops.H1(mesh, 5)
    v, q = V.interpolate(lambda x: x), Q.interpolate(lambda x: x[0])
    r = R.interpolate(lambda x: x[0] * x[1])
    others = {"q": femops.GridFunction(Q, q), "r": femops.GridFunction(R, r)}
    femops.save(tmp_path / "v.vtu", V, v=v, **others)
    together = read_vtk(tmp_path / "v.vtu")
    assert {name: together[name].shape[1:] for name in "vqr"} == {"v": (3,), "q": (), "r": ()}
    for name, (space, u) in {"v": (V, v), "q": (Q, q), "r": (R, r)}.items():
        values = space.sample(u, 6)[1].reshape(mesh.num_elements, 36, -1)
        for e, cell in enumerate(cells(together)):
            assert cell.GetNumberOfPoints() == 36
            got = together[name][together.get_cell(e).point_ids].reshape(36, -1)
            expected = values[e][vtk_order(2, 5)]
            np.testing.assert_allclose(got[:, : space.ncomp], expected, atol=1e-14)


def mixed(mesh):
    """A continuous velocity and a pressure that jumps, of another degree, and their product."""
    V, Q = femops.H1(mesh, 3, ncomp=2), femops.L2(mesh, 1)
    rng = np.random.default_rng(1)
    v, q = rng.standard_normal(V.size), rng.standard_normal(Q.size)
    return femops.Product(v=V, q=Q), v, q


@pytest.mark.parametrize("call", ["product", "h1", "l2", "mesh", "nothing"])
def test_h1_and_l2_together(tmp_path, call):
    """Cells have nodes of their own, where each field has its own values: nothing is averaged."""
    mesh = mesh_of(2)
    W, v, q = mixed(mesh)
    V, Q = W.spaces.values()
    given = {"v": femops.GridFunction(V, v), "q": femops.GridFunction(Q, q)}
    vectors = {"product": {"v": v, "q": q}, "h1": {"v": v}, "l2": {"q": q}}.get(call, {})
    owner = {"product": W, "h1": V, "l2": Q, "mesh": mesh, "nothing": None}[call]
    read = read_vtk(femops.save(tmp_path / "u.vtu", owner, **given | vectors))
    grid = femops.io.to_pyvista(owner, **given | vectors)
    assert read.n_points == grid.n_points == mesh.num_elements * 16
    order = vtk_order(2, 3)
    for name, space, u in (("v", V, v), ("q", Q, q)):
        values = space.sample(u, 4)[1].reshape(mesh.num_elements, 16, -1)
        for e in range(mesh.num_elements):
            got = read[name][read.get_cell(e).point_ids].reshape(16, -1)[:, : space.ncomp]
            np.testing.assert_allclose(got, values[e][order], atol=1e-13)


def test_spaces_of_fields_say_what_nodes_are_shared(tmp_path):
    """Those of H1 spaces, without a space given too; a product counts by what is saved of it."""
    mesh = femops.box((2, 2))
    W, v, q = mixed(mesh)
    V, Q = W.spaces.values()
    field, path = femops.GridFunction(V, v), tmp_path / "u.vtu"
    shared, own = 7 * 7, 4 * 16
    for owner, fields, count in (
        (None, {"v": field}, shared),
        (W, {"v": v}, shared),
        (W, {"v": v, "w": field}, shared),
        (W, {"v": v, "q": q}, own),
        (Q, {"v": field}, own),
    ):
        assert read_vtk(femops.save(path, owner, **fields)).n_points == count
    assert read_vtk(femops.save(path, W)).n_points == 4 * 4  # of its L2 space alone


def test_series_of_h1_and_l2(tmp_path):
    W, v, q = mixed(femops.box((2, 2)))
    V, Q = W.spaces.values()
    with femops.io.TimeSeries(tmp_path / "run.pvd") as series:
        first = series.save(0.0, W, v=v, q=q)
        second = series.save(1.0, v=femops.GridFunction(V, v), q=femops.GridFunction(Q, q))
    assert first.read_bytes() == second.read_bytes()


def test_fields_that_do_not_go_together(tmp_path):
    W, v, q = mixed(femops.box((2, 2)))
    V, path = W.spaces["v"], tmp_path / "u.vtu"
    other = femops.H1(femops.box((2, 2)), 1)
    field = femops.GridFunction(other, other.zeros())
    for call, error, message in (
        (lambda: femops.save(path, V, p=field), SpaceError, "p is a field on another mesh"),
        (lambda: femops.save(path, W, p=q), SpaceError, "p is a bare vector, and Product"),
        (lambda: femops.save(path, W, q=v), VectorError, "q has .* entries"),
        (lambda: femops.save(path, v=femops.GridFunction(V, v), q=q), SpaceError, "no space is"),
        (lambda: femops.save(path, q=q), SpaceError, "was given a NoneType for a space"),
        (lambda: femops.save(path), SpaceError, "was given a NoneType for a space"),
    ):
        with pytest.raises(error, match=message):
            call()
    assert not [*tmp_path.iterdir()]


def test_neighbours_share_nodes_only_where_they_agree(tmp_path):
    mesh = femops.box((3, 3))
    torn = femops.box((3, 3), periodic=True)
    for V, count in ((femops.H1(mesh, 2), 49), (femops.L2(mesh, 2), 81), (femops.H1(torn, 2), 81)):
        grid = read_vtk(femops.save(tmp_path / "u.vtu", V))
        assert grid.n_points == count
        assert grid.bounds[:4] == pytest.approx((0, 1, 0, 1))


def test_order_zero_is_constant_in_each_cell(tmp_path):
    V = femops.L2(femops.box((2, 2)), 0)
    femops.save(tmp_path / "u.vtu", V, u=np.array([1.0, 2.0, 3.0, 4.0]))
    grid = read_vtk(tmp_path / "u.vtu")
    np.testing.assert_array_equal(grid["u"].reshape(4, 4), np.arange(1.0, 5)[:, None].repeat(4, 1))


def test_above_vtks_degree_it_warns(tmp_path):
    V = femops.H1(femops.box((1, 1)), 12)
    with pytest.warns(UserWarning, match="degree 12 is written as degree 10"):
        femops.save(tmp_path / "u.vtu", V, u=V.interpolate(lambda x: x[0] ** 3))
    grid = read_vtk(tmp_path / "u.vtu")
    np.testing.assert_allclose(grid["u"], grid.points[:, 0] ** 3, atol=1e-12)


def test_errors_say_what_to_do(tmp_path):
    space = femops.H1(femops.box((2, 2)), 1)
    for call, error, message in (
        (lambda V, p: femops.save(p / "u.vtk", V), FileError, "name it 'u.vtu'"),
        (lambda V, p: femops.save(p / "no" / "u.vtu", V), FileError, "there is no folder"),
        (lambda V, p: femops.save(p / "u.vtu", 3), SpaceError, "space is 3: give a space"),
        (lambda V, p: femops.save(p / "u.vtu", V, u=np.zeros(3)), VectorError, "u has 3 entries"),
        (lambda V, p: vtk_order(4, 1), GeometryError, "no Lagrange cell"),
    ):
        with pytest.raises(error, match=message) as caught:
            call(space, tmp_path)
        assert isinstance(caught.value, FemopsError)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "u.vtu").mkdir()
    with pytest.raises(FileError, match="this is a folder"):
        femops.save(tmp_path / "u.vtu", space)
    os.mkfifo(tmp_path / "u.pvd")
    with pytest.raises(FileError, match="this is a pipe or device"):
        femops.io.TimeSeries(tmp_path / "u.pvd", existing="continue")


def test_a_name_that_is_too_long_for_its_pieces(tmp_path):
    V = femops.H1(femops.box((2, 2)), 1)
    with pytest.raises(FileError, match=r"cannot write .*; choose another folder or name"):
        femops.save(tmp_path / f"{'x' * 250}.pvtu", V, u=V.zeros())


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    V = femops.H1(femops.box((2, 2)), 1)
    path = femops.save(tmp_path / "u.vtu", V)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("femops.io.vtk.vtu_file._append", full)
    with pytest.raises(FileError, match="No space left on device"):
        femops.save(path, V, u=V.zeros())
    assert path.read_bytes() == before
    with pytest.raises(FileError, match="No space left on device"):
        femops.save(tmp_path / "v.pvtu", V, u=V.zeros())
    assert [entry.name for entry in tmp_path.iterdir()] == ["u.vtu"]


def test_a_mesh_alone(tmp_path):
    mesh = femops.ball(1, order=2).with_names({"stone": 1}, {"skin": 1})
    read = femops.read_mesh(femops.save(tmp_path / "m.mesh", mesh), reorder=False)
    assert (read.element_names, read.boundary_names) == (mesh.element_names, mesh.boundary_names)
    assert np.array_equal(read.coordinates, mesh.coordinates)
    assert femops.save(tmp_path / "m.vtu", mesh).stat().st_size > 1000
    V = femops.H1(mesh, 1)
    with pytest.raises(FileError, match=r"end in \.mesh, \.vtu, \.pvtu or \.vtkhdf"):
        femops.save(tmp_path / "m.msh", mesh)
    for given, fields in ((V, {}), (V, {"u": V.zeros()}), (mesh, {"u": V.zeros()})):
        with pytest.raises(FileError, match="cannot hold fields"):
            femops.save(tmp_path / "n.mesh", given, **fields)
    with pytest.raises(femops.errors.MeshError, match="cannot be written to MFEM"):
        femops.save(tmp_path / "n.mesh", mesh.with_names({'"': 1}))
    assert not (tmp_path / "n.mesh").exists()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_meshio_reads_what_is_saved(tmp_path, dim):
    meshio = pytest.importorskip("meshio", reason="needs the extra dev")
    V = femops.H1(mesh_of(dim), 3)
    u = V.interpolate(lambda x: x[0] + 2)
    file = femops.save(tmp_path / "u.vtu", V, u=u)
    read = meshio.read(file)
    (block,) = read.cells
    assert block.type == "VTK_LAGRANGE_" + ("CURVE", "QUADRILATERAL", "HEXAHEDRON")[dim - 1]
    assert len(block.data) == V.mesh.num_elements
    where, values = V.sample(u, 4)
    in_file = vtk_order(dim, 3)
    np.testing.assert_allclose(read.points[block.data][..., :dim], where[:, in_file])
    np.testing.assert_allclose(read.point_data["u"][block.data], values[:, in_file])
    assert read.cell_data["attribute"][0].shape == (V.mesh.num_elements,)


@pytest.mark.parametrize("suffix", [".vtu", ".vtkhdf"])
def test_complex_fields_are_two_arrays(tmp_path, suffix):
    pyvista = pytest.importorskip("pyvista", reason="needs the extra viz")
    if suffix == ".vtkhdf":
        pytest.importorskip("h5py")
    V = femops.H1(femops.box((2, 1)), 2, ncomp=2)
    u = V.interpolate(lambda x: (x[0] + 2j * x[1], x[0] * x[1]), dtype=complex)
    read = pyvista.read(femops.save(tmp_path / f"u{suffix}", V, u=u))
    apart = pyvista.read(femops.save(tmp_path / f"apart{suffix}", V, a=u.real, b=u.imag))
    assert set(read.point_data) == {"u_real", "u_imag"}
    assert np.array_equal(read["u_real"], apart["a"])
    assert np.array_equal(read["u_imag"], apart["b"])
    assert femops.io.to_pyvista(V, u)["u_imag"].shape == (15, 3)
    for fields in ({"u": u, "u_real": u.real}, {"u_imag": u.real, "u": u}):
        with pytest.raises(FileError, match="two fields are 'u_"):
            femops.save(tmp_path / f"u{suffix}", V, **fields)
    with pytest.raises(VectorError, match="has 3 entries"):
        femops.save(tmp_path / f"u{suffix}", V, u=u[:3])
