import numpy as np
import pytest

from femops_meshes import (
    MeshArgumentError,
    MeshGeometryError,
    MeshTopologyError,
    ball,
    box,
    cylinder,
    disc,
    l_shape,
    scrambled,
    shell,
)
from support.counted_lines import lines

PI = np.pi
ROUND = [
    (disc, {"n": 3, "radius": 2.0}, 4 * PI, {1: lambda x: np.hypot(*x) - 2}),
    (ball, {"n": 2}, 4 / 3 * PI, {1: lambda x: np.linalg.norm(x, axis=0) - 1}),
    (
        cylinder,
        {"n": 2, "layers": 3, "height": 3.0},
        3 * PI,
        {1: lambda x: np.hypot(x[0], x[1]) - 1, 2: lambda x: x[2], 3: lambda x: x[2] - 3},
    ),
    (
        shell,
        {"n": 2, "layers": 2},
        4 / 3 * PI * 7 / 8,
        {k: lambda x, k=k: np.linalg.norm(x, axis=0) - k / 2 for k in (1, 2)},
    ),
    (
        shell,
        {"n": 3, "layers": 1, "inner": 1.0, "outer": 2.0, "dim": 2},
        3 * PI,
        {k: lambda x, k=k: np.hypot(*x) - k for k in (1, 2)},
    ),
]


def boundary_nodes(mesh, attribute):
    """Positions (dim, n) of the nodes on the boundary of one attribute."""
    p1d = mesh.order + 1
    index = np.indices((p1d,) * mesh.dim).reshape(mesh.dim, -1)[::-1]
    found = []
    chosen = mesh.topology.boundary_faces[mesh.boundary_attributes == attribute]
    for element, code in chosen:
        on = np.ones(p1d**mesh.dim, dtype=bool)
        for d in range(mesh.dim):
            digit = code // 3**d % 3
            if digit != 1:
                on &= index[d] == digit // 2 * (p1d - 1)
        found.append(mesh.coordinates[element][on])
    return np.concatenate(found).T


@pytest.mark.parametrize(("make", "arguments", "volume", "sides"), ROUND)
def test_round_domains(make, arguments, volume, sides):
    errors = []
    for order in (1, 2, 4, 6):
        mesh = make(**arguments, order=order)
        mesh.validate()
        assert mesh.continuous
        assert mesh.order == order
        assert set(mesh.boundary_attributes) == set(sides)
        for attribute, distance in sides.items():
            assert np.abs(distance(boundary_nodes(mesh, attribute))).max() < 1e-14
        errors.append(abs(mesh.volume() - volume) / volume)
    assert errors[3] < 1e-7
    assert errors[3] < errors[2] < errors[1] < errors[0]


@pytest.mark.parametrize("dim", [2, 3])
def test_l_shape(dim):
    mesh = l_shape(3, dim, order=2)
    assert mesh.volume() == pytest.approx(2**dim - 1)
    assert mesh.continuous
    reentrant = boundary_nodes(mesh, 2)
    assert (mesh.boundary_attributes == 2).sum() == dim * 3 ** (dim - 1)
    assert (np.abs(reentrant).min(axis=0) == 0).all()
    assert reentrant.min() == 0
    assert (np.abs(boundary_nodes(mesh, 1)).max(axis=0) == 1).all()


@pytest.mark.parametrize("counts", [(1,), (7,), (1, 1), (5, 3), (1, 2, 1), (3, 5, 4)])
def test_boxes(counts):
    dim = len(counts)
    lower, upper = [-1.0, 2.0, 0.5][:dim], [1.0, 3.0, 2.5][:dim]
    mesh = box(counts, lower, upper, order=3)
    mesh.validate()
    assert mesh.num_elements == np.prod(counts)
    assert mesh.continuous
    assert mesh.volume() == pytest.approx(np.prod(np.subtract(upper, lower)))
    fine = box(counts, lower, upper).refine()
    for one, sides, order in ((mesh, counts, 3), (fine, 2 * np.array(counts), 1)):
        for d in range(dim):
            for end, value in ((1, lower[d]), (2, upper[d])):
                nodes = boundary_nodes(one, 2 * d + end)
                np.testing.assert_array_equal(nodes[d], value)
                assert nodes.shape[1] == np.prod(sides) // sides[d] * (order + 1) ** (dim - 1)


