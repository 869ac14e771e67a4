"""Values of a function at the nodes of another space."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import ProbeError, SpaceError
from femops.geometry.domain import element_blocks
from femops.geometry.location import locate
from femops_meshes.mesh import Mesh
from femops_meshes.parents import parents_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def values_of_field(source: Any, vector: Any, target: Any, places: Ints, x: Floats) -> Floats:
    """Values (n[, ncomp]) of a function at x (n, dim): at `places` in an e_vec of `target`."""
    if (source.ncomp, source.dim) != (target.ncomp, target.dim):
        raise SpaceError(
            f"a field of {source.ncomp} component(s) in {source.dim}-D cannot be interpolated "
            f"to {target!r}: take a space with the same numbers"
        )
    same = source.mesh is target.mesh and source.distributed is target.distributed
    if not same and max(source.comm.size, target.comm.size) > 1:
        raise SpaceError(
            "a field on another mesh cannot be interpolated where ranks share a mesh, as each "
            "has but a part: interpolate in one process, or evaluate it by femops.Probe"
        )
    if source.mixed:
        return _of_parts(source, vector, x)
    owners = np.divmod(places, target.element.size)
    elements, reference = places_of_nodes(source.mesh, target.mesh, owners, target.element.nodes, x)
    return values_at(source, source.l_vec(vector), elements, reference)


def _of_parts(source: Any, vector: Any, x: Floats) -> Floats:
    """Values (n[, ncomp]) at x (n, dim) of a function on a mesh of several shapes, by search."""
    l_vec, left = source.l_vec(vector), np.arange(len(x))
    result = np.empty((len(x), *l_vec.shape[1:]))
    for part in source.parts:
        found, reference, _ = locate(part.mesh, x[left])
        some = np.flatnonzero(found >= 0)
        result[left[some]] = values_at(part, l_vec, found[some], reference[some])
        left = left[found < 0]
    if len(left):
        raise _outside(left, x)
    return result


def _outside(outside: Ints, x: Floats) -> ProbeError:
    where = ", ".join(f"{c:.6g}" for c in x[outside[0]])
    return ProbeError(
        f"{len(outside)} of {len(x)} nodes of the space lie outside the mesh of the field, the "
        f"first of them at ({where}): the field has no values there; take a field on a mesh "
        "that covers this one, curved sides included"
    )


def places_of_nodes(
    source: Mesh, target: Mesh, owners: tuple[Ints, Ints], nodes: list[Floats] | Floats, x: Floats
) -> tuple[Ints, Floats]:
    """Find the element (n,) of `source` and reference coordinates (n, dim) of `target`'s nodes.

    If `target` is known to be a refinement of `source`, the result is exact. Else the nodes are
    located by position.

    Shapes: `owners` (n,), `nodes` (functions,) for each direction or (functions, dim), `x` (n,
    dim).
    """
    parents = parents_of(target, source)
    if parents is not None:
        elements, local = owners
        points = nodes
        if isinstance(nodes, list):
            grid = np.stack(np.meshgrid(*nodes[::-1], indexing="ij")[::-1], axis=-1)
            points = grid.reshape(-1, target.dim)
        points = points[local]
        reference = parents.low[elements] + parents.width[elements] * points
        return parents.elements[elements], reference
    found, reference, _ = locate(source, x)
    outside = np.flatnonzero(found < 0)
    if len(outside):
        raise _outside(outside, x)
    return found, reference


def values_at(space: Any, l_vec: NDArray[Any], elements: Ints, reference: Floats) -> Floats:
    """Evaluate a function at points in elements: (n[, ncomp]).

    Shapes: `elements` (n,), `reference` (n, dim).
    """
    n, shape = len(elements), l_vec.shape[1:]
    result = np.empty((n, *shape))
    for start, stop in element_blocks(n, math.prod((space.element.size, *shape))):
        e_vec = space.element_vector(l_vec, elements[start:stop])
        result[start:stop] = space.element.values_at(reference[start:stop], e_vec)
    return result
