"""Triangles, tetrahedra and prisms, split: the same geometry, groups and periods, all fits."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import splu

import femops
from femops.io.gmsh.file import GmshArrays
from femops.io.gmsh.nodes import ELEMENTS
from femops.io.gmsh.nodes import KINDS as GMSH_KINDS
from femops.io.gmsh.reader import SHAPES, mesh_of, split_simplices
from femops_meshes import MeshFormatError
from femops_meshes.coordinates.mapping import determinants, jacobians, positions
from support.gmsh_files import KINDS, PERIODIC_BOX, document, need_gmsh, run

PARTS = {"Triangle": 3, "Quadrilateral": 4, "Tetrahedron": 4, "Prism": 6, "Hexahedron": 8}

# --- one element, without Gmsh --------------------------------------------------------------------


NUMBERS = {(kind.shape, kind.degree): n for n, kind in reversed(GMSH_KINDS.items())}


def one_element(shape, degree, where):
    """What a file would hold that has this element alone, its nodes moved by `where`."""
    nodes = SHAPES[shape].nodes(degree)
    n, dim = nodes.shape
    points = np.zeros((n, 3))
    points[:, :dim] = where(nodes)
    return GmshArrays(
        tags=np.arange(1, n + 1),
        positions=points,
        blocks=np.array([[dim, NUMBERS[shape, degree], 1]]),
        nodes=np.arange(1, n + 1),
        groups=np.zeros((0, 2), dtype=np.int64),
        names={},
        links=[],
        sides=[],
    )


def bent(shape, degree, seed, mirror):
    """A map near the identity, complete polynomials of the degree in each component."""
    rng = np.random.default_rng(seed)
    dim = SHAPES[shape].dim
    turn = np.diag([-1.0 if mirror else 1.0, 1.0, 1.0][:dim])
    powers = np.array(SHAPES[shape].powers(degree))
    weights = 0.05 * rng.standard_normal((len(powers), dim)) / len(powers)

    def where(x):
        terms = np.prod(x[..., None, :] ** powers, axis=-1)
        return (x + terms @ weights) @ turn

    return where


@settings(max_examples=25, deadline=None)
@given(
    shape=st.sampled_from(["Triangle", "Tetrahedron", "Prism"]),
    degree=st.integers(1, 5),
    seed=st.integers(0, 99),
    mirror=st.booleans(),
)
def test_parts_have_the_geometry_of_their_element(shape, degree, seed, mirror):
    """At any point: the map of a part is that of the element after the flat part's own."""
    where = bent(shape, degree, seed, mirror)
    flat = mesh_of(split_simplices(one_element(shape, 1, lambda x: x)))
    whole = mesh_of(split_simplices(one_element(shape, degree, where)))
    assert whole.num_elements == PARTS[shape]
    assert whole.order == degree
    points = np.array([0.0, 0.13, 0.5, 0.77, 1.0])
    at = positions(whole.coordinates, points)
    expected = where(positions(flat.coordinates, points))
    if mirror:  # two directions are exchanged
        n, dim = len(points), flat.dim
        planes = expected.reshape(len(expected), n ** (dim - 2), n, n, dim)
        expected = planes.swapaxes(2, 3).reshape(expected.shape)
    np.testing.assert_allclose(at, expected, atol=1e-12)
    assert determinants(jacobians(whole.coordinates, points)).min() > 0
    assert whole.continuous


