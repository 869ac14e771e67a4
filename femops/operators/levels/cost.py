"""Cost of an operator: operations and bytes, counted without running it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import final

from femops_common import html


@final
@dataclass(frozen=True)
class Cost:
    """Cost of one application of an operator, and of making the operator. Costs can be added.

    Attributes
    ----------
    flops : int
        Floating-point operations of the emitted contractions and of the q-functions. A fused
        multiply-add counts as two.
    bytes_moved : int
        Least memory traffic, in bytes: stored data, indices and x are read once, y is written.
    stored_bytes : int
        Bytes that the operator stores for its applications. Its copies of coefficients are not
        counted, because applications do not read them.
    shared_bytes : int
        Bytes that all operators on its spaces share: the indices of the element restriction, and
        the geometry that kernels read.
    assembly_flops : int
        Floating-point operations that compute the stored data. Functions of x are not counted.
    data_flops : int
        The part of these operations that computes D at quadrature points or in elements.
    """

    flops: int = 0
    bytes_moved: int = 0
    stored_bytes: int = 0
    shared_bytes: int = 0
    assembly_flops: int = 0
    data_flops: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def _repr_html_(self) -> str:
        rows = [
            ("operations of a product", f"{self.flops:,}"),
            ("bytes that a product moves", f"{self.bytes_moved:,}"),
            ("bytes stored", f"{self.stored_bytes:,}"),
            ("bytes shared with other operators", f"{self.shared_bytes:,}"),
            ("operations of the setup", f"{self.assembly_flops:,}"),
            ("of these for D at points", f"{self.data_flops:,}"),
        ]
        return html.table("Cost", rows)
