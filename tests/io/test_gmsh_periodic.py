"""Periodic Gmsh files: what their $Periodic glues, against our own boxes, and what is refused."""

import itertools

import numpy as np
import pytest
from scipy.linalg import eigh

import femops
from femops_meshes import MeshFormatError
from support.gmsh_files import KINDS, PERIODIC_BOX, document, need_gmsh, run

_BOX = """
import gmsh
gmsh.initialize(readConfigFiles=False)
gmsh.option.setNumber("General.Terminal", 0)
dim, size, counts, pairs = {dim}, {size}, {counts}, {pairs}
"""
_BOX += PERIODIC_BOX
_BOX += """
if {groups}:
    for d in range(dim):
        for high in (0, 1):
            tag = 10 + 2 * d + high
            gmsh.model.addPhysicalGroup(dim - 1, side(d, high), tag, "xyz"[d] + "01"[high])
    gmsh.model.addPhysicalGroup(dim, [1], 1, "inside")
for _, curve in gmsh.model.getEntities(1):
    x0, y0, z0, x1, y1, z1 = gmsh.model.getBoundingBox(1, curve)
    along = max(range(3), key=lambda k: (x1 - x0, y1 - y0, z1 - z0)[k] / size[k])
    gmsh.model.mesh.setTransfiniteCurve(curve, counts[along] + 1)
for _, face in gmsh.model.getEntities(2):
    gmsh.model.mesh.setTransfiniteSurface(face)
    gmsh.model.mesh.setRecombine(2, face)
for _, volume in gmsh.model.getEntities(3):
    gmsh.model.mesh.setTransfiniteVolume(volume)
gmsh.model.mesh.generate(dim)
gmsh.model.mesh.setOrder({order})
gmsh.option.setNumber("Mesh.MshFileVersion", {version})
gmsh.option.setNumber("Mesh.Binary", {binary})
gmsh.write({path!r})
"""

SIZE = (1.0, 2.0, 1.5)


def gmsh_box(path, counts, pairs, order=1, kind=(4.1, 0), *, groups=True):
    """Let Gmsh mesh a box with periodic sides."""
    words = {"dim": len(counts), "size": SIZE, "counts": (*counts, 1)[:3], "path": str(path)}
    words |= {"pairs": pairs, "groups": groups, "order": order}
    run(_BOX.format(**words, version=kind[0], binary=kind[1]))
    return path


CASES = [
    ((3, 4), (1,), 2, KINDS[2]),
    ((5, 3), (0, 1), 1, KINDS[1]),
    ((3, 2, 2), (0,), 1, KINDS[0]),
    ((3, 3, 3), (0, 1, 2), 3, KINDS[3]),
]


@pytest.mark.parametrize(("counts", "pairs", "order", "kind"), CASES)
def test_a_periodic_box_is_ours(tmp_path, counts, pairs, order, kind):
    mesh = femops.read_mesh(gmsh_box(tmp_path / "a.msh", counts, pairs, order, kind))
    dim = len(counts)
    wraps = [d in pairs for d in range(dim)]
    ours = femops.box(counts, upper=SIZE[:dim], periodic=wraps)
    assert mesh.order == order
    assert mesh.topology.num_entities == ours.topology.num_entities
    assert mesh.num_boundary == ours.num_boundary
    assert mesh.volume() == pytest.approx(ours.volume())
    assert not mesh.continuous
    # sides that are glued are no boundary, the others keep their groups and names
    rest = {"xyz"[d] + "01"[k]: (10 + 2 * d + k,) for d in range(dim) for k in (0, 1)}
    assert mesh.boundary_names == {n: v for n, v in rest.items() if not wraps["xyz".index(n[0])]}
    spectra = []
    for one in (mesh, ours):
        V = femops.H1(one, 2)
        assert V.ndofs == np.prod([2 * n + 1 - w for n, w in zip(counts, wraps, strict=True)])
        K, M = (make(V).assemble().toarray() for make in (femops.diffusion, femops.mass))
        spectra.append(eigh(K, M, eigvals_only=True))
    np.testing.assert_allclose(*spectra, atol=1e-9 * spectra[0].max())


def test_sides_in_no_group(tmp_path):
    path = gmsh_box(tmp_path / "a.msh", (3, 3, 3), (0, 1), 1, KINDS[2], groups=False)
    mesh = femops.read_mesh(path)
    assert mesh.topology.num_entities[0] == 3 * 3 * 4
    assert set(mesh.boundary_attributes.tolist()) == {1}
    assert mesh.num_boundary == 18


