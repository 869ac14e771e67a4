"""Kernels of terms on the host, bound to dofs and data, and the size of their plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.element import TensorElement, table_of
from femops.errors import OperatorError
from femops.geometry.legendre import LegendreGeometry, mode_values
from femops.operators.execution.backend import Work
from femops.operators.execution.modes import ElementModes, scaling
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.chunks import plans, vector_plans
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.kernel_term import KernelTerm
from femops.spaces.base import Space
from femops.spaces.boundary_space import end_of
from femops.spaces.domain_space import DomainSpace
from femops.spaces.face_space import FaceSpace
from femops_kernels.codegen.specialize import Parts
from femops_kernels.cpu.cg.cg import solve_parts
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.kernels.dense import ElementKernel
from femops_kernels.cpu.kernels.kernel import Kernel, Side, SweepKernel, chunk_parts
from femops_kernels.cpu.kernels.separable import SeparableKernel
from femops_kernels.cpu.kernels.table import TableKernel
from femops_kernels.cpu.machine import lane_width
from femops_kernels.cpu.multivector import VectorTerm
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sweep import DRIVER_PARTS, Sweep, SweepDofs
from femops_kernels.pointwise.qdata import Data
from femops_kernels.pointwise.qfunction import QFunctionCode, QFunctionInputs
from femops_kernels.pointwise.sum_factorization import Map1D
from femops_meshes.coordinates.interpolation import lagrange_derivative_matrix

_FLOPS_PER_NUMBER = 10  # operations in the time of reading one number from memory

Sides = tuple[tuple[Side, ...], tuple[Side, ...]]


def plans_of(term: KernelTerm, *, layered: bool = True) -> list[tuple[Plan, Plan]]:
    """Plans of a term's sweep: for each field a plan to read and a plan to write; see `plans`."""
    return plans(term.fields, term.tests, term.dtype, term.width, layered=layered)


def _distinct(pairs: Sequence[tuple[Plan, Plan]]) -> list[Plan]:
    return list({id(plan): plan for pair in pairs for plan in pair}.values())


def vector_term(
    term: KernelTerm,
    work: Work,
    constraints: Constraints,
    keep: float,
) -> VectorTerm:
    """Bind a kernel to the plans of a term's spaces and to data, for any number of vectors."""
    kernel, data = work
    layered = not isinstance(kernel, ElementKernel)
    plans = vector_plans(term.fields, term.tests, term.dtype, layered=layered)
    return VectorTerm(kernel, _sweep_dofs(term, plans, constraints, keep), data)


def index_bytes(term: KernelTerm, *, layered: bool = True) -> int:
    """Bytes of the local dof numbers that a sweep reads."""
    return sum(plan.starts.nbytes for plan in _distinct(plans_of(term, layered=layered)))


def plan_bytes(term: KernelTerm, *, layered: bool = True) -> int:
    """Bytes of the plans and of a sweep's buffer."""
    pairs = dict(zip(term.fields.spaces, plans_of(term, layered=layered), strict=True))
    numbers = (
        len(pairs[name][1].nonowned_dofs) * space.ncomp for name, space in term.tests.spaces.items()
    )
    return sum(numbers) * term.dtype.itemsize + sum(p.nbytes for p in _distinct([*pairs.values()]))


def shared_parts(term: KernelTerm) -> list[Parts]:
    """Parts of kernels that the operators of all forms, and their solvers, share."""
    width, dtype = term.width, term.dtype
    sides = (term.fields, term.tests)
    components = ([*side.components.values()] for side in sides)
    signed = any(space.volume.signed for side in sides for space in side.spaces.values())
    chunk = chunk_parts(width, dtype, *components, signed=signed)
    return [DRIVER_PARTS, chunk, *solve_parts(width, dtype)]