@pytest.mark.parametrize("shape", [*PARTS])
def test_parts_of_one_element_by_euler(shape):
    """Corners, edges, faces and cells of what one element is cut into; its boundary is closed."""
    content = one_element(shape, 1, lambda x: x)
    if shape in ("Quadrilateral", "Hexahedron"):  # alone, these stay
        assert split_simplices(content) is content
        return
    mesh = mesh_of(split_simplices(content))
    counts = mesh.topology.num_entities
    middles = len(SHAPES[shape].entities)
    assert (counts[0], counts[-1]) == (middles, PARTS[shape])
    assert sum((-1) ** k * n for k, n in enumerate(counts)) == 1
    faces, volume = {"Triangle": (6, 1 / 2), "Tetrahedron": (12, 1 / 6), "Prism": (18, 1)}[shape]
    assert mesh.num_boundary == faces
    assert mesh.volume() == pytest.approx(volume)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.sampled_from(["Triangle", "Tetrahedron"]),
    degree=st.integers(1, 6),
    seed=st.integers(0, 99),
    mirror=st.booleans(),
)
def test_simplices_have_their_own_geometry(shape, degree, seed, mirror):
    """With vertices numbered in any order, at any point, mirrored or not."""
    where = bent(shape, degree, seed, mirror)
    content = one_element(shape, degree, where)
    order = np.random.default_rng(seed).permutation(len(content.tags))
    numbers = order[content.nodes - 1] + 1
    mesh = mesh_of(replace(content, tags=numbers, nodes=numbers))
    assert (mesh.order, mesh.num_elements, mesh.cell.name) == (degree, 1, shape.lower())
    corners = SHAPES[shape].corners[np.argsort(numbers[: mesh.dim + 1])]
    points = np.random.default_rng(seed).dirichlet(np.ones(mesh.dim + 1), 20)
    at = positions(mesh.coordinates, points[:, 1:])[0]
    np.testing.assert_allclose(at, where(points @ corners), atol=1e-12)
    assert mesh.volume() == pytest.approx(mesh_of(split_simplices(content)).volume())


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("flat", r"flat, or inverted somewhere.*number\(s\) 0 .*move their nodes"),
        ("folded", r"flat, or inverted somewhere.*number\(s\) 0 .*lower degree"),
        ("doubled", "twice in one group"),
        ("degree", r"degree 7: the highest is 6: .* in Gmsh by SetOrder\(6\)"),
        ("incomplete", "incomplete elements"),
        ("pyramid", "pyramid.* are not supported.*let Gmsh make tetrahedra"),
        ("beside", r"quadrilateral\(s\) beside tetrahedra.*triangles as faces"),
    ],
)
@pytest.mark.parametrize("shape", ["Triangle", "Tetrahedron"])
def test_simplices_that_are_refused(shape, case, message):
    """Each error says which element it is, and what to do."""

    def where(x):
        if case == "flat":  # on a plane or line, but for round-off
            return x / 3 @ np.array([[1.0, 1, 1], [1, 1, 2], [2, 2, 3]])[: x.shape[1], : x.shape[1]]
        bulge = 3.0 * x[:, :1] * x[:, 1:2] if case == "folded" else 0.0
        return x - bulge

    content = one_element(shape, 7 if case == "degree" else 2, where)
    if case in ("pyramid", "beside") and shape == "Triangle":
        return
    more = {"incomplete": 137, "pyramid": 7, "beside": 3}.get(case)
    if case == "doubled":
        content = replace(
            content, blocks=content.blocks * [1, 1, 2], nodes=np.tile(content.nodes, 2)
        )
    elif case == "incomplete":
        content = one_element(shape, 3, where)
        kind = NUMBERS[shape, 3]
        number, size = (20, 9) if shape == "Triangle" else (137, 16)
        content = replace(content, nodes=content.nodes[:size])
        content.blocks[0, 1] = number
        assert kind != number
    elif more:
        kind = GMSH_KINDS[more]
        content = replace(
            content,
            blocks=np.concatenate([content.blocks, [[kind.dim, more, 1]]]),
            nodes=np.concatenate([content.nodes, np.resize(content.nodes, kind.size)]),
        )
    with pytest.raises(femops.errors.MeshError, match=message):
        mesh_of(content)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (7, "pyramid, which cannot be split"),
        (11, r"mixes elements of degrees \[1, 2\]"),
        (137, "incomplete elements"),
    ],
)
def test_what_cannot_be_split(number, message):
    degree = 3 if number == 137 else 1
    content = one_element("Tetrahedron", degree, lambda x: x)
    more = np.array([content.blocks[0], [3, number, 1]])
    nodes = np.concatenate([content.nodes, np.resize(content.nodes, GMSH_KINDS[number].size)])
    with pytest.raises(MeshFormatError, match=message):
        split_simplices(GmshArrays(**{**vars(content), "blocks": more, "nodes": nodes}))


def test_nodes_that_cannot_be():
    content = one_element("Triangle", 2, lambda x: x)
    far = GmshArrays(**{**vars(content), "tags": content.tags + (2**63 - 8)})
    with pytest.raises(MeshFormatError, match="a node has the number"):
        split_simplices(far)
    for place in (np.nan, np.inf, 1e200):
        bad = one_element("Triangle", 2, lambda x, place=place: np.where(x > 0.9, place, x))
        with pytest.raises(femops.errors.MeshError, match=r"not finite|beyond"):
            split_simplices(bad)
    for tags in (content.tags + 1, content.tags[:0]):
        with pytest.raises(MeshFormatError, match="are not in the file"):
            split_simplices(GmshArrays(**{**vars(content), "tags": tags}))