_ANNULUS = """
import gmsh, math
gmsh.initialize(readConfigFiles=False)
gmsh.option.setNumber("General.Terminal", 0)
occ, angle = gmsh.model.occ, math.pi / 3
p = [occ.addPoint(r * math.cos(a), r * math.sin(a), 0) for a in (0, angle) for r in (0.5, 1)]
center = occ.addPoint(0, 0, 0)
low, high = occ.addLine(p[0], p[1]), occ.addLine(p[2], p[3])
inner, outer = occ.addCircleArc(p[0], center, p[2]), occ.addCircleArc(p[1], center, p[3])
occ.addPlaneSurface([occ.addCurveLoop([low, outer, high, inner])])
occ.synchronize()
c, s = math.cos(angle), math.sin(angle)
rotation = [c, -s, 0, 0, s, c, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
gmsh.model.mesh.setPeriodic(1, [high], [low], rotation)
gmsh.option.setNumber("Mesh.RecombineAll", 1)
gmsh.option.setNumber("Mesh.RecombinationAlgorithm", 2)
gmsh.option.setNumber("Mesh.MeshSizeMax", 0.15)
gmsh.model.mesh.generate(2)
gmsh.model.mesh.setOrder(3)
gmsh.option.setNumber("Mesh.MshFileVersion", {version})
gmsh.write({path!r})
"""


def test_a_sector_that_a_rotation_closes(tmp_path):
    """Unstructured and curved: a radial solution, that of the whole ring."""
    run(_ANNULUS.format(path=str(tmp_path / "a.msh"), version=4.1))
    mesh = femops.read_mesh(tmp_path / "a.msh")
    assert mesh.order == 3
    assert mesh.volume() == pytest.approx(np.pi / 8, rel=1e-6)
    vertices, edges, cells = mesh.topology.num_entities
    assert vertices - edges + cells == 0  # that of a ring
    V = femops.H1(mesh, 4)
    sides = V.boundary_dofs()
    radius = np.hypot(*V.dof_coordinates()[sides].T)
    assert np.all((np.abs(radius - 0.5) < 1e-3) | (np.abs(radius - 1) < 1e-3))
    A = femops.diffusion(V).constrained(sides)
    b = A.rhs(V.zeros(), V.interpolate(radial))
    u, _ = femops.cg(A, b, rtol=1e-12)
    assert femops.l2_error(V, u, radial) < 1e-4


def radial(x):
    """Harmonic, and the same on both sides."""
    return np.log(np.hypot(*x))


def glued(folder, nodes, elements, *links, matrix=None):
    """A file of version 2.2 with these links: dimension, side, other, pairs of nodes."""
    lines = ["$Periodic", str(len(links))]
    for dim, side, other, *pairs in links:
        lines += [f"{dim} {side} {other}"]
        lines += ["Affine " + " ".join(map(str, matrix))] if matrix else []
        lines += [str(len(pairs)), *(f"{a} {b}" for a, b in pairs)]
    path = folder / "a.msh"
    path.write_text(document(nodes, elements) + "\n".join([*lines, "$EndPeriodic", ""]))
    return path


def row(count):
    """Two rows of squares, nodes 1 ... along x first, quadrangles only."""
    n = count + 1
    nodes = [(x, y, 0) for y in range(3) for x in range(n)]
    cells = [
        (3, 1, 1, 1 + x + n * y, 2 + x + n * y, 2 + x + n * (y + 1), 1 + x + n * (y + 1))
        for y in range(2)
        for x in range(count)
    ]
    return nodes, cells, [(n * y + n, n * y + 1) for y in range(3)]


def test_a_circle(tmp_path):
    need_gmsh()
    lines = [(15, 4, 1, 1), (15, 5, 4, 4), *[(1, 1, 1, k, k + 1) for k in range(1, 4)]]
    path = glued(tmp_path, [(x, 0, 0) for x in range(4)], lines, (0, 4, 1, (4, 1)))
    mesh = femops.read_mesh(path)
    assert mesh.topology.num_entities == (3, 3)
    assert mesh.num_boundary == 0
    assert mesh.boundary_names == {}


def test_pairs_with_and_without_a_map(tmp_path):
    need_gmsh()
    nodes, cells, pairs = row(4)
    ring = femops.box((4, 2), periodic=(True, False))
    for matrix in (None, [1, 0, 0, 4, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]):
        mesh = femops.read_mesh(glued(tmp_path, nodes, cells, (1, 2, 1, *pairs), matrix=matrix))
        assert mesh.topology.num_entities == ring.topology.num_entities


def test_chains_of_links_join_all_that_they_touch(tmp_path):
    """The corners of a torus, joined through corners of others, in any order of the links."""
    need_gmsh()
    x, y = (v.ravel() for v in np.meshgrid(range(4), range(4)))
    n = np.arange(1, 17).reshape(4, 4)
    cells = [
        (3, 1, 1, n[j, i], n[j, i + 1], n[j + 1, i + 1], n[j + 1, i])
        for j in range(3)
        for i in range(3)
    ]
    nodes = np.stack([x, y, 0 * x], axis=1)
    links = [
        (1, 2, 1, *zip(n[:, 3].tolist(), n[:, 0].tolist(), strict=True)),
        (1, 4, 3, *zip(n[3].tolist(), n[0].tolist(), strict=True)),
    ]
    for order in itertools.permutations(links):
        mesh = femops.read_mesh(glued(tmp_path, nodes, cells, *order))
        torus = femops.box((3, 3), periodic=True)
        assert mesh.topology.num_entities == torus.topology.num_entities


