"""Entities and orientations, judged by where nodes are in space."""

import numpy as np
import pytest

from femops_meshes import Mesh, MeshTopologyError, ball, box, entity_permutation, scrambled
from femops_meshes.coordinates.mapping import gauss_lobatto, positions
from femops_meshes.generators.boxes import rotations, turned_lattice
from femops_meshes.topology.entities import entity_codes, entity_lattice
from femops_meshes.topology.topology import Topology, _ranked, translated_entities
from support.oracles.partitions import bend


def check_lattice(mesh, p):
    """Nodes with one number are at one place, nodes with two numbers at two."""
    numbers = mesh.topology.lattice(p)
    size = mesh.topology.lattice_size(p)
    np.testing.assert_array_equal(np.unique(numbers), np.arange(size))
    at = positions(mesh.coordinates, gauss_lobatto(p + 1)[0])
    place = np.empty((size, mesh.dim))
    place[numbers] = at
    np.testing.assert_allclose(place[numbers], at, atol=1e-13)
    apart = np.unique(np.round(place, 9), axis=0)
    assert len(apart) == size


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_lattice_of_scrambled_boxes(dim, p):
    mesh = scrambled(box((3, 2, 2)[:dim], mapping=bend, order=2), seed=p)
    check_lattice(mesh, p)


def test_lattice_of_the_scrambled_ball_sees_every_orientation():
    mesh = scrambled(ball(2, order=2), seed=3)
    faces, edges = list(entity_codes(3, 2)), list(entity_codes(3, 1))
    assert set(mesh.topology.orientation[:, faces].ravel()) == set(range(8))
    assert set(mesh.topology.orientation[:, edges].ravel()) == {0, 1}
    check_lattice(mesh, 4)


def two_hexes(turn, labels):
    """Two unit cubes side by side; the second one turned, vertices numbered by `labels`."""
    number = np.arange(12).reshape(2, 2, 3)  # z, y, x
    cells = np.array([number[:, :, i : i + 2].ravel() for i in range(2)])
    cells[1] = cells[1][turned_lattice(3, 1, *turn)]
    grid = np.indices((2, 2, 3)).reshape(3, -1)[::-1].T.astype(float)
    vertices = np.empty((12, 3))
    vertices[labels] = grid
    return Mesh.from_arrays(vertices, labels[cells]).mapped(bend, order=2)


def shared_face(mesh):
    """Code of the face that the two elements share, in each."""
    topology = mesh.topology
    (inner,) = np.flatnonzero((topology.faces >= 0).all(axis=1))
    assert topology.faces[inner].tolist() == [0, 1]
    return topology.face_codes[inner]


def test_two_hexes_agree_on_their_face_however_one_is_turned():
    rng = np.random.default_rng(7)
    seen = [set(), set()]
    for turn in rotations(3):
        for n in (1, 2, 3, 4):
            mesh = two_hexes(turn, rng.permutation(12))
            codes = shared_face(mesh)
            for element, code in enumerate(codes):
                seen[element].add(int(mesh.topology.orientation[element, code]))
            check_face_nodes(mesh, codes, n)
    assert seen == [set(range(8))] * 2


def check_face_nodes(mesh, codes, n):
    at = positions(mesh.coordinates, gauss_lobatto(n + 2)[0])
    in_base_order = []
    for element, code in enumerate(codes):
        local = list(entity_lattice(3, code, n + 1))
        orientation = mesh.topology.orientation[element, code]
        nodes = np.empty((n * n, 3))
        nodes[entity_permutation(orientation, n, 2)] = at[element, local]
        in_base_order.append(nodes)
    np.testing.assert_allclose(*in_base_order, atol=1e-13)


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("n", range(5))
def test_permutations_are_those_of_the_symmetries(n, kind):
    shape = (n,) * kind
    base = np.arange(n**kind).reshape(shape)
    for orientation in range(2 ** (2 * kind - 1)):
        permutation = entity_permutation(orientation, n, kind)
        seen = base
        if kind == 2 and orientation & 4:
            seen = seen.T
        # flips act on the element's own directions, x being the last axis
        if orientation & 1:
            seen = seen[..., ::-1]
        if orientation & 2:
            seen = seen[::-1]
        np.testing.assert_array_equal(permutation, seen.ravel())


def test_base_of_a_quad_starts_at_its_smallest_vertex_towards_the_smaller_neighbour():
    for labels in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 0, 1], [1, 0, 3, 2], [3, 2, 1, 0]):
        # the quad is the face x = 0 of a hex whose other vertices are larger
        cell = np.array([[labels[0], 4, labels[1], 5, labels[2], 6, labels[3], 7]])
        topology = Topology.build(cell, 8)
        corners = np.empty(4, dtype=int)
        corners[entity_permutation(topology.orientation[0, 12], 2, 2)] = labels
        assert corners[0] == min(labels)
        assert corners[1] < corners[2]


def test_numbers_do_not_depend_on_the_order_of_elements():
    mesh = scrambled(ball(1), seed=2)
    turned = mesh.reordered(np.arange(mesh.num_elements)[::-1])
    cell = entity_codes(3, 3)[0]
    others = [code for code in range(27) if code != cell]
    for name in ("entity", "orientation"):
        first, second = getattr(mesh.topology, name), getattr(turned.topology, name)
        np.testing.assert_array_equal(first[::-1][:, others], second[:, others])


