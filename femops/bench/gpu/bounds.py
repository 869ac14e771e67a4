"""The bound on the time of an operator on a GPU: memory, shared memory, arithmetic, atomics."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import final

from femops.operators import Operator
from femops_kernels.cuda.operator.counts import Work
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.cuda.rates import Rates

_REAL = 8  # bytes of a number


@final
@dataclass(frozen=True)
class Demand:
    """What one application asks of a device.

    Attributes
    ----------
    memory : float
        Bytes: the vectors once, data, geometry and the places of dofs as they are stored.
    shared : float
        Bytes read from shared memory and written to it.
    flops : float
    atomics : float
        Numbers added.
    """

    memory: float
    shared: float
    flops: float
    atomics: float

    @staticmethod
    def of(operator: Operator) -> Demand:
        """Count that of an operator on a device."""
        totals = [float(_REAL * sum(operator.shape)), 0.0, 0.0, 0.0]
        for sweep in operator.compiled.sweeps:
            if isinstance(sweep, DeviceSweep):
                work = Work.of(sweep.kernel)
                totals[0] += sweep.data_bytes
                for k, each in enumerate((work.shared_bytes, work.flops, work.atomics)):
                    totals[k + 1] += sweep.count * each
        return Demand(*totals)

    def with_vectors(self, passes: int, dofs: int) -> Demand:
        """With so many vectors more read or written."""
        more = float(_REAL * passes * dofs)
        return Demand(self.memory + more, self.shared, self.flops, self.atomics)

    def bound(self, rates: Rates) -> Bound:
        """The least time that a device of these rates can take."""
        return Bound(
            self.memory / rates.copied_bytes,
            self.shared / rates.shared_bytes,
            self.flops / rates.flops,
            self.atomics / rates.atomics,
        )


@final
@dataclass(frozen=True)
class Bound:
    """Seconds that each of them alone takes at least; the longest is the bound."""

    memory: float
    shared: float
    flops: float
    atomics: float

    @property
    def seconds(self) -> float:
        """The bound."""
        return max(self.memory, self.shared, self.flops, self.atomics)

    @property
    def name(self) -> str:
        """What binds."""
        return max((field.name for field in fields(self)), key=lambda name: getattr(self, name))
