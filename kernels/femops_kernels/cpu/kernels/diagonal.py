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
    """Kernel that sums the diagonals of element matrices; ``skeletons/batch/batch_diagonal.py``."""

    # kernel of the operator whose diagonal is summed.  The operator is square.  It has one field,
    # or both sides of one on faces between elements: then only the blocks are summed that couple
    # a side with itself.
    kernel: Kernel
    # of each direction, (points, nodes): derivatives of the basis functions at the points
    slopes: tuple[NDArray[np.float64], ...]

    def __post_init__(self) -> None:
        for name in ("dim", "sources", "targets", "blocks", "dtype", "width"):
            object.__setattr__(self, name, getattr(self.kernel, name))

    @property
    def parts(self) -> Parts:
        end = self.target.end
        pairs = [*zip(self.target.bases, self.slopes, strict=True)]
        if end is not None:
            pairs[-1] = end[:1], end[1:]
        squares = {"SQUARES": tuple(_squares(*pair) for pair in pairs), "ON_FACES": end is not None}
        constants = self.kernel.constants() | squares
        around = ("table", "copies", "ahead", "weights", "geometry", "pieces", "face_nodes")
        return self.skeletons(*around, "batch_diagonal"), constants, self.kernel.qfunction.text


def _squares(values: NDArray[np.float64], slopes: NDArray[np.float64]) -> tuple[Matrix1D, ...]:
    """Products of two basis functions at points: of values, of a value and a derivative, of both.

    ``values`` and ``slopes`` are (points, nodes).
    """
    pairs = (values, values), (values, slopes), (slopes, slopes)
    return tuple(Matrix1D((a * b).T) for a, b in pairs)
