"""Contractions of two tensors, wherever they are computed."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass

from femops_kernels.simd.tensor.offsets import Offsets


@dataclass(frozen=True)
class PairContraction(ABC):
    """Sums ``c[i, j] = alpha sum_k a[i, k] b[k, j] + beta c[i, j]`` of one member.

    Indices stand for any numbers of indices of tensors: offsets say where entries are.
    """

    dtype: str  # float32, float64, complex64 or complex128
    # a_rows, a_terms, b_terms, b_columns, c_rows and c_columns: offsets in numbers; an entry's is
    # the sum of two
    a_rows: Offsets
    a_terms: Offsets
    b_terms: Offsets
    b_columns: Offsets
    c_rows: Offsets
    c_columns: Offsets

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and terms."""
        return len(self.c_rows), len(self.c_columns), len(self.a_terms)

    @property
    def parts(self) -> int:
        """Real numbers of a number."""
        return 2 if self.dtype.startswith("complex") else 1
