"""Interpolation between spaces of different orders on one mesh, compiled for the host."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.choice import backend_of
from femops.operators.execution.ranks import Operand, distributed
from femops.operators.integrals.chunks import plans
from femops.spaces.base import Space
from femops_kernels.compiled import CompiledOperator
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.kernels.kernel import Side
from femops_kernels.cpu.kernels.separable import SeparableKernel
from femops_kernels.cpu.machine import lane_width
from femops_kernels.cpu.sweep import HostLaunch, NoOp, Sweep
from femops_kernels.pointwise.qdata import Data

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
    backend, launch = backend_of(source), _launch(source, target, matrix, dtype)
    local = backend.operator([(1.0, launch)])
    ends = [Operand(source, _NONE)], [Operand(target, _NONE)]
    return distributed(backend, local, *ends, [(0, 0)], dtype)


def _launch(
    source: Space, target: Space, matrix: NDArray[np.float64], dtype: np.dtype[Any]
) -> HostLaunch:
    ne, dim, ncomp = source.mesh.num_elements, source.dim, source.ncomp
    if not ne:
        return NoOp()
    width = lane_width(dtype, None)
    both = plans(source, target, dtype, width)
    into, out = (
        Side(ncomp, np.zeros((1, space.p1d)), plan.number_bytes, plan.runs)
        for space, plan in zip((source, target), both, strict=True)
    )
    kernel = SeparableKernel(dim, into, out, dtype, width, matrix, matrix, True, False)
    ones = placed_array((-(-ne // width), ncomp, width), dtype)
    ones[:] = 1.0
    points = np.zeros((len(ones), target.p1d**dim, 0, width), dtype)
    return Sweep(kernel, *both, Data(points, ones), _NONE, _NONE, 0.0)
