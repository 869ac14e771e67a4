"""Meshes shared out among ranks, and what ranks then hold, by loops over sets."""

import numpy as np
from hypothesis import strategies as st

import femops
from femops import H1, Mesh
from femops_meshes import Partition, part_of, partition
from support.cases.meshes import MESHES, PERIODIC, scrambled_box


def joined(first, second, at, name):
    """Two meshes as one, in which vertex ``name[k]`` of the second is vertex ``at[k]``."""
    number = np.arange(second.num_vertices) + first.num_vertices
    number[list(name)] = list(at)
    elements = np.concatenate([first.elements, number[second.elements]])
    coordinates = np.concatenate([first.coordinates, second.coordinates])
    return Mesh.from_arrays(None, elements, coordinates=coordinates)


def corner_of(mesh, *places):
    """Numbers of the vertices at these places."""
    points = np.empty((mesh.num_vertices, mesh.dim))
    corners = np.arange(2**mesh.dim)[:, None] >> np.arange(mesh.dim) & 1
    nodes = corners * mesh.order @ (mesh.order + 1) ** np.arange(mesh.dim)
    points[mesh.elements] = mesh.coordinates[:, nodes]
    return [int(np.argmin(np.abs(points - place).sum(axis=1))) for place in places]


def touching_squares():
    """Two squares with one vertex in common."""
    a, b = femops.box((2, 2)), femops.box((2, 2), lower=(1, 1), upper=(2, 2))
    return joined(a, b, corner_of(a, (1, 1)), corner_of(b, (1, 1)))


def touching_cubes():
    """Two columns of cubes with a line of edges in common."""
    a, b = femops.box((1, 1, 2)), femops.box((1, 1, 2), lower=(1, 1, 0), upper=(2, 2, 1))
    ends = [(1, 1, 0), (1, 1, 0.5), (1, 1, 1)]
    return joined(a, b, corner_of(a, *ends), corner_of(b, *ends))


def pinned_sheets():
    """Two squares with their middle vertices in common, which are inside both."""
    a, b = femops.box((2, 2)), femops.box((2, 2))
    return joined(a, b, corner_of(a, (0.5, 0.5)), corner_of(b, (0.5, 0.5)))


TOUCHING = {
    "touching squares": touching_squares,
    "touching cubes": touching_cubes,
    "pinned sheets": pinned_sheets,
}

ALL = {
    **{name: make for name, make in MESHES.items() if not name.startswith("curved")},
    **{name: make for name, (make, _) in PERIODIC.items()},
    **TOUCHING,
}


@st.composite
def shared_meshes(draw):
    """A mesh and a partition of it: pieces of the curve, or any owners, ranks without any too."""
    size = draw(st.integers(1, 7))
    if draw(st.booleans()):
        mesh = ALL[draw(st.sampled_from([name for name in ALL if name != "ball"]))]()
    else:
        counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        mesh = scrambled_box(tuple(counts), draw(st.integers(0, 10**6)))
    if draw(st.booleans()):
        return mesh, partition(mesh, size)
    owners = st.integers(0, size - 1)
    ne = mesh.num_elements
    owner = draw(st.lists(owners, min_size=ne, max_size=ne))
    return mesh, Partition.of(mesh, np.array(owner), size)


def parts_of(mesh, cut):
    """The parts of all ranks."""
    return [part_of(mesh, cut, rank) for rank in range(cut.size)]


def holders(mesh, cut, p):
    """Of the serial H1 numbering: {dof: ranks that touch it, ascending}."""
    found = {}
    for e, row in enumerate(H1(mesh, p).restriction.indices.tolist()):
        for dof in row:
            found.setdefault(dof, set()).add(int(cut.owner[e]))
    return {dof: sorted(ranks) for dof, ranks in found.items()}
