"""What is exchanged between ranks when an operator is applied: the maps P and its transpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from femops.parallel.gpus import takes_device_memory
from femops.parallel.halo import Halo
from femops.spaces.base import Space
from femops_kernels.channel import Channel, Route
from femops_kernels.cpu.exchange import Forward, Reverse
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.rank_terms import RankTerms
from femops_kernels.cpu.rows import RowProduct
from femops_kernels.cpu.sweep import Idle, Launch, Sweep, Terms
from femops_kernels.cuda.operator.sweep import DeviceIdle, DeviceLaunch, DeviceSweep, DeviceTerms
from femops_kernels.cuda.ranks.messages import DeviceForward, DeviceReverse, Post
from femops_kernels.cuda.ranks.rank_terms import DeviceRankTerms

Ints = NDArray[np.int64]
AnyTerms = Terms | RankTerms | DeviceTerms | DeviceRankTerms

_channels: WeakKeyDictionary[Space, dict[Any, tuple[Any, Ints]]] = WeakKeyDictionary()


@final
@dataclass(frozen=True, eq=False)
class End:
    """A vector of one space, which an operator reads or writes, in the operator's flat vector.

    Attributes
    ----------
    space : Space
    held : (k,) int64
        Flat positions in it that are not exchanged.
    first : int
        Where it begins.
    """

    space: Space
    held: Ints
    first: int = 0


def rank_terms(
    terms: Terms | DeviceTerms,
    sources: Sequence[End],
    targets: Sequence[End],
    pairs: Sequence[tuple[int, int]],
    dtype: np.dtype[Any],
) -> AnyTerms:
    """Terms with the exchanges that they need; the terms themselves where ranks share no dofs.

    Collective. Messages of two applications never meet: one is done after the other.

    Parameters
    ----------
    terms : Terms or DeviceTerms
    sources, targets : sequence of End
        What they read and write.
    pairs : sequence of (int, int)
        For each launch, which source and which target.
    dtype : numpy.dtype
        Of the vectors.
    """
    ends = [*sources, *targets]
    if all(end.space.halo is None for end in ends):
        return terms
    launches: Sequence[Launch | DeviceLaunch] = terms.sweeps
    forwards: list[tuple[Any, int]] = []
    where: dict[int, int] = {}
    swept = {source for s, (source, _) in zip(launches, pairs, strict=True) if _sweeps(s)}
    for k, end in enumerate(sources):
        if end.space.halo is not None and k in swept:
            where[k] = len(forwards)
            forwards.append((_forward(end, k, dtype), end.first * dtype.itemsize))
    apart = any(end.space.distributed.reproducible for end in ends if end.space.distributed)
    reverses: list[tuple[Any, int]] = []
    routes, known = [], {}
    for launch, (source, target) in zip(launches, pairs, strict=True):
        if isinstance(launch, RowProduct) and launch.joined is not None:
            routes.append(Route(len(forwards)))
            forwards.append((launch.joined.forward, sources[source].first * dtype.itemsize))
            continue
        if not _sweeps(launch):
            routes.append(Route())
            continue
        end = targets[target]
        if end.space.halo is not None and (apart or target not in known):
            known[target] = len(reverses)
            make = _reverse_apart if apart else _reverse
            reverses.append((make(end, target, dtype, launch), end.first * dtype.itemsize))
        routes.append(Route(where.get(source), known.get(target)))
    if isinstance(terms, DeviceTerms):
        return DeviceRankTerms(terms, forwards, reverses, routes)
    return RankTerms(terms, forwards, reverses, routes, apart)


def _sweeps(launch: Launch | DeviceLaunch) -> bool:
    """Whether it reads and writes ghosts, or would if it had elements."""
    return isinstance(launch, Sweep | Idle | DeviceSweep | DeviceIdle)


def _forward(end: End, occurrence: int, dtype: np.dtype[Any]) -> Forward | DeviceForward:
    channel, positions = _way(end, "forward", occurrence, dtype)
    if end.space.device is None:
        return Forward(channel, positions)
    return DeviceForward(end.space.device, channel, positions)


def _way(end: End, kind: str, occurrence: int, dtype: np.dtype[Any]) -> tuple[Any, Ints]:
    """Channel or post, kept for all operators on the space, and positions of the owned dofs."""
    halo, ncomp = end.space.halo, end.space.ncomp
    assert halo is not None
    kept, key = _channels.setdefault(end.space, {}), (kind, occurrence, dtype)
    if key not in kept:
        sizes = _sent(halo, ncomp), _received(halo, ncomp)
        way = _carrier(end.space, *(sizes if kind == "forward" else sizes[::-1]), dtype)
        kept[key] = way, _flat([*halo.send.values()], ncomp)
    way, positions = kept[key]
    return way, _without(positions, end.held)


def _carrier(
    space: Space, send: Mapping[int, int], receive: Mapping[int, int], dtype: np.dtype[Any]
) -> Channel | Post:
    """What carries messages from where the space's vectors are to there."""
    if space.device is None:
        return space.comm.channel(send, receive, dtype)
    direct = takes_device_memory(space.comm)
    out, into = (
        space.device.passage(sum(sizes.values()), dtype, direct=direct) for sizes in (send, receive)
    )
    return Post(space.comm.channel(send, receive, dtype, (out.here, into.here)), out, into)


