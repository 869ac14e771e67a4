"""Cores that the ranks of a node may use, and each rank's share of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final


def own() -> list[int]:
    """Numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def share(masks: Sequence[Collection[int]], rank: int) -> int:
    """Number of threads of one of the ranks of a node: its share of the cores, at least 1.

    A core that k ranks may use counts 1/k for each; so ranks that are bound to cores of their own
    have all of these.

    Parameters
    ----------
    masks
        The cores that each rank of the node may use.
    rank
        Index of the rank among them.
    """
    users = Counter(core for mask in masks for core in mask)
    return max(1, int(sum(Fraction(1, users[core]) for core in masks[rank])))


@final
@dataclass(frozen=True)
class Node:
    """The node that a rank runs on.

    Parameters
    ----------
    first : int
        The lowest rank there.
    cores : int
        Cores that the ranks there may use.
    share : int
        Number of cores that are this rank's share.
    place : int
        Number of lower ranks on the node.
    """

    first: int
    cores: int
    share: int
    place: int = 0

    @classmethod
    def alone(cls) -> Node:
        """A process that shares its node with no other rank."""
        return cls(0, len(own()), len(own()))

    @classmethod
    def of(cls, comm: Any, kind: int) -> Node:
        """Limit this rank's threads to its share, which the ranks on the node agree on.

        Parameters
        ----------
        comm
            An mpi4py communicator; all its ranks call this.
        kind
            ``MPI.COMM_TYPE_SHARED``.
        """
        from femops_kernels.cpu.machine import share_threads

        node = comm.Split_type(kind)
        ranks, masks = zip(*node.allgather((comm.rank, own())), strict=True)
        found = cls(min(ranks), len(set().union(*masks)), share(masks, node.rank), node.rank)
        node.Free()
        share_threads(found.share)
        return found
