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
    """
    users = Counter(core for mask in masks for core in mask)
    return max(1, int(sum(Fraction(1, users[core]) for core in masks[rank])))


@final
@dataclass(frozen=True)
class Node:
    """Node of a rank: its cores, and the rank's share of them."""

    first: int  # lowest rank on the node
    cores: int  # number of cores that the ranks on the node may use
    share: int  # number of cores that are this rank's share
    place: int = 0  # number of lower ranks on the node

    @classmethod
    def alone(cls) -> Node:
        """Return the node of a process that is alone on its node."""
        return cls(0, len(own()), len(own()))

    @classmethod
    def of(cls, comm: Any, kind: int) -> Node:
        """Return this rank's node, and limit the rank's threads to its share of the cores."""
        from femops_kernels.cpu.machine import share_threads

        node = comm.Split_type(kind)
        ranks, masks = zip(*node.allgather((comm.rank, own())), strict=True)
        found = cls(min(ranks), len(set().union(*masks)), share(masks, node.rank), node.rank)
        node.Free()
        share_threads(found.share)
        return found
