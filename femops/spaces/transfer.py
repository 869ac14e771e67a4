"""Location of a space's nodes in the elements of another mesh."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.basis import Basis1D
from femops.errors import ProbeError, SpaceError
from femops.geometry.batching import element_blocks
from femops.geometry.evaluation import point_values
from femops.geometry.location import locate
from femops_meshes.mesh import Mesh
from femops_meshes.parents import parents_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def values_of_field(source: Any, vector: NDArray[Any], target: Any) -> Floats:
    """Values (target.size,) of a function of the space `source` at the nodes of another space."""
    if (source.ncomp, source.dim) != (target.ncomp, target.dim):
        raise SpaceError(
            f"a field of {source.ncomp} component(s) in {source.dim}-D cannot be interpolated "
            f"to {target!r}: take a space with as many"
        )
    same = source.mesh is target.mesh and source.distributed is target.distributed
    if not same and max(source.comm.size, target.comm.size) > 1:
        raise SpaceError(
            "a field on another mesh cannot be interpolated where ranks share a mesh, as each "
            "has but a part: interpolate in one process, or evaluate it by femops.Probe"
        )
    owners = np.divmod(target.restriction.owner[: target.ndofs], target.p1d**target.dim)
    elements, reference = places_of_nodes(
        source.mesh, target.mesh, owners, target.basis.nodes, target.dof_coordinates()
    )
    l_vec, indices = source.l_vec(vector), source.restriction.indices
    return values_at(source.basis, l_vec, indices, elements, reference).reshape(-1)


def places_of_nodes(
    source: Mesh, target: Mesh, owners: tuple[Ints, Ints], nodes: Floats, x: Floats
) -> tuple[Ints, Floats]:
    """Find the element (n,) of `source` and reference coordinates (n, dim) of `target`'s nodes.

    If `target` is known to be a refinement of `source`, the result is exact. Else the nodes are
    located by position.

    Shapes: `owners` (n,), `nodes` (p1d,), `x` (n, dim).
    """
    parents = parents_of(target, source)
    if parents is not None:
        elements, local = owners
        grid = np.stack([local // len(nodes) ** d % len(nodes) for d in range(target.dim)], axis=1)
        reference = parents.low[elements] + parents.width * nodes[grid]
        return parents.elements[elements], reference
    found, reference, _ = locate(source, x)
    outside = np.flatnonzero(found < 0)
    if len(outside):
        where = ", ".join(f"{c:.6g}" for c in x[outside[0]])
        raise ProbeError(
            f"{len(outside)} of {len(x)} nodes of the space lie outside the mesh of the field, the "
            f"first of them at ({where}): the field has no values there; take a field on a mesh "
            "that covers this one, curved sides included"
        )
    return found, reference


def values_at(
    basis: Basis1D, l_vec: NDArray[Any], indices: Ints, elements: Ints, reference: Floats
) -> Floats:
    """Evaluate a function at points in elements: (n[, ncomp]).

    Shapes: `indices` (ne, p1d**dim), `elements` (n,), `reference` (n, dim).
    """
    n, shape = len(elements), l_vec.shape[1:]
    result = np.empty((n, *shape))
    for start, stop in element_blocks(n, math.prod((*indices.shape[1:], *shape))):
        e_vec = np.asarray(l_vec[indices[elements[start:stop]]], dtype=np.float64)
        result[start:stop] = point_values(basis, reference[start:stop], e_vec)
    return result
