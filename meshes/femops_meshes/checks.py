"""Checks of what users and files hand in; each failure is one clear error."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_meshes.errors import MeshArgumentError, MeshGeometryError, MeshTopologyError
from femops_meshes.interpolation import gauss_legendre
from femops_meshes.mapping import determinants, geometry_degree, jacobians
from femops_meshes.topology import check_dangling, listed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGEST = 1e100
"""Largest coordinate: its cube, a determinant, is still a finite number."""

_BLOCK = 65536


def corner_array(values: ArrayLike, name: str, widths: tuple[int, ...]) -> Ints:
    """Copy vertex numbers into an int64 array (n, width).

    Raises
    ------
    MeshTopologyError
        If they are no whole numbers, or of another shape.
    """
    array = np.array(values)
    if array.size == 0 and name == "boundary":
        return np.zeros((0, widths[0]), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] not in widths or len(array) == 0:
        allowed = " or ".join(str(width) for width in widths)
        raise MeshTopologyError(
            f"{name} has shape {array.shape}: it must be (n, {allowed}), n >= 1, one row of vertex "
            "numbers an entry (2 corners for a segment, 4 for a quadrilateral, 8 for a hexahedron)"
        )
    if array.dtype.kind not in "iu":
        raise MeshTopologyError(f"{name} holds {array.dtype}: vertex numbers must be integers")
    return array.astype(np.int64)


def attribute_array(values: ArrayLike | None, count: int, name: str) -> NDArray[np.int32]:
    """Copy attributes into an int32 array (count,); None for all 1.

    Raises
    ------
    MeshTopologyError
        If their number is wrong or one is not a positive 32-bit integer.
    """
    if values is None:
        return np.ones(count, dtype=np.int32)
    array = np.array(values)
    if array.shape != (count,):
        raise MeshTopologyError(f"{name} has shape {array.shape}, it must be ({count},): one each")
    if count == 0:
        return np.zeros(0, dtype=np.int32)
    if array.dtype.kind not in "iu" or array.min() < 1 or array.max() > 2**31 - 1:
        raise MeshTopologyError(
            f"{name} must be integers from 1 to 2**31 - 1, got {array.dtype} from {array.min()} "
            f"to {array.max()}"
        )
    return array.astype(np.int32)


def node_coordinates(
    vertices: ArrayLike | None, coordinates: ArrayLike | None, elements: Ints
) -> Floats:
    """Copy coordinates (ne, m, dim) of the elements' nodes, from vertices where None.

    Raises
    ------
    MeshTopologyError
        If a vertex number dangles.
    MeshGeometryError
        If shapes don't fit.
    MeshArgumentError
        If both are None.
    """
    dim = elements.shape[1].bit_length() - 1
    if vertices is not None:
        points = np.array(vertices, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != dim:
            raise MeshGeometryError(
                f"vertices have shape {points.shape}, elements with {elements.shape[1]} corners "
                f"need (nv, {dim}): surfaces in a higher dimension are not supported"
            )
        check_dangling(elements, len(points))
        if coordinates is None:
            return points[elements]
    if coordinates is None:
        raise MeshArgumentError("neither vertices nor coordinates are given: give one of them")
    nodes = np.array(coordinates, dtype=np.float64)
    if nodes.ndim != 3 or nodes.shape[0] != len(elements) or nodes.shape[2] != dim:
        raise MeshGeometryError(
            f"coordinates have shape {nodes.shape}, it must be ({len(elements)}, (g + 1)**{dim}, "
            f"{dim}), g >= 1"
        )
    geometry_degree(nodes.shape[1], dim)
    return nodes


def compress_vertices(elements: Ints) -> tuple[Ints, Ints]:
    """Number the vertices anew, without those that no element uses; the others keep their order.

    Returns
    -------
    elements, used
        The new numbers, and the old number (num_vertices,) of each new one.

    Raises
    ------
    MeshTopologyError
        If a number is negative.
    """
    used, compressed = np.unique(elements, return_inverse=True)
    if used[0] < 0:
        check_dangling(elements, int(used[-1]) + 1)
    return compressed.reshape(elements.shape).astype(np.int64, copy=False), used


def compress_boundary(boundary: Ints, used: Ints) -> Ints:
    """Number the vertices of the boundary as `compress_vertices` did.

    Raises
    ------
    MeshTopologyError
        If the boundary names a vertex of no element.
    """
    place = np.minimum(np.searchsorted(used, boundary), len(used) - 1).astype(np.int64)
    bad = np.flatnonzero((used[place] != boundary).any(axis=1))
    if len(bad):
        raise MeshTopologyError(
            f"{len(bad)} boundary element(s) name vertices of no element: number(s) {listed(bad)} "
            f"(counted from 0; {bad[0]} has vertices {boundary[bad[0]].tolist()}): correct them"
        )
    return place


def magnitude(coordinates: Floats) -> None:
    """Check that coordinates (ne, m, dim) are finite and not absurdly large.

    Raises
    ------
    MeshGeometryError
        With the numbers of the bad elements, and how many there are.
    """
    bad = np.flatnonzero(~np.isfinite(coordinates).all(axis=(1, 2)))
    if len(bad):
        raise MeshGeometryError(
            f"{len(bad)} element(s) have coordinates that are not finite (NaN or infinite): "
            f"number(s) {listed(bad)} (counted from 0): give every node a position"
        )
    bad = np.flatnonzero(np.abs(coordinates).max(axis=(1, 2)) > LARGEST)
    if len(bad):
        raise MeshGeometryError(
            f"{len(bad)} element(s) have coordinates beyond {LARGEST:g}: number(s) {listed(bad)} "
            "(counted from 0): correct them, or choose another unit"
        )


def geometry(coordinates: Floats) -> None:
    """Check that coordinates are finite and no element is inverted.

    An element counts as inverted if det J <= 0 at a point of the (g + 2)**dim Gauss points.

    Raises
    ------
    MeshGeometryError
        With the numbers of the bad elements, and how many there are.
    """
    magnitude(coordinates)
    points = gauss_legendre(geometry_degree(coordinates.shape[1], coordinates.shape[2]) + 2)[0]
    least = np.concatenate(
        [
            determinants(jacobians(coordinates[start : start + _BLOCK], points)).min(axis=1)
            for start in range(0, len(coordinates), _BLOCK)
        ]
    )
    bad = np.flatnonzero(least <= 0)
    if len(bad):
        raise MeshGeometryError(
            f"{len(bad)} of {len(coordinates)} element(s) are inverted (det J <= 0 somewhere): "
            f"number(s) {listed(bad)} (counted from 0; the first has det J = {least[bad[0]]:.3g}): "
            "turn the order of their corners, or move their nodes"
        )
