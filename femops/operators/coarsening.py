"""Copies of an operator on a coarse space of the same mesh, or in another precision."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import grid_rule
from femops.geometry.domain import element_blocks
from femops.operators.execution.host import backend_of
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.ranges import closes
from femops.operators.integrals.state import Field, Sampled, State, between_points
from femops.operators.integrals.term import DATA_LEVELS, Term, mode_lanes
from femops.operators.operator import Operator
from femops.spaces.base import GridFunction, Space
from femops.spaces.h1_l2 import H1, L2
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.in_order import in_order
from femops_kernels.pointwise.qdata import Data

Ints = NDArray[np.int64]

_TOGETHER = 2**17  # numbers of lanes that are copied at once


def coarse_operator(
    A: Operator, space: Space, dtype: DTypeLike, level: str, *, exact: bool = False
) -> Operator:
    """Discretise the forms of an operator on a space of no higher order. Collective.

    On an H1 space integrals over faces between elements are left out: a continuous function has no
    jump there. A penalty of the jumps of its gradient acts on the finest level alone.
    The forms are not traced again. On a space of lower order p the rule is Gauss's with p + 1
    points. Coefficients at points are interpolated linearly to the points of this rule. This
    preserves their bounds and definiteness. States of residuals are interpolated to the space.
    """
    state, kind = _StateOn(A.space, space), np.dtype(dtype)
    # rules that are no grids have no others between which one interpolates
    exact = exact or space.mixed or not space.mesh.cell.cube
    used = [
        (factor, term)
        for factor, term in A.summands
        if not space.continuous or not term.fields.two_sided
    ]
    forms = [_coarse_form(term, space, None if exact else state) for _, term in used]
    same = space.order == A.space.order and not space.continuous  # D does not depend on the basis
    terms = [
        (factor, _rounded(term, kind, level, form) if same else _made(form, kind, level))
        for (factor, term), form in zip(used, forms, strict=True)
    ]
    return Operator(terms, coarse_constraints(A.constraints, A.space, space), level)


def _made(form: Integral, dtype: np.dtype[Any], level: str) -> Term:
    return Term.make(_closed(form, dtype), dtype, None, level).ready(level)


def _closed(form: Integral, dtype: np.dtype[Any]) -> Integral:
    """The form, closed if the type needs that, see `Known`. Collective."""
    if form.closed or not closes(form, dtype):
        return form
    return replace(form, closed=True, traced=form.qfunction)


def in_precision(A: Operator, dtype: DTypeLike, level: str) -> Operator:
    """Copy an operator to another type and level. Stored data are rounded, not recomputed."""
    terms = [(factor, _rounded(term, np.dtype(dtype), level)) for factor, term in A.summands]
    return Operator(terms, A.constraints, level)


def cycle_level(A: Operator, space: Space) -> str:
    """Choose the level at which a multigrid cycle applies A on ``space``. Collective.

    ``space`` is the space of A or a coarser space. On a device kernels wait for memory, so the
    level that reads the fewest numbers is chosen. On the host the level is ``matrix-free`` if A has
    this level, else ``partial``, which is faster.
    """
    backend = backend_of(space)
    if backend.measures:
        return "matrix-free" if A.level == "matrix-free" else "partial"
    if not all(part.mesh.cell.cube for part in space.parts):
        return "partial"  # kernels by tables have no other level
    forms = [term.source for _, term in A.summands if term.domain.on_elements]
    moved = np.zeros(len(backend.levels))
    for form in forms:
        assert form is not None
        rule = grid_rule(form.quadrature, "multigrid")
        q1d = rule.q1d if space.order == A.space.order else space.order + 1
        moved += [_moved(form, level, q1d) for level in backend.levels]
    return backend.levels[int(np.argmin(space.comm.sum(moved)))]


def _moved(form: Integral, level: str, q1d: int) -> int:
    """Number of stored values that a product at a level reads, for q1d points per direction."""
    numbers, mesh = form.qdata_split(level).qfunction.numbers, form.domain.mesh
    modes: int = mesh.dim * (mesh.order + 1) ** mesh.dim if numbers.mapped else 0
    each: int = numbers.element + numbers.point * q1d**mesh.dim + modes
    return mesh.num_elements * each


def coarse_constraints(constraints: Constraints, fine: Space, coarse: Space) -> Constraints:
    """Constraints on a coarse space. A coarse node is constrained if its fine entity is.

    Entities are the vertices, edges, faces and interiors of elements. An entity is constrained if
    all its fine nodes are.
    """
    if not fine.comm.max(len(constraints.rows)):
        return constraints
    held = np.zeros(fine.size, np.float32)
    held[constraints.rows] = 1.0
    by_node = fine.l_vec(held).reshape(-1, fine.ncomp) > 0.0
    parts = zip(fine.parts, coarse.parts, strict=True)
    on_coarse = np.logical_or.reduce([_held(by_node, *pair) for pair in parts])
    rows = np.flatnonzero(on_coarse[: coarse.ndofs])
    return replace(constraints, rows=rows, columns=rows)


def _held(by_node: NDArray[np.bool_], fine: Space, coarse: Space) -> NDArray[np.bool_]:
    """True (nodes, ncomp) on the coarse space where all fine nodes of an entity are."""
    nodes_of = fine.restriction.entries
    cell = fine.mesh.cell
    codes = range(len(cell.entities))
    entities = [cell.lattice(code, fine.order) for code in codes]
    firsts = np.array([nodes[0] for nodes in entities if len(nodes)])  # one node of each entity

    def touched(ends: tuple[int, int]) -> NDArray[np.bool_]:
        return np.asarray(nodes_of(by_node, slice(*ends))[:, firsts].any(axis=(1, 2)))

    blocks = element_blocks(fine.mesh.num_elements, fine.restriction.num_nodes)
    parts = in_order(touched, blocks)
    touching = np.flatnonzero(np.concatenate([np.zeros(0, dtype=bool), *parts]))
    constrained = nodes_of(by_node, touching)
    flags = np.zeros((len(touching), coarse.restriction.num_nodes, coarse.ncomp), dtype=bool)
    for code, nodes in zip(codes, entities, strict=True):
        every = constrained[:, nodes].all(axis=1, keepdims=True)
        flags[:, cell.lattice(code, coarse.order)] = every
    return coarse.restriction.marked(flags, touching)


@final
class _StateOn:
    """Interpolates states of residuals to a coarse space, once for all terms with the same state.

    A field on a space other than the operator's is interpolated too. Its order becomes at most the
    order of the coarse space, because the coarse rule has no points for more.
    """

    def __init__(self, fine: Space, space: Space) -> None:
        self._space, self._spaces = space, {fine: space}
        self._made: dict[int, State] = {}

    def __call__(self, form: Integral) -> State:
        state = form.state
        if not state.spaces:
            return state
        if id(state) not in self._made:
            fields = {name: self._coarse(state.field(name)) for name in state.spaces}
            self._made[id(state)] = backend_of(self._space).state(fields, {})
        return self._made[id(state)]

    def _coarse(self, field: Field) -> tuple[Space, Any]:
        """Return the space of the coarse field, and the field's vector on it."""
        fine = field.space
        if fine not in self._spaces:
            self._spaces[fine] = _lower(fine, self._space.order)
        vector = np.ascontiguousarray(field.l_vec[: fine.ndofs], dtype=np.float64).reshape(-1)
        if self._spaces[fine] is fine:
            return fine, fine.memory.put(vector)
        return self._spaces[fine], self._spaces[fine].interpolate(GridFunction(fine, vector))


