"""The visible surface of a 3-D mesh: faces sampled, seen from a direction, far ones first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.geometry.evaluation import reference_values
from femops.spaces.h1_l2 import Space
from femops_meshes import Mesh
from femops_meshes.coordinates.interpolation import equispaced
from femops_meshes.coordinates.mapping import positions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FACE_DIRECTIONS = {
    code: (d, side) for d in range(3) for side, code in ((0, 13 - 3**d), (1, 13 + 3**d))
}
"""For the ternary code of each face: its normal direction, and its end (0 low, 1 high)."""


@final
@dataclass(frozen=True)
class Surface:
    """Faces sampled at n**2 points each.

    Attributes
    ----------
    points : (faces, n, n, 3)
        Such that the first index, the second and the outer normal are right-handed.
    values : (faces, n, n) or None
    """

    points: Floats
    values: Floats | None


def kept_elements(mesh: Mesh, view: Floats, cut: bool) -> NDArray[np.bool_]:
    """Elements to show, (ne,): all, or with `cut` those outside the octant next to the viewer."""
    if not cut:
        return np.ones(mesh.num_elements, dtype=np.bool_)
    lower, upper = mesh.bounding_box()
    toward = (mesh.element_centers() - (lower + upper) / 2) * np.sign(view)
    keep = np.asarray(~(toward > 0).all(axis=1), dtype=np.bool_)
    return keep if keep.any() else ~keep


def exposed_faces(mesh: Mesh, keep: NDArray[np.bool_]) -> Ints:
    """Element and ternary code, (faces, 2), of the faces with a kept element on one side only."""
    faces, codes = mesh.topology.faces, mesh.topology.face_codes
    kept = np.where(faces >= 0, keep[faces], False)
    exposed = np.flatnonzero(kept[:, 0] != kept[:, 1])
    side = np.where(kept[exposed, 0], 0, 1)
    return np.stack([faces[exposed, side], codes[exposed, side]], axis=1).astype(np.int64)


def sample_surface(mesh: Mesh, faces: Ints, n: int, space: Space | None, u: Any) -> Surface:
    """Sample the faces at n x n equispaced points, and the field's magnitude on them."""
    grid = equispaced(n)
    owners = np.unique(faces[:, 0])
    where = positions(mesh.coordinates[owners], grid).reshape(-1, n, n, n, 3)
    values = None
    if space is not None:
        e_vec = np.asarray(u[space.restriction.indices[owners]], dtype=np.float64)
        at_points = reference_values(space.basis, grid, 3, e_vec)
        values = magnitude(at_points).reshape(-1, n, n, n)
    place = np.searchsorted(owners, faces[:, 0])
    points = np.empty((len(faces), n, n, 3))
    shown = None if values is None else np.empty((len(faces), n, n))
    for code, (direction, side) in FACE_DIRECTIONS.items():
        mine = np.flatnonzero(faces[:, 1] == code)
        layer: list[Any] = [place[mine], slice(None), slice(None), slice(None)]
        layer[3 - direction] = side * (n - 1)
        # Arrays are [z, y, x]: what is left are two ascending axes, the later direction first.
        # That order is right-handed with the outer normal for x and z low, and for y high.
        swap = (direction == 1) == (side == 0)
        points[mine] = _turned(where[tuple(layer)], swap)
        if shown is not None and values is not None:
            shown[mine] = _turned(values[tuple(layer)], swap)
    return Surface(points, shown)


def _turned(array: Floats, swap: bool) -> Floats:
    return array.swapaxes(1, 2) if swap else array


def magnitude(values: Floats) -> Floats:
    """Return values (n, k) unchanged, and the Euclidean length of vectors (n, k, ncomp)."""
    return values if values.ndim == 2 else np.linalg.norm(values, axis=2)


def view_axes(view: Floats) -> Floats:
    """Orthonormal rows: right, up, toward the viewer; z is up on the picture."""
    toward = view / np.linalg.norm(view)
    right = np.cross([0.0, 0.0, 1.0], toward)
    right /= np.linalg.norm(right)
    return np.array([right, np.cross(toward, right), toward])
