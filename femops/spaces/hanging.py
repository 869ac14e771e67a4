"""Hanging entities of the elements behind faces, and of the faces themselves; see `Carriers`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.element import halves_of
from femops.geometry.interior import InteriorFaces, SharedFaces
from femops_meshes.coordinates.hanging import HangingNodes
from femops_meshes.mesh import Mesh

Ints = NDArray[np.int64]


def hanging_nodes(space: Any, mesh: Mesh) -> HangingNodes | None:
    """Nodes of a continuous space on hanging entities of a mesh, see `Carriers`; None without."""
    carriers = mesh.topology.carriers
    if carriers is None or not len(carriers.hanging) or not space.continuous:
        return None
    return HangingNodes(space.dim, mesh.num_elements, carriers.hanging, halves_of(space.element))


def of_elements(hanging: HangingNodes, elements: Ints) -> Ints:
    """Rows (n, 3) of `HangingNodes.hanging` of elements (k,), with their places k as elements.

    An element may occur several times.
    """
    first, end = (np.searchsorted(hanging.hanging[:, 0], elements + k) for k in (0, 1))
    counts = end - first
    place, before = np.repeat(np.arange(len(elements)), counts), np.cumsum(counts) - counts
    rows = hanging.hanging[np.arange(len(place)) + np.repeat(first - before, counts)]
    return np.column_stack([place, rows[:, 1:]])


def behind_faces(hanging: HangingNodes, elements: Ints, strides: Ints) -> HangingNodes:
    """Hanging nodes of elements (k,) that are turned to faces.

    ``strides`` (k, dim): steps from node to node of the element along the turned directions.
    """
    rows, dim = of_elements(hanging, elements), hanging.dim
    strides = strides[rows[:, 0]]
    direction = np.searchsorted((hanging.p + 1) ** np.arange(1, dim), np.abs(strides), side="right")
    digits = np.take_along_axis(_digits(rows[:, 1], dim), direction, axis=1)
    bits = np.take_along_axis(rows[:, 2:] >> np.arange(dim) & 1, direction, axis=1)
    digits = np.where(strides < 0, 2 - digits, digits)
    bits = np.where(strides < 0, 1 - bits, bits)
    return _of(hanging, len(elements), dim, rows[:, 0], digits, bits)


def on_faces(hanging: HangingNodes, elements: Ints, codes: Ints) -> HangingNodes:
    """Hanging nodes of faces of elements (k,), which are elements of one dimension less."""
    rows, dim = of_elements(hanging, elements), hanging.dim
    own, face = _digits(rows[:, 1], dim), _digits(codes, dim)[rows[:, 0]]
    common = np.where(own == 1, face, own)
    meet = ((own == 1) | (face == 1) | (own == face)).all(axis=1) & (common == 1).any(axis=1)
    whole = np.zeros(len(elements), dtype=np.bool_)  # faces that hang themselves
    whole[rows[(own == face).all(axis=1), 0]] = True
    meet &= ~whole[rows[:, 0]] | (common == face).all(axis=1)
    rows, common, face = rows[meet], common[meet], face[meet]
    along = np.argsort(face != 1, axis=1, kind="stable")[:, : dim - 1]
    digits = np.take_along_axis(common, along, axis=1)
    bits = np.take_along_axis(rows[:, 2:] >> np.arange(dim) & 1, along, axis=1)
    return _of(hanging, len(elements), dim - 1, rows[:, 0], digits, bits)


def beside_faces(
    space: Any, faces: InteriorFaces | SharedFaces, side: int, *, slopes: bool
) -> HangingNodes | None:
    """Hanging nodes of one side's elements, turned to the faces between elements, or of the faces.

    None on a mesh that conforms. ``slopes``: whether functions have derivatives.
    """
    dim = space.dim
    if isinstance(faces, SharedFaces) or faces.around.topology.carriers is None or dim == 1:
        return None
    elements, parts = faces.elements[side], faces.turned_parts[side]
    hanging = hanging_nodes(space, faces.around)
    if hanging is None:
        none = np.zeros((0, 3), dtype=np.int64)
        found = HangingNodes(dim, len(elements), none, halves_of(space.element))
    else:
        nodes = faces.nodes(side, hanging.p + 1)
        steps = [nodes[:, (hanging.p + 1) ** d] - nodes[:, 0] for d in range(dim)]
        found = behind_faces(hanging, elements, np.stack(steps, axis=1))
    if slopes:
        return replace(found, parts=parts)
    low = (3 ** (dim - 1) - 1) // 2  # code of the face of turned elements, and of a whole face
    found = on_faces(found, np.arange(len(elements)), np.full(len(elements), low))
    rows = np.concatenate([found.hanging, parts])  # a larger element's face does not hang
    return replace(found, hanging=rows[np.argsort(rows[:, 0], kind="stable")])


def _digits(codes: Ints, dim: int) -> Ints:
    return codes[:, np.newaxis] // 3 ** np.arange(dim) % 3


def _of(
    hanging: HangingNodes, count: int, dim: int, place: Ints, digits: Ints, bits: NDArray[Any]
) -> HangingNodes:
    code, half = digits @ 3 ** np.arange(dim), bits @ (1 << np.arange(dim))
    rows = np.unique(np.column_stack([place, (digits == 1).sum(axis=1), code, half]), axis=0)
    return replace(hanging, dim=dim, ne=count, hanging=rows[:, [0, 2, 3]])