def test_degrees_that_no_hexahedron_has():
    assert mesh_of(split_simplices(one_element("Triangle", 10, lambda x: x))).order == 10
    with pytest.raises(MeshFormatError, match="degree 10: the highest is 9"):
        split_simplices(one_element("Tetrahedron", 10, lambda x: x))


# --- files of MFEM --------------------------------------------------------------------------------

FLAT = """MFEM mesh v1.3

dimension
2

elements
3
4 3 0 1 4 3
9 2 1 2 4
4 2 2 5 4

attribute_sets
2
"both"
2
4 9
"right"
1
9

boundary
3
2 1 0 1
7 1 2 5
5 1 4 1

bdr_attribute_sets
1
"in and out"
2
2 7

vertices
6
2
0 0
2 0
3 0
0 1
2 1
3 1

mfem_mesh_end
"""
WEDGES = """MFEM mesh v1.0
dimension
3
elements
3
2 6 0 1 3 4 5 7
1 5 1 2 9 3 5 6 10 7
3 4 4 5 7 8
boundary
3
1 2 0 3 1
2 3 0 1 5 4
3 2 4 5 8
vertices
11
3
0 0 0
1 0 0
2 0 0
0 1 0
0 0 1
1 0 1
2 0 1
0 1 1
0 0 2
2 1 0
2 1 1
"""


def volumes(mesh):
    points, weights = np.polynomial.legendre.leggauss(3)
    scale = np.prod(np.meshgrid(*[weights / 2] * mesh.dim), axis=0).ravel()
    each = determinants(jacobians(mesh.coordinates, (points + 1) / 2)) @ scale
    return {
        int(a): each[mesh.element_attributes == a].sum() for a in np.unique(mesh.element_attributes)
    }


def test_triangles_of_mfem(tmp_path):
    path = tmp_path / "a.mesh"
    path.write_text(FLAT)
    mesh = femops.read_mesh(path, split=True)
    assert mesh.num_elements == 4 + 3 + 3
    assert volumes(mesh) == pytest.approx({4: 2.5, 9: 0.5})
    assert mesh.element_names == {"both": (4, 9), "right": (9,)}
    assert mesh.boundary_names == {"in and out": (2, 7)}
    numbers, counts = np.unique(mesh.boundary_attributes, return_counts=True)
    # two faces of each side; the last is between elements, and 1 has the faces that are not listed
    assert dict(zip(numbers.tolist(), counts.tolist(), strict=True)) == {1: 8, 2: 2, 5: 2, 7: 2}
    finer = femops.read_mesh(path, refine=1, split=True, reorder=False)
    assert (finer.num_elements, finer.continuous) == (40, True)


def test_tetrahedra_and_prisms_of_mfem(tmp_path):
    path = tmp_path / "a.mesh"
    path.write_text(WEDGES)
    mesh = femops.read_mesh(path, split=True)
    assert mesh.num_elements == 6 + 8 + 4
    assert volumes(mesh) == pytest.approx({1: 1.5, 2: 0.5, 3: 1 / 6})
    assert mesh.continuous
    numbers, counts = np.unique(mesh.boundary_attributes, return_counts=True)
    # the outer faces are 4 triangles and 7 quadrilaterals; 4 has those that are not listed
    assert dict(zip(numbers.tolist(), counts.tolist(), strict=True)) == {1: 3, 2: 4, 3: 3, 4: 30}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("vertices\n6\n2\n", "vertices\n6\nnodes\n", "only straight ones are split"),
        ("9 2 1 2 4", "0 2 1 2 4", "attributes of elements must be integers from 1"),
        ("4 2 2 5 4", "4 2 1 2 4", r"1 element\(s\) have the same vertices as another triangle"),
        ("7 1 2 5", "7 1 1 0", "1 boundary element"),
        ("7 1 2 5", "7 2 2 5 1", "boundary element of geometry 2, a triangle: .* 1, a segment"),
        ("9 2 1 2 4", "9 4 1 2 4 0", "must be 2, a triangle or 3, a square"),
        ("9 2 1 2 4", "9 2 1 2", "element of 4 numbers: a triangle has 5"),
        ("9 2 1 2 4", "9 2 1 2 6", "are not in the file"),
        ("mfem_mesh_end", "3 4", "the file should end here"),
    ],
)
def test_what_cannot_be_split_of_mfem(tmp_path, old, new, message):
    path = tmp_path / "a.mesh"
    assert old in FLAT
    path.write_text(FLAT.replace(old, new))
    with pytest.raises(femops.errors.MeshError, match=message) as caught:
        femops.read_mesh(path, split=True)
    assert str(path) in str(caught.value)


