"""Communicators: the exchange of data between ranks, and checks on all ranks at once."""

from __future__ import annotations

import io
import time
import warnings
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from time import perf_counter
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import CommunicatorError, RankError
from femops.launchers import first_of_launcher, launched
from femops.parallel import launch
from femops.parallel.cores import Node
from femops_common.arguments import shown
from femops_kernels.codegen.notice import NOTICE
from femops_kernels.compiled import Channel

Sizes = Mapping[int, int]
"""{rank: count of numbers to send to, or to receive from, the rank}."""
Kind = np.dtype[Any]
Memory = tuple[Any, Any]
"""Flat arrays to send from and to receive into. None stands for a new array of the host."""
NEW: Memory = (None, None)


def pieces(sizes: Sizes, dtype: Kind, whole: Any = None) -> tuple[Any, dict[int, Any]]:
    """Return a flat array for messages, and a view of each rank's message, by rank."""
    if whole is None:
        whole = np.zeros(sum(sizes.values()), dtype)
    found, begin = {}, 0
    for rank in sorted(rank for rank, size in sizes.items() if size):
        found[rank] = whole[begin : begin + sizes[rank]]
        begin += sizes[rank]
    return whole, found


@final
class SilentChannel(Channel):
    """Channel without messages."""

    def __init__(self, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW) -> None:
        self.outgoing, _ = pieces(send, dtype, memory[0])
        self.incoming, _ = pieces(receive, dtype, memory[1])

    def start(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


@final
class MpiChannel(Channel):
    """Channel of persistent MPI requests, with one message for each rank.

    All ranks must make and start their channels in the same order.
    """

    def __init__(
        self, raw: Any, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW
    ) -> None:
        mpi = launch.mpi()
        self.outgoing, to = pieces(send, dtype, memory[0])
        self.incoming, source = pieces(receive, dtype, memory[1])
        self.waited, self.messages, self.nbytes = 0.0, 0, 0
        self._to = len(to)
        self._start, self._wait = mpi.Prequest.Startall, mpi.Request.Waitall
        # receives first: a message then arrives in its array without a copy
        self._requests = [
            raw.Recv_init([piece.view(np.uint8), mpi.BYTE], rank, _TAG)
            for rank, piece in source.items()
        ]
        self._requests += [
            raw.Send_init([piece.view(np.uint8), mpi.BYTE], rank, _TAG)
            for rank, piece in to.items()
        ]
        weakref.finalize(self, _free, self._requests)

    def start(self) -> None:
        self._start(self._requests)
        self.messages += self._to
        self.nbytes += self.outgoing.nbytes

    def finish(self) -> None:
        begin = perf_counter()
        self._wait(self._requests)
        self.waited += perf_counter() - begin


def _free(requests: list[Any]) -> None:
    """Free the MPI requests of a deleted channel."""
    if not launch.mpi().Is_finalized():
        for request in requests:
            request.Free()


# `Mpi.exchange` uses tags 0 and 1
_TAG = 2


Array = NDArray[Any]
Value = TypeVar("Value", int, float, NDArray[Any])


class Communicator(ABC):
    """Group of ranks, numbered from 0, that run the same program.

    All methods are *collective*: all ranks call them, in the same order. If a rank does not call,
    all other ranks wait forever. `check` raises an error of one rank on all ranks.

    Parameters
    ----------
    rank : int
        This rank's number.
    size : int
        Number of ranks.
    node : Node
        Node of this rank, and the rank's share of the node's cores.
    """

    def __init__(self, rank: int, size: int, node: Node) -> None:
        self.rank = rank
        self.size = size
        self.node = node

    @abstractmethod
    def exchange(self, messages: Mapping[int, Array]) -> dict[int, Array]:
        """Send arrays to some ranks, and receive the arrays that ranks send to this rank.

        A receiver need not know the senders or the sizes of messages.

        Parameters
        ----------
        messages
            Array of numbers, of any shape, for each receiver. This rank may be a receiver.

        Returns
        -------
        dict
            New arrays of the same shapes and types. The keys are the senders, ascending.

        Raises
        ------
        CommunicatorError
            A receiver does not exist, or a message is no array of numbers.
        """

    @abstractmethod
    def channel(self, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW) -> Channel:
        """Make a channel for repeated messages of fixed size.

        Parameters
        ----------
        send, receive
            {rank: count of numbers to send to, or to receive from, the rank}. Sender and receiver
            must agree.
        dtype
            Type of the numbers.
        memory
            Flat arrays to send from and to receive into. By default new arrays.
        """

    @abstractmethod
    def gather_all(self, array: Array, *, alike: bool = False) -> Array:
        """Collect the arrays of all ranks on every rank.

        Parameters
        ----------
        array
            Array of numbers, with the same shape and type on all ranks.
        alike
            Whether shape and type are known to be equal. Then the check is omitted, which saves a
            message.

        Returns
        -------
        array, shape (size, ...)
            Arrays of all ranks, by rank.

        Raises
        ------
        CommunicatorError
            On all ranks if shapes or types differ. On one rank if its array is not of numbers.
        """

    @abstractmethod
    def sum(self, value: Value) -> Value:
        """Sum over all ranks of a Python number, or of arrays of equal shape and type."""

    @abstractmethod
    def max(self, value: Value) -> Value:
        """Maximum over all ranks of a Python number, or of arrays of equal shape and type."""

    @abstractmethod
    def broadcast(self, value: Any, root: int = 0) -> Any:
        """Return the object of rank `root` on all ranks. Objects of other ranks are ignored."""

    @abstractmethod
    def barrier(self, nap: float | None = None) -> None:
        """Wait until all ranks have called this method.

        With ``nap`` the rank sleeps ``nap`` seconds between checks, so that other ranks get the
        core.
        """

    def _checked(self, messages: Mapping[int, Array]) -> None:
        for target, array in messages.items():
            if not (isinstance(target, int | np.integer) and 0 <= target < self.size):
                raise CommunicatorError(
                    f"a message is for rank {target!r}: ranks are 0 to {self.size - 1}"
                )
            _check_array(array)


def _check_array(array: Any) -> None:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        got = f"dtype {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise CommunicatorError(f"messages are NumPy arrays of numbers, not {got}")


def gathered(comm: Communicator, array: Array) -> Array:
    """Concatenate the arrays (n, ...) of all ranks along the first axis. Collective."""
    if comm.size == 1:
        return array
    counts = comm.gather_all(np.array([len(array)]), alike=True)[:, 0]
    padded = np.zeros((int(counts.max()), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    parts = comm.gather_all(padded, alike=True)
    return np.concatenate([part[:n] for part, n in zip(parts, counts.tolist(), strict=True)])


@final
class Serial(Communicator):
    """Communicator of a single rank. It needs no MPI."""

    def __init__(self) -> None:
        super().__init__(0, 1, Node.alone())

    def exchange(self, messages: Mapping[int, Array]) -> dict[int, Array]:
        self._checked(messages)
        return {int(target): array.copy() for target, array in messages.items()}

    def channel(self, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW) -> Channel:
        """See `Communicator.channel`; one process sends nothing."""
        return SilentChannel(send, receive, dtype, memory)

    def gather_all(self, array: Array, *, alike: bool = False) -> Array:  # noqa: ARG002  (there is only one)
        _check_array(array)
        return array[np.newaxis].copy()

    def sum(self, value: Value) -> Value:
        return _copy(value)

    def max(self, value: Value) -> Value:
        return _copy(value)

    def broadcast(self, value: Any, root: int = 0) -> Any:  # noqa: ARG002  (there is only one)
        return value

    def barrier(self, nap: float | None = None) -> None:
        """See `Communicator.barrier`."""

    def __repr__(self) -> str:
        return "Serial()"


def _copy(value: Value) -> Value:
    return value.copy() if isinstance(value, np.ndarray) else value


@final
class Mpi(Communicator):
    """Communicator of the ranks of an mpi4py communicator.

    The communicator is duplicated, so femops' messages never mix with the user's messages. Once an
    `Mpi` exists, an uncaught exception on one rank ends all ranks. Ranks that share the cores of a
    node use no more threads than their share, unless ``FEMOPS_THREADS`` or a call sets the number.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        User's communicator. All its ranks must make the `Mpi`.

    Attributes
    ----------
    raw : mpi4py.MPI.Intracomm
        Duplicate of the user's communicator.
    """

    def __init__(self, comm: Any) -> None:
        launch.end_all_on_errors()
        mpi, self.raw = launch.mpi(), comm.Dup()
        node = Node.of(self.raw, mpi.COMM_TYPE_SHARED)
        super().__init__(self.raw.rank, self.raw.size, node)
        if self.rank:
            NOTICE.silent = True  # one rank speaks for all
        self._everywhere = comm if comm in (mpi.COMM_WORLD, mpi.COMM_SELF) else None
        self._exchanges = 0

    def exchange(self, messages: Mapping[int, Array]) -> dict[int, Array]:
        """See `Communicator.exchange`.

        Notes
        -----
        T. Hoefler, C. Siebert and A. Lumsdaine, "Scalable communication protocols for dynamic
        sparse data exchange", PPoPP 2010. When all messages of a rank have arrived, the rank enters
        a barrier. It continues to receive until all ranks have entered the barrier. Two tags
        alternate, because a rank may start the next exchange before other ranks see that the
        barrier is complete.
        """
        self._checked(messages)
        mpi, status = launch.mpi(), launch.mpi().Status()
        self._exchanges += 1
        tag = self._exchanges % 2
        sent = [
            self.raw.Issend([_packed(array), mpi.BYTE], int(target), tag)
            for target, array in messages.items()
        ]
        received: dict[int, Array] = {}
        barrier: Any = None
        while barrier is None or not barrier.Test():
            message = self.raw.Improbe(tag=tag, status=status)
            if message is not None:
                buffer = bytearray(status.Get_count(mpi.BYTE))
                message.Recv([buffer, mpi.BYTE])
                received[status.Get_source()] = _unpacked(buffer)
            elif barrier is None and mpi.Request.Testall(sent):
                barrier = self.raw.Ibarrier()
            else:
                time.sleep(0)  # ranks may have to share a core
        return dict(sorted(received.items()))

    def channel(self, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW) -> Channel:
        return MpiChannel(self.raw, send, receive, dtype, memory)

    def gather_all(self, array: Array, *, alike: bool = False) -> Array:
        _check_array(array)
        if not alike:
            self._check_alike(f"{array.dtype} {array.shape}")
        mpi, result = launch.mpi(), np.empty((self.size, *array.shape), dtype=array.dtype)
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.raw.Allgather([flat, mpi.BYTE], [result.reshape(-1).view(np.uint8), mpi.BYTE])
        return result

    def _check_alike(self, mine: str) -> None:
        number = zlib.crc32(mine.encode())
        extremes = self.max(np.array([number, -number]))
        if extremes[0] != -extremes[1]:
            kinds = [str(kind) for kind in self.raw.allgather(mine)]
            other = next(k for k, kind in enumerate(kinds) if kind != kinds[0])
            raise CommunicatorError(
                "gather_all takes arrays of one type and shape: rank 0 has "
                f"{kinds[0]}, rank {other} {kinds[other]}"
            )

    def sum(self, value: Value) -> Value:
        result: Value = self._reduced(value, launch.mpi().SUM)
        return result

    def max(self, value: Value) -> Value:
        result: Value = self._reduced(value, launch.mpi().MAX)
        return result

    def _reduced(self, value: Any, operation: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return self.raw.allreduce(value, operation)  # an int here may be a float elsewhere
        _check_array(value)
        result = np.empty_like(value, order="C")
        self.raw.Allreduce(np.ascontiguousarray(value), result, operation)
        return result

    def broadcast(self, value: Any, root: int = 0) -> Any:
        return self.raw.bcast(value, root)

    def barrier(self, nap: float | None = None) -> None:
        if nap is None:
            self.raw.Barrier()
            return
        request = self.raw.Ibarrier()
        while not request.Test():
            time.sleep(nap)

    def __copy__(self) -> Mpi:
        return self

    def __deepcopy__(self, _: Any) -> Mpi:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the communicator of the same name in the other process."""
        if self._everywhere is None:
            raise CommunicatorError(
                f"{self!r} stands for a communicator of this program's own, which no other process "
                "can have: only what is made with MPI.COMM_WORLD (or MPI.COMM_SELF) can be "
                "pickled; for vectors there is femops.io.save_state"
            )
        return communicator, (self._everywhere,)

    def __repr__(self) -> str:
        return f"Mpi(rank {self.rank} of {self.size})"


def _packed(array: Array) -> bytes:
    """Convert an array to bytes in NumPy's file format, with shape and type for the receiver."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()


def _unpacked(buffer: bytearray) -> Array:
    result: Array = np.lib.format.read_array(io.BytesIO(buffer), allow_pickle=False)
    return result


def communicator(comm: Any = None) -> Communicator:
    """Return the `Communicator` for a user's communicator.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or Communicator, optional
        Each mpi4py communicator is duplicated at its first use. None means this process alone.

    Raises
    ------
    CommunicatorError
        ``comm`` is no communicator, has no ranks, or is an intercommunicator. Or a launcher started
        several processes, and each is alone in ``COMM_WORLD``.
    """
    if comm is None:
        return Serial()
    if isinstance(comm, Communicator):
        return comm
    mpi = launch.loaded()
    if mpi is None or not isinstance(comm, mpi.Intracomm) or comm == mpi.COMM_NULL:
        raise CommunicatorError(
            f"comm={shown(comm)} is not a communicator: give one of mpi4py, as MPI.COMM_WORLD, "
            "or None for this process alone"
        )
    if comm != mpi.COMM_SELF:
        launch.check_world()
    known = comm.Get_attr(_key())
    if known is None:
        known = Mpi(comm)
        comm.Set_attr(_key(), known)
    result: Communicator = known
    return result


@cache
def _key() -> int:
    """Key of the MPI attribute that caches the `Mpi` of a communicator."""
    return int(launch.mpi().Comm.Create_keyval())


@cache
def warn_of_copies() -> None:
    """Warn once if a launcher started several processes, and this one has used no communicator.

    Then each process solves the whole problem, and all write the same files.
    """
    count, name = launched()
    if count > 1 and first_of_launcher() and not _key.cache_info().currsize:
        warnings.warn(
            f"a launcher started {count} processes ({name}), but the mesh is not distributed: each "
            "process solves the whole problem, and they write the same files. Give the mesh "
            "comm=MPI.COMM_WORLD (of mpi4py), or comm=MPI.COMM_SELF if each has its own problem",
            stacklevel=5,
        )


def world() -> Communicator:
    """Return the communicator of all processes of the launcher, or of this process alone.

    Raises
    ------
    MissingExtraError
        A launcher started several processes, and mpi4py or a library of MPI is missing.
    CommunicatorError
        A launcher of another MPI started the processes, so that each process is alone.
    """
    if launched()[0] == 1:
        return Serial()
    return communicator(launch.mpi().COMM_WORLD)


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
