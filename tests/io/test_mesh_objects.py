"""Meshes of meshio and of Gmsh's Python interface, beside files and known geometry."""

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import femops
from femops.io.gmsh.nodes import KINDS
from femops.io.gmsh.reader import SHAPES
from femops_meshes import MeshArgumentError, MeshError, MeshFormatError

meshio = pytest.importorskip("meshio", reason="meshio is missing")
if find_spec("gmsh") is None:
    pytest.skip("needs the extra mesh", allow_module_level=True)

SQUARES = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]], dtype=float)
QUADS = [("quad", np.array([[0, 1, 4, 3], [1, 2, 5, 4]])), ("line", np.array([[0, 3], [2, 5]]))]


def test_cell_sets_of_meshio():
    sets = {"left": [[0], [0]], "right": [[1], None], "outlet": [None, [1]]}
    sets["left"][1] = []
    mesh = femops.read_mesh(meshio.Mesh(SQUARES, QUADS, cell_sets=sets), reorder=False)
    assert mesh.dim == 2
    assert mesh.volume() == pytest.approx(2.0)
    assert mesh.element_names.keys() == {"left", "right"}
    V = femops.H1(mesh, 2)
    outlet = V.dof_coordinates()[V.boundary_dofs("outlet")]
    assert len(outlet) == 3
    assert np.all(outlet[:, 0] == 2.0)


def test_names_of_meshio_without_elements():
    data = {"gmsh:physical": [np.array([7, 9]), np.array([0, 0])]}
    names = {"stone": np.array([7, 2]), "inlet": np.array([5, 1])}
    outside = meshio.Mesh(SQUARES, QUADS, cell_data=data, field_data=names)
    with pytest.warns(UserWarning, match=r"the meshio.Mesh: .*group\(s\) 'inlet': the mesh"):
        assert femops.read_mesh(outside).element_names == {"stone": (7,)}


@pytest.mark.parametrize("name", ["gmsh:physical", "medit:ref", "cell_tags"])
def test_tags_of_meshio(name):
    data = {name: [np.array([7, 9]), np.array([3, 4])]}
    mesh = femops.read_mesh(meshio.Mesh(SQUARES, QUADS, cell_data=data), reorder=False)
    assert list(mesh.element_attributes) == [7, 9]
    assert {3, 4} <= set(mesh.boundary_attributes)


def test_cells_of_degree_two_and_triangles():
    """A quarter of an annulus by quad9 and its area; triangles as they are, and split."""
    r, t = np.meshgrid([1.0, 1.5, 2.0], np.linspace(0, np.pi / 2, 3), indexing="ij")
    points = np.stack([r * np.cos(t), r * np.sin(t)], axis=-1).reshape(-1, 2)
    grid = np.arange(9).reshape(3, 3)
    around = [(0, 0), (2, 0), (2, 2), (0, 2), (1, 0), (2, 1), (1, 2), (0, 1), (1, 1)]
    mesh = femops.read_mesh(meshio.Mesh(points, [("quad9", [[grid[ij] for ij in around]])]))
    assert mesh.order == 2
    assert mesh.volume() == pytest.approx(3 * np.pi / 4, rel=2e-2)  # straight: less by a tenth
    triangles = meshio.Mesh(SQUARES, [("triangle", [[0, 1, 4], [0, 4, 3]])])
    assert femops.read_mesh(triangles, split=True).volume() == pytest.approx(1.0)
    mesh = femops.read_mesh(triangles)
    assert (mesh.cell.name, mesh.num_elements, mesh.num_boundary) == ("triangle", 2, 4)
    assert mesh.volume() == pytest.approx(1.0)


def test_a_file_of_meshio_s_is_the_same(tmp_path):
    source = femops.box((3, 2, 2))
    femops.save(tmp_path / "u.vtu", source)
    read = meshio.read(tmp_path / "u.vtu")
    cells = [("hexahedron", block.data) for block in read.cells]  # Lagrange cells of degree 1
    mesh = femops.read_mesh(meshio.Mesh(read.points, cells))
    assert mesh.num_elements == 12
    assert mesh.volume() == pytest.approx(source.volume())


