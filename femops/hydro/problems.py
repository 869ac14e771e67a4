"""Problems of gas dynamics: initial states and materials.

The problems come from the compressible-flow code BLAST and its proxy Laghos.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError
from femops_common.arguments import Kind, checked, number_of

Floats = NDArray[np.float64]
POSITIVE = Kind(lambda value: 0.0 < (number_of(value) or 0.0) < np.inf, "a number above 0")
PointFunction = Callable[[Any], Any]


@final
@checked(HydroError)
@dataclass(frozen=True)
class Problem:
    """Initial state and physics of a flow.

    Functions take positions (dim, n) and return (n,) or (dim, n).

    Attributes
    ----------
    name : str
    mesh : dict
        Name of the mesh for each dimension, see `femops.hydro.built_in`. The problem is defined
        only in these dimensions.
    t_final : float
        Default end time of the run.
    velocity, energy : callables
        Initial velocity and specific internal energy.
    density, gamma : callable or float
        Initial density, and adiabatic index, which is constant in each element.
    blast : float
        Energy of a point source at the origin, in the full space. The domain has 1 / 2^dim of it.
    viscosity : bool
        Whether there is artificial viscosity.
    vorticity : bool
        Whether the linear part of the viscosity is reduced where the flow rotates.
    heating : callable, optional
        Energy source per volume, as a function of the moving point's position.
    gravity : float
        Acceleration along -y.
    """

    _given_as: ClassVar[str] = 'a problem, as femops.hydro.problem("sedov")'

    name: str
    mesh: dict[int, str]
    t_final: float
    velocity: PointFunction
    energy: PointFunction
    density: PointFunction | float = 1.0
    gamma: PointFunction | float = 1.4
    blast: float = 0.0
    viscosity: bool = True
    vorticity: bool = False
    heating: PointFunction | None = None
    gravity: float = 0.0


_SQUARE = {2: "square01_quad", 3: "cube01_hex"}
_ALL = {1: "segment01", **_SQUARE}


def _at_rest(x: Floats) -> Floats:
    return np.zeros_like(x)


def _swirl(x: Floats) -> list[Any]:
    u = np.sin(np.pi * x[0]) * np.cos(np.pi * x[1])
    v = -np.cos(np.pi * x[0]) * np.sin(np.pi * x[1])
    if len(x) == 2:
        return [u, v]
    return [u * np.cos(np.pi * x[2]), v * np.cos(np.pi * x[2]), 0.0 * u]


def _swirl_energy(x: Floats) -> Any:
    waves = np.cos(2 * np.pi * x[0]) + np.cos(2 * np.pi * x[1])
    if len(x) == 2:
        return 1.5 * (1.0 + waves / 4.0)
    return 1.5 * (100.0 + ((np.cos(2 * np.pi * x[2]) + 2.0) * waves - 2.0) / 16.0)


def _swirl_heating(x: Any) -> Any:
    """Heat source that keeps the pressure of the vortex in 2-D. There is no source in 3-D.

    The source is 3 pi / 8 (cos 3a cos b - cos a cos 3b). The function uses cos 3a = cos a (4 cos^2
    a - 3), because cosines would be most of the work at a point.
    """
    if len(x) == 3:
        return 0.0
    a, b = np.cos(np.pi * x[0]), np.cos(np.pi * x[1])
    return 1.5 * np.pi * a * b * (a * a - b * b)


def _sod_density(x: Floats) -> Any:
    return np.where(x[0] < 0.5, 1.0, 0.1)


def _sod_energy(x: Floats) -> Any:
    pressure = np.where(x[0] < 0.5, 1.0, 0.1)
    return pressure / _sod_density(x) / 0.4


def _triple_density(x: Floats) -> Any:
    if len(x) == 2:
        return np.where((x[0] > 1.0) & (x[1] > 1.5), 0.125, 1.0)
    low = (x[1] < 1.5) & (x[2] < 1.5) | (x[1] > 1.5) & (x[2] > 1.5)
    return np.where((x[0] > 1.0) & low, 0.125, 1.0)


def _triple_gamma(x: Floats) -> Any:
    return np.where((x[0] > 1.0) & (x[1] <= 1.5), 1.4, 1.5)


def _triple_energy(x: Floats) -> Any:
    pressure = np.where(x[0] > 1.0, 0.1, 1.0)
    return pressure / _triple_density(x) / (_triple_gamma(x) - 1.0)


def _vortex(x: Floats) -> list[Any]:
    r = np.hypot(x[0], x[1])
    outer = 2.0 / np.where(r > 0.0, r, 1.0) - 5.0
    turn = np.where(r < 0.2, 5.0, np.where(r < 0.4, outer, 0.0))
    return [turn * x[1], -turn * x[0], *np.zeros_like(x[2:])]


def _vortex_energy(x: Floats) -> Any:
    square = x[0] ** 2 + x[1] ** 2
    r = np.sqrt(np.where(square > 0.0, square, 1.0))
    inner = 5.0 + 12.5 * square
    middle = 9.0 - 4.0 * np.log(0.2) + 12.5 * square - 20.0 * r + 4.0 * np.log(r)
    outside = 3.0 + 4.0 * np.log(2.0)
    return 1.5 * np.where(square < 0.04, inner, np.where(square < 0.16, middle, outside))


def _quadrants(x: Floats, upper_right: Any, upper_left: Any, lower_left: Any, lower: Any) -> Any:
    """Choose one of four values by the quadrant of x (dim, n) in the unit square."""
    right, up = x[0] >= 0.5, x[1] >= 0.5
    return np.where(
        up, np.where(right, upper_right, upper_left), np.where(right, lower, lower_left)
    )


def _riemann(name: str, density: Any, pressure: Any, velocity: Any) -> Problem:
    """2-D Riemann problem: four constant states that meet at a point, with walls."""

    def speed(x: Floats) -> list[Any]:
        still = (16.0 * x[0] * (1.0 - x[0]) * x[1] * (1.0 - x[1])) ** 0.4
        return [still * _quadrants(x, *parts) for parts in velocity] + [*np.zeros_like(x[2:])]

    def energy(x: Floats) -> Any:
        return _quadrants(x, *pressure) / _quadrants(x, *density) / 0.4

    return Problem(name, _SQUARE, 0.25, speed, energy, lambda x: _quadrants(x, *density))


def _layers(x: Floats) -> Any:
    return np.where(x[1] >= 0.0, 2.0, 1.0)


def _layers_velocity(x: Floats) -> list[Any]:
    v = 0.02 * np.exp(-2 * np.pi * x[1] ** 2) * np.cos(2 * np.pi * x[0])
    return [0.0 * v, v, *np.zeros_like(x[2:])]


def _layers_energy(x: Floats) -> Any:
    return (6.0 - _layers(x) * x[1]) * 1.5 / _layers(x)


_LIST = (
    Problem(
        "taylor-green",
        _SQUARE,
        0.75,
        _swirl,
        _swirl_energy,
        gamma=5.0 / 3.0,
        viscosity=False,
        heating=_swirl_heating,
    ),
    Problem("sedov", _ALL, 0.8, _at_rest, lambda x: 0.0 * x[0], blast=1.0),
    Problem("sod", _ALL, 0.2, _at_rest, _sod_energy, _sod_density),
    Problem(
        "triple-point",
        {2: "rectangle01_quad", 3: "box01_hex"},
        3.0,
        _at_rest,
        _triple_energy,
        _triple_density,
        _triple_gamma,
    ),
    Problem(
        "gresho",
        {2: "square_gresho", 3: "cube_gresho"},
        0.62831853,
        _vortex,
        _vortex_energy,
        gamma=5.0 / 3.0,
        viscosity=False,
    ),
    _riemann(
        "riemann-12",
        (0.5313, 1.0, 0.8, 1.0),
        (0.4, 1.0, 1.0, 1.0),
        ((0.0, 0.7276, 0.0, 0.0), (0.0, 0.0, 0.0, 0.7276)),
    ),
    _riemann(
        "riemann-6",
        (1.0, 2.0, 1.0, 3.0),
        (1.0, 1.0, 1.0, 1.0),
        ((0.75, 0.75, -0.75, -0.75), (-0.5, 0.5, 0.5, -0.5)),
    ),
    Problem(
        "rayleigh-taylor",
        {2: "rt2D", 3: "rt3D"},
        4.0,
        _layers_velocity,
        _layers_energy,
        _layers,
        gamma=5.0 / 3.0,
        vorticity=True,
        gravity=1.0,
    ),
)

PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in _LIST}
"""The problems by name, in the order of their numbers in Laghos."""


@checked(HydroError)
def problem(
    name: str,
    *,
    blast: Annotated[float, POSITIVE] | None = None,
    viscosity: bool | None = None,
) -> Problem:
    """Return a problem by name, with changed options.

    Parameters
    ----------
    name : str
    blast : float, optional
        Energy of the blast of "sedov", instead of the default.
    viscosity : bool, optional
        Whether there is artificial viscosity. The default is that of the problem.

    Raises
    ------
    HydroError
        The problem does not exist, or has no blast.
    """
    if name not in PROBLEMS:
        raise HydroError(f"there is no problem {name!r}: {', '.join(PROBLEMS)}")
    found = PROBLEMS[name]
    if blast is not None:
        if not found.blast:
            raise HydroError(f"{name} has no blast: leave its energy out")
        found = replace(found, blast=float(blast))
    return found if viscosity is None else replace(found, viscosity=viscosity)
