"""Repair of mirrored elements: a file lists their corners as in a left-handed system."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_meshes.checks import element_ranges
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import (
    determinants,
    gauss_legendre,
    geometry_degree,
    jacobians,
)
from femops_meshes.topology.entities import cell_and_degree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def mended(corners: Ints, coordinates: Floats) -> tuple[Ints, Floats, bool]:
    """Turn over the cubes or prisms that are mirrored.

    An element is mirrored if det J < 0 at all points of `checks.geometry`. If det J < 0 only at
    some points, the element is not changed, as no order of its corners would help.
    """
    dim = coordinates.shape[2]
    cell, degree = cell_and_degree(coordinates.shape[1], dim)
    if not cell.cube:
        mirrored = simplices.mirrored(coordinates)
        corners, coordinates = corners.copy(), coordinates.copy()
        corners[mirrored] = corners[mirrored][:, [0, 2, 1, 3, 5, 4]]
        coordinates[mirrored] = coordinates[mirrored][:, simplices.reflected_prism(degree)]
        return corners, coordinates, bool(mirrored.any())
    n = geometry_degree(coordinates.shape[1], dim) + 1
    mirrored = np.zeros(len(corners), dtype=np.bool_)
    for points in (np.array([0.5]), gauss_legendre(n + 1)[0]):
        of = np.flatnonzero(mirrored) if len(points) > 1 else np.arange(len(corners))
        mirrored[:] = False
        for some in element_ranges(len(of), len(points) ** dim):
            negative = determinants(jacobians(coordinates[of[some]], points)) < 0
            mirrored[of[some]] = negative.all(axis=1)
    if not mirrored.any():
        return corners, coordinates, False
    corners, coordinates = corners.copy(), coordinates.copy()
    corners[mirrored] = _turned(corners[mirrored], 2, dim)
    coordinates[mirrored] = _turned(coordinates[mirrored], n, dim)
    return corners, coordinates, True


def _turned(values: NDArray[Any], n: int, dim: int) -> NDArray[Any]:
    """Exchange the first two directions of values (ne, n**dim, ...), or reverse the only one."""
    if dim == 1:
        return values[:, ::-1]
    planes = values.reshape(len(values), n ** (dim - 2), n, n, *values.shape[2:])
    return planes.swapaxes(2, 3).reshape(values.shape)