def test_a_file_of_mfem_without_simplices_is_not_split(tmp_path):
    path = tmp_path / "a.mesh"
    mesh = femops.box((2, 2), order=2).with_attributes(elements=[1, 2, 1, 2])
    femops.save(path, mesh)
    read = femops.read_mesh(path, split=True, reorder=False)
    assert np.array_equal(read.coordinates, mesh.coordinates)
    path.write_text(FLAT)
    assert femops.read_mesh(path).plural == "quadrilaterals and triangles"


# --- files that Gmsh makes ------------------------------------------------------------------------

_MAKE = """
import gmsh, json
import numpy as np
gmsh.initialize(readConfigFiles=False)
gmsh.option.setNumber("General.Terminal", 0)
gmsh.option.setNumber("Mesh.MeshSizeMin", {size})
gmsh.option.setNumber("Mesh.MeshSizeMax", {size})
occ, mesh = gmsh.model.occ, gmsh.model.mesh
{model}
dim = gmsh.model.getDimension()
for d, start in ((dim, 1), (dim - 1, 11)):
    for k, (_, tag) in enumerate(gmsh.model.getEntities(d), start):
        gmsh.model.addPhysicalGroup(d, [tag], k, "%d-%d" % (d, k))
mesh.generate(dim)
mesh.setOrder({order})
gmsh.option.setNumber("Mesh.MshFileVersion", {kind[0]})
gmsh.option.setNumber("Mesh.Binary", {kind[1]})
gmsh.write({path!r})
facts = {{}}

def rule(shape, d):
    # Gauss's product rule, of which one end is collapsed where the element has a tip
    x, w = np.polynomial.legendre.leggauss(2 * {order} + 6)
    grid = np.stack(np.meshgrid(*[(x + 1) / 2] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weights = np.prod(np.meshgrid(*[w / 2] * d, indexing="ij"), axis=0).ravel()
    tips = {{"Triangle": 2, "Prism": 2, "Tetrahedron": 3}}.get(shape, 0)
    points = np.zeros((len(grid), 3))
    points[:, :d] = 2 * grid - 1
    points[:, :tips] = grid[:, :tips]
    for k in range(1, tips):
        points[:, :k] *= 1 - grid[:, k : k + 1]
        weights = weights * (1 - grid[:, k]) ** k
    return points.ravel(), weights * 2.0 ** (d - tips)

for d, tag in gmsh.model.getPhysicalGroups():
    measure, normal, count = 0.0, np.zeros(3), 0
    for entity in gmsh.model.getEntitiesForPhysicalGroup(d, tag):
        for kind, elements, _ in zip(*mesh.getElements(d, entity)):
            shape = mesh.getElementProperties(kind)[0].split()[0]
            points, weights = rule(shape, d)
            J, det, _ = mesh.getJacobians(kind, points, entity)
            J = np.reshape(J, (-1, 3, 3)).swapaxes(1, 2)
            w = np.tile(weights, len(elements))
            if d == dim == 2:  # Gmsh tells absolute values, and a corner may be inverted a little
                det = np.linalg.det(J[:, :2, :2])
            measure += np.abs(np.reshape(det, (len(elements), -1)) @ weights).sum()
            if d == 2:
                normal += w @ np.cross(J[:, :, 0], J[:, :, 1])
            elif d == 1:
                normal += w @ np.stack([J[:, 1, 0], -J[:, 0, 0], 0 * w], axis=1)
            facts.setdefault(shape, 0)
            facts[shape] += len(elements) * (d == dim)
    facts[gmsh.model.getPhysicalName(d, tag)] = [measure, normal.tolist()]
print(json.dumps(facts))
"""

