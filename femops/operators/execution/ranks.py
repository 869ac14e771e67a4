"""Exchanges between ranks when an operator is applied: the maps P and its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.backend import Backend
from femops.parallel.halo import Halo
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_kernels.channel import Route
from femops_kernels.compiled import CompiledOperator
from femops_kernels.cpu.exchange import Forward
from femops_kernels.derived import Derived

Ints = NDArray[np.int64]

_channels: WeakKeyDictionary[Space, dict[Any, tuple[Any, Ints]]] = WeakKeyDictionary()
_state_forwards = Derived[Space, Any]()


@final
@dataclass(frozen=True, eq=False)
class Operand:
    """A vector of one space, which an operator reads or writes, in the operator's flat vector.

    Attributes
    ----------
    space : Space
    constrained : (k,) int64
        Flat positions in it that are not exchanged.
    first : int
        Where it begins.
    """

    space: Space
    constrained: Ints
    first: int = 0


def distributed(
    backend: Backend,
    local: CompiledOperator,
    sources: Sequence[Operand],
    targets: Sequence[Operand],
    pairs: Sequence[tuple[int, int]],
    dtype: np.dtype[Any],
    nvec: int = 1,
) -> CompiledOperator:
    """An operator with the exchanges that it needs; itself where ranks share no dofs.

    Collective. Messages of two applications never meet: one is done after the other.

    Parameters
    ----------
    backend : Backend
    local : CompiledOperator
        What this rank has of it.
    sources, targets : sequence of Operand
        What it reads and writes.
    pairs : sequence of (int, int)
        For each launch, which source and which target.
    dtype : numpy.dtype
        Of the vectors.
    nvec : int
        Vectors at once, whose entries stand together; they share the messages.
    """
    row = dtype.itemsize * nvec
    ends = [*sources, *targets]
    if all(end.space.halo is None for end in ends):
        return local
    launches = local.sweeps
    forwards: list[tuple[Any, int]] = []
    where: dict[int, int] = {}
    read = {source for s, (source, _) in zip(launches, pairs, strict=True) if s.on_elements}
    for k, end in enumerate(sources):
        if end.space.halo is not None and k in read:
            where[k] = len(forwards)
            forward = backend.forward(*_way(backend, end, "forward", k, dtype, nvec))
            forwards.append((forward, end.first * row))
    apart = any(end.space.distributed.reproducible for end in ends if end.space.distributed)
    reverses: list[tuple[Any, int]] = []
    routes, known = [], {}
    for launch, (source, target) in zip(launches, pairs, strict=True):
        if launch.forward is not None:
            routes.append(Route(len(forwards)))
            forwards.append((launch.forward, sources[source].first * row))
            continue
        if not launch.on_elements:
            routes.append(Route())
            continue
        end = targets[target]
        if end.space.halo is not None and (apart or target not in known):
            known[target] = len(reverses)
            given = (
                _way_apart(backend, end, dtype, launch.contributed, nvec)
                if apart
                else _way(backend, end, "reverse", target, dtype, nvec)
            )
            reverses.append((backend.reverse(*given), end.first * row))
        routes.append(Route(where.get(source), known.get(target)))
    return backend.distributed(local, forwards, reverses, routes, apart)


def field_exchanges(
    backend: Backend,
    product: Product,
    tests: Sequence[str],
    constrained: Ints,
    dtype: np.dtype[Any],
    contributed: Sequence[Ints] | None = None,
) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
    """Exchanges of a form on several fields: by number of the field, and of the test function.

    Collective.

    Parameters
    ----------
    backend : Backend
    product : Product
    tests : sequence of str
        Names of the test functions.
    constrained : (n,) int64
        Positions of the result to which nothing is added.
    dtype : numpy.dtype
    contributed : sequence of (n,) int64, optional
        For each test function, the ghost of each contribution: every contribution is sent.  If
        omitted, the sum of the contributions to a ghost is sent.
    """
    made: dict[str, list[tuple[int, Any]]] = {"forward": [], "reverse": []}
    for kind, names in (("forward", product.names), ("reverse", tests)):
        for k, name in enumerate(names):
            space, where = product.spaces[name], product.slice(name)
            if space.halo is None:
                continue
            inside = constrained[(constrained >= where.start) & (constrained < where.stop)]
            held = inside - where.start if kind == "reverse" else inside[:0]
            end = Operand(space, held)
            given = (
                _way_apart(backend, end, dtype, contributed[k], 1)
                if kind == "reverse" and contributed is not None
                else _way(backend, end, kind, k, dtype, 1)
            )
            made[kind].append((k, getattr(backend, kind)(*given)))
    return made["forward"], made["reverse"]


def device_ghosts(backend: Backend, space: Space, vector: Any) -> Any:
    """Values of other ranks at the ghosts of a vector on a device, until the next exchange.

    None where ranks share no dofs. Collective.
    """
    if space.halo is None:
        return None

    def make() -> Any:
        whole = Operand(space, np.zeros(0, dtype=np.int64))
        return backend.forward(*_way(backend, whole, "forward", 0, vector.dtype, 1))

    forward = _state_forwards.get(space, make, vector.dtype)
    forward.pack(space.memory.address(vector))
    forward.post.start()
    forward.post.finish()
    return forward.post.incoming


def _way(
    backend: Backend, end: Operand, kind: str, occurrence: int, dtype: np.dtype[Any], nvec: int
) -> tuple[Any, Ints]:
    """Channel of messages, kept for all operators on the space, and positions of owned dofs."""
    halo, ncomp = end.space.halo, end.space.ncomp * nvec
    assert halo is not None
    kept, key = _channels.setdefault(end.space, {}), (kind, occurrence, dtype, nvec)
    if key not in kept:
        sizes = _sent(halo, ncomp), _received(halo, ncomp)
        way = backend.way(end.space, *(sizes if kind == "forward" else sizes[::-1]), dtype)
        kept[key] = way, _flat([*halo.send.values()], ncomp)
    way, positions = kept[key]
    return way, _without(positions, end.constrained, nvec)


def _way_apart(
    backend: Backend, end: Operand, dtype: np.dtype[Any], ghosts: Ints, nvec: int
) -> tuple[Any, Ints, Ints]:
    """Channel and positions for one number per contribution of a chunk, not per ghost.

    ``ghosts`` is the ghost of each contribution, ascending.
    """
    halo, ncomp, comm = end.space.halo, end.space.ncomp * nvec, end.space.comm
    assert halo is not None
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
    """Make the exchange that brings the ghosts of a halo on the dofs of a space."""
    ncomp = space.ncomp * nvec
    channel = space.comm.channel(_sent(halo, ncomp), _received(halo, ncomp), dtype)
    return Forward(channel, _flat([*halo.send.values()], ncomp))


def _sent(halo: Halo, ncomp: int) -> dict[int, int]:
    return {rank: len(dofs) * ncomp for rank, dofs in halo.send.items()}


def _received(halo: Halo, ncomp: int) -> dict[int, int]:
    return {rank: (stop - first) * ncomp for rank, (first, stop) in halo.receive.items()}


def _flat(dofs: list[Ints], ncomp: int) -> Ints:
    """Flat positions of all components of some dofs."""
    joined = np.concatenate([np.empty(0, dtype=np.int64), *dofs])
    return np.asarray(np.add.outer(joined * ncomp, np.arange(ncomp)).reshape(-1))


def _without(positions: Ints, constrained: Ints, nvec: int) -> Ints:
    """Positions of entries of many vectors, but -1 for those constrained."""
    result: Ints = np.where(np.isin(positions // nvec, constrained), -1, positions)
    return result
