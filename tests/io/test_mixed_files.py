"""Meshes of several shapes, or of prisms, in files: Gmsh, meshio, MFEM, VTK; what is refused."""

import itertools
import typing

import numpy as np
import pytest

import femops
from femops.io import load_state, save_state, to_pyvista
from femops_meshes import MeshFormatError, MeshTopologyError, write_mfem
from support.gmsh_files import document, run
from support.mixed_meshes import flat_mesh

# a hexahedron, two prisms beside it and two tetrahedra on one of them
POINTS = np.array(
    [
        *((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)),
        *((0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)),
        *((2, 0, 0), (2, 1, 0), (2, 0, 1), (2, 1, 1), (1.2, 0.3, 2), (2.2, 0.3, 2)),
    ],
    dtype=float,
)
HEX = (5, 7, 1, 1, 2, 3, 4, 5, 6, 7, 8)
PRISM_1, PRISM_2 = (6, 8, 2, 2, 9, 3, 6, 11, 7), (6, 8, 2, 9, 10, 3, 11, 12, 7)
TETS = [(4, 9, 3, 6, 11, 7, 13), (4, 9, 3, 13, 11, 14, 7)]
FACES = [(3, 4, 4, 1, 2, 3, 4), (2, 5, 5, 2, 3, 9), (3, 5, 5, 2, 9, 11, 6)]
NAMES = [(3, 7, "cube"), (3, 8, "wedge"), (2, 5, "cold")]
ALL = [HEX, PRISM_1, PRISM_2, *TETS, *FACES]


def written(folder, elements, points=POINTS, more=""):
    path = folder / "a.msh"
    path.write_text(document(points, elements, NAMES) + more)
    return path


def curved(degree, bend=0.05):
    """A mesh of all shapes, with a bent map."""
    arrays = {
        "hexahedra": [[0, 1, 3, 2, 4, 5, 7, 6]],
        "prisms": [[1, 8, 2, 5, 10, 6], [8, 9, 2, 10, 11, 6]],
        "tetrahedra": [[5, 10, 6, 12], [12, 10, 13, 6]],
    }
    mesh = femops.MixedMesh.from_arrays(POINTS, arrays, element_attributes={"prisms": [3, 5]})
    return mesh.mapped(lambda x: x + bend * np.sin(2 * x[[1, 2, 0]]), order=degree)


def smooth(x):
    return 1 + x[0] * x[2] - 0.5 * x[1] ** 2


def measures(mesh):
    V = femops.H1(mesh, 2)
    one, u = V.interpolate(1.0), V.interpolate(smooth)
    faces = [femops.integrate(V, one, boundary=name) for name in mesh.boundary_names]
    return [mesh.volume(), V.ndofs, femops.integrate(V, u), u @ (femops.mass(V) @ u), *faces]


def test_groups_of_elements_and_faces(tmp_path):
    mesh = femops.read_mesh(written(tmp_path, ALL), reorder=False)
    assert mesh.plural == "hexahedra, prisms and tetrahedra"
    assert [part.element_attributes.tolist() for part in mesh.parts] == [[7], [8, 8], [9, 9]]
    assert mesh.element_names == {"cube": (7,), "wedge": (8,)}
    assert mesh.boundary_names == {"cold": (5,)}
    # faces in no group have the lowest number that none has, but none is between two elements
    numbers, counts = np.unique(mesh.boundary_attributes, return_counts=True)
    assert dict(zip(numbers.tolist(), counts.tolist(), strict=True)) == {1: 13, 4: 1, 5: 2}
    V = femops.H1(mesh, 1)
    areas = [femops.integrate(V, V.interpolate(1.0), boundary=name) for name in ("cold", 4)]
    assert areas == pytest.approx([1.5, 1.0])
    volumes = [abs(np.linalg.det(POINTS[np.array(t[4:]) - 1] - POINTS[t[3] - 1])) for t in TETS]
    assert mesh.volume() == pytest.approx(2 + sum(volumes) / 6)
    ordered = femops.read_mesh(tmp_path / "a.msh", refine=1)
    assert (ordered.num_elements, ordered.continuous) == (40, True)
    assert ordered.volume() == pytest.approx(mesh.volume())


