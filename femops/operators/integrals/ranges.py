"""Checks that the numbers of float32 operators are in range, done when an operator is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops.geometry.domain import DomainBlock
from femops.geometry.jacobians import GeometryBlock
from femops.operators.integrals.coefficients import check_range, largest_of
from femops.operators.integrals.integral import Integral, with_all_digits
from femops.operators.integrals.term import Term
from femops.parallel.comm import check
from femops.pointwise.expressions.graph import Node, ancestors, substitute
from femops.pointwise.expressions.operations import FAILING
from femops.pointwise.qdata_split import expressions
from femops.pointwise.qfunction import evaluate
from femops.pointwise.trace import NORMAL, POSITION
from femops_meshes.coordinates.mapping import determinants

_TINY, _MOST, _EPS = (float(getattr(np.finfo(np.float32), n)) for n in ("tiny", "max", "eps"))
_LOST = 1e-10  # relative error in float64 that is more than round-off
_NONE = np.empty(0, dtype=object)
# Kinds of checked numbers, in the words of a message.
_WHAT = (
    "constants that kernels read",
    "factors of fields and test functions",
    "coordinates",
    "determinants of the elements' maps",
    "reciprocals of these determinants",
)


def in_range(term: Term) -> Term:
    """Return the term after a check that its numbers fit in float32. Collective.

    Stored numbers are checked where they are computed, and so are all of float64.  This function
    checks numbers that kernels compute: the entries of D, the numbers on the way to these,
    and at the matrix-free level coordinates and determinants.  If a type cannot hold numbers inside
    the expressions of coefficients, the returned term is closed, see `Known`.
    """
    form = term.source
    if form.state.spaces:
        return term  # a bad state shows in its residual
    if term.dtype != np.float32:
        if form.closed or closes(form, term.dtype):
            return _closed(term)
        return term
    comm = form.fields.whole.comm
    with check(comm):  # a rank may have an inverted element
        largest = _largest(term, form)
    largest = comm.max(largest)
    for what, most in zip(_WHAT, largest.tolist(), strict=True):
        if most:
            check_range(f"{form.name}: the {what}", most, term.dtype, whole=True)
    if not (form.closed or closes(form, term.dtype) or _errs(term)):
        return term
    return _closed(term)


def _closed(term: Term) -> Term:
    """The term, closed. Raise if its kernel needs numbers beyond its type. Collective."""
    form = term.source
    closed = term
    if not form.closed:
        closed = term.of_source(replace(form, closed=True, traced=form.qfunction))
    if _errs(closed):
        wider = ", or use float64" * (term.dtype == np.float32)
        raise OperatorError(
            f"{form.name}: between the coefficients and the factors of the fields, numbers at "
            f"level {term.level!r} are beyond the range of {term.dtype}: multiply coefficients "
            f"with each other before the field, scale them, or take level='partial'{wider}"
        )
    return closed


def closes(form: Integral, dtype: np.dtype[Any]) -> bool:
    """True if kernels of a type must read expressions of coefficients whole. Collective.

    This is so if float32 gives other values than float64 to them: not rounded, but zero or
    infinite. In float64 it is so if a wider type gives other values.
    """
    if dtype == np.float32:
        return bool(np.any(_expressions(form, inputs=False)[1]))
    outputs = [node for test in form.program.tests.values() for node in test.flat()]
    outputs = substitute(outputs, {})
    if not any(node.op in FAILING for node in ancestors(outputs)):
        return False
    nodes = form.whole(outputs)
    comm, lost = form.fields.whole.comm, False
    with check(comm):
        for block in _blocks(form, nodes) if nodes else ():
            inputs = form.inputs(block, {node.number for node in ancestors(nodes)})
            lost = lost or with_all_digits(nodes, inputs)[1]
    return bool(comm.max(int(lost)))


def closes_nonlinear(form: Integral, dtype: np.dtype[Any]) -> bool:
    """`closes` for a form whose factors of the fields are not known. Collective."""
    if dtype != np.float32:
        return closes(form, dtype)
    largest, leave = _expressions(form, inputs=True)
    for most in largest[leave].tolist():
        if most and not _TINY <= most <= _MOST:
            check_range(f"{form.name}: numbers that multiply fields", most, dtype, whole=True)
    return bool(leave.any())


def _expressions(form: Integral, *, inputs: bool) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Largest value of each of the form's `expressions`, and True where float32 loses it.

    Coefficients that are no part of a larger expression belong to these if ``inputs`` is true.
    """
    traced = form.program
    outputs = [node for test in traced.tests.values() for node in test.flat()]
    moving = {node.number for field in traced.fields.values() for node in field.flat()}
    nodes = expressions(traced, substitute(outputs, {}), moving)
    nodes = [node for node in nodes if inputs or node.args]
    found = np.zeros((2, len(nodes)))
    if nodes:
        with check(form.fields.whole.comm):
            for block in _blocks(form, nodes):
                _compare(form, nodes, block, found)
        found = form.fields.whole.comm.max(found)
    return found[0], found[1] > _EPS * found[0]


def _compare(
    form: Integral, nodes: list[Node], block: DomainBlock, found: NDArray[np.float64]
) -> None:
    """Update largest values and errors, ``found`` (2, nodes), by those in a block of elements."""
    order = ancestors(nodes)
    inputs = form.inputs(block, {node.number for node in order})
    limited = {number: _Limited.of(values) for number, values in inputs.items()}
    with np.errstate(all="ignore"):
        pairs = zip(evaluate(nodes, inputs, order), evaluate(nodes, limited, order), strict=True)
        for k, (exact, single) in enumerate(pairs):
            found[0, k] = max(found[0, k], largest_of(np.asarray(exact)))
            found[1, k] = max(found[1, k], _difference(exact, single))


