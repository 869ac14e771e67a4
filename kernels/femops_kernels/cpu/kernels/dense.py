"""Kernels with stored dense matrices: of each element, or one basis for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, final

import numpy as np

from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.cpu.kernels.kernel import (
    OperatorKernel,
    Side,
    no_element_numbers,
    stored_sizes,
)
from femops_kernels.pointwise.qfunction import QFunctionCode


@final
@dataclass(frozen=True, eq=False)
class ElementKernel(OperatorKernel):
    """Kernel of ``y = sum_e A_e x`` with stored element matrices.

    Its source is ``skeletons/batch/batch_element.py``.

    The data of its sweep are (nbatch, rows, columns, width), rows and columns component after
    component.

    Attributes
    ----------
    dim, sources, targets, dtype, width
        See `SweepKernel`.
    """

    dim: int
    sources: tuple[Side, ...]
    targets: tuple[Side, ...]
    dtype: np.dtype[Any]
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of an element matrix."""
        rows, columns = (s.ncomp * s.p1d**self.dim for s in (self.target, self.source))
        return rows, columns

    @property
    def parts(self) -> Parts:
        """See `SweepKernel.parts`."""
        rows, columns = self.shape
        constants = self.sizes() | {"POINTS": rows, "NQDATA": columns}
        return self.skeletons("table", "copies", "batch_element"), constants, ""

    @cached_property
    def multivector(self) -> ModuleType:
        """See `OperatorKernel.multivector`: products by BLAS."""
        constants = self.sizes() | {"GEMM_BYTES": self.dtype.itemsize}
        skeletons = "vector_table", "vector_groups", "vector_rows", "cell_matrix"
        return specialize(skeletons, constants)

    def contraction_flops(self) -> int:
        """Floating-point operations of one element."""
        rows, columns = self.shape
        return rows * (2 * columns + 3)


@final
@dataclass(frozen=True, eq=False)
class DecomposedKernel(OperatorKernel):
    """Kernel of ``y = sum_e B^T D B x`` with dense bases; ``skeletons/batch/batch_decomposed.py``.

    Attributes
    ----------
    dim, sources, targets, dtype, width
        See `SweepKernel`.
    q1d : int
        Quadrature points per direction.
    qfunction : QFunctionCode
    data_dtype : numpy.dtype, optional
        See `Kernel`.
    """

    dim: int
    sources: tuple[Side, ...]
    targets: tuple[Side, ...]
    q1d: int
    qfunction: QFunctionCode
    dtype: np.dtype[Any]
    width: int
    data_dtype: np.dtype[Any] | None = None

    @property
    def parts(self) -> Parts:
        """See `SweepKernel.parts`."""
        skeletons = self.skeletons("table", "copies", "stored", "batch_decomposed")
        return skeletons, self._constants(), self.qfunction.text

    @cached_property
    def multivector(self) -> ModuleType:
        """See `OperatorKernel.multivector`."""
        constants = self._constants() | no_element_numbers()
        return self.vector_module(("batch_decomposed",), constants, self.qfunction.text)

    def _constants(self) -> dict[str, object]:
        qfunction = self.qfunction
        return self.sizes() | {
            "POINTS": self.q1d ** (self.dim - self.on_faces),
            "NQDATA": qfunction.numbers.point,
            **stored_sizes(
                self.width, self.data_dtype or self.dtype, reproducible=self.reproducible
            ),
            "VALUE_IN": qfunction.value_in,
            "VALUE_OUT": qfunction.value_out,
            "GRAD_IN": qfunction.gradient_in,
            "GRAD_OUT": qfunction.gradient_out,
        }

    def contraction_flops(self) -> int:
        """Floating-point operations of both bases for one element."""
        qfunction, points = self.qfunction, self.q1d ** (self.dim - self.on_faces)
        slots_in = qfunction.value_in + self.dim * qfunction.gradient_in
        slots_out = qfunction.value_out + self.dim * qfunction.gradient_out
        return sum(
            2 * side.ncomp * slots * points * side.p1d**self.dim
            for side, slots in ((self.source, slots_in), (self.target, slots_out))
        )
