"""Specifications of kernels for terms, and for products of element dofs with small matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.basis import PointRule, Quadrature1D, Rule, grid_rule, rule_to_degree
from femops.element import factors_of, slope_factors, table_of
from femops.errors import OperatorError
from femops.geometry.domain import element_blocks
from femops.geometry.jacobians import LegendreGeometry
from femops.operators.integrals.term import KernelTerm, Term
from femops.pointwise.expressions.graph import ancestors
from femops.pointwise.qfunction import QFunction, evaluate
from femops.pointwise.trace import INVERSE
from femops.spaces.base import Space
from femops.spaces.boundary_space import end_of
from femops.spaces.domain_space import DomainSpace
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.pointwise.qdata import Data, element_values, store_interleaved
from femops_kernels.spec import (
    Factors,
    KernelSpec,
    MapMatrices,
    MatrixSpec,
    PointSpec,
    QFunctionCode,
    QFunctionInputs,
    SeparableSpec,
    Side,
    scaling,
)
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import lagrange_derivative_matrix
from femops_meshes.topology.entities import Cell

Floats = NDArray[np.float64]


def side_of(space: DomainSpace, rule: Rule | None = None, *, tabulated: bool = False) -> Side:
    """Side of a kernel for a space, with the values of its functions if a rule is given.

    With ``tabulated`` the values are a table, for functions that are no products, or a list.
    """
    bases: tuple[Floats, ...] = ()
    table, slopes, factors = None, None, None
    if rule is not None and tabulated:
        places = space.places(rule)
        table, slopes = table_of(space.element, places), slope_factors(space.element, places)
        factors = factors_of(space.element, places)
    elif rule is not None:
        bases = tuple(space.tensor.matrices(rule.places))
    end, layers = None, 0
    if space.has_end:
        end, layers = end_of(space.basis), space.basis.layers(slopes=True)
    return Side(
        ncomp=space.ncomp,
        shape=space.element.runs().shape,
        sizes=space.element.runs().sizes,
        bases=bases,
        table=table,
        slopes=slopes,
        factors=factors,
        end=end,
        layers=layers,
        broken=space.volume.element.broken or space.element.size == 1,
        on_faces=not space.domain.on_elements,
        ghosts=space.halo is not None,  # that of a side of faces has neighbours
        halves=None if space.restriction.hanging is None else space.restriction.hanging.halves,
    )


def of_term(
    term: KernelTerm, rule: Rule | None = None, *, tabulated: bool = False
) -> dict[str, Any]:
    """Arguments of any specification for a term. Fields and tests of one space share a `Side`."""
    made: dict[DomainSpace, Side] = {}
    for space in (*term.fields.spaces.values(), *term.tests.spaces.values()):
        if space not in made:
            made[space] = side_of(space, rule, tabulated=tabulated)
    names = list(term.fields.spaces)
    return {
        "dim": term.trial.dim,
        "sources": tuple(made[space] for space in term.fields.spaces.values()),
        "targets": tuple(made[space] for space in term.tests.spaces.values()),
        "dtype": term.dtype,
        "any_width": term.any_width,
        "reproducible": term.spaces[1].reproducible,
        "blocks": tuple(names.index(name) for name in term.tests.spaces),
    }


def point_spec(term: KernelTerm) -> PointSpec:
    """Specification of the kernel that works at the points of a term's rule."""
    rule, code = term.quadrature, term.qfunction.code
    turned = term.domain.has_normals and term.trial.has_end
    if term.tabulated and turned:
        raise OperatorError(
            "elements by tables, and rules of points, have no derivatives on faces yet"
        )
    if isinstance(rule, Quadrature1D) and not term.tabulated:
        weights, d1d = rule.weights, lagrange_derivative_matrix(rule.points, rule.points)
    else:
        weights, d1d = rule.cell_weights(term.domain.cell.dim), np.empty((0, 0))
    return PointSpec(
        **of_term(term, rule, tabulated=term.tabulated),
        qfunction=code,
        weights=weights,
        d1d=d1d,
        geometry=geometry_map(term, code),
        data_dtype=term.data_dtype,
        minima=term.minima,
        sums=term.sums,
    )


def matrix_spec(term: KernelTerm) -> MatrixSpec:
    """Specification of the kernel that multiplies by stored matrices of the elements."""
    given = of_term(term)
    if any(side.halves is not None for side in (*given["sources"], *given["targets"])):
        made = {side: replace(side, halves=None) for side in (*given["sources"], *given["targets"])}
        given |= {key: tuple(made[side] for side in given[key]) for key in ("sources", "targets")}
    return MatrixSpec(**given)


