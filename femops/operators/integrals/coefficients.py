"""Coefficients of forms, and the type of their numbers: numbers, functions of x, fields, arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import OperatorError
from femops.geometry.domain import DomainBlock, DomainGeometry
from femops.geometry.interior import InteriorGeometry
from femops.operators.integrals.history import History
from femops.operators.integrals.state import Field, Sampled, frozen
from femops.pointwise.trace import OPTIONS, CoefficientShape, vector_hint
from femops.spaces.base import GridFunction
from femops.spaces.domain_space import DomainSpace
from femops.spaces.functions import called, columns, evaluate_any, is_by_parts, place_of
from femops.spaces.restriction import FLOAT_TYPES, refuse_unreadable
from femops_common.arguments import dtype_of, plain_numbers, shown
from femops_common.hints import did_you_mean


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Convert a user's ``dtype`` to the type of an operator."""
    kind = _known(dtype)
    if kind is None:
        asked = dtype_of(dtype) or shown(dtype)
        hint = "; femops.form makes complex operators" if "complex" in str(asked) else ""
        raise OperatorError(
            f"an operator of type {asked} was asked for: take float64 or float32{hint}"
        )
    return kind


def data_type(data_dtype: DTypeLike | None, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in which an operator of type ``dtype`` stores numbers at quadrature points."""
    if data_dtype is None:
        return dtype
    kind = _known(data_dtype)
    if kind is None:
        raise OperatorError(f"data_dtype is {shown(data_dtype)}: take float64 or float32")
    if kind.itemsize > dtype.itemsize:
        raise OperatorError(
            f"data_dtype is {kind} in an operator of type {dtype}, which would round the data "
            "whenever it reads them: leave data_dtype out, or take dtype=float64"
        )
    return kind


def check_range(
    what: str,
    largest: float,
    kind: np.dtype[Any],
    cure: str = "use float64",
    *,
    whole: bool = False,
) -> None:
    """Raise if numbers are out of a type's range."""
    smallest = smallest_of(kind) if whole else 0.0
    if not smallest <= largest <= float(np.finfo(kind).max):
        raise OperatorError(
            f"{what} reach {largest:.3g}, beyond the range of {kind}: "
            f"scale the coordinates or the coefficients, or {cure}"
        )


def smallest_of(kind: np.dtype[Any]) -> float:
    """Smallest allowed maximum of the absolute values of many numbers in a type.

    With a smaller maximum, numbers of epsilon times the maximum would not be normal numbers.
    """
    limits = np.finfo(kind)
    return float(limits.tiny) / float(limits.eps)


def check_values(what: str, values: NDArray[Any], kind: np.dtype[Any]) -> None:
    """Raise if finite float64 numbers (of any shape) would be infinite in the type ``kind``."""
    if kind == np.float32:
        check_range(what, largest_of(values), kind)


def largest_of(values: NDArray[np.float64]) -> float:
    """Largest absolute value of the finite numbers in an array of any shape; zero if none."""
    most = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if math.isfinite(most):
        return most
    return float(np.abs(values).max(initial=0.0, where=np.isfinite(values)))


def _known(dtype: DTypeLike) -> np.dtype[Any] | None:
    kind = dtype_of(dtype)
    return None if kind is None or kind not in FLOAT_TYPES else kind


Function = Callable[..., Any]
Place = tuple[NDArray[np.float64], ...]
PlainCoefficient = float | NDArray[Any] | Callable[[NDArray[np.float64]], Any]
Coefficient = PlainCoefficient | GridFunction

_BESIDE = 1e-6  # distance from a face, over the extent of an element, at which a jump is looked for
_JUMP = 1e-3  # relative change over twice that distance that is a jump


@final
@dataclass(frozen=True, eq=False)
class FormCoefficient:
    """A coefficient of a form: the user's value, or the form's own copy of it."""

    name: str
    value: Any  # the user's value, or the form's copy
    # shapes that the form accepts. None means any shape.
    shapes: tuple[tuple[int, ...], ...] | None = None
    # whether the values must be greater than zero. A matrix must be positive definite, also if it
    # is not symmetric. Matrices that vary are not checked.
    positive: bool = False
    # whether the value is the form's copy. Later changes of the user's value do not affect it.
    kept: bool = False
    of_function: bool = False  # whether the copy holds values of a function of x
    # whether the last axis has real and imaginary parts. So an array (2, 2) is no matrix.
    paired: bool = False
    smooth: bool = False  # whether a function of x must not jump at faces between elements
    history: History | None = None  # the history of which the value is a copy

    def __post_init__(self) -> None:
        if isinstance(self.value, History):
            object.__setattr__(self, "history", self.value)
            object.__setattr__(self, "value", self.value.field)
        refuse_unreadable(self.value, self.name)
        if isinstance(self.value, str):
            hint = did_you_mean(self.name, OPTIONS) or ": give a number or a function of x"
            raise OperatorError(f"the coefficient {self.name!r} is a text{hint}")

    def of(self, value: Any) -> FormCoefficient:
        """Copy of the coefficient with a new value from the user."""
        return replace(self, value=value, kept=False, of_function=False, history=None)

    def on_part(self, space: DomainSpace, geometry: DomainGeometry) -> FormCoefficient:
        """Copy for a part of a mesh of several shapes: its part of a field, or its array."""
        whole, value = space.volume.whole, self.value
        if not whole.mixed or isinstance(value, Mapping) or callable(value):
            return self
        if isinstance(value, GridFunction):
            for part in () if space.domain.two_sided else value.space.parts:
                if part.mesh is space.volume.mesh:
                    return replace(self, value=GridFunction(part, value.vector))
            return self
        inside, parts = space.domain.on_elements, whole.parts
        if inside and is_by_parts(value, whole.mesh):
            return replace(self, value=value[parts.index(space.volume)])
        if (inside and len(parts) == 1) or self.is_constant(geometry):
            return self
        lists = "a field, or a list of the values at the quadrature points of each of its parts"
        raise OperatorError(
            f"{self.name} has shape {_shape(value, self.name)}: on a mesh of {whole.mesh.plural} "
            f"give a number, a function of x, or {lists if inside else 'a field'}"
        )

    def read(self, *, on_sides: bool = False) -> FormCoefficient:
        """Copy of the coefficient with a `Field`, which copies the vector, for a GridFunction.

        Other coefficients are returned unchanged. Collective if ranks share the field's dofs, or
        with ``on_sides``; see `Field.of`.
        """
        if not isinstance(self.value, GridFunction):
            return self
        field = Field.of(self.value.space, self.value.vector, on_sides=on_sides)
        return replace(self, value=field)

    def keep(self, geometry: DomainGeometry) -> FormCoefficient:
        """Copy the coefficient's present value to the points of a form. Collective, as `read` is.

        A constant, an array or a vector is copied. A function of x is evaluated at all points.
        """
        if self.kept:
            return self
        given = self.read(on_sides=geometry.domain.two_sided)
        value = given.value
        if self.positive and given.is_elementwise:
            _check_everywhere(value.vector, self.name)
        if callable(value):
            if self.smooth and isinstance(geometry, InteriorGeometry):
                given._check_sides(geometry)
            value = given._sampled(geometry, np.float64)
        elif not isinstance(value, Field | Mapping):
            constant, array = given.is_constant(geometry), plain_numbers(np.asarray(value))
            short = np.float32 if array.dtype == np.float32 else np.float64
            given = replace(given, value=array)
            if constant and self.positive:
                _check_positive(array, self.name)
            value = frozen(array) if constant else given._sampled(geometry, short)
        return replace(given, value=value, kept=True, of_function=callable(self.value))

    def _check_sides(self, geometry: InteriorGeometry) -> None:
        """Raise if a function of x has different values on both sides of a face."""
        sides, shapes = geometry.beside(_BESIDE), self.shapes or ((),)
        if not len(sides[0]):
            return
        minus, plus = (
            evaluate_any(self.value, (x.T.copy(),), shapes, self.name, OperatorError) for x in sides
        )
        largest = np.maximum(np.abs(minus), np.abs(plus)).reshape(len(minus), -1)
        jumps = np.abs(minus - plus).reshape(len(minus), -1)
        bad = np.flatnonzero(jumps.max(axis=1) > _JUMP * largest.max(axis=1))
        if len(bad):
            where = ", ".join(f"{c:.6g}" for c in sides[0][bad[0]])
            raise OperatorError(
                f"{self.name} jumps at {len(bad)} face(s) between elements, the first at "
                f"({where}), where a function of x has one value: give femops.GridFunction(K, "
                f"K.interpolate({self.name})) with K = femops.L2(mesh, order=0), or a higher order"
            )

    def _sampled(self, geometry: DomainGeometry, dtype: DTypeLike) -> Sampled:
        """Values of a coefficient that is not constant, at all points."""
        first = geometry.block(0, 1)
        once = replace(self, shapes=self._shapes(first))
        shape = once.at(first).shape[2:]

        def values(block: DomainBlock) -> NDArray[np.float64]:
            found = once.at(block)
            if found.shape[2:] != shape:
                raise OperatorError(
                    f"{self.name} has shape {shape} in one element and {found.shape[2:]} in "
                    "another: give it the same everywhere"
                )
            return found

        blocks = ((block.start, values(block)) for block in geometry)
        return Sampled.of(geometry, shape, blocks, dtype)

    @property
    def is_elementwise(self) -> bool:
        """True if the coefficient is a field of order 0: constant in each element."""
        return isinstance(self.value, Field) and self.value.space.order == 0

    def is_constant(self, geometry: DomainGeometry) -> bool:
        """True if the coefficient is one number or array, equal at all points."""
        if isinstance(self.value, Field | Sampled) or callable(self.value):
            return False
        if self.kept:  # an array of values at points would be a Sampled by now
            return True
        shape = _shape(self.value, self.name)
        if self.shapes is None:
            return not self._varies(shape, geometry)
        at_points = geometry.num_elements, geometry.num_points
        if shape == at_points != (1, 1) and {(), shape} <= set(self.shapes):
            n = self.name
            raise OperatorError(
                f"{n} has shape {shape}, so it may be one matrix or a number at each point: write "
                f"the matrix as a function, lambda x: {n}.tolist(), or numbers at points as "
                f"matrices, {n}[..., np.newaxis, np.newaxis] * np.eye({shape[0]})"
            )
        return shape in self.shapes

    def at(self, block: DomainBlock) -> NDArray[np.float64]:
        """Values (n, nq, *shape) at the quadrature points of a block of elements."""
        if isinstance(self.value, Sampled):  # checked when it was made
            return self.value.at(block)
        if isinstance(self.value, Field):
            values = self._of_field(block)
        else:
            values = _at_points(self.value, block, self.name, self._shapes(block))
        matrices = values.ndim == 4 and not isinstance(self.value, Field)
        if self.positive and not matrices:
            _check_everywhere(values, self.name)
        return values

    def _of_field(self, block: DomainBlock) -> NDArray[np.float64]:
        field = self.value
        if all(part.mesh is not block.mesh for part in field.space.parts):
            raise OperatorError(f"{self.name} is a field on another mesh: interpolate it first")
        shape = () if field.space.ncomp == 1 else (field.space.ncomp,)
        if self.shapes is not None and shape not in self.shapes:
            wanted = " or ".join(map(str, self.shapes))
            raise OperatorError(f"{self.name} is a field of shape {shape}: the form takes {wanted}")
        values: NDArray[np.float64] = field.at(block)
        if block.geometry.domain.two_sided:
            values = np.stack([values, field.at(block.other)], axis=2)
        if not np.isfinite(values).all():
            raise OperatorError(f"{self.name} is a field with values that are not finite")
        return values

    def _shapes(self, block: DomainBlock) -> tuple[tuple[int, ...], ...]:
        """Accepted shapes at a point. For a user's own form, the coefficient's own shape."""
        return (self._any_shape(block),) if self.shapes is None else self.shapes

    def _any_shape(self, block: DomainBlock) -> tuple[int, ...]:
        if callable(self.value):
            place = place_of(self.value, block.geometry.block(0, 1), OperatorError)
            n = place[0].shape[1]
            shape = self._shape_at(place)
            if n and shape and shape[-1] == n:
                # as many components as points? one more point tells
                shape, n = self._shape_at(_one_more(place)), n + 1
            # a rank without elements asks for no points
            return shape[:-1] if shape and shape[-1] == n else shape
        shape = _shape(self.value, self.name)
        return shape[2:] if not self.kept and self._varies(shape, block.geometry) else shape

    def _varies(self, shape: tuple[int, ...], geometry: DomainGeometry) -> bool:
        """True if an array of this shape for a user's own form has values at all points."""
        at_points = geometry.num_elements, geometry.num_points
        return len(shape) >= 2 + self.paired and shape[:2] == at_points

    def _shape_at(self, place: Place) -> tuple[int, ...]:
        return _mixed_shape(called(self.value, place, self.name, OperatorError))

    def shape(self, first: DomainBlock) -> CoefficientShape:
        """Shape and symmetry of the coefficient, for tracing."""
        shape = self.at(first).shape[2:]
        two_sided = isinstance(self.value, Field) and first.geometry.domain.two_sided
        square = len(shape) == 2 + self.paired and shape[0] == shape[1] and not two_sided
        return CoefficientShape(shape, square and self._symmetric(first), two_sided)

    def _symmetric(self, first: DomainBlock) -> bool:
        """True if opposite entries are bitwise equal, or conjugate, everywhere."""
        rows, columns = (-3, -2) if self.paired else (-2, -1)
        signs = np.array([1.0, -1.0]) if self.paired else 1.0
        blocks = (self.at(block) for block in first.geometry)
        return all(np.array_equal(v, signs * v.swapaxes(rows, columns)) for v in blocks)


def on_several_domains(
    name: str,
    value: Coefficient,
    shapes: tuple[tuple[int, ...], ...],
    *,
    positive: bool = False,
    smooth: bool = False,
) -> FormCoefficient:
    """Make a coefficient of integrals over several domains; see `FormCoefficient`."""
    if not (isinstance(value, GridFunction | Mapping) or callable(value)):
        shape = _shape(value, name)
        if shape not in shapes:
            arrays = " or ".join(str(wanted) for wanted in shapes if wanted)
            wanted = ["a number"] * (() in shapes) + [f"an array of shape {arrays}"] * bool(arrays)
            raise OperatorError(
                f"{name} has shape {shape}: give {', '.join(wanted)}, a function of x or a "
                "GridFunction"
            )
    return FormCoefficient(name, value, shapes, positive, smooth=smooth)


def _check_positive(constant: NDArray[Any], name: str) -> None:
    """Raise if a number or vector has an entry <= 0, or a matrix is not positive definite."""
    if constant.dtype.kind not in "biuf" or not np.isfinite(constant).all():
        return  # other errors, see `FormCoefficient.at`
    if constant.ndim < 2 and constant.min() <= 0:
        found = f"has the entry {constant.min():g}" if constant.ndim else f"is {constant:g}"
        raise OperatorError(f"{name} {found}: it must be positive")
    if constant.ndim == 2 and (least := np.linalg.eigvalsh(constant + constant.T)[0] / 2.0) <= 0:
        raise OperatorError(
            f"{name} is a matrix whose symmetric part has the eigenvalue {least:g}: it must be "
            "positive definite"
        )


def _check_everywhere(values: NDArray[Any], name: str) -> None:
    """Raise if a value is <= 0."""
    if np.any(values <= 0.0):
        raise OperatorError(f"{name} is {values.min():g} somewhere: it must be positive everywhere")


def _at_points(
    coefficient: PlainCoefficient,
    block: DomainBlock,
    name: str,
    shapes: tuple[tuple[int, ...], ...],
) -> NDArray[np.float64]:
    """Values of a coefficient at the quadrature points of a block of elements.

    Shapes: returned (n, nq, *shape).
    """
    if isinstance(coefficient, Mapping):
        raise OperatorError(f"{name} is a dict: give femops.by_attribute(mesh, values)")
    ne, nq, n = block.geometry.num_elements, block.geometry.num_points, block.stop - block.start
    if callable(coefficient):
        values = _evaluate(coefficient, place_of(coefficient, block, OperatorError), shapes, name)
        return values.reshape(n, nq, *values.shape[1:])
    given = _shape(coefficient, name)
    if given in shapes:  # one array, also where as many elements have as many points
        if 0 in given:
            raise OperatorError(f"{name} has shape {given}, which has no numbers: give some")
        points = block.geometry.points(block.start, block.start + 1)  # one element is enough
        values = _evaluate(coefficient, (columns(points),), (given,), name)
        return np.broadcast_to(values.reshape(-1, nq, *given), (n, nq, *given))
    if any(given == (ne, nq, *shape) for shape in shapes):
        return _stored(np.asarray(coefficient)[block.start : block.stop], name)
    if given == (ne,) and block.geometry.domain.on_elements:
        raise OperatorError(
            f"{name} has one number for each element: "
            "give femops.GridFunction(femops.L2(mesh, order=0), numbers)"
        )
    wanted = " or ".join(str((ne, nq, *shape)) for shape in shapes)
    raise OperatorError(
        f"{name} has shape {given}: give a number, a function of x, "
        f"or values at the quadrature points, {wanted}{vector_hint([given])}"
    )


def _evaluate(
    coefficient: PlainCoefficient,
    place: Place,
    shapes: tuple[tuple[int, ...], ...],
    name: str,
) -> NDArray[np.float64]:
    n = place[0].shape[1]
    if any(shape and shape[-1] == n for shape in shapes):
        # one point more, so that the number of points is no number of components
        place = _one_more(place)
    return evaluate_any(coefficient, place, shapes, name, OperatorError)[:n]


def _one_more(place: Place) -> Place:
    """Append a copy of the last point to each argument."""
    return tuple(np.pad(values, ((0, 0), (0, 1)), mode="edge") for values in place)


def _mixed_shape(result: Any) -> tuple[int, ...]:
    """Shape of an array, or of a sequence of numbers and arrays."""
    if isinstance(result, list | tuple) and result:
        return (len(result), *max(map(_mixed_shape, result), key=len))
    return np.shape(result)


def _shape(coefficient: Any, name: str) -> tuple[int, ...]:
    try:
        return np.shape(coefficient)
    except ValueError as error:
        raise OperatorError(
            f"{name} is a sequence of parts that do not fit together: "
            "give a number, an array or a function of x"
        ) from error


def _stored(values: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Check a user's values at quadrature points and convert them to float64."""
    if values.dtype.kind not in "biuf":
        raise OperatorError(f"{name} has type {values.dtype}: give real numbers")
    bad = values.size - np.count_nonzero(np.isfinite(values))
    if bad:
        raise OperatorError(f"{name} has {bad} values that are not finite: correct the coefficient")
    return values.astype(np.float64, copy=False)
