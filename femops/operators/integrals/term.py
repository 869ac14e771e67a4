"""Terms of operators: integrals with their q-function and their data at points for a level."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Rule
from femops.errors import OperatorError
from femops.geometry.domain import Domain, DomainBlock
from femops.geometry.jacobians import Geometry, LegendreGeometry
from femops.operators.integrals.arguments import Arguments, tabulated
from femops.operators.integrals.chunks import chunk_batches
from femops.operators.integrals.coefficients import (
    check_range,
    check_values,
    data_type,
    float_type,
    largest_of,
)
from femops.operators.integrals.integral import Integral, Made
from femops.operators.integrals.state import NO_STATE
from femops.parallel.comm import check
from femops.pointwise import QFunction
from femops.pointwise.expressions.graph import Node, ancestors, same
from femops.pointwise.linear import Pair
from femops.pointwise.qdata_split import (
    NonlinearQFunction,
    QDataSplit,
    nonlinear_split,
    stored_split,
)
from femops.pointwise.sides import Argument
from femops.spaces.domain_space import DomainSpace
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.in_order import in_order
from femops_kernels.cpu.machine import lane_width
from femops_kernels.exclusive import Derived
from femops_kernels.pointwise.qdata import Data, store_interleaved
from femops_kernels.simd.lanes import WIDEST
from femops_kernels.spec import QFunctionInputs
from femops_meshes.mesh import Mesh


@dataclass(frozen=True, eq=False)
class KernelTerm(ABC):
    """A q-function between fields and test functions, with data for it."""

    name: str
    fields: Arguments
    tests: Arguments
    quadrature: Rule
    qfunction: QFunction
    dtype: np.dtype[Any]  # type of vectors and arithmetic
    width: int  # number of lanes
    # type of the numbers stored at points. None if it is ``dtype``.
    data_dtype: np.dtype[Any] | None
    # minima and sums: number of minima and of integrals among a residual's functionals. Their
    # components of the q-function follow those of the test functions.
    minima: int
    sums: int

    @property
    def trial(self) -> DomainSpace:
        """Space of the first field."""
        return self.fields.first

    @property
    def test(self) -> DomainSpace:
        """Space of the first test function."""
        return self.tests.first

    @property
    def domain(self) -> Domain:
        """Domain of the sweep: elements, faces of the boundary, or faces between elements."""
        return self.fields.first.domain

    @property
    def spaces(self) -> tuple[Any, Any]:
        """Trial and test space: the spaces of the input and output vectors."""
        return self.fields.whole, self.tests.whole

    @property
    def several(self) -> bool:
        """True if the term has several fields or test functions, or functionals."""
        return len(self.fields.spaces) + len(self.tests.spaces) + self.minima + self.sums > 2

    @property
    def tabulated(self) -> bool:
        """True if kernels multiply by tables; see `tabulated`."""
        return tabulated(self.fields, self.tests, self.quadrature)

    @property
    def any_width(self) -> bool:
        """True if the bits of results on the host do not depend on the number of lanes."""
        return any(space.any_width for space in self.spaces)

    @property
    def row_width(self) -> int:
        """Number of lanes in which a row of a matrix is summed."""
        return WIDEST if self.any_width else self.width

    @property
    def data_bytes(self) -> tuple[int, int]:
        """Bytes of the data in lanes without geometry modes, and bytes of the modes."""
        numbers, domain, dim = self.qfunction.numbers, self.domain, self.trial.dim
        slots = -(-domain.num_elements // self.width) * self.width
        at_points = slots * self.trial.num_points(self.quadrature) * numbers.point
        stored = at_points * (self.data_dtype or self.dtype).itemsize
        stored += (slots * numbers.element + numbers.constant) * self.dtype.itemsize
        modes = slots * dim * (domain.order + 1) ** dim if numbers.mapped else 0
        return stored, modes * self.dtype.itemsize

    @property
    def chunk_batches(self) -> NDArray[np.int64]:
        """First batch of each chunk of a sweep, and the number of batches: (chunks + 1,)."""
        return chunk_batches(self.fields, self.tests, self.dtype, self.width)

    @property
    @abstractmethod
    def data(self) -> Data:
        """Data that a kernel reads besides vectors and indices."""

    @property
    @abstractmethod
    def data_without_points(self) -> Data:
        """Data of the kernel without the numbers at points."""

    @property
    @abstractmethod
    def looked_at(self) -> bool:
        """True if a device computes or checks data of the term, instead of the host."""

    @property
    @abstractmethod
    def parts(self) -> Any:
        """All summands (factor, term) if a device computes or checks data; else empty."""


@final
@dataclass(frozen=True, eq=False)
class GivenTerm(KernelTerm):
    """Term that gets its data when it is made. Fused sums and data programs are such terms."""

    given: Data  # the data. They have no numbers at points if ``parts`` is not empty.
    parts: Any = ()

    @property
    def data(self) -> Data:
        return self.given

    @property
    def looked_at(self) -> bool:
        return bool(self.parts)

    @property
    def data_without_points(self) -> Data:
        return replace(self.data, points=self.data.points[:, :, :0])


_mode_lanes = Derived[Mesh, NDArray[Any]]()


def mode_lanes(
    mesh: Mesh,
    dtype: np.dtype[Any],
    width: int,
    edges: NDArray[np.int64],
    numbers: QFunctionInputs,
) -> NDArray[Any]:
    """Return the geometry modes (nbatch, *shape, width) that a q-function reads, in lanes.

    The modes are computed once for a mesh, type and width. For their shape see `Maps`.

    Slots past the last element repeat its modes, so that they have a valid Jacobian. The memory is
    near the threads of the first sweep, whose chunks begin at the batches ``edges``.
    """

    def make() -> NDArray[Any]:
        ne = mesh.num_elements
        out = placed_array((-(-ne // width), *shape, width), dtype, edges)
        for start, values in geometry.blocks(slopes=slopes, places=places):
            store_interleaved(out, values, start)
        if ne:  # a rank may have no elements
            filled = ne - (len(out) - 1) * width
            out[-1, :, :, filled:] = out[-1, :, :, filled - 1 : filled]
        return out

    geometry, slopes, places = LegendreGeometry(mesh), numbers.jacobian > 0, numbers.position > 0
    shape = geometry.maps.shape(slopes, places)  # differs by the modes that are read
    return _mode_lanes.get(mesh, make, dtype.str, width, shape)


def data_of(
    form: Integral,
    qdata_split: QDataSplit,
    dtype: np.dtype[Any],
    width: int,
    data_dtype: np.dtype[Any] | None = None,
    *,
    at_points: bool = True,
    looks: bool = True,
) -> Data:
    """Compute the data that the kernel of an integral reads, block by block."""
    ne, numbers = form.domain.num_elements, qdata_split.qfunction.numbers
    edges = chunk_batches(form.fields, form.tests, dtype, width)
    swept = _swept(form, qdata_split, dtype, width) if at_points and not data_dtype else None
    nodes = qdata_split.point if at_points and swept is None else []
    stored, finite = _stored(form, nodes, (data_dtype or dtype, width, edges), data_dtype is None)
    elements = placed_array((-(-ne // width), 1, numbers.element, width), dtype, edges)
    for block in form.center if numbers.element else ():
        values = form.values(qdata_split.element, block, check=False)
        finite &= bool(np.isfinite(values).all())
        check_values(f"{form.name}: the data of elements", values, dtype)
        store_interleaved(elements, values, block.start)
    constants = np.zeros(len(qdata_split.constant), dtype)
    if ne:  # constants are the same in all elements
        values = form.values(qdata_split.constant, form.center.block(0, 1), check=False)[0, 0]
        finite &= bool(np.isfinite(values).all())
        check_values(f"{form.name}: constants that kernels read", values, dtype)
        constants[:] = values
    if not finite:
        form.check(qdata_split.finite)
    if qdata_split.computed and at_points and looks and swept is None:
        form.check(qdata_split.computed)
    modes: NDArray[Any] = np.zeros(0, dtype)
    if numbers.mapped:
        assert isinstance(form.geometry, Geometry)
        if looks:
            form.geometry.check()
        modes = mode_lanes(form.geometry.mesh, dtype, width, edges, numbers)
    return Data(stored if swept is None else swept, elements[:, 0], modes, constants)


def _stored(
    form: Integral,
    nodes: list[Node],
    lanes: tuple[np.dtype[Any], int, NDArray[np.int64]],
    own_type: bool,
) -> tuple[NDArray[Any], bool]:
    """Numbers at points (nbatch, points, nodes, width), and True if all are finite."""
    dtype, width, edges = lanes
    shape = -(-form.domain.num_elements // width), form.geometry.num_points, len(nodes), width
    stored, finite, largest = placed_array(shape, dtype, edges), True, 0.0
    what = f"{form.name}: the data at quadrature points"
    cure = "use float64" if own_type else "leave data_dtype out"
    ranged = dtype == np.float32 and not form.state.spaces
    used = {node.number for node in ancestors(nodes)}
    alone = nodes and form.looks and form.weight.number not in used
    if alone and isinstance(form.geometry, Geometry):
        form.geometry.check()  # takes less work than the weights of all points

    def store(block: DomainBlock) -> tuple[bool, float]:
        values = form.values(nodes, block, check=False)
        with np.errstate(over="ignore"):  # reported below
            store_interleaved(stored, values, block.start)
        return bool(np.isfinite(values).all()), largest_of(values) if ranged else 0.0

    for well, size in in_order(store, form.geometry if nodes else ()):
        finite, largest = finite and well, max(largest, size)
        check_range(what, largest, dtype, cure)
    if largest and not own_type:
        check_range(what, largest, dtype, cure, whole=True)
    return stored, finite


def _swept(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> NDArray[Any] | None:
    """Numbers at points, computed by a sweep. None if NumPy should compute them.

    NumPy names numbers that are not finite, and determinants that are not positive.
    """
    if not qdata_split.point:
        return None
    points = form.state.points(form, qdata_split, dtype, width)
    if points is None or form.state.spaces:  # a bad state shows in its residual
        return points
    assert isinstance(form.geometry, Geometry)
    form.geometry.check()
    ends = points.min(initial=0.0), points.max(initial=0.0)  # a sum may overflow, on some ranks
    return points if np.isfinite(ends).all() else None


def setup_of(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> tuple[QDataSplit, Data]:
    """Program that computes the numbers of a split at points, and the data of the program.

    Program and data do not depend on the values of the state, and are made once. On a device the
    data have no geometry, except for faces.
    """
    key = dtype, width, tuple(node.number for node in qdata_split.point)
    if key not in form.setups:
        static, given = dict(form.static), next(iter(form.program.fields.values()))
        parts = [Argument(static.pop(n), static.pop(f"d{n}")) for n in form.state.spaces]
        if parts:
            given = Argument.joined(parts)
        trace, nodes = replace(form.program, static=static), qdata_split.point
        there = form.has_maps if form.state.filled else form.has_maps and not parts
        split = stored_split if there else nonlinear_split
        found = split(trace, given, nodes, len(nodes), form.known)
        step = NonlinearQFunction(trace) if parts else form.traced
        plain = replace(form, state=NO_STATE, traced=step)
        form.setups[key] = found, data_of(plain, found, dtype, width, looks=not there)
    found_already: tuple[QDataSplit, Data] = form.setups[key]
    return found_already


AT_POINTS = "at points"
"""Level of terms whose kernel reads no geometry. Numbers that depend on it are at points."""

DATA_LEVELS = (AT_POINTS, "partial", "matrix-free")
"""Levels whose kernels call the q-function."""


@final
@dataclass(frozen=True, eq=False)
class Term(KernelTerm):
    """Integral with its q-function and data for a level."""

    source: Integral  # integral from which the data are computed
    level: str = "partial"  # level that decides which numbers are stored
    given: Data | None = None  # data, if known when the term is made
    # term of which this term is the transpose. None if this term is not a transpose.
    original: Term | None = None
    scale: float = 1.0  # factor of the numbers at points in a fused kernel, applied before rounding

    @staticmethod
    def make(
        form: Integral,
        dtype: DTypeLike,
        lanes: int | None,
        level: str,
        data_dtype: DTypeLike | None = None,
    ) -> Term:
        """Make the term of a form at a level, without its data; see `ready`."""
        kind = float_type(dtype)
        term = Term._part(form, kind, lane_width(kind, lanes), level, data_type(data_dtype, kind))
        code = term.qfunction.code
        _check_orders(form.name, form.fields, code.slopes_in, code.values_in)
        _check_orders(form.name, form.tests, code.slopes_out, code.values_out)
        return term

    @staticmethod
    def _part(
        form: Integral, dtype: np.dtype[Any], width: int, level: str, data: np.dtype[Any] | None
    ) -> Term:
        """Make the term of a part of a form, which may have only the gradient of an argument."""
        term = Term._of(form, level, dtype, width)
        return term if data is None or data == dtype else replace(term, data_dtype=data)

    @staticmethod
    def _of(form: Integral, level: str, dtype: np.dtype[Any], width: int) -> Term:
        return Term(
            name=form.name,
            fields=form.fields,
            tests=form.tests,
            quadrature=form.quadrature,
            qfunction=form.qdata_split(level).qfunction,
            dtype=dtype,
            width=width,
            data_dtype=None,
            minima=0,
            sums=0,
            source=form,
            level=level,
        )

    @staticmethod
    def of_residual(
        form: Integral,
        dtype: np.dtype[Any],
        width: int,
        minima: int = 0,
        sums: int = 0,
        level: str = "partial",
    ) -> Term:
        """Make the term of a nonlinear form, with ``minima`` minima and ``sums`` integrals."""
        return replace(Term._of(form, level, dtype, width), minima=minima, sums=sums)

    def written(self, factor: float) -> str:
        """Name of the term times a factor, with the source line in place of a lambda's name."""
        label = self.name.replace(self.source.name, self.source.label)
        return label if factor == 1.0 else f"{factor:g} {label}"

    @property
    def symmetric(self) -> bool:
        """True if the term is known to equal its transpose. Else False."""
        return self.qfunction.symmetric and self.fields.same(self.tests)

    @cached_property
    def qdata_split(self) -> QDataSplit:
        """Decision which inputs of the q-function are stored at points, in elements, or once."""
        return self.source.qdata_split(self.level, transpose=self.original is not None)

    @cached_property
    def data(self) -> Data:
        if self.given is not None:
            return self.given
        given = self.qdata_split, self.dtype, self.width, self.data_dtype
        return data_of(self.source, *given, looks=self.source.looks)

    @property
    def rounds(self) -> bool:
        """True if the level stores numbers at points and rounds them to ``data_dtype``."""
        stores = self.level in DATA_LEVELS and self.qfunction.numbers.point > 0
        return self.data_dtype is not None and stores

    def in_sum(self, factor: float) -> Term:
        """Copy of the term for a fused kernel, which multiplies the term's data by a factor."""
        if not self.rounds or factor == 1.0:
            return self
        known = None if self.filled else self.data
        return replace(self, given=known, scale=factor)

    def with_wide_data(self) -> Term:
        """Copy of the term without ``data_dtype``, for use at any level.

        The copy rounds exactly the numbers that this term rounds.
        """
        if self.data_dtype is None:
            return self
        form, stored = self.source, self.qdata_split.point if self.rounds else []
        source = replace(form, rounded=tuple(stored), traced=form.qfunction)
        return replace(self, source=source, data_dtype=None, given=None)

    def of_source(self, source: Integral) -> Term:
        """Copy of the term, without data, with another copy of its form."""
        original = None if self.original is None else self.original.of_source(source)
        qfunction = source.qdata_split(self.level, transpose=original is not None).qfunction
        return replace(self, qfunction=qfunction, source=source, given=None, original=original)

    @property
    def data_without_points(self) -> Data:
        if self.given is not None:
            return replace(self.data, points=self.data.points[:, :, :0])
        given = self.qdata_split, self.dtype, self.width
        return data_of(self.source, *given, at_points=False, looks=False)

    @property
    def filled(self) -> bool:
        """True if a device computes the numbers stored at points."""
        return self.source.filled(self.qdata_split)

    @property
    def looked_at(self) -> bool:
        if self.source.looks:
            return self.filled
        mapped = self.qfunction.numbers.mapped
        return self.filled or mapped or bool(self.qdata_split.computed)

    @property
    def parts(self) -> Sum:
        """See `KernelTerm.parts`. A copy, because data derived from a term must not refer to it."""
        return Sum([(1.0, replace(self, given=None if self.filled else self.data))])

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or another process, which splits the data again."""
        return {k: v for k, v in self.__dict__.items() if k != "qdata_split"}

    def blocks(self) -> list[Term]:
        """Split a term on a product into terms with one test function and one field.

        Each new term works on vectors of its own spaces. A term on one space is not changed, except
        on faces between elements, where it has a block for each side of test function and field.
        """
        if not (self.fields.on_product or self.fields.two_sided):
            return [self]
        return [self.block(*pair) for pair in self.pairs]

    @property
    def pairs(self) -> list[Pair]:
        """Test function and field of each block that is not zero."""
        if self.original is not None:
            return [(field, test) for test, field in self.original.pairs]
        return self.source.qfunction.pairs

    def block(self, test: str, field: str) -> Term:
        """Part of the term with one test function and one field, on vectors of their spaces.

        The part is made once and kept.
        """
        if self.original is not None:
            return self.original.block(field, test).transposed()
        form, kinds = self.source.block(test, field), (self.dtype, self.width, self.level)
        known, key = self.source._terms, ((test, field), (*kinds, self.data_dtype))
        if key not in known:
            known[key] = Term._part(form, *kinds, self.data_dtype).ready(self.level)
        found: Term = known[key]
        return found

    def ready(self, level: str) -> Term:
        """Compute the term's data, or check them if they are not stored. Return the term."""
        if not self.domain.num_elements:
            return self
        if self.filled:
            setup_of(self.source, self.qdata_split, np.dtype(np.float64), self.width)
        elif level in DATA_LEVELS and not (self.several and level == AT_POINTS):
            _ = self.data
        else:
            self.source.check([*self.qdata_split.finite, *self.qdata_split.computed])
        return self

    def ready_everywhere(self, level: str) -> Term:
        """`Term.ready` on all ranks. Collective: all ranks raise if one does."""
        with check(self.spaces[0].comm):
            return self.ready(level)

    def at_level(self, level: str) -> Term:
        """Copy of the term at another level. Data are reused if both levels store the same data."""
        qdata_split = self.source.qdata_split(level, transpose=self.original is not None)
        alike = qdata_split.qfunction == self.qfunction and same(
            qdata_split.kept, self.qdata_split.kept
        )
        known = self.__dict__.get("data", self.given) if alike and level in DATA_LEVELS else None
        original = None if self.original is None else self.original.at_level(level)
        return replace(
            self, qfunction=qdata_split.qfunction, level=level, given=known, original=original
        )

    def transposed(self) -> Term:
        """Transpose of the term: trial and test space are exchanged."""
        if self.symmetric:
            return self
        if self.original is not None:
            return self.original
        qdata_split = self.source.qdata_split(self.level, transpose=True)
        return replace(
            self,
            name=f"{self.name}.T",
            fields=self.tests,
            tests=self.fields,
            qfunction=qdata_split.qfunction,
            given=self.__dict__.get("data")
            if same(self.qdata_split.kept, qdata_split.kept)
            else None,
            original=self,
        )

    def updated(self, form: Integral) -> Term:
        """Copy of the term with ``form``, which has new coefficients but is otherwise the same."""
        new, old = form.coefficient_shapes(), self.source.coefficient_shapes()
        if any(new[name].on_side != old[name].on_side for name in old):
            raise OperatorError(
                f"the new coefficients of {self.name} have another shape or symmetry: "
                "make a new operator"
            )
        return self.of_source(form)

    def fusible(self, other: Term) -> bool:
        """True if one kernel can apply both terms."""
        mine, theirs = self.quadrature, other.quadrature
        dim = self.domain.cell.dim
        same = mine is theirs or (
            mine.key == theirs.key
            and np.array_equal(mine.cell_weights(dim), theirs.cell_weights(dim))
        )
        spaces = self.fields.same(other.fields) and self.tests.same(other.tests)
        alike = self.width == other.width and self.data_dtype == other.data_dtype
        return same and spaces and alike


