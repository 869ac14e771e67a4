"""Products of the matrices of a batch, C += A B, beside the least time that they can take.

The limit is the larger time of two: the bytes of A, B and C read and C written, at the bandwidth
of this footprint and mix of reads and writes; the operations at the rate of multiply-adds. For
square float64 matrices at bandwidth W that is n W / 16 (tensor report, section 6.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np

from femops.bench.bounds import Traffic
from femops.bench.machine import Meter, using
from femops.bench.problems import Progress, check_asked
from femops.bench.tensor.peers import one_thread_each, peers, with_threads
from femops.bench.timing import call_seconds, repeated
from femops.errors import TensorError
from femops.tensor import Batch, Interleaved, gemm
from femops.tensor.places import NUMBERS

LAYOUTS = ("contiguous", "interleaved")
SIZES = tuple(range(2, 33))


@final
@dataclass(frozen=True)
class Settings:
    """Choice of what is measured.

    Attributes
    ----------
    sizes : sequence of int
        Rows, columns and terms of the square matrices.
    batches : sequence of int
        Numbers of members.
    dtypes, layouts : sequence of str
    threads : sequence of int
    rounds : int
    seconds : float
        About how long each is timed in a round.
    """

    sizes: Sequence[int] = SIZES
    batches: Sequence[int] = (10_000, 100_000)
    dtypes: Sequence[str] = ("float64",)
    layouts: Sequence[str] = ("contiguous",)
    threads: Sequence[int] = (1,)
    rounds: int = 3
    seconds: float = 0.02

    def check(self) -> None:
        """Refuse what can't be measured.

        Raises
        ------
        TensorError, OperatorError
        """
        check_asked(rounds=self.rounds)
        for what, given, known in (
            ("type", self.dtypes, NUMBERS),
            ("layout", self.layouts, LAYOUTS),
        ):
            for name in given:
                if name not in known:
                    raise TensorError(f"{what} {name!r}: choose one of {', '.join(known)}")
        if min(min(self.sizes, default=0), min(self.batches, default=0)) < 1:
            raise TensorError("nothing to measure: give sizes and batches of 1 or more")


@final
@dataclass
class _Case:
    """Matrices of one size and number, and the seconds of each implementation."""

    n: int
    members: int
    dtype: str
    layout: str
    threads: int
    calls: dict[str, Callable[[], object]]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    limits: list[float] = field(default_factory=list)
    bounds: list[str] = field(default_factory=list)

    @property
    def flops(self) -> float:
        """Operations of all members; a complex multiply-add is four real ones."""
        return 2.0 * self.n**3 * self.members * (4 if self.dtype.startswith("c") else 1)

    @property
    def traffic(self) -> Traffic:
        """Bytes that a call has to move."""
        nbytes = np.dtype(self.dtype).itemsize * self.n**2 * self.members
        return Traffic("gemm", 3.0 * nbytes, 1.0 * nbytes)

    def measure(self, meter: Meter, seconds: float) -> None:
        """One round: the limit, then all implementations in turn."""
        bandwidth = meter.bandwidth(self.threads, self.traffic)
        memory = self.traffic.total / bandwidth * 1e-9
        arithmetic = self.flops / meter.peak(self.threads, 1) * 1e-9
        self.limits.append(max(memory, arithmetic))
        self.bounds.append("memory" if memory >= arithmetic else "arithmetic")
        for name, call in self.calls.items():
            call()
            times = repeated(partial(call_seconds, call), seconds)
            self.seconds.setdefault(name, []).append(float(np.median(times)))

    def rows(self) -> list[dict[str, Any]]:
        """A row for each implementation."""
        least = float(np.median(self.limits))
        same = {
            "n": self.n,
            "members": self.members,
            "dtype": self.dtype,
            "threads": self.threads,
            "limit_gflops": self.flops / least * 1e-9,
            "bound": self.bounds[len(self.bounds) // 2],
        }
        found = []
        for name, seconds in self.seconds.items():
            parts = np.array(self.limits) / seconds
            found.append(
                same
                | {
                    "implementation": name,
                    "layout": self.layout if name == "femops" else "contiguous",
                    "seconds": float(np.median(seconds)),
                    "gflops": self.flops / float(np.median(seconds)) * 1e-9,
                    "fraction_of_limit": float(np.median(parts)),
                    "over_best_peer": self._over_peers(name),
                }
            )
        return found

    def _over_peers(self, name: str) -> float | None:
        others = [self.seconds[one] for one in self.seconds if one != "femops"]
        if name != "femops" or not others:
            return None
        return float(np.median(np.min(others, axis=0) / np.array(self.seconds[name])))


def _case(n: int, members: int, dtype: str, layout: str, threads: int) -> _Case:
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((members, n, n)).astype(dtype) for _ in range(2))
    c = np.zeros((members, n, n), dtype)
    calls: dict[str, Callable[[], object]] = {}
    if layout == "interleaved":
        batches = [Batch.wrap(array).copy(Interleaved()) for array in (a, b, c)]
        calls["femops"] = partial(gemm, *batches, beta=1.0)
    else:
        calls["femops"] = partial(gemm, a, b, c, beta=1.0)
    for name, update in peers(dtype).items():
        calls[name] = partial(with_threads(update, threads), a, b, c)
    return _Case(n, members, dtype, layout, threads, calls)


def run_gemm(settings: Settings, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Measure all, case by case, each in several rounds.

    Returns
    -------
    dict
        ``machine``, ``rows`` and ``mean_over_best_peer``, the geometric mean over all cases.

    Raises
    ------
    TensorError, OperatorError
        Settings that can't be.
    """
    settings.check()
    rows: list[dict[str, Any]] = []
    with one_thread_each():
        meter = Meter(tuple(settings.threads))
        meter.round()
        for threads in settings.threads:
            for dtype in settings.dtypes:
                for layout in settings.layouts:
                    for members in settings.batches:
                        for n in settings.sizes:
                            progress(f"{dtype}, {layout}, n = {n}, {members}, threads {threads}")
                            case = _case(n, members, dtype, layout, threads)
                            with using(threads):
                                for _ in range(settings.rounds):
                                    case.measure(meter, settings.seconds)
                            rows += case.rows()
            meter.round()
    ratios = [row["over_best_peer"] for row in rows if row["over_best_peer"]]
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else None
    return {"machine": meter.describe(), "rows": rows, "mean_over_best_peer": mean}
