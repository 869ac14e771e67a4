"""Controls: the coefficients by which to differentiate, or the mesh, and their spaces."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from femops.adjoint.integrand import MESH
from femops.adjoint.pieces import Piece
from femops.basis import PointRule, gauss, grid_rule
from femops.errors import OperatorError
from femops.fields.norms import exact_sum
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.state import Field, Sampled
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1, L2
from femops_common.arguments import shown
from femops_meshes.mesh import check_cubes

Vector = NDArray[Any]
Kind = Literal["field", "constant", "points", "mesh"]


@final
@dataclass(frozen=True, eq=False)
class Control:
    """A coefficient, or the displacement of the mesh's nodes, by which to differentiate."""

    name: str
    # the value of a field is a vector of its space. A constant is a number or an array. Points
    # have a number or an array at each quadrature point. The mesh has the displacement of its
    # nodes.
    kind: Kind
    # space of the derivative's test functions. That of a constant has one function for each
    # element, and the derivative is the sum over the elements.
    space: Space
    shape: tuple[int, ...]  # shape of the coefficient at a point
    # value of the coefficient in its own shape. None for the mesh, whose displacement is zero.
    given: Vector | None = None

    @property
    def own_shape(self) -> tuple[int, ...]:
        """The own shape, in which users give values and directions, and get derivatives."""
        if self.kind == "constant":
            return self.shape
        if self.kind == "points":
            space = self.space
            return (space.mesh.num_elements, space.element.size, *self.shape)
        return self.space.shape

    @cached_property
    def value(self) -> Vector | None:
        """The value as a vector of the space."""
        return None if self.given is None else self.vector(self.given, self.given.dtype)

    def derivative(self, vector: Vector) -> Vector:
        """Convert a vector of the space to a derivative in the own shape. Collective."""
        if self.kind != "constant":
            return vector.reshape(self.own_shape)
        space = self.space
        columns = space.memory.get(vector).reshape(-1, space.ncomp).astype(np.float64)
        sums = [exact_sum(column, space.comm) for column in np.ascontiguousarray(columns.T)]
        return np.array(sums).reshape(self.shape)

    def vector(self, given: Any, dtype: np.dtype[Any]) -> Vector:
        """Convert a value or a direction in the own shape to a vector of the space."""
        memory = self.space.memory
        asarray = np.asarray if self.kind == "constant" else memory.xp.asarray
        try:
            found = asarray(given, dtype=dtype)
        except (TypeError, ValueError) as error:
            raise OperatorError(
                f"a value of {self.name} is {shown(given)}: give numbers of shape {self.own_shape}"
            ) from error
        if found.shape != self.own_shape:
            raise OperatorError(
                f"a value of {self.name} has shape {found.shape}: "
                f"give {self.own_shape or 'a number'}"
            )
        if self.kind != "constant":
            vector: Vector = found.reshape(self.space.shape)
            return vector
        elements = self.space.size // self.space.ncomp
        tiled: Vector = memory.put(np.tile(found.reshape(-1), elements))
        return tiled


def control_of(name: str, pieces: list[Piece], space: Space | None) -> Control:
    """Make the control for a coefficient of some integrals, or for the mesh."""
    control = _control(name, pieces, space)
    order, points = control.space.order, control.space.order + 1
    for piece in pieces:
        used = name in piece.coefficients or name == MESH
        at_ends = control.space.dim == 1 and not piece.domain.on_elements  # an end is one point
        if isinstance(piece.quadrature, PointRule) and piece.domain.by_tables:
            _check_simplex_rule(control, piece, used=used)
            continue
        q1d = grid_rule(piece.quadrature, f"the control {name}").q1d
        if used and not at_ends and q1d < points:
            raise OperatorError(
                f"{name} has order {order}, an integral {q1d} quadrature points "
                f"in each direction: give the form quadrature={points} or more"
            )
    return control


def _check_simplex_rule(control: Control, piece: Piece, *, used: bool) -> None:
    """Raise if a rule of elements that are no cubes, or of faces, is too coarse for the control."""
    cell, order, rule = piece.domain.cell, control.space.order, piece.quadrature
    if used and rule.count(cell.dim) < (cell.size(order) if order else 1):
        raise OperatorError(
            f"{control.name} has order {order}, an integral {rule.count(cell.dim)} quadrature "
            f"points: give the form quadrature={order + 1} or more"
        )


