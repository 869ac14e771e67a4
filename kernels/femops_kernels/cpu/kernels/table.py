"""Kernel of elements whose functions are no products of functions of one direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import Parts
from femops_kernels.cpu.kernels.kernel import OperatorKernel, Side, stored_sizes
from femops_kernels.pointwise.qfunction import QFunctionCode
from femops_kernels.simd.matrix import Matrix1D

Table = NDArray[np.float64]
"""Values, then derivatives along each direction, (1 + dim, points, functions)."""


@final
@dataclass(frozen=True, eq=False)
class TableKernel(OperatorKernel):
    """Kernel of ``y = sum_e B^T D B x``; its source is ``skeletons/batch/batch_table.py``."""

    dim: int
    sources: tuple[Side, ...]
    targets: tuple[Side, ...]
    tables: tuple[tuple[Table, ...], tuple[Table, ...]]  # of the sources, and of the targets
    qfunction: QFunctionCode
    dtype: np.dtype[Any]
    width: int
    weights: NDArray[np.float64]  # (points,)
    data_dtype: np.dtype[Any] | None = None
    blocks: tuple[int, ...] = (0,)

    @property
    def parts(self) -> Parts:
        around = ("table", "copies", "weights", "geometry", "pieces")
        return self.skeletons(*around, "batch_table"), self._constants(), self.qfunction.text

    @cached_property
    def multivector(self) -> CompiledKernel:
        return self.vector_module(("batch_table",), self._constants(), self.qfunction.text)

    def _constants(self) -> dict[str, object]:
        code, into, out = self.qfunction, *self.tables
        stored = self.data_dtype or self.dtype
        return self.sizes() | {
            "Q1D": 1,
            "POINTS": len(self.weights),
            **code.numbers.named(),
            "G1D": 1,
            **stored_sizes(self.width, stored, reproducible=self.reproducible),
            "WEIGHTS": Matrix1D([self.weights if code.numbers.weight else [1.0]]),
            "VALUE_IN": code.value_in,
            "VALUE_OUT": code.value_out,
            "GRAD_IN": code.gradient_in,
            "GRAD_OUT": code.gradient_out,
            "PREFETCH": False,
            "TABLES_IN": _padded(into, code.value_in, code.gradient_in, turned=False),
            "TABLES_OUT": _padded(out, code.value_out, code.gradient_out, turned=True),
        }

    def contraction_flops(self) -> int:
        """Number of floating-point operations of one element, without the q-function."""
        constants: Any = self._constants()
        flops = 0
        for sides, name in ((self.sources, "TABLES_IN"), (self.targets, "TABLES_OUT")):
            for side, matrix in zip(sides, constants[name], strict=True):
                flops += side.ncomp * 2 * matrix.shape[0] * matrix.shape[1]
        return flops


def _padded(
    tables: Sequence[Table], valued: bool, sloped: bool, *, turned: bool
) -> tuple[Matrix1D, ...]:
    """Rows of the kinds that are used, or their transpose, with zeros that fill up fours."""
    made = []
    for table in tables:
        rows = table[0 if valued else 1 : None if sloped else 1].reshape(-1, table.shape[2])
        rows = rows.T if turned else rows
        made.append(Matrix1D(np.pad(rows, ((0, -len(rows) % 4), (0, 0)))))
    return tuple(made)