def geometry_map(term: KernelTerm, code: QFunctionCode) -> MapMatrices | None:
    """Matrices from geometry modes to quadrature points. None if the geometry is not read."""
    if not code.numbers.mapped:
        return None
    return LegendreGeometry(term.domain.mesh).maps.matrices(term.quadrature)


def product_spec(
    source: Space, target: Space, matrix: Floats, masked: Space, dtype: np.dtype[Any]
) -> SeparableSpec:
    """Specification of products of element dofs with a matrix (target.p1d, source.p1d).

    Hanging nodes of one of the spaces, ``masked``, take no part.
    """
    each = (matrix,) * source.dim
    given = _between(source, target, dtype)
    for key, space in (("sources", source), ("targets", target)):
        given[key] = tuple(replace(side, masked=space is masked) for side in given[key])
    return SeparableSpec(**given, mass=each, stiffness=each, value=True, gradient=False)


def transfer_spec(
    source: Space, target: Space, matrix: Floats, masked: Space, dtype: np.dtype[Any]
) -> KernelSpec:
    """As `product_spec`, on simplices with a matrix (target, source) of all dofs of an element."""
    if source.mesh.cell.cube:
        return product_spec(source, target, matrix, masked, dtype)
    given = _between(source, target, dtype)
    (one,), (two,), dim = given["sources"], given["targets"], given["dim"]
    zeros = np.zeros((dim, *matrix.shape)), np.zeros((dim, len(matrix), len(matrix)))
    tables = (
        np.concatenate([[values], slopes])
        for values, slopes in zip((matrix, np.eye(len(matrix))), zeros, strict=True)
    )
    sides = [replace(side, table=t) for side, t in zip((one, two), tables, strict=True)]
    given |= {"sources": (sides[0],), "targets": (sides[1],)}
    code = scaling(source.ncomp, QFunctionInputs(element=1))
    return PointSpec(**given, qfunction=code, weights=np.ones(len(matrix)), d1d=np.empty((0, 0)))


def mode_spec(space: Space, vectors: Floats, dtype: np.dtype[Any]) -> PointSpec:
    """Specification of products with `ElementModes` that have the given eigenvectors (n, n)."""
    n = len(vectors)
    side = replace(side_of(space), bases=(np.ascontiguousarray(vectors.T),) * space.dim)
    given = _between(space, space, dtype) | {"sources": (side,), "targets": (side,)}
    code = scaling(space.ncomp, QFunctionInputs(point=1))
    return PointSpec(**given, qfunction=code, weights=np.ones(n), d1d=np.eye(n))


def _between(source: Space, target: Space, dtype: np.dtype[Any]) -> dict[str, Any]:
    return {
        "dim": source.dim,
        "sources": (side_of(source),),
        "targets": (side_of(target),),
        "dtype": dtype,
        "any_width": source.any_width,
        "reproducible": target.reproducible,
    }


# --- terms of 1-D matrices ------------------------------------------------------------------------

# Largest off-diagonal entry of D that counts as round-off of the geometry, relative to the diagonal
# entries of its row and column. By Cauchy and Schwarz such entries add at most this fraction of
# the A-norms of u and v to v A u. Only round-off of maps may be dropped, see `_straight`.
_ROUND_OFF = 1e-13
_NO_MAP = np.empty((0, 0), dtype=object)


