"""Copies of what an operator was given, and states at which residuals are differentiated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.geometry.domain import DomainBlock, DomainGeometry
from femops.spaces.base import Space
from femops.spaces.neighbours import with_neighbours
from femops.spaces.restriction import ElementRestriction
from femops_meshes.coordinates.mapping import tensor_apply
from femops_meshes.mesh import Mesh


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only copy of an array of any shape.

    A read-only array is copied too, because another view of it may be writeable.
    """
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


@final
@dataclass(frozen=True, eq=False)
class Field:
    """Copy of a finite element function."""

    space: Space
    l_vec: NDArray[Any]  # copy of the dofs with ghosts, see `Space.l_vec`
    # dofs of this rank's elements, and of its ghost elements if the function is needed there
    restriction: ElementRestriction

    @staticmethod
    def of(space: Space, vector: NDArray[Any], *, on_sides: bool = False) -> Field:
        """Copy a vector (size,) of a space. Collective if ranks share dofs.

        For the faces between elements, ``on_sides``, ranks exchange the values on ghost elements.
        """
        if not on_sides or space.mixed:  # ranks do not share meshes of several shapes
            whole = space.restriction if not space.mixed else space.parts[0].restriction
            return Field(space, frozen(space.l_vec(vector)), whole)
        touched, table = with_neighbours(space), space.owned_values(vector)
        ghosts = [] if touched.halo is None else [touched.halo.forward(table)]
        return Field(space, frozen(np.concatenate([table, *ghosts])), touched.restriction)

    def on_part(self, mesh: Mesh) -> Field:
        """The field on a part of a mesh of several shapes."""
        for part in self.space.whole.parts:
            if part.mesh is mesh and part is not self.space:
                return Field(part, self.l_vec, part.restriction)
        return self

    @property
    def vector(self) -> NDArray[Any]:
        """The copied vector (size,), without ghosts."""
        return self.l_vec.reshape(-1)[: self.space.size]

    def at(self, block: DomainBlock) -> NDArray[np.float64]:
        """Values (n, nq[, ncomp]) at the quadrature points of a block of elements."""
        here = self.on_part(block.mesh)
        return block.values(here.space.element, here.restriction.of(self.l_vec))

    def slopes_at(self, block: DomainBlock) -> NDArray[np.float64]:
        """Reference derivatives (n, nq[, ncomp], dim) at the points; see `DomainBlock.slopes`."""
        here = self.on_part(block.mesh)
        return block.slopes(here.space.element, here.restriction.of(self.l_vec))


@final
@dataclass(frozen=True, eq=False)
class Sampled:
    """Values of a coefficient at all quadrature points of a geometry.

    A constant component is stored as one number. Equal opposite components of a matrix share one
    array.
    """

    shape: tuple[int, ...]  # shape of the coefficient at a point
    # components in C order, each of shape (ne, nq), or () for one number
    parts: tuple[NDArray[Any], ...]

    @staticmethod
    def of(
        geometry: DomainGeometry,
        shape: tuple[int, ...],
        blocks: Iterable[tuple[int, NDArray[np.float64]]],
        dtype: DTypeLike,
    ) -> Sampled:
        """Collect the values of all blocks of elements."""
        whole = geometry.num_elements, geometry.num_points
        parts = [_Part(whole, dtype) for _ in range(math.prod(shape))]
        twins = _opposite(shape)
        for start, values in blocks:
            columns = values.reshape(*values.shape[:2], len(parts))
            for k in range(len(parts)):
                column = columns[..., k]
                if k in twins:
                    if _same(column, columns[..., twins[k]]):
                        continue
                    parts[k] = parts[twins.pop(k)].copy()
                parts[k].put(start, column)
        found = [part.found() for part in parts]
        return Sampled(shape, tuple(found[twins.get(k, k)] for k in range(len(parts))))

    def at(self, block: DomainBlock) -> NDArray[np.float64]:
        """Values (n, nq, *shape) at the quadrature points of a block of elements."""
        here = block.stop - block.start, block.geometry.num_points
        columns = [
            np.asarray(part[block.start : block.stop] if part.ndim else part, dtype=np.float64)
            for part in self.parts
        ]
        if not self.shape:
            return np.broadcast_to(columns[0], here)
        values = np.empty((*here, len(columns)))
        for k, column in enumerate(columns):
            values[..., k] = column
        return values.reshape(*here, *self.shape)

    def resampled(self, matrix: NDArray[np.float64], points: int) -> Sampled:
        """Interpolate the values to other points, with the same matrix in each direction.

        Shapes: `matrix` (new, old).
        """
        old = matrix.shape[1]
        dim = round(math.log(points, old)) if old > 1 else 1
        parts = [tensor_apply([matrix] * dim, part) if part.ndim else part for part in self.parts]
        return Sampled(self.shape, tuple(parts))

    def first(self, count: int) -> Sampled:
        """Values in the first ``count`` elements."""
        return Sampled(
            self.shape, tuple(part[:count] if part.ndim else part for part in self.parts)
        )


