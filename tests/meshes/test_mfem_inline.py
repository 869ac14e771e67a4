"""INLINE meshes: the boxes that MFEM makes of them, and everything refused."""

import hashlib
from itertools import product

import numpy as np
import pytest

import femops
from femops_meshes import MeshArgumentError, MeshFormatError, box, read_mesh, read_mfem
from femops_meshes.formats.mfem_reader import mfem_order

KINDS = {1: "segment", 2: "quad", 3: "hex"}
NORMALS = {  # of the attributes 1, 2, ...
    1: [[-1], [1]],
    2: [[0, -1], [1, 0], [0, 1], [-1, 0]],
    3: [[0, 0, -1], [0, -1, 0], [1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, 0, 1]],
}


def text(counts, sizes=(1.0, 1.0, 1.0), kind=None):
    lines = ["MFEM INLINE mesh v1.0", "", "# a box", f"type = {kind or KINDS[len(counts)]}"]
    lines += [f"n{x} = {n}" for x, n in zip("xyz", counts, strict=False)]
    lines += [f"s{x} = {s!r}" for x, s in zip("xyz"[: len(counts)], sizes, strict=False)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("counts", [(4,), (3, 2), (2, 3, 4), (1, 5, 1)])
def test_it_is_the_box_with_mfem_s_attributes(tmp_path, counts):
    dim, upper = len(counts), (1.5, 0.25, 3.0)[: len(counts)]
    (tmp_path / "a.mesh").write_text(text(counts, upper))
    mesh = femops.read_mesh(tmp_path / "a.mesh")
    expected = box(counts, upper=upper)
    order = [np.lexsort(np.round(m.element_centers(), 9).T) for m in (mesh, expected)]
    np.testing.assert_array_equal(mesh.elements[order[0]], expected.elements[order[1]])
    np.testing.assert_array_equal(mesh.coordinates[order[0]], expected.coordinates[order[1]])
    where = {}
    for attribute in np.unique(mesh.boundary_attributes).tolist():
        faces = femops.geometry.BoundaryGeometry(mesh, femops.basis.gauss(1), attribute)
        normals = np.concatenate([block.normals[:, 0] for block in faces])
        assert np.allclose(normals, normals[0])
        where[attribute] = normals[0].round().astype(int).tolist()
    assert list(where.values()) == NORMALS[dim]


# first 16 digits of the sha256 of GetElementVertices (int64) of MFEM 4.10, of all these boxes
FROZEN = {
    2: (list(product(range(1, 9), repeat=2)), [0, 1, 3, 2], "989a25158e01aff3"),
    3: (list(product(range(1, 6), repeat=3)), [0, 1, 3, 2, 4, 5, 7, 6], "7a84a06174719398"),
}


@pytest.mark.parametrize("dim", FROZEN)
def test_elements_are_in_mfem_s_order(dim):
    sizes, corners, digits = FROZEN[dim]
    found = hashlib.sha256()
    for counts in sizes:
        found.update(read_mfem(text(counts)).elements[:, corners].astype("<i8").tobytes())
    assert found.hexdigest()[:16] == digits


# the same of PyMFEM 4.10.0.1, of sorted vertices, and of faces in ascending order with attributes
SPLIT = {
    "tri": (2, "6076ad52e8dc1bd0"),
    "tet": (3, "18376807bd95c336"),
    "wedge": (3, "bb780ba671f326c8"),
}


@pytest.mark.parametrize("kind", SPLIT)
def test_triangles_tetrahedra_and_prisms_are_mfem_s(kind):
    (dim, digits), found = SPLIT[kind], hashlib.sha256()
    for counts in product((1, 2, 3), repeat=dim):
        mesh = read_mfem(text(counts, (1.5, 0.25, 3.0), kind))
        assert mesh.volume() == pytest.approx(np.prod([1.5, 0.25, 3.0][:dim]))
        (part,) = getattr(mesh, "parts", (mesh,))
        faces = [
            (*sorted(v for v in row if v >= 0), tag)
            for row, tag in zip(
                part.boundary.tolist(), part.boundary_attributes.tolist(), strict=True
            )
        ]
        rows = [*np.sort(part.elements, axis=1).tolist(), *sorted(faces)]
        found.update(repr([[*map(int, row)] for row in rows]).encode())
        assert np.array_equal(part.file_elements, np.arange(len(part.elements)))
    assert found.hexdigest()[:16] == digits


@pytest.mark.parametrize("counts", [(33, 20), (9, 30, 14), (1, 7, 1), (40, 1, 1), (2, 1, 9)])
def test_the_curve_passes_each_cell_once(counts):
    cells = mfem_order(counts)
    assert np.array_equal(np.unique(cells, axis=0), np.indices(counts).reshape(len(counts), -1).T)


def test_refused(tmp_path):
    path = tmp_path / "a.mesh"
    for old, new, message in (
        ("INLINE mesh v1.0", "INLINE mesh v2.0", 'the version that is read is "MFEM INLINE'),
        ("type = hex", "type = pyramid", '"tet", "wedge", got "pyramid": mesh without pyramids'),
        ("type = hex", "type = hexagon", 'is one of "segment", .*, got "hexagon"'),
        ("type = hex", "", 'got "": write a line as'),
        ("ny = 2\n", "", 'of type "hex" needs "ny = ...": the file has none'),
        ("sz = 1.0\n", "", 'needs "sz'),
        ("ny = 2", "ny = 0", "ny must be >= 1, got 0"),
        ("ny = 2", "ny = 2.5", 'ny must be a whole number, got "2.5"'),
        ("ny = 2", "nx = 2", "the second line for nx"),
        ("ny = 2", "ny 2", 'line 6: "ny 2": an INLINE mesh has lines'),
        ("ny = 2", "n = 2", 'line 6: "n = 2": an INLINE mesh has lines'),
        ("sx = 1.0", "sx = -1.0", "sx is a length, it must be positive, got -1.0"),
        ("sx = 1.0", "sx = nan", 'sx must be finite, got "nan"'),
        ("sx = 1.0", "sx = one", 'sx must be a number, got "one"'),
    ):
        path.write_text(text((3, 2, 2)).replace(old, new))
        with pytest.raises(MeshFormatError, match=message) as caught:
            read_mesh(path)
        assert str(path) in str(caught.value)


def test_a_short_file_cannot_ask_for_minutes():
    with pytest.raises(MeshArgumentError, match=r"13824000 elements.*refine=1"):
        read_mfem(text((240, 240, 240)))
    for kind, counts, number in (
        ("tet", (64, 64, 64), 1572864),
        ("wedge", (512, 512, 1), 524288),
        ("tri", (512, 512), 524288),
    ):
        with pytest.raises(MeshArgumentError, match=f"{number} elements"):
            read_mfem(text(counts, kind=kind))


def test_what_does_not_fit_into_memory_is_refused_before_it_is_made():
    for counts in ((10**8, 10**8), (10**17, 10**17, 10**17)):
        with pytest.raises(MeshArgumentError, match=r"takes minutes|numbered"):
            read_mfem(text(counts))
