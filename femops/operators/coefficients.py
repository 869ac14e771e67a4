"""Coefficients of forms: numbers, functions of x, fields, arrays at quadrature points."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.abstract_space import Space
from femops.boundary import BoundaryBlock, BoundaryGeometry
from femops.errors import OperatorError
from femops.evaluation import reference_values
from femops.functions import evaluate_any
from femops.geometry import Geometry, GeometryBlock
from femops.pointwise.trace import CoefficientShape
from femops.restriction import refuse_device_array

Block = GeometryBlock | BoundaryBlock


@final
@dataclass(frozen=True, eq=False)
class GridFunction:
    """A finite element function as a coefficient.

    Attributes
    ----------
    space : Space
        On the mesh of the form, of any order.
    vector : l_vec of it

    Raises
    ------
    VectorError
        A vector that is not one of the space.
    """

    space: Space
    vector: NDArray[Any]

    def __post_init__(self) -> None:
        self.space.check_vector(self.vector, "the grid function's vector")
        _ = self.l_vec  # here, where all ranks are

    @cached_property
    def l_vec(self) -> NDArray[Any]:
        """The vector with its ghosts, as `Space.l_vec` gives it."""
        return self.space.l_vec(self.vector)

    def at(self, block: Block) -> NDArray[np.float64]:
        """Values at the quadrature points of a block of elements, (n, nq[, ncomp])."""
        space = self.space
        if isinstance(block, BoundaryBlock):
            return block.field(space, self.l_vec)
        e_vec = space.element_vector(self.l_vec, block.start, block.stop)
        points = block.geometry.quadrature.points
        return reference_values(space.basis, points, space.dim, e_vec)


Function = Callable[..., Any]
PlainCoefficient = float | NDArray[Any] | Callable[[NDArray[np.float64]], Any]
Coefficient = PlainCoefficient | GridFunction


@final
@dataclass(frozen=True, eq=False)
class Given:
    """A coefficient of a form, as the user gave it.

    Attributes
    ----------
    name : str
    value : number, array, callable or GridFunction
    shapes : tuple of shapes, optional
        Those that the form takes; any if None.
    positive : bool
        Whether it must be greater than zero (a matrix is not looked at).

    Raises
    ------
    VectorError
        An array on a GPU.
    """

    name: str
    value: Any
    shapes: tuple[tuple[int, ...], ...] | None = None
    positive: bool = False

    def __post_init__(self) -> None:
        refuse_device_array(self.value, self.name)

    @property
    def is_elementwise(self) -> bool:
        """Whether the coefficient is a field that is constant in each element."""
        return isinstance(self.value, GridFunction) and self.value.space.order == 0

    def is_constant(self, geometry: Geometry | BoundaryGeometry) -> bool:
        """Whether the coefficient is one number or array, the same everywhere."""
        if isinstance(self.value, GridFunction) or callable(self.value):
            return False
        shape = _shape(self.value, self.name)
        if self.shapes is not None:
            return shape in self.shapes
        return shape[:2] != (geometry.num_elements, geometry.num_points)

    def at(self, block: Block) -> NDArray[np.float64]:
        """Values at the quadrature points of a block of elements, (n, nq, *shape).

        Raises
        ------
        OperatorError
            Another shape, values that are not finite, or not positive where they must be.
        """
        if isinstance(self.value, GridFunction):
            values = self._of_field(block)
        else:
            shapes = (self._any_shape(block),) if self.shapes is None else self.shapes
            values = _at_points(self.value, block, self.name, shapes)
        if self.positive and values.ndim < 4 and not np.all(values > 0.0):
            raise OperatorError(
                f"{self.name} is {values.min():g} somewhere: it must be positive everywhere"
            )
        return values

    def _of_field(self, block: Block) -> NDArray[np.float64]:
        field = self.value
        if field.space.mesh is not block.geometry.mesh:
            raise OperatorError(f"{self.name} is a field on another mesh: interpolate it first")
        shape = () if field.space.ncomp == 1 else (field.space.ncomp,)
        if self.shapes is not None and shape not in self.shapes:
            wanted = " or ".join(map(str, self.shapes))
            raise OperatorError(f"{self.name} is a field of shape {shape}: the form takes {wanted}")
        values: NDArray[np.float64] = field.at(block)
        if not np.isfinite(values).all():
            raise OperatorError(f"{self.name} is a field with values that are not finite")
        return values

    def _any_shape(self, block: Block) -> tuple[int, ...]:
        """Shape at a point of a coefficient of a user's own form."""
        nq, ne = block.geometry.num_points, block.geometry.num_elements
        if callable(self.value):
            first = block.geometry.block(0, 1)
            x = columns(first.points)
            shape = _mixed_shape(of_place(self.value, first)(x))
            return shape[:-1] if shape and shape[-1] == x.shape[1] else shape
        shape = _shape(self.value, self.name)
        return shape[2:] if shape[:2] == (ne, nq) else shape

    def shape(self, first: Block) -> CoefficientShape:
        """What tracing must know.

        Parameters
        ----------
        first : GeometryBlock or BoundaryBlock
            The first element: all of a coefficient is looked at only where it is a matrix.
        """
        shape = self.at(first).shape[2:]
        square = len(shape) == 2 and shape[0] == shape[1]
        return CoefficientShape(shape, square and self._symmetric(first))

    def _symmetric(self, first: Block) -> bool:
        """Whether opposite entries are equal to the last bit everywhere."""
        blocks = (self.at(block) for block in first.geometry)
        return all(np.array_equal(values, values.swapaxes(-1, -2)) for values in blocks)


