"""A compiled kernel that sums the diagonals of element matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import Parts
from femops_kernels.cpu.kernels.kernel import Kernel, SweepKernel
from femops_kernels.simd.matrix import Matrix1D


@final
@dataclass(frozen=True, eq=False)
class DiagonalKernel(SweepKernel):
    """Kernel that sums the diagonals of element matrices; ``skeletons/batch/batch_diagonal.py``.

    Attributes
    ----------
    kernel : Kernel
        Kernel of the operator whose diagonal is summed.  The operator is square.
    slopes : (q1d, p1d) float64
        Derivatives of the basis functions at the quadrature points.
    """

    kernel: Kernel
    slopes: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("dim", "sources", "targets", "dtype", "width"):
            object.__setattr__(self, name, getattr(self.kernel, name))

    @property
    def parts(self) -> Parts:
        """See `SweepKernel.parts`."""
        values, slopes = self.target.b1d, self.slopes
        constants = self.kernel.constants() | {
            "VALUES": Matrix1D((values * values).T),
            "MIXED": Matrix1D((values * slopes).T),
            "SLOPES": Matrix1D((slopes * slopes).T),
        }
        around = ("table", "copies", "ahead", "weights", "geometry")
        return self.skeletons(*around, "batch_diagonal"), constants, self.kernel.qfunction.text
