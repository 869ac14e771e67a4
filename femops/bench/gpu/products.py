"""Products of small matrices in batches on a GPU, C = A B, beside cuBLAS and what it allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from femops.bench.gpu.record import Record, Row
from femops.bench.gpu.validation import relative_difference
from femops.bench.problems import Progress
from femops.bench.timing import Times, batch_times
from femops.errors import TensorError
from femops.tensor import Batch, Interleaved, Strided, gemm
from femops.tensor.places import NUMBERS
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Rates

SIZES = (4, 8, 16, 32, 2, 3, 6, 12, 24)
"""Rows and columns, the most important first."""

LAYOUTS = {"contiguous": Strided(), "interleaved": Interleaved(16)}

CUBLAS = "cublas", "contiguous"
"""Library and layout of the rows to compare with."""

_DIFFERENT = 4096  # numbers that are repeated: random ones take longer than all else


@final
@dataclass(frozen=True)
class ProductCase:
    """Square matrices of one size, number and type, in some layouts."""

    n: int
    members: int
    dtype: str = "float64"
    layouts: tuple[str, ...] = tuple(LAYOUTS)

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return f"products, {self.dtype}, n = {self.n}, {self.members} members"

    @property
    def flops(self) -> float:
        """Operations of all members; a complex multiply-add is four real ones."""
        return 2.0 * self.n**3 * self.members * (4 if self.dtype.startswith("c") else 1)

    def seconds(self, rates: Rates) -> tuple[float, str]:
        """The least that it can take on a device, and what binds.

        Single precision is taken to be twice as fast as double.
        """
        operand = 1.0 * np.dtype(self.dtype).itemsize * self.n**2 * self.members
        memory = 2 * operand / rates.copied_bytes + operand / rates.read_bytes
        single = self.dtype in ("float32", "complex64")
        arithmetic = self.flops / (rates.flops * (2 if single else 1))
        return max(memory, arithmetic), "memory" if memory >= arithmetic else "arithmetic"


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

    sizes: Sequence[int] = SIZES
    members: Sequence[int] = ()
    dtypes: Sequence[str] = ("float64",)
    layouts: Sequence[str] = tuple(LAYOUTS)
    entries: float = 4e7

    def check(self) -> None:
        """Refuse what can't be measured.

        Raises
        ------
        TensorError
        """
        for what, given, known in (
            ("type", self.dtypes, NUMBERS),
            ("layout", self.layouts, tuple(LAYOUTS)),
        ):
            for name in given:
                if name not in known:
                    raise TensorError(f"{what} {name!r}: choose one of {', '.join(known)}")
        if min([1, *self.sizes, *self.members]) < 1:
            raise TensorError("nothing to measure: give sizes and batches of 1 or more")

    def cases(self) -> list[ProductCase]:
        """All of it."""
        layouts = tuple(self.layouts)
        return [
            ProductCase(n, members, dtype, layouts)
            for dtype in self.dtypes
            for n in self.sizes
            for members in self.members or (max(1, int(self.entries / n**2)),)
        ]


def product_rows(
    device: Device,
    case: ProductCase,
    rates: Rates,
    seconds: float,
    found: Record,
    progress: Progress,
) -> None:
    """Add the rows of a case to a record, one for each layout and one for cuBLAS."""
    measure = partial(_rows, device, case, rates, seconds, found)
    for row in found.measure(case.name, measure) or ():
        words = f"{row['gflops']:.3g} GFlop/s, {row['fraction_of_limit']:.0%} of the limit"
        progress(f"{row['name']}: {words}")
        found.products.append(row)


def _rows(
    device: Device, case: ProductCase, rates: Rates, seconds: float, found: Record
) -> list[Row]:
    """Rows of what can be timed: where cuBLAS fails, femops is measured all the same."""
    least, bound = case.seconds(rates)
    same = {"n": case.n, "members": case.members, "dtype": case.dtype, "threads": 0}
    same |= {"limit_gflops": case.flops / least * 1e-9, "bound": bound}
    calls, outputs = _calls(device, case)
    timed: dict[tuple[str, str], Times] = {}
    for way, call in calls.items():
        what = f"{case.name}, {', '.join(way)}"
        times = found.attempt(what, partial(batch_times, device, call, seconds))
        if times is not None:
            timed[way] = times
    peer = timed[CUBLAS].median if CUBLAS in timed else None
    expected: Any = None if peer is None else device.download(outputs[CUBLAS])
    rows = []
    for way, times in timed.items():
        library, layout = way
        compared = library == "femops" and peer is not None
        off = relative_difference(outputs[way].numpy(), expected) if compared else None
        rows.append(
            {"name": f"{case.name}, {library}, {layout}"}
            | same
            | {
                "implementation": library,
                "layout": layout,
                "seconds": times.median,
                "seconds_launch": times.launch,
                "gflops": case.flops / times.median * 1e-9,
                "fraction_of_limit": least / times.median,
                "over_best_peer": peer / times.median if compared and peer else None,
                "off_peer": off,
            }
        )
    return rows


def _calls(
    device: Device, case: ProductCase
) -> tuple[dict[tuple[str, str], Callable[[], object]], dict[tuple[str, str], Any]]:
    """Calls to be timed, by library and layout, and what they set."""
    shape = case.members, case.n, case.n
    here = [Batch.wrap(_numbers(shape, case.dtype, seed)) for seed in (0, 1)]
    a, b = (device.upload(one.numpy()) for one in here)
    c = device.xp.empty(shape, np.dtype(case.dtype))
    calls: dict[tuple[str, str], Callable[[], object]]
    outputs: dict[tuple[str, str], Any]
    calls, outputs = {CUBLAS: partial(device.xp.matmul, a, b, out=c)}, {CUBLAS: c}
    for layout in case.layouts:
        x, y = (one.copy(LAYOUTS[layout]).to(device) for one in here)
        out = Batch(shape[1:], case.members, case.dtype, LAYOUTS[layout], device)
        calls["femops", layout], outputs["femops", layout] = partial(gemm, x, y, out), out
    return calls, outputs


def _numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    some = rng.standard_normal(_DIFFERENT) + 1j * rng.standard_normal(_DIFFERENT)
    return np.resize((some if dtype.startswith("c") else some.real).astype(dtype), shape)


def mean_over_peers(rows: Sequence[Row]) -> float | None:
    """Geometric mean over all cases, of the better layout of each."""
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = row["n"], row["members"], row["dtype"]
        best[key] = max(best.get(key, 0.0), row["over_best_peer"] or 0.0)
    ratios = [ratio for ratio in best.values() if ratio > 0]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None
