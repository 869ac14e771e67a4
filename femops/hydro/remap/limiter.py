"""Limiters: as much of the high-order rate as bounds allow, with the mass of each element kept."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError
from femops.hydro.remap.neighbours import Lattice
from femops.parallel import Communicator

Floats = NDArray[np.float64]

_ROUND_OFF = 1e-10  # part of the largest coefficient by which low order may leave its bounds


@final
class ClipScale:
    """`fct` 2: clip each dof to its bounds, then scale gains or losses until the mass is kept.

    The bounds of a dof are the least and the largest coefficient in the elements that meet at its
    node.
    """

    def __init__(self, lattice: Lattice, comm: Communicator) -> None:
        self._lattice, self._comm = lattice, comm

    def rate(self, lumped: Floats, u: Floats, high: Floats, low: Floats, dt: float) -> Floats:
        """Rate of change (ne, n) whose Euler step of length dt keeps the bounds. Collective.

        Shapes: `lumped` (ne, n), `u`, `high`, `low` (ne, n).
        """
        least, largest = self._lattice.bounds(u)
        moved, per_step = u + dt * low, lumped / dt
        below, above = least - moved, largest - moved
        ends = np.abs(u).max(initial=0.0), max(below.max(initial=0.0), -above.min(initial=0.0))
        size, outside = self._comm.max(np.array(ends))
        if outside > _ROUND_OFF * size:
            limit = -self._comm.max(-_longest(u, low, least, largest, dt, size))
            raise HydroError(
                f"a step of {dt:g} makes new extremes: here the limit is {limit:.3g}, take a "
                "smaller dt or a coarser mesh"
            )
        change = lumped * (high - low)
        np.clip(change, per_step * below, per_step * above, out=change)
        gains, losses = np.maximum(change, 0.0), np.minimum(change, 0.0)
        gain, loss = gains.sum(axis=1, keepdims=True), losses.sum(axis=1, keepdims=True)
        surplus = gain + loss
        # one of the two is scaled, where they do not balance
        gains *= np.where(surplus > 0.0, -loss / np.where(gain > 0.0, gain, 1.0), 1.0)
        losses *= np.where(surplus < 0.0, -gain / np.where(loss < 0.0, loss, -1.0), 1.0)
        return np.asarray(low + (gains + losses) / lumped)


def _longest(
    u: Floats, low: Floats, least: Floats, largest: Floats, dt: float, size: float
) -> float:
    """Longest step of low order that keeps the bounds in this rank's elements."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(low > 0.0, largest - u, least - u) / low
    moving = dt * np.abs(low) > _ROUND_OFF * size
    return float(np.min(room, where=moving, initial=np.inf))