def _lower(space: Space, order: int) -> Space:
    """Return the space if its order is at most ``order``, else the like space of ``order``."""
    if space.order <= order:
        return space
    sizes = space.distributed or space.mesh, order, space.ncomp
    if type(space) not in (H1, L2):  # only the values of other functions matter
        return L2(*sizes, device=space.device)
    return type(space)(*sizes, space.family, device=space.device)


def _coarse_form(term: Term, whole: Space, state: _StateOn | None) -> Integral:
    """The form on a coarse space. Without ``state`` it keeps its rule, coefficients and state."""
    form = term.source
    assert form is not None
    trial = form.fields.first
    space, rule, coefficients = trial.on(whole), form.quadrature, form.coefficients
    if state and space.order < trial.order:
        rule = space.quadrature(space.order + 1)
        fine, few = (grid_rule(one, "multigrid").points for one in (form.quadrature, rule))
        matrix = between_points(fine, few)
        coefficients = {
            name: _resampled(given, matrix, form.geometry.num_points)
            for name, given in form.coefficients.items()
        }
    arguments = Arguments.of(space)
    if form.fields.two_sided:
        arguments = Arguments.on_faces(whole, form.domain)
        arguments = arguments.only(form.fields.spaces).with_slopes(form.fields.have_slopes)
    return replace(
        form,
        fields=arguments,
        tests=arguments,
        quadrature=rule,
        coefficients=coefficients,
        traced=form.qfunction,
        state=state(form) if state else form.state,
    )


def _resampled(given: FormCoefficient, matrix: NDArray[np.float64], points: int) -> FormCoefficient:
    if not isinstance(given.value, Sampled):
        return given
    return replace(given, value=given.value.resampled(matrix, points))


def _rounded(term: Term, dtype: np.dtype[Any], level: str, source: Integral | None = None) -> Term:
    """Copy a term to another type and level. Stored data are rounded if they can be reused.

    ``source`` is the form with another basis, by default that of the term.
    """
    source = _closed(term.source if source is None else source, dtype)
    same = term.level == level and level in DATA_LEVELS and source.closed == term.source.closed
    made = Term.make(source, dtype, None, level)
    ratio, rest = divmod(made.width, term.width)
    none = not term.domain.num_elements or term.filled  # device kernels compute data of any type
    if not same or rest or none or term.original is not None:
        return made.ready(level)
    data, edges = term.data, made.chunk_batches
    points, elements = (_wider(a, ratio, dtype, edges) for a in (data.points, data.elements))
    modes: NDArray[Any] = np.zeros(0, dtype)
    numbers = made.qfunction.numbers
    if numbers.mapped:
        modes = mode_lanes(term.domain.mesh, dtype, made.width, edges, numbers)
    given = Data(points, elements, modes, data.constants.astype(dtype))
    return replace(made, given=given)


def _wider(array: NDArray[Any], ratio: int, dtype: np.dtype[Any], edges: Ints) -> NDArray[Any]:
    """Copy an array in lanes (nbatch, ..., width) to lanes that are ``ratio`` times as wide."""
    count, width = -(-len(array) // ratio), array.shape[-1]
    out = placed_array((count, *array.shape[1:-1], ratio * width), dtype, edges)
    split = out.reshape(*out.shape[:-1], ratio, width)
    step = max(1, _TOGETHER // max(1, math.prod(out.shape[1:])))

    def copy(start: int) -> None:
        for k in range(ratio):
            part = array[start * ratio + k : (start + step) * ratio : ratio]
            split[start : start + len(part), ..., k, :] = part

    deque(in_order(copy, range(0, count, step)), maxlen=0)
    return out
