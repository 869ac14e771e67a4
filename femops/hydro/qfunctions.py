"""Gas at a point: equation of state, artificial viscosity, stress, work.

Dobrev, Kolev, Rieben, SIAM J. Sci. Comput. 34(5), 2012, in the coordinates of the initial mesh:
F = dx/dX is the gradient of the position. Its determinant J is the change of volume. The force
comes from J sigma F^-T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from femops.hydro.problems import Problem
from femops.pointwise.expressions.matrix_functions import eigh_sym, svd_min
from femops.pointwise.expressions.tensors import adjugate, det, inner, maximum, minimum, sym, where

# Velocity gradients over which the linear viscosity is switched off, times the time in which sound
# crosses the element: above round-off, in all units. In Laghos they are 1e-12. The second number
# keeps quotients finite where there is no sound.
_SWITCH, _LEAST = 1e-13, 1e-200


@final
@dataclass(frozen=True)
class Gas:
    """State of the gas at a point."""

    force: Any  # (dim, dim): stress times the transposed adjugate of F
    volume: Any  # determinant of F
    step: Any  # time in which a wave crosses the smallest length of the element. Zero if det F < 0.


def _viscosity(
    problem: Problem, F: Any, L: Any, density: Any, sound: Any, rate: Any, h0: Any
) -> tuple[Any, Any]:
    """Return the coefficient of the viscous stress, and the strain rate that it multiplies."""
    D = sym(L)
    values, vectors = eigh_sym(D)
    stretched = F @ vectors[:, 0]  # the direction that is compressed most
    h = h0 * np.sqrt(stretched @ stretched)
    switch = maximum(_SWITCH * rate, _LEAST)
    y = minimum(maximum((values[0] - switch) / (2.0 * switch), 0.0), 1.0)
    linear = 0.5 * density * h * sound * (1.0 - (3.0 - 2.0 * y) * y * y)
    if problem.vorticity:
        square = inner(L, L)
        root = np.sqrt(where(square > 0.0, square, 1.0))
        linear = linear * where(square > 0.0, abs(np.trace(L)) / root, 1.0)
    return 2.0 * density * h * h * abs(values[0]) + linear, D


def gas(
    problem: Problem,
    order: int,
    fields: tuple[Any, Any, Any],
    rho: Any,
    gamma: Any,
    h0: Any,
) -> Gas:
    """Compute the state of the gas at a point.

    Shapes: `fields` (position, velocity, energy).
    """
    position, velocity, energy = fields
    F = np.atleast_2d(position.grad)
    volume, cofactors = det(F), adjugate(F)
    shrunk = 1.0 / volume
    density, specific = rho * shrunk, maximum(energy.value, 0.0)
    sound = np.sqrt(gamma * (gamma - 1.0) * specific)
    stress = -(gamma - 1.0) * density * specific * np.eye(len(F))
    size = svd_min(np.atleast_2d(position.reference_grad)) * (1.0 / order)
    rate = sound / size
    if problem.viscosity:
        L = (np.atleast_2d(velocity.grad) @ cofactors) * shrunk
        coefficient, D = _viscosity(problem, F, L, density, sound, rate, h0)
        stress = stress + coefficient * D
        rate = rate + 2.5 * coefficient / (density * size * size)
    step = where(volume < 0.0, 0.0, 1.0 / rate)
    return Gas(stress @ cofactors.T, volume, step)


def corner_force(problem: Problem, order: int) -> Callable[..., Any]:
    """Make the integrand of the forces, of their heating, and of the time step."""

    def corner_force(
        position: Any, velocity: Any, energy: Any, rho: Any, gamma: Any, h0: Any
    ) -> Any:
        found = gas(problem, order, (position, velocity, energy), rho, gamma, h0)
        work = inner(found.force, np.atleast_2d(velocity.grad))
        return {
            "velocity": {"grad": -found.force},
            "energy": {"value": work + _heating(problem, position, found)},
            "step": found.step,
        }

    return corner_force


def stress_at_points(problem: Problem, order: int) -> Callable[..., Any]:
    """Make the integrand of stress times adjugate, of the heat source, and of the time step."""

    def stress_at_points(
        position: Any, velocity: Any, energy: Any, stress: Any, rho: Any, gamma: Any, h0: Any
    ) -> Any:
        del stress  # its test functions are wanted
        found = gas(problem, order, (position, velocity, energy), rho, gamma, h0)
        flat = found.force.reshape(-1)
        return {
            "stress": {"value": flat if len(flat) > 1 else flat[0]},
            "energy": {"value": _heating(problem, position, found)},
            "step": found.step,
        }

    return stress_at_points


def work_of(problem: Problem, order: int) -> Callable[..., Any]:
    """Make the integrand of the heating by the work of the stress on another velocity."""

    def work(
        position: Any, velocity: Any, energy: Any, mean: Any, rho: Any, gamma: Any, h0: Any
    ) -> Any:
        found = gas(problem, order, (position, velocity, energy), rho, gamma, h0)
        power = inner(found.force, np.atleast_2d(mean.grad))
        return {"energy": {"value": power + _heating(problem, position, found)}}

    return work


def _heating(problem: Problem, position: Any, found: Gas) -> Any:
    if problem.heating is None:
        return 0.0
    return problem.heating(position) * found.volume