def test_what_type_checkers_take_a_mesh_for():
    """They let a program use it as a `Mesh`, and allow for the other class."""
    found = [
        (hints["split"], hints["comm"], hints["return"])
        for hints in (one.__annotations__ for one in typing.get_overloads(femops.read_mesh))
    ]
    assert found == [
        ("Literal[True]", "None", "Mesh"),
        ("bool", "None", "Mesh | Any"),
        ("bool", "Any", "DistributedMesh"),
    ]


def turned(prism, way):
    """A prism with its corners in one of the 12 orders, of which 6 are mirrored."""
    head, corners = prism[:3], prism[3:]
    order = list(itertools.permutations(range(3)))[way % 6]
    rows = [tuple(corners[3 * level + k] for k in order) for level in ((0, 1), (1, 0))[way // 6]]
    return (*head, *rows[0], *rows[1])


@pytest.mark.parametrize("way", range(12))
def test_corners_of_prisms_in_any_order(tmp_path, way):
    expected = measures(femops.read_mesh(written(tmp_path, ALL)))
    elements = [HEX, turned(PRISM_1, way), turned(PRISM_2, 5 * way % 12), *TETS, *FACES]
    assert measures(femops.read_mesh(written(tmp_path, elements))) == pytest.approx(expected)


BESIDE = [HEX, (4, 9, 3, 2, 3, 7, 9), (4, 9, 3, 2, 6, 7, 9)]


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([*ALL, (7, 1, 1, 1, 2, 6, 5, 9)], r"1 pyramid\(s\), number 9 \(numbers of the file\) the"),
        ([*ALL, (7, 1, 1, 1, 2, 6, 5, 9)], "tetrahedra at triangles, and hexahedra at quad"),
        (BESIDE, r"face\(s\) lie at triangles: that of hexahedron 1 at a .* tetrahedron [23] "),
        (BESIDE, r"numbers of the file.*mesh anew, or .*split=True"),
        ([*ALL[:5], (6, 8, 2, 2, 4, 3, 6, 8, 7)], r"same side of it, hexahedron 1 and prism 6"),
        ([HEX, (18, 1, 1, *range(1, 10), *range(9, 15))], "incomplete elements"),
        ([HEX, (11, 1, 1, *range(1, 11))], r"mixes elements of degrees \[1, 2\]"),
        ([HEX, PRISM_1, PRISM_1, PRISM_2], r"lists 1 element\(s\) of dimension 3 twice"),
        ([PRISM_1, (6, 8, 2, 9, 10, 3, 3, 12, 11)], "of the prisms .*inverted"),
        ([HEX, PRISM_1, (2, 5, 5, 1, 2, 13)], "are sides of no element"),
        ([HEX, PRISM_1, (2, 5, 5, 1, 2, 3)], r"not faces of any element: .* of the triangles"),
    ],
)
def test_refused(tmp_path, elements, message):
    path = written(tmp_path, elements)
    with pytest.raises(femops.errors.MeshError, match=message) as caught:
        femops.read_mesh(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


_TORUS = """
import gmsh
gmsh.initialize(readConfigFiles=False)
gmsh.option.setNumber("General.Terminal", 0)
geo, mesh = gmsh.model.geo, gmsh.model.mesh
p = [[geo.addPoint(x, y, 0, 0.4) for x in (0, 0.5, 1)] for y in (0, 1)]
rows = [[geo.addLine(*row[k : k + 2]) for k in (0, 1)] for row in p]
up = [geo.addLine(p[0][k], p[1][k]) for k in range(3)]
flat = [
    geo.addPlaneSurface([geo.addCurveLoop([rows[0][k], up[k + 1], -rows[1][k], -up[k]])])
    for k in (0, 1)
]
made = geo.extrude([(2, s) for s in flat], 0, 0, 1, numElements=[3], recombine=True)
geo.synchronize()
bodies = [tag for dim, tag in made if dim == 3]
def side(d, end):
    box = [0, 0, 0, 1, 1, 1]
    box[d] = box[d + 3] = end
    near = [b + (-1e-6 if k < 3 else 1e-6) for k, b in enumerate(box)]
    return sorted(tag for _, tag in gmsh.model.getEntitiesInBoundingBox(*near, 2))
for k, body in enumerate(bodies):
    gmsh.model.addPhysicalGroup(3, [body], k + 1)
for d in range(3):
    gmsh.model.addPhysicalGroup(2, side(d, 0) + side(d, 1), 10 + d, "xyz"[d])
for curve in (up[0], up[1], up[2], rows[0][0], rows[1][0], rows[0][1], rows[1][1]):
    mesh.setTransfiniteCurve(curve, 4)
mesh.setTransfiniteSurface(flat[0])
mesh.setRecombine(2, flat[0])
mesh.generate(3)
for d in {along}:
    shift = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    shift[4 * d + 3] = 1
    mesh.setPeriodic(2, side(d, 1), side(d, 0), shift)
mesh.setOrder({order})
gmsh.option.setNumber("Mesh.MshFileVersion", {version})
gmsh.write({path!r})
"""


@pytest.mark.parametrize(("along", "order", "version"), [((0, 2), 1, 4.1), ((0, 1, 2), 2, 2.2)])
def test_periodic_hexahedra_and_prisms(tmp_path, along, order, version):
    """Matrices are those of the box that is not periodic, with the same dofs merged."""
    path, plain = tmp_path / "a.msh", tmp_path / "plain.msh"
    run(_TORUS.format(along=along, order=order, version=version, path=str(path)))
    text = path.read_text()
    start, end = (text.index(word) for word in ("$Periodic", "$EndPeriodic"))
    plain.write_text(text[:start] + text[end + len("$EndPeriodic\n") :])
    mesh, box = femops.read_mesh(path), femops.read_mesh(plain)
    assert mesh.plural == box.plural == "hexahedra and prisms"
    assert (mesh.order, mesh.continuous, box.continuous) == (order, False, True)
    assert mesh.volume() == pytest.approx(1.0)
    assert set(mesh.boundary_names) == {*"xyz"} - {"xyz"[d] for d in along}
    assert mesh.num_boundary == np.isin(box.boundary_attributes, [11] * (1 not in along)).sum()
    mesh.validate()
    V, W = femops.H1(mesh, 2), femops.H1(box, 2)
    places = []
    for space in (V, W):
        x = space.dof_coordinates()
        x[:, along] = np.mod(x[:, along] + 1e-9, 1.0)
        places.append(x.round(6))
    number = {tuple(x): k for k, x in enumerate(places[0].tolist())}
    assert len(number) == V.ndofs  # no node has two dofs
    P = np.zeros((W.ndofs, V.ndofs))
    P[np.arange(W.ndofs), [number[tuple(x)] for x in places[1].tolist()]] = 1.0
    for make in (femops.mass, femops.diffusion):
        due = P.T @ make(W).assemble().toarray() @ P
        np.testing.assert_allclose(make(V).assemble().toarray(), due, atol=1e-12)
    D = femops.L2(mesh, 1)  # what leaves an element enters another
    A = femops.upwind_convection(D, lambda x: np.ones_like(x) * (np.arange(3) != 1)[:, None])
    u = np.random.default_rng(0).standard_normal(D.size)
    assert abs(D.interpolate(1.0) @ (A @ u)) < 1e-12


@pytest.mark.parametrize("as_vtk", [False, True])
def test_prisms_of_degree_2_of_meshio(as_vtk):
    """meshio leaves prisms as the file has them, in Gmsh's order or in VTK's."""
    meshio = pytest.importorskip("meshio")
    vtk = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)]
    gmsh = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (3, 5), (4, 5)]
    faces = [(0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)]
    order = [*vtk, *faces] if as_vtk else [*gmsh, faces[0], faces[2], faces[1]]
    corners = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1.0)])
    nodes = np.concatenate([corners, [corners[list(row)].mean(axis=0) for row in order]])
    nodes[:, 2] += 0.1 * nodes[:, 0] ** 2
    mesh = femops.read_mesh(meshio.Mesh(nodes, [("wedge18", [range(18)])]))
    assert (mesh.plural, mesh.order) == ("prisms", 2)
    assert mesh.volume() == pytest.approx(0.5)
    V = femops.H1(mesh, 2)
    top = V.interpolate(lambda x: x[2] - 0.1 * x[0] ** 2)
    assert femops.integrate(V, top) == pytest.approx(0.25)


