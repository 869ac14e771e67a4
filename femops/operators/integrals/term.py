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
from femops.operators.integrals.bilinear import BilinearForm, Made
from femops.operators.integrals.chunks import chunk_batches
from femops.operators.integrals.number_types import data_type, float_type
from femops.pointwise import QDataSplit, QFunction
from femops.pointwise.expressions.graph import same
from femops.spaces.base import Space
from femops.spaces.boundary_space import AnySpace, BoundarySpace, volume_space
from femops_kernels.cpu.machine import lane_width
from femops_kernels.pointwise.qdata import Data
from femops_kernels.simd.lanes import WIDEST

DATA_LEVELS = ("decomposed", "partial", "matrix-free")
"""Levels whose kernels take the q-function."""


@final
@dataclass(frozen=True, eq=False)
class Term:
    """A bilinear form, cut at the quadrature points.

    Attributes
    ----------
    name : str
    trial, test : Space or BoundarySpace
    quadrature : Quadrature1D
    qfunction : QFunction
    dtype : numpy.dtype
        Type of vectors and arithmetic.
    width : int
        SIMD slots.
    source : BilinearForm or None
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
    """

    name: str
    trial: AnySpace
    test: AnySpace
    quadrature: Quadrature1D
    qfunction: QFunction
    dtype: np.dtype[Any]
    width: int
    source: BilinearForm | None
    level: str = "partial"
    given: Data | None = None
    original: Term | None = None
    data_dtype: np.dtype[Any] | None = None
    parts: tuple[tuple[float, Term], ...] = ()
    scale: float = 1.0

    @staticmethod
    def make(
        form: BilinearForm,
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
        for space, alone in (
            (form.trial, qfunction.gradient_in and not qfunction.value_in),
            (form.test, qfunction.gradient_out and not qfunction.value_out),
        ):
            if space.order == 0 and alone:
                raise OperatorError(f"{form.name}: a space of order 0 has no gradient")
        spaces = form.trial, form.test
        term = Term(form.name, *spaces, rule, qfunction, kind, width, form, level)
        return term if stored == kind else replace(term, data_dtype=stored)

    @staticmethod
    def of_residual(form: BilinearForm, dtype: np.dtype[Any], width: int) -> Term:
        """Term of a form that is not linear, with all its fields and test functions."""
        qfunction, rule = form.qdata_split("partial").qfunction, form.quadrature
        return Term(form.name, form.trial, form.test, rule, qfunction, dtype, width, form)

    @property
    def spaces(self) -> tuple[Space, Space]:
        """Trial and test space of the vectors."""
        return volume_space(self.trial), volume_space(self.test)

    @property
    def any_width(self) -> bool:
        """True if results on the host have the same bits for lanes of any width."""
        return any(space.any_width for space in self.spaces)

    @property
    def row_width(self) -> int:
        """Number of slots in which a row of a matrix is summed."""
        return WIDEST if self.any_width else self.width

    @property
    def on_boundary(self) -> bool:
        """True if the integral is over boundary faces: its sweep only adds to the result."""
        return isinstance(self.trial, BoundarySpace)

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
        return self.source.data(*given, looks=self.source.looks)

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
        return self.source.data(*given, at_points=False, looks=False)

    @property
    def data_bytes(self) -> tuple[int, int]:
        """Bytes of the data but modes, and of modes, as lanes have them; nothing is computed."""
        numbers, mesh, dim = self.qfunction.numbers, self.trial.mesh, self.trial.dim
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

    def ready(self, level: str) -> Term:
        """The term itself, its data computed where the level keeps them, else only checked."""
        if not self.trial.mesh.num_elements:
            return self
        if self.filled and self.source is not None:
            self.source.setup(self.qdata_split, np.dtype(np.float64), self.width)
        elif level in DATA_LEVELS:
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
        if self.qfunction.symmetric and self.trial is self.test:
            return self
        if self.original is not None:
            return self.original
        if self.source is None:
            raise OperatorError(f"{self.name} is a sum: transpose its terms")
        qdata_split = self.source.qdata_split(self.level, transpose=True)
        return replace(
            self,
            name=f"{self.name}.T",
            trial=self.test,
            test=self.trial,
            qfunction=qdata_split.qfunction,
            given=self.__dict__.get("data")
            if same(self.qdata_split.kept, qdata_split.kept)
            else None,
            original=self,
        )

    def updated(self, form: BilinearForm) -> Term:
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
        spaces = self.trial is other.trial and self.test is other.test
        alike = self.width == other.width and self.data_dtype == other.data_dtype
        return same and spaces and alike

    @property
    def chunk_batches(self) -> NDArray[np.int64]:
        """First batch of each chunk in which a sweep goes over the elements, and the end."""
        return chunk_batches(self.trial, self.test, self.dtype, self.width)


def updated(
    summands: Sequence[tuple[float, Term]], values: Mapping[str, Any], level: str, made: Made
) -> list[tuple[float, Term]]:
    """Terms with other values of the coefficients that they have.

    ``made`` is that of `BilinearForm.with_coefficients`, for all of them.

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
