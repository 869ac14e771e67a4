"""Velocity of a function relative to the mesh: on a fixed mesh, or under a mesh that moves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Velocity = Callable[[Floats], Floats]
"""Function of positions (dim, k) with values (dim, k)."""


class Flow(ABC):
    """Positions of a mesh, and the velocity of a function relative to it, at a time."""

    moves: bool  # True if positions depend on time

    @abstractmethod
    def nodes(self, t: float) -> Floats:
        """Nodes (ne, ng, dim) of the elements at Gauss-Lobatto points."""

    @abstractmethod
    def velocity(self, t: float, at: Floats) -> Floats:
        """Relative velocity (ne, nq, dim) at points, from a table (nq, ng) of their values."""

    @abstractmethod
    def corners(self, t: float) -> Floats:
        """Corners (ne, n, dim) of the subcells."""

    @abstractmethod
    def subcell_velocity(self, t: float, means: Floats) -> Floats:
        """Relative velocity (ne, ncells, dim) at centres, from the table of means (ncells, n)."""


@final
class Transport(Flow):
    """A velocity in space on a mesh that stays.

    Shapes: `nodes` (ne, ng, dim), `lattice` (n, ng).
    """

    moves = False

    def __init__(self, nodes: Floats, lattice: Floats, velocity: Velocity) -> None:
        self._nodes, self._velocity = nodes, velocity
        self._corners: Floats = np.matmul(lattice, nodes)

    def nodes(self, t: float) -> Floats:  # noqa: ARG002  (nothing moves)
        return self._nodes

    def velocity(self, t: float, at: Floats) -> Floats:  # noqa: ARG002
        return field_values(self._velocity, np.matmul(at, self._nodes))

    def corners(self, t: float) -> Floats:  # noqa: ARG002
        return self._corners

    def subcell_velocity(self, t: float, means: Floats) -> Floats:  # noqa: ARG002
        return field_values(self._velocity, np.matmul(means, self._corners))


@final
class Motion(Flow):
    """A mesh that moves along straight lines from time 0 to 1, under a function that stays.

    Shapes: `nodes`, `displacement` (ne, ng, dim), `lattice` (n, ng), `corner_speed` (ne, n, dim),
    `displacement` (ne, ng, dim).
    """

    moves = True

    def __init__(
        self,
        nodes: Floats,
        displacement: Floats,
        lattice: Floats,
        corner_speed: Floats | None = None,
    ) -> None:
        self._nodes, self.displacement = nodes, displacement
        self._corners = np.matmul(lattice, nodes)
        default = np.matmul(lattice, displacement)
        self._corner_speed = default if corner_speed is None else corner_speed

    def nodes(self, t: float) -> Floats:
        return np.asarray(self._nodes + t * self.displacement)

    def velocity(self, t: float, at: Floats) -> Floats:  # noqa: ARG002  (constant in time)
        return np.asarray(-np.matmul(at, self.displacement))

    def corners(self, t: float) -> Floats:
        return np.asarray(self._corners + t * self._corner_speed)

    def subcell_velocity(self, t: float, means: Floats) -> Floats:  # noqa: ARG002
        return np.asarray(-np.matmul(means, self._corner_speed))


def field_values(field: Velocity, x: Floats) -> Floats:
    """Values (ne, k, dim) of a function at positions (ne, k, dim)."""
    return np.asarray(field(x.reshape(-1, x.shape[-1]).T).T.reshape(x.shape))


def displaced(nodes: Floats, velocity: Velocity, t_final: float, dt: float) -> Floats:
    """Nodes (ne, ng, dim) that follow a velocity by Euler steps.

    Time advances by dt before the step is cut to the time that is left, as in Remhos. So nodes do
    not move in the last step.
    """
    x, t = nodes.copy(), 0.0
    while t < t_final:
        t += dt
        x += min(dt, t_final - t) * field_values(velocity, x)
    return x
