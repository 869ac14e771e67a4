"""Lower bounds for the time of an operator, from the rate of each resource of a machine.

On the host the resources are memory and arithmetic, and the bound holds for all levels of assembly.
Traffic is counted as STREAM counts it: x, stored data and indices are read once, and y is written
once without a read for ownership. On a GPU the resources are memory, shared memory, arithmetic and
atomics, and the bound holds for the operator's own level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from femops.bench.problems import Problem
from femops.geometry.jacobians import LegendreGeometry
from femops.operators import Operator
from femops.spaces.h1_l2 import H1
from femops_kernels.cuda.operator.counts import Work
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.cuda.rates import Rates
from femops_meshes.partitioning.parts import first_elements

# Enough elements for whole lanes of any width, and for dofs with all their neighbours.
_SAMPLE = 512
_REAL, _COLUMN, _ROW = 8, 4, 8  # bytes of a number, and of a matrix's indices


@final
@dataclass(frozen=True)
class Traffic:
    """Bytes that one application at a level of assembly reads and writes."""

    level: str
    read: float
    written: float

    @property
    def total(self) -> float:
        """Sum of the bytes read and written."""
        return self.read + self.written


def least_traffic(problem: Problem, space: H1) -> Traffic:
    """Traffic of the level that moves the fewest bytes, counted on some elements, not compiled."""
    ne, vector = space.mesh.num_elements, _REAL * space.size
    part = first_elements(space.mesh, min(ne, _SAMPLE))
    if part is not space.mesh:
        LegendreGeometry.share(space.mesh, part)
    sample = H1(part, space.order, space.ncomp)
    data: dict[str, float] = {}
    for level in ("matrix-free", "partial"):
        moved = problem.operator(sample, level).cost().bytes_moved - 2 * _REAL * sample.size
        data[level] = moved * ne / part.num_elements
    data["element"] = _REAL * ne * (space.element.size * space.ncomp) ** 2
    if space.order == 1:
        # at higher orders a row has 1 + 3 p entries or more, and moves more than the geometry
        data["full"] = _matrix_bytes(problem, sample, space)
    level = min(data, key=lambda name: data[name])
    return Traffic(level, vector + data[level], vector)


def _matrix_bytes(problem: Problem, sample: H1, space: H1) -> float:
    """Bytes of the matrix in compressed rows, if all rows are as long as the sample's longest."""
    matrix = problem.operator(sample).assemble()
    matrix.eliminate_zeros()
    longest = int(np.diff(matrix.indptr).max())
    # rows on a box's boundary are shorter: neighbouring vertices form (3 n + 1)^3 pairs
    n = round(float(space.mesh.num_elements) ** (1.0 / space.dim))
    inside = ((3 * n + 1) / (3 * (n + 1))) ** space.dim
    return float(space.size * (inside * longest * (_REAL + _COLUMN) + _ROW))


@final
class Bound(dict[str, float]):
    """Least seconds that each resource takes, by name. The longest of these times is the bound."""

    @property
    def seconds(self) -> float:
        """Lower bound of the time, in seconds: that of `resource`."""
        return max(self.values())

    @property
    def resource(self) -> str:
        """Name of the resource that takes longest."""
        return max(self, key=lambda name: self[name])

    def speed(self, dofs: int, seconds: float) -> dict[str, Any]:
        """Entries of a row: the speed of an application that took ``seconds``, and its limit."""
        return {
            "dofs_per_second": dofs / seconds,
            "limit": dofs / self.seconds,
            "bound": self.resource,
            "fraction_of_limit": self.seconds / seconds,
        }


def host_bound(moved: float, flops: float, bandwidth: float, peak: float) -> Bound:
    """Bound on the host from bytes moved and operations, at rates in GB/s and GFlop/s."""
    return Bound(memory=moved / bandwidth * 1e-9, arithmetic=flops / peak * 1e-9)


# --- on a GPU ---------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Demand:
    """Amounts of a device's resources that one application needs."""

    # read and written: bytes of memory: the vectors once, and data, geometry and indices of dofs
    # as stored
    read: float
    written: float
    shared: float  # bytes read from shared memory and written to it
    flops: float
    atomics: float  # numbers added by atomic operations

    @staticmethod
    def of(operator: Operator) -> Demand:
        """Count the demand of an operator on a device."""
        rows, columns = operator.shape
        totals = [float(_REAL * columns), float(_REAL * rows), 0.0, 0.0, 0.0]
        for sweep in operator.compiled.sweeps:
            if isinstance(sweep, DeviceSweep):
                work = Work.of(sweep.kernel)
                totals[0] += sweep.data_bytes
                for k, each in enumerate((work.shared_bytes, work.flops, work.atomics)):
                    totals[k + 2] += sweep.count * each
        return Demand(*totals)

    @property
    def memory(self) -> float:
        """Sum of the bytes read from memory and written."""
        return self.read + self.written

    def with_vectors(self, read: float, written: float, dofs: int) -> Demand:
        """Return the demand with ``read`` and ``written`` additional vectors."""
        each = float(_REAL * dofs)
        return replace(self, read=self.read + read * each, written=self.written + written * each)

    def of_vectors(self, count: int, dofs: int) -> Demand:
        """Demand of an application to ``count`` vectors at once: stored data are read once."""
        more = self.with_vectors(count - 1, count - 1, dofs)
        work = {name: count * getattr(self, name) for name in ("shared", "flops", "atomics")}
        return replace(more, **work)

    def bound(self, rates: Rates) -> Bound:
        """Bound of the time on a device with these rates.

        The bytes written, and as many of the bytes read, take the time of a copy. The other bytes
        read take the time of reading.
        """
        alone = max(0.0, self.read - self.written)
        return Bound(
            memory=(self.memory - alone) / rates.copied_bytes + alone / rates.read_bytes,
            shared=self.shared / rates.shared_bytes,
            flops=self.flops / rates.flops,
            atomics=self.atomics / rates.atomics,
        )