def test_neighbours_with_other_nodes():
    """On a face between two shapes, or between two elements of one."""
    arrays = {"hexahedra": [[0, 1, 3, 2, 4, 5, 7, 6]], "prisms": [[1, 8, 2, 5, 10, 6]]}
    arrays["prisms"] += [[8, 9, 2, 10, 11, 6]]
    for name, row, node in (("hexahedra", 0, 7), ("prisms", 0, 4), ("prisms", 1, 0)):
        x = {part: POINTS[np.array(rows)] for part, rows in arrays.items()}
        assert femops.MixedMesh.from_arrays(None, arrays, coordinates=x).continuous
        x[name][row, node] += 1e-3
        mesh = femops.MixedMesh.from_arrays(None, arrays, coordinates=x)
        assert not mesh.continuous
        with pytest.raises(femops.errors.MeshError, match="other nodes on common faces"):
            write_mfem(mesh, "never.mesh")
    same_side = {"prisms": [[1, 8, 2, 5, 10, 6], [1, 9, 2, 5, 11, 6]]}
    with pytest.raises(femops.errors.MeshError, match="same side"):
        femops.MixedMesh.from_arrays(POINTS, same_side)


# --- MFEM -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_files_of_mfem(tmp_path, degree):
    mesh = curved(degree).refine().with_names({"half": 5}, {"out": 1})
    path = femops.save(tmp_path / "a.mesh", mesh)
    read = femops.read_mesh(path, reorder=False)
    assert (read.element_names, read.boundary_names) == ({"half": (5,)}, {"out": (1,)})
    for mine, theirs in zip(mesh.parts, read.parts, strict=True):
        assert np.array_equal(mine.file_elements, theirs.file_elements)
        assert np.array_equal(mine.elements, theirs.elements)
        np.testing.assert_allclose(mine.coordinates, theirs.coordinates, atol=1e-13)
    assert measures(read) == pytest.approx(measures(mesh), rel=1e-12)
    flat = tmp_path / "flat.mesh"
    squares = {"quadrilaterals": [[0, 1, 3, 2]], "triangles": [[8, 1, 2], [8, 9, 2]]}
    plane = femops.MixedMesh.from_arrays(POINTS[:, :2], squares)
    bent = plane.mapped(lambda x: x + 0.05 * np.sin(2 * x[::-1]), order=degree)
    write_mfem(bent, flat)
    assert femops.read_mesh(flat).volume() == pytest.approx(bent.volume())


