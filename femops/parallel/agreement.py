"""What all ranks must have alike."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from femops.parallel.comm import Array, Communicator


def check_same(
    comm: Communicator,
    facts: Mapping[str, object],
    subject: str,
    error: type[Exception],
    root: int = 0,
) -> None:
    """Raise the same error on all ranks if facts, by name, are not the same on all. Collective.

    Parameters
    ----------
    comm : Communicator
    facts : mapping
        The same names on all ranks, in the same order; facts are compared by how they are printed.
    subject : str
        What they are about.
    error : type
        What to raise.
    root : int
        The rank with which the others are compared.
    """
    mine = [zlib.crc32(repr(fact).encode()) for fact in facts.values()]
    table = comm.gather_all(np.array(mine, dtype=np.int64))
    differs = table != table[root]
    if differs.any():
        column = int(np.argmax(differs.any(axis=0)))
        name, fact = list(facts.items())[column]
        others = np.flatnonzero(differs[:, column])
        texts = [comm.broadcast(repr(fact), rank) for rank in (root, int(others[0]))]
        raise error(
            f"ranks disagree about {subject}: {name} is {texts[0]} on rank {root}, but {texts[1]} "
            f"on {listed(others[:1])} ({len(others)} of {comm.size} differ from rank {root}: "
            f"{listed(others)}): give all the same"
        )


def listed(ranks: Array) -> str:
    """Ranks, the first of them if they are many, for a message."""
    shown = ", ".join(map(str, ranks[:8].tolist())) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' * (len(ranks) != 1)} {shown}" if len(ranks) else "none"