def _check_orders(
    name: str, arguments: Arguments, slopes: Sequence[int], values: Sequence[int]
) -> None:
    """Raise if a form uses only the gradient of an argument of order 0."""
    first = 0
    for space in arguments.spaces.values():
        mine = range(first, first + space.ncomp)
        first += space.ncomp
        if space.order == 0 and not {*mine}.isdisjoint(slopes) and {*mine}.isdisjoint(values):
            raise OperatorError(f"{name}: a space of order 0 has no gradient")


@final
class Sum(tuple[tuple[float, Term], ...]):
    """Sum of terms with factors. A sum has at least one term."""

    __slots__ = ()

    @property
    def first(self) -> Term:
        """The first term. All terms have its type, and in a group its domain and spaces."""
        return self[0][1]

    def map(self, change: Callable[[Term], Term]) -> Sum:
        """The sum of changed terms, with the same factors."""
        return Sum((factor, change(term)) for factor, term in self)

    def at_level(self, level: str) -> Sum:
        """The sum with the q-functions of a level."""
        return self.map(lambda term: term.at_level(level))


def updated(summands: Sum, values: Mapping[str, Any], level: str, made: Made) -> Sum:
    """Copy the terms, with new values of their coefficients by name.

    All terms share ``made``, see `Integral.with_coefficients`.
    """
    terms: list[tuple[float, Term]] = []
    used: set[str] = set()
    for factor, old in summands:
        term, form = old, old.source
        mine = {name: value for name, value in values.items() if name in form.coefficients}
        if mine:
            term = old.updated(form.with_coefficients(mine, made)).ready_everywhere(level)
        used |= mine.keys()
        terms.append((factor, term))
    unknown = sorted(values.keys() - used)
    if unknown:
        names = " + ".join(term.name for _, term in summands)
        known = {name for _, term in summands for name in term.source.coefficients}
        has = ", ".join(sorted(known)) or "none"
        raise OperatorError(f"no term of {names} has a coefficient {unknown[0]!r}: they have {has}")
    return Sum(terms)