DISC = "occ.addDisk(0, 0, 0, 1, 0.7); occ.synchronize()"
BALL = "occ.addSphere(0, 0, 0, 1); occ.synchronize()"
BOXES = """
a, b = occ.addBox(0, 0, 0, 1, 1, 1), occ.addBox(1, 0, 0, 0.5, 1, 1)
occ.fragment([(3, a)], [(3, b)]); occ.synchronize()
"""
MIXED = """
a, b = occ.addRectangle(0, 0, 0, 1, 1), occ.addDisk(0.5, 1, 0, 0.3, 0.3)
occ.fragment([(2, a)], [(2, b)]); occ.synchronize()
mesh.setRecombine(2, gmsh.model.getEntities(2)[0][1])
"""
PRISMS = """
d = occ.addDisk(0, 0, 0, 1, 1)
occ.extrude([(2, d)], 0, 0.3, 1, numElements=[2], recombine=True); occ.synchronize()
"""
ALL = """
a, b = occ.addRectangle(0, 0, 0, 1, 1), occ.addRectangle(1, 0, 0, 1, 1)
occ.fragment([(2, a)], [(2, b)])
occ.extrude([(2, a), (2, b)], 0, 0, 0.5, numElements=[2], recombine=True)
c = occ.addBox(0, 0, -0.5, 1, 1, 0.5)
occ.fragment([(3, 1)], [(3, 2), (3, c)]); occ.synchronize()
for d, tag in gmsh.model.getEntities(2):
    box = gmsh.model.getBoundingBox(2, tag)
    if abs(box[2]) + abs(box[5]) < 1e-5 and box[0] > 0.9:
        mesh.setRecombine(2, tag)
"""

CASES = [
    (DISC, 4, 0.5, KINDS[3]),
    (BALL, 3, 0.8, KINDS[2]),
    (BOXES, 1, 0.8, KINDS[0]),
    (MIXED, 3, 0.3, KINDS[2]),
    (PRISMS, 2, 0.9, KINDS[1]),
]


def made(folder, model, order, size, kind):
    """A file of Gmsh's, and what it measures in it."""
    path = folder / "made.msh"
    code = _MAKE.format(model=model, order=order, size=size, kind=kind, path=str(path))
    return path, json.loads(run(code))


def check_fit(mesh):
    """That each face inside is one of two elements, and those outside are the boundary."""
    mesh.validate()
    faces = mesh.topology.faces
    outside = np.flatnonzero(faces[:, 1] < 0)
    assert (faces[:, 0] >= 0).all()
    element, code = mesh.topology.boundary_faces.T
    listed = mesh.topology.entity[element, code]
    assert np.isin(outside, listed).all()
    assert len(np.unique(listed)) == len(listed)
    return sum((-1) ** k * n for k, n in enumerate(mesh.topology.num_entities))


AS_THEY_ARE = [
    (DISC, 4, 0.5, KINDS[3]),
    (DISC, 6, 0.7, KINDS[1]),
    (BALL, 3, 0.8, KINDS[2]),
    (BALL, 4, 0.9, KINDS[0]),
    (BOXES, 1, 0.8, KINDS[0]),
    (BOXES, 2, 0.8, KINDS[1]),
]


@pytest.mark.parametrize(
    ("model", "order", "size", "kind", "split"),
    [(*case, True) for case in CASES] + [(*case, False) for case in AS_THEY_ARE],
)
def test_files_of_gmsh(tmp_path, model, order, size, kind, split):
    path, facts = made(tmp_path, model, order, size, kind)
    mesh = femops.read_mesh(path, split=split)
    assert (mesh.order, mesh.cell.simplex) == (order, not split)
    parts = PARTS if split else dict.fromkeys([mesh.cell.name.capitalize()], 1)
    assert mesh.num_elements == sum(parts[s] * n for s, n in facts.items() if s in parts)
    assert mesh.continuous
    assert check_fit(mesh) == 1
    dim, rule = mesh.dim, femops.basis.gauss(order + 8)
    if not split:
        rule, degree = femops.basis.simplex_rule(dim, dim * order), min(4 * order + 8, 30)
    tight = {"rtol": 1e-12, "atol": 1e-13}  # files have 16 digits
    measures = np.concatenate(
        [b.weighted_det.sum(axis=1) for b in femops.geometry.Geometry(mesh, rule)]
    )
    assert set(mesh.element_names) == {n for n in facts if n.startswith(f"{dim}-")}
    for name, (number,) in mesh.element_names.items():
        total = measures[mesh.element_attributes == number].sum()
        np.testing.assert_allclose(total, facts[name][0], **tight)
    assert set(mesh.boundary_names) == {n for n in facts if n.startswith(f"{dim - 1}-")}
    if not split and dim == 3:
        rule = femops.basis.simplex_rule(2, degree)
    elif not split:
        rule = femops.basis.gauss(order + 8)
    inner = mesh.topology.faces[mesh.topology.entity[tuple(mesh.topology.boundary_faces.T)], 1] >= 0
    between = {n for n, k in mesh.boundary_names.items() if k[0] in mesh.boundary_attributes[inner]}
    assert bool(between) == (model in (BOXES, MIXED))
    for name in mesh.boundary_names:
        blocks = [*femops.geometry.BoundaryGeometry(mesh, rule, name)]
        area = sum(b.weighted_det.sum() for b in blocks)
        vector = sum((b.weighted_det[..., None] * b.normals).sum(axis=(0, 1)) for b in blocks)
        # the area of a curved side is no integral of a polynomial: rules approach it
        np.testing.assert_allclose(area, facts[name][0], rtol=1e-12 if order == 1 else 1e-6)
        expected = np.array(facts[name][1])[:dim]
        if not split and name in between:  # each face has the normal of one of its elements
            continue
        sign = 1 if expected @ vector >= 0 else -1
        np.testing.assert_allclose(vector, sign * expected, **tight)