def test_periodic_by_direction():
    mesh = box((4, 3, 2), periodic=(True, True, False))
    assert mesh.num_vertices == 4 * 3 * 3
    assert not mesh.continuous
    assert set(mesh.boundary_attributes) == {5, 6}
    mesh.refine().validate()
    assert mesh.refine().num_vertices == 8 * 6 * 5
    assert box(3, periodic=True).num_boundary == 0


def test_arguments_may_be_arrays():
    mesh = box(np.array([3, 4]), np.zeros(2), np.ones(2), periodic=np.array([True, False]))
    assert mesh.num_elements == 12
    assert set(mesh.boundary_attributes) == {3, 4}
    assert box(np.int64(3), periodic=np.True_).num_boundary == 0


def test_mapped_box_is_of_the_degree_asked_for():
    def turn(x):
        angle, radius = x
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)])

    ring = box((8, 1), (0, 1), (PI / 2, 2), mapping=lambda x: turn(x)[::-1], order=6)
    assert ring.order == 6
    assert ring.volume() == pytest.approx(3 * PI / 4, rel=1e-12)
    with pytest.raises(MeshGeometryError, match="inverted"):
        box((8, 1), (0, 1), (PI / 2, 2), mapping=turn, order=6)


def test_neighbours_in_the_order_are_neighbours_in_space():
    for mesh in (box((8, 8, 8)), ball(3), disc(5)):
        centers = mesh.element_centers()
        step = np.linalg.norm(np.diff(centers, axis=0), axis=1)
        typical = (mesh.volume() / mesh.num_elements) ** (1 / mesh.dim)
        assert np.mean(step) < 1.6 * typical


def test_arguments_out_of_range_are_refused():
    for call in (
        lambda: box((0, 3)),
        lambda: box((2.5, 3)),
        lambda: box((1, 1, 1, 1)),
        lambda: box(()),
        lambda: box((2, 2), periodic=True),
        lambda: box((3, 3), periodic=(True,)),
        lambda: box((3, 3), lower=1.0),
        lambda: box((3, 3), upper=(1.0, np.nan)),
        lambda: box((3, 3), order=0),
        lambda: box((10**5,) * 3),
        lambda: box((10**7,) * 3),
        lambda: disc(0),
        lambda: disc(radius=-1.0),
        lambda: ball(radius=np.inf),
        lambda: ball(order=0),
        lambda: cylinder(layers=0),
        lambda: cylinder(height="tall"),
        lambda: shell(inner=2.0),
        lambda: shell(dim=1),
        lambda: shell(dim=4),
        lambda: l_shape(0),
        lambda: l_shape(dim=4),
    ):
        with pytest.raises(MeshArgumentError):
            call()


def test_many_elements_are_no_loop_in_python():
    few, many = (lines(lambda n=n: box((n,) * 3).topology) for n in (4, 12))
    assert many < 2 * few  # of 27 times the elements


SPLIT = [
    (box, {"counts": (3, 4), "upper": (1.5, 1.0)}),
    (box, {"counts": (2, 3, 2)}),
    (box, {"counts": (3, 4, 3), "periodic": (True, False, True)}),
    (disc, {}),
    (ball, {}),
    (cylinder, {"layers": 2}),
    (shell, {}),
    (shell, {"dim": 2}),
    (l_shape, {}),
    (l_shape, {"dim": 3}),
]


