"""The search for the fastest kernel of small products: variants, the model's choice first.

The best go to the database of tuned settings, where later runs find them (tensor report, section
6.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, final

import numpy as np

from femops.bench.machine import using
from femops.bench.problems import Progress
from femops.bench.timing import call_seconds
from femops_kernels.cpu import machine
from femops_kernels.cpu.tensor.contraction import Contraction, ContractionKernel, Variant
from femops_kernels.simd.tensor.offsets import offsets
from femops_kernels.tuning import database
from femops_kernels.tuning.search import Found, fastest


def search_gemm(
    sizes: Sequence[int],
    members: int,
    dtype: str = "float64",
    rounds: int = 5,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Try all variants of C += A B on one core, and keep the best of each size.

    Parameters
    ----------
    sizes : sequence of int
        Of square matrices.
    members, dtype, rounds
        Of the batch; turns of each variant.

    Returns
    -------
    dict
        ``machine``, ``rows`` with the median speed of each variant, ``table``, the path of the
        database.
    """
    rows: list[dict[str, Any]] = []
    best: dict[database.TuningKey, database.Settings] = {}
    for n in sizes:
        search = ProductSearch(n, members, dtype)
        progress(f"n = {n}: {len(search.candidates)} variants")
        best[search.key], found = search.run(rounds)
        rows += search.rows(found.best)
    return {"machine": machine.describe(), "rows": rows, "table": str(database.record(best))}


@final
class ProductSearch:
    """Variants of C += A B for square matrices, to be measured on one core.

    Parameters
    ----------
    n, members, dtype
        Rows of the matrices, and their batch.

    Attributes
    ----------
    key : TuningKey
        Where the database has the settings.
    candidates : list of Variant
        Those that the model does not rule out, its choice first.
    """

    def __init__(self, n: int, members: int, dtype: str = "float64") -> None:
        self._n, self._members, self._dtype = n, members, dtype
        kernel = ContractionKernel(_square(n, dtype), True)
        self.key, self.candidates = kernel.tuning_key(), kernel.candidates()
        self._times: dict[Variant, list[float]] = {one: [] for one in self.candidates}

    def run(self, rounds: int) -> tuple[dict[str, int | str], Found[Variant]]:
        """Let all variants take turns; settings of the best, and what was found."""
        with using(1):
            run = _runner(self._n, self._members, self._dtype)
            timed = {one: partial(_timed, run, one, times) for one, times in self._times.items()}
            found = fastest(timed, rounds)
        return _settings(found.best), found

    def rows(self, best: Variant) -> list[dict[str, Any]]:
        """The median speed of each variant that was measured."""
        flops = 2.0 * self._n**3 * self._members * (4 if self._dtype.startswith("c") else 1)
        return [
            {"n": self._n, "variant": number, **asdict(one), "chosen": one == best}
            | {"gflops": flops / float(np.median(times)) * 1e-9}
            for number, (one, times) in enumerate(self._times.items(), 1)
        ]


def _square(n: int, dtype: str) -> Contraction:
    steps, ones = offsets(range(0, n * n, n)), range(n)
    return Contraction(dtype, steps, ones, steps, ones, steps, ones)


def _settings(variant: Variant) -> dict[str, int | str]:
    """Settings of a variant, as the database has them: from 1 on."""
    return {"rows": variant.rows, "vectors": variant.vectors, "ahead": variant.ahead + 1}


def _runner(n: int, members: int, dtype: str) -> Callable[[Variant], Callable[[], None]]:
    """Function that makes the call of a variant."""
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((members, n, n)).astype(dtype) for _ in range(2))
    c = np.zeros_like(a)
    kernels: dict[Variant, ContractionKernel] = {}

    def call_of(variant: Variant) -> Callable[[], None]:
        if variant not in kernels:
            kernel = ContractionKernel(_square(n, dtype), True)
            with database.trying(kernel.tuning_key(), _settings(variant)):
                assert kernel.variant == variant
            kernels[variant] = kernel
        step = a.strides[0]
        addresses = a.ctypes.data, b.ctypes.data, c.ctypes.data
        strides = (step, step, step, 0, 0, 0)
        one, rest = (1.0, 0.0), (addresses, strides, (members, 1))
        return partial(kernels[variant].run, *rest, one, one)

    return call_of


def _timed(
    run: Callable[[Variant], Callable[[], None]], variant: Variant, times: list[float]
) -> float:
    call = run(variant)
    if not times:
        call()
    times.append(call_seconds(call))
    return times[-1]
