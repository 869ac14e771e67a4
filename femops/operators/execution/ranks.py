"""Exchanges between ranks when an operator is applied: the map P and its transpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.backend import Backend, Step
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.constraints import Constraints
from femops.parallel.halo import Halo
from femops.pointwise.sides import base_name
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops_kernels.compiled import ONE, CompiledOperator, Launch, Panels, Route
from femops_kernels.cpu.exchange import Forward
from femops_kernels.exclusive import Derived

Ints = NDArray[np.int64]

_channels: WeakKeyDictionary[Space, dict[Any, tuple[Any, Ints]]] = WeakKeyDictionary()
_state_forwards = Derived[Space, Any]()


@final
@dataclass(frozen=True, eq=False)
class Operand:
    """Part of an operator's flat vector that belongs to one space."""

    space: Space
    # (k,): flat positions of constrained dofs in this part. They are not exchanged.
    constrained: Ints
    first: int = 0  # first entry of this part in the operator's vector


def compiled_steps(
    backend: Backend,
    steps: Sequence[Step],
    sides: tuple[Arguments, Arguments],
    constraints: Constraints,
    dtype: np.dtype[Any],
    panels: Panels = ONE,
) -> CompiledOperator:
    """Compile a sum of steps, with the exchanges between ranks that it needs. Collective.

    All operators on a space share channels, because one application ends before the next begins.
    """
    starts = _starts(backend, steps, sides[1], constraints, dtype, panels)
    added = {name for step in steps for name in step.written}
    before = [start for start in starts if not added.isdisjoint(start.written)]
    every = [*before, *steps, *(start for start in starts if start not in before)]
    row, begun = dtype.itemsize * panels.nvec, set[str]()
    places = []
    for step in every:
        adds = not begun.isdisjoint(step.written)
        places.append((step.place[0] * row, step.place[1] * row, adds))
        begun |= step.written
    local = backend.operator([(step.alpha, step.launch) for step in every], places)
    ends = [
        {
            name: Operand(space.volume, side.within(name, held), side.origin(name))
            for name, space in side.spaces.items()
        }
        for side, held in zip(sides, (constraints.columns, constraints.rows), strict=True)
    ]
    if not any(step.exchanges for step in every):
        return local
    made = _Exchanges(backend, ends[0], ends[1], dtype, panels.nvec)
    routes = [made.route(step) for step in every]
    return backend.distributed(local, made.forwards, made.reverses, routes, made.apart)


def _starts(
    backend: Backend,
    steps: Sequence[Step],
    tests: Arguments,
    constraints: Constraints,
    dtype: np.dtype[Any],
    panels: Panels,
) -> list[Step]:
    """Steps that initialise the test functions that no other step overwrites.

    They set the result to zero, but constrained rows to ``constraints.identity`` times the field.
    """
    begun = {name for step in steps if step.begins for name in step.written}
    found = []
    for name in [name for name in tests.spaces if name not in begun]:
        alone, size = tests.only([name]), tests.spaces[name].volume.size
        rows, place = tests.within(name, constraints.rows), tests.origin(name)
        launch = backend.start(size, rows, constraints.identity, dtype, panels)
        found.append(Step(1.0, launch, alone, alone, True, (place, place)))
    return found


@final
class _Exchanges:
    """Builds the exchanges of an operator. Steps share an exchange where possible."""

    def __init__(
        self,
        backend: Backend,
        sources: Mapping[str, Operand],
        targets: Mapping[str, Operand],
        dtype: np.dtype[Any],
        nvec: int,
    ) -> None:
        self._backend, self._sources, self._targets = backend, sources, targets
        self._dtype, self._nvec, self._row = dtype, nvec, dtype.itemsize * nvec
        ends = [*sources.values(), *targets.values()]
        self.apart = any(end.space.any_width for end in ends)
        self.forwards: list[tuple[Any, int]] = []
        self.reverses: list[tuple[Any, int]] = []
        self._read: dict[tuple[str, Halo], int] = {}
        self._written: dict[tuple[str, Halo], int] = {}

    def route(self, step: Step) -> Route:
        """Numbers of the exchanges before and after a step."""
        launch = step.launch
        if launch.forward is not None:
            self.forwards.append((launch.forward, step.place[0] * self._row))
            return Route((len(self.forwards) - 1,))
        if not launch.on_elements:
            return Route()
        return Route(
            tuple(self._forward(*item) for item in step.fields.spaces.items()),
            tuple(
                self._reverse(launch, k, *item) for k, item in enumerate(step.tests.spaces.items())
            ),
        )

    def _forward(self, side: str, space: DomainSpace) -> int | None:
        name, halo = base_name(side), space.halo
        if halo is None:
            return None
        if (name, halo) not in self._read:
            end, number = self._sources[name], list(self._sources).index(name)
            way = _way(self._backend, end, halo, ("forward", number), self._dtype, self._nvec)
            self._read[name, halo] = len(self.forwards)
            self.forwards.append((self._backend.forward(*way), end.first * self._row))
        return self._read[name, halo]

    def _reverse(self, launch: Launch, k: int, side: str, space: DomainSpace) -> int | None:
        name, halo = base_name(side), space.halo
        if halo is None:
            return None
        if self.apart or (name, halo) not in self._written:
            end, kinds = self._targets[name], (self._dtype, self._nvec)
            number = list(self._targets).index(name)
            way = (
                _way_apart(self._backend, end, halo, launch.contributed(k), *kinds)
                if self.apart
                else _way(self._backend, end, halo, ("reverse", number), *kinds)
            )
            self._written[name, halo] = len(self.reverses)
            self.reverses.append((self._backend.reverse(*way), end.first * self._row))
        return self._written[name, halo]


