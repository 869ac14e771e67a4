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
    """Number of threads for a rank of a node: its share of the cores, at least 1.

    A core that k ranks may use counts as 1/k for each rank. So a rank that is bound to its own
    cores gets all these cores.

    Parameters
    ----------
    masks
        Cores that each rank of the node may use.
    rank
        Index of the rank in ``masks``.
    """
    users = Counter(core for mask in masks for core in mask)
    return max(1, int(sum(Fraction(1, users[core]) for core in masks[rank])))


@final
@dataclass(frozen=True)
class Node:
    """Node of a rank: its cores, and the rank's share of them.

    Parameters
    ----------
    first : int
        Lowest rank on the node.
    cores : int
        Number of cores that the ranks on the node may use.
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
        """Return the node of a process that is alone on its node."""
        return cls(0, len(own()), len(own()))

    @classmethod
    def of(cls, comm: Any, kind: int) -> Node:
        """Return this rank's node, and limit the rank's threads to its share of the cores.

        Parameters
        ----------
        comm
            mpi4py communicator. The call is collective.
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
