"""Sweeps of forms on several fields of different spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cpu.kernels.kernel import FieldKernel
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sweep import HostLaunch, address_table, data_entries, plan_entries
from femops_kernels.pointwise.qdata import ALIGNMENT, Data, aligned_array
from femops_kernels.skeletons.chunk import table as layout

Ints = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class FieldDofs:
    """Dofs of a field, and of the test function of the same space, in the vectors of a sweep.

    Attributes
    ----------
    plan : Plan
        Plan of the field. The plans of all fields have the same chunks of elements.
    first : int
        Entry of the vectors with which the field begins.
    constrained : (n,) int64
        Flat positions in the field where the result is zero.
    """

    plan: Plan
    first: int
    constrained: Ints


@final
@dataclass(frozen=True, eq=False)
class Contributions:
    """Contributions of a sweep to ghosts of one test function; see `ElementSweep`."""

    target: Plan
    buffer: NDArray[Any]
    numbers: int

    @property
    def contributed(self) -> Ints:
        """See `Launch.contributed`."""
        return self.target.contributed


@final
class FieldSweep(HostLaunch):
    """A kernel of several fields bound to plans and data.

    Parameters
    ----------
    kernel : FieldKernel
    fields : sequence of FieldDofs
        For each field of the kernel.
    data : Data
    effort : int
        See `HostLaunch`.

    Attributes
    ----------
    functionals : (nbatch, minima + sums, width) array
        Of each element, set by an application.
    contributions : list of Contributions
        For each test function.
    with_ghosts : (nchunks,) bool
        True for each chunk that touches ghosts.
    """

    on_elements = True

    def __init__(
        self, kernel: FieldKernel, fields: Sequence[FieldDofs], data: Data, effort: int
    ) -> None:
        first, plan = kernel.first, fields[0].plan
        shape = int(plan.first_batch[-1]), kernel.minima + kernel.sums, first.width
        self.functionals = aligned_array(shape, first.dtype)
        self.contributions = []
        blocks, module = [], kernel.module
        common = data_entries(data) | {
            layout.FUNCTIONALS: self.functionals,
            layout.BATCHES: module.batches.address,
            layout.BLOCKS: len(fields),
        }
        for k, (side, field) in enumerate(zip(kernel.sources, fields, strict=True)):
            target = field.plan if k in kernel.targets else _without_dofs(field.plan)
            # padding elements, which are the last, write behind the last chunk's piece
            buffered = (len(target.nonowned_dofs) + target.runs.longest) * side.ncomp
            buffer = np.empty(buffered, first.dtype)
            if k in kernel.targets:
                self.contributions.append(Contributions(target, buffer, side.ncomp))
            start, positions = target.local_positions(field.constrained, side.ncomp)
            entries = plan_entries(field.plan, target, side.ncomp, side.ncomp) | common
            origin = field.first * first.dtype.itemsize
            blocks.append(
                entries
                | {
                    layout.BUFFER: buffer,
                    layout.CONSTRAINED_START: start,
                    layout.CONSTRAINED: positions,
                    layout.IN_ORIGIN: origin,
                    layout.OUT_ORIGIN: origin,
                }
            )
        self._blocks = blocks  # keeps the arrays alive
        self.table = np.concatenate([address_table(entries) for entries in blocks])
        chunk = kernel.chunk()
        addresses = chunk.sweep.address, chunk.combine.address, self.table.ctypes.data
        self.row = (*addresses, plan.nchunks)
        sizes = [field.plan.local_size for field in fields]
        needed = kernel.work_bytes(sizes, [sizes[k] for k in kernel.targets])
        self.work_bytes = -(-needed // ALIGNMENT) * ALIGNMENT
        self.with_ghosts = np.any([field.plan.with_ghosts for field in fields], axis=0)
        self.effort = effort

    def set_ghosts(self, field: int, address: int) -> None:
        """Set the address of the values of a field's ghosts."""
        self.table[field * layout.WORDS + layout.IN_GHOSTS] = address


def _without_dofs(plan: Plan) -> Plan:
    """Plan for a field without a test function: the same chunks, but no dofs."""
    none, starts = np.zeros(0, dtype=np.int64), np.zeros_like(plan.first_batch)
    return replace(
        plan,
        owned_start=starts,
        nonowned_start=starts,
        nonowned_end=starts[:-1],
        nonowned_dofs=none,
        combine_start=starts,
        combine_dof=none,
        combine_slot=none,
        local_size=0,
    )
