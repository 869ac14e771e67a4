"""Values of a function at the nodes of another space."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import ProbeError, SpaceError
from femops.geometry.domain import element_blocks
from femops.geometry.location import locate, locate_beside
from femops_meshes.coordinates.mapping import positions
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.parents import parents_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DRAWN = 1e-4  # of the way to the middle of the element


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
    owners = np.divmod(places, target.element.size)
    l_vec = source.l_vec(vector)
    elements, reference = _places(source, target, owners, x)
    result, first = np.empty((len(x), *l_vec.shape[1:])), 0
    for part in source.parts:
        last = first + part.mesh.num_elements
        some = np.flatnonzero((elements >= first) & (elements < last))
        result[some] = values_at(part, l_vec, elements[some] - first, reference[some])
        first = last
    return result


def _places(source: Any, target: Any, owners: tuple[Ints, Ints], x: Floats) -> tuple[Ints, Floats]:
    """Element (n,) of `source`, counted part by part, and reference coordinates of nodes at x.

    Where functions of both spaces jump, a node takes the side on which its own element lies.
    """
    if source.continuous or target.continuous:
        return places_of_nodes(source.mesh, target.mesh, owners, target.element.nodes, x)
    beside = _beside(target.mesh, owners, target.element.nodes)
    return places_of_nodes(source.mesh, target.mesh, owners, target.element.nodes, x, beside)


def _beside(mesh: Mesh, owners: tuple[Ints, Ints], nodes: list[Floats] | Floats) -> Floats:
    """Points (n, dim) beside nodes, drawn towards the middles of the elements that own them."""
    drawn = [_drawn(each, 0.5) for each in nodes] if isinstance(nodes, list) else None
    at = drawn or _drawn(nodes, mesh.cell.center)
    return positions(mesh.coordinates, at)[owners]


def _drawn(nodes: Any, middle: Any) -> Floats:
    return np.asarray(nodes + _DRAWN * (middle - nodes))


def _outside(outside: Ints, x: Floats) -> ProbeError:
    where = ", ".join(f"{c:.6g}" for c in x[outside[0]])
    return ProbeError(
        f"{len(outside)} of {len(x)} nodes of the space lie outside the mesh of the field, the "
        f"first of them at ({where}): the field has no values there; take a field on a mesh "
        "that covers this one, curved sides included"
    )


def places_of_nodes(
    source: Mesh | MixedMesh,
    target: Mesh,
    owners: tuple[Ints, Ints],
    nodes: list[Floats] | Floats,
    x: Floats,
    beside: Floats | None = None,
) -> tuple[Ints, Floats]:
    """Find the element (n,) of `source` and reference coordinates (n, dim) of `target`'s nodes.

    If `target` is known to be a refinement of `source`, the result is exact. Else the nodes are
    located by position.

    Shapes: `owners` (n,), `nodes` (functions,) for each direction or (functions, dim), `x` and
    `beside` (n, dim). Of several elements that contain a node, it is that of the point `beside`.
    """
    parents = parents_of(target, source) if isinstance(source, Mesh) else None
    if parents is not None:
        elements, local = owners
        points = nodes
        if isinstance(nodes, list):
            grid = np.stack(np.meshgrid(*nodes[::-1], indexing="ij")[::-1], axis=-1)
            points = grid.reshape(-1, target.dim)
        points = points[local]
        reference = parents.low[elements] + parents.width[elements] * points
        return parents.elements[elements], reference
    if beside is None:
        found, reference, _ = locate(source, x)
    else:
        found, reference = locate_beside(source, x, beside)
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
