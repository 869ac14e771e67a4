"""Meshes of Netgen and NGSolve: a stand-in with their attributes, and, where installed, theirs."""

import numpy as np
import pytest

import femops
from femops_meshes import MeshFormatError
from femops_meshes.coordinates import simplices

SQUARE = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=float)


def table(nodes, tags, kind):
    nodes = np.array(nodes, dtype=np.int32)
    fields = [("nodes", np.int32, nodes.shape[1:]), ("index", np.int32), ("type", np.uint8)]
    rows = np.zeros(len(nodes), dtype=fields)
    rows["nodes"], rows["index"], rows["type"] = nodes, tags, kind
    return type("Array", (), {"NumPy": lambda _: rows, "__len__": lambda _: len(rows)})()


class Mesh:
    """Two triangles of the unit square, whose inside is moved if they are curved."""

    __module__ = "netgen.libngpy._meshing"
    dim = 2

    def __init__(self, order=1, kind=10):
        self.order, self.kind = order, kind

    def Coordinates(self):
        return SQUARE

    def GetCurveOrder(self):
        return self.order

    def Elements1D(self):
        return table([[1, 2, 0], [2, 4, 0], [2, 3, 0]], [1, 2, 3], 1)

    def Elements2D(self):
        return table([[1, 2, 3], [4, 3, 2]], [2, 1], self.kind)

    def GetRegionNames(self, dim):
        return {2: ["air", "iron"], 1: ["low", "right", "default"]}[dim]

    def CalcElementMapping(self, places, found):
        # Netgen's reference triangle has its vertices at (1, 0), (0, 1) and (0, 0)
        weights = np.column_stack([places, 1 - places.sum(axis=1)])
        corners = SQUARE[self.Elements2D().NumPy()["nodes"] - 1]
        found[..., :2] = moved(weights @ corners)


def moved(x):
    return x + 0.2 * (x**2 - x)


class Wrapped:
    """As ngsolve.Mesh."""

    __module__ = "ngsolve.comp"
    deformation = None

    def __init__(self, mesh):
        self.ngmesh = mesh


@pytest.mark.parametrize("order", [1, 2, 3, 6])
@pytest.mark.parametrize("wrap", [lambda mesh: mesh, Wrapped])
def test_triangles_with_names(wrap, order):
    mesh = femops.read_mesh(wrap(Mesh(order)), reorder=False)
    assert (mesh.cell.name, mesh.num_elements, mesh.order) == ("triangle", 2, order)
    assert mesh.element_names == {"air": (1,), "iron": (2,)}
    assert mesh.element_attributes.tolist() == [2, 1]
    assert mesh.boundary_names == {"low": (1,), "right": (2,)}
    # the sides that are not listed, and one between the two
    assert sorted(mesh.boundary_attributes) == [1, 2, 3, 4, 4]
    at = simplices.nodes(mesh.cell, order)
    weights = np.column_stack([1 - at.sum(axis=1), at])
    straight = weights @ SQUARE[mesh.elements]
    expected = straight if order == 1 else moved(straight)
    np.testing.assert_allclose(mesh.coordinates, expected, atol=1e-14)
    assert mesh.continuous
    halves = femops.read_mesh(wrap(Mesh(order)), split=True)
    assert (halves.num_elements, halves.cell.name) == (6, "quadrilateral")
    assert halves.volume() == pytest.approx(mesh.volume(), rel=1e-13)


def test_what_is_refused():
    with pytest.raises(MeshFormatError, match=r"the netgen mesh: .*degree 7: the highest is 6"):
        femops.read_mesh(Mesh(7))
    with pytest.raises(MeshFormatError, match=r"elements of Netgen's type 99.*tetrahedra"):
        femops.read_mesh(Mesh(1, 99))
    wrapped = Wrapped(Mesh())
    wrapped.deformation = object()
    with pytest.raises(MeshFormatError, match=r"the ngsolve mesh has a deformation.*Unset"):
        femops.read_mesh(wrapped)


def test_what_netgen_itself_refuses(monkeypatch):
    """Netgen raises its own errors, as of hexahedra of degree 2."""

    def refuse(*_):
        raise Exception("element type not handled\x1b[2J")

    monkeypatch.setattr(Mesh, "CalcElementMapping", refuse)
    with pytest.raises(MeshFormatError, match=r"can't be read: element type not handled\\x1b"):
        femops.read_mesh(Mesh(2))


@pytest.mark.parametrize("index", [-1, 2, 7])
def test_faces_without_a_descriptor(monkeypatch, index):
    """In 3-D a face has the number of its descriptor, which has that of its condition."""
    corners = np.vstack([np.zeros(3), np.eye(3)])
    monkeypatch.setattr(Mesh, "dim", 3)
    monkeypatch.setattr(Mesh, "Coordinates", lambda _: corners)
    monkeypatch.setattr(Mesh, "Elements3D", lambda _: table([[1, 2, 3, 4]], [1], 20), raising=False)
    monkeypatch.setattr(Mesh, "Elements2D", lambda _: table([[1, 2, 3]], [index], 10))
    face = type("Face", (), {"bc": 5, "bcname": "low"})()
    monkeypatch.setattr(Mesh, "FaceDescriptors", lambda _: [face], raising=False)
    monkeypatch.setattr(Mesh, "GetRegionNames", lambda _, dim: ["iron"])
    with pytest.raises(MeshFormatError, match=f"index {index} and 1 face descriptors"):
        femops.read_mesh(Mesh())


