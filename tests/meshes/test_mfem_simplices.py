"""Triangles and tetrahedra in MFEM's files: what MFEM wrote, and what was written here."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops_meshes
from femops_meshes import Mesh, MeshError, MixedMesh, read_mfem
from femops_meshes.coordinates import simplices

# --- nodes of degree 5 of straight elements, by MFEM 4.8 ------------------------------------------

NODES = {
    2: """MFEM mesh v1.0
dimension
2
elements
2
1 2 3 0 1
1 2 2 0 3
boundary
0
vertices
4
nodes
FiniteElementSpace
FiniteElementCollection: H1_2D_P5
VDim: 2
Ordering: 1
0 0 1 0 0 1 1 1 .11747 .11747 .35738 .35738 .64262 .64262 .88253 .88253 .11747 0 .35738 0
.64262 0 .88253 0 1 .11747 1 .35738 1 .64262 1 .88253 0 .11747 0 .35738 0 .64262 0 .88253
.11747 1 .35738 1 .64262 1 .88253 1 .86614 .73228 .57058 .42942 .26772 .13386 .85885 .42942
.57058 .14115 .86614 .13386 .13386 .86614 .14115 .57058 .13386 .26772 .42942 .85885 .42942
.57058 .73228 .86614
""",
    3: """MFEM mesh v1.0