SEVERAL = [
    (MIXED, 1, 0.3, KINDS[0]),
    (MIXED, 4, 0.4, KINDS[3]),
    (PRISMS, 1, 0.9, KINDS[1]),
    (PRISMS, 2, 0.9, KINDS[2]),
    (ALL, 1, 0.5, KINDS[3]),
    (ALL, 2, 0.6, KINDS[0]),
]


@pytest.mark.parametrize(("model", "order", "size", "kind"), SEVERAL)
def test_several_shapes_as_they_are(tmp_path, model, order, size, kind):
    """Volumes, areas and normals of all groups are those that Gmsh integrates."""
    path, facts = made(tmp_path, model, order, size, kind)
    mesh = femops.read_mesh(path)
    assert (type(mesh), mesh.order, mesh.continuous) == (femops.MixedMesh, order, True)
    mesh.validate()
    for part in mesh.parts:
        assert part.num_elements == facts[part.cell.name.capitalize()]
    dim = mesh.dim
    V = femops.H1(mesh, order)
    for name, (number,) in mesh.element_names.items():
        inside = sum(_volume_of(part, number) for part in mesh.parts)
        np.testing.assert_allclose(inside, facts[name][0], rtol=1e-12)
    assert set(mesh.boundary_names) == {n for n in facts if n.startswith(f"{dim - 1}-")}
    one = V.interpolate(1.0)
    for name in mesh.boundary_names:
        area = femops.integrate(V, one, boundary=name)
        np.testing.assert_allclose(area, facts[name][0], rtol=1e-12 if order == 1 else 1e-5)
    split = femops.read_mesh(path, split=True)
    assert mesh.volume() == pytest.approx(split.volume(), rel=1e-13)
    assert mesh.boundary_names == split.boundary_names


def _volume_of(mesh, attribute):
    measures = [b.weighted_det.sum(axis=1) for b in femops.geometry.Geometry(mesh, _rule(mesh))]
    return np.concatenate(measures)[mesh.element_attributes == attribute].sum()


def _rule(mesh):
    degree = mesh.dim * mesh.order + 2
    return femops.basis.rule_of(mesh.cell, degree)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_nodes_of_prisms_are_where_gmsh_has_them(tmp_path, order):
    """Also of the degrees whose reference nodes Gmsh does not tell."""
    path = tmp_path / "made.msh"
    code = f"""
import gmsh, json
gmsh.initialize(readConfigFiles=False)
gmsh.option.setNumber("General.Terminal", 0)
gmsh.option.setNumber("Mesh.MeshSizeMax", 1.0)
occ, mesh = gmsh.model.occ, gmsh.model.mesh
{PRISMS}
mesh.generate(3)
mesh.setOrder({order})
gmsh.option.setNumber("Mesh.MshFileVersion", 4.1)
gmsh.write({str(path)!r})
tags, x, _ = mesh.getNodes()
(kind,), (elements,), (nodes,) = mesh.getElements(3)
print(json.dumps([tags.tolist(), x.tolist(), nodes.tolist()]))
"""
    tags, x, nodes = map(np.array, json.loads(run(code)))
    x = x.reshape(-1, 3)[np.argsort(tags)][np.searchsorted(np.sort(tags), nodes)]
    size = len(SHAPES["Prism"].nodes(order))
    x = x.reshape(-1, size, 3)
    (prisms,) = femops.read_mesh(path, reorder=False).parts
    places = SHAPES["Prism"].nodes(order)
    places[:, 2] = (1 + places[:, 2]) / 2
    ours = positions(prisms.coordinates, places)
    # a mirrored prism is turned over: its nodes are the same points
    for mine, theirs in zip(ours, x, strict=True):
        far = np.abs(mine[:, None] - theirs).max(axis=2)
        assert max(far.min(axis=0).max(), far.min(axis=1).max()) < 1e-12
    assert (np.abs(ours - x).max(axis=(1, 2)) < 1e-12).any()


