"""Dense bases of a term: Kronecker products of 1-D matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.integrals.kernel_term import KernelTerm
from femops.spaces.boundary_space import AnySpace


def dense_basis(term: KernelTerm, space: AnySpace, slots: list[int]) -> list[NDArray[np.float64]]:
    """Matrices (points, nodes) that give each slot of the program from element dofs.

    Kronecker products, x fastest.
    """
    points, dim = term.quadrature.points, space.dim
    b, g = space.basis.interpolation(points), space.basis.gradient(points)
    dense = []
    for slot in slots:
        full: NDArray[Any] = np.ones((1, 1))
        for d in range(dim):
            full = np.kron(g if d == slot - 1 else b, full)
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
    points, qfunction = term.quadrature.points, term.qfunction
    sides = [(term.trial, qfunction.slots_in), (term.test, qfunction.slots_out)]
    values = [(space.basis.interpolation(points), slots) for space, slots in sides]
    sizes = [len(slots) * b.size**term.trial.dim * term.dtype.itemsize for b, slots in values]
    (b, ins), (c, outs) = values
    return sizes[0] if ins == outs and np.array_equal(b, c) else sum(sizes)
