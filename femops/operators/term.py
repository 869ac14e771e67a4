"""One term of an operator: a form, cut at the quadrature points, and the data stored for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.abstract_space import Space
from femops.basis import Quadrature1D
from femops.blocks import element_blocks
from femops.boundary_space import AnySpace, BoundarySpace, volume_space
from femops.errors import OperatorError
from femops.modes import GeometryModes, mode_values
from femops.operators.bilinear import BilinearForm, Made
from femops.operators.chunks import chunk_batches, plans
from femops.operators.held import Held
from femops.operators.number_types import data_type, float_type
from femops.pointwise import Cut, Program
from femops.pointwise.graph import same
from femops_kernels.dense import DecomposedKernel
from femops_kernels.kernel import Kernel, Map1D, Side, SweepKernel
from femops_kernels.machine import lane_width
from femops_kernels.plan import Plan
from femops_kernels.sweep import Data, Sweep, element_values
from femops_meshes.interpolation import lagrange_derivative_matrix

DATA_LEVELS = ("decomposed", "partial", "none")
"""Levels whose kernels take the pointwise step."""


@final
@dataclass(frozen=True, eq=False)
class Term:
    """A bilinear form, cut at the quadrature points.

    Attributes
    ----------
    name : str
    trial, test : Space or BoundarySpace
    quadrature : Quadrature1D
    program : Program
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
    """

    name: str
    trial: AnySpace
    test: AnySpace
    quadrature: Quadrature1D
    program: Program
    dtype: np.dtype[Any]
    width: int
    source: BilinearForm | None
    level: str = "partial"
    given: Data | None = None
    original: Term | None = None
    data_dtype: np.dtype[Any] | None = None

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
        program, width, rule = form.cut(level).program, lane_width(kind, lanes), form.quadrature
        for space, alone in (
            (form.trial, program.gradient_in and not program.value_in),
            (form.test, program.gradient_out and not program.value_out),
        ):
            if space.order == 0 and alone:
                raise OperatorError(f"{form.name}: a space of order 0 has no gradient")
        spaces = form.trial, form.test
        term = Term(form.name, *spaces, rule, program, kind, width, form, level)
        return term if stored == kind else replace(term, data_dtype=stored)

    @property
    def spaces(self) -> tuple[Space, Space]:
        """Trial and test space of the vectors."""
        return volume_space(self.trial), volume_space(self.test)

    @property
    def on_boundary(self) -> bool:
        """Whether the integral is over boundary faces: its sweep only adds to the result."""
        return isinstance(self.trial, BoundarySpace)

    @cached_property
    def cut(self) -> Cut:
        """What the program is given, of a term that has a source."""
        assert self.source is not None
        return self.source.cut(self.level, transpose=self.original is not None)

    @cached_property
    def data(self) -> Data:
        """What a kernel reads besides vectors and indices."""
        if self.given is not None:
            return self.given
        assert self.source is not None
        return self.source.data(self.cut, self.dtype, self.width, self.data_dtype)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or another process needs: the source is cut again there."""
        return {k: v for k, v in self.__dict__.items() if k != "cut"}

    def ready(self, level: str) -> Term:
        """The term itself, its data computed where the level keeps them, else only checked."""
        if not self.trial.mesh.num_elements:
            return self
        if self.source is not None and self.source.at_device_state:
            self.source.setup(self.cut, self.dtype, self.width)
        elif level in DATA_LEVELS:
            _ = self.data
        elif self.source is not None:
            self.source.check([*self.cut.finite, *self.cut.computed])
        return self

    def at_level(self, level: str) -> Term:
        """The term, cut for another level; without data where that keeps none."""
        if self.source is None:
            return self
        cut = self.source.cut(level, transpose=self.original is not None)
        alike = cut.program == self.program and same(cut.kept, self.cut.kept)
        known = self.__dict__.get("data", self.given) if alike and level in DATA_LEVELS else None
        original = None if self.original is None else self.original.at_level(level)
        return replace(self, program=cut.program, level=level, given=known, original=original)

    def transposed(self) -> Term:
        """The term with trial and test space exchanged."""
        if self.program.symmetric and self.trial is self.test:
            return self
        if self.original is not None:
            return self.original
        if self.source is None:
            raise OperatorError(f"{self.name} is a sum: transpose its terms")
        cut = self.source.cut(self.level, transpose=True)
        return replace(
            self,
            name=f"{self.name}.T",
            trial=self.test,
            test=self.trial,
            program=cut.program,
            given=self.__dict__.get("data") if same(self.cut.kept, cut.kept) else None,
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
        program = form.cut(self.level, transpose=original is not None).program
        return replace(self, program=program, source=form, given=None, original=original)

    def fusible(self, other: Term) -> bool:
        """Whether one kernel can do both."""
        same = self.quadrature is other.quadrature or (
            np.array_equal(self.quadrature.points, other.quadrature.points)
        )
        spaces = self.trial is other.trial and self.test is other.test
        alike = self.width == other.width and self.data_dtype == other.data_dtype
        return same and spaces and alike

    def plans(self) -> tuple[Plan, Plan]:
        """The chunks in which a sweep goes over the elements, for trial and test space."""
        return plans(self.trial, self.test, self.dtype, self.width)

    @property
    def chunk_batches(self) -> NDArray[np.int64]:
        """First batch of each of these chunks, and the end."""
        return chunk_batches(self.trial, self.test, self.dtype, self.width)

    @property
    def index_bytes(self) -> int:
        """Bytes of local numbers that a sweep reads."""
        return sum({id(plan): plan.starts.nbytes for plan in self.plans()}.values())

    @property
    def plan_bytes(self) -> int:
        """Bytes of the plans and of a sweep's buffer."""
        source, target = self.plans()
        buffer = len(target.foreign_dofs) * self.test.ncomp * self.dtype.itemsize
        return buffer + sum({id(plan): plan.nbytes for plan in (source, target)}.values())

    def sides(self) -> tuple[Side, Side]:
        """What a kernel reads and what it writes."""
        points = self.quadrature.points
        sides = {
            space: Side(
                space.ncomp, space.basis.interpolation(points), plan.number_bytes, plan.runs
            )
            for space, plan in zip((self.trial, self.test), self.plans(), strict=True)
        }
        return sides[self.trial], sides[self.test]

    def factorised_kernel(self) -> Kernel:
        """The kernel that applies this term by sum factorisation."""
        points, dim = self.quadrature.points, self.trial.dim
        derivative, step = lagrange_derivative_matrix(points, points), self.program.step
        geometry = None
        if step.numbers.mapped:
            assert isinstance(self.trial, Space)  # a face's position is kept
            modes = GeometryModes(self.trial.mesh).degree + 1
            geometry = Map1D(*mode_values(modes, points))
        return Kernel(
            dim,
            *self.sides(),
            derivative,
            step,
            self.dtype,
            self.width,
            self.quadrature.weights,
            geometry,
            self.data_dtype,
        )

    def dense_kernel(self) -> DecomposedKernel:
        """The kernel that applies this term by dense bases."""
        dim, q1d, step = self.trial.dim, self.quadrature.q1d, self.program.step
        return DecomposedKernel(
            dim, *self.sides(), q1d, step, self.dtype, self.width, self.data_dtype
        )

    def dense_bases(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Dense bases (slots, points, nodes) of field and test function, one array if equal."""
        program = self.program
        ins, outs = (
            np.array(self.dense_basis(space, slots), dtype=self.dtype)
            for space, slots in ((self.trial, program.slots_in), (self.test, program.slots_out))
        )
        return (ins, ins) if np.array_equal(ins, outs) else (ins, outs)

    @property
    def dense_bytes(self) -> int:
        """Bytes of these bases."""
        points, program = self.quadrature.points, self.program
        sides = [(self.trial, program.slots_in), (self.test, program.slots_out)]
        values = [(space.basis.interpolation(points), slots) for space, slots in sides]
        sizes = [len(slots) * b.size**self.trial.dim * self.dtype.itemsize for b, slots in values]
        (b, ins), (c, outs) = values
        return sizes[0] if ins == outs and np.array_equal(b, c) else sum(sizes)

    def sweep(
        self,
        kernel: SweepKernel,
        held: Held,
        keep: float,
        data: Data,
        dense: tuple[NDArray[Any], ...] = (),
    ) -> Sweep:
        """A kernel bound to the plans of this term's spaces and to data.

        Parameters
        ----------
        kernel : SweepKernel
        held : Held
            Its columns count as zero; its rows of the result are ``keep`` times the field's.
        keep : float
        data : Data
        dense : arrays, optional
            See `Sweep`.
        """
        return Sweep(kernel, *self.plans(), data, held.columns, held.rows, keep, dense)

    def element_blocks(self, numbers: int) -> list[tuple[int, int]]:
        """Ranges of elements for NumPy work with ``numbers`` numbers an element."""
        return list(element_blocks(self.trial.mesh.num_elements, numbers))

    def dense_d(self, start: int, stop: int) -> NDArray[np.float64]:
        """D of some elements, (slots_out, ncomp, slots_in, ncomp, n, points)."""
        values = self.distinct_values(start, stop)
        out = np.zeros((*self.entries.shape, *values.shape[:2]))
        for at, number in np.ndenumerate(self.entries):
            if number:
                out[at] = np.sign(number) * values[..., abs(number) - 1]
        return out

    def distinct_values(
        self, start: int, stop: int, numbers: Sequence[int] | None = None
    ) -> NDArray[np.float64]:
        """Distinct entries of D, (n, points, entries): as they are kept, or computed.

        Parameters
        ----------
        start, stop : int
            The elements.
        numbers : sequence of int, optional
            Which, counted from one; all if omitted.
        """
        assert self.source is not None
        distinct, width = self.source.step.distinct, self.width
        first = start // width * width
        wanted = range(len(distinct)) if numbers is None else [k - 1 for k in numbers]
        if "data" not in self.__dict__ or not same(self.cut.point, distinct):
            nodes, block = [distinct[k] for k in wanted], self.source.geometry.block(start, stop)
            return self.source.values(nodes, block)
        part = self.data.points[start // width : -(-stop // width)]
        values = element_values(part, stop - first)[start - first :].astype(np.float64)
        return values if numbers is None else values[..., wanted]

    @property
    def entries(self) -> NDArray[np.int64]:
        """Which distinct entry each one of D is, (slots_out, ncomp, slots_in, ncomp).

        0 for none, else plus or minus its number, counted from one.
        """
        assert self.source is not None
        program, entries = self.program, self.source.step.structure
        entries = entries if self.original is None else entries.T
        slots, n_out, n_in = 1 + program.dim, program.ncomp_out, program.ncomp_in
        grid = entries.reshape(slots, n_out, slots, n_in)
        taken: NDArray[np.int64] = grid[
            np.ix_(program.slots_out, range(n_out), program.slots_in, range(n_in))
        ]
        return taken

    def _one_dimensional(
        self, space: AnySpace, slots: list[int]
    ) -> list[list[NDArray[np.float64]]]:
        """1-D matrices (x first) that give each slot of the program from element dofs."""
        points, dim = self.quadrature.points, space.dim
        b, g = space.basis.interpolation(points), space.basis.gradient(points)
        return [[g if d == slot - 1 else b for d in range(dim)] for slot in slots]

    def dense_basis(self, space: AnySpace, slots: list[int]) -> list[NDArray[np.float64]]:
        """Matrices (points, nodes) of each slot: Kronecker products, x fastest."""
        dense = []
        for matrices in self._one_dimensional(space, slots):
            full: NDArray[Any] = np.ones((1, 1))
            for m in matrices:
                full = np.kron(m, full)
            dense.append(full)
        return dense


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
