"""Checkpoints, from which a program can continue on any number of ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import CheckpointError, FemopsError, FileError
from femops.io.atomic import checked_path, refused, replacing, to_disk
from femops.io.checkpoint.state_checks import (
    check_same_facts,
    check_space,
    checked_names,
    checked_values,
    checked_vectors,
    ranks,
)
from femops.io.checkpoint.state_file import (
    Contents,
    Field,
    StateReader,
    Sums,
    block_rows,
    write_rows,
)
from femops.numbering import touch_order
from femops.parallel.collective_checks import check
from femops.parallel.comm import Communicator
from femops.parallel.mesh import checksum
from femops.parallel.serial_order import SerialOrder, moved
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1
from femops.spaces.restriction import Vector
from femops_kernels.derived import Derived
from femops_meshes import Mesh
from femops_meshes.arguments import checked

Ints = NDArray[np.int64]

SUFFIX = ".state"

_CHECKSUMS = Derived[Mesh, int]()
"""Checksums of meshes that are not distributed: programs save many states on one mesh."""

_ORDERS = Derived[Space, SerialOrder]()
"""Orders of the dofs of spaces that ranks share."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class State:
    """Contents of a checkpoint, as `load_state` returns them.

    Attributes
    ----------
    vectors : dict of (size,) arrays
        Vectors of the spaces, by name. They have the type in which they were saved.
    values : dict
        Numbers, texts, lists and dicts that were saved with the vectors.
    """

    vectors: dict[str, Vector]
    values: dict[str, Any]

    def __repr__(self) -> str:
        return f"State(vectors {', '.join(self.vectors) or 'none'}; values {self.values})"


@checked(CheckpointError)
def save_state(
    path: str | os.PathLike[str],
    vectors: Mapping[str, tuple[Space, Any]],
    values: Mapping[str, Any] | None = None,
) -> Path:
    """Write vectors and values into one file that any number of ranks can load. Collective.

    The file appears under its name only when it is complete and on the disk. So if the program
    stops, either the old or the new checkpoint exists. The bits of the file do not depend on the
    number of ranks or the partition. Each rank writes its share, so all ranks must see the folder.

    Parameters
    ----------
    path : path ending in .state
        Path of the file, the same on all ranks.
    vectors : mapping
        {name: (space, vector)}, at least one. Vectors are (space.size,), real or complex. Spaces
        are `H1` or `L2`, on meshes of the same ranks.
    values : mapping, optional
        {name: value}, the same on all ranks. Values are numbers, texts, True, False, None, and
        lists and dicts of these. NumPy numbers become Python numbers, and tuples become lists.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    CheckpointError
        There are no vectors, a name is no text, a value has an unsupported type, or arguments
        differ between ranks.
    FileError
        The file cannot be written, or does not end in .state.
    SpaceError
        An object is no H1 or L2 space, or a space is on a mesh of other ranks.
    VectorError
        A vector does not fit its space.
    RankError
        Another rank failed. After any error the file is the old or the complete new file.

    Examples
    --------
    >>> import femops, tempfile
    >>> V = femops.H1(femops.box((4, 4)), order=3)
    >>> u = V.interpolate(lambda x: x[0])
    >>> file = femops.io.save_state(tempfile.mkdtemp() + "/run.state", {"u": (V, u)}, {"time": 0.5})
    >>> state = femops.io.load_state(file, {"u": V})
    >>> bool((state.vectors["u"] == u).all()), state.values
    (True, {'time': 0.5})
    """
    comm = ranks(vectors)
    with check(comm):
        target = checked_path(path, SUFFIX)
        given = checked_vectors(vectors, comm)
        plain = checked_values({} if values is None else values)
    fields = {name: _field(V, u.dtype) for name, (V, u) in given.items()}
    facts = {f"vector {name!r}": field for name, field in fields.items()}
    texts = {f"value {key!r}": json.dumps(v, sort_keys=True) for key, v in sorted(plain.items())}
    check_same_facts(comm, target, {**facts, **texts})
    contents = Contents.of(fields, plain)
    with ExitStack() as stack:
        file = _new_file(stack, target, contents.size, comm)
        sums = [
            _write(file, target, contents, name, space, vector)
            for name, (space, vector) in given.items()
        ]
        with check(comm), refused(target):
            _flush(file)
            if comm.rank > 0:
                file.close()
        with check(comm), refused(target):
            if comm.rank == 0:
                file.seek(0)
                file.write(contents.head(sums))
                _flush(file)
            stack.close()
            if comm.rank == 0:
                to_disk(target.parent)
    return target


@checked(CheckpointError)
def load_state(path: str | os.PathLike[str], spaces: Mapping[str, Space] | None = None) -> State:
    """Read vectors and values from a file of `save_state`. Collective.

    The number of ranks and the partition may differ from those of `save_state`. Checksums in the
    file verify all data that are read.

    Parameters
    ----------
    path : path
        Path of the file, the same on all ranks.
    spaces : mapping, optional
        {name: space} of the vectors to read, which may be some of the vectors in the file. Each
        space must have the kind, order, family, number of components and mesh with which the vector
        was saved. By default only the values are read, by each rank separately.

    Returns
    -------
    State

    Raises
    ------
    CheckpointError
        The file is no checkpoint, is damaged or incomplete, or does not have a vector. A space
        differs from the space of the saved vector. Arguments differ between ranks.
    FileError
        The file cannot be read.
    SpaceError
        An object is no H1 or L2 space, or a space is on a mesh of other ranks.
    RankError
        Another rank failed.
    """
    wanted: Mapping[str, Space] = {} if spaces is None else spaces
    comm = ranks(wanted)
    with check(comm):
        source = Path(os.fspath(path))
        names = checked_names(wanted, "spaces")
        for name in names:
            check_space(wanted[name], name, comm)
    check_same_facts(comm, source, {f"vector {name!r}": True for name in names})
    with ExitStack() as stack:
        with check(comm), _reading(source):
            file = stack.enter_context(source.open("rb"))
            reader = StateReader(file, source)
        check_same_facts(comm, source, {"the file's checksum": reader.checksum})
        with check(comm):
            for name in names:
                _check_fits(reader.contents, name, wanted[name], source)
        vectors = {name: _read(reader, name, wanted[name], source) for name in names}
    return State(vectors, dict(reader.contents.values))


