"""Sides that a periodic mesh joins by a turn, as the sides of a sector of a ring.

A scalar field is the same on both sides. The components of a vector field would have to turn.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from femops.numbering import local_nodes, ternary_codes
from femops.parallel.comm import gathered
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1
from femops_kernels.exclusive import Derived
from femops_meshes.coordinates.hanging import with_larger_nodes
from femops_meshes.mesh import Mesh
from femops_meshes.topology.entities import entity_codes

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_TORN = 1e-10  # least distance of sides at two positions, relative to the size of the mesh
_TURNED = 1e-6  # difference of an edge's two directions, relative to its length

_found = Derived[Mesh, bool]()


def sides_turn(space: Space) -> bool:
    """True if the mesh of a space joins sides by more than a shift. Collective.

    If sides are joined by shifts, an edge has the same direction in all elements.
    """
    return _found.get(space.mesh, partial(_look, space))


def _look(space: Space) -> bool:
    mesh, comm, dim = space.mesh, space.comm, space.dim
    nodes = [(mesh.order + 1) ** d * mesh.order for d in range(dim)]
    ends = np.array([sum(n for d, n in enumerate(nodes) if a >> d & 1) for a in range(2**dim)])
    corners = mesh.coordinates[:, ends]
    carrier, vertices = mesh.topology.carrying[0], entity_codes(dim, 0)
    own = carrier == mesh.topology.entity
    if not _torn(space, corners, own[:, vertices]):
        return False
    along = _edges(mesh, mesh.elements, corners)
    if not (space.distributed or mesh).conforming:
        # edges that hang are compared as those of which they are parts
        larger = _edges(mesh, carrier[:, vertices], _larger_corners(space, corners))
        along = np.where(own[:, :, np.newaxis], along, larger)
    gaps = _gaps(_like(space, 2), along, own)
    lengths = np.linalg.norm(along, axis=-1)
    return bool(comm.max(int((gaps > _TURNED * lengths).any())))


def _larger_corners(space: Space, corners: Floats) -> Floats:
    """Corners (ne, 2**dim, dim), with those of larger entities at hanging ones. Collective."""
    mesh, whole = space.mesh, space.distributed
    carriers = mesh.topology.carriers
    hanging = np.zeros((0, 3), dtype=np.int64) if carriers is None else carriers.hanging
    if whole is None:
        return with_larger_nodes(corners, hanging, mesh.trees.siblings)
    held = whole.part.elements
    every = np.empty((whole.num_elements, *corners.shape[1:]))
    every[gathered(space.comm, held)] = gathered(space.comm, corners)
    hanging = np.column_stack([held[hanging[:, 0]], hanging[:, 1:]])
    return with_larger_nodes(every, hanging, whole.trees.siblings)[held]


def _edges(mesh: Mesh, vertices: NDArray[np.int64], corners: Floats) -> Floats:
    """Vector (ne, 3**dim, dim) along each edge, from its lower to its higher vertex; else zero."""
    dim = mesh.dim
    along = np.zeros((mesh.num_elements, 3**dim, dim))
    for _, digits in ternary_codes(dim):
        if digits.count(1) == 1:
            d, low = digits.index(1), sum(1 << k for k, digit in enumerate(digits) if digit == 2)
            first, last = vertices[:, low], vertices[:, low | 1 << d]
            sign = np.where(first < last, 1.0, -1.0)  # parts number vertices in the same order
            edge = corners[:, low | 1 << d] - corners[:, low]
            along[:, local_nodes(digits, 2)[0]] = sign[:, np.newaxis] * edge
    return along


def _torn(space: Space, corners: Floats, own: Flags) -> bool:
    """True if corners (ne, 2**dim, dim) that elements share have several positions. Collective.

    `own` (ne, 2**dim): False for corners that hang.
    """
    mesh, comm = space.mesh, space.comm
    places = corners.reshape(-1, space.dim)
    high, low = (comm.max((s * places).max(axis=0, initial=-np.inf)) for s in (1.0, -1.0))
    size = (high + low).max()
    if comm.size > 1:
        gaps = _gaps(_like(space, 1), corners, own) * own
    else:  # the same, in less time
        shared = np.empty((mesh.num_vertices, space.dim))
        shared[mesh.elements] = corners
        gaps = np.abs(corners - shared[mesh.elements])
    return bool(comm.max(int((gaps > _TORN * size).any())))


def _like(space: Space, order: int) -> H1:
    return H1(space.distributed or space.mesh, order, space.dim)


def _gaps(space: H1, values: Floats, own: Flags) -> Floats:
    """Distance (ne, n) of values (ne, n, dim) at nodes from their mean over elements.

    Nodes that hang, where `own` (ne, n) is False, are compared, but have no part in the mean.
    """
    parts = np.broadcast_to(own[:, :, np.newaxis], values.shape).astype(np.float64)
    mean = space.sum_elements(parts * values) / space.sum_elements(parts)
    there = space.restriction.entries(space.l_vec(mean)).reshape(values.shape)
    return np.asarray(np.linalg.norm(values - there, axis=-1))