def test_overlapping_sets_of_meshio():
    sets = {"a": [[0, 1], []], "b": [[1], []], "gmsh:bounding_entities": [[7], [9]]}
    mesh = femops.read_mesh(meshio.Mesh(SQUARES, QUADS, cell_sets=sets), reorder=False)
    a, b = mesh.element_names["a"], mesh.element_names["b"]
    assert [set(a) >= {n} for n in mesh.element_attributes.tolist()] == [True, True]
    assert [set(b) >= {n} for n in mesh.element_attributes.tolist()] == [False, True]


@pytest.mark.parametrize(
    "name",
    [
        *("quad9", "triangle6", "tetra10", "hexahedron27", "wedge18", "quad16", "hexahedron64"),
        *("triangle10", "triangle15", "triangle28", "tetra20", "tetra35", "tetra84"),
    ],
)
def test_nodes_have_the_order_of_meshio_s_own_gmsh_files(tmp_path, name):
    """A curved element as meshio writes it to a Gmsh file, and as it is."""
    number = next(n for n, word in meshio.gmsh.gmsh_to_meshio_type.items() if word == name)
    kind = KINDS[number]
    x = np.zeros((kind.size, 3))
    x[:, : kind.dim] = SHAPES[kind.shape].nodes(kind.degree)
    x[:, 0] += 0.05 * np.sin(3 * x).sum(axis=1)
    numbers = np.arange(kind.size)[np.newaxis]
    order = meshio.gmsh.common._gmsh_to_meshio_order(name, numbers)
    source = meshio.Mesh(x[:, : kind.dim], [(name, order)])
    flat = meshio.Mesh(x, [(name, order)])
    flat.write(tmp_path / "a.msh", file_format="gmsh", binary=False)
    mesh = femops.read_mesh(source, split=True)
    same = femops.read_mesh(tmp_path / "a.msh", split=True)
    assert mesh.order == kind.degree
    np.testing.assert_array_equal(mesh.coordinates, same.coordinates)
    if kind.shape in ("Triangle", "Tetrahedron"):
        whole = femops.read_mesh(source)
        assert whole.order == kind.degree
        assert whole.volume() == pytest.approx(mesh.volume())
        np.testing.assert_array_equal(
            whole.coordinates, femops.read_mesh(tmp_path / "a.msh").coordinates
        )


REFUSED = [
    (meshio.Mesh(np.zeros((0, 2)), []), "has 0 blocks of cells.*give it cells"),
    (
        meshio.Mesh(np.zeros((15, 2)), [("VTK_LAGRANGE_QUADRILATERAL", [np.arange(15)])]),
        r"VTK_LAGRANGE_QUADRILATERAL with 15 points.*complete Lagrange cells of VTK",
    ),
    (meshio.Mesh(SQUARES, [("triangle", [[0, 1, 2]])]), "^the meshio.Mesh: 1 of 1 .* are flat"),
    (meshio.Mesh(SQUARES, [("quad", [[0, 1, 9, 3]])]), "^the meshio.Mesh: 1 node.*not in the file"),
    (meshio.Mesh(SQUARES, QUADS[:1], cell_sets={"a": [[2]]}), "'a' .* has cell 2 of a block of 2"),
    (
        meshio.Mesh(SQUARES, QUADS[:1], cell_data={"medit:ref": [[1.5, 2.0]]}),
        "must be whole numbers of 4 bytes",
    ),
]


@pytest.mark.parametrize(("mesh", "message"), REFUSED)
def test_what_is_refused(mesh, message):
    with pytest.raises(MeshError, match=message):
        femops.read_mesh(mesh)


