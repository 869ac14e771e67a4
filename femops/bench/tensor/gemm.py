"""Products of the matrices of a batch, C += A B, beside the least time that they can take.

The limit is the larger time of two: the bytes of A, B and C read and C written, at the bandwidth
of this footprint and mix of reads and writes; the operations at the rate of multiply-adds. For
square float64 matrices at bandwidth W that is n W / 16 (tensor report, section 6.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.bounds import Traffic, longest
from femops.bench.machine import Meter, one_blas_thread, using
from femops.bench.problems import Progress, check_asked
from femops.bench.tensor.products import ProductCase, Products, layout_of, mean_over_peers
from femops.bench.timing import call_seconds, repeated
from femops.errors import TensorError
from femops.tensor import Batch, gemm

Way = tuple[str, str]
"""Library and layout."""

Array = NDArray[Any]


@final
class _Case:
    """Matrices of one size and number, and the seconds of each implementation."""

    def __init__(self, case: ProductCase, threads: int) -> None:
        self._case, self._threads = case, threads
        a, b = case.operands()
        c = np.zeros_like(a)
        self._calls: dict[Way, Callable[[], object]] = {}
        for name in case.layouts:
            batches: list[Any] = [a, b, c]
            if name != "contiguous":
                layout = layout_of(name, on_device=False)
                batches = [Batch.wrap(array).copy(layout) for array in batches]
            self._calls["femops", name] = partial(gemm, *batches, beta=1.0)
        self._calls["numpy", "contiguous"] = partial(_by_numpy(threads), a, b, c)
        self._seconds: dict[Way, list[float]] = {way: [] for way in self._calls}
        self._limits: list[dict[str, float]] = []

    def measure(self, meter: Meter, seconds: float) -> None:
        """One round: the limit, then all implementations in turn."""
        traffic = Traffic("gemm", 3.0 * self._case.nbytes, self._case.nbytes)
        bandwidth, peak = meter.bandwidth(self._threads, traffic), meter.peak(self._threads, 1)
        memory, arithmetic = traffic.total / bandwidth, self._case.flops / peak
        self._limits.append({"memory": memory * 1e-9, "arithmetic": arithmetic * 1e-9})
        for way, call in self._calls.items():
            call()
            times = repeated(partial(call_seconds, call), seconds)
            self._seconds[way].append(float(np.median(times)))

    def rows(self) -> list[dict[str, Any]]:
        """A row for each implementation."""
        limits = [max(limit.values()) for limit in self._limits]
        same = self._case.facts | {
            "threads": self._threads,
            "limit_gflops": self._case.flops / float(np.median(limits)) * 1e-9,
            "bound": longest(self._limits[len(limits) // 2]),
        }
        others = [times for (name, _), times in self._seconds.items() if name != "femops"]
        found = []
        for (name, layout), seconds in self._seconds.items():
            ratios = np.min(others, axis=0) / np.array(seconds) if name == "femops" else None
            row = same | {"implementation": name, "layout": layout}
            median = float(np.median(seconds))
            row |= {
                "seconds": median,
                "gflops": self._case.flops / median * 1e-9,
                "fraction_of_limit": float(np.median(np.array(limits) / seconds)),
                "over_best_peer": None if ratios is None else float(np.median(ratios)),
            }
            found.append(row)
        return found


def _add_products(a: Array, b: Array, c: Array) -> None:
    c += a @ b


def _by_numpy(threads: int) -> Callable[[Array, Array, Array], None]:
    """Return NumPy's ``c += a @ b``; each thread takes its part of the batch."""
    if threads == 1:
        return _add_products
    pool = ThreadPoolExecutor(threads)

    def shared(a: Array, b: Array, c: Array) -> None:
        edges = np.linspace(0, len(a), threads + 1).astype(int)
        parts = (slice(*edge) for edge in pairwise(edges))
        for done in [pool.submit(_add_products, a[part], b[part], c[part]) for part in parts]:
            done.result()

    return shared


def run_gemm(
    products: Products,
    threads: Sequence[int] = (1,),
    rounds: int = 3,
    seconds: float = 0.02,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Measure all, case by case, each in several rounds.

    Parameters
    ----------
    products : Products
    threads : sequence of int
    rounds : int
    seconds : float
        About how long each is timed in a round.
    progress : callable

    Returns
    -------
    dict
        ``machine``, ``rows`` and ``mean_over_best_peer``, the geometric mean over all cases.

    Raises
    ------
    TensorError, OperatorError
        Settings that can't be.
    """
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
                case = _Case(each, count)
                with using(count):
                    for _ in range(rounds):
                        case.measure(meter, seconds)
                rows += case.rows()
            meter.round()
    mean = mean_over_peers(rows)
    return {"machine": meter.describe(), "rows": rows, "mean_over_best_peer": mean}
