"""Batches of small square matrices whose products are measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.problems import choose
from femops.errors import TensorError
from femops.tensor import Interleaved, Strided
from femops.tensor.places import NUMBERS

LAYOUTS = ("contiguous", "interleaved")

_DIFFERENT = 4096  # numbers that are repeated: random ones take longer than all else


@final
@dataclass(frozen=True)
class ProductCase:
    """Square matrices of one size, number and type, in some layouts."""

    n: int
    members: int
    dtype: str = "float64"
    layouts: tuple[str, ...] = LAYOUTS

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return f"products, {self.dtype}, n = {self.n}, {self.members} members"

    @property
    def facts(self) -> dict[str, Any]:
        """Size, number and type, as rows have them."""
        return {"n": self.n, "members": self.members, "dtype": self.dtype}

    @property
    def flops(self) -> float:
        """Operations of all members; a complex multiply-add is four real ones."""
        return 2.0 * self.n**3 * self.members * (4 if self.dtype.startswith("c") else 1)

    @property
    def nbytes(self) -> float:
        """Bytes of one operand."""
        return 1.0 * np.dtype(self.dtype).itemsize * self.n**2 * self.members

    def operands(self) -> list[NDArray[Any]]:
        """Two operands that are neither zero nor alike."""
        found = []
        for seed in (0, 1):
            rng = np.random.default_rng(seed)
            some = rng.standard_normal(_DIFFERENT) + 1j * rng.standard_normal(_DIFFERENT)
            numbers = (some if self.dtype.startswith("c") else some.real).astype(self.dtype)
            found.append(np.resize(numbers, (self.members, self.n, self.n)))
        return found


def layout_of(name: str, on_device: bool) -> Strided | Interleaved:
    """One of `LAYOUTS`: lanes on a device are those of whole lines of memory."""
    if name == "contiguous":
        return Strided()
    return Interleaved(16) if on_device else Interleaved()


@final
@dataclass(frozen=True)
class Products:
    """Choice of what is measured.

    Attributes
    ----------
    sizes : sequence of int
        Rows and columns, in the order in which they are measured.
    members : sequence of int
        Matrices of a batch; if there are none, so many that each operand has `entries`.
    dtypes, layouts : sequence of str
    entries : float
    """

    sizes: Sequence[int] = (4, 8, 16, 32, 2, 3, 6, 12, 24)
    members: Sequence[int] = ()
    dtypes: Sequence[str] = ("float64",)
    layouts: Sequence[str] = LAYOUTS
    entries: float = 4e7

    def check(self) -> None:
        """Refuse what can't be measured.

        Raises
        ------
        TensorError
        """
        choose("type", self.dtypes, NUMBERS, error=TensorError)
        choose("layout", self.layouts, LAYOUTS, error=TensorError)
        if min([1, *self.sizes, *self.members]) < 1:
            raise TensorError("nothing to measure: give sizes and batches of 1 or more")

    def cases(self) -> list[ProductCase]:
        """All of it."""
        return [
            ProductCase(n, members, dtype, tuple(self.layouts))
            for dtype in self.dtypes
            for n in self.sizes
            for members in self.members or (max(1, int(self.entries / n**2)),)
        ]


def mean_over_peers(rows: Iterable[dict[str, Any]]) -> float | None:
    """Geometric mean of how many times as fast as the best peer femops is, in its better layout."""
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = row["n"], row["members"], row["dtype"], row["threads"]
        best[key] = max(best.get(key, 0.0), row["over_best_peer"] or 0.0)
    ratios = [ratio for ratio in best.values() if ratio > 0]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None