def separated(term: KernelTerm, parts: Sequence[Term]) -> tuple[KernelSpec, Data] | None:
    """Specification and data of a separable term, or None if the term is not separable.

    A term is separable if D is constant in each element except for the quadrature weights, and is
    diagonal in slots and components. Examples are mass and diffusion with constant coefficients on
    boxes along the reference axes. If the q-function reads values alone, or writes
    factors of values alone, D is a column or a row of slots, and has to be diagonal in components
    only. An example is convection with a constant velocity on parallelepipeds. Collective on a
    reproducible mesh.
    """
    qfunction = term.qfunction
    if term.tabulated:
        return _in_modes(term)
    numbers, (slots, mixed) = qfunction.numbers, _slots(qfunction)
    if term.several or numbers.point or numbers.mapped or not numbers.weight or not slots:
        return None
    if qfunction.ncomp_in != qfunction.ncomp_out or term.trial.has_end:
        return None
    width, ne = term.width, term.domain.num_elements
    if not ne:
        _on_any_rank(term, False)
        return None
    ncomp = qfunction.ncomp_in
    shape = (-(-ne // width), 1, ncomp * len(slots), width)
    factors = placed_array(shape, term.dtype, term.chunk_batches)
    found: NDArray[np.float64] | None = None
    for start, stop in element_blocks(ne, (ncomp * len(slots)) ** 2):
        d = qfunction.matrix(_numbers(term, start, stop))
        found = _column(d) if mixed else _diagonal(d)
        if found is None:
            break
        store_interleaved(factors, found[:, np.newaxis], start)
    bent = found is None or not (mixed or all(_straight(part) for part in parts))
    if _on_any_rank(term, bent):
        return None
    spec = _spec(term)
    points = np.zeros((len(factors), spec.target.num_nodes, 0, width), term.dtype)
    return spec, replace(term.data, points=points, elements=factors[:, 0])


def _in_modes(term: KernelTerm) -> tuple[PointSpec, Data] | None:
    """Specification and data of a term on affine elements whose D is constant in each element.

    Its integrals are sums of products of coefficients in an orthonormal basis. They take the place
    of values at the points of a rule that is exact for these products, and are fewer. Those of a
    prism are products, as its functions.
    """
    numbers, code = term.qfunction.numbers, term.qfunction.code
    if numbers.point or numbers.mapped or not numbers.weight or not term.domain.on_elements:
        return None
    cell, rule = term.domain.cell, term.quadrature
    spaces = [*term.fields.spaces.values(), *term.tests.spaces.values()]
    order = max(space.order for space in spaces)
    exact = isinstance(rule, PointRule) and rule.degree >= 2 * order
    if cell.cube or not exact or term.minima or term.sums:
        return None
    # derivatives of a simplex's functions have a lower degree, those of products in one factor only
    degree = order - (cell.simplex and not (code.value_in or code.value_out))
    fine = rule_to_degree(cell, 2 * order).points
    changes = [_to_modes(each, degree, 2 * order) for each in cell.factors]
    change = changes[0]
    for then in changes[1:]:
        change = np.asarray(np.kron(then, change), dtype=np.float64)
    tables, factors = dict[DomainSpace, Floats](), dict[DomainSpace, Factors | None]()
    for space in {*spaces}:
        found = factors_of(space.element, fine)
        tables[space] = _products(change, table_of(space.element, fine))
        factors[space] = found and replace(
            found, base=_products(changes[0], found.base), line=_products(changes[1], found.line)
        )
    spec = point_spec(term)
    sources, targets = (
        tuple(
            replace(side, table=tables[space], slopes=None, factors=factors[space])
            for space, side in zip(given.spaces.values(), among, strict=True)
        )
        for given, among in ((term.fields, spec.sources), (term.tests, spec.targets))
    )
    weights = np.full(len(change), cell.volume)
    points = np.zeros((len(term.data.elements), len(change), 0, term.width), term.dtype)
    spec = replace(spec, sources=sources, targets=targets, weights=weights)
    return spec, replace(term.data, points=points)


def _to_modes(cell: Cell, degree: int, exact: int) -> Floats:
    """Matrix (modes, points) from values at the points of a rule to orthonormal coefficients."""
    rule = rule_to_degree(cell, exact)
    modes = simplices.modes(cell, degree, rule.points)  # orthonormal for weights that sum to 1
    return np.asarray(modes.T * (rule.weights * round(1.0 / cell.volume)))


def _products(change: Floats, tables: Floats) -> Floats:
    """Products of a matrix with tables (kinds, points, functions), without round-off."""
    found = np.asarray(np.einsum("mq,kqn->kmn", change, tables))
    found[np.abs(found) < 1e-14] = 0.0
    return found


def _slots(qfunction: QFunction) -> tuple[list[int], bool]:
    """Slots that have a number each in a separable term, and True if values meet derivatives.

    Values meet derivatives if the q-function reads values alone or writes factors of values alone,
    and not both. Without slots the term is not separable.
    """
    out, into = qfunction.slots_out, qfunction.slots_in
    mixed = into != out and [0] in (into, out)
    return max(into, out) if into == out or mixed else [], mixed  # the one with derivatives


def _straight(term: Term) -> bool:
    """True if D would be diagonal on elements that are exactly parallel to the axes.

    A coefficient that couples derivatives or components is never taken for round-off.
    """
    form = term.source
    apart = form.qfunction.structure * (1 - np.eye(len(form.qfunction.structure), dtype=np.int64))
    nodes = [form.qfunction.distinct[k - 1] for k in np.unique(np.abs(apart)).tolist() if k]
    slopes = form.qfunction.trace.static.get(INVERSE, _NO_MAP)
    used = {node.number for node in [*ancestors(nodes), *slopes.flat]}
    for block in form.center if nodes else ():
        inputs = form.inputs(block, used)
        for row in slopes:  # entries other than the largest are round-off on such elements
            most = np.max([np.abs(inputs[node.number]) for node in row], axis=0)
            for number in (node.number for node in row):
                inputs[number] = np.where(np.abs(inputs[number]) < most, 0.0, inputs[number])
        with np.errstate(all="ignore"):
            if any(np.any(value != 0.0) for value in evaluate(nodes, inputs)):
                return False
    return True


def _on_any_rank(term: KernelTerm, bent: bool) -> bool:
    """True if the term is not separable: on this rank (``bent``), or on any rank.

    On a reproducible mesh any rank decides for all, so that all ranks use the same kernel. Then the
    call is collective. On other meshes the result is ``bent``.
    """
    space = term.spaces[0]
    if space.distributed is None or not space.distributed.reproducible:
        return bent
    return bool(space.comm.max(int(bent)))


def _numbers(term: KernelTerm, start: int, stop: int) -> NDArray[np.float64]:
    """Inputs (n, numbers) of the q-function in elements start <= e < stop, without weights."""
    data, first = term.data, start // term.width
    part = data.elements[first : -(-stop // term.width), np.newaxis]
    elements = element_values(part, stop - first * term.width)[start - first * term.width :, 0]
    n, constants = stop - start, data.constants
    given = [elements, np.ones((n, 1)), np.broadcast_to(constants, (n, len(constants)))]
    return np.concatenate(given, axis=1, dtype=np.float64)


def _diagonal(d: NDArray[Any]) -> NDArray[np.float64] | None:
    """Diagonal (ne, components * slots) of D, component by component.

    None if entries of D off the diagonal are more than round-off.
    """
    slots, ncomp = d.shape[:2]
    flat = np.abs(d).reshape(slots * ncomp, slots * ncomp, -1)
    diagonal: NDArray[np.float64] = np.einsum("icice->eci", d).reshape(len(flat[0, 0]), -1)
    size = np.sqrt(np.einsum("iie->ie", flat))
    rest = flat - np.einsum("ie,ij->ije", size**2, np.eye(len(flat)))
    return None if np.any(rest > _ROUND_OFF * size[:, np.newaxis] * size) else diagonal


def _column(d: NDArray[Any]) -> NDArray[np.float64] | None:
    """Entries (ne, components * slots) of D, one column or row of slots, component by component.

    None if components are coupled.
    """
    slots, ncomp = max(d.shape[0], d.shape[2]), d.shape[1]
    flat = np.moveaxis(d, 2, 1).reshape(slots, ncomp, ncomp, -1)
    if np.any(flat[:, ~np.eye(ncomp, dtype=np.bool_)] != 0.0):
        return None
    entries: NDArray[np.float64] = np.einsum("icce->eci", flat)
    return entries.reshape(flat.shape[-1], -1)


def _spec(term: KernelTerm) -> SeparableSpec:
    qfunction, rule = term.qfunction, grid_rule(term.quadrature, "a product")
    points = rule.points
    slots, mixed = _slots(qfunction)
    mass: list[NDArray[np.float64]] = []
    stiffness: list[NDArray[np.float64]] = []
    for test, trial in zip(term.test.tensor.bases, term.trial.tensor.bases, strict=True):
        slopes = [
            basis.interpolation(points) if mixed and read == [0] else basis.gradient(points)
            for basis, read in ((test, qfunction.slots_out), (trial, qfunction.slots_in))
        ]
        values = test.interpolation(points), trial.interpolation(points)
        for found, (one, two) in ((mass, values), (stiffness, slopes)):
            found.append((one.T * rule.weights) @ two)
    return SeparableSpec(
        **of_term(term),
        mass=tuple(mass),
        stiffness=tuple(stiffness),
        value=0 in slots,
        gradient=slots != [0],
    )
