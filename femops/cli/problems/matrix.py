"""Cost of a matrix: its number of nonzeros, counted without assembly."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from femops.spaces.h1_l2 import H1, Space
from femops_meshes.topology.topology import entity_dimension


def matrix_nonzeros(space: Space) -> int:
    """Number of nonzeros of a matrix on the space: pairs of dofs that share an element.

    All dofs of two entities of an element couple. So the function counts pairs of entities
    (vertices, edges, faces, cells), weighted by their dofs. The number is exact for H1 and L2.
    Entries that vanish by chance are counted, because a matrix would store them. Components couple
    only with themselves (as in mass and diffusion).
    """
    mesh, per_cell = space.mesh, space.element.size
    if not isinstance(space, H1):
        return int(mesh.num_elements * per_cell**2 * space.ncomp)
    kinds = np.array(entity_dimension(mesh.dim))
    counts = mesh.topology.num_entities
    first = np.concatenate([[0], np.cumsum(counts)])
    inside = [(space.order - 1) ** kind for kind in range(mesh.dim + 1)]
    # An entity without dofs couples to nothing: leave it out.
    used = np.flatnonzero([inside[kind] > 0 for kind in kinds])
    columns = (mesh.topology.carrying[0] + first[kinds])[:, used]
    rows = np.repeat(np.arange(mesh.num_elements), len(used))
    shape = (mesh.num_elements, int(first[-1]))
    incidence = csr_array((np.ones(columns.size, dtype=np.int8), (rows, columns.ravel())), shape)
    weights = np.repeat(np.array(inside, dtype=np.int64), counts)
    total, step = 0, 200_000
    for start in range(0, shape[1], step):
        pairs = incidence[:, start : start + step].T @ incidence
        pairs.data[:] = 1
        total += int(weights[start : start + step] @ (pairs.astype(np.int64) @ weights))
    return total * space.ncomp


def csr_bytes(space: Space) -> int:
    """Bytes of a matrix on the space in compressed rows: 8 per value, 4 or 8 per index."""
    nonzeros = matrix_nonzeros(space)
    index = 4 if max(nonzeros, space.size) < 2**31 else 8
    return nonzeros * (8 + index) + (space.size + 1) * index