def test_nodes_of_a_prism_in_mfem(tmp_path):
    """Vertices, edges from the lower vertex, faces as the element lists them, the inside."""
    x = POINTS[[1, 8, 2, 5, 10, 6]]

    def between(a, b, t):
        return (1 - t) * a + t * b

    line = (1 + np.array([-1, 1]) / np.sqrt(5)) / 2  # of Gauss and Lobatto
    edges = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (0, 3), (1, 4), (2, 5)]
    nodes = [*x, *(between(x[a], x[b], t) for a, b in edges for t in line)]
    nodes += [x[:3].mean(axis=0), x[3:].mean(axis=0)]
    for a, b, c, d in ((0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)):
        for t in line:
            nodes += [between(between(x[a], x[b], s), between(x[d], x[c], s), t) for s in line]
    nodes += [between(x[:3].mean(axis=0), x[3:].mean(axis=0), t) for t in line]
    table = "\n".join(" ".join(map(repr, row)) for row in np.array(nodes).tolist())
    head = "MFEM mesh v1.0\n\ndimension\n3\n\nelements\n1\n1 6 0 1 2 3 4 5\n\nboundary\n0\n\n"
    head += "vertices\n6\n\nnodes\nFiniteElementSpace\nFiniteElementCollection: H1_3D_P3\n"
    path = tmp_path / "a.mesh"
    path.write_text(f"{head}VDim: 3\nOrdering: 1\n\n{table}\n")
    mesh = femops.read_mesh(path)
    straight = femops.MixedMesh.from_arrays(x, {"prisms": [range(6)]}).curved(3)
    np.testing.assert_allclose(mesh.parts[0].coordinates, straight.parts[0].coordinates, atol=1e-14)
    femops.save(tmp_path / "b.mesh", mesh)
    again = (tmp_path / "b.mesh").read_text().split("Ordering: 1")[1].split()
    np.testing.assert_allclose(np.array(again, float).reshape(-1, 3), nodes, atol=1e-14)
    text = path.read_text()
    for old, new, message in [
        ("H1_3D_P3", "L2_T1_3D_P3", "several shapes in .L2_T1_3D_P3. are not read.*H1_3D_P3"),
        ("H1_3D_P3", "H1_3D_P2", "are 18 on this mesh, but the file gives 40"),
        ("1 6 0 1 2 3 4 5", "1 7 0 1 2 3 4", r"1 pyramid\(s\), number 0 the first .counted from 0"),
    ]:
        path.write_text(text.replace(old, new))
        with pytest.raises(femops.errors.MeshError, match=message):
            femops.read_mesh(path)