def device_ghosts(backend: Backend, space: Space, halo: Halo | None, vector: Any) -> Any:
    """Ghost values of a vector on a device, in a buffer that the next exchange overwrites.

    None if there is no halo, as ranks share no dofs. Collective.
    """
    if halo is None:
        return None

    def make() -> Any:
        whole = Operand(space, np.zeros(0, dtype=np.int64))
        return backend.forward(*_way(backend, whole, halo, ("forward", 0), vector.dtype, 1))

    forward = _state_forwards.get(space, make, halo, vector.dtype)
    forward.pack(space.memory.address(vector))
    forward.post.start()
    forward.post.finish()
    return forward.post.incoming


def _way(
    backend: Backend,
    end: Operand,
    halo: Halo,
    use: tuple[str, int],
    dtype: np.dtype[Any],
    nvec: int,
) -> tuple[Any, Ints]:
    """Return a channel, and the flat positions (n,) of the owned dofs whose values it carries.

    All operators on the space share the channels of a halo, one for each direction and number of
    the argument, ``use``. Positions of constrained dofs are -1.
    """
    ncomp = end.space.ncomp * nvec
    kept, key = _channels.setdefault(end.space, {}), (halo, use, dtype, nvec)
    if key not in kept:
        sizes = _sent(halo, ncomp), _received(halo, ncomp)
        way = backend.way(end.space, *(sizes if use[0] == "forward" else sizes[::-1]), dtype)
        kept[key] = way, _flat([*halo.send.values()], ncomp)
    way, positions = kept[key]
    return way, _without(positions, end.constrained, nvec)


def _way_apart(
    backend: Backend, end: Operand, halo: Halo, ghosts: Ints, dtype: np.dtype[Any], nvec: int
) -> tuple[Any, Ints, Ints]:
    """Return a channel and positions to send one number per contribution of a chunk, not per ghost.

    ``ghosts`` has the ghost of each contribution, ascending.
    """
    ncomp, comm = end.space.ncomp * nvec, end.space.comm
    places = {
        rank: ghosts[(ghosts >= first) & (ghosts < stop)] - first
        for rank, (first, stop) in halo.receive.items()
    }
    arriving = comm.exchange(places)
    sent = {rank: len(at) * ncomp for rank, at in places.items()}
    received = {rank: len(at) * ncomp for rank, at in arriving.items()}
    positions = _flat([halo.send[rank][at] for rank, at in arriving.items()], ncomp)
    way = backend.way(end.space, sent, received, dtype)
    return way, _without(positions, end.constrained, nvec), np.arange(len(ghosts) + 1)


def forward_of(space: Space, halo: Halo, dtype: np.dtype[Any], nvec: int = 1) -> Forward:
    """Make the exchange that sends values of a space's dofs to the ghosts of a halo."""
    ncomp = space.ncomp * nvec
    channel = space.comm.channel(_sent(halo, ncomp), _received(halo, ncomp), dtype)
    return Forward(channel, _flat([*halo.send.values()], ncomp))


def _sent(halo: Halo, ncomp: int) -> dict[int, int]:
    return {rank: len(dofs) * ncomp for rank, dofs in halo.send.items()}


def _received(halo: Halo, ncomp: int) -> dict[int, int]:
    return {rank: (stop - first) * ncomp for rank, (first, stop) in halo.receive.items()}


def _flat(dofs: list[Ints], ncomp: int) -> Ints:
    """Flat positions of all ``ncomp`` components of the dofs in several arrays."""
    joined = np.concatenate([np.empty(0, dtype=np.int64), *dofs])
    return np.asarray(np.add.outer(joined * ncomp, np.arange(ncomp)).reshape(-1))


def _without(positions: Ints, constrained: Ints, nvec: int) -> Ints:
    """Copy of flat positions in ``nvec`` vectors, with -1 for constrained entries."""
    result: Ints = np.where(np.isin(positions // nvec, constrained), -1, positions)
    return result
