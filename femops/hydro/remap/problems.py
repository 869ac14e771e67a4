"""Problems of advection: a velocity and an initial function in a box, or of a mesh that moves.

The numbers are those of Remhos (https://github.com/CEED/Remhos). Problems below 10 transport a
function on a fixed mesh. Problems from 10 on move the mesh, and remap a function that stays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc

from femops.errors import HydroError

Floats = NDArray[np.float64]
Field = Callable[[Floats], Floats]
"""Function of positions (dim, n)."""


@final
@dataclass(frozen=True)
class Box:
    """Bounding box of a mesh.

    Attributes
    ----------
    lower, upper : (dim,) float64
    """

    lower: Floats
    upper: Floats

    def centred(self, x: Floats) -> Floats:
        """Positions (dim, n) in coordinates that run from -1 to 1 in the box."""
        middle = 0.5 * (self.lower + self.upper)[:, np.newaxis]
        return np.asarray(2.0 * (x - middle) / (self.upper - self.lower)[:, np.newaxis])


class AdvectionProblem(ABC):
    """A velocity and an initial function. Positions have shape (dim, n).

    Attributes
    ----------
    number : int
        Number of the problem in Remhos.
    mesh : str
        Default mesh, see `advection_mesh`.
    dims : tuple of int
        Dimensions in which the problem exists.
    moves_mesh : bool
        True if the mesh moves with the velocity and the function stays. False if the mesh stays and
        the velocity transports the function.
    """

    number: int
    mesh: str
    dims: tuple[int, ...]
    moves_mesh: bool

    @abstractmethod
    def velocity(self, box: Box, x: Floats) -> Floats:
        """Velocity (dim, n) at positions."""

    @abstractmethod
    def initial(self, box: Box, x: Floats) -> Floats:
        """Initial function (n,) at positions."""


@final
class Bump(AdvectionProblem):
    """Problem 0: a smoothed rectangle moves with a constant velocity of length 1."""

    number, mesh = 0, "periodic-hexagon"
    dims, moves_mesh = (1, 2, 3), False

    def velocity(self, box: Box, x: Floats) -> Floats:  # noqa: ARG002  (the same everywhere)
        squared = {1: (1.0,), 2: (2.0 / 3.0, 1.0 / 3.0), 3: (3.0 / 6.0, 2.0 / 6.0, 1.0 / 6.0)}
        return np.asarray(np.sqrt(np.array(squared[len(x)]))[:, np.newaxis] + 0.0 * x)

    def initial(self, box: Box, x: Floats) -> Floats:
        return bump(box.centred(x))


@final
class Shapes(AdvectionProblem):
    """Problem 5: a cross and two rings, with jumps, move along the diagonal of [-1, 1]^2."""

    number, mesh = 5, "periodic-square"
    dims, moves_mesh = (2,), False

    def velocity(self, box: Box, x: Floats) -> Floats:  # noqa: ARG002
        return np.ones_like(x)

    def initial(self, box: Box, x: Floats) -> Floats:  # noqa: ARG002  (in [-1, 1]^2 only)
        return shapes(x)


@final
class VortexOfBump(AdvectionProblem):
    """Problem 10: a Taylor-Green vortex moves the mesh under the smoothed rectangle."""

    number, mesh = 10, "inline-quad"
    dims, moves_mesh = (2, 3), True

    def velocity(self, box: Box, x: Floats) -> Floats:
        return vortex(box.centred(x))

    def initial(self, box: Box, x: Floats) -> Floats:
        return bump(box.centred(x))


@final
class VortexOfSlot(AdvectionProblem):
    """Problem 14: the vortex moves the mesh under a slotted disc, a cone and a hump."""

    number, mesh = 14, "inline-quad"
    dims, moves_mesh = (2,), True

    def velocity(self, box: Box, x: Floats) -> Floats:
        return vortex(box.centred(x))

    def initial(self, box: Box, x: Floats) -> Floats:
        return slotted_disc(box.centred(x))


ADVECTION: dict[int, AdvectionProblem] = {
    problem.number: problem for problem in (Bump(), Shapes(), VortexOfBump(), VortexOfSlot())
}
"""Problems of advection by number."""


def advection_problem(number: int) -> AdvectionProblem:
    """Return the problem with a number.

    Raises
    ------
    HydroError
        There is no such problem.
    """
    if number not in ADVECTION:
        known = ", ".join(map(str, ADVECTION))
        raise HydroError(f"there is no problem {number!r} of advection: choose one of {known}")
    return ADVECTION[number]


def bump(x: Floats) -> Floats:
    """Smoothed rectangle (n,) at positions (dim, n) in [-1, 1]^dim; in 1-D a Gaussian hump."""
    if len(x) == 1:
        return np.asarray(np.exp(-40.0 * (x[0] - 0.5) ** 2))
    narrow = 1.0 + 0.25 * np.cos(2.0 * np.pi * x[2]) if len(x) == 3 else 1.0
    result = np.full(x.shape[1], 1.0 / 16.0)
    for at, centre, half in ((x[0], 0.0, 0.45 * narrow), (x[1], -0.2, 0.25 * narrow)):
        result *= erfc(10.0 * (at - centre - half)) * erfc(-10.0 * (at - centre + half))
    return result


def vortex(x: Floats) -> Floats:
    """Taylor-Green vortex (dim, n) at positions (dim, n) in [-1, 1]^dim, zero across the walls."""
    a = np.pi * 0.5 * (x + 1.0)
    result = np.zeros_like(x)
    layers = np.cos(a[2]) if len(x) == 3 else 1.0
    result[0] = np.sin(a[0]) * np.cos(a[1]) * layers
    result[1] = -np.cos(a[0]) * np.sin(a[1]) * layers
    return result


def shapes(x: Floats) -> Floats:
    """Cross and two rings (n,) of height 1 at positions (2, n)."""
    y = 50.0 * (x + 1.0)
    angle = np.deg2rad(-45.0)
    u, v = y - np.array([[15.5], [11.5]])
    turned = np.array(
        [np.cos(angle) * u - np.sin(angle) * v, np.sin(angle) * u + np.cos(angle) * v]
    )
    turned += np.array([[15.5], [11.5]])
    beams = [
        (low < turned[0]) & (turned[0] < high) & (bottom < turned[1]) & (turned[1] < top)
        for low, high, bottom, top in ((14.0, 17.0, 3.0, 26.0), (7.0, 32.0, 10.0, 13.0))
    ]
    result: Floats = (beams[0] | beams[1]).astype(np.float64)
    for height, inner, outer in ((40.0, 7.0, 10.0), (20.0, 3.0, 7.0)):
        r = np.sqrt((y[0] - 40.0) ** 2 + (y[1] - height) ** 2)
        result += (inner < r) & (r < outer)
    return np.asarray(result)


def slotted_disc(x: Floats) -> Floats:
    """Slotted disc, cone and hump (n,) of radius 0.3 at positions (2, n)."""
    reach = 0.3**2
    disc = x[0] ** 2 + (x[1] - 0.5) ** 2 <= reach
    slit = (x[0] <= -0.05) | (x[0] >= 0.05) | (x[1] >= 0.7)
    cone = np.hypot(x[0], x[1] + 0.5)
    hump = np.hypot(x[0] + 0.5, x[1])
    rest = (1.0 - cone / 0.3) * (cone <= 0.3) + 0.25 * (1.0 + np.cos(np.pi * hump / 0.3)) * (
        hump <= 0.3
    )
    return np.asarray(np.where(disc & slit, 1.0, rest))