def _control(name: str, pieces: list[Piece], space: Space | None) -> Control:
    """Find or make a control; see `control_of`."""
    state = next(iter(pieces[0].fields.values()))
    given = [piece.coefficients[name] for piece in pieces if name in piece.coefficients]
    if name == MESH:
        if given:
            raise OperatorError(f"{name} is a coefficient, and a control: rename the coefficient")
        return Control(MESH, "mesh", _displacements(pieces, state, space), (state.dim,))
    if not given:
        known = dict.fromkeys(n for piece in pieces for n in piece.coefficients)
        raise OperatorError(f"nothing depends on {name!r}: there are {', '.join([*known, MESH])}")
    if any(coefficient.of_function for coefficient in given):
        raise OperatorError(
            f"{name} is a function of x, by which nothing can be differentiated: make it a field, "
            "femops.GridFunction(V, V.interpolate(f)), or let the form's function compute it from "
            "x and from constants"
        )
    first, value = given[0], given[0].value
    different = any(not _alike(value, other.value) for other in given)
    if state.comm.max(int(different)):  # all ranks raise, or none
        raise OperatorError(
            f"{name} has different values in the goal and in the residual, or in parts of them: "
            "give them one value, of a field the same space, or other names"
        )
    if isinstance(value, Field):
        return _of_field(name, value, state)
    if not isinstance(value, Sampled):
        shape = np.shape(value)
        ncomp = math.prod(shape)
        space = L2(_mesh(state), 0, ncomp, device=state.device)
        return Control(name, "constant", space, shape, np.asarray(value))
    return _of_points(name, first, [p for p in pieces if name in p.coefficients], state)


def _mesh(space: Space) -> Any:
    """Mesh of a space, shared by ranks or not."""
    return space.mesh if space.distributed is None else space.distributed


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, Field) and isinstance(other, Field):
        return one.space.whole is other.space.whole and np.array_equal(one.vector, other.vector)
    if isinstance(one, Field | Sampled) or isinstance(other, Field | Sampled):
        return isinstance(one, Sampled) and isinstance(other, Sampled)  # refused by `_of_points`
    return np.array_equal(one, other)


def _displacements(pieces: list[Piece], state: Space, space: Space | None) -> Space:
    """Space of the displacements of a mesh's nodes."""
    for piece in pieces:
        for name, given in piece.coefficients.items():
            if isinstance(given.value, Sampled):
                raise OperatorError(
                    f"{name} is a function of x, or an array at points, which does not move with "
                    "the mesh: make it a field, or let the form's function compute it from x"
                )
    if space is None:
        return H1(_mesh(state), max(state.mesh.order, 1), state.dim, device=state.device)
    if space.mesh is not state.mesh or space.ncomp != state.dim:
        raise OperatorError(f"nodes move in a space on their mesh with ncomp={state.dim}")
    return space


def _of_field(name: str, value: Field, state: Space) -> Control:
    """Control of a field. Its space is that of the field, on the state's device."""
    space = value.space.whole
    vector = value.vector
    if space.device is not state.device:
        made: Any = H1 if isinstance(space, H1) else L2
        space = made(_mesh(state), space.order, space.ncomp, space.family, device=state.device)
        vector = space.memory.put(vector)
    return Control(name, "field", space, () if space.ncomp == 1 else (space.ncomp,), vector)


def _of_points(name: str, given: FormCoefficient, pieces: list[Piece], state: Space) -> Control:
    """Control of values at quadrature points, which are the nodes of an L2 space."""
    check_cubes(state.mesh, f"{name}, an array at points as a control,", OperatorError)
    rule = grid_rule(pieces[0].quadrature, f"the control {name}")
    points = gauss(rule.q1d).points
    inside = len(pieces) == 1 and pieces[0].domain.on_elements
    if not inside or not np.array_equal(rule.points, points):
        raise OperatorError(
            f"{name} is an array at points: as a control it belongs to one integral over the "
            "elements, with a Gauss rule; make it a field"
        )
    shape, count = given.value.shape, (state.mesh.num_elements, rule.q1d**state.dim)
    space = L2(_mesh(state), rule.q1d - 1, math.prod(shape), device=state.device)
    values = np.stack([np.broadcast_to(p, count) for p in given.value.parts], axis=-1)
    made = Control(name, "points", space, shape)
    return replace(made, given=state.memory.put(values.reshape(made.own_shape)))
