"""Interpolation between spaces of different orders on one mesh, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.choice import backend_of
from femops.operators.execution.ranks import Operand, distributed
from femops.spaces.base import Space
from femops_kernels.compiled import CompiledOperator

_NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def interpolation_matrix(coarse: Space, fine: Space) -> NDArray[np.float64]:
    """Coefficients (fine.p1d, coarse.p1d) in one direction of the coarse basis in the fine one."""
    nodes = fine.basis.nodes
    ours, theirs = fine.basis.interpolation(nodes), coarse.basis.interpolation(nodes)
    return np.asarray(np.linalg.solve(ours, theirs))


def summed_interpolation(
    coarse: Space, fine: Space, dtype: np.dtype[Any]
) -> tuple[CompiledOperator, CompiledOperator]:
    """Sum over the elements of the interpolation in each, and its transpose. Collective.

    What it gives a dof is the value there times the number of elements that share it, so it is to
    be divided by that (see `ElementRestriction.multiplicity`).

    Parameters
    ----------
    coarse, fine : Space
        On one mesh, with as many components.
    dtype : dtype
        Of the vectors.

    Returns
    -------
    up, down : CompiledOperator
        From coarse to fine vectors, and back.
    """
    matrix = interpolation_matrix(coarse, fine)
    return _elementwise(coarse, fine, matrix, dtype), _elementwise(fine, coarse, matrix.T, dtype)


def _elementwise(
    source: Space, target: Space, matrix: NDArray[np.float64], dtype: np.dtype[Any]
) -> CompiledOperator:
    """Product of each element's dofs with a matrix in each direction, summed."""
    backend = backend_of(source)
    local = backend.operator([(1.0, backend.element_products(source, target, matrix, dtype))])
    ends = [Operand(source, _NONE)], [Operand(target, _NONE)]
    return distributed(backend, local, *ends, [(0, 0)], dtype)