def test_all_shapes_at_once(tmp_path):
    """Tetrahedra, prisms and hexahedra share faces; where Gmsh needs pyramids, that is told."""
    path, facts = made(tmp_path, ALL, 1, 0.5, KINDS[0])
    assert facts.get("Tetrahedron", 0) > 0
    if facts.get("Pyramid"):
        with pytest.raises(MeshFormatError, match="pyramid, which cannot be split"):
            femops.read_mesh(path, split=True)
        return
    mesh = femops.read_mesh(path, split=True)
    assert check_fit(mesh) == 1


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("of_gmsh", [True, False])
def test_errors_on_curved_triangles(tmp_path, order, of_gmsh):
    """Poisson's equation on an ellipse: rates of order + 1 with coordinates of the same degree.

    Gmsh bends the sides on the ellipse and moves inner nodes too little, which costs up to one.
    """

    def inside(x):
        return 1 - x[0] ** 2 - x[1] ** 2 / 0.49

    def exact(x):
        return inside(x) * np.exp(x[0])

    def load(x):
        return np.exp(x[0]) * (2 + 4 * x[0] + 2 / 0.49 - inside(x))

    def ellipse(n):
        if of_gmsh:
            return femops.read_mesh(made(tmp_path, DISC, order, 0.8 / n, KINDS[1])[0])
        disc = femops.disc(n, order=order, cells="triangles")
        return disc.mapped(lambda x: np.array([x[0], 0.7 * x[1]]))

    errors, sizes = [], []
    for n in (2, 4, 8):
        V = femops.H1(ellipse(n), order)
        A = femops.diffusion(V)
        assert abs(A @ np.ones(V.size)).max() < 1e-12 * abs(A.diagonal()).max() * V.size
        one = np.ones(V.size)
        assert one @ (femops.mass(V) @ one) == pytest.approx(V.mesh.volume(), rel=1e-12)
        x = V.dof_coordinates()[V.boundary_dofs()]
        assert abs(inside(x.T)).max() < 1e-2 / 5 ** (order - 1)
        K, free = A.assemble().tocsr(), np.setdiff1d(np.arange(V.size), V.boundary_dofs())
        u = np.zeros(V.size)
        u[free] = splu(K[free][:, free].tocsc()).solve(femops.load(V, load)[free])
        errors.append(femops.l2_error(V, u, exact))
        sizes.append(V.mesh.num_elements**-0.5)
    rate = np.log(errors[1] / errors[2]) / np.log(sizes[1] / sizes[2])
    assert order + (0.2 if of_gmsh else 0.8) < rate < order + 2, (rate, errors)


_PERIODIC = """
gmsh.option.setNumber("Mesh.SaveAll", {save_all})
dim, size, pairs = {dim}, (1.0, 1.3, 0.9), {pairs}
"""
_PERIODIC += PERIODIC_BOX


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize(
    ("dim", "pairs", "order", "kind"),
    [(2, [0], 1, KINDS[0]), (2, [0, 1], 2, KINDS[2]), (3, [0, 1, 2], 1, KINDS[3])],
)
def test_periodic_sides_are_glued(tmp_path, dim, pairs, order, kind, split):
    model = _PERIODIC.format(dim=dim, pairs=pairs, save_all=0)
    path, facts = made(tmp_path, model, order, 0.5 if split else 0.3, kind)
    mesh = femops.read_mesh(path, split=split)
    parts = PARTS if split else dict.fromkeys(["Triangle", "Tetrahedron"][dim - 2 : dim - 1], 1)
    assert mesh.num_elements == sum(parts[s] * n for s, n in facts.items() if s in parts)
    assert not mesh.continuous
    assert check_fit(mesh) == 0  # a circle times something
    assert mesh.volume() == pytest.approx(facts[f"{dim}-1"][0], rel=1e-12)
    left = 2 * (dim - len(pairs))
    assert len(mesh.boundary_names) == left
    V = femops.H1(mesh, 3)
    period = (1.0, 1.3, 0.9)

    def wave(x):
        return sum(np.cos(2 * np.pi * x[d] / period[d]) for d in pairs)

    # continuous across the glued sides: each element finds the wave at its own nodes
    if split:
        where, values = V.sample(V.interpolate(wave), 4)
        exact = wave(np.moveaxis(where, -1, 0))
        assert np.abs(values - exact).max() < 0.05
    at_nodes = V.interpolate(wave)[V.restriction.indices]
    nodes = V.basis.nodes if split else V.element.nodes
    own = wave(np.moveaxis(positions(mesh.coordinates, nodes), -1, 0))
    np.testing.assert_allclose(at_nodes, own, atol=1e-9)


