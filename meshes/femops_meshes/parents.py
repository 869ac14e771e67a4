"""The parent of each element of a refined mesh."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coordinates.hanging import halved_along
from femops_meshes.forest import Forest
from femops_meshes.mesh import Mesh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_SAME = 1e-10  # largest distance of nodes at the same position, relative to an element's size


@final
@dataclass(frozen=True)
class Parents:
    """Positions of the elements of a refined mesh in the elements of the coarse mesh."""

    elements: Ints  # shape (ne,) int64: the element of the coarse mesh
    # shape (ne, dim) float64: the part's lowest corner in that element's [0, 1]**dim
    low: Floats
    width: Floats  # shape (ne, 1) float64: width of the part in each direction


def parents_of(fine: Mesh, coarse: Mesh) -> Parents | None:
    """Find the positions of the elements of `fine` in the elements of `coarse`, which it refines.

    `fine` may be refined any number of times, including none, and its elements may have any order.
    The function reads the parents from the trees of locally refined meshes, and else from
    `Mesh.file_elements`, and compares all coordinates. None if an element has no parent, or a mesh
    has simplices.
    """
    dim, count = coarse.dim, coarse.num_elements
    if fine is coarse:  # a part that a rank holds, too
        return Parents(np.arange(count), np.zeros((count, dim)), np.ones((count, 1)))
    simplex = not fine.cell.cube or not coarse.cell.cube  # the halves of tetrahedra are not alike
    if simplex or (fine.dim, fine.order) != (dim, coarse.order) or not count:
        return None
    if fine.forest is not None or coarse.forest is not None:
        found = _in_trees(fine.trees, coarse.trees)
    else:
        found = _in_file_order(fine, coarse)
    if found is None or not _same_positions(fine, coarse, *found):
        return None
    parents, child, levels = found
    low = np.zeros((len(child), dim))
    for step in range(int(levels.max(initial=0))):
        some = levels > step
        digit = child[some, np.newaxis] >> dim * step >> np.arange(dim) & 1
        low[some] += digit * 0.5 ** (levels[some, np.newaxis] - step)
    return Parents(parents, low, np.ldexp(1.0, -levels[:, np.newaxis]))


_Found = tuple[Ints, Ints, Ints]
"""Parents (ne,), paths below them (see `Forest.path`) and numbers of halvings."""


def _in_file_order(fine: Mesh, coarse: Mesh) -> _Found | None:
    """Parents of elements that were all refined equally often, by their places in the file."""
    dim, count = coarse.dim, coarse.num_elements
    times = (max(fine.num_elements // count, 1).bit_length() - 1) // dim
    children = 2 ** (dim * times)
    places = np.argsort(coarse.file_elements, kind="stable")
    if (
        fine.num_elements != count * children
        or not np.array_equal(coarse.file_elements[places], np.arange(count))
        or fine.file_elements.max(initial=0) >= fine.num_elements
    ):
        return None
    parents, child = np.divmod(fine.file_elements, children)
    return places[parents], child, np.full(len(child), times)


def _in_trees(fine: Forest, coarse: Forest) -> _Found | None:
    """Parents of the leaves of trees among those of other trees over the same roots."""
    if not np.array_equal(fine.roots, coarse.roots):
        return None
    dim, depth = fine.dim, max(fine.depth, coarse.depth)
    root, level, path = (
        np.concatenate([getattr(coarse, name), getattr(fine, name)])
        for name in ("root", "level", "path")
    )
    level = level.astype(np.int64)
    # along the tree a leaf comes after the larger leaf that holds it, and no other is between
    first, count = path << dim * (depth - level), len(coarse.root)
    is_fine = np.arange(len(root)) >= count
    order = np.lexsort((is_fine, first, root))
    latest = np.maximum.accumulate(np.where(is_fine[order], -1, np.arange(len(order))))
    parent = np.full(len(root), -1, dtype=np.int64)
    parent[order] = np.where(latest < 0, -1, order[latest])
    parent = parent[count:]
    below = level[count:] - level[parent]
    held = (parent >= 0) & (below >= 0) & (fine.root == coarse.root[parent])
    if not held.all() or (path[count:] >> dim * below != coarse.path[parent]).any():
        return None
    return parent, path[count:] & (1 << dim * below) - 1, below


def _same_positions(fine: Mesh, coarse: Mesh, parents: Ints, child: Ints, levels: Ints) -> bool:
    """True if all elements lie where their parents have them."""
    at = halved_along(coarse.coordinates[parents], child, levels)
    gap = np.abs(at - fine.coordinates).max(axis=(1, 2))
    return bool((gap <= _SAME * np.ptp(fine.coordinates, axis=1).max(axis=1)).all())