def narrow():
    """Three squares across at the top, two at the bottom: no two elements have the same nodes."""
    nodes = [(0, 0), (1, 0), (2, 0), (0, 1), (0.7, 1), (1.3, 1), (2, 1), (1, 2), (0, 2), (2, 2)]
    quads = [(1, 2, 5, 4), (2, 3, 7, 6), (2, 6, 8, 5), (4, 5, 8, 9), (6, 7, 10, 8)]
    return (
        [(x, y, 0) for x, y in nodes],
        [(3, 1, 1, *quad) for quad in quads],
        [(3, 1), (7, 4), (10, 9)],
    )


REFUSED = {
    "shifted": (lambda pairs: [(5, 1), (10, 11), (15, 6)], "have no image on the other side"),
    "no nodes": (lambda pairs: [], "does not list which nodes of.*setPeriodic again"),
    "not all": (lambda pairs: pairs[:2], "has 1 vertices without an image"),
    "missing": (lambda pairs: [*pairs, (99, 14)], "has 1 vertices without an image"),
    "few": (lambda pairs: pairs, "have the same vertices.*at least 3 elements"),
    "edges": (lambda pairs: pairs, "edges that are not one have the same vertices"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path, case):
    need_gmsh()
    nodes, cells, pairs = narrow() if case == "edges" else row(2 if case == "few" else 4)
    if case == "not all":
        cells += [(1, 5, 2, 5, 10), (1, 5, 2, 10, 15)]
    change, message = REFUSED[case]
    path = glued(tmp_path, nodes, cells, (1, 2, 1, *change(pairs)))
    with pytest.raises(femops.errors.MeshError, match=message) as caught:
        femops.read_mesh(path)
    assert str(path) in str(caught.value)


def test_sides_without_pairs_match_once_and_one_to_one(tmp_path):
    need_gmsh()
    nodes, cells, _ = row(4)
    lines = [(1, 5, 1, 1, 6), (1, 5, 1, 6, 11), (1, 6, 2, 5, 10), (1, 6, 2, 10, 15)]
    matrix = [1, 0, 0, 4, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    once, twice = [(1, 2, 1)], [(1, 2, 1)] * 2
    mesh = femops.read_mesh(glued(tmp_path, nodes, cells + lines, *once, matrix=matrix))
    ring = femops.box((4, 2), periodic=(True, False))
    assert mesh.topology.num_entities == ring.topology.num_entities
    with pytest.raises(femops.errors.MeshError, match="side 2 of dimension 1 comes twice"):
        femops.read_mesh(glued(tmp_path, nodes, cells + lines, *twice, matrix=matrix))
    for value in (1e308, -1e200, "nan", "inf"):
        bad = [value] * 16
        with pytest.raises(femops.errors.MeshError, match="does not list which nodes of the peri"):
            femops.read_mesh(glued(tmp_path, nodes, cells + lines, *once, matrix=bad))
    # two vertices of a flat element have the same image, within the tolerance
    nodes[10] = (0, 1 + 1e-7, 0)
    few = lines[:3]
    with pytest.raises(femops.errors.MeshError, match="do not match one to one"):
        femops.read_mesh(glued(tmp_path, nodes, cells + few, *once, matrix=matrix))


def test_a_damaged_section_is_an_error(tmp_path):
    nodes, cells, pairs = row(4)
    path = glued(tmp_path, nodes, cells, (1, 2, 1, *pairs))
    text = path.read_text()
    for old, new in (
        ("$Periodic\n1", "$Periodic\n2"),
        ("$Periodic\n1", "$Periodic\n0"),
        ("$Periodic\n1", "$Periodic\nx"),
        ("$Periodic\n1", "$Periodic\n"),
        ("\n3\n5 1", "\n4\n5 1"),
        ("\n3\n5 1", "\n-3\n5 1"),
        ("\n3\n5 1", "\n99999999999\n5 1"),
        ("5 1\n", "5\n"),
        ("1 2 1\n3", "7 2 1\n3"),
        ("$EndPeriodic", ""),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(MeshFormatError, match=r"\$Periodic is damaged|no \$EndPeriodic"):
            femops.read_mesh(path)


def test_a_damaged_binary_section_is_an_error(tmp_path):
    path = gmsh_box(tmp_path / "a.msh", (3, 3), (0,), 1, (4.1, 1))
    data = path.read_bytes()
    start = data.index(b"$Periodic\n") + len(b"$Periodic\n")
    stop = data.index(b"$EndPeriodic")
    for at, new in ((start, b"\x07"), (start + 20, b"\xff" * 8), (start + 156, b"\xff" * 4)):
        path.write_bytes(data[:at] + new + data[at + len(new) :])
        with pytest.raises(femops.errors.MeshError):
            femops.read_mesh(path)
    path.write_bytes(data[: start + 40] + data[stop:])
    with pytest.raises(MeshFormatError, match=r"\$Periodic is damaged|no \$EndPeriodic"):
        femops.read_mesh(path)
