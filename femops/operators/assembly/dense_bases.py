"""Dense bases of a term: Kronecker products of 1-D matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.integrals.kernel_term import KernelTerm
from femops.spaces.boundary_space import AnySpace, num_points, points_along


def dense_basis(term: KernelTerm, space: AnySpace, slots: list[int]) -> list[NDArray[np.float64]]:
    """Matrices (points, nodes) that give each slot of the program from element dofs.

    Kronecker products, x fastest.
    """
    basis, dense = space.basis, []
    for slot in slots:
        full: NDArray[Any] = np.ones((1, 1))
        for d, points in enumerate(points_along(space, term.quadrature)):
            matrix = basis.gradient(points) if d == slot - 1 else basis.interpolation(points)
            full = np.kron(matrix, full)
        dense.append(full)
    return dense


def dense_bases(term: KernelTerm) -> tuple[NDArray[Any], NDArray[Any]]:
    """Dense bases (slots, points, nodes) of field and test function, one array if equal."""
    qfunction = term.qfunction
    ins, outs = (
        np.array(dense_basis(term, space, slots), dtype=term.dtype)
        for space, slots in ((term.trial, qfunction.slots_in), (term.test, qfunction.slots_out))
    )
    return (ins, ins) if np.array_equal(ins, outs) else (ins, outs)


def dense_bytes(term: KernelTerm) -> int:
    """Bytes of these bases."""
    rule, qfunction = term.quadrature, term.qfunction
    sides = [(term.trial, qfunction.slots_in), (term.test, qfunction.slots_out)]
    sizes = [
        len(slots) * num_points(space, rule) * space.p1d**space.dim * term.dtype.itemsize
        for space, slots in sides
    ]
    values = [(space.basis.interpolation(rule.points), slots) for space, slots in sides]
    (b, ins), (c, outs) = values
    return sizes[0] if ins == outs and np.array_equal(b, c) else sum(sizes)
