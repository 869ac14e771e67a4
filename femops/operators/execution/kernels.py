"""The host's kernels of a term: what they read and write, how large their plans are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.legendre import LegendreGeometry, mode_values
from femops.operators.constraints import Constraints
from femops.operators.execution.backend import Work
from femops.operators.integrals.chunks import plans, vector_plans
from femops.operators.integrals.term import Term
from femops.spaces.base import Space
from femops_kernels.codegen.specialize import Parts
from femops_kernels.cpu.cg.cg import solve_parts
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.kernels.dense import DecomposedKernel
from femops_kernels.cpu.kernels.kernel import Kernel, Side, SweepKernel, chunk_parts
from femops_kernels.cpu.kernels.separable import SeparableKernel
from femops_kernels.cpu.machine import lane_width
from femops_kernels.cpu.multivector import VectorTerm
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sweep import DRIVER_PARTS, Sweep
from femops_kernels.pointwise.qdata import Data
from femops_kernels.pointwise.qfunction import QFunctionCode
from femops_kernels.pointwise.sum_factorization import Map1D
from femops_meshes.coordinates.interpolation import lagrange_derivative_matrix


def plans_of(term: Term) -> tuple[Plan, Plan]:
    """The chunks in which a sweep goes over the elements, for trial and test space."""
    return plans(term.trial, term.test, term.dtype, term.width)


def vector_term(
    term: Term,
    work: Work,
    constraints: Constraints,
    keep: float,
) -> VectorTerm:
    """A kernel bound to plans of a term's spaces and to data, for any number of vectors.

    Parameters
    ----------
    term : Term
    work : Work
        The kernel, given nothing of the geometry, and what it reads.
    constraints, keep
        See `Backend.launch`.
    """
    kernel, data, dense = work
    plans = vector_plans(term.trial, term.test, term.dtype)
    return VectorTerm(kernel, *plans, data, constraints.columns, constraints.rows, keep, dense)


def index_bytes(term: Term) -> int:
    """Bytes of local numbers that a sweep reads."""
    return sum({id(plan): plan.starts.nbytes for plan in plans_of(term)}.values())


def plan_bytes(term: Term) -> int:
    """Bytes of the plans and of a sweep's buffer."""
    source, target = plans_of(term)
    buffer = len(target.nonowned_dofs) * term.test.ncomp * term.dtype.itemsize
    return buffer + sum({id(plan): plan.nbytes for plan in (source, target)}.values())


def shared_parts(term: Term) -> list[Parts]:
    """Parts of the kernels that operators of all forms, and their solves, share."""
    width, dtype = term.width, term.dtype
    chunk = chunk_parts(width, dtype, term.trial.ncomp, term.test.ncomp)
    return [DRIVER_PARTS, chunk, *solve_parts(width, dtype)]


def sides(term: Term) -> tuple[Side, Side]:
    """Sides of a kernel, input and output."""
    points = term.quadrature.points
    found = {
        space: Side(
            space.ncomp,
            space.basis.interpolation(points),
            plan.number_bytes,
            plan.runs,
            term.any_width,
        )
        for space, plan in zip((term.trial, term.test), plans_of(term), strict=True)
    }
    return found[term.trial], found[term.test]


def geometry_map(term: Term, code: QFunctionCode) -> Map1D | None:
    """Map of the geometry that a q-function needs where it is given Jacobians or positions."""
    if not code.numbers.mapped:
        return None
    assert isinstance(term.trial, Space)  # a face's position is kept
    degree = LegendreGeometry(term.trial.mesh).degree
    return Map1D(*mode_values(degree + 1, term.quadrature.points))


def factorised_kernel(term: Term) -> Kernel:
    """The kernel that applies a term by sum factorisation."""
    points, weights = term.quadrature.points, term.quadrature.weights
    return Kernel(
        term.trial.dim,
        *sides(term),
        lagrange_derivative_matrix(points, points),
        term.qfunction.code,
        term.dtype,
        term.width,
        weights,
        geometry_map(term, term.qfunction.code),
        term.data_dtype,
    )


def dense_kernel(term: Term) -> DecomposedKernel:
    """The kernel that applies a term by dense bases."""
    dim, q1d, code = term.trial.dim, term.quadrature.q1d, term.qfunction.code
    return DecomposedKernel(dim, *sides(term), q1d, code, term.dtype, term.width, term.data_dtype)


def sweep(
    term: Term,
    kernel: SweepKernel,
    constraints: Constraints,
    keep: float,
    data: Data,
    dense: tuple[NDArray[Any], ...] = (),
) -> Sweep:
    """A kernel bound to the plans of a term's spaces and to data.

    Parameters
    ----------
    term : Term
    kernel : SweepKernel
    constraints, keep
        See `Backend.launch`.
    data : Data
    dense : arrays, optional
        See `Sweep`.
    """
    both = plans_of(term)
    fitting = _fitting(kernel, both)
    return Sweep(fitting, *both, data, constraints.columns, constraints.rows, keep, dense)


def _fitting(kernel: SweepKernel, both: tuple[Plan, Plan]) -> SweepKernel:
    """The kernel, or one like it if the numbers of its plans are of another width than it reads.

    Operators keep kernels; the tuning database may say since then how large chunks are.
    """
    source, target = kernel.source, kernel.target
    if (source.index_bytes, target.index_bytes) == tuple(plan.number_bytes for plan in both):
        return kernel
    read, written = (
        replace(side, index_bytes=plan.number_bytes)
        for side, plan in zip((source, target), both, strict=True)
    )
    made: Any = kernel  # of a class that is a dataclass
    found: SweepKernel = replace(made, source=read, target=read if source is target else written)
    return found


def element_products(
    source: Space, target: Space, matrix: NDArray[np.float64], dtype: np.dtype[Any]
) -> Sweep:
    """See `Backend.element_products`; there are elements."""
    kernel = product_kernel(source, target, matrix, dtype)
    ne, width = source.mesh.num_elements, kernel.width
    ones = placed_array((-(-ne // width), source.ncomp, width), dtype)
    ones[:] = 1.0
    points = np.zeros((len(ones), target.p1d**source.dim, 0, width), dtype)
    none: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    both = plans(source, target, dtype, width)
    return Sweep(kernel, *both, Data(points, ones), none, none, 0.0)


def product_kernel(
    source: Space, target: Space, matrix: NDArray[np.float64], dtype: np.dtype[Any]
) -> SeparableKernel:
    """The kernel of `element_products`."""
    width = lane_width(dtype, None)
    into, out = (
        Side(source.ncomp, np.zeros((1, space.p1d)), plan.number_bytes, plan.runs, source.any_width)
        for space, plan in zip((source, target), plans(source, target, dtype, width), strict=True)
    )
    return SeparableKernel(source.dim, into, out, dtype, width, matrix, matrix, True, False)
