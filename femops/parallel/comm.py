"""Communicators: the exchange of data between ranks."""

from __future__ import annotations

import io
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import CommunicatorError
from femops.launchers import launched
from femops.parallel import launch
from femops.parallel.channels import NEW, Kind, Memory, MpiChannel, SilentChannel, Sizes
from femops.parallel.cores import Node
from femops_kernels.channel import Channel
from femops_kernels.codegen.notice import NOTICE
from femops_meshes.arguments import shown

Array = NDArray[Any]
Value = TypeVar("Value", int, float, NDArray[Any])


class Communicator(ABC):
    """A group of ranks, numbered from 0, that run the same program.

    All methods are *collective*: all ranks call them, in the same order. If a rank does not call,
    the others wait forever. `check` raises an error of one rank on all ranks.

    Parameters
    ----------
    rank : int
        This rank's number.
    size : int
        Number of ranks.
    node : Node
        The node that this rank runs on, and its share of the cores.
    """

    def __init__(self, rank: int, size: int, node: Node) -> None:
        self.rank = rank
        self.size = size
        self.node = node

    @abstractmethod
    def exchange(self, messages: Mapping[int, Array]) -> dict[int, Array]:
        """Send arrays to some ranks, and receive the arrays that other ranks send to this one.

        Receivers need not know who will send to them, nor how much.

        Parameters
        ----------
        messages
            The array for each rank; this rank may be among them. Any shapes, of numbers.

        Returns
        -------
        dict
            New arrays of the same shapes and types, by the rank that sent them, ascending.

        Raises
        ------
        CommunicatorError
            There is no such rank, or a message is no array of numbers.
        """

    @abstractmethod
    def channel(self, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW) -> Channel:
        """Make a channel for messages of fixed size, sent again and again.

        Parameters
        ----------
        send, receive
            {rank: numbers for it, or from it}; the two ends of a message agree on its size.
        dtype
            Type of the numbers.
        memory
            Flat arrays to send from and to receive into; new ones if omitted.
        """

    @abstractmethod
    def gather_all(self, array: Array, *, alike: bool = False) -> Array:
        """Give all ranks the arrays of all ranks.

        Parameters
        ----------
        array
            Shape and type are the same on all ranks.
        alike
            Whether shape and type are known to be the same. They are not checked then, which saves
            a message.

        Returns
        -------
        array, shape (size, ...)
            The array of each rank.

        Raises
        ------
        CommunicatorError
            On all ranks if shapes or types differ; on one if the array is not of numbers.
        """

    @abstractmethod
    def sum(self, value: Value) -> Value:
        """The sum over all ranks of a Python number, or of arrays of one shape and type."""

    @abstractmethod
    def max(self, value: Value) -> Value:
        """The maximum over all ranks of a Python number, or of arrays of one shape and type."""

    @abstractmethod
    def broadcast(self, value: Any, root: int = 0) -> Any:
        """Return the object of rank `root` on all ranks; the objects of others are ignored."""

    @abstractmethod
    def barrier(self, nap: float | None = None) -> None:
        """Wait until all ranks have called this.

        With ``nap`` the rank sleeps so many seconds between checks, so that others get the core.
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


@final
class Serial(Communicator):
    """The communicator of a single rank. It needs no MPI."""

    def __init__(self) -> None:
        super().__init__(0, 1, Node.alone())

    def exchange(self, messages: Mapping[int, Array]) -> dict[int, Array]:
        """See `Communicator.exchange`."""
        self._checked(messages)
        return {int(target): array.copy() for target, array in messages.items()}

    def channel(self, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW) -> Channel:
        """See `Communicator.channel`; one process sends nothing."""
        return SilentChannel(send, receive, dtype, memory)

    def gather_all(self, array: Array, *, alike: bool = False) -> Array:  # noqa: ARG002  (there is only one)
        """See `Communicator.gather_all`."""
        _check_array(array)
        return array[np.newaxis].copy()

    def sum(self, value: Value) -> Value:
        """See `Communicator.sum`."""
        return _copy(value)

    def max(self, value: Value) -> Value:
        """See `Communicator.max`."""
        return _copy(value)

    def broadcast(self, value: Any, root: int = 0) -> Any:  # noqa: ARG002  (there is only one)
        """See `Communicator.broadcast`."""
        return value

    def barrier(self, nap: float | None = None) -> None:
        """See `Communicator.barrier`."""

    def __repr__(self) -> str:
        return "Serial()"


def _copy(value: Value) -> Value:
    return value.copy() if isinstance(value, np.ndarray) else value


@final
class Mpi(Communicator):
    """The ranks of an mpi4py communicator.

    The communicator is duplicated, so messages never mix with the user's own. Once an `Mpi` exists,
    an uncaught exception on one rank ends all ranks. Ranks that share the cores of a node take no
    more threads than their share, unless ``FEMOPS_THREADS`` or a call says how many.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        All its ranks make an `Mpi` of it.

    Attributes
    ----------
    raw : mpi4py.MPI.Intracomm
        The duplicate.
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
        sparse data exchange", PPoPP 2010. When all messages of a rank have arrived, it enters a
        barrier, and goes on receiving until all ranks have entered. Two tags alternate, because a
        rank may begin the next exchange, but not the one after, before others see that the barrier
        is complete.
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
        """See `Communicator.channel`."""
        return MpiChannel(self.raw, send, receive, dtype, memory)

    def gather_all(self, array: Array, *, alike: bool = False) -> Array:
        """See `Communicator.gather_all`."""
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
        """See `Communicator.sum`."""
        result: Value = self._reduced(value, launch.mpi().SUM)
        return result

    def max(self, value: Value) -> Value:
        """See `Communicator.max`."""
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
        """See `Communicator.broadcast`."""
        return self.raw.bcast(value, root)

    def barrier(self, nap: float | None = None) -> None:
        """See `Communicator.barrier`."""
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
    """Array as bytes in NumPy's file format, with shape and type, which receivers do not know."""
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
        Each mpi4py communicator is duplicated once, the first time. None is this process alone.

    Raises
    ------
    CommunicatorError
        ``comm`` is no communicator, or one of no ranks or between two groups; or a launcher started
        several processes that are each alone in ``COMM_WORLD``.
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
    """Key under which a communicator keeps its `Mpi`."""
    return int(launch.mpi().Comm.Create_keyval())


def world() -> Communicator:
    """Return the communicator of all processes that a launcher started, or of this one alone.

    Raises
    ------
    MissingExtraError
        A launcher started several processes, and mpi4py or a library of MPI is missing.
    CommunicatorError
        A launcher of another MPI started the processes, so that each is alone.
    """
    if launched()[0] == 1:
        return Serial()
    return communicator(launch.mpi().COMM_WORLD)