def _at_points(
    coefficient: PlainCoefficient,
    block: Block,
    name: str,
    shapes: tuple[tuple[int, ...], ...],
) -> NDArray[np.float64]:
    """Values of a coefficient at the quadrature points of a block of elements.

    Parameters
    ----------
    coefficient : number, array or callable
        A constant of one of ``shapes``; a function of x, (dim, n) -> (*shape, n), on boundary
        faces of x and the outer normal if it takes two arguments; or an array at all quadrature
        points, (ne, nq, *shape).
    block : GeometryBlock or BoundaryBlock
    name : str
        For messages.
    shapes : tuple of shapes
        Those the form takes, ``()`` for a scalar.

    Returns
    -------
    (n, nq, *shape) float64

    Raises
    ------
    OperatorError
        Another shape, another type, or values that are not finite.
    """
    if isinstance(coefficient, Mapping):
        raise OperatorError(f"{name} is a dict: give femops.by_attribute(mesh, values)")
    ne, nq, n = block.geometry.num_elements, block.geometry.num_points, block.stop - block.start
    if callable(coefficient):
        values = _evaluate(of_place(coefficient, block), block.points, shapes, name)
        return values.reshape(n, nq, *values.shape[1:])
    given = _shape(coefficient, name)
    for shape in shapes:
        if given == shape:  # checked at the points of one element
            points = block.geometry.points(block.start, block.start + 1)
            values = _evaluate(coefficient, points, (shape,), name)
            return np.broadcast_to(values.reshape(-1, nq, *shape), (n, nq, *shape))
        if given == (ne, nq, *shape):
            return _stored(np.asarray(coefficient)[block.start : block.stop], name)
    if given == (ne,) and not isinstance(block, BoundaryBlock):
        raise OperatorError(
            f"{name} has one number for each element: "
            "give femops.GridFunction(femops.L2(mesh, order=0), numbers)"
        )
    wanted = " or ".join(str((ne, nq, *shape)) for shape in shapes)
    raise OperatorError(
        f"{name} has shape {given}: give a number, a function of x, "
        f"or values at the quadrature points, {wanted}"
    )


def _evaluate(
    coefficient: PlainCoefficient,
    points: NDArray[np.float64],
    shapes: tuple[tuple[int, ...], ...],
    name: str,
) -> NDArray[np.float64]:
    x = columns(points)
    n = x.shape[1]
    if any(shape and shape[-1] == n for shape in shapes):
        # one more point, lest a number for each point be taken for one for each component
        x = np.pad(x, ((0, 0), (0, 1)), mode="edge")
    return evaluate_any(coefficient, x, shapes, name, OperatorError)[:n]


def columns(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points (n, nq, dim) in the layout that functions take, (dim, n * nq)."""
    return np.ascontiguousarray(points.reshape(-1, points.shape[-1]).T)


def of_place(function: Function, block: Block) -> Function:
    """A function of x, made of one of x and the outer normal where there is one.

    Which of them it is, its parameters tell.
    """
    if not isinstance(block, BoundaryBlock):
        return function
    try:
        parameters = inspect.signature(function)
        parameters.bind(0, 0)
    except (TypeError, ValueError):  # no two arguments, or a builtin that does not tell
        return function
    try:
        parameters.bind(0)
    except TypeError:
        n = columns(block.normals)
        return lambda x: function(x, np.pad(n, ((0, 0), (0, x.shape[1] - n.shape[1])), mode="edge"))
    return function


def _mixed_shape(result: Any) -> tuple[int, ...]:
    """Shape of an array, or of a sequence in which numbers stand beside arrays."""
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
    """An array given at the quadrature points, checked."""
    if values.dtype.kind not in "biuf":
        raise OperatorError(f"{name} has type {values.dtype}: give real numbers")
    bad = values.size - np.count_nonzero(np.isfinite(values))
    if bad:
        raise OperatorError(f"{name} has {bad} values that are not finite: mend the coefficient")
    return values.astype(np.float64, copy=False)
