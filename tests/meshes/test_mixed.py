"""Meshes of several shapes: parts, faces between them, refinement, bad input."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.element import LagrangeElement, turned_to
from femops_meshes import (
    MeshArgumentError,
    MeshError,
    MeshGeometryError,
    MeshTopologyError,
    MixedMesh,
    Partition,
    hilbert_order,
    part_of,
    partition,
)
from femops_meshes.coordinates import simplices
from femops_meshes.topology.entities import PRISM, QUADRILATERAL, SEGMENT, TRIANGLE
from support.mixed_meshes import blocks, bulged, flat_mesh, mixed_mesh

KINDS = ("hexahedra", "prisms"), ("prisms", "tetrahedra"), ("prisms",), ()


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_functions_of_prisms_are_products(p):
    nodes, rng = simplices.nodes(PRISM, p), np.random.default_rng(p)
    flat = rng.dirichlet(np.ones(3), size=7)[:, 1:]
    x = np.column_stack([flat, rng.random(7)])
    np.testing.assert_allclose(simplices.tables(PRISM, p, nodes)[0], np.eye(len(nodes)), atol=1e-12)
    powers = [(a, b, c) for a in range(p + 1) for b in range(p + 1 - a) for c in range(p + 1)]
    for a, b, c in powers:
        values = nodes[:, 0] ** a * nodes[:, 1] ** b * nodes[:, 2] ** c
        exact = x[:, 0] ** a * x[:, 1] ** b
        np.testing.assert_allclose(
            simplices.tables(PRISM, p, x)[0] @ values, exact * x[:, 2] ** c, atol=1e-12
        )
        slopes = exact * c * x[:, 2] ** max(c - 1, 0)
        np.testing.assert_allclose(simplices.tables(PRISM, p, x)[3] @ values, slopes, atol=1e-10)
        kept = simplices.at_points(PRISM, p, x, slopes=True)
        np.testing.assert_allclose(kept, simplices.tables(PRISM, p, x)[1:], atol=1e-10)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_faces_of_prisms_have_the_nodes_of_triangles_and_quadrilaterals(p):
    nodes, line = simplices.nodes(PRISM, p), simplices.nodes(SEGMENT, p)[:, 0]
    square = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    for face, points in ((TRIANGLE, simplices.nodes(TRIANGLE, p)), (QUADRILATERAL, square)):
        for code in PRISM.codes_of(face):
            on_face = PRISM.on_face(code, points)
            np.testing.assert_allclose(nodes[PRISM.closed_lattice(code, p)], on_face, atol=1e-14)
            turned = nodes[simplices.turned(PRISM, p, code)]  # what a turned prism sees
            element = turned_to(LagrangeElement(PRISM, p, closed=True), face)
            there = element.values(simplices.at_end(points), turned[np.newaxis])[0]
            np.testing.assert_allclose(there, on_face, atol=1e-12)


@pytest.mark.parametrize("degree", [0, 1, 4, 9])
def test_rules_of_prisms_are_exact(degree):
    points, weights = simplices.rule(PRISM, degree)
    for a in range(degree + 1):
        for c in range(degree + 1):
            exact = 2.0 / ((a + 1) * (a + 2) * (c + 1))
            assert abs(weights @ (points[:, 1] ** a * points[:, 2] ** c) - exact) < 1e-13


@pytest.mark.parametrize("shapes", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_parts_share_faces(shapes, n):
    mesh = mixed_mesh(n, seed=n, shapes=shapes)
    cubes = len(shapes) or 3
    assert abs(mesh.volume() - cubes) < 1e-12
    between = sum(len(part.topology.joined) for part in mesh.parts)
    assert between == 2 * {1: 0, 2: 1, 3: 1}[cubes] * n**2 * (
        2 if "tetrahedra" in shapes else 1
    ) + (4 * n**2 if cubes == 3 else 0)
    mesh.validate()
    assert [part.num_vertices for part in mesh.parts] == [mesh.num_vertices] * len(mesh.parts)


@pytest.mark.parametrize("shapes", KINDS)
@pytest.mark.parametrize("curved", [0, 3])
def test_refinement_keeps_the_geometry(shapes, curved):
    mesh = mixed_mesh(1, seed=4, shapes=shapes, curved=curved)
    fine = mesh.refine()
    fine.validate()
    assert abs(fine.volume() - mesh.volume()) < 1e-12
    assert fine.num_elements == 8 * mesh.num_elements
    assert fine.num_boundary == 4 * mesh.num_boundary
    assert fine.num_vertices == mixed_mesh(2, shapes=shapes).num_vertices
    twice = mesh.refine(2)
    assert twice.num_vertices == mixed_mesh(4, shapes=shapes).num_vertices


def test_squares_and_triangles():
    x = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1.0]])
    mesh = MixedMesh.from_arrays(
        x,
        {"triangles": [[1, 2, 4], [2, 5, 4]], "quadrilaterals": [[0, 1, 4, 3]]},
        element_attributes={"triangles": [3, 4]},
        boundary={"segments": [[0, 1], [2, 5], [1, 2]]},
        boundary_attributes={"segments": [7, 8, 7]},
        corner_order="vtk",
        element_names={"right": (3, 4)},
        boundary_names={"bottom": (7,)},
    )
    assert [part.cell.plural for part in mesh.parts] == ["quadrilaterals", "triangles"]
    assert mesh.volume() == 2.0
    assert mesh.element_attributes.tolist() == [1, 3, 4]
    assert sorted(mesh.boundary_attributes.tolist()) == [7, 7, 8]
    assert dict(mesh.boundary_names) == {"bottom": (7,)}
    fine = mesh.refine(2)
    assert fine.num_elements == 48
    assert fine.num_boundary == 12
    assert fine.num_vertices == 9 * 5
    assert "quadrilaterals and triangles" in mesh.plural
    assert "16 quadrilaterals, 32 triangles" in repr(fine)


def test_maps_move_all_parts():
    mesh = mixed_mesh(2, curved=2)
    assert mesh.order == 2
    lower, upper = mesh.bounding_box()
    x = np.concatenate([part.coordinates.reshape(-1, 3) for part in mesh.parts])
    np.testing.assert_allclose([lower, upper], [x.min(axis=0), x.max(axis=0)])
    straight = mixed_mesh(2)
    moved = straight.mapped(bulged)
    assert moved.order == 1
    assert moved.volume() != straight.volume()


def test_names_order_and_nodes():
    """What meshes of one shape have, for all parts together."""
    mesh = mixed_mesh(2, seed=1)
    named = mesh.with_names(
        {"left": lambda x: x[0] < 1, "low": lambda x: x[2] < 1},
        {"sole": lambda x: x[2] < 1e-9, "all": 1},
    )
    for part in named.parts:
        centers, left = part.element_centers(), named.element_names["left"]
        assert np.array_equal(np.isin(part.element_attributes, left), centers[:, 0] < 1)
    area = femops.integrate(femops.H1(named, 1), 1.0, boundary="sole")
    assert area == pytest.approx(2.0)
    changed = named.with_attributes(np.arange(1, named.num_elements + 1))
    assert not changed.element_names
    assert changed.boundary_names == named.boundary_names
    numbers = np.concatenate([part.element_attributes for part in changed.parts])
    assert np.array_equal(numbers, np.arange(1, named.num_elements + 1))

    order = hilbert_order(mesh.element_centers())
    along, first = changed.reordered(order), 0
    for old, part in zip(mesh.parts, along.parts, strict=True):
        mine = order[(order >= first) & (order < first + old.num_elements)] - first
        assert np.array_equal(part.coordinates, old.coordinates[mine])
        assert np.array_equal(part.element_attributes, first + 1 + mine)
        first += old.num_elements
    along.validate()
    assert np.sum([len(part.topology.joined) for part in along.parts]) == 24
    with pytest.raises(MeshArgumentError, match="each of the"):
        mesh.reordered(order[1:])

    nodes = {part.cell.plural: 2.0 * part.coordinates for part in mesh.parts[1:]}
    apart = mesh.with_nodes(nodes)  # the hexahedra stay behind
    assert apart.volume() == pytest.approx(17.0)
    assert not apart.continuous
    with pytest.raises(MeshArgumentError, match="coordinates of 'pyramids': the mesh has hexahedr"):
        mesh.with_nodes({"pyramids": nodes["prisms"]})


def _named(name):
    x, elements = blocks(1)
    hexes, prisms, tets = (elements[kind] for kind in ("hexahedra", "prisms", "tetrahedra"))
    return {
        "no shape": lambda: MixedMesh.from_arrays(x, {}),
        "pyramids": lambda: MixedMesh.from_arrays(x, {"pyramids": [[0, 1, 2, 3, 4]]}),
        "dimensions": lambda: MixedMesh.from_arrays(
            x, {"prisms": prisms, "triangles": [[0, 1, 2]]}
        ),
        "width": lambda: MixedMesh.from_arrays(x, {"prisms": hexes}),
        "beyond": lambda: MixedMesh.from_arrays(x, {"prisms": prisms + 100}),
        "faces": lambda: MixedMesh.from_arrays(x, {"prisms": prisms}, boundary={"lines": [[0, 1]]}),
        "no face": lambda: MixedMesh.from_arrays(
            x, {"prisms": prisms}, boundary={"triangles": [[1, 5, 7]]}
        ),
        "inverted": lambda: MixedMesh.from_arrays(
            x, {"hexahedra": hexes, "prisms": prisms[:, [0, 2, 1, 3, 5, 4]]}
        ),
        "twice": lambda: MixedMesh.from_arrays(x, {"prisms": np.concatenate([prisms, prisms])}),
        "attributes": lambda: MixedMesh.from_arrays(
            x, {"prisms": prisms}, element_attributes={"prisms": [1]}
        ),
        "halves": lambda: MixedMesh.from_arrays(
            np.concatenate([x, [[2.0, 0.0, 0.0]]]),
            {
                "hexahedra": [[0, 1, 3, 4, 6, 7, 9, 10]],
                "tetrahedra": [[1, 4, 7, len(x)], [4, 7, 10, len(x)]],
            },
        ),
        "overlap": lambda: MixedMesh.from_arrays(
            np.concatenate([x, [[1.5, 0.5, 0.5]]]),
            {"prisms": prisms[:1], "tetrahedra": [[*prisms[0, 3:].tolist(), len(x)]]},
        ),
        "no edges": lambda: mixed_mesh(1).topology,
        "times": lambda: mixed_mesh(1).refine(-1),
        "no such shape": lambda: MixedMesh.from_arrays(
            x, {"prisms": prisms}, coordinates={"prism": x[prisms] ** 2}
        ),
        "no such faces": lambda: MixedMesh.from_arrays(
            x, {"prisms": prisms}, boundary_attributes={"triangles": [1, 2]}
        ),
        "no such attribute": lambda: MixedMesh.from_arrays(
            x, {"prisms": prisms}, element_names={"all": 1, "none": 2}
        ),
        "no number": lambda: mixed_mesh(1).with_names(boundary={"all": [[1]]}),
        "no names": lambda: mixed_mesh(1).with_names(["all"]),
        "tets": lambda: MixedMesh.from_arrays(None, {"tetrahedra": tets}),
        "flat": lambda: MixedMesh.from_arrays(
            np.where([0, 1, 0], 0.3, x[prisms[0]]), {"prisms": [range(6)]}
        ),
        "no coordinates": lambda: mixed_mesh(1).coordinates,
        "no levels": lambda: mixed_mesh(1).refined([0]),
    }[name]


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("no shape", MeshArgumentError, "no elements"),
        ("pyramids", MeshArgumentError, "split=True"),
        ("dimensions", MeshArgumentError, "several dimensions"),
        ("width", MeshTopologyError, "shape"),
        ("beyond", MeshTopologyError, "don't exist"),
        ("faces", MeshArgumentError, "segments, triangles, quadrilaterals"),
        ("no face", MeshTopologyError, "not faces of any element"),
        ("inverted", MeshGeometryError, "inverted"),
        ("twice", MeshTopologyError, "same vertices"),
        ("attributes", MeshTopologyError, "attributes of prisms"),
        ("halves", MeshTopologyError, "quadrilateral face.*lie at triangles.*hexahedron 0"),
        ("overlap", MeshGeometryError, "same side"),
        ("no edges", AttributeError, "mesh.parts"),
        ("times", MeshArgumentError, "times"),
        ("no such shape", MeshArgumentError, "coordinates have the shape 'prism'"),
        ("no such faces", MeshArgumentError, "boundary_attributes have .*: there are none"),
        ("no such attribute", MeshArgumentError, "'none' stands for .*2"),
        ("no number", MeshArgumentError, "'all' stands for"),
        ("no names", MeshArgumentError, "give a dict"),
        ("tets", MeshArgumentError, "neither"),
        ("flat", MeshGeometryError, "of the prisms 1 of 1"),
        ("no coordinates", AttributeError, "mesh.parts"),
        ("no levels", AttributeError, r"local refinement is for .*; mesh.refine\(\) halves"),
    ],
)
def test_bad_input(name, error, words):
    with pytest.raises(error, match=words):
        _named(name)()


SOLID = "tetrahedra", "prisms", "hexahedra, prisms, tetrahedra"


@pytest.mark.parametrize("name", ["triangles", "quadrilaterals, triangles", *SOLID])
def test_one_wrong_corner_is_refused(name):
    """One that inverts no element draws it over its neighbours, which then have outer faces.

    A few draw an element out of the domain.
    """
    shapes = (*name.split(", "),)
    mesh = mixed_mesh(2, seed=1, shapes=shapes) if name in SOLID else flat_mesh(2)
    parts = {part.cell.plural: part for part in mesh.parts if part.cell.plural in shapes}
    x = np.zeros((mesh.num_vertices, mesh.dim))
    for part in mesh.parts:
        x[part.elements] = part.coordinates
    elements = {shape: part.elements for shape, part in parts.items()}
    MixedMesh.from_arrays(x, elements)
    rng, errors = np.random.default_rng(0), []
    for _ in range(60):
        some = {shape: rows.copy() for shape, rows in elements.items()}
        rows = some[rng.choice(shapes)]
        row = rows[rng.integers(len(rows))]
        row[rng.integers(len(row))] = rng.choice(np.setdiff1d(np.unique(rows), row))
        errors.append(_error(lambda some=some: MixedMesh.from_arrays(x, some)))
        if len(shapes) == 1 and name != "prisms":
            cell = "tetrahedron" if mesh.dim == 3 else None
            alone = _error(lambda some=some, c=cell: femops.Mesh.from_arrays(x, some[name], cell=c))
            assert bool(alone) == bool(errors[-1])
    assert len([*filter(None, errors)]) >= 56
    assert any("overlap at" in error for error in errors)


def _error(make):
    try:
        make()
    except MeshError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("shapes", KINDS)
def test_partitions_count_entities_once(shapes):
    """By sets of vertices, as a mesh has neither numbers nor codes."""
    mesh = mixed_mesh(2, seed=4, shapes=shapes)
    owner = np.random.default_rng(2).integers(3, size=mesh.num_elements)
    for cut in (partition(mesh, 3), Partition.of(mesh, owner, 3)):
        held: list[dict[frozenset[int], set[int]]] = [{}, {}, {}]
        owners = iter(cut.owner.tolist())
        for part in mesh.parts:
            for row in part.elements.tolist():
                rank = next(owners)
                for kind, corners in part.cell.entities:
                    if kind < 3:
                        name = frozenset(row[c] for c in corners)
                        held[kind].setdefault(name, set()).add(rank)
        for kind, every in enumerate(held):
            assert cut.total[kind] == len(every)
            assert cut.total_shared[kind] == sum(len(ranks) > 1 for ranks in every.values())
            touched = [sum(rank in ranks for ranks in every.values()) for rank in range(3)]
            assert cut.touched[:, kind].tolist() == touched
        faces = sum(len(part_of(mesh, cut, r).interface) for r in range(3))
        assert faces == 2 * cut.total_shared[2]
        assert cut.elements.max() - cut.elements.min() <= 1 or (cut.owner == owner).all()


def test_names_by_predicates_divide_attributes_of_all_parts():
    mesh = mixed_mesh(2).with_names(
        {"left": lambda x: x[0] < 1.0, "all": 1}, {"low": lambda x: x[2] < 1e-9}
    )
    V, one = femops.L2(mesh, 0), lambda x: 1.0 + 0.0 * x[0]
    assert abs(femops.integrate(V, one, boundary="low") - 2.0) < 1e-13
    numbers = np.isin(mesh.element_attributes, mesh.element_names["left"])
    assert np.array_equal(numbers, mesh.element_centers()[:, 0] < 1.0)
    assert len(mesh.element_names["all"]) == 2
    fine = mesh.refine()
    assert abs(femops.integrate(femops.L2(fine, 0), one, boundary="low") - 2.0) < 1e-13
    with pytest.raises(MeshArgumentError, match="true at the middle of no element"):
        mesh.with_names({"none": lambda x: x[0] > 9.0})
