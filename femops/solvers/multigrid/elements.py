"""Element matrices of order 1, and from these the element matrices on coarser meshes.

The matrix on a coarser mesh is P^T A P, where P interpolates between the meshes. The matrix of a
coarse element is the sum of the same product over the finer elements in it. On an element, P is one
of a few Kronecker products of 1-D matrices with entries 1 and 1/2. So neither the matrix A nor a
product of sparse matrices is needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from femops.geometry.boundary import BoundaryFaces
from femops.operators import Operator
from femops.operators.assembly.csr import add_element_matrices, domains
from femops.operators.integrals.term import Sum
from femops.parallel.comm import Communicator, gathered
from femops.spaces.face_space import FaceSpace
from femops_kernels.cpu.in_order import in_order
from femops_meshes.coarsening import Coarsening

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOGETHER = 2**17  # numbers of matrices that are worked on at once


def element_matrices(A: Operator) -> Floats:
    """Element matrices (ne, rows, rows) of an operator, numbered component by component.

    Matrices of boundary faces are added to the elements of the faces. Constraints are ignored.
    """
    ne, rows = A.space.pattern().shape
    out = np.zeros((ne, rows, rows))
    for group in domains(A.summands):
        faces = group.first.domain
        if isinstance(faces, BoundaryFaces):
            _add_faces(out, group, faces.elements)
        else:
            add_element_matrices(out, group)
    return out


def clear(matrices: Floats, free: NDArray[np.bool_]) -> None:
    """Zero the rows and columns of matrices (ne, rows, rows) where ``free`` (ne, rows) is False."""
    touched = np.flatnonzero(~free.all(axis=1))
    some, held = matrices[touched], ~free[touched]
    some[held] = 0.0
    some.transpose(0, 2, 1)[held] = 0.0
    matrices[touched] = some


def _add_faces(out: Floats, summands: Sum, owners: Ints) -> None:
    """Add the matrices of boundary faces to the matrices of their elements, in place.

    Shapes: `out` (ne, rows, rows), `owners` (nf,).
    """
    faces = cast(FaceSpace, summands.first.trial)
    at = faces.turned_nodes()
    local = faces.ncomp * at.shape[1]
    values = np.zeros((len(owners), local, local))
    add_element_matrices(values, summands)
    components = np.arange(faces.ncomp)[:, np.newaxis] * faces.volume.restriction.num_nodes
    flat = (at[:, np.newaxis] + components).reshape(len(owners), local)
    place = owners[:, np.newaxis, np.newaxis], flat[:, :, np.newaxis], flat[:, np.newaxis]
    np.add.at(out, place, values)


def coarsened(matrices: Floats, coarsening: Coarsening, comm: Communicator) -> Floats:
    """Sum fine element matrices (ne, rows, rows) to all coarse ones (nc, rows, rows). Collective.

    The contributions to a coarse element are added in the order of the fine elements' positions in
    it. So the bits do not depend on the number of ranks.
    """
    rows = matrices.shape[1]
    dim = coarsening.low.shape[1]
    out = np.zeros((len(coarsening.elements), rows, rows))
    powers = 3 ** np.arange(dim)
    places = (coarsening.low + (coarsening.high == 2)) @ powers  # 0, 1, 2: low, all, high
    present = comm.max(np.bincount(places, minlength=3**dim))
    for digits in product(range(3), repeat=dim):
        place = int(powers @ digits)
        if present[place]:
            own = np.flatnonzero(places == place)
            parents, blocks = coarsening.parent[own], _parts(len(own), rows)
            restricted = partial(_restricted, matrices, own, digits)
            if comm.size == 1:
                add = partial(_add_restricted, out, parents, restricted)
                deque(in_order(add, blocks), maxlen=0)
            else:
                made = np.concatenate([matrices[:0], *in_order(restricted, blocks)])
                out[gathered(comm, parents)] += gathered(comm, made)
    return out


def _add_restricted(
    out: Floats, parents: Ints, restricted: Callable[[slice], Floats], where: slice
) -> None:
    """Add a block to coarse elements. No two fine elements with one position have one parent."""
    out[parents[where]] += restricted(where)


def _parts(count: int, rows: int) -> Iterator[slice]:
    """Slices of ``count`` matrices (rows, rows). The matrices of a slice are worked on at once."""
    step = max(1, _TOGETHER // rows**2)
    return (slice(start, start + step) for start in range(0, count, step))


def _restricted(matrices: Floats, own: Ints, digits: tuple[int, ...], where: slice) -> Floats:
    """Return P^T A P (n, rows, rows) for fine elements with one position in their coarse elements.

    ``where`` is a slice of the elements ``own``.
    """
    rows, dim = matrices.shape[1], len(digits)
    ncomp = rows >> dim
    block = np.ascontiguousarray(matrices[own[where]].reshape(-1, rows * rows).T)
    for outer in (ncomp, rows * ncomp):  # rows, columns
        side = block.reshape(outer, *[2] * dim, -1)
        for d, digit in enumerate(digits):
            low, high = np.moveaxis(side, dim - d, 0)
            _share(low, high, digit)
    return block.T.reshape(-1, rows, rows)


def _share(low: Any, high: Any, digit: int) -> None:
    """Add the entries of a fine element's ends to the ends of its coarse element, in place."""
    if digit == 0:  # its high end is in the middle
        high *= 0.5
        low += high
    elif digit == 2:
        low *= 0.5
        high += low