def between_points(old: NDArray[np.float64], new: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrix (new, old) of piecewise linear interpolation, constant outside the old points.

    Old points must ascend. Interpolated values lie between the old values.
    """
    rows = [np.interp(new, old, unit) for unit in np.eye(len(old))]
    return np.stack(rows, axis=1)


def _opposite(shape: tuple[int, ...]) -> dict[int, int]:
    """Map each component below the diagonal of a square matrix to the opposite component."""
    if len(shape) != 2 or shape[0] != shape[1]:
        return {}
    n = shape[0]
    return {i * n + j: j * n + i for i in range(n) for j in range(i)}


def _same(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    """True if all bits are equal, also the signs of zeros."""
    return bool(np.all(a.view(np.int64) == b.view(np.int64)))


@final
class _Part:
    """Values of one component, collected block by block; one number while all are equal."""

    def __init__(self, shape: tuple[int, int], dtype: DTypeLike) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.number = np.zeros(())
        self.values: NDArray[Any] | None = None

    def put(self, start: int, values: NDArray[np.float64]) -> None:
        if self.values is None:
            if start == 0:
                self.number = values[0, 0].copy()
            if _same(values, self.number):
                return
            self.values = np.empty(self.shape, self.dtype)
            self.values[:start] = self.number
        self.values[start : start + len(values)] = values

    def copy(self) -> _Part:
        twin = _Part(self.shape, self.dtype)
        twin.number = self.number
        twin.values = None if self.values is None else self.values.copy()
        return twin

    def found(self) -> NDArray[Any]:
        found = self.number.astype(self.dtype) if self.values is None else self.values
        found.setflags(write=False)
        return found


Fill = Callable[[Any, Any, np.dtype[Any], int], NDArray[Any] | None]


class State(ABC):
    """Fields at which a residual is differentiated."""

    # space of each field. The key is the name of the field's values among the static inputs of a
    # trace. Reference derivatives have the key with a d in front.
    spaces: Mapping[str, Space]
    # whether the device that has the fields computes the numbers at points. Else the host
    # computes them.
    filled: bool
    # data that all derivatives of one form share: splits by level, and programs with their data
    # by the nodes that they compute
    setups: dict[Any, Any]

    @abstractmethod
    def field(self, name: str) -> Field:
        """Return a field as a copy on the host."""

    @abstractmethod
    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> State:
        """Copy of the state for another form, with the fields ``names`` and other setups."""

    def on_part(self, mesh: Mesh) -> State:  # noqa: ARG002  (on a device no mesh has parts)
        """State for a part of a mesh of several shapes: the parts of its fields."""
        return self

    @abstractmethod
    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        """Compute the numbers (nbatch, points, numbers, width) that a form stores at points.

        None if NumPy should compute them instead.
        """


@final
class NoState(State):
    """State of a linear form. It has no fields."""

    spaces: Mapping[str, Space] = {}
    filled = False

    def __init__(self, fill: Fill | None = None) -> None:
        self._fill = fill

    @property
    def setups(self) -> dict[Any, Any]:  # type: ignore[override]  # nothing is shared
        """See `State.setups`. Forms without a state share nothing."""
        return {}

    def field(self, name: str) -> Field:
        raise KeyError(name)

    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> State:  # noqa: ARG002
        return self

    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        return None if self._fill is None else self._fill(form, qdata_split, dtype, width)


NO_STATE = NoState()


@final
class HostState(State):
    """State whose fields are on the host."""

    filled = False

    def __init__(
        self,
        fields: Mapping[str, Field],
        setups: dict[Any, Any] | None = None,
        fill: Fill | None = None,
    ) -> None:
        self._fields, self._fill = dict(fields), fill
        self.spaces = {name: field.space for name, field in fields.items()}
        self.setups = {} if setups is None else setups

    def field(self, name: str) -> Field:
        return self._fields[name]

    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> HostState:
        return HostState({name: self._fields[name] for name in names}, setups, self._fill)

    def on_part(self, mesh: Mesh) -> State:
        if not any(field.space.mixed for field in self._fields.values()):
            return self
        fields = {name: field.on_part(mesh) for name, field in self._fields.items()}
        return HostState(fields, self.setups, self._fill)

    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        return None if self._fill is None else self._fill(form, qdata_split, dtype, width)
