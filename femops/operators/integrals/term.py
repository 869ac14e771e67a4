"""Terms of operators: integrals with their q-function and data for a level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from femops.errors import OperatorError
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.integral import Integral, Made
from femops.operators.integrals.kernel_term import KernelTerm
from femops.operators.integrals.number_types import data_type, float_type
from femops.operators.integrals.point_data import data_of, setup_of
from femops.parallel.collective_checks import check
from femops.pointwise import QDataSplit
from femops.pointwise.expressions.graph import same
from femops.pointwise.linear import Pair
from femops_kernels.cpu.machine import lane_width
from femops_kernels.pointwise.qdata import Data

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
        same = mine is theirs or (
            np.array_equal(mine.points, theirs.points)
            and np.array_equal(mine.weights, theirs.weights)
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