def sides(term: KernelTerm, *, layered: bool = True) -> Sides:
    """Sides of a term's kernel: first of its fields, then of its test functions; see `plans`."""
    made: dict[tuple[DomainSpace, int], Side] = {}

    def side(space: DomainSpace, plan: Plan) -> Side:
        if (space, id(plan)) not in made:
            element, bases = space.element, []
            if isinstance(element, TensorElement):
                bases = element.matrices(term.quadrature.points)
            end = end_of(space.basis)[:, : plan.runs.layers or None] if space.has_end else None
            given = plan.number_bytes, plan.runs, term.any_width, end
            made[space, id(plan)] = Side(space.ncomp, tuple(bases), *given)
        return made[space, id(plan)]

    pairs = dict(zip(term.fields.spaces, plans_of(term, layered=layered), strict=True))
    sources = tuple(side(space, pairs[name][0]) for name, space in term.fields.spaces.items())
    targets = tuple(side(space, pairs[name][1]) for name, space in term.tests.spaces.items())
    return sources, targets


def blocks_of_tests(term: KernelTerm) -> tuple[int, ...]:
    """For each test function, the number of the field with the same name."""
    names = list(term.fields.spaces)
    return tuple(names.index(name) for name in term.tests.spaces)


def geometry_map(term: KernelTerm, code: QFunctionCode) -> Map1D | None:
    """1-D map from geometry modes to quadrature points.

    None if the q-function reads neither Jacobians nor positions.
    """
    if not code.numbers.mapped:
        return None
    degree = LegendreGeometry(term.domain.mesh).degree
    return Map1D(*mode_values(degree + 1, term.quadrature.points))


def point_kernel(term: KernelTerm) -> Kernel | TableKernel:
    """Kernel that works at the points: by sum factorisation, or by tables."""
    if not (term.fields.tabulated or term.tests.tabulated):
        return factorised_kernel(term)
    points, code = term.quadrature.points, term.qfunction.code
    if term.domain.has_normals or term.minima or term.sums:
        raise OperatorError(
            "elements by tables have no integrals over faces and no functionals yet"
        )
    into, out = (
        tuple(table_of(space.element, points) for space in spaces.values())
        for spaces in (term.fields.spaces, term.tests.spaces)
    )
    return TableKernel(
        term.trial.dim,
        *sides(term),
        (into, out),
        code,
        term.dtype,
        term.width,
        term.quadrature.tensor_weights(term.trial.dim),
        term.data_dtype,
        blocks_of_tests(term),
    )


def factorised_kernel(term: KernelTerm) -> Kernel:
    """Kernel that applies a term by sum factorisation."""
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
        blocks_of_tests(term),
        term.minima,
        term.sums,
    )


def sweep(
    term: KernelTerm,
    kernel: SweepKernel,
    constraints: Constraints,
    keep: float,
    data: Data,
) -> Sweep:
    """Bind a kernel to the plans of a term's spaces and to data."""
    pairs = plans_of(term, layered=not isinstance(kernel, ElementKernel))
    fitting = _fitting(kernel, pairs)
    dofs = [
        replace(
            each,
            turns_in=_turns(term.fields.spaces[name]),
            turns_out=_turns(term.tests.spaces[name]) if name in term.tests.spaces else None,
        )
        for name, each in zip(
            term.fields.spaces, _sweep_dofs(term, pairs, constraints, keep), strict=True
        )
    ]
    effort = 0
    if term.several:
        slots = int(pairs[0][0].first_batch[-1]) * term.width
        points = slots * term.trial.num_points(term.quadrature)
        effort = points * term.qfunction.flops // _FLOPS_PER_NUMBER
        data = _repeated(data, term.domain.num_elements)
    return Sweep(fitting, dofs, data, None, effort, term.domain.num_elements)


def _sweep_dofs(
    term: KernelTerm, pairs: Sequence[tuple[Plan, Plan]], constraints: Constraints, keep: float
) -> list[SweepDofs]:
    """For each field of a term its plans, its constrained dofs, and its place in the vectors."""
    return [
        SweepDofs(
            source,
            target,
            term.fields.within(name, constraints.columns),
            term.tests.within(name, constraints.rows),
            keep,
            term.fields.origin(name),
            term.tests.origin(name),
        )
        for name, (source, target) in zip(term.fields.spaces, pairs, strict=True)
    ]


