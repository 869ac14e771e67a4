"""Jacobians, volumes, and the classes of elements."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

import femops
from femops import Mesh
from femops.basis import gauss
from femops.errors import GeometryError
from femops.geometry import BoundaryGeometry, ElementClass, Geometry, classify
from femops_meshes.coordinates.mapping import adjugates, determinants, jacobians, positions
from support.cases.meshes import MESHES, bend, scrambled_box
from support.counted_lines import lines


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_adjugates_against_linalg(dim):
    j = np.random.default_rng(0).normal(size=(5, 4, dim, dim))
    expected = np.linalg.inv(j) * np.linalg.det(j)[..., None, None]
    np.testing.assert_allclose(adjugates(j), expected, atol=1e-13)


@pytest.mark.parametrize("name", MESHES)
def test_inverse_and_determinant(name):
    geometry = Geometry(MESHES[name](), gauss(3))
    for block in geometry:
        identity = block.inverse @ block.jacobian
        np.testing.assert_allclose(identity - np.eye(geometry.dim), 0, atol=1e-12)
        np.testing.assert_allclose(block.det, np.linalg.det(block.jacobian), rtol=1e-12)
        one = geometry.block(block.start, block.start + 1)
        for quantity in ("points", "jacobian", "det", "weighted_det", "inverse"):
            array = getattr(geometry, quantity)(block.start, block.start + 1)
            np.testing.assert_array_equal(array, getattr(one, quantity))
            np.testing.assert_allclose(array, getattr(block, quantity)[:1], rtol=0, atol=1e-13)


def test_blocks_cover_the_mesh_once():
    geometry = Geometry(femops.box((9, 9, 9)), gauss(8))
    ranges = list(geometry.blocks())
    assert len(ranges) > 1
    assert [a for a, _ in ranges] == [0, *[b for _, b in ranges[:-1]]]
    assert ranges[-1][1] == 729


def test_volume_of_a_polynomial_map_is_exact():
    # x + x y^2 has the determinant 1 + y^2, whose integral over the unit square is 4/3
    mesh = femops.box((3, 2), mapping=lambda x: np.array([x[0] * (1 + x[1] ** 2), x[1]]), order=3)
    volume = sum(block.weighted_det.sum() for block in Geometry(mesh, gauss(8)))
    assert volume == pytest.approx(4 / 3, rel=1e-14)


def test_many_points_are_no_loop_in_python():
    meshes = [femops.box((n,) * 3, mapping=bend, order=2) for n in (4, 12)]
    geometries = [Geometry(mesh, gauss(6)) for mesh in meshes]
    few, many = (lines(lambda g=g: [block.inverse for block in g]) for g in geometries)
    blocks = [len(list(geometry.blocks())) for geometry in geometries]
    assert many * blocks[0] < 2 * few * blocks[1]  # blocks of elements, of 27 times as many


def turned(mesh, which, file_elements):
    """The mesh with some elements turned inside out, past the checks of the reader."""
    coordinates = mesh.coordinates.copy()
    side = mesh.order + 1
    flipped = coordinates[which].reshape(len(which), *[side] * mesh.dim, mesh.dim)[..., ::-1, :]
    coordinates[which] = flipped.reshape(len(which), -1, mesh.dim)
    return replace(mesh, coordinates=coordinates, file_elements=np.array(file_elements))


def test_inverted_elements_are_counted_and_named():
    mesh = turned(femops.box((4, 4)), [3, 7], range(16))
    with pytest.raises(GeometryError, match=r"2 elements have .* not positive .*: 3, 7"):
        Geometry(mesh, gauss(2)).inverse(0, 16)
    with pytest.raises(GeometryError, match=r"faces have a point .* inverted .* element\(s\) 3:"):
        BoundaryGeometry(mesh, gauss(2)).block(0, 16).normals  # noqa: B018
    mesh = turned(femops.box((4, 4)), range(12), range(15, -1, -1))
    with pytest.raises(GeometryError, match=r"0, 1, 2, 3, 4, \.\.\. \(15, 14, 13, 12, 11 in the"):
        Geometry(mesh, gauss(2)).det(0, 1)


@pytest.mark.parametrize(("dim", "order"), [(1, 1), (2, 1), (3, 1), (2, 2)])
def test_the_check_of_determinants_finds_what_they_are_at_the_points(dim, order):
    """Elements whose determinants have a bound are not looked at; the others are."""
    rng, rule, found = np.random.default_rng(dim), gauss(8), []
    mesh = femops.box((2,) * dim, mapping=bend, order=order)
    for size in np.repeat([0.1, 0.3, 0.5], 20):
        moved = mesh.coordinates + size / order * rng.uniform(-0.5, 0.5, mesh.coordinates.shape)
        geometry = Geometry(replace(mesh, coordinates=moved), rule)
        positive = bool((determinants(jacobians(moved, rule.points)) > 0.0).all())
        found.append(positive)
        with nullcontext() if positive else pytest.raises(GeometryError, match="not positive"):
            geometry.check()
    assert 0 < sum(found) < len(found) or dim == 1


def test_classes():
    affine, multilinear, curved = ElementClass
    tapered = femops.box((3, 2, 2), mapping=lambda x: x * (1 + 0.3 * x[1]))
    for mesh, kind in (
        (femops.box((3,)), affine),
        (scrambled_box((2, 2, 2), 0), affine),
        (femops.box((3, 2), mapping=lambda x: x + 0.3 * x[::-1], order=3), affine),
        (tapered, multilinear),
        (tapered.curved(3), multilinear),
        (femops.box((3, 2), mapping=bend, order=2), curved),
        (femops.box((3, 2, 2), cells="tetrahedra"), affine),
        (femops.box((3, 2), cells="triangles", order=4), affine),
        (femops.box((3, 2), cells="triangles", mapping=bend, order=2), curved),
    ):
        result = classify(mesh)
        assert (result.dtype, result.shape) == (np.int8, (mesh.num_elements,))
        assert set(result) == {kind}


def test_classes_of_single_elements():
    vertices = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1.5]], dtype=float)
    mesh = Mesh.from_arrays(vertices, [[0, 1, 3, 4], [1, 2, 4, 5]]).curved(2)
    assert list(classify(mesh)) == [ElementClass.AFFINE, ElementClass.MULTILINEAR]
    coordinates = mesh.coordinates.copy()
    coordinates[0, 4] += 1e-9
    mesh = Mesh.from_arrays(vertices, [[0, 1, 3, 4], [1, 2, 4, 5]], coordinates=coordinates)
    assert list(classify(mesh)) == [ElementClass.CURVED, ElementClass.MULTILINEAR]
    assert list(classify(mesh, tol=1e-8)) == [ElementClass.AFFINE, ElementClass.MULTILINEAR]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_maps_of_corners(dim, monkeypatch):
    """One product with a matrix over all points gives what sum factorisation does."""
    corners, points = scrambled_box((3, 2, 2)[:dim], 0).coordinates, gauss(4).points
    found = positions(corners, points), jacobians(corners, points)
    monkeypatch.setattr("femops_meshes.coordinates.mapping._MOST_POINTS", 0)
    expected = positions(corners, points), jacobians(corners, points)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-14)


@pytest.mark.parametrize("order", [1, 2])
def test_point_weights(order):
    """Weights from few determinants are those from all, and inverted elements are refused."""
    mesh = femops.box((3, 3, 3)).mapped(bend, order)
    for points in (2, 4, 8):
        for block in Geometry(mesh, gauss(points)):
            weights = block.point_weights
            np.testing.assert_allclose(weights, block.weighted_det, rtol=1e-12)
            assert weights is not block.weighted_det
    inside_out = replace(mesh, coordinates=mesh.coordinates[..., ::-1])
    with pytest.raises(GeometryError, match="not positive"):
        Geometry(inside_out, gauss(8)).block(0, 27).point_weights  # noqa: B018
