"""Map between the dofs of a space and the dofs of its elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from inspect import isfunction
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from femops.errors import OperatorError, SpaceError, VectorError
from femops.geometry.domain import element_blocks
from femops.numbering import distinct, first_positions
from femops_common.arguments import array_of, check_memory, checked, refusal, refuse_masked, shown
from femops_kernels.cpu.in_order import in_order
from femops_meshes.coordinates.hanging import HangingNodes

Ints = NDArray[np.int64]
Vector = NDArray[Any]
"""An array of float32 or float64."""

Chosen = Ints | slice
"""Numbers (n,) of elements, or a range of them."""

EVERY = slice(None)

FLOAT_TYPES = (np.dtype(np.float32), np.dtype(np.float64))


def check_float_array(array: object, what: str) -> Vector:
    """Return `array` if it is a NumPy array of float32 or float64, else raise `VectorError`."""
    refuse_unreadable(array, what)
    if not isinstance(array, np.ndarray):
        cure = _instead_of(array, what) or "a NumPy array of float64 or float32"
        raise VectorError(refusal(what, array, cure))
    if array.dtype not in FLOAT_TYPES:
        cure = type_cure(array.dtype, "numpy.float64", what)
        raise VectorError(
            f"{what} has type {array.dtype}: femops computes in float64 and float32, {cure}"
        )
    return array


def type_cure(dtype: np.dtype[Any], wanted: Any, what: str) -> str:
    """Advice about an array where numbers of another type are needed."""
    if dtype.kind == "c" and "float" in str(wanted):  # a conversion drops the imaginary part
        return f"give real and imaginary part one by one, {what}.real and {what}.imag"
    return f"convert it by .astype({wanted})"


def host_array(values: object, what: str) -> NDArray[Any]:
    """Convert values to a NumPy array, or raise `VectorError`."""
    if type(values) is np.ndarray and values.dtype.kind in "iufcO":  # arrays of numbers are usual
        return values
    refuse_unreadable(values, what)
    try:
        found = array_of(values, what, VectorError)
    except VectorError:
        if not _instead_of(values, what):
            raise
        found = np.array(None)
    if found.dtype == object and (cure := _instead_of(values, what)):
        raise VectorError(refusal(what, values, cure))
    return found


def _instead_of(value: object, what: str) -> str:
    """Advice for a function, field, sparse matrix or tensor in place of an array, else ""."""
    if isfunction(value):
        return f"femops.load(V, {what})" if what == "b" else f"V.interpolate({what})"
    library = type(value).__module__.partition(".")[0]
    if library in ("jax", "jaxlib"):
        return f"numpy.asarray({what}), or call functions of femops.jax, which JAX differentiates"
    if library == "torch":
        return f"{what}.numpy(), or call functions of femops.torch, which PyTorch differentiates"
    if hasattr(value, "toarray"):
        return f"{what}.toarray(), or multiply matrices: A.assemble() is one"
    return f"{what}.vector" if hasattr(value, "vector") else ""


def refuse_unreadable(array: object, what: str) -> None:
    """Raise `VectorError` if an array is on a GPU, or has masked entries."""
    if type(array) is np.ndarray:  # the checks below cost time of a small product
        return
    if hasattr(array, "__cuda_array_interface__"):
        raise VectorError(f"{what} is on a GPU: this is done on the host, give {what}.get()")
    refuse_masked(array, what, VectorError)


def positions(dofs: ArrayLike, size: int) -> NDArray[np.int64]:
    """Convert a user's flat positions to an ascending int64 array (k,) without duplicates."""
    refuse_unreadable(dofs, "dofs")
    given = array_of(dofs, "dofs", OperatorError)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        cure = "give a list of whole numbers, as V.boundary_dofs() does"
        if given.dtype.kind == "U":
            cure = f"give the dofs of a part of the boundary, V.boundary_dofs({given.tolist()!r})"
        if given.dtype == bool:
            cure = "give the positions where they are True, as np.flatnonzero(dofs)"
        raise OperatorError(f"dofs have shape {given.shape} and type {given.dtype}: {cure}")
    if given.size and (given.min() < 0 or given.max() >= size):
        raise OperatorError(
            f"dofs run from {given.min()} to {given.max()}: the vector has {size} entries"
        )
    return distinct(given.astype(np.int64))