dimension
3
elements
3
1 4 2 4 0 1
1 4 1 3 4 0
1 4 5 1 4 2
boundary
0
vertices
6
nodes
FiniteElementSpace
FiniteElementCollection: H1_3D_P5
VDim: 3
Ordering: 1
0 0 0 1 0 0 0 1 0 0 0 1 0 1 1 1 1 1 0 1 .11747 0 1 .35738 0 1 .64262 0 1 .88253 0 .11747 0 0
.35738 0 0 .64262 0 0 .88253 0 .88253 .11747 0 .64262 .35738 0 .35738 .64262 0 .11747 .88253 0
0 .11747 .11747 0 .35738 .35738 0 .64262 .64262 0 .88253 .88253 .88253 .11747 .11747 .64262
.35738 .35738 .35738 .64262 .64262 .11747 .88253 .88253 .11747 0 0 .35738 0 0 .64262 0 0 .88253
0 0 .88253 0 .11747 .64262 0 .35738 .35738 0 .64262 .11747 0 .88253 0 .11747 1 0 .35738 1 0
.64262 1 0 .88253 1 0 0 .11747 0 0 .35738 0 0 .64262 0 0 .88253 1 .11747 .11747 1 .35738 .35738
1 .64262 .64262 1 .88253 .88253 .11747 1 1 .35738 1 1 .64262 1 1 .88253 1 1 .11747 1 .11747
.35738 1 .35738 .64262 1 .64262 .88253 1 .88253 .13386 .73228 .73228 .14115 .42942 .42942
.13386 .13386 .13386 .42942 .42942 .42942 .42942 .14115 .14115 .73228 .13386 .13386 .13386
.73228 0 .42942 .42942 0 .73228 .13386 0 .14115 .42942 0 .42942 .14115 0 .13386 .13386 0 .13386
.86614 .13386 .14115 .85885 .42942 .13386 .86614 .73228 .42942 .57058 .14115 .42942 .57058
.42942 .73228 .26772 .13386 0 .86614 .13386 0 .57058 .14115 0 .26772 .13386 0 .85885 .42942 0
.57058 .42942 0 .86614 .73228 0 .13386 .86614 0 .42942 .85885 0 .73228 .86614 0 .14115 .57058 0
.42942 .57058 0 .13386 .26772 .73228 0 .13386 .42942 0 .42942 .13386 0 .73228 .42942 0 .14115
.14115 0 .42942 .13386 0 .13386 .73228 .13386 .26772 .42942 .42942 .57058 .13386 .73228 .86614
.42942 .14115 .57058 .14115 .42942 .85885 .13386 .13386 .86614 .73228 1 .86614 .42942 1 .57058
.13386 1 .26772 .42942 1 .85885 .14115 1 .57058 .13386 1 .86614 .86614 .86614 .73228 .85885
.57058 .42942 .86614 .26772 .13386 .57058 .85885 .42942 .57058 .57058 .14115 .26772 .86614
.13386 .86614 .86614 .86614 .57058 .85885 .85885 .26772 .86614 .86614 .85885 .57058 .57058
.57058 .57058 .57058 .86614 .26772 .26772 .1655 .669 .1655 .1655 .669 .5035 .1655 .331 .1655
.5035 .331 .1655 .5035 .1655 .331 .1655 .1655 .669 .1655 .5035 .669 .1655 .1655 .331 .669 .8345
.669 .669 .4965 .331 .331 .8345 .669 .331 .8345 .331
""",
}


@pytest.mark.parametrize("dim", [2, 3])
def test_nodes_that_mfem_numbered(dim):
    """Its faces are seen in several orders. A wrong number would bend a straight element."""
    mesh = read_mfem(NODES[dim])
    assert (mesh.order, mesh.cell.simplex, mesh.continuous) == (5, True, True)
    assert mesh.volume() == pytest.approx([1.0, 0.5][dim - 2], rel=1e-5)
    straight = mesh.coordinates[:, : dim + 1]
    assert np.isin(straight, [0.0, 1.0]).all()
    at = simplices.nodes(mesh.cell, 5)
    weights = np.column_stack([1.0 - at.sum(axis=1), at])
    np.testing.assert_allclose(mesh.coordinates, weights @ straight, atol=3e-5)


def bent(dim, degree, seed, periodic=False):
    """Simplices of which vertices have random numbers, curved by polynomials of a degree."""
    rng = np.random.default_rng(seed)
    mesh = femops_meshes.box((3, 4, 3)[:dim], periodic=periodic).simplices()
    number = rng.permutation(mesh.num_vertices)
    tags = rng.integers(1, 4, mesh.num_elements), rng.integers(1, 5, mesh.num_boundary)
    mesh = Mesh.from_arrays(
        None,
        number[mesh.elements],
        tags[0],
        number[mesh.boundary],
        tags[1],
        mesh.coordinates,
        cell="tetrahedron" if dim == 3 else None,
    )
    weights = 0.1 * rng.standard_normal((dim, dim)) / degree
    if periodic:  # a sine of this length is steep enough to invert elements
        weights /= 2 * np.pi

    def move(x):
        return x + weights @ (x**degree if not periodic else np.sin(2 * np.pi * x))

    return mesh.mapped(move, order=degree)


@settings(max_examples=15, deadline=None)
@given(
    dim=st.integers(2, 3), degree=st.integers(1, 6), seed=st.integers(0, 99), periodic=st.booleans()
)
def test_a_mesh_that_is_written_and_read(tmp_path_factory, dim, degree, seed, periodic):
    mesh = bent(dim, degree, seed, periodic and degree > 1)
    mesh = mesh.with_names({"inside": int(mesh.element_attributes[0])}, {})
    if mesh.num_boundary:
        mesh = mesh.with_names(boundary={"a side": int(mesh.boundary_attributes[0])})
    path = tmp_path_factory.mktemp("written") / "a.mesh"
    femops_meshes.write_mfem(mesh, path)
    read = read_mfem(path)
    np.testing.assert_allclose(read.coordinates, mesh.coordinates, atol=1e-13)
    np.testing.assert_array_equal(read.elements, mesh.elements)
    np.testing.assert_array_equal(np.sort(read.boundary), np.sort(mesh.boundary))
    np.testing.assert_array_equal(read.element_attributes, mesh.element_attributes)
    np.testing.assert_array_equal(read.boundary_attributes, mesh.boundary_attributes)
    assert (read.element_names, read.boundary_names) == (mesh.element_names, mesh.boundary_names)
    assert read.continuous == mesh.continuous


@pytest.mark.parametrize("dim", [2, 3])
def test_elements_are_written_as_right_handed_ones(tmp_path, dim):
    """MFEM takes no others, and wants boundary entries that look outwards."""
    mesh = bent(dim, 1, 5)
    femops_meshes.write_mfem(mesh, tmp_path / "a.mesh")
    words = (tmp_path / "a.mesh").read_text().split("\n")
    count = mesh.num_elements, mesh.num_boundary
    start = words.index("elements") + 2, words.index("boundary") + 2
    cells, sides = (
        np.array([row.split() for row in words[a : a + n]], dtype=int)
        for a, n in zip(start, count, strict=True)
    )
    assert (cells[:, 1] == [2, 4][dim - 2]).all()
    assert (sides[:, 1] == dim - 1).all()
    vertices = np.empty((mesh.num_vertices, dim))
    vertices[mesh.elements] = mesh.coordinates
    x = vertices[cells[:, 2:]]
    assert np.linalg.det(x[:, 1:] - x[:, :1]).min() > 0
    owner = mesh.topology.boundary_faces[:, 0]
    inward = mesh.element_centers()[owner] - vertices[sides[:, 2]]
    along = vertices[sides[:, 3:]] - vertices[sides[:, 2:3]]
    if dim == 3:
        normal = np.cross(along[:, 0], along[:, 1])
    else:
        normal = along[:, 0] @ np.array([[0.0, -1.0], [1.0, 0.0]])
    assert ((normal * inward).sum(axis=1) < 0).all()


FLAT = """MFEM mesh v1.3
dimension
2
elements
2
7 2 0 1 2
8 2 3 2 1
attribute_sets
1
"both" 2 7 8
boundary
2
5 1 0 1
6 1 1 2
bdr_attribute_sets
1
"low" 1 5
vertices
4
2
0 0
1 0
0 1
1 1
mfem_mesh_end
"""


def test_names_and_a_face_between_two():
    mesh = read_mfem(FLAT)
    assert (mesh.num_elements, mesh.volume()) == (2, 1.0)
    assert mesh.element_names == {"both": (7, 8)}
    assert mesh.boundary_names == {"low": (5,)}
    assert mesh.num_boundary == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("8 2 3 2 1", "8 3 3 2 1 0", "of the quadrilaterals .*inverted"),
        ("8 2 3 2 1", "8 2 3 2", "a triangle has 5"),
        ("8 2 3 2 1", "8 2 0 2 1", "same vertices"),
        ("8 2 3 2 1", "8 2 0 3 1", r"belong to more than two|1 boundary element|overlap"),
        ("1 1\nmfem", "1 0\nmfem", r"flat, or inverted somewhere.*number\(s\) 1"),
        ("1 1\nmfem", "0.1 0.1\nmfem", "elements overlap"),
        ("6 1 1 2", "6 1 0 3", "not faces of any element"),
    ],
)
def test_what_is_refused(old, new, message):
    assert old in FLAT
    with pytest.raises(MeshError, match=message):
        read_mfem(FLAT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("H1_2D_P5", "H1_2D_P7", r"degree 6 at most: save the mesh with SetCurvature\(6\)"),
        ("H1_2D_P5", "L2_T2_2D_P5", "not supported: save the mesh with SetCurvature"),
        ("H1_2D_P5", "H1_2D_P4", "has 25 nodes on this mesh"),
    ],
)
def test_nodes_that_are_refused(old, new, message):
    with pytest.raises(MeshError, match=message):
        read_mfem(NODES[2].replace(old, new))


@pytest.mark.filterwarnings("ignore:.*halved:UserWarning")
def test_samples_of_mfem():
    """Volumes by MFEM itself, by a rule that is exact: its own are not on curved elements."""
    spec = importlib.util.find_spec("mfem")
    if spec is None:
        pytest.skip("needs the package mfem")
    mfem = pytest.importorskip("mfem.ser")
    found = mixed = 0
    for path in sorted(Path(spec.origin).parent.glob("external/ser/data/*.mesh")):
        try:
            mesh = read_mfem(path)
        except MeshError:
            continue
        several = isinstance(mesh, MixedMesh)
        if not several and not mesh.cell.simplex:
            continue
        theirs = mfem.Mesh(str(path), 1, 0)
        total = 0.0
        for element in range(theirs.GetNE()):
            rule = mfem.IntRules.Get(theirs.GetElementGeometry(element), 12)
            trafo = theirs.GetElementTransformation(element)
            for point in map(rule.IntPoint, range(rule.GetNPoints())):
                trafo.SetIntPoint(point)
                total += point.weight * trafo.Weight()
        assert mesh.volume() == pytest.approx(total, rel=1e-12)
        found, mixed = found + 1, mixed + several
    assert found >= 8
    assert mixed >= 5
