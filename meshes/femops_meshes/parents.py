"""The parent of each element of a refined mesh."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_meshes import refinement
from femops_meshes.mesh import Mesh

_SAME = 1e-10  # largest distance of nodes at the same position, relative to an element's size


@final
@dataclass(frozen=True)
class Parents:
    """Positions of the elements of a refined mesh in the elements of the coarse mesh."""

    elements: NDArray[np.int64]  # shape (ne,) int64: the element of the coarse mesh
    # shape (ne, dim) float64: the part's lowest corner in that element's [0, 1]**dim
    low: NDArray[np.float64]
    width: float  # width of the part in each direction


def parents_of(fine: Mesh, coarse: Mesh) -> Parents | None:
    """Find the positions of the elements of `fine` in the elements of `coarse`, which it refines.

    `fine` may be refined any number of times, including none, and its elements may have any order.
    The function reads the parents from `Mesh.file_elements`, and compares all coordinates.
    """
    dim, count = coarse.dim, coarse.num_elements
    if fine is coarse:  # a part that a rank holds, too
        return Parents(np.arange(count), np.zeros((count, dim)), 1.0)
    times = (max(fine.num_elements // max(count, 1), 1).bit_length() - 1) // dim
    children = 2 ** (dim * times)
    places = np.argsort(coarse.file_elements, kind="stable")
    if (
        (fine.dim, fine.order, fine.num_elements) != (dim, coarse.order, count * children)
        or not np.array_equal(coarse.file_elements[places], np.arange(count))
        or fine.file_elements.max(initial=0) >= fine.num_elements
    ):
        return None
    coordinates = coarse.coordinates[places]
    for _ in range(times):
        coordinates = refinement.split_coordinates(coordinates, 2)
    gap = np.abs(coordinates[fine.file_elements] - fine.coordinates).max(axis=(1, 2))
    if (gap > _SAME * np.ptp(fine.coordinates, axis=1).max(axis=1)).any():
        return None
    child, low = fine.file_elements % children, np.zeros((fine.num_elements, dim))
    for step in range(times):
        digit = child >> (dim * (times - 1 - step))
        low += (digit[:, None] >> np.arange(dim) & 1) * 0.5 ** (step + 1)
    return Parents(places[fine.file_elements // children], low, 0.5**times)
