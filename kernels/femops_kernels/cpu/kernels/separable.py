"""Kernel of elements whose matrices are sums of Kronecker products of 1-D matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import Parts
from femops_kernels.cpu.kernels.kernel import (
    OperatorKernel,
    Side,
    no_element_numbers,
    stored_sizes,
)
from femops_kernels.simd.matrix import Matrix1D


@final
@dataclass(frozen=True, eq=False)
class SeparableKernel(OperatorKernel):
    """Kernel of ``y = sum_e A_e x`` on boxes; see ``skeletons/batch/batch_separable.py``."""

    dim: int
    sources: tuple[Side, ...]
    targets: tuple[Side, ...]
    dtype: np.dtype[Any]
    width: int
    # mass and stiffness of each direction are (nodes of the target, of the source): integrals over
    # the reference segment of products of values, and of derivatives (or of derivatives of one
    # function and values of the other)
    mass: tuple[NDArray[np.float64], ...]
    stiffness: tuple[NDArray[np.float64], ...]
    # value and gradient: True if the sum has products of values, and products of derivatives
    value: bool
    gradient: bool

    @property
    def parts(self) -> Parts:
        around = ("table", "copies", "ahead", "stored", "pieces")
        return self.skeletons(*around, "batch_separable"), self._constants(), ""

    @cached_property
    def multivector(self) -> CompiledKernel:
        none = no_element_numbers() | {"POINTS": 1, "NQDATA": 0}
        stored = stored_sizes(self.width, self.dtype, reproducible=self.reproducible)
        constants = none | self._constants() | stored
        return self.vector_module(("batch_separable",), constants)

    def _constants(self) -> dict[str, object]:
        factors = self.source.ncomp * (self.value + self.dim * self.gradient)
        return self.sizes() | {
            "NELEMENT": factors,
            "VALUE_IN": self.value,
            "GRAD_IN": self.gradient,
            "MASS": tuple(Matrix1D(matrix) for matrix in self.mass),
            "STIFF": tuple(Matrix1D(matrix) for matrix in self.stiffness),
            "BY_CHUNK": self.source.shape[0] <= 3,
        }

    def contraction_flops(self) -> int:
        """Number of floating-point operations that the compiled code does for one element."""
        return self._count(Matrix1D.flops, 2)

    def contraction_operations(self) -> int:
        """Number of instructions on lanes for one element. A multiply-add is one instruction."""
        return self._count(Matrix1D.operations, 1)

    def _count(self, count: Callable[[Matrix1D], int], multiply_add: int) -> int:
        """Sum of all lines, by a count for a matrix and one for a multiply-add."""
        total, dim = 0, self.dim
        for d in reversed(range(dim)):  # the last direction is gathered first
            n, m = self.source.shape[d], self.target.shape[d]
            by_mass, by_stiffness = (
                count(Matrix1D(matrices[d])) for matrices in (self.mass, self.stiffness)
            )
            alone, last = d == dim - 1, d == 0
            line = 0 if alone and last and not self.value else by_mass
            if self.gradient:
                both = not alone or (last and self.value)  # something is added to
                line += by_stiffness + m * (multiply_add if both else 1)
                line += by_mass * (not alone and not last)
            if last and self.value:
                line += n * (1 if alone or not self.gradient else multiply_add)
            total += math.prod(self.target.shape[d + 1 :]) * math.prod(self.source.shape[:d]) * line
        return self.source.ncomp * total
