"""Seconds that a run has spent in its parts."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import final


@final
@dataclass(frozen=True)
class Clock:
    """Seconds and counts of a run's parts, for figures of merit.

    Attributes
    ----------
    force, mass, energy : float
        Seconds in forces (with the stress at points), in solves with the velocity's mass matrix,
        and in solves with the energy's mass matrix.
    sweeps, iterations, solves : int
        Evaluations of forces, iterations of conjugate gradients, evaluations of rates.
    """

    force: float = 0.0
    mass: float = 0.0
    energy: float = 0.0
    sweeps: int = 0
    iterations: int = 0
    solves: int = 0

    def since(self, before: Clock) -> Clock:
        """Difference from an earlier reading."""
        return Clock(
            *(now - then for now, then in zip(astuple(self), astuple(before), strict=True))
        )