def check_size(ne: int, order: int, dim: int, ncomp: int) -> None:
    """Check that the element dofs and a vector fit into memory."""
    needed = 8 * (ne * (order + 1) ** dim + ncomp * (1 + ne * max(order - 1, 0) ** dim))
    what = f"a space of order {order} with {shown(ncomp)} component(s) on {ne} elements"
    check_memory(needed, what, "lower the order, or take fewer elements or components", SpaceError)


@final
@checked(SpaceError)
class ElementRestriction:
    """Gathers the dofs of each element from a vector. The transpose adds them back.

    Parameters
    ----------
    indices : (ne, n) integers
        Dof at each local node of each element. Stored as int64, C-contiguous, read-only.
    ndofs : int
        Number of dofs. All indices satisfy 0 <= i < ndofs.
    owned : int, optional
        Number of dofs that this rank owns; by default all. Owned dofs come first, then ghosts.
    flipped : (ne, n) bool, optional
        Where an element's dof is minus the dof. The first element that touches a dof has it as it
        is.
    hanging : HangingNodes, optional
        Nodes of elements whose values are interpolated from the dofs in their places.
    first : int, optional
        First of the dofs that these elements touch first, where elements of another restriction
        touch other dofs. They may touch some of the dofs before it.

    Raises
    ------
    SpaceError
        If the indices are not a table of whole numbers in this range, or flags do not fit them.
    """

    def __init__(
        self,
        indices: ArrayLike,
        ndofs: int,
        owned: int | None = None,
        flipped: NDArray[np.bool_] | None = None,
        hanging: HangingNodes | None = None,
        first: int | None = None,
    ) -> None:
        self.hanging = hanging
        table = array_of(indices, "indices", SpaceError)
        if table.ndim != 2 or table.dtype.kind not in "iu":
            raise SpaceError(
                f"indices have shape {table.shape} and type {table.dtype}: give whole numbers "
                "of shape (elements, nodes of an element)"
            )
        table = np.ascontiguousarray(table, dtype=np.int64)
        least, most = _range(table)
        if least < 0 or most >= ndofs:
            raise SpaceError(
                f"indices run from {least} to {most}: with {ndofs} dofs they must "
                f"lie in 0 to {ndofs - 1}"
            )
        if table.flags.writeable and np.may_share_memory(table, np.asarray(indices)):
            table = table.copy()  # the caller may write into its array later
        self.indices: Ints = table
        self.indices.setflags(write=False)
        self.ndofs, self.first = int(ndofs), first
        self.owned = self.ndofs if owned is None else int(owned)
        self.flipped = None if flipped is None else array_of(flipped, "flipped", SpaceError)
        if self.flipped is not None:
            dofs, at = np.unique(table, return_index=True)
            fits = self.flipped.shape == table.shape
            if not fits or self.flipped.reshape(-1)[at[dofs < self.owned]].any():
                raise SpaceError(
                    f"flipped of shape {self.flipped.shape} does not fit indices {table.shape}: "
                    "give each a flag, False where an element is the first with a dof"
                )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (entries of an e_vec, ndofs) of the restriction's matrix for one component."""
        return self.indices.size, self.ndofs

    @property
    def num_nodes(self) -> int:
        """Number of nodes of an element."""
        return int(self.indices.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the table of dofs."""
        return int(self.indices.nbytes)

    def gather(self, l_vec: Vector) -> Vector:
        """Gather the e_vec of an l_vec, see `Space.l_vec`: (ndofs[, ncomp]) -> (ne, n[, ncomp]).

        Raises
        ------
        VectorError
            If the length is not `ndofs`, or the type is not float32 or float64.
        """
        l_vec = check_float_array(l_vec, "l_vec")
        if l_vec.ndim == 0 or l_vec.shape[0] != self.ndofs:
            raise VectorError(
                f"l_vec has shape {l_vec.shape}, the restriction {self.ndofs} dofs: give shape "
                f"({self.ndofs},) or ({self.ndofs}, ncomp), as V.l_vec(u) is"
            )
        return self.at_nodes(np.asarray(l_vec[self.indices]))

    def at_nodes(self, e_vec: NDArray[Any], elements: Chosen = EVERY) -> NDArray[Any]:
        """Values (n, nodes[, ...]) at the nodes of some elements, from the dofs in their places."""
        e_vec = self.with_signs(e_vec, elements)
        return e_vec if self.hanging is None else self.hanging.interpolated(e_vec, elements)

    def at_dofs(self, e_vec: NDArray[Any], elements: Chosen = EVERY) -> NDArray[Any]:
        """Transpose of `at_nodes`."""
        if self.hanging is not None:
            e_vec = self.hanging.transposed(e_vec, elements)
        return self.with_signs(e_vec, elements)

    @cached_property
    def free(self) -> NDArray[np.bool_] | None:
        """False (ne, n) where a node has no dof of its own; None if all have one."""
        return None if self.hanging is None else self.hanging.free()

    def with_signs(self, e_vec: NDArray[Any], *places: Any) -> NDArray[Any]:
        """Multiply element values (n, k[, ...]) at the places of `entries` by their signs."""
        if self.flipped is None:
            return e_vec
        flipped = _at(self.flipped, *places).reshape(e_vec.shape[:2] + (1,) * (e_vec.ndim - 2))
        return np.where(flipped, -e_vec, e_vec)

    def entries(
        self, table: NDArray[Any], elements: Chosen = EVERY, nodes: Ints | None = None
    ) -> NDArray[Any]:
        """Entries (n, k[, ...]) of a table (ndofs[, ...]) of any type at the nodes of elements.

        The table has facts about dofs, which have no signs in an element. For values see `of`.

        Shapes: `nodes` (n, k), numbers of nodes of each element; by default all of them.
        """
        return np.asarray(table[_at(self.indices, elements, nodes)])

    def of(self, l_vec: NDArray[Any]) -> Callable[..., NDArray[np.float64]]:
        """Function that gathers an l_vec, in float64, at those nodes that `entries` takes."""

        def values(elements: Chosen = EVERY, nodes: Ints | None = None) -> NDArray[np.float64]:
            if self.hanging is not None and nodes is not None:
                every = values(elements)
                return np.asarray(every[np.arange(len(every))[:, np.newaxis], nodes])
            found = self.entries(l_vec, elements, nodes).astype(np.float64, copy=False)
            if nodes is not None:
                return self.with_signs(found, elements, nodes)
            return self.at_nodes(found, elements)

        return values

    def assigned(self, e_vec: NDArray[Any]) -> NDArray[Any]:
        """Table (ndofs[, ...]) of facts (ne, n[, ...]) that agree at shared dofs."""
        table = np.zeros((self.ndofs, *e_vec.shape[2:]), e_vec.dtype)
        some = EVERY if self.free is None else self.free
        table[self.indices[some]] = e_vec[some]
        return table

    def marked(self, flags: NDArray[np.bool_], elements: Chosen = EVERY) -> NDArray[np.bool_]:
        """Flags (ndofs[, ...]), true where flags (n, nodes[, ...]) of an element are true."""
        table = np.zeros((self.ndofs, *flags.shape[2:]), dtype=np.bool_)
        np.logical_or.at(table, self.indices[elements], flags)
        return table

    def scatter_add(self, e_vec: Vector) -> Vector:
        """Sum element values into an l_vec: (ne, n[, ncomp]) -> (ndofs[, ncomp]).

        Each dof gets the sum over the elements that share it. This is the transpose of `gather`.
        Sums are formed in float64 and returned in the type of `e_vec`.

        Raises
        ------
        VectorError
            If the leading shape is not (ne, n), or the type is not float32 or float64.
        """
        return self.summed(e_vec, signs=True)

    def summed(self, e_vec: Vector, *, signs: bool) -> Vector:
        """Sum element values as `scatter_add`, with or without signs; see `sum_blocks`."""
        e_vec = check_float_array(e_vec, "e_vec")
        if e_vec.shape[:2] != self.indices.shape:
            ne, n = self.indices.shape
            raise VectorError(
                f"e_vec has shape {e_vec.shape}: this restriction takes ({ne}, {n}) or "
                f"({ne}, {n}, ncomp)"
            )
        total = self.sum_blocks([(0, e_vec)], e_vec.shape[2:], signs=signs)
        return total.astype(e_vec.dtype, copy=False)

    def sum_blocks(
        self,
        blocks: Iterable[tuple[int, Vector]],
        shape: tuple[int, ...],
        *,
        signs: bool = True,
    ) -> Vector:
        """Sum element values into an l_vec (ndofs, *shape) of float64, as `scatter_add`.

        Parameters
        ----------
        blocks : iterable of (int, (k, n, *shape) array)
            First element of each block, and the values in its elements, by ascending elements.
        shape : tuple of int
            () for one component, or (ncomp,).
        signs : bool
            False for entries of a diagonal, which have no signs and belong to the dofs in the
            places of hanging nodes.
        """
        sums = np.zeros((math.prod(shape), self.ndofs))
        for start, values in blocks:
            some = slice(start, start + len(values))
            flat = self.indices[some].reshape(-1)
            if signs:
                values = self.at_dofs(values, some)  # noqa: PLW2901
            for total, column in zip(sums, values.reshape(flat.size, len(sums)).T, strict=True):
                np.add.at(total, flat, column.astype(np.float64, copy=False))
        return np.ascontiguousarray(sums.T).reshape(self.ndofs, *shape)

    def shares(self, dtype: DTypeLike) -> Vector:
        """Inverse (ndofs,) of `multiplicity`, in any type."""
        count = np.zeros(self.ndofs, dtype)
        np.add.at(count, self._own_nodes, count.dtype.type(1))
        np.divide(1, count, out=count)
        return count

    def multiplicity(self) -> Ints:
        """Number (ndofs,) of element nodes at each dof.

        It is the diagonal of the transposed restriction times the restriction.
        """
        return np.bincount(self._own_nodes, minlength=self.ndofs)

    @property
    def _own_nodes(self) -> Ints:
        """Dofs of all nodes that have one of their own, flat, element by element."""
        return np.asarray(self.indices.ravel() if self.free is None else self.indices[self.free])

    @cached_property
    def owner(self) -> Ints:
        """First position (ndofs,) of each dof in an e_vec: element * n + local node.

        It is -1 for a dof that no node of the elements has.
        """
        if self.free is None and self.first is None:
            return _frozen(first_positions(self._own_nodes, self.ndofs))
        found = np.full(self.ndofs, -1, dtype=np.int64)
        every = np.ones(self.indices.shape, dtype=np.bool_)
        places = np.flatnonzero(every if self.free is None else self.free)
        found[self._own_nodes[::-1]] = places[::-1]
        return _frozen(found)

    def owned_by(self, start: int, stop: int, *, ghosts: bool = False) -> Ints | slice:
        """Dofs (k,), or ghosts too, whose `owner` lies in elements from `start` up to `stop`."""
        if self.hanging is None and not ghosts:
            return slice(int(self.first_touch[start]), int(self.first_touch[stop]))
        order, n = self._by_owner, self.num_nodes
        ends = np.searchsorted(self.owner[order], [start * n, stop * n])
        return order[slice(*ends)]

    @cached_property
    def _by_owner(self) -> Ints:
        """Dofs, ghosts too, in the order of their owners."""
        return np.argsort(self.owner, kind="stable")

    @cached_property
    def first_touch(self) -> Ints:
        """Ranges (ne + 1,) of the dofs that each element touches first.

        Element e touches first the dofs first_touch[e] to first_touch[e + 1] - 1. Owned dofs must
        be numbered by first touch, as they are in every space.
        """

        def highest(ends: tuple[int, int]) -> Ints:
            part = self.indices[slice(*ends)]
            if self.owned < self.ndofs:
                part = np.where(part < self.owned, part, -1)
            return np.asarray(part.max(axis=1))

        each = [*in_order(highest, element_blocks(*self.indices.shape))]
        before = np.array([(self.first or 0) - 1])
        return _frozen(np.maximum.accumulate(np.concatenate([before, *each])) + 1)

    def __repr__(self) -> str:
        ne, n = self.indices.shape
        return f"ElementRestriction({ne} elements of {n} nodes, {self.ndofs} dofs)"


def _at(of: NDArray[Any], elements: Chosen = EVERY, nodes: Ints | None = None) -> NDArray[Any]:
    """Entries (n, k) of a table (ne, n) at the nodes of elements; see `entries`."""
    if nodes is None:
        return np.asarray(of[elements])
    chosen = np.arange(len(of))[elements]
    return np.asarray(of[chosen[:, np.newaxis], nodes])


def _range(table: Ints) -> tuple[int, int]:
    """Smallest and largest number of a table (ne, n); (0, -1) of an empty one."""

    def ends(rows: tuple[int, int]) -> tuple[int, int]:
        part = table[slice(*rows)]
        return int(part.min(initial=0)), int(part.max(initial=-1))

    found = [*in_order(ends, element_blocks(*table.shape))]
    return min((a for a, _ in found), default=0), max((b for _, b in found), default=-1)


def _frozen(array: Ints) -> Ints:
    array.setflags(write=False)
    return array
