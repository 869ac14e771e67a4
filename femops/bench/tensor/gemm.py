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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.bench.bounds import Traffic, longest
from femops.bench.machine import Meter, one_blas_thread, using
from femops.bench.problems import Progress, check_asked
from femops.bench.tensor.products import ProductCase, Products, layout_of, mean_over_peers
from femops.bench.timing import in_turns, median_seconds
from femops.errors import TensorError
from femops.tensor import Batch, gemm

Way = tuple[str, str]
"""Library and layout."""

_PEER: Way = "numpy", "contiguous"

Array = NDArray[Any]


def _rows(
    case: ProductCase, threads: int, meter: Meter, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """A row for each implementation; all take turns, after the limit."""
    calls = _calls(case, threads)
    traffic, bounds = Traffic("gemm", 3.0 * case.nbytes, case.nbytes), list[dict[str, float]]()

    def limit() -> None:
        memory = traffic.total / meter.bandwidth(threads, traffic) * 1e-9
        bounds.append({"memory": memory, "arithmetic": case.flops / meter.peak(threads, 1) * 1e-9})

    measures = {way: partial(median_seconds, call, seconds) for way, call in calls.items()}
    with using(threads):
        times = in_turns(measures, rounds, limit)
    limits, peer = np.array([max(bound.values()) for bound in bounds]), np.array(times[_PEER])
    most = case.flops / float(np.median(limits)) * 1e-9
    same = {"threads": threads, "limit_gflops": most, "bound": longest(bounds[rounds // 2])}
    found = []
    for (name, layout), each in times.items():
        median = float(np.median(each))
        row = case.facts | same | {"implementation": name, "layout": layout, "seconds": median}
        found.append(
            row
            | {
                "gflops": case.flops / median * 1e-9,
                "fraction_of_limit": float(np.median(limits / each)),
                "over_best_peer": float(np.median(peer / each)) if name == "femops" else None,
            }
        )
    return found


def _calls(case: ProductCase, threads: int) -> dict[Way, Callable[[], object]]:
    """Calls that are timed, by library and layout."""
    a, b = case.operands()
    c = np.zeros_like(a)
    calls: dict[Way, Callable[[], object]] = {}
    for name in case.layouts:
        batches: list[Any] = [a, b, c]
        if name != "contiguous":
            layout = layout_of(name, on_device=False)
            batches = [Batch.wrap(array).copy(layout) for array in batches]
        calls["femops", name] = partial(gemm, *batches, beta=1.0)
    return calls | {_PEER: partial(_by_numpy(threads), a, b, c)}


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
                rows += _rows(each, count, meter, rounds, seconds)
            meter.round()
    mean = mean_over_peers(rows)
    return {"machine": meter.describe(), "rows": rows, "mean_over_best_peer": mean}
