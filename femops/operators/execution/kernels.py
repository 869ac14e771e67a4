"""Kernels of terms on the host, bound to dofs and data, and the size of their plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.backend import Work
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.chunks import plans, vector_plans
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.kernel_term import KernelTerm
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.face_space import FaceSpace
from femops_kernels.codegen.specialize import Parts
from femops_kernels.cpu.cg.cg import solve_parts
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.kernels import (
    ElementKernel,
    Kernel,
    OperatorKernel,
    PlannedSide,
    SeparableKernel,
    SweepKernel,
    TableKernel,
    chunk_parts,
)
from femops_kernels.cpu.machine import lane_width
from femops_kernels.cpu.multivector import VectorTerm
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sweep import DRIVER_PARTS, Sweep, SweepDofs
from femops_kernels.pointwise.qdata import Data
from femops_kernels.spec import KernelSpec, MatrixSpec, PointSpec, SeparableSpec

_FLOPS_PER_NUMBER = 10  # operations in the time of reading one number from memory

Sides = tuple[tuple[PlannedSide, ...], tuple[PlannedSide, ...]]


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
    spec, data = work
    plans = vector_plans(term.fields, term.tests, term.dtype, layered=spec.layered)
    return VectorTerm(kernel_of(term, spec), _sweep_dofs(term, plans, constraints, keep), data)


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


_KINDS: dict[type[KernelSpec], type[OperatorKernel]] = {
    PointSpec: Kernel,
    SeparableSpec: SeparableKernel,
    MatrixSpec: ElementKernel,
}


def host_kernel(spec: KernelSpec, pairs: Sequence[tuple[Plan, Plan]], width: int) -> OperatorKernel:
    """Kernel of the host that reads dofs by plans, with a pair for each field; see `plans`."""
    tabulated = isinstance(spec, PointSpec) and spec.tabulated
    kind = TableKernel if tabulated else _KINDS[type(spec)]
    sources, targets = planned(spec, pairs)
    key = width, *((side.index_bytes, side.runs) for side in (*sources, *targets))
    if key not in spec.rendered:
        spec.rendered[key] = kind(spec, sources, targets, width)
    found: OperatorKernel = spec.rendered[key]
    return found


def planned(spec: KernelSpec, pairs: Sequence[tuple[Plan, Plan]]) -> Sides:
    """Sides of a specification with their plans. Equal ones with one plan are one object."""
    given = [*zip(spec.sources, (source for source, _ in pairs), strict=True)]
    given += [*zip(spec.targets, (pairs[k][1] for k in spec.blocks), strict=True)]
    made = {(s, id(p)): PlannedSide(s, p.number_bytes, p.runs) for s, p in given}
    sides = [made[side, id(plan)] for side, plan in given]
    return tuple(sides[: len(pairs)]), tuple(sides[len(pairs) :])


def kernel_of(term: KernelTerm, spec: KernelSpec) -> OperatorKernel:
    """Kernel of the host for a term."""
    return host_kernel(spec, plans_of(term, layered=spec.layered), term.width)


def sweep(
    term: KernelTerm,
    kernel: SweepKernel,
    constraints: Constraints,
    keep: float,
    data: Data,
) -> Sweep:
    """Bind a kernel to the plans of a term's spaces and to data."""
    pairs = plans_of(term, layered=kernel.spec.layered)
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
    return Sweep(kernel, dofs, data, None, effort, term.domain.num_elements)


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


def product_sweep(source: Space, target: Space, work: Work) -> Sweep:
    """See `Backend.launch_products`, on a rank that has elements."""
    spec, data = work
    width = lane_width(spec.dtype, None)
    if data.points.size or data.elements.size:
        width = data.points.shape[-1]
    else:  # products without factors; a separable kernel reads ones
        nbatch = -(-source.domain.num_elements // width)
        ones = placed_array((nbatch, source.ncomp, width), spec.dtype)
        ones[:] = 1.0
        data = Data(np.zeros((nbatch, spec.target.num_nodes, 0, width), spec.dtype), ones)
    none: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    kernel = product_kernel(source, target, spec, width)
    pair = _product_plans(source, target, spec.dtype, width)
    return Sweep(kernel, [SweepDofs(*pair, none, none, 0.0)], data)


def product_kernel(source: Space, target: Space, spec: KernelSpec, width: int) -> OperatorKernel:
    """Kernel of the host for products of element dofs."""
    return host_kernel(spec, [_product_plans(source, target, spec.dtype, width)], width)


def _product_plans(
    source: Space, target: Space, dtype: np.dtype[Any], width: int
) -> tuple[Plan, Plan]:
    return plans(Arguments.of(source), Arguments.of(target), dtype, width)[0]