def test_faces_join_the_elements_that_list_them():
    mesh = scrambled(box((3, 3, 2)), seed=1)
    topology = mesh.topology
    for face, (sides, codes) in enumerate(zip(topology.faces, topology.face_codes, strict=True)):
        for element, code in zip(sides, codes, strict=True):
            if element >= 0:
                assert topology.entity[element, code] == face
    outside = (topology.faces[:, 1] < 0).sum()
    assert outside == mesh.num_boundary == 2 * (9 + 6 + 6)


@pytest.mark.parametrize("counts", [(4,), (3, 5), (3, 4, 5)])
def test_euler_characteristic(counts):
    plain = box(counts).topology.num_entities
    torus = box(counts, periodic=True).topology.num_entities
    assert sum((-1) ** k * n for k, n in enumerate(plain)) == 1
    assert sum((-1) ** k * n for k, n in enumerate(torus)) == 0


def refused(elements, num_vertices, boundary=None):
    with pytest.raises(MeshTopologyError) as caught:
        Topology.build(np.array(elements), num_vertices, boundary)
    return str(caught.value)


def test_what_is_no_mesh_is_refused():
    assert "same vertex at two corners" in refused([[0, 1, 1, 2]], 3)
    assert "elements 0 and 1" in refused([[0, 1, 2, 3], [1, 0, 3, 2]], 4)
    three = [[0, 1, 2, 3], [0, 1, 4, 5], [0, 1, 6, 7]]
    assert "more than two elements" in refused(three, 8)
    assert "don't exist" in refused([[0, 1, 2, 4]], 4)
    assert "don't exist" in refused([[0, 1, 2, -1]], 4)
    assert "not faces of" in refused([[0, 1, 2, 3]], 4, np.array([[0, 3]]))
    # two cells around a ring: the edges of both sides would be one
    assert "periodic" in refused([[0, 1, 2, 3], [1, 0, 3, 2]], 4)


def test_twisted_faces_are_refused():
    vertices = [[x, y, z] for z in (0, 1) for y in (0, 1) for x in (0, 1, 2)]
    good = np.array([[0, 1, 3, 4, 6, 7, 9, 10], [1, 2, 4, 5, 7, 8, 10, 11]])
    bad = good.copy()
    bad[1, [0, 2]] = bad[1, [2, 0]]
    assert Mesh.from_arrays(vertices, good).num_boundary == 10
    with pytest.raises(MeshTopologyError, match=r"twisted: element 0 and element 1 .*1, 4, 7, 10"):
        Mesh.from_arrays(vertices, bad)
    with pytest.raises(MeshTopologyError, match="twisted: element 0 and boundary element 1"):
        Mesh.from_arrays(vertices, good, boundary=[[1, 2, 4, 5], [0, 4, 3, 1]])


def test_permutation_of_no_entity_is_refused():
    for arguments in ((2, 3, 1), (8, 3, 2), (0, 3, 3), (0, -1, 1)):
        with pytest.raises(MeshTopologyError):
            entity_permutation(*arguments)


@pytest.mark.parametrize("largest", [7, 2**40, 2**62])
def test_ranks_of_keys(largest):
    """Keys of any size have the ranks that NumPy gives them, also those too large to be packed."""
    keys = np.random.default_rng(0).integers(0, 10, 200) * (largest // 10 + 1)
    number, count = _ranked(keys)
    values, expected = np.unique(keys, return_inverse=True)
    assert count == len(values)
    np.testing.assert_array_equal(number, expected)
    number, count = _ranked(keys[:0])
    assert (len(number), count) == (0, 0)


@pytest.mark.parametrize("counts", [(3, 2), (1, 1, 1), (4, 3, 2), (5, 5, 5)])
def test_translated_elements_are_numbered_as_any_others(counts, monkeypatch):
    """Boxes, parts of boxes, and boxes with a chosen boundary, by counting and by sorting."""
    mesh = box(counts)
    given = [
        (mesh.elements, mesh.boundary),
        (mesh.elements, mesh.boundary[::-2]),
        (mesh.elements[::2], None),
    ]
    counted = [Topology.build(elements, mesh.num_vertices, some) for elements, some in given]
    for elements, some in given:
        assert translated_entities(elements, mesh.num_vertices, some) is not None
    found = "femops_meshes.topology.topology.translated_entities"
    monkeypatch.setattr(found, lambda *given: None)
    for (elements, some), one in zip(given, counted, strict=True):
        other = Topology.build(elements, mesh.num_vertices, some)
        assert one.num_entities == other.num_entities
        for name in ("entity", "orientation", "faces", "face_codes", "boundary_faces"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            assert getattr(one, name).dtype == getattr(other, name).dtype


def test_other_elements_are_not_taken_for_translated_ones():
    mesh = box((4, 4, 4))
    twisted = mesh.boundary[:, [1, 0, 2, 3]]
    inside = mesh.elements[:1, [0, 1, 2, 7]]
    periodic = box((4, 4, 4), periodic=True)
    for elements, boundary in [
        (scrambled(mesh, seed=0).elements, None),
        (periodic.elements, None),
        (np.repeat(mesh.elements, 2, axis=0), None),
        (mesh.elements, twisted),
        (mesh.elements, inside),
    ]:
        assert translated_entities(elements, mesh.num_vertices, boundary) is None
