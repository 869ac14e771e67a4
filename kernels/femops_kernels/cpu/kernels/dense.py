"""Kernels with a stored dense matrix of each element."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.cpu.kernels.kernel import OperatorKernel, Side


@final
@dataclass(frozen=True, eq=False)
class ElementKernel(OperatorKernel):
    """Kernel of ``y = sum_e A_e x`` with stored element matrices.

    Its source is ``skeletons/batch/batch_element.py``.

    The data of its sweep have the shape (nbatch, rows, columns, width).  Rows and columns are
    ordered component after component.
    """

    dim: int
    sources: tuple[Side, ...]
    targets: tuple[Side, ...]
    dtype: np.dtype[Any]
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of an element matrix."""
        rows, columns = (s.ncomp * s.num_nodes for s in (self.target, self.source))
        return rows, columns

    @property
    def parts(self) -> Parts:
        rows, columns = self.shape
        constants = self.sizes() | {"POINTS": rows, "NQDATA": columns}
        return self.skeletons("table", "copies", "batch_element"), constants, ""

    @cached_property
    def multivector(self) -> CompiledKernel:
        """See `OperatorKernel.multivector`. BLAS multiplies the element matrices."""
        constants = self.sizes() | {"GEMM_BYTES": self.dtype.itemsize}
        skeletons = "vector_table", "vector_groups", "vector_rows", "cell_matrix"
        return specialize(skeletons, constants)

    def contraction_flops(self) -> int:
        """Number of floating-point operations of one element."""
        rows, columns = self.shape
        return rows * (2 * columns + 3)