def test_a_mesh_without_elements(monkeypatch):
    """NumPy() of Netgen's empty arrays raises a ValueError."""
    monkeypatch.setattr(Mesh, "Elements2D", lambda _: ())
    monkeypatch.setattr(Mesh, "Elements1D", lambda _: ())
    with pytest.raises(MeshFormatError, match="it holds no elements"):
        femops.read_mesh(Mesh())


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_a_ball_in_a_box_of_netgen(order):
    """Volumes and areas of named parts, beside NGSolve's integrals."""
    occ, ngsolve = pytest.importorskip("netgen.occ"), pytest.importorskip("ngsolve")
    box, ball = occ.Box((0, 0, 0), (1, 1, 1)), occ.Sphere((0.5, 0.5, 0.5), 0.3)
    box.faces.Min(occ.X).name, ball.faces.name = "left", "skin"
    box.mat("iron")
    ball.mat("air")
    source = occ.OCCGeometry(occ.Glue([box - ball, ball])).GenerateMesh(maxh=0.4)
    source.Curve(order)
    mesh, theirs = femops.read_mesh(source), ngsolve.Mesh(source)
    assert (mesh.order, mesh.cell.name, mesh.continuous) == (order, "tetrahedron", True)
    rule = femops.basis.simplex_rule(3, 3 * order)
    sizes = np.concatenate(
        [block.weighted_det.sum(axis=1) for block in femops.geometry.Geometry(mesh, rule)]
    )
    for name, numbers in mesh.element_names.items():
        part = theirs.Materials(name)
        total = ngsolve.Integrate(ngsolve.CF(1), theirs, definedon=part, order=3 * order)
        mine = sizes[np.isin(mesh.element_attributes, numbers)].sum()
        assert mine == pytest.approx(total, rel=1e-11)
    rule = femops.basis.simplex_rule(2, 24)
    for name in ("left", "skin"):
        part = theirs.Boundaries(name)
        total = ngsolve.Integrate(ngsolve.CF(1), theirs, ngsolve.BND, definedon=part, order=24)
        faces = femops.geometry.BoundaryGeometry(mesh, rule, name)
        assert sum(block.weighted_det.sum() for block in faces) == pytest.approx(total, rel=1e-9)


def test_squares_of_netgen():
    geom2d = pytest.importorskip("netgen.geom2d")
    source = geom2d.unit_square.GenerateMesh(maxh=0.3, quad_dominated=True)
    mesh = femops.read_mesh(source)
    assert (mesh.cell.name, set(mesh.boundary_names)) == (
        "quadrilateral",
        {"bottom", "right", "top", "left"},
    )
    assert mesh.volume() == pytest.approx(1.0)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_layers_of_prisms_of_netgen(order):
    """Volumes and areas of named parts, beside NGSolve's integrals."""
    occ, ngsolve = pytest.importorskip("netgen.occ"), pytest.importorskip("ngsolve")
    meshing = pytest.importorskip("netgen.meshing")
    can = occ.Cylinder((0, 0, 0), occ.Z, 1, 1)
    can.faces.name = "wall"
    can.faces.Min(occ.Z).name = "low"
    layer = meshing.BoundaryLayerParameters(boundary="low", thickness=0.1, new_material="layer")
    source = occ.OCCGeometry(can).GenerateMesh(maxh=0.6, boundary_layers=[layer])
    source.Curve(order)
    mesh, theirs = femops.read_mesh(source), ngsolve.Mesh(source)
    assert (mesh.plural, mesh.order, mesh.continuous) == ("prisms and tetrahedra", order, True)
    one = ngsolve.CF(1)
    assert mesh.volume() == pytest.approx(ngsolve.Integrate(one, theirs, order=12), rel=1e-11)
    V = femops.H1(mesh, 1)
    for name in ("low", "wall"):
        part = theirs.Boundaries(name)
        area = ngsolve.Integrate(one, theirs, ngsolve.BND, definedon=part, order=24)
        mine = femops.integrate(V, V.interpolate(1.0), boundary=name)
        assert mine == pytest.approx(area, rel=1e-6)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_quadrilaterals_and_triangles_of_netgen(order):
    occ, ngsolve = pytest.importorskip("netgen.occ"), pytest.importorskip("ngsolve")
    disc = occ.Circle((0, 0), 1).Face()
    disc.edges.name = "rim"
    source = occ.OCCGeometry(disc, dim=2).GenerateMesh(maxh=0.4, quad_dominated=True)
    source.Curve(order)
    mesh, theirs = femops.read_mesh(source), ngsolve.Mesh(source)
    assert (mesh.plural, mesh.order) == ("quadrilaterals and triangles", order)
    area = ngsolve.Integrate(ngsolve.CF(1), theirs, order=12)
    assert mesh.volume() == pytest.approx(area, rel=1e-11)
    assert set(mesh.boundary_names) == {"rim"}
