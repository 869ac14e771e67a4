"""Compiled sums over elements: interpolation to another order on the mesh, and `ElementModes`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.jacobians import Geometry
from femops.operators.execution.backend import Step, Transfer
from femops.operators.execution.host import backend_of
from femops.operators.execution.modes import ElementModes, looks_stretched, modes_of
from femops.operators.execution.ranks import compiled_steps
from femops.operators.execution.specs import mode_spec, transfer_spec
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.chunks import plans
from femops.operators.integrals.constraints import FREE
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1
from femops_kernels.compiled import CompiledOperator
from femops_kernels.cpu import machine
from femops_kernels.cpu.machine import lane_width
from femops_kernels.pointwise.qdata import Data

_PLANNED_AHEAD = 200_000  # dofs of a problem that pays for another thread


def interpolation_matrix(coarse: Space, fine: Space) -> NDArray[np.float64]:
    """1-D matrix (fine.p1d, coarse.p1d) that interpolates coarse coefficients to fine ones.

    On simplices it is one of the whole element. The order of the fine space must be at least that
    of the coarse space.
    """
    if not fine.mesh.cell.cube:
        return coarse.element.weights_at(np.asarray(fine.element.nodes))
    at_nodes = coarse.basis.interpolation(fine.basis.nodes)
    return np.asarray(fine.basis.from_nodal @ at_nodes)


def summed_interpolation(
    coarse: Space, fine: Space, dtype: np.dtype[Any]
) -> tuple[CompiledOperator, CompiledOperator]:
    """Compile the sum of the interpolants of all elements, and its transpose. Collective.

    The sum at a dof is the interpolated value times the number of elements that share the dof.
    Divide it by this number, see `ElementRestriction.multiplicity`. Hanging nodes of the fine space
    are left out.
    """
    both = [*_transfers([(fine, coarse)])]
    return elementwise(both[::2], dtype), elementwise(both[1::2], dtype)


def prepare_cycles(spaces: Sequence[Space], outer: np.dtype[Any], dtype: np.dtype[Any]) -> None:
    """Start to compile kernels that the multigrid cycles of all operators share, if a core is idle.

    For a large problem a Python thread does so. It makes the plans of all levels, and checks the
    elements of the coarse levels. It needs NumPy alone, so it works while sweeps of the finest
    level run. A sweep waits for its plan, and raises the errors of the thread.
    """
    first, threads = spaces[0], machine.get_threads()
    alone = first.comm.size == 1 and first.device is None and threads > 1
    if not alone or first.size < _PLANNED_AHEAD:
        _compile_ahead(spaces, outer, dtype)
        return

    def work() -> None:
        machine.set_threads(threads)  # each Python thread has its own number
        with suppress(Exception):  # raised again where the result is needed
            _compile_ahead(spaces, outer, dtype)
            for space in spaces:
                for part in space.parts:
                    sides = Arguments.of(part), Arguments.of(part)
                    plans(*sides, dtype, lane_width(dtype))
                    if space is not first:
                        Geometry(part.mesh, part.quadrature(part.order + 1)).check()

    Thread(target=work, daemon=True).start()


def _compile_ahead(spaces: Sequence[Space], outer: np.dtype[Any], dtype: np.dtype[Any]) -> None:
    first, steps = spaces[0], list(pairwise(spaces))
    if not steps:
        return

    def modes() -> list[tuple[Space, NDArray[np.float64]]]:
        relaxed = [space for space in spaces if space.order > 1]
        cubes = isinstance(first, H1) and not first.mixed and first.mesh.cell.cube
        if not (relaxed and cubes and looks_stretched(first.mesh)):
            return []  # levels will hardly relax by elements
        return [(space, modes_of(space.basis)[1]) for space in relaxed]

    backend_of(first).compile_cycle(list(_transfers(steps)), modes, outer, dtype)


def _transfers(
    steps: Sequence[tuple[Space, Space]],
) -> Iterator[Transfer]:
    """Yield source, target, 1-D matrix and fine space of interpolations and their transposes."""
    for fine, coarse in _by_part(steps):
        matrix = interpolation_matrix(coarse, fine)
        yield coarse, fine, matrix, fine
        yield fine, coarse, matrix.T, fine


def _by_part(steps: Sequence[tuple[Space, Space]]) -> Iterator[tuple[Space, Space]]:
    for fine, coarse in steps:
        yield from zip(fine.parts, coarse.parts, strict=True)


def compiled_modes(space: Space, modes: ElementModes, dtype: np.dtype[Any]) -> CompiledOperator:
    """Compile the sum of the products of all elements with `ElementModes`. Collective."""
    backend, side = backend_of(space), Arguments.of(space)
    work = mode_spec(space, modes.vectors, dtype), modes.data(backend.slots(dtype), dtype)
    step = Step(1.0, backend.launch_products(space, space, work), side, side, True)
    return compiled_steps(backend, [step], (side, side), FREE, dtype)


def elementwise(transfers: Sequence[Transfer], dtype: np.dtype[Any]) -> CompiledOperator:
    """Compile products of element dofs with a matrix in each direction, summed. Collective."""
    steps = []
    for source, target, matrix, fine in transfers:
        backend = backend_of(source)
        spec = transfer_spec(source, target, matrix, fine, dtype)
        work = spec, Data(np.zeros((0, 0, 0, 1), dtype))
        launch = backend.launch_products(source, target, work)
        sides = Arguments.of(source), Arguments.of(target)
        steps.append(Step(1.0, launch, *sides, source.domain.covers))
    return compiled_steps(backend, steps, sides, FREE, dtype)
