"""One term of an operator: a form, cut at the quadrature points, and the data stored for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.geometry.boundary import BoundaryFaces
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.chunks import chunk_batches
from femops.operators.integrals.integral import Integral, Made
from femops.operators.integrals.number_types import data_type, float_type
from femops.operators.integrals.point_data import data_of, setup_of
from femops.pointwise import QDataSplit, QFunction
from femops.pointwise.expressions.graph import same
from femops.pointwise.linear import Pair
from femops.spaces.boundary_space import AnySpace
from femops_kernels.cpu.machine import lane_width
from femops_kernels.pointwise.qdata import Data
from femops_kernels.simd.lanes import WIDEST
from femops_meshes.mesh import Mesh

DATA_LEVELS = ("decomposed", "partial", "matrix-free")
"""Levels whose kernels take the q-function."""


@final
@dataclass(frozen=True, eq=False)
class Term:
    """A bilinear form, cut at the quadrature points.

    Attributes
    ----------
    name : str
    fields, tests : Arguments
    quadrature : Quadrature1D
    qfunction : QFunction
    dtype : numpy.dtype
        Type of vectors and arithmetic.
    width : int
        SIMD slots.
    source : Integral or None
        Where the data come from; None for a sum, whose data are given.
    level : str
        For which the form was cut.
    given : Data or None
        The data, if known beforehand.
    original : Term or None
        Of a transposed term, the one that it is the transpose of.
    data_dtype : numpy.dtype, optional
        Type of the numbers stored at points, if it is not ``dtype``.
    parts : tuple of (float, Term)
        Of a sum, if kernels look at any of its terms: these with their factors.
    scale : float
        Factor by which a fused kernel multiplies numbers at points before it rounds them.
    minima, sums : int
        Functionals of a residual: these components of its q-function come after those of the test
        functions.
    """

    name: str
    fields: Arguments
    tests: Arguments
    quadrature: Quadrature1D
    qfunction: QFunction
    dtype: np.dtype[Any]
    width: int
    source: Integral | None
    level: str = "partial"
    given: Data | None = None
    original: Term | None = None
    data_dtype: np.dtype[Any] | None = None
    parts: tuple[tuple[float, Term], ...] = ()
    scale: float = 1.0
    minima: int = 0
    sums: int = 0

    @staticmethod
    def make(
        form: Integral,
        dtype: DTypeLike,
        lanes: int | None,
        level: str,
        data_dtype: DTypeLike | None = None,
    ) -> Term:
        """Term of a form; see `ready` for its data.

        Raises
        ------
        OperatorError
            A type that is not float64 or float32, or data wider than the arithmetic.
        """
        kind = float_type(dtype)
        stored = data_type(data_dtype, kind)
        qfunction, width, rule = (
            form.qdata_split(level).qfunction,
            lane_width(kind, lanes),
            form.quadrature,
        )
        code = qfunction.code
        _check_orders(form.name, form.fields, code.slopes_in, code.values_in)
        _check_orders(form.name, form.tests, code.slopes_out, code.values_out)
        term = Term(form.name, form.fields, form.tests, rule, qfunction, kind, width, form, level)
        return term if stored == kind else replace(term, data_dtype=stored)

    @staticmethod
    def of_residual(
        form: Integral, dtype: np.dtype[Any], width: int, minima: int = 0, sums: int = 0
    ) -> Term:
        """Term of a form that is not linear, with all its fields, test functions, functionals."""
        qfunction, rule = form.qdata_split("partial").qfunction, form.quadrature
        term = Term(form.name, form.fields, form.tests, rule, qfunction, dtype, width, form)
        return replace(term, minima=minima, sums=sums)

    @property
    def trial(self) -> AnySpace:
        """The field's space, or that of the first one."""
        return self.fields.first

    @property
    def test(self) -> AnySpace:
        """The test function's space, or that of the first one."""
        return self.tests.first

    @property
    def mesh(self) -> Mesh | BoundaryFaces:
        """The elements of the domain: those of a mesh, or faces of its boundary."""
        return self.fields.first.mesh

    @property
    def spaces(self) -> tuple[Any, Any]:
        """Trial and test space of the vectors."""
        return self.fields.whole, self.tests.whole

    @property
    def several(self) -> bool:
        """True if there are several fields or test functions, or functionals."""
        return len(self.fields.spaces) + len(self.tests.spaces) + self.minima + self.sums > 2

    @property
    def any_width(self) -> bool:
        """True if results on the host have the same bits for lanes of any width."""
        return any(space.any_width for space in self.spaces)

    @property
    def symmetric(self) -> bool:
        """True if the term is known to equal its transpose."""
        return self.qfunction.symmetric and self.fields.same(self.tests)

    @property
    def row_width(self) -> int:
        """Number of slots in which a row of a matrix is summed."""
        return WIDEST if self.any_width else self.width

    @property
    def on_boundary(self) -> bool:
        """True if the integral is over boundary faces: its sweep only adds to the result."""
        return isinstance(self.mesh, BoundaryFaces)

    @cached_property
    def qdata_split(self) -> QDataSplit:
        """Split of what the q-function is given, of a term that has a source."""
        assert self.source is not None
        return self.source.qdata_split(self.level, transpose=self.original is not None)

    @cached_property
    def data(self) -> Data:
        """Data that a kernel reads besides vectors and indices."""
        if self.given is not None:
            return self.given
        assert self.source is not None
        given = self.qdata_split, self.dtype, self.width, self.data_dtype
        return data_of(self.source, *given, looks=self.source.looks)

    @property
    def rounds(self) -> bool:
        """True if the level stores numbers at points, and rounds them to ``data_dtype``."""
        stores = self.level in DATA_LEVELS and self.qfunction.numbers.point > 0
        return self.data_dtype is not None and stores

    def in_sum(self, factor: float) -> Term:
        """The term as part of a fused kernel, which multiplies its data by a factor."""
        if not self.rounds or factor == 1.0:
            return self
        known = None if self.filled else self.data
        return replace(self, given=known, scale=factor)

    def with_wide_data(self) -> Term:
        """The same integral without ``data_dtype``, for any level.

        The numbers that this term rounds stay rounded; no others are.
        """
        if self.data_dtype is None or self.source is None:
            return self
        form, stored = self.source, self.qdata_split.point if self.rounds else []
        source = replace(form, rounded=tuple(stored), traced=form.qfunction)
        return replace(self, source=source, data_dtype=None, given=None)

    @property
    def data_without_points(self) -> Data:
        """The data without what is stored at points."""
        if self.given is not None or self.source is None:
            return replace(self.data, points=self.data.points[:, :, :0])
        given = self.qdata_split, self.dtype, self.width
        return data_of(self.source, *given, at_points=False, looks=False)

    @property
    def data_bytes(self) -> tuple[int, int]:
        """Bytes of the data but modes, and of modes, as lanes have them; nothing is computed."""
        numbers, mesh, dim = self.qfunction.numbers, self.mesh, self.trial.dim
        slots = -(-mesh.num_elements // self.width) * self.width
        at_points = slots * self.quadrature.q1d**dim * numbers.point
        stored = at_points * (self.data_dtype or self.dtype).itemsize
        stored += (slots * numbers.element + numbers.constant) * self.dtype.itemsize
        modes = slots * dim * (mesh.order + 1) ** dim if numbers.mapped else 0
        return stored, modes * self.dtype.itemsize

    @property
    def filled(self) -> bool:
        """True if kernels compute what is stored at points, where they run."""
        return self.source is not None and self.source.filled(self.qdata_split)

    @property
    def looked_at(self) -> bool:
        """True if kernels look, where they run, at what they store or compute of the geometry."""
        if self.source is None or self.source.looks:
            return False
        mapped = self.qfunction.numbers.mapped
        return self.filled or mapped or bool(self.qdata_split.computed)

    def __getstate__(self) -> dict[str, Any]:
        """State that a copy or another process needs: the data are split again there."""
        return {k: v for k, v in self.__dict__.items() if k != "qdata_split"}

    def blocks(self) -> list[Term]:
        """The term by pairs of a test function and a field: itself if it has one of each.

        Each has vectors of its own spaces.
        """
        if not self.fields.on_product:
            return [self]
        return [self.block(*pair) for pair in self.pairs]

    @property
    def pairs(self) -> list[Pair]:
        """Test function and field of each block that is not zero."""
        if self.original is not None:
            return [(field, test) for test, field in self.original.pairs]
        assert self.source is not None
        return self.source.qfunction.pairs

    def block(self, test: str, field: str) -> Term:
        """The term of one test function and one field, on vectors of their spaces; made once."""
        if self.original is not None:
            return self.original.block(field, test).transposed()
        assert self.source is not None
        form, kinds = self.source.block(test, field), (self.dtype, self.width, self.level)
        known, key = self.source._terms, ((test, field), (*kinds, self.data_dtype))
        if key not in known:
            known[key] = Term.make(form, *kinds, self.data_dtype).ready(self.level)
        found: Term = known[key]
        return found

    def ready(self, level: str) -> Term:
        """The term itself, its data computed where the level keeps them, else only checked."""
        if not self.mesh.num_elements:
            return self
        if self.filled and self.source is not None:
            setup_of(self.source, self.qdata_split, np.dtype(np.float64), self.width)
        elif level in DATA_LEVELS and not (self.several and level == "decomposed"):
            _ = self.data
        elif self.source is not None:
            self.source.check([*self.qdata_split.finite, *self.qdata_split.computed])
        return self

    def at_level(self, level: str) -> Term:
        """The term, cut for another level; without data where that keeps none."""
        if self.source is None:
            return self
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
        """The term with trial and test space exchanged."""
        if self.symmetric:
            return self
        if self.original is not None:
            return self.original
        if self.source is None:
            raise OperatorError(f"{self.name} is a sum: transpose its terms")
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
        """The term of the same form with other coefficients.

        Raises
        ------
        OperatorError
            If the new coefficients have another shape or symmetry, so that another kernel would be
            needed.
        """
        assert self.source is not None
        if form.coefficient_shapes() != self.source.coefficient_shapes():
            raise OperatorError(
                f"the new coefficients of {self.name} have another shape or symmetry: "
                "make a new operator"
            )
        original = None if self.original is None else self.original.updated(form)
        qfunction = form.qdata_split(self.level, transpose=original is not None).qfunction
        return replace(self, qfunction=qfunction, source=form, given=None, original=original)

    def fusible(self, other: Term) -> bool:
        """True if one kernel can do both."""
        mine, theirs = self.quadrature, other.quadrature
        same = mine is theirs or (
            np.array_equal(mine.points, theirs.points)
            and np.array_equal(mine.weights, theirs.weights)
        )
        spaces = self.fields.same(other.fields) and self.tests.same(other.tests)
        alike = self.width == other.width and self.data_dtype == other.data_dtype
        return same and spaces and alike

    @property
    def chunk_batches(self) -> NDArray[np.int64]:
        """First batch of each chunk in which a sweep goes over the elements, and the end."""
        return chunk_batches(self.fields, self.tests, self.dtype, self.width)


def _check_orders(
    name: str, arguments: Arguments, slopes: Sequence[int], values: Sequence[int]
) -> None:
    """Refuse a form that has of an argument of order 0 nothing but its gradient."""
    first = 0
    for space in arguments.spaces.values():
        mine = range(first, first + space.ncomp)
        first += space.ncomp
        if space.order == 0 and not {*mine}.isdisjoint(slopes) and {*mine}.isdisjoint(values):
            raise OperatorError(f"{name}: a space of order 0 has no gradient")


def updated(
    summands: Sequence[tuple[float, Term]], values: Mapping[str, Any], level: str, made: Made
) -> list[tuple[float, Term]]:
    """Terms with other values of the coefficients that they have.

    ``made`` is that of `Integral.with_coefficients`, for all of them.

    Raises
    ------
    OperatorError
        A coefficient that no term has, or one of another shape.
    """
    terms: list[tuple[float, Term]] = []
    used: set[str] = set()
    for factor, old in summands:
        term, form = old, old.source
        mine = {n: v for n, v in values.items() if form is not None and n in form.coefficients}
        if form is not None and mine:
            term = old.updated(form.with_coefficients(mine, made)).ready(level)
        used |= mine.keys()
        terms.append((factor, term))
    unknown = sorted(values.keys() - used)
    if unknown:
        names = " + ".join(term.name for _, term in summands)
        known = {name for _, term in summands if term.source for name in term.source.coefficients}
        has = ", ".join(sorted(known)) or "none"
        raise OperatorError(f"no term of {names} has a coefficient {unknown[0]!r}: they have {has}")
    return terms