def test_meshes_that_were_changed_are_refused():
    """meshio checks only what it makes."""
    for name, value, why in (
        ("points", "x", "could not convert string"),
        ("cells", 3, "not iterable"),
        ("cell_sets", {None: [[0], []]}, "not subscriptable"),
        ("cell_sets", {"a": [[0]]}, "shorter"),
        ("cell_data", {"medit:ref": [[1], [1, 1]]}, "1 tags for 2 cells"),
        ("field_data", 3, "no attribute 'items'"),
    ):
        mesh = meshio.Mesh(SQUARES, QUADS, cell_data={"medit:ref": [[1, 1], [1, 1]]})
        mesh.cell_data = {} if name == "cell_sets" else mesh.cell_data
        setattr(mesh, name, value)
        with pytest.raises(MeshFormatError, match=f"was changed to what.*{why}.*: make it by"):
            femops.read_mesh(mesh)
    mesh = meshio.Mesh(SQUARES, [("quad", np.array([[0, 1, 4.5, 3]]))])
    with pytest.raises(MeshFormatError, match="points that are not whole"):
        femops.read_mesh(mesh)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_positions_that_are_no_numbers_are_one_error(value):
    """Without warnings of NumPy, whatever guesses the order of nodes."""
    cubes = np.array([*np.ndindex(3, 3, 3)])[:, ::-1] / 2.0
    order = np.argsort(femops.io.vtk.nodes.vtk_order(3, 2, in_memory=True))
    for kind, points, row in (
        ("VTK_LAGRANGE_HEXAHEDRON", cubes, order),
        ("VTK_LAGRANGE_QUADRILATERAL", SQUARES[:4, :2], [0, 1, 3, 2]),
        ("wedge18", cubes[:18], np.arange(18)),
    ):
        wrong = np.array(points, dtype=float)
        wrong[1] = value
        with pytest.raises(MeshError, match=r"^(?!.*was changed)"):
            femops.read_mesh(meshio.Mesh(wrong, [(kind, [row])]))


def test_what_is_no_mesh():
    with pytest.raises(MeshArgumentError, match="path is 7: give the path"):
        femops.read_mesh(7)


MODEL = """
import sys
import tempfile
import gmsh
import femops

gmsh.initialize(readConfigFiles=False, interruptible=False)
gmsh.option.setNumber("General.Terminal", 0)
disc = gmsh.model.occ.addDisk(0, 0, 0, 1, 1)
gmsh.model.occ.synchronize()
gmsh.model.addPhysicalGroup(2, [disc], 5, name="disc")
gmsh.model.addPhysicalGroup(1, [1], 6, name="rim")
gmsh.option.setNumber("Mesh.RecombineAll", 1)
gmsh.option.setNumber("Mesh.SubdivisionAlgorithm", 1)
gmsh.option.setNumber("Mesh.Binary", 0)
gmsh.model.mesh.generate(2)
gmsh.model.mesh.setOrder(3)
mesh = femops.read_mesh(gmsh.model)
assert gmsh.option.getNumber("Mesh.Binary") == 0
gmsh.write(sys.argv[1])
same = femops.read_mesh(sys.argv[1])
print(mesh.order, mesh.num_elements == same.num_elements, *mesh.element_names, *mesh.boundary_names)
print(mesh.volume())
gmsh.model.mesh.clear()
gmsh.option.setNumber("Mesh.RecombineAll", 0)
gmsh.option.setNumber("Mesh.SubdivisionAlgorithm", 0)
gmsh.model.mesh.generate(2)
gmsh.model.mesh.setOrder(4)
print(femops.read_mesh(gmsh.model).cell.name, femops.read_mesh(gmsh.model).volume())
tempfile.tempdir = "/no/folder"
try:
    femops.read_mesh(gmsh.model)
except femops.errors.MeshError as error:
    print(error)
tempfile.tempdir = None
gmsh.clear()
for end in (lambda: None, gmsh.finalize):
    end()
    try:
        femops.read_mesh(gmsh.model)
    except femops.errors.MeshError as error:
        print(error)
"""


def test_a_model_of_gmsh(tmp_path):
    """In a process of its own: Gmsh has one model for all."""
    command = [sys.executable, "-c", MODEL, str(tmp_path / "disc.msh")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    facts, area, triangles, homeless, cleared, ended = done.stdout.splitlines()
    assert "can't be written as a Gmsh file: [Errno 2]" in homeless
    assert facts == "3 True disc rim"
    assert float(area) == pytest.approx(np.pi, rel=1e-5)
    assert triangles.split()[0] == "triangle"
    assert float(triangles.split()[1]) == pytest.approx(np.pi, rel=1e-6)
    assert "has no mesh: call gmsh.model.mesh.generate(2)" in cleared
    assert "between gmsh.initialize() and gmsh.finalize()" in ended
