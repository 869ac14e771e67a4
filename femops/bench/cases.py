"""Cases that take turns in a measurement: operators at a level, and peers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.bounds import Traffic, host_bound
from femops.bench.machine import Meter, using
from femops.bench.peers.interface import Peer
from femops.bench.problems import Problem
from femops.bench.timing import median_seconds
from femops.errors import OperatorError
from femops.operators import Operator
from femops.spaces.h1_l2 import H1


@dataclass
class Case(ABC):
    """An operator that is timed in rounds. The list ``seconds`` has the median of each round."""

    problem: Problem
    mesh: str
    footprint: str
    space: H1
    threads: int
    seconds: list[float] = field(default_factory=list, init=False)

    @abstractmethod
    def round(self, seconds: float) -> None:
        """Time applications for about ``seconds`` (at least three)."""

    @abstractmethod
    def row(self) -> dict[str, Any]:
        """Return the row of the result."""

    def facts(self, level: str) -> dict[str, Any]:
        """Return the entries with which every row begins."""
        median = float(np.median(self.seconds))
        return {
            "problem": self.problem.name,
            "mesh": self.mesh,
            "order": self.space.order,
            "q1d": self.problem.rule(self.space.order).q1d,
            "dofs": self.space.size,
            "level": level,
            "threads": self.threads,
            "seconds_min": min(self.seconds),
            "seconds_median": median,
            "dofs_per_second": self.space.size / median,
        }


@final
@dataclass
class OperatorCase(Case):
    """An operator of femops at the level ``asked``.

    ``traffic`` is that of the level which moves the fewest bytes.
    """

    asked: str
    operator: Operator
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    traffic: Traffic
    meter: Meter
    bandwidths: list[float] = field(default_factory=list, init=False)

    def round(self, seconds: float) -> None:
        """Time applications, and measure the bandwidth for the least traffic."""
        self.bandwidths.append(self.meter.bandwidth(self.threads, self.traffic))
        with using(self.threads):
            time = median_seconds(lambda: self.operator.apply(self.x, self.y), seconds)
        self.seconds.append(time)

    def row(self) -> dict[str, Any]:
        """Return the row: the speed, and the limits measured in the same rounds."""
        cost, rounds, dofs = self.operator.cost(), len(self.seconds), self.space.size
        triad = self.meter.triad(self.threads, rounds)
        peak = self.meter.peak(self.threads, rounds)
        bandwidth = float(np.median(self.bandwidths))
        facts = self.facts(self.operator.level)
        bound = host_bound(self.traffic.total, cost.flops, bandwidth, peak)
        speed = bound.speed(dofs, facts["seconds_median"])
        return facts | {
            "bytes_per_dof": cost.bytes_moved / dofs,
            "flops_per_dof": cost.flops / dofs,
            "roofline": dofs / max(cost.bytes_moved / (triad * 1e9), cost.flops / (peak * 1e9)),
            "implementation": "femops",
            "asked": self.asked,
            "footprint": self.footprint,
            "least_bytes_per_dof": self.traffic.total / dofs,
            "least_level": self.traffic.level,
            "bandwidth_gbytes_per_second": bandwidth,
            "fma_gflops_per_second": peak,
            **{name: speed[name] for name in ("limit", "bound", "fraction_of_limit")},
            "fraction_of_fma_peak": cost.flops / facts["seconds_median"] / (peak * 1e9),
        }


@final
@dataclass
class PeerCase(Case):
    """Another library's operator. ``fault`` is empty, or the reason why the library has failed."""

    peer: Peer
    fault: str = field(default="", init=False)

    def round(self, seconds: float) -> None:
        """Time applications in the other process, unless it has failed."""
        if self.fault:
            return
        try:
            self.seconds.append(self.peer.time(seconds))
        except OperatorError as error:
            self.fault = str(error)

    def row(self) -> dict[str, Any]:
        """Return the row: the speed, without bytes, operations and limit."""
        return self.facts(self.peer.level) | {
            "implementation": self.peer.label,
            "asked": self.peer.level,
            "footprint": self.footprint,
        }
