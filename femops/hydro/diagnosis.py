"""Diagnoses of states: impossible values, and the elements with these values."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import femops
from femops.errors import HydroError
from femops.fields.norms import least_element
from femops.hydro.problems import Problem

Floats = NDArray[np.float64]


class Equations(Protocol):
    """Parts of `Lagrangian` that a diagnosis uses."""

    problem: Problem
    V: femops.H1
    E: femops.L2
    space: femops.Product
    on_host: femops.Product
    part: femops.Mesh
    comm: Any
    quadrature: femops.basis.Quadrature1D
    density: Any

    def initial(self) -> Floats:
        """Initial state (size,)."""

    def parts(self, state: Floats) -> dict[str, Floats]:
        """Position, velocity and energy of a state on the host, by name."""

    def slowest(self) -> int:
        """Number of the element, on any rank, that limits the time step. Collective."""


def trouble(equations: Equations, state: Floats, good: Floats) -> str:
    """Explain why a state allows no time step: a sentence with the fault, and advice. Collective.

    Shapes: `state` (size,), `good` (size,).
    """
    where = _Places(equations, good)
    parts = equations.parts(state)
    for name, space in equations.on_host.spaces.items():
        finite = np.isfinite(_element_values(space, parts[name])).all(axis=(1, 2))
        if where.least(np.asarray(finite, dtype=np.float64)) < 1.0:
            return f"the {name} is not finite {where.told}; try a smaller cfl"
    ratios = _volumes(equations, state) / _volumes(equations, equations.initial())
    if where.least(ratios.min(axis=1, initial=np.inf)) <= 0.0:
        return (
            f"elements are inverted, the worst {where.told}, where the volume has gone to "
            f"{where.value:.2g} of that at the beginning; try a smaller cfl, lower orders, a finer "
            f"mesh{'' if equations.problem.viscosity else ', or viscosity'}"
        )
    at_points = _at_points(equations.E, equations, parts["energy"])
    lowest = where.least(at_points.min(axis=1, initial=np.inf))
    negative = (
        f"; the energy is negative, {lowest:.2g} {where.told}, and counts as none there"
        if lowest < 0.0
        else ""
    )
    element = equations.slowest()
    return (
        f"waves cross elements too fast, fastest {where.of(element)}{negative}; try a smaller "
        "cfl, lower orders or a coarser mesh"
    )


def instability(equations: Equations, state: Floats, good: Floats) -> str | None:
    """Return a sentence about an impossibly negative energy, or None. Collective.

    The energy is impossible if, at a node, it is negative and its absolute value exceeds the
    largest specific energy of the previous state, internal plus kinetic. Overshoots at shocks are
    far smaller. If steps are too large for the orders, a run exceeds the bound within few steps.
    Then its energy grows without limit.

    Shapes: `state`, `good` (size,).
    """
    space, comm = equations.space, equations.comm
    xp, energy = space.memory.xp, space.slice("energy")
    depth = float(comm.max(-float(xp.min(state[energy]))))
    if depth <= 0.0:
        return None
    speeds = xp.abs(good[space.slice("velocity")])
    own = [float(xp.max(good[energy])), float(xp.max(speeds)) if speeds.size else 0.0]
    largest, speed = map(float, comm.max(np.array(own)))
    if depth <= largest + 0.5 * equations.V.dim * speed * speed:
        return None
    where = _Places(equations, good)
    values = equations.parts(state)["energy"].reshape(equations.part.num_elements, -1)
    where.least(values.min(axis=1))
    return (
        f"the energy has gone to {where.value:.2g} {where.told}, further below zero than any "
        "energy was above it; try a smaller cfl, lower orders, a finer mesh"
        f"{'' if equations.problem.viscosity else ', or viscosity'}"
    )


def check_energy(equations: Equations, values: Floats) -> None:
    """Raise if the energy (ne * n,) is negative at a node of an element. Collective."""
    _check(equations, "energy", values.reshape(equations.part.num_elements, -1), 0.0)


def check_density(equations: Equations) -> None:
    """Raise if the density is not positive at a quadrature point. Collective."""
    density = equations.density
    if isinstance(density, femops.GridFunction):
        values = _at_points(density.space, equations, density.vector)
    else:
        values = np.full((equations.part.num_elements, 1), float(density))
    _check(equations, "density", values, np.finfo(np.float64).tiny)


def _check(equations: Equations, name: str, values: Floats, least: float) -> None:
    where = _Places(equations, None)
    found = where.least(values.min(axis=1, initial=np.inf))
    if not found >= least:
        raise HydroError(
            f"the {name} at the beginning is {found:.3g} {where.told}: it must not be negative"
            f"{' or zero' if least else ''}; if its function jumps within elements, put mesh lines "
            "where it jumps, or take --order-thermo 0"
        )


class _Places:
    """Finds the element with the least value on all ranks, and its position."""

    def __init__(self, equations: Equations, state: Floats | None) -> None:
        self._equations, V = equations, equations.V
        whole = equations.V.distributed
        self._numbers = np.arange(equations.part.num_elements)
        if whole is not None:
            self._numbers = whole.part.elements
        nodes = equations.part.coordinates
        if state is not None:
            nodes = _element_values(V, equations.parts(state)["position"])
        self._centres = nodes.reshape(len(nodes), -1, V.dim).mean(axis=1)
        self.value, self.told = 0.0, ""

    def least(self, values: Floats) -> float:
        """Return the least of one value per element (ne,), and remember its element. Collective."""
        comm = self._equations.comm
        element = least_element(values, comm, self._numbers)
        own = values[self._numbers == element]
        self.value = float(comm.max(np.where(np.isnan(own), -np.inf, own).max(initial=-np.inf)))
        self.told = self.of(element)
        return self.value

    def of(self, element: int) -> str:
        """Text with the number and centre of an element on any rank. Collective."""
        own = self._centres[self._numbers == element].reshape(-1, self._centres.shape[1])
        centre = self._equations.comm.max(own.max(axis=0, initial=-np.inf))
        return f"in element {element} at ({', '.join(f'{x:.4g}' for x in centre)})"


def _element_values(space: femops.Space, vector: Floats) -> Floats:
    """Values (ne, n, ncomp) at the nodes of elements. Collective."""
    found = space.restriction.gather(space.l_vec(vector))
    return np.asarray(found.reshape(*found.shape[:2], space.ncomp))


def _at_points(space: femops.Space, equations: Equations, vector: Floats) -> Floats:
    """Values (ne, points) of a one-component field at the quadrature points."""
    values = _element_values(space, vector)
    found = space.element.values(equations.quadrature.points, values)
    return np.asarray(found[..., 0])


def _volumes(equations: Equations, state: Floats) -> Floats:
    """Jacobian determinants (ne, points) of the moved mesh at the quadrature points."""
    V, rule = equations.V, equations.quadrature
    nodes = _element_values(V, equations.parts(state)["position"])
    columns = V.element.slopes(rule.points, nodes)
    return np.asarray(np.linalg.det(np.stack(columns, axis=-1)))