def forward_of(space: Space, halo: Halo, dtype: np.dtype[Any]) -> Forward:
    """Make the exchange that brings the ghosts of a halo on the dofs of a space."""
    ncomp = space.ncomp
    channel = space.comm.channel(_sent(halo, ncomp), _received(halo, ncomp), dtype)
    return Forward(channel, _flat([*halo.send.values()], ncomp))


def _reverse(
    end: End, occurrence: int, dtype: np.dtype[Any], _: Launch | DeviceLaunch
) -> Reverse | DeviceReverse:
    channel, positions = _way(end, "reverse", occurrence, dtype)
    if end.space.device is None:
        return Reverse(channel, positions)
    return DeviceReverse(end.space.device, channel, positions)


def _reverse_apart(
    end: End, _: int, dtype: np.dtype[Any], launch: Launch | DeviceLaunch
) -> Reverse:
    """One number for each contribution of a chunk, not for each ghost."""
    halo, ncomp, comm = end.space.halo, end.space.ncomp, end.space.comm
    assert halo is not None
    plan = launch.target if isinstance(launch, Sweep) else None
    ghosts = _contributed(plan)
    places = {
        rank: ghosts[(ghosts >= first) & (ghosts < stop)] - first
        for rank, (first, stop) in halo.receive.items()
    }
    arriving = comm.exchange(places)
    sent = {rank: len(at) * ncomp for rank, at in places.items()}
    received = {rank: len(at) * ncomp for rank, at in arriving.items()}
    positions = _flat([halo.send[rank][at] for rank, at in arriving.items()], ncomp)
    channel = comm.channel(sent, received, dtype)
    return Reverse(channel, _without(positions, end.held), np.arange(len(ghosts) + 1))


def _contributed(plan: Plan | None) -> Ints:
    """The ghost of each contribution, ascending."""
    if plan is None:
        return np.empty(0, dtype=np.int64)
    return np.repeat(np.arange(plan.ghosts), np.diff(plan.ghost_start))


def _sent(halo: Halo, ncomp: int) -> dict[int, int]:
    return {rank: len(dofs) * ncomp for rank, dofs in halo.send.items()}


def _received(halo: Halo, ncomp: int) -> dict[int, int]:
    return {rank: (stop - first) * ncomp for rank, (first, stop) in halo.receive.items()}


def _flat(dofs: list[Ints], ncomp: int) -> Ints:
    """Flat positions of all components of some dofs."""
    joined = np.concatenate([np.empty(0, dtype=np.int64), *dofs])
    return np.asarray(np.add.outer(joined * ncomp, np.arange(ncomp)).reshape(-1))


def _without(positions: Ints, held: Ints) -> Ints:
    """Positions, but -1 for those held."""
    result: Ints = np.where(np.isin(positions, held), -1, positions)
    return result
