"""Checks that all ranks have the same values, and errors that all ranks raise together."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from femops.errors import CommunicatorError, RankError
from femops.parallel.comm import Array, Communicator


@contextmanager
def check(comm: Communicator) -> Iterator[None]:
    """Raise on all ranks if a rank raises inside the block. So no rank waits forever. Collective.

    All ranks must enter the block. The block must not have collective calls.

    Raises
    ------
    RankError
        On ranks without an error of their own. The message tells which rank failed and why. A rank
        that failed raises its own error.

    Examples
    --------
    >>> from femops.parallel import Serial, check
    >>> with check(Serial()):
    ...     order = int("4")
    """
    error: Exception | None = None
    try:
        yield
    except Exception as caught:  # noqa: BLE001  (whatever it is)
        error = caught
    # the lowest rank that failed, or `size` if none did
    first = comm.size - comm.max(0 if error is None else comm.size - comm.rank)
    if first < comm.size:
        reason = comm.broadcast(f"{type(error).__name__}: {error}", first)
        if error is not None:
            raise error
        raise RankError(f"rank {first} of {comm.size} failed: {reason}")


def check_same(
    comm: Communicator,
    about: str,
    facts: Mapping[str, object],
    root: int = 0,
    error: type[Exception] = CommunicatorError,
) -> None:
    """Raise the same error on all ranks if named facts differ between ranks. Collective.

    Parameters
    ----------
    comm : Communicator
    about : str
        Subject of the facts, for the message.
    facts : mapping
        Values by name, with the same names on all ranks. Values are compared by their ``repr``.
    root : int
        Rank with which all other ranks are compared.
    error : class
        Error to raise.

    Raises
    ------
    error
        A fact differs. The message names the fact and the ranks.
    """
    if comm.size == 1:
        return
    mine = [zlib.crc32(repr(fact).encode()) for fact in facts.values()]
    table = comm.gather_all(np.array(mine, dtype=np.int64))
    differs = table != table[root]
    if differs.any():
        column = int(np.argmax(differs.any(axis=0)))
        name, fact = list(facts.items())[column]
        others = np.flatnonzero(differs[:, column])
        texts = [comm.broadcast(repr(fact), rank) for rank in (root, int(others[0]))]
        raise error(
            f"ranks disagree about {about}: {name} is {texts[0]} on rank {root}, but {texts[1]} "
            f"on {listed(others[:1])} ({len(others)} of {comm.size} differ from rank {root}: "
            f"{listed(others)}): give all the same"
        )


def listed(ranks: Array) -> str:
    """Text that lists ranks, at most eight of them."""
    shown = ", ".join(map(str, ranks[:8].tolist())) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' * (len(ranks) != 1)} {shown}" if len(ranks) else "none"
