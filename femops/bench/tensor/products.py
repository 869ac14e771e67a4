"""Products of the matrices of a batch, C += A B, compared with a lower bound of the time.

The bound is the larger of two times. The first is the time to read A, B and C and to write C, at
the bandwidth for this footprint and mix of reads and writes. The second is the time of the
operations at the rate of multiply-adds. For square float64 matrices at bandwidth W the limit by
memory is n W / 16 flops per second (tensor report, section 6.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.bounds import Bound, Traffic, host_bound
from femops.bench.machine import Meter, one_blas_thread
from femops.bench.problems import Progress, check_asked, choose
from femops.errors import TensorError
from femops.tensor import Batch, Interleaved, Strided, gemm
from femops.tensor.places import NUMBERS

Way = tuple[str, str]
"""Library and layout."""

_PEER: Way = "numpy", "contiguous"

LAYOUTS = ("contiguous", "interleaved")

_DIFFERENT = 4096  # random numbers, which are repeated to save time


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
    def flops(self) -> float:
        """Operations of all members; a complex multiply-add is four real ones."""
        return 2.0 * self.n**3 * self.members * (4 if self.dtype.startswith("c") else 1)

    @property
    def nbytes(self) -> float:
        """Bytes of one operand."""
        return 1.0 * np.dtype(self.dtype).itemsize * self.n**2 * self.members

    def row(self, way: Way, threads: int, seconds: float, bound: Bound) -> dict[str, Any]:
        """Entries of the row of a library and layout, with the bound."""
        row = {"n": self.n, "members": self.members, "dtype": self.dtype, "threads": threads}
        row |= {"limit_gflops": self.flops / bound.seconds * 1e-9, "bound": bound.resource}
        row |= {"implementation": way[0], "layout": way[1], "seconds": seconds}
        row["gflops"] = self.flops / seconds * 1e-9
        return row | {"fraction_of_limit": bound.seconds / seconds}

    def operands(self) -> list[NDArray[Any]]:
        """Two different operands (members, n, n) of pseudo-random numbers."""
        found = []
        for seed in (0, 1):
            rng = np.random.default_rng(seed)
            some = rng.standard_normal(_DIFFERENT) + 1j * rng.standard_normal(_DIFFERENT)
            numbers = (some if self.dtype.startswith("c") else some.real).astype(self.dtype)
            found.append(np.resize(numbers, (self.members, self.n, self.n)))
        return found


def layout_of(name: str, on_device: bool) -> Strided | Interleaved:
    """Make a layout from its name in `LAYOUTS`. On a device it interleaves 16 members."""
    if name == "contiguous":
        return Strided()
    return Interleaved(16) if on_device else Interleaved()


@final
@dataclass(frozen=True)
class Products:
    """Settings of the benchmark of products."""

    # numbers of rows and columns, in the order of their measurement
    sizes: Sequence[int] = (4, 8, 16, 32, 2, 3, 6, 12, 24)
    # numbers of matrices in a batch. If empty, each operand has about `entries` numbers.
    members: Sequence[int] = ()
    dtypes: Sequence[str] = ("float64",)
    layouts: Sequence[str] = LAYOUTS
    entries: float = 4e7

    def check(self) -> None:
        """Raise if a setting is unknown or out of range."""
        choose("type", self.dtypes, NUMBERS, error=TensorError)
        choose("layout", self.layouts, LAYOUTS, error=TensorError)
        if min([1, *self.sizes, *self.members]) < 1:
            raise TensorError("nothing to measure: give sizes and batches of 1 or more")

    def cases(self) -> list[ProductCase]:
        """All cases: each type, size and number of matrices, in all layouts."""
        return [
            ProductCase(n, members, dtype, tuple(self.layouts))
            for dtype in self.dtypes
            for n in self.sizes
            for members in self.members or (max(1, int(self.entries / n**2)),)
        ]


def mean_over_peers(rows: Iterable[dict[str, Any]]) -> float | None:
    """Geometric mean over cases of femops' speedup over the best peer, in the better layout."""
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = row["n"], row["members"], row["dtype"], row["threads"]
        best[key] = max(best.get(key, 0.0), row["over_best_peer"] or 0.0)
    ratios = [ratio for ratio in best.values() if ratio > 0]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None


def _rows(
    case: ProductCase, threads: int, meter: Meter, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Measure all implementations and the limit in turns. Return a row for each."""
    traffic, bounds = Traffic("gemm", 3.0 * case.nbytes, case.nbytes), list[Bound]()

    def limit() -> None:
        bandwidth, peak = meter.bandwidth(threads, traffic), meter.peak(threads, 1)
        bounds.append(host_bound(traffic.total, case.flops, bandwidth, peak))

    times = meter.turns(_calls(case, threads), threads, rounds, seconds, limit)
    limits, peer = np.array([bound.seconds for bound in bounds]), np.array(times[_PEER])
    middle = sorted(bounds, key=lambda bound: bound.seconds)[rounds // 2]
    rows = []
    for way, each in times.items():
        row = case.row(way, threads, float(np.median(each)), middle)
        row["fraction_of_limit"] = float(np.median(limits / each))
        row["over_best_peer"] = None if way == _PEER else float(np.median(peer / each))
        rows.append(row)
    return rows


def _calls(case: ProductCase, threads: int) -> dict[Way, Callable[[], object]]:
    """Return the calls to be timed, by library and layout."""
    a, b = case.operands()
    c = np.zeros_like(a)
    calls: dict[Way, Callable[[], object]] = {}
    for name in case.layouts:
        batches: list[Any] = [a, b, c]
        if name != "contiguous":
            layout = layout_of(name, on_device=False)
            batches = [Batch.wrap(array).copy(layout) for array in batches]
        calls["femops", name] = partial(gemm, *batches, beta=1.0)
    return calls | {_PEER: _by_numpy(threads, a, b, c)}


def _by_numpy(threads: int, a: Any, b: Any, c: Any) -> Callable[[], object]:
    """Return a function that computes ``c += a @ b`` by NumPy, a part of the batch per thread."""

    def add(part: slice) -> None:
        c[part] += a[part] @ b[part]

    if threads == 1:
        return partial(add, slice(None))
    edges = np.linspace(0, len(a), threads + 1).astype(int)
    pool, parts = ThreadPoolExecutor(threads), [slice(*edge) for edge in pairwise(edges)]
    return lambda: list(pool.map(add, parts))


def run_gemm(
    products: Products,
    threads: Sequence[int] = (1,),
    rounds: int = 3,
    seconds: float = 0.02,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Measure all cases of products, each in several rounds."""
    products.check()
    check_asked(rounds=rounds)
    if not products.sizes or not products.members:
        raise TensorError("nothing to measure: give sizes and batches of 1 or more")
    rows: list[dict[str, Any]] = []
    with one_blas_thread() or nullcontext():
        meter = Meter(tuple(threads))
        meter.round()
        for count in threads:
            for each in products.cases():
                progress(f"{each.name}, threads {count}")
                rows += _rows(each, count, meter, rounds, seconds)
            meter.round()
    mean = mean_over_peers(rows)
    return {"machine": meter.describe(), "rows": rows, "mean_over_best_peer": mean}