@pytest.mark.parametrize("order", [1, 2, 4, 6])
@pytest.mark.parametrize(("make", "arguments"), SPLIT)
def test_triangles_and_tetrahedra(make, arguments, order):
    """Two of each square, six of each cube, with the same boundary and size."""
    arguments = {**arguments, "order": order}
    whole = make(**arguments)
    mesh = make(**arguments, cells="triangles" if whole.dim == 2 else "tetrahedra")
    assert (mesh.cell.simplex, mesh.order) == (True, order)
    assert mesh.num_elements == (2 if whole.dim == 2 else 6) * whole.num_elements
    assert mesh.continuous == whole.continuous
    # faces of a ball are interpolated
    assert mesh.volume() == pytest.approx(whole.volume(), rel={1: 2e-2, 2: 1e-2}.get(order, 1e-3))
    mesh.validate()
    tags, counts = np.unique(whole.boundary_attributes, return_counts=True)
    assert np.array_equal(np.unique(mesh.boundary_attributes), tags)
    for tag, count in zip(tags.tolist(), counts.tolist(), strict=True):
        parts = np.count_nonzero(mesh.boundary_attributes == tag)
        assert parts == count * (1 if whole.dim == 2 else 2)


def test_a_mapping_moves_the_nodes_of_simplices():
    def mapping(x):
        return np.array([x[0] + 0.1 * x[1] ** 3, x[1]])

    mesh = box((3, 2), order=3, cells="triangles", mapping=mapping)
    plain = box((3, 2), order=3, cells="triangles")
    moved = mapping(plain.coordinates.reshape(-1, 2).T).T.reshape(plain.coordinates.shape)
    np.testing.assert_allclose(mesh.coordinates, moved, atol=1e-15)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: box((3, 3), cells="tets"), "cells is 'tets': give .*'tetrahedra' or 'prisms'"),
        (lambda: box((3, 3), cells="tetrahedra"), "in 2-D give quadrilaterals or triangles"),
        (lambda: box(3, cells="triangles"), "in 1-D give segments"),
        (lambda: ball(cells="triangles"), "in 3-D give hexahedra or tetrahedra"),
        (lambda: ball(cells="prisms"), "in 3-D give hexahedra or tetrahedra"),
        (lambda: box((2, 2), cells="prisms"), "in 2-D give quadrilaterals or triangles"),
        (lambda: box((2, 2)).prisms(), "meshes of hexahedra that conform"),
        (lambda: disc(order=7, cells="triangles"), "have degree 6 at most, got 7"),
        (lambda: box((2, 3), periodic=True, cells="triangles"), "3"),
    ],
)
def test_cells_that_are_refused(make, message):
    with pytest.raises(MeshArgumentError, match=message):
        make()


def test_cells_that_are_not_split():
    assert box((2, 2), cells="quadrilaterals").num_elements == 4
    assert box(2, cells="segments").coarser is not None


def test_prisms():
    mesh = box((3, 2, 4), upper=(1, 2, 3), cells="prisms")
    assert (mesh.plural, mesh.num_elements, mesh.num_boundary) == ("prisms", 48, 2 * 6 * 2 + 2 * 20)
    assert mesh.volume() == pytest.approx(6)
    mesh.validate()
    counts = np.unique(mesh.boundary_attributes, return_counts=True)[1]
    assert counts.tolist() == [8, 8, 12, 12, 12, 12]
    whole, round_one = cylinder(2, 3, order=3), cylinder(2, 3, order=3, cells="prisms")
    assert round_one.volume() == pytest.approx(whole.volume(), rel=1e-12)
    counts = np.unique(round_one.boundary_attributes, return_counts=True)[1]
    assert counts.tolist() == [24, 40, 40]
    bent = box((2, 2, 2), order=2, mapping=lambda x: x + 0.1 * x[::-1] ** 2, cells="prisms")
    assert (bent.order, bent.continuous) == (2, True)
    for other in (ball(1), scrambled(box((3, 3, 3)), 1)):
        with pytest.raises(MeshTopologyError, match=r"do not lie in one column.*mesh\.simplices"):
            other.prisms()