# --- what is written ------------------------------------------------------------------------------


def _field(space: Space, dtype: np.dtype[Any]) -> Field:
    """Description of a vector for the file."""
    mesh = space.distributed or space.mesh
    return Field(
        type(space).__name__,
        space.order,
        space.ncomp,
        space.basis.family,
        dtype.newbyteorder("<").str,
        space.global_ndofs,
        mesh.num_elements,
        f"{_checksum(space):016x}",
        block_rows(space.ncomp, dtype),
    )


def _checksum(space: Space) -> int:
    """Checksum of the global mesh."""
    if space.distributed is not None:
        return space.distributed.checksum
    mesh = space.mesh

    def make() -> int:
        return checksum(mesh, np.arange(mesh.num_elements), np.arange(mesh.num_vertices))

    return _CHECKSUMS.get(mesh, make)


def _order(space: Space) -> SerialOrder:
    """Serial order of the dofs of a space that ranks share."""

    def make() -> SerialOrder:
        assert space.numbering is not None
        assert space.distributed is not None
        nodes = np.arange(space.p1d**space.dim)
        if isinstance(space, H1):
            nodes = touch_order(space.dim, space.order)
        return SerialOrder(space.numbering, nodes, space.distributed.part, space.halo, space.comm)

    return _ORDERS.get(space, make)


def _whole_blocks(cuts: Ints, rows: int) -> Ints:
    """Round cuts up to multiples of ``rows``, so that no block is split between ranks."""
    return np.asarray(np.minimum(-(-cuts // rows) * rows, cuts[-1]))


def _new_file(stack: ExitStack, target: Path, size: int, comm: Communicator) -> BinaryIO:
    """Open a new file on all ranks, which is renamed to `target` when rank 0 closes the stack."""
    made = None
    with check(comm), refused(target):
        if comm.rank == 0:
            made = stack.enter_context(replacing(target)).absolute()
            os.truncate(made, size)
    temporary: Path = comm.broadcast(made)
    with check(comm):
        try:
            return stack.enter_context(temporary.open("r+b"))
        except OSError as error:
            raise FileError(
                f"rank {comm.rank} cannot open '{temporary}', which rank 0 has made "
                f"({error.strerror}): choose a folder that all ranks share"
            ) from error


def _write(
    file: BinaryIO, target: Path, contents: Contents, name: str, space: Space, vector: Vector
) -> Sums:
    """Write this rank's share of a vector. Rank 0 returns the checksums of all blocks."""
    comm, rows, cuts = space.comm, space.components(vector), np.array([0, space.ndofs])
    if comm.size > 1:
        order = _order(space)
        cuts = _whole_blocks(order.cuts, contents.fields[name].rows)
        rows = moved(order.forward(_as_real(rows)), order.cuts, cuts, comm).view(rows.dtype)
    with check(comm), refused(target):
        sums = write_rows(file, contents, name, int(cuts[comm.rank]), rows)
    arrived = comm.exchange({0: sums} if len(sums) else {})
    return np.concatenate([np.empty(0, dtype=np.uint32), *arrived.values()])


def _as_real(rows: NDArray[Any]) -> NDArray[Any]:
    """View complex rows (n, ncomp) as real ones (n, 2 ncomp), which ranks exchange."""
    return np.ascontiguousarray(rows).view(rows.real.dtype)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


# --- what is read ---------------------------------------------------------------------------------


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Convert an error of the system inside the block to a FileError."""
    try:
        yield
    except FemopsError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"cannot read '{path}': {reason}; is this its name?") from error


def _check_fits(contents: Contents, name: str, space: Space, path: Path) -> None:
    """Raise if a vector in the file does not fit a space."""
    if name not in contents.fields:
        has = ", ".join(map(repr, contents.fields))
        raise CheckpointError(f"'{path}' has no vector {name!r}: it has {has}")
    saved = contents.fields[name]
    asked = _field(space, np.dtype(saved.dtype))
    if asked.kind != saved.kind:
        raise CheckpointError(
            f"{name!r} in '{path}' is a vector of {saved.kind}, the space given is {asked.kind}: "
            "load it into the same, and interpolate from there"
        )
    if asked != saved:
        raise CheckpointError(
            f"{name!r} in '{path}' is on another mesh, of {saved.elements} elements with the "
            f"checksum {saved.mesh}; the one given has {asked.elements}, and {asked.mesh}: make "
            "the mesh as when it was saved (files, order of elements, refinement, mapping)"
        )


def _read(reader: StateReader, name: str, space: Space, path: Path) -> Vector:
    """Read the vector's entries (size,) that this rank owns."""
    comm, cuts = space.comm, np.array([0, space.ndofs])
    order = _order(space) if comm.size > 1 else None
    if order is not None:
        cuts = _whole_blocks(order.cuts, reader.contents.fields[name].rows)
    first, end = int(cuts[comm.rank]), int(cuts[comm.rank + 1])
    with check(comm), _reading(path):
        rows = reader.rows(name, first, end - first)
    if order is not None:
        rows = order.backward(moved(_as_real(rows), cuts, order.cuts, comm)).view(rows.dtype)
    return rows.reshape(-1)
