"""Floating-point operations of sum factorisation, wherever a kernel runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from femops_kernels.simd.matrix import Matrix1D

if TYPE_CHECKING:
    from femops_kernels.cpu.kernel import Kernel
    from femops_kernels.cuda.operator.kernel import CudaKernel


def contraction_flops(kernel: Kernel | CudaKernel) -> int:
    """Operations of all contractions of one element, without its pointwise steps."""
    q, dim, step = kernel.q1d, kernel.dim, kernel.step
    flops = 0
    for side, matrix in (
        (kernel.source, Matrix1D(kernel.source.b1d)),
        (kernel.target, Matrix1D(kernel.target.b1d.T)),
    ):
        lines = sum(side.p1d ** (dim - 1 - k) * q**k for k in range(dim))
        flops += side.ncomp * lines * matrix.flops()
    lines = dim * q ** (dim - 1)
    if step.gradient_in:
        flops += kernel.source.ncomp * lines * Matrix1D(kernel.d1d).flops()
    if step.gradient_out:
        # the sum of the directions' results: one addition a point and direction, less where
        # nothing stands there yet
        adds = q**dim * (dim if step.value_out else dim - 1)
        flops += kernel.target.ncomp * (lines * Matrix1D(kernel.d1d.T).flops() + adds)
    weights = bool(step.numbers.weight) * (q**dim + (q ** (dim - 1) if dim > 2 else 0))
    return int(flops + weights + _geometry_flops(kernel))


def _geometry_flops(kernel: Kernel | CudaKernel) -> int:
    """Of Jacobians and positions from the modes of the geometry."""
    given, dim, q = kernel.step.numbers, kernel.dim, kernel.q1d
    if not given.mapped:
        return 0
    assert kernel.geometry is not None
    value, slope = _row_flops(kernel.geometry.value), _row_flops(kernel.geometry.slope)
    g1d, flops = kernel.geometry.g1d, 0
    if dim > 2:
        flops += q * dim * g1d**2 * (value + slope)
    if dim > 1:
        flops += q ** (dim - 1) * dim * g1d * ((dim - 1) * value + slope)
    per_point = bool(given.jacobian) * ((dim - 1) * value + slope)
    per_point += bool(given.position) * value
    return int(flops + q**dim * dim * per_point)


def _row_flops(matrix: NDArray[np.float64]) -> int:
    """Of one row as ``dot_row`` emits it: columns of zeros or ones are not multiplied by."""
    used = [column for column in matrix.T if np.any(column != 0.0)]
    products = sum(bool(np.any(column != 1.0)) for column in used)
    return products + max(len(used) - 1, 0)
