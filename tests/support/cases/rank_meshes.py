"""Meshes to be distributed, and what each rank must hold of them, by plain lists."""

from itertools import pairwise

import numpy as np

import femops
from femops_meshes import Partition, part_of

IN_PART = ("elements", "vertices", "interface")
IN_MESH = (
    "elements",
    "coordinates",
    "element_attributes",
    "boundary",
    "boundary_attributes",
    "file_elements",
)


def striped(mesh):
    """Attributes of which each rank has but a few, some of them by name."""
    inside = 10 + np.arange(mesh.num_elements) // 3
    sides = 1 + np.arange(mesh.num_boundary) // 2
    mesh = mesh.with_attributes(inside, sides)
    return mesh.with_names({"first": 10, "some": (10, 11)}, {"outer": int(sides.max())})


SAMPLES = {
    "ball": lambda: striped(femops.read_mesh(femops.sample("ball.mesh"))),
    "periodic": lambda: femops.read_mesh(femops.sample("periodic.mesh")),
    "disc": lambda: striped(femops.disc(order=2)),
    "square": lambda: striped(femops.box((7, 4), order=2)),
    "line": lambda: striped(femops.box(6)),
    "cube": lambda: striped(femops.box((3, 2, 2), periodic=(True, False, False))),
}


def groups_of(count):
    """The elements of each group: as many in each, a multiple of 16, at most 840 groups."""
    each = 16
    while each * 840 < count:
        each += 16
    return [list(range(first, min(first + each, count))) for first in range(0, count, each)]


def whole_groups(mesh, size):
    """The partition of a reproducible mesh."""
    groups = groups_of(mesh.num_elements)
    owner = np.empty(mesh.num_elements, dtype=int)
    for rank, mine in enumerate(np.array_split(np.arange(len(groups)), size)):
        for number in mine:
            owner[groups[number]] = rank
    return Partition.of(mesh, owner, size)


def check_mesh(got, mesh, shares, comm):
    """A rank holds its part of the whole mesh, and knows what it must of the rest."""
    part, expected = got.part, part_of(mesh, shares, comm.rank)
    assert got.comm is comm
    assert got.mesh is part.mesh
    assert (part.rank, part.size) == (comm.rank, comm.size)
    assert (part.num_elements, part.num_vertices) == (mesh.num_elements, mesh.num_vertices)
    for name in IN_PART:
        same(getattr(part, name), getattr(expected, name))
    for name in IN_MESH:
        same(getattr(part.mesh, name), getattr(expected.mesh, name))
    part.mesh.validate()
    assert (got.dim, got.num_elements) == (mesh.dim, mesh.num_elements)
    assert (got.mesh.dim, got.mesh.order) == (mesh.dim, mesh.order)
    assert dict(got.element_names) == dict(mesh.element_names)
    assert dict(got.boundary_names) == dict(mesh.boundary_names)
    assert got.whole_element_attributes.tolist() == sorted(set(mesh.element_attributes.tolist()))
    assert got.whole_boundary_attributes.tolist() == sorted(set(mesh.boundary_attributes.tolist()))


def same(got, expected):
    """The same bits, which nobody can change."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()
    assert not got.flags.writeable


def check_groups(got):
    """Groups are those of the whole mesh, from the first to the last of the rank's elements."""
    assert got.reproducible == (got.element_groups is not None)
    mine = got.part.elements.tolist()
    expected = [group for group in groups_of(got.num_elements) if set(group) <= set(mine)]
    cuts = got.element_groups.tolist()
    assert [mine[a:b] for a, b in pairwise(cuts)] == expected
    assert sum(map(len, expected)) == len(mine)
    assert got.element_groups.dtype == np.int64
    assert not got.element_groups.flags.writeable
