"""Contractions written with indices, which may have ranges: ``C[i, j, m] -= A[i, k, m] * B[k, j]``.

An expression is a sum of products. The assignment computes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Number
from string import ascii_letters
from typing import Any, final

from femops.errors import TensorError
from femops.tensor.calls import found, remember
from femops.tensor.lowering import Term, sizes_of
from femops.tensor.pairs import contract
from femops.tensor.places import View, check_devices
from femops_common.arguments import checked, shown

_MOST = 64  # most cached parts of a tensor


@final
@checked(TensorError)
@dataclass(frozen=True, eq=False)
class Index:
    """Index of tensors, over all values or a range of values.

    A contraction sums over each index that occurs in a product but not in the result.

    Attributes
    ----------
    name : str
        Name in messages.
    start : int, optional
        First value.
    stop : int, optional
        End of the values, as in `range`. By default the size of the tensors.

    Examples
    --------
    >>> import numpy as np
    >>> import femops
    >>> i, j, k = (femops.tensor.Index(name) for name in "ijk")
    >>> first = femops.tensor.Index("first", 0, 2)
    >>> A = femops.tensor.Batch.wrap(np.ones((100, 3, 3)))
    >>> C = femops.tensor.Batch((3, 3), 100)
    >>> C[i, first] -= A[i, k] * A[k, first]
    >>> C.numpy()[0]
    array([[-3., -3.,  0.],
           [-3., -3.,  0.],
           [-3., -3.,  0.]])
    """

    name: str
    start: int | None = None
    stop: int | None = None

    def __post_init__(self) -> None:
        start, stop = self.start or 0, self.stop
        if start < 0 or (stop is not None and stop < start):
            raise TensorError(
                f"index {self.name} runs from {self.start} to {stop}: give 0 <= start <= stop"
            )

    def slice_of(self, size: int) -> slice:
        """Slice of the index's values in a dimension of a tensor.

        Raises
        ------
        TensorError
            If the range exceeds the size of the dimension.
        """
        if (self.stop or 0) > size or (self.start or 0) > size:
            raise TensorError(
                f"index {self.name} runs from {self.start or 0} to {self.stop}, and the tensor has "
                f"{size} there"
            )
        return slice(self.start, self.stop)


def _part(view: View, parts: tuple[Any, ...]) -> tuple[tuple[Index, ...], View]:
    """Split ``A[parts]`` into its indices and the view of the indexed entries."""
    shape = view.places.shape
    if len(parts) != len(shape):
        raise TensorError(f"{len(parts)} indices for tensors of shape {shape}")
    for size, part in zip(shape, parts, strict=True):
        if not isinstance(part, int | Index) or isinstance(part, bool):
            raise TensorError(
                f"index {shown(part)}: give an Index or a number; an Index has a range"
            )
        if isinstance(part, int) and not -size <= part < size:
            raise TensorError(f"index {shown(part)} of {size}")
    ranges = (
        part.slice_of(size) if isinstance(part, Index) else part
        for size, part in zip(shape, parts, strict=True)
    )
    indices = tuple(part for part in parts if isinstance(part, Index))
    return indices, view.part((slice(None), *ranges))


@final
class Indexed:
    """A tensor with an index for each dimension, ``A[i, k]``, as operand of a contraction."""

    def __init__(self, view: View, parts: tuple[Any, ...]) -> None:
        key = parts, tuple(map(type, parts))
        try:
            known = view.parts.get(key)
        except TypeError:  # a part has no hash; the check below refuses it
            known = None
        if known is None:
            known = _part(view, parts)
            if len(view.parts) >= _MOST:  # a program may make new indices again and again
                view.parts.clear()
            view.parts[key] = known
        self.indices: tuple[Index, ...] = known[0]
        self.view: View = known[1]

    def sum(self) -> Sum:
        """Sum with only this tensor as product."""
        return Sum(((1.0, (self,)),))

    def __mul__(self, other: Any) -> Sum:
        return self.sum().__mul__(other)

    __rmul__ = __mul__

    def __neg__(self) -> Sum:
        return self.sum().times(-1.0)

    def __add__(self, other: Any) -> Sum:
        return self.sum().__add__(other)

    def __sub__(self, other: Any) -> Sum:
        return self.sum().__sub__(other)

    def __iadd__(self, other: Any) -> Update:
        return Update(self, as_sum(other))

    def __isub__(self, other: Any) -> Update:
        return Update(self, as_sum(other).times(-1.0))

    def become(self, value: Any) -> None:
        """Set the entries to the value of an expression, or add an `Update` of the same entries."""
        if isinstance(value, Update):
            if not self._same_as(value.target):
                raise TensorError(
                    "+= or -= gave a value for other entries: write C[i, j] += A[i, k] * B[k, j]"
                )
            self._set(value.added, 1.0)
        else:
            self._set(as_sum(value), 0.0)

    def _same_as(self, other: Indexed) -> bool:
        mine, theirs = self.view, other.view
        alike = mine.array is theirs.array and mine.layout == theirs.layout
        return alike and self.indices == other.indices

    def _set(self, value: Sum, beta: float) -> None:
        (factor, many), *others = value.products
        if others or len(many) != 2:
            self._contract(value, beta)
            return
        three = *many, self
        arrays = many[0].view.array, many[1].view.array, self.view.array
        key = tuple([(one.view.layout, one.indices) for one in three]), factor, type(factor), beta
        call = found(key)
        if call is None or not call.run(*arrays):
            remember(key, arrays, self._contract(value, beta), (factor, beta))

    def _contract(self, value: Sum, beta: float) -> tuple[Term, ...]:
        """Set the entries to beta times the entries plus all products. Return the last terms."""
        names: dict[Index, str] = {}

        def term(one: Indexed) -> Term:
            letters = (names.setdefault(x, ascii_letters[len(names)]) for x in one.indices)
            return Term(one.view, "".join(letters))

        result = term(self)
        if len(set(self.indices)) < len(self.indices):
            raise TensorError("an index occurs twice in the result: each entry is set once")
        products = [(factor, tuple(map(term, many))) for factor, many in value.products]
        for _, many in products:
            self._check(many, result.letters, names)
            sizes_of(one.named for one in (result, *many))
            check_devices(result.view, *(one.view for one in many))
        result.view.check_writable()
        if any(result.view.overlaps(one.view) for _, many in products for one in many):
            raise TensorError("the output overlaps an operand: copy the operand")
        for factor, many in products:
            contract(result, many, factor, beta)
            beta = 1.0
        return (*products[-1][1], result)

    def _check(self, many: Any, letters: str, names: dict[Index, str]) -> None:
        there = "".join(one.letters for one in many)
        missing = [
            index.name
            for index, letter in names.items()
            if letter in letters and letter not in there
        ]
        if missing:
            raise TensorError(f"index {missing[0]} of the result is in no operand of a product")


@final
class Sum:
    """Sum of products. Each product has a factor, and tensors with indices."""

    def __init__(self, products: tuple[tuple[complex | float, tuple[Indexed, ...]], ...]) -> None:
        self.products = products

    def times(self, factor: Any) -> Sum:
        """Sum with all products multiplied by a number."""
        return Sum(tuple((factor * one, many) for one, many in self.products))

    def __mul__(self, other: Any) -> Sum:
        if isinstance(other, Number):
            return self.times(other)
        second = as_sum(other).products
        return Sum(tuple((x * y, a + b) for x, a in self.products for y, b in second))

    __rmul__ = __mul__

    def __neg__(self) -> Sum:
        return self.times(-1.0)

    def __add__(self, other: Any) -> Sum:
        return Sum(self.products + as_sum(other).products)

    def __sub__(self, other: Any) -> Sum:
        return self.__add__(as_sum(other).times(-1.0))


@final
class Update:
    """Result of ``+=`` and ``-=``: a tensor with indices, and the sum to add to it."""

    def __init__(self, target: Indexed, added: Sum) -> None:
        self.target, self.added = target, added


def as_sum(value: Any) -> Sum:
    """Convert an expression to a `Sum`."""
    if isinstance(value, Indexed):
        return value.sum()
    if isinstance(value, Sum):
        return value
    raise TensorError(
        f"{type(value).__name__} in a contraction: give products of indexed tensors and numbers"
    )
