"""One term of an operator: a form, cut for partial assembly, and the data stored for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.abstract_space import Space
from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.geometry import element_blocks
from femops.operators.bilinear import BilinearForm
from femops.pointwise import Program, fuse
from femops.restriction import FLOAT_TYPES
from femops_kernels.kernel import Kernel, Side
from femops_kernels.machine import lane_width
from femops_kernels.plan import Plan, elements_per_chunk, make_plan
from femops_kernels.sweep import Sweep, aligned_array, element_values
from femops_meshes.interpolation import lagrange_derivative_matrix, tensor_apply

_plans: WeakKeyDictionary[Space, dict[tuple[int, int], Plan]] = WeakKeyDictionary()


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """The type of an operator.

    Raises
    ------
    OperatorError
        One that is not float64 or float32.
    """
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind not in FLOAT_TYPES:
        raise OperatorError(f"an operator of type {dtype} was asked for: take float64 or float32")
    return kind


@final
@dataclass(frozen=True, eq=False)
class Term:
    """A bilinear form, partially assembled.

    Attributes
    ----------
    name : str
    trial, test : Space
    quadrature : Quadrature1D
    program : Program
    qdata : (nbatch, q1d**dim, nqdata, width) array
        Stored numbers, element ``batch * width + slot``; its type is that of the vectors.
    form : BilinearForm or None
        None for a sum.
    original : Term or None
        Of a transposed term, the one that it is the transpose of.
    """

    name: str
    trial: Space
    test: Space
    quadrature: Quadrature1D
    program: Program
    qdata: NDArray[Any]
    form: BilinearForm | None
    original: Term | None = None

    @staticmethod
    def make(form: BilinearForm, dtype: DTypeLike, lanes: int | None) -> Term:
        """Compute and store the quadrature data.

        Raises
        ------
        OperatorError
            A type that is not float64 or float32.
        """
        kind = float_type(dtype)
        cut = form.step.partial()
        program = cut.program
        for space, alone in (
            (form.trial, program.gradient_in and not program.value_in),
            (form.test, program.gradient_out and not program.value_out),
        ):
            if space.order == 0 and alone:
                raise OperatorError(f"{form.name}: a space of order 0 has no gradient")
        qdata = form.store(cut, kind, lane_width(kind, lanes))
        return Term(form.name, form.trial, form.test, form.quadrature, cut.program, qdata, form)

    def transposed(self) -> Term:
        """The term with trial and test space exchanged."""
        if self.program.symmetric and self.trial is self.test:
            return self
        if self.original is not None:
            return self.original
        if self.form is None:
            raise OperatorError(f"{self.name} is a sum: transpose its terms")
        step = self.form.step
        cut = step.partial(transpose=True)
        same = step.partial().stored == cut.stored
        qdata = self.qdata if same else self.form.store(cut, self.dtype, self.width)
        name, form = f"{self.name}.T", self.form
        rule, program = form.quadrature, cut.program
        return Term(name, self.test, self.trial, rule, program, qdata, None, original=self)

    def updated(self, form: BilinearForm) -> Term:
        """The term of the same form with other coefficients.

        Raises
        ------
        OperatorError
            If the new coefficients have another shape or symmetry, so that another kernel would be
            needed.
        """
        cut = form.step.partial()
        if cut.program.text != self.program.text:
            raise OperatorError(
                f"the new coefficients of {self.name} have another shape or symmetry: "
                "make a new operator"
            )
        qdata = form.store(cut, self.dtype, self.width)
        return Term(self.name, self.trial, self.test, self.quadrature, cut.program, qdata, form)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of vectors, data and arithmetic."""
        return self.qdata.dtype

    @property
    def width(self) -> int:
        """SIMD slots."""
        return int(self.qdata.shape[-1])

    def fusible(self, other: Term) -> bool:
        """Whether one kernel can do both."""
        same = self.quadrature is other.quadrature or (
            np.array_equal(self.quadrature.points, other.quadrature.points)
        )
        spaces = self.trial is other.trial and self.test is other.test
        return same and spaces and self.qdata.shape[::3] == other.qdata.shape[::3]

    def plans(self) -> tuple[Plan, Plan]:
        """The chunks in which a sweep goes over the elements, for trial and test space."""
        ne, itemsize = self.trial.mesh.num_elements, self.dtype.itemsize
        chunk = min(
            elements_per_chunk(ne, space.ndofs / ne, space.ncomp, itemsize)
            for space in (self.trial, self.test)
        )
        return self._plan(self.trial, chunk), self._plan(self.test, chunk)

    def _plan(self, space: Space, chunk: int) -> Plan:
        """Plan of a space; shared by all operators on it."""
        plans = _plans.setdefault(space, {})
        key = (self.width, chunk)
        if key not in plans:
            plans[key] = make_plan(space.restriction.indices, space.ndofs, self.width, chunk)
        return plans[key]

    def kernel(self) -> Kernel:
        """The kernel that applies this term."""
        points = self.quadrature.points
        source, target = self.plans()
        return Kernel(
            self.trial.dim,
            Side(
                self.trial.ncomp,
                self.trial.basis.interpolation(points),
                source.indices.dtype.itemsize,
            ),
            Side(
                self.test.ncomp,
                self.test.basis.interpolation(points),
                target.indices.dtype.itemsize,
            ),
            lagrange_derivative_matrix(points, points),
            self.program.step,
            self.dtype,
            self.width,
        )

    def sweep(
        self, cleared: NDArray[np.int64], constrained: NDArray[np.int64], keep: float
    ) -> Sweep:
        """The kernel bound to plans and data.

        Parameters
        ----------
        cleared, constrained : (n,) int64
            Entries of the trial vector that count as zero; entries of the result that are ``keep``
            times those of the trial vector.
        keep : float
        """
        source, target = self.plans()
        return Sweep(self.kernel(), source, target, self.qdata, cleared, constrained, keep)

    def element_blocks(self, numbers: int) -> list[tuple[int, int]]:
        """Ranges of elements for NumPy work with ``numbers`` numbers an element."""
        return list(element_blocks(self.trial.mesh.num_elements, numbers))

    def dense_d(self, start: int, stop: int) -> NDArray[np.float64]:
        """D of some elements, (slots_out, ncomp, slots_in, ncomp, n, points)."""
        width = self.width
        part = self.qdata[start // width : -(-stop // width)]
        first = start // width * width
        values = element_values(part, stop - first)[start - first :].astype(np.float64)
        return self.program.matrix(values)

    def _one_dimensional(self, space: Space, slots: list[int]) -> list[list[NDArray[np.float64]]]:
        """1-D matrices (x first) that give each slot of the program from element dofs."""
        points, dim = self.quadrature.points, space.dim
        b, g = space.basis.interpolation(points), space.basis.gradient(points)
        return [[g if d == slot - 1 else b for d in range(dim)] for slot in slots]

    def diagonal(self) -> NDArray[np.float64]:
        """Diagonal of a square term, (size,), by squared (multiplied) 1-D matrices."""
        space, program = self.trial, self.program
        ins = self._one_dimensional(space, program.slots_in)
        outs = self._one_dimensional(space, program.slots_out)
        e_vec = np.zeros((space.mesh.num_elements, space.p1d**space.dim, space.ncomp))
        for start, stop in self.element_blocks(
            program.nqdata * self.quadrature.q1d**space.dim * len(ins) * len(outs)
        ):
            d = self.dense_d(start, stop)
            for c, i, j in np.ndindex(space.ncomp, len(outs), len(ins)):
                if np.any(d[i, c, j, c]):
                    products = [(a * b).T for a, b in zip(outs[i], ins[j], strict=True)]
                    e_vec[start:stop, :, c] += tensor_apply(products, d[i, c, j, c])
        return np.ascontiguousarray(space.restriction.scatter_add(e_vec)).reshape(-1)

    def _dense_basis(self, space: Space, slots: list[int]) -> list[NDArray[np.float64]]:
        """Matrices (points, nodes) of each slot: Kronecker products, x fastest."""
        dense = []
        for matrices in self._one_dimensional(space, slots):
            full: NDArray[Any] = np.ones((1, 1))
            for m in matrices:
                full = np.kron(m, full)
            dense.append(full)
        return dense

    def element_matrices(self, start: int, stop: int) -> NDArray[np.float64]:
        """Dense B^T D B of some elements, (n, test nodes, ncomp, trial nodes, ncomp)."""
        ins = self._dense_basis(self.trial, self.program.slots_in)
        outs = self._dense_basis(self.test, self.program.slots_out)
        d = self.dense_d(start, stop)
        rows, columns = self.test.p1d**self.test.dim, self.trial.p1d**self.trial.dim
        out = np.zeros((stop - start, rows, self.test.ncomp, columns, self.trial.ncomp))
        for i, a, j, b in np.ndindex(*d.shape[:4]):
            weights = d[i, a, j, b]
            if np.any(weights):
                out[:, :, a, :, b] += outs[i].T @ (weights[:, :, np.newaxis] * ins[j])
        return out


def fused(terms: Sequence[tuple[float, Term]]) -> Term:
    """One term for the sum of fusible terms with factors."""
    programs = fuse([term.program for _, term in terms])
    first = terms[0][1]
    qdata = aligned_array((*first.qdata.shape[:2], programs.nqdata, first.width), first.dtype)
    at = 0
    for factor, term in terms:
        part = qdata[:, :, at : at + term.program.nqdata]
        part[...] = term.qdata
        for k in term.program.scaled:
            part[:, :, k] *= first.dtype.type(factor)
        at += term.program.nqdata
    name = " + ".join(term.name for _, term in terms)
    return Term(name, first.trial, first.test, first.quadrature, programs, qdata, None)
