"""Small matrices that are known when a kernel is compiled."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.errors import KernelValueError

# Of the largest entry, for each row or column, whichever are more: entries of interpolations and
# derivatives between symmetric points, and of their products, are mirrored to that (found up to
# order 64: two thirds of it). What is off by more comes of other points, and stays as it is.
SYMMETRY_TOLERANCE = 32 * float(np.finfo(np.float64).eps)


@final
class Matrix1D:
    """A small matrix whose entries are known when a kernel is compiled.

    Shapes: `rows` (m, n).
    """

    def __init__(self, rows: Any) -> None:
        values = np.array(rows, dtype=np.float64)
        if values.ndim != 2 or values.size == 0 or not np.isfinite(values).all():
            raise KernelValueError(
                f"a 1-D matrix is finite and has two dimensions, got shape {values.shape}"
            )
        self.symmetry = 0
        flipped = values[::-1, ::-1]
        round_off = SYMMETRY_TOLERANCE * max(values.shape) * np.abs(values).max()
        for sign in (1, -1):
            if np.abs(values - sign * flipped).max() <= round_off:
                # made exact, so that the split and the full product agree to the last bits
                values = 0.5 * (values + sign * flipped)
                self.symmetry = sign
                break
        self.rows = tuple(tuple(float(v) for v in row) for row in values)

    @property
    def shape(self) -> tuple[int, int]:
        """``(m, n)``."""
        return len(self.rows), len(self.rows[0])

    @property
    def is_identity(self) -> bool:
        """True if the contraction changes nothing."""
        m, n = self.shape
        return m == n and np.array_equal(np.array(self.rows), np.eye(m))

    @property
    def is_diagonal(self) -> bool:
        """True if the contraction scales each entry by itself."""
        m, n = self.shape
        return m == n and not np.any(np.array(self.rows) - np.diag(np.diag(self.rows)))

    def split(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Even and odd halves.

        Shapes: `even` (ceil(m/2), ceil(n/2)), `odd` (ceil(m/2), floor(n/2)).
        """
        a = np.array(self.rows)
        m, n = a.shape
        top, half = a[: (m + 1) // 2], n // 2
        mirrored = top[:, ::-1]
        even = 0.5 * (top + mirrored)[:, : (n + 1) // 2]
        odd = 0.5 * (top - mirrored)[:, :half]
        return even, odd

    @property
    def splits(self) -> bool:
        """True if a contraction uses the even-odd split, which then takes no more operations.

        Half of these may be additions, which some processors do beside their multiply-adds.
        """
        m, n = self.shape
        if not self.symmetry or self.is_diagonal:
            return False
        additions = 2 * (n // 2) + 2 * (m // 2)
        return _split_products(m, n, self.symmetry) + additions <= m * n

    def operations(self) -> int:
        """Vector operations of one contraction as emitted (an FMA is one)."""
        m, n = self.shape
        if self.is_identity:
            return 0
        if self.is_diagonal:
            return m
        if self.splits:
            return 2 * (n // 2) + 2 * (m // 2) + _split_products(m, n, self.symmetry)
        return m * n

    def flops(self) -> int:
        """Floating-point operations of one contraction as emitted (an FMA is two)."""
        m, n = self.shape
        if self.is_identity:
            return 0
        if self.is_diagonal:
            return m
        if self.splits:
            return 2 * (n // 2) + 2 * (m // 2) + 2 * _split_products(m, n, self.symmetry) - m
        return 2 * m * n - m

    def __repr__(self) -> str:
        body = ", ".join("(" + ", ".join(repr(v) for v in row) + ",)" for row in self.rows)
        return f"Matrix1D(({body},))"


@final
class Tiles:
    """A table that is known when a kernel is compiled, in tiles of some of its rows.

    Shapes: `rows` (tiles * columns, rows of a tile): a tile follows the other, column by column.
    """

    def __init__(self, rows: Any, columns: int) -> None:
        self.rows = tuple(tuple(float(v) for v in row) for row in rows)
        self.columns, self.count = columns, len(self.rows) // columns
        self.size = len(self.rows[0]) if self.rows else 1

    @classmethod
    def of(cls, table: NDArray[np.float64], size: int) -> Tiles:
        """Tiles of a table (rows, columns), with rows of zeros that complete the last one."""
        if not table.size:
            return cls((), 1)
        table = np.pad(table, ((0, -len(table) % size), (0, 0)))
        tiles = table.reshape(-1, size, table.shape[1]).swapaxes(1, 2)
        return cls(tiles.reshape(-1, size), table.shape[1])

    def __repr__(self) -> str:
        return f"Tiles({self.rows!r}, {self.columns})"


def _split_products(m: int, n: int, symmetry: int) -> int:
    products = (m // 2) * n
    if m % 2:
        products += (n + 1) // 2 if symmetry > 0 else n // 2
    return products
