"""Exact solutions: the Riemann problem of Sod's tube, and Sedov's blast.

Toro, Riemann Solvers and Numerical Methods for Fluid Dynamics, 3rd ed., chapter 4; Kamm and Timmes,
On Efficient Generation of Numerically Robust Sedov Solutions, LA-UR-07-2849.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from femops.errors import HydroError
from femops.hydro.problems import POSITIVE
from femops_common.arguments import checked, whole_numbers

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class ShockTube:
    """Riemann problem of a gas at rest: high pressure on the left of a point, low on the right.

    Parameters
    ----------
    left, right : (density, pressure)
    gamma : float
    at : float
        Initial position of the jump.
    """

    left: tuple[float, float] = (1.0, 1.0)
    right: tuple[float, float] = (0.1, 0.1)
    gamma: float = 1.4
    at: float = 0.5

    def density(self, x: Floats, t: float) -> Floats:
        """Density (n,) at positions (n,) and a time > 0: rarefaction, contact and shock."""
        g, (rho_l, p_l), (rho_r, p_r) = self.gamma, self.left, self.right
        c_l = np.sqrt(g * p_l / rho_l)
        p = self._middle()
        u = 2.0 * c_l / (g - 1.0) * (1.0 - (p / p_l) ** ((g - 1.0) / (2.0 * g)))
        rho_fan = rho_l * (p / p_l) ** (1.0 / g)
        ratio, small = p / p_r, (g - 1.0) / (g + 1.0)
        rho_shock = rho_r * (ratio + small) / (small * ratio + 1.0)
        shock = np.sqrt(g * p_r / rho_r * ((g + 1.0) * ratio + g - 1.0) / (2.0 * g))
        speed = (x - self.at) / t
        tail = u - np.sqrt(g * p / rho_fan)
        within = 2.0 / (g + 1.0) - small * np.clip(speed, -c_l, tail) / c_l
        fan = rho_l * within ** (2.0 / (g - 1.0))
        result: Floats = np.select(
            [speed < -c_l, speed < tail, speed < u, speed < shock],
            [rho_l * np.ones_like(x), fan, rho_fan * np.ones_like(x), rho_shock * np.ones_like(x)],
            rho_r,
        )
        return result

    def _middle(self) -> float:
        """Pressure between the rarefaction and the shock."""
        g, (rho_l, p_l), (rho_r, p_r) = self.gamma, self.left, self.right
        c_l = np.sqrt(g * p_l / rho_l)

        def jump(p: float) -> float:
            fan = 2.0 * c_l / (g - 1.0) * ((p / p_l) ** ((g - 1.0) / (2.0 * g)) - 1.0)
            a, b = 2.0 / ((g + 1.0) * rho_r), (g - 1.0) / (g + 1.0) * p_r
            return float(fan + (p - p_r) * np.sqrt(a / (p + b)))

        return float(brentq(jump, p_r, p_l, xtol=1e-15))


@final
@checked(HydroError)
class Blast:
    """Sedov's point blast in a gas of constant density and no pressure.

    Parameters
    ----------
    dim : int
    energy : float
        Energy of the blast in the full space.
    gamma : float
    density : float
    """

    def __init__(
        self,
        dim: Annotated[int, whole_numbers(1, 3)],
        energy: Annotated[float, POSITIVE] = 1.0,
        gamma: Annotated[float, POSITIVE] = 1.4,
        density: Annotated[float, POSITIVE] = 1.0,
    ) -> None:
        self.dim, self.gamma, self.energy, self._density = dim, gamma, energy, density
        self._strongest = 4.0 / ((dim + 2.0) * (gamma + 1.0))  # V behind the shock
        self._weakest = 2.0 / ((dim + 2.0) * gamma)  # V at the origin
        speed = 2.0 / (gamma + 1.0)  # behind the shock, over that of the shock
        area = {1: 2.0, 2: 2.0 * np.pi, 3: 4.0 * np.pi}[dim]
        radius, ratio, velocity, pressure = self._profile(self._samples(100_000))
        # kinetic and internal energy within the shock, where it is at 1 and the density is 1
        kinetic = 0.5 * (gamma + 1.0) / (gamma - 1.0) * ratio * (speed * velocity) ** 2
        internal = speed * pressure / (gamma - 1.0)
        within = np.trapezoid((kinetic + internal) * radius ** (dim - 1), radius)
        self._alpha = float(area * (2.0 / (dim + 2.0)) ** 2 * within)

    def _samples(self, count: int) -> Floats:
        """Values (count,) of V from the origin to the shock, densest at the origin."""
        return self._weakest + (self._strongest - self._weakest) * np.linspace(0, 1, count) ** 9

    def shock(self, t: float) -> float:
        """Radius of the shock at time t."""
        scale = self.energy / (self._alpha * self._density) * t * t
        return float(scale ** (1.0 / (self.dim + 2.0)))

    def density(self, r: Floats, t: float) -> Floats:
        """Density (n,) at radii (n,) and a time > 0."""
        front = self.shock(t)
        ratio, value = self._profile(self._samples(4001))[:2]
        inside: Floats = np.interp(r / front, ratio, value)
        jump = (self.gamma + 1.0) / (self.gamma - 1.0) * self._density
        return np.where(r < front, jump * inside, self._density)

    def _profile(self, V: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Radius, density, velocity and pressure at V, divided by their values at the shock."""
        j, g = float(self.dim), self.gamma
        a0 = 2.0 / (j + 2.0)
        a2 = -(g - 1.0) / (2.0 * (g - 1.0) + j)
        a1 = (j + 2.0) * g / (2.0 + j * (g - 1.0)) * (2.0 * j * (2.0 - g) / g / (j + 2.0) ** 2 - a2)
        a3 = j / (2.0 * (g - 1.0) + j)
        a4 = (j + 2.0) * a1 / (2.0 - g)
        a5 = -2.0 / (2.0 - g)
        b = (g + 1.0) / (g - 1.0)
        x1 = 0.25 * (j + 2.0) * (g + 1.0) * V
        x2 = np.maximum(b * (0.5 * (j + 2.0) * g * V - 1.0), 1e-300)
        e = 0.5 * (2.0 + j * (g - 1.0))
        scale = (j + 2.0) * (g + 1.0) / ((j + 2.0) * (g + 1.0) - 2.0 * (2.0 + j * (g - 1.0)))
        x3 = scale * (1.0 - e * V)
        x4 = b * (1.0 - 0.5 * (j + 2.0) * V)
        radius: Floats = x1**-a0 * x2**-a2 * x3**-a1
        density = x2**a3 * x3**a4 * x4**a5
        velocity = x1 * radius
        pressure = x1 ** (a0 * j) * x3 ** (a4 - 2.0 * a1) * x4 ** (1.0 + a5)
        return radius, density, velocity, pressure
