"""Exchange of shared dofs: P copies owned dofs to the ranks' ghosts, Pᵀ adds ghosts back."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import VectorError
from femops.parallel.comm import Array, Communicator
from femops.parallel.numbering import RankNumbering

Ints = NDArray[np.int64]


@final
class Halo:
    """Exchange pattern between owned dofs and their ghosts on other ranks.

    Values are arrays of any type. Their first axis counts dofs, and they may have further axes. The
    constructor and both maps are collective.
    """

    def __init__(self, numbering: RankNumbering, comm: Communicator) -> None:
        self._comm = comm
        self.owned, self.ghosts = numbering.owned, len(numbering.ghosts)
        cuts = np.searchsorted(numbering.ghosts, numbering.offsets)
        owners = np.flatnonzero(np.diff(cuts))
        self.receive = {int(r): (int(cuts[r]), int(cuts[r + 1])) for r in owners}
        self.send: dict[int, Ints] = comm.exchange(
            {
                rank: numbering.ghosts[first:end] - numbering.offsets[rank]
                for rank, (first, end) in self.receive.items()
            }
        )
        for dofs in self.send.values():
            dofs.setflags(write=False)

    @property
    def messages(self) -> int:
        """Number of messages that this rank sends in `forward`, and receives in `reverse_add`."""
        return len(self.send)

    @property
    def numbers(self) -> int:
        """Number of dofs in the messages that this rank sends in `forward`."""
        return sum(len(dofs) for dofs in self.send.values())

    def forward(self, values: NDArray[Any]) -> Array:
        """Return values (ghosts, ...) of the ghosts, from values (owned, ...) of the owned dofs."""
        _check_length(values, self.owned, "owned dofs")
        arrived = self._comm.exchange({rank: values[dofs] for rank, dofs in self.send.items()})
        ghosts = np.empty((self.ghosts, *values.shape[1:]), dtype=values.dtype)
        for rank, (first, end) in self.receive.items():
            ghosts[first:end] = arrived[rank].reshape(end - first, *values.shape[1:])
        return ghosts

    def reverse_add(self, ghosts: NDArray[Any], values: NDArray[Any]) -> None:
        """Add ghost contributions to the owners' values. This is the transpose of `forward`.

        Contributions to a dof are added in ascending order of ranks.

        Shapes: `ghosts` (ghosts, ...), `values` (owned, ...).
        """
        _check_length(ghosts, self.ghosts, "ghosts")
        _check_length(values, self.owned, "owned dofs")
        if (ghosts.dtype, ghosts.shape[1:]) != (values.dtype, values.shape[1:]):
            raise VectorError(
                f"ghosts are {ghosts.dtype} of shape {ghosts.shape}, values {values.dtype} of "
                f"shape {values.shape}: give the same type and all axes but the first alike"
            )
        arrived = self._comm.exchange(
            {rank: ghosts[first:end] for rank, (first, end) in self.receive.items()}
        )
        for rank, dofs in self.send.items():
            values[dofs] += arrived[rank].reshape(len(dofs), *values.shape[1:])

    def reverse_add_each(
        self, ghosts: Ints, contributions: NDArray[Any], values: NDArray[Any]
    ) -> None:
        """Add several contributions per ghost to the owner's value, one after the other.

        Contributions are added in ascending order of ranks, and for one rank in the order of the
        array.

        Shapes: `ghosts` (n,), `contributions` (n, ...), `values` (owned, ...).
        """
        places, parts = {}, {}
        for rank, (first, end) in self.receive.items():
            mine = np.flatnonzero((ghosts >= first) & (ghosts < end))
            places[rank], parts[rank] = ghosts[mine] - first, contributions[mine]
        where, arrived = self._comm.exchange(places), self._comm.exchange(parts)
        for rank, dofs in self.send.items():
            np.add.at(values, dofs[where[rank]], arrived[rank])

    def completed(self, table: NDArray[Any], known: NDArray[np.bool_]) -> Array:
        """Values (owned, ...) of owned dofs; unknown ones come from the lowest rank that has them.

        Shapes: `table` (owned + ghosts, ...), `known` (owned + ghosts,).
        """
        values, known = table[: self.owned].copy(), known.copy()
        ghosts, told = table[self.owned :], known[self.owned :]
        pieces = {rank: slice(*ends) for rank, ends in self.receive.items()}
        flags = self._comm.exchange({rank: told[some] for rank, some in pieces.items()})
        arrived = self._comm.exchange({rank: ghosts[some] for rank, some in pieces.items()})
        for rank, dofs in self.send.items():
            new = flags[rank] & ~known[dofs]
            values[dofs[new]] = arrived[rank].reshape(len(dofs), *values.shape[1:])[new]
            known[dofs[new]] = True
        return values

    def marked(self, dofs: Ints) -> Ints:
        """Owned dofs that any rank marks. Collective.

        Shapes: `dofs` (n,), returned (k,).
        """
        marks = np.zeros(self.owned + self.ghosts, dtype=np.int64)
        marks[dofs] = 1
        self.reverse_add(marks[self.owned :], marks[: self.owned])
        return np.flatnonzero(marks[: self.owned])

    def __repr__(self) -> str:
        return (
            f"Halo({self.owned} dofs and {self.ghosts} ghosts, sends {self.numbers} to "
            f"{self.messages} ranks, receives from {len(self.receive)})"
        )


def _check_length(values: NDArray[Any], length: int, what: str) -> None:
    if values.ndim == 0 or len(values) != length:
        raise VectorError(
            f"values have shape {values.shape}, there are {length} {what}: the first axis must "
            "count these"
        )