def _errs(term: Term) -> bool:
    """True if a kernel loses D between a test function and a field. Collective.

    Rounding does not count, only numbers that become zero or infinite, or lose digits in float64.
    """
    single = term.dtype == np.float32
    form, step, qfunction = term.source, term.source.qfunction, term.qfunction
    pairs = step.pairs
    structure = step.structure if term.original is None else step.structure.T
    rows, columns = (
        [slot * n + c for slot in slots for c in range(n)]
        for slots, n in (
            (qfunction.slots_out, qfunction.ncomp_out),
            (qfunction.slots_in, qfunction.ncomp_in),
        )
    )
    found = np.zeros((2, len(pairs)))
    for block in _blocks(form, step.distinct):
        q = _numbers_of(term, block)
        with np.errstate(all="ignore"):
            D = qfunction.matrix(_Limited.of(q) if single else q)
        D = D.reshape(len(rows), len(columns), *q.shape[:-1])
        distinct = form.values(step.distinct, block)
        exact = np.sign(structure)[..., np.newaxis, np.newaxis] * np.moveaxis(
            distinct[..., np.abs(structure) - 1], (0, 1), (2, 3)
        )
        made = np.zeros(exact.shape)
        made[np.ix_(rows, columns)] = D
        for k, (test, field) in enumerate(pairs):
            places = step.places(step.trace.tests, test), step.places(step.trace.fields, field)
            part = np.ix_(*(places if term.original is None else places[::-1]))
            found[0, k] = max(found[0, k], _difference(exact[part], made[part]))
            found[1, k] = max(found[1, k], largest_of(exact[part]))
    errors, largest = form.fields.whole.comm.max(found)
    return bool(np.any(errors > (_EPS if single else _LOST) * largest))


def _numbers_of(term: Term, block: DomainBlock) -> NDArray[np.float64]:
    """Inputs ``q`` (n, points, numbers) of a term's q-function, in float64."""
    form, split, numbers = term.source, term.qdata_split, term.qfunction.numbers
    det = block.det
    weight = np.ones_like(det)
    parts = [form.values(split.element, block, check=False)]
    if numbers.jacobian:
        assert isinstance(block, GeometryBlock)
        parts.append(block.jacobian.reshape(*weight.shape, -1))
        det = determinants(block.jacobian)  # with the sign of a mirrored element
    if form.weight.number not in {n.number for n in ancestors([*split.element, *split.point])}:
        weight = block.weighted_det / det
    if numbers.position:
        parts.append(block.points)
    if numbers.weight:
        parts.append(weight[..., np.newaxis])
    parts += [form.values(nodes, block, check=False) for nodes in (split.constant, split.point)]
    return np.concatenate(parts, axis=-1)


def _difference(exact: Any, found: Any) -> float:
    """Largest difference of numbers where the exact ones are finite; infinite instead of NaN."""
    difference = np.abs(np.asarray(found) - np.asarray(exact))
    difference = np.where(np.isnan(difference), np.inf, difference)
    return float(difference.max(initial=0.0, where=np.isfinite(np.asarray(exact))))


@final
class _Limited(np.ndarray[Any, np.dtype[Any]]):
    """float64 numbers that become zero or infinite where numbers of float32 would."""

    @staticmethod
    def of(values: Any) -> Any:
        """Convert numbers. Truth values are returned unchanged."""
        plain = np.asarray(values)
        if plain.dtype.kind != "f":
            return plain
        size = np.abs(plain)
        plain = np.where(size < _TINY, 0.0, plain)
        plain = np.where(size > _MOST, np.copysign(np.inf, plain), plain)
        return plain.view(_Limited)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = (np.asarray(_Limited.of(value)) for value in inputs)
        return _Limited.of(getattr(ufunc, method)(*plain, **options))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return _Limited.of(array)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        plain = (np.asarray(_Limited.of(value)) for value in args)
        return _Limited.of(function(*plain, **kwargs))


def _largest(term: Term, form: Integral) -> NDArray[np.float64]:
    """Largest absolute values of each kind of numbers in `_WHAT`, on this rank."""
    mapped = term.qfunction.numbers.mapped
    largest = np.zeros(len(_WHAT))
    for block in _blocks(form, form.qfunction.distinct):
        entries = form.values(form.qfunction.distinct, block)
        constants = form.values(term.qdata_split.constant, block, check=False)
        found = [constants, entries]
        if mapped:
            found += [block.points, block.det, 1.0 / block.det]
        for kind, values in enumerate(found):
            largest[kind] = max(largest[kind], largest_of(values))
    return largest


def check_weights(form: Integral, dtype: np.dtype[Any]) -> None:
    """Raise if the volumes of all elements are out of a float32 integral's range. Collective."""
    if dtype == np.float32:
        comm = form.fields.whole.comm
        with check(comm):
            largest = max((largest_of(block.weighted_det) for block in form.center), default=0.0)
        largest = comm.max(largest)
        if largest:
            check_range(f"{form.name}: {_WHAT[3]}", largest, dtype, whole=True)


def _blocks(form: Integral, nodes: list[Node]) -> Iterator[DomainBlock]:
    """Yield blocks of points at which values of nodes are checked.

    One point in each element is enough if only the geometry varies within elements. Other
    coefficients are known at the quadrature points only.
    """
    known, static = form.known, form.static
    used = {node.number for node in ancestors(nodes)}
    placed = {node.number for name in (POSITION, NORMAL) for node in static.get(name, _NONE).flat}
    if set(form.coefficients) <= known.constants | known.elementwise and not used & placed:
        yield from form.center
    else:
        yield from form.geometry