def _turns(space: DomainSpace) -> NDArray[np.int64] | None:
    """See `SweepDofs`: how the elements behind faces lie; None for other elements."""
    return space.turns() if isinstance(space, FaceSpace) and space.has_end else None


def _repeated(data: Data, ne: int) -> Data:
    """Copy the last element's data to the padding slots. This avoids divisions by zero there."""
    for array in (data.points, data.elements):
        if array.size:
            filled = ne - (len(array) - 1) * array.shape[-1]
            array[-1, ..., filled:] = array[-1, ..., filled - 1 : filled]
    return data


def _fitting(kernel: SweepKernel, pairs: Sequence[tuple[Plan, Plan]]) -> SweepKernel:
    """Return the kernel, or a copy that reads local dof numbers of the plans' integer type.

    An operator keeps its kernel. A new entry of the tuning database may change the size of chunks,
    and so the integer type of local dof numbers.
    """
    given = [*zip(kernel.sources, (source for source, _ in pairs), strict=True)]
    given += [*zip(kernel.targets, (pairs[k][1] for k in kernel.blocks), strict=True)]
    if all(side.index_bytes == plan.number_bytes for side, plan in given):
        return kernel
    new = {id(side): replace(side, index_bytes=plan.number_bytes) for side, plan in given}
    made: Any = kernel  # all classes of kernels are dataclasses
    sources, targets = (
        tuple(new[id(side)] for side in sides) for sides in (kernel.sources, kernel.targets)
    )
    found: SweepKernel = replace(made, sources=sources, targets=targets)
    return found


def element_products(
    source: Space, target: Space, matrix: NDArray[np.float64], dtype: np.dtype[Any]
) -> Sweep:
    """See `Backend.element_products`, on a rank that has elements."""
    kernel = product_kernel(source, target, matrix, dtype)
    ne, width = source.domain.num_elements, kernel.width
    ones = placed_array((-(-ne // width), source.ncomp, width), dtype)
    ones[:] = 1.0
    points = np.zeros((len(ones), target.element.size, 0, width), dtype)
    none: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    pair = _element_plans(source, target, dtype, width)
    return Sweep(kernel, [SweepDofs(*pair, none, none, 0.0)], Data(points, ones))


def _element_plans(
    source: Space, target: Space, dtype: np.dtype[Any], width: int
) -> tuple[Plan, Plan]:
    return plans(Arguments.of(source), Arguments.of(target), dtype, width)[0]


def product_kernel(
    source: Space, target: Space, matrix: NDArray[np.float64], dtype: np.dtype[Any]
) -> SeparableKernel:
    """Kernel that multiplies element dofs by a matrix in each direction, see `element_products`."""
    width = lane_width(dtype, None)
    into, out = (
        Side(source.ncomp, (), plan.number_bytes, plan.runs, source.any_width)
        for plan in _element_plans(source, target, dtype, width)
    )
    each = (matrix,) * source.dim
    return SeparableKernel(source.dim, (into,), (out,), dtype, width, each, each, True, False)


def mode_sweep(space: Space, modes: ElementModes, dtype: np.dtype[Any]) -> Sweep:
    """See `Backend.launch_modes`, on a rank that has elements."""
    kernel, none = mode_kernel(space, modes.vectors, dtype), np.empty(0, dtype=np.int64)
    pair = _element_plans(space, space, dtype, kernel.width)
    return Sweep(kernel, [SweepDofs(*pair, none, none, 0.0)], modes.data(kernel.width, dtype))


def mode_kernel(space: Space, vectors: NDArray[np.float64], dtype: np.dtype[Any]) -> Kernel:
    """Kernel of products with `ElementModes` that have the given eigenvectors."""
    width, n = lane_width(dtype, None), space.p1d
    plan, _ = _element_plans(space, space, dtype, width)
    given = plan.number_bytes, plan.runs, space.any_width
    side = Side(space.ncomp, (np.ascontiguousarray(vectors.T),) * space.dim, *given)
    code = scaling(space.ncomp, QFunctionInputs(point=1))
    return Kernel(space.dim, (side,), (side,), np.eye(n), code, dtype, width, np.ones(n))
