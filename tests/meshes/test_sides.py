"""Boundary entries on faces that two elements have: which side each is, glued faces above all."""

import numpy as np
import pytest

import femops
from femops.basis import gauss
from femops.geometry import BoundaryGeometry
from femops_meshes import (
    Mesh,
    MeshTopologyError,
    box,
    part_of,
    partition,
    read_mfem,
    scrambled,
    write_mfem,
)
from support.cases.glued import UPPER, alike, glued


def bend(x):
    return x + 0.02 * np.sin(2 * np.pi * x / np.array(UPPER)[: len(x), None])


def facts(mesh):
    """Area, integrals of the normal and of the position, of each attribute."""
    result = {}
    for attribute in np.unique(mesh.boundary_attributes).tolist():
        geometry = BoundaryGeometry(mesh, gauss(4), attribute)
        block = geometry.block(0, geometry.num_elements)
        area = block.weighted_det.sum()
        normal, position = (
            np.einsum("fq,fqd->d", block.weighted_det, x) for x in (block.normals, block.points)
        )
        result[attribute] = area, normal, position
    return result


def assert_same(mesh, plain):
    got, expected = facts(mesh), facts(plain)
    assert got.keys() == expected.keys()
    for attribute, numbers in expected.items():
        for mine, theirs in zip(got[attribute], numbers, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-12)
    every = BoundaryGeometry(mesh, gauss(4), [*got])
    area = sum(float(block.weighted_det.sum()) for block in every)
    assert area == pytest.approx(sum(row[0] for row in got.values()), rel=1e-13)


CASES = [
    (2, (True, True), 3, bend),
    (3, (True, False, False), 1, None),
    (3, (False, True, True), 2, bend),
]


@pytest.mark.parametrize(("dim", "wraps", "order", "mapping"), CASES)
def test_both_sides_of_glued_faces_are_faces_of_their_own(tmp_path, dim, wraps, order, mapping):
    mesh, plain = glued(dim, wraps, order, mapping)
    turned = scrambled(mesh, 4).reordered(np.random.default_rng(0).permutation(mesh.num_elements))
    assert_same(turned, plain)
    write_mfem(turned, tmp_path / "a.mesh")
    again = read_mfem(tmp_path / "a.mesh")
    assert np.array_equal(again.boundary, turned.boundary)
    assert np.array_equal(again.boundary_attributes, turned.boundary_attributes)
    write_mfem(again.refine(), tmp_path / "b.mesh")
    assert_same(read_mfem(tmp_path / "b.mesh"), plain)


@pytest.mark.parametrize(("dim", "wraps", "order", "mapping"), CASES)
def test_parts_have_the_sides_of_the_whole(dim, wraps, order, mapping):
    mesh, size = scrambled(glued(dim, wraps, order, mapping)[0], 6), 3
    shares = partition(mesh, size)
    parts = [facts(part_of(mesh, shares, rank).mesh) for rank in range(size)]
    for attribute, numbers in facts(mesh).items():
        for k, number in enumerate(numbers):
            total = sum(part[attribute][k] for part in parts if attribute in part)
            np.testing.assert_allclose(total, number, atol=1e-12)


@pytest.mark.parametrize(
    ("corners", "normal"),
    [([1, 4], 1.0), ([4, 1], -1.0), ([1, 4, 7, 10], 1.0), ([1, 7, 4, 10], -1.0)],
)
def test_an_entry_inside_is_a_face_of_the_element_that_it_looks_out_of(corners, normal):
    """The face x = 1 of two elements, by hand its corners as seen from outside of one of them."""
    dim = {2: 2, 4: 3}[len(corners)]
    mesh = box((2, 1, 1)[:dim])
    arrays = mesh.elements, mesh.coordinates, mesh.num_vertices
    for seed in range(3):
        two = scrambled(Mesh.assemble(*arrays, boundary=np.array([corners])), seed)
        for one in (two, two.reordered([1, 0]), two.refine()):
            area, found, _ = facts(one)[1]
            assert area == pytest.approx(1.0)
            np.testing.assert_allclose(found, [normal, *[0] * (dim - 1)], atol=1e-14)


def test_a_point_inside_belongs_to_the_element_below_it():
    line = Mesh.from_arrays([[0.0], [1.0], [2.0]], [[0, 1], [1, 2]], boundary=[[1]])
    for mesh in (line, line.reordered([1, 0]), line.refine()):
        assert facts(mesh)[1][1] == pytest.approx(1.0)


def strip():
    """A Moebius strip, with the edge where it is glued listed."""
    cells = np.array([[k, k + 1, k + 5, k + 6] for k in range(5)])
    cells[4] = [4, 5, 9, 0]  # the ends, turned
    where = np.stack([np.tile(np.arange(6.0), 2), np.repeat([0.0, 1.0], 6)], axis=1)
    places = np.array([[k, k + 1, k + 6, k + 7] for k in range(5)])
    return Mesh.from_arrays(None, cells, boundary=[[0, 5]], coordinates=where[places])


@pytest.mark.parametrize(
    "make", [lambda: alike(1), lambda: alike(2), lambda: alike(3), strip], ids="123m"
)
def test_where_corners_do_not_tell_the_side_integrals_are_refused(tmp_path, make):
    write_mfem(make(), tmp_path / "a.mesh")
    mesh = femops.read_mesh(tmp_path / "a.mesh", reorder=False)
    assert np.array_equal(mesh.boundary, make().boundary)
    V = femops.H1(mesh, 2)
    every = {*mesh.boundary_attributes.tolist()}
    assert len(V.boundary_dofs(every)) > 0  # no matter of sides
    known = sorted(every - {1, 2})
    for refused in (
        lambda: femops.boundary_mass(V, attributes=every),
        lambda: femops.boundary_load(V, 1.0, attributes=1),
        lambda: BoundaryGeometry(mesh, gauss(2), [1, *known]),
        lambda: femops.boundary_mass(femops.H1(mesh.refine(), 1), attributes=1),
    ):
        with pytest.raises(femops.errors.SpaceError, match="don't tell their side"):
            refused()
    if known:
        plain = box((4, 3, 3)[: mesh.dim], upper=UPPER[: mesh.dim])
        areas = [
            sum(block.weighted_det.sum() for block in BoundaryGeometry(one, gauss(2), known))
            for one in (mesh, plain)
        ]
        assert areas[0] == pytest.approx(areas[1])
    with pytest.raises(MeshTopologyError, match=r"that faces outwards|a point has no sides"):
        part_of(mesh, partition(mesh, 2), 0)