def test_mfem_integrates_what_we_write(tmp_path):
    """Volume and area by MFEM itself, of all shapes, of degrees 1 to 4; and what it writes."""
    mfem = pytest.importorskip("mfem.ser")
    for degree in (1, 2, 3, 4):
        mesh = curved(degree).refine()
        path = str(femops.save(tmp_path / "a.mesh", mesh))
        theirs, volume, area = mfem.Mesh(path, 0, 0), 0.0, 0.0
        for k in range(theirs.GetNE()):
            volume += integral(mfem, theirs.GetElementTransformation(k), 3 * degree)
        for k in range(theirs.GetNBE()):
            area += integral(mfem, theirs.GetBdrElementTransformation(k), 2 * degree + 9)
        V = femops.H1(mesh, 1)
        assert volume == pytest.approx(mesh.volume(), rel=1e-12)
        assert area == pytest.approx(femops.integrate(V, V.interpolate(1.0), boundary=1), rel=1e-6)
        theirs.SetCurvature(degree + 1)
        theirs.Print(path, 16)
        again = femops.read_mesh(path)
        assert (again.order, again.continuous) == (degree + 1, True)
        assert again.volume() == pytest.approx(volume, rel=1e-12)


def integral(mfem, trafo, degree):
    rule, total = mfem.IntRules.Get(trafo.GetGeometryType(), degree), 0.0
    for point in map(rule.IntPoint, range(rule.GetNPoints())):
        trafo.SetIntPoint(point)
        total += point.weight * trafo.Weight()
    return total