@pytest.mark.parametrize("split", [True, False])
def test_elements_in_several_groups(tmp_path, split):
    """Version 2 lists them once in each: parts are the same."""
    need_gmsh()
    nodes = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    elements = [(1, 5, 1, 1, 2), (1, 6, 1, 1, 2), (2, 7, 1, 1, 2, 3)]
    elements += [(2, 7, 1, 2, 4, 3), (2, 8, 1, 1, 2, 3)]
    path = tmp_path / "a.msh"
    path.write_text(document(nodes, elements, [(2, 7, "all"), (2, 8, "one"), (1, 6, "low")]))
    mesh = femops.read_mesh(path, split=split)
    parts = 3 if split else 1
    assert mesh.num_elements == 2 * parts
    assert mesh.volume() == pytest.approx(1)
    inside = np.isin(mesh.element_attributes, mesh.element_names["one"])
    assert np.count_nonzero(inside) == parts
    assert np.isin(mesh.element_attributes, mesh.element_names["all"]).all()
    low = np.isin(mesh.boundary_attributes, mesh.boundary_names["low"])
    assert np.count_nonzero(low) == (2 if split else 1)
    assert check_fit(mesh) == 1


def test_other_files_are_read_as_they_are(tmp_path):
    need_gmsh()
    path = tmp_path / "a.msh"
    nodes = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    path.write_text(document(nodes, [(3, 1, 1, 1, 2, 4, 3)]))
    assert femops.read_mesh(path, split=True).num_elements == 1
    disc = femops.sample("disc.mesh")
    assert femops.read_mesh(disc, split=True).num_elements == femops.read_mesh(disc).num_elements
    with pytest.raises(femops.errors.MeshError, match="split is 3"):
        femops.read_mesh(path, split=3)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (DISC, {"Mesh.RecombineAll": 1, "Mesh.SubdivisionAlgorithm": 1}),
        (BALL, {"Mesh.SubdivisionAlgorithm": 2}),
    ],
)
def test_what_the_documentation_advises_works(tmp_path, model, options):
    lines = "".join(f"gmsh.option.setNumber({k!r}, {v})\n" for k, v in options.items())
    path, _ = made(tmp_path, lines + model, 1, 0.8, KINDS[2])
    mesh = femops.read_mesh(path)
    assert mesh.cell.cube
    assert check_fit(mesh) == 1


def test_kinds_are_told_by_gmsh():
    """Gmsh's types, and the nodes of its triangles, tetrahedra and prisms, are ours."""
    code = """
import gmsh, json
gmsh.initialize(readConfigFiles=False)
gmsh.option.setNumber("General.Terminal", 0)
facts = {}
for number in range(1, 150):
    try:
        name, dim, degree, size, nodes, _ = gmsh.model.mesh.getElementProperties(number)
    except Exception:  # prisms of degree 3 and above, which Gmsh does not know
        continue
    facts[number] = name.split()[0], dim, degree, size, list(nodes)
print(json.dumps(facts))
"""
    facts = {int(number): fact for number, fact in json.loads(run(code)).items()}
    assert {n for n, fact in facts.items() if fact[2] and fact[3]} <= {*GMSH_KINDS}
    for number, kind in GMSH_KINDS.items():
        if number not in facts:
            assert (kind.shape, kind.degree > 2) == ("Prism", True)
            continue
        shape, dim, degree, size, nodes = facts[number]
        assert (kind.shape, kind.dim, kind.degree, kind.size) == (shape, dim, degree, size)
        complete = shape in SHAPES and size == len(SHAPES[shape].powers(degree))
        if complete and NUMBERS[shape, degree] == number:
            ours = SHAPES[shape].nodes(degree)
            np.testing.assert_allclose(ours, np.reshape(nodes, ours.shape), atol=1e-15)
    assert set(ELEMENTS) == {1, 2, 3}