# --- VTK ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("degree", "order"), [(1, 1), (1, 4), (2, 3), (3, 2)])
def test_files_of_vtk(tmp_path, degree, order):
    meshio = pytest.importorskip("meshio")
    mesh = curved(degree)
    V, W, Q = femops.H1(mesh, order), femops.H1(mesh, 1, ncomp=3), femops.L2(mesh, 1)
    u, w = V.interpolate(smooth), W.interpolate(lambda x: x)
    read = meshio.read(femops.save(tmp_path / "a.vtu", V, u=u))
    p = max(degree, order)
    sizes = [(p + 1) ** 3, (p + 1) ** 2 * (p + 2) // 2, (p + 1) * (p + 2) * (p + 3) // 6]
    names = ["HEXAHEDRON", "WEDGE", "TETRAHEDRON"]
    assert [block.type for block in read.cells] == [f"VTK_LAGRANGE_{name}" for name in names]
    assert [block.data.shape for block in read.cells] == [
        (n, size) for n, size in zip((1, 2, 2), sizes, strict=True)
    ]
    assert len(read.points) == femops.H1(mesh, p).ndofs  # neighbours share points
    at_points = femops.Probe(mesh, read.points)(V, u)
    np.testing.assert_allclose(read.point_data["u"], at_points, atol=1e-12)
    assert np.concatenate(read.cell_data["attribute"]).tolist() == [1, 3, 5, 1, 1]
    fields = {"w": femops.GridFunction(W, w), "q": femops.GridFunction(Q, Q.zeros())}
    apart = meshio.read(femops.save(tmp_path / "b.vtu", **fields))
    assert len(apart.points) == sum(
        n * len(block.data[0]) for n, block in zip((1, 2, 2), apart.cells, strict=True)
    )
    assert apart.point_data["w"].shape == apart.points.shape
    product = femops.Product(u=V, w=W)
    both = meshio.read(femops.save(tmp_path / "c.vtu", product, u=u, w=w))
    assert {*both.point_data} == {"u", "w"}
    assert measures(femops.read_mesh(read)) == pytest.approx(measures(mesh))
    with pytest.raises(MeshTopologyError, match="it is not known which cells are joined"):
        femops.read_mesh(apart)
    read.cells[1].data = read.cells[1].data[:, :-1]
    with pytest.raises(MeshFormatError, match=r"VTK_LAGRANGE_WEDGE with .* not read"):
        femops.read_mesh(read)


VTK_MESHES = {
    "plane": lambda: flat_mesh(curved=4),
    "space": lambda: curved(3).refine(),
    "hexahedra": lambda: femops.ball(1, order=3),
    "tetrahedra": lambda: femops.ball(1, order=5).simplices(),
    "segments": lambda: femops.box((4,), order=2, mapping=lambda x: x + 0.1 * x**2),
}
LAGRANGE = dict(
    enumerate(("CURVE", "TRIANGLE", "QUADRILATERAL", "TETRAHEDRON", "HEXAHEDRON", "WEDGE"), 68)
)


@pytest.mark.parametrize("name", VTK_MESHES)
def test_lagrange_cells_of_vtk_are_read(tmp_path, name):
    """As we write them, and as VTK does: it exchanges two edges of hexahedra."""
    meshio, pyvista = pytest.importorskip("meshio"), pytest.importorskip("pyvista")
    mesh = VTK_MESHES[name]()
    path = femops.save(tmp_path / "a.vtu", mesh)
    pyvista.read(path).save(tmp_path / "b.vtu")
    grid = pyvista.read(tmp_path / "b.vtu")  # meshio does not read this version
    blocks, ends = [], np.cumsum([0, *(grid.get_cell(k).n_points for k in range(grid.n_cells))])
    for kind in np.unique(grid.celltypes).tolist():
        of_kind = np.flatnonzero(grid.celltypes == kind)
        rows = [grid.cell_connectivity[ends[k] : ends[k + 1]] for k in of_kind]
        blocks.append((f"VTK_LAGRANGE_{LAGRANGE[kind]}", np.array(rows)))
    marked = mesh.with_attributes(1 + np.arange(mesh.num_elements) % 3)
    for source in (
        meshio.read(femops.save(tmp_path / "c.vtu", marked)),
        meshio.Mesh(np.array(grid.points), blocks),
    ):
        read = femops.read_mesh(source, reorder=False)
        assert (read.order, read.num_elements) == (mesh.order, mesh.num_elements)
        assert (read.num_vertices, read.num_boundary) == (mesh.num_vertices, mesh.num_boundary)
        assert read.volume() == pytest.approx(mesh.volume(), rel=1e-12)
        V, W = femops.H1(mesh, 2), femops.H1(read, 2)
        values = [femops.integrate(space, lambda x: x[0] ** 2 + x[-1]) for space in (V, W)]
        assert values[0] == pytest.approx(values[1], rel=1e-12)
        assert V.ndofs == W.ndofs
        for tag in np.unique(marked.element_attributes) if source.cell_data else ():
            x, y = (m.element_centers()[m.element_attributes == tag] for m in (read, marked))
            np.testing.assert_allclose(np.sort(x[:, 0]), np.sort(y[:, 0]), atol=1e-12)


def test_vtk_interpolates_as_we_do(tmp_path):
    """VTK's own order of nodes: positive volumes, and the field between the nodes."""
    pyvista = pytest.importorskip("pyvista")
    mesh = curved(1, bend=0.0)
    points = femops.Probe(mesh, mesh.element_centers()).points + 0.07
    suffixes = [".vtu", ".vtkhdf"]
    for order, suffix in itertools.product([1, 2, 3, 5], suffixes):
        if suffix == ".vtkhdf":
            pytest.importorskip("h5py")
        V = femops.H1(mesh, order)
        u = V.interpolate(lambda x, order=order: smooth(x) + x[0] ** order)
        grid = pyvista.read(femops.save(tmp_path / f"a{suffix}", V, u=u))
        assert (grid.compute_cell_sizes()["Volume"] > 0).all()
        found = pyvista.PolyData(points).sample(grid)
        inside = found["vtkValidPointMask"].astype(bool)
        expected = femops.Probe(mesh, points, outside="nan")(V, u)
        assert inside.sum() >= 4
        np.testing.assert_allclose(found["u"][inside], expected[inside], atol=1e-9)
    assert to_pyvista(mesh).n_cells == 5


# --- pictures, probes, states ---------------------------------------------------------------------


def test_pictures(tmp_path):
    from femops.io.plots.sampling import Sampler, boundary_faces
    from femops.io.plots.scene import fans, make_scene

    mesh = curved(2)
    V = femops.H1(mesh, 2)
    u = V.interpolate(smooth)
    parts = [part.surface(17, boundary_faces(part.mesh))[0] for part in Sampler(mesh).parts]
    closed = sum(np.linalg.det(fans(p[..., :3])).sum() / 6 for p in parts)
    assert closed == pytest.approx(mesh.volume(), rel=1e-2)
    scene = make_scene(Sampler(mesh, femops.GridFunction(V, u)), "u", "x", False, True)
    values = smooth(np.moveaxis(scene.patches[..., :3], -1, 0))
    np.testing.assert_allclose(scene.patches[..., 3], values, atol=2e-2)
    cut = np.linalg.det(fans(scene.patches[..., :3])).sum() / 6
    assert 0.3 * mesh.volume() < cut < 0.7 * mesh.volume()
    for what in ((V, u), (mesh,)):
        assert femops.plot(*what, backend="matplotlib").save(tmp_path / "a.png").stat().st_size
    plane = femops.MixedMesh.from_arrays(
        POINTS[:, :2], {"quadrilaterals": [[0, 1, 3, 2]], "triangles": [[8, 1, 2], [8, 9, 2]]}
    )
    assert femops.plot(plane).save(tmp_path / "b.png").stat().st_size


def test_probes_and_states(tmp_path):
    mesh = curved(2)
    V, W = femops.H1(mesh, 3), femops.H1(mesh, 2, ncomp=3)
    u, w = V.interpolate(smooth), W.interpolate(lambda x: x)
    centers = mesh.element_centers()
    probe = femops.Probe(mesh, [*centers, (9, 9, 9)], outside="nan")
    assert probe.elements.tolist() == [0, 1, 2, 3, 4, -1]
    np.testing.assert_allclose(probe(W, w)[:5], centers, atol=1e-12)
    np.testing.assert_allclose(probe.gradient(W, w)[:5], [np.eye(3)] * 5, atol=1e-11)
    f = np.arange(6.0)
    assert probe.load(V, f) @ u == pytest.approx(f[:5] @ probe(V, u)[:5])
    finer = femops.H1(mesh.refine(), 3)
    v = finer.interpolate((V, u))
    np.testing.assert_allclose(femops.Probe(finer.mesh, centers)(finer, v), probe(V, u)[:5])
    path = save_state(tmp_path / "a.state", {"u": (V, u)})
    assert np.array_equal(load_state(path, {"u": V}).vectors["u"], u)
    with pytest.raises(femops.errors.CheckpointError, match="on another mesh"):
        load_state(path, {"u": finer})


def test_what_takes_one_shape_alone(tmp_path):
    mesh = curved(1)
    V = femops.H1(mesh, 1)
    for call, message in [
        (lambda: femops.partition(mesh, 2).owned_dofs(2), "does not count dofs"),
        (lambda: femops.save(tmp_path / "u.gf", V, u=V.zeros()), "cannot hold fields on hexahedra"),
        (V.file_dofs, "not known on elements of several shapes"),
    ]:
        with pytest.raises((femops.errors.FemopsError, femops.errors.MeshError), match=message):
            call()
