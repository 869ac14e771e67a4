"""Operators of complex forms, applied as real operators to pairs of real numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from femops.errors import OperatorError, VectorError
from femops.fields.multivector import MultiVector
from femops.operators.execution.vectors import check_many
from femops.operators.integrals.complex_coefficients import paired
from femops.operators.integrals.constraints import Constraints, read_only
from femops.operators.integrals.integral import Integral
from femops.operators.levels.level_data import Cost
from femops.operators.matrix_free import ONE_SPACE, MatrixFree
from femops.operators.operator import Operator
from femops.pointwise.linear import LinearQFunction
from femops.pointwise.sides import Argument, Objects
from femops.spaces.product import Product
from femops.spaces.restriction import positions
from femops_common import html
from femops_common.arguments import checked, names_checked, number_of
from femops_kernels.compiled import CompiledOperator, Panels


@final
class ComplexOperator(MatrixFree):
    """Operator of a form with complex numbers, applied without being assembled.

    `femops.form` makes it with ``dtype="complex128"``. It is a SciPy ``LinearOperator`` for complex
    vectors, such as ``A @ x``, and `femops.gmres` takes it; `femops.cg` and `femops.minres` take it
    if it is Hermitian. A complex vector in memory is a vector of pairs of real numbers, and one
    sweep of ``real`` multiplies it.

    Attributes
    ----------
    space, test_space : Space or Product
        Spaces whose functions have complex values here. Vectors have their sizes.
    shape : (test_space.size, space.size)
    dtype : numpy.dtype
        complex128 or complex64; vectors have this type.
    real : Operator
        The same operator on spaces with twice as many components: real and imaginary part of each.
    symmetric : bool
        True if the operator is known to equal its transpose (not conjugated). Else False.
    """

    symmetric = False
    _aside = "A.real is that on real and imaginary parts, of which M of a complex A can be made"

    def __init__(
        self,
        real: Operator,
        spaces: tuple[Any, Any],
        paired_names: frozenset[str] = frozenset(),
        *,
        symmetric: bool = False,
    ) -> None:
        self.real, self._paired = real, paired_names
        self.space, self.test_space = spaces
        self.symmetric = symmetric and real.constraints.symmetric
        dtype = np.result_type(real.dtype, np.complex64)
        super().__init__(dtype, (self.test_space.size, self.space.size))

    def _of(self, real: Operator) -> ComplexOperator:
        """Operator between the same spaces with another real operator."""
        spaces = (self.space, self.test_space)
        return ComplexOperator(real, spaces, self._paired, symmetric=self.symmetric)

    @property
    def hermitian(self) -> bool:
        """True if the operator is known to equal its conjugate transpose. Else False."""
        return self.real.symmetric

    @property
    def level(self) -> str:
        """Level of the operator; see `Operator.at_level`."""
        return self.real.level

    def at_level(self, level: str) -> ComplexOperator:
        """Copy of the operator that stores the data of another level; see `Operator.at_level`."""
        return self._of(self.real.at_level(level))

    @property
    def compiled(self) -> CompiledOperator:
        """Compiled operator of pairs of real numbers."""
        return self.real.compiled

    def _compiled_for(self, panels: Panels) -> CompiledOperator:
        return self.real._compiled_for(panels)

    _lanes = property(lambda self: self.real._lanes)
    _ordered = property(lambda self: self.real._ordered)
    _at_once = False

    # --- application -----------------------------------------------------------------------------

    def _apply(self, x: NDArray[Any], result: NDArray[Any]) -> None:
        real = self.real.dtype
        self.compiled.apply(x.view(real), result.view(real))

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        pairs = self._arrays.ascontiguousarray(x, dtype=self.dtype).reshape(-1)
        result: NDArray[Any] = self.real._matvec(pairs.view(self.real.dtype)).view(self.dtype)
        return result

    def _matmat(self, x: NDArray[Any]) -> NDArray[Any]:
        given = as_pairs(self._arrays.ascontiguousarray(x, dtype=self.dtype))
        return from_pairs(self.real._matmat(given))

    def apply_many(self, x: MultiVector, out: MultiVector | None = None) -> MultiVector:
        """Compute A X for many complex vectors at once; the same as ``A @ X``.

        Raises
        ------
        VectorError
            The vectors have another space, type or number, or ``out`` overlaps x.
        """
        if not isinstance(x, MultiVector) or x.space is not self.space or x.dtype != self.dtype:
            raise VectorError(f"x is {x!r}: give a MultiVector of {self.dtype} on {self.space!r}")
        result = x.empty_like(self.test_space) if out is None else out
        check_many(self.space, self.test_space, self.dtype, x, result)
        result[:] = self._matmat(x.columns())
        return result

    # --- algebra ---------------------------------------------------------------------------------

    @cached_property
    def _transposed(self) -> ComplexOperator:
        """The conjugate transpose."""
        spaces = (self.test_space, self.space)
        twin = self.real._adjoint()
        return ComplexOperator(twin, spaces, self._paired, symmetric=self.symmetric)

    def _adjoint(self) -> ComplexOperator:
        return self if self.hermitian else self._transposed

    def _transpose(self) -> Any:
        if not self._scipy:
            raise OperatorError(
                "A.T of a complex operator is an operator of SciPy, which takes no vectors of a "
                "device: (A.H @ x.conj()).conj() is the product with the transpose"
            )
        return super()._transpose()

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, ComplexOperator):
            return super().__add__(other)
        mine, theirs = ((A.space, A.test_space, A.dtype) for A in (self, other))
        if mine != theirs:
            raise OperatorError(
                f"operators on different spaces or types can't be added: {self!r} and {other!r}; "
                f"{ONE_SPACE}"
            )
        spaces, names = (self.space, self.test_space), self._paired | other._paired
        both = self.symmetric and other.symmetric
        return ComplexOperator(self.real + other.real, spaces, names, symmetric=both)

    def _scaled(self, factor: float) -> ComplexOperator:
        return self._of(self.real._scaled(factor))

    def __getitem__(self, pair: tuple[str, str]) -> ComplexOperator | None:
        """Block of the operator for a test function and a field; see `Operator.__getitem__`."""
        if not isinstance(self.space, Product):
            raise OperatorError(f"{self!r} is no operator on a product: it has no blocks")
        block = self.real[pair]
        if block is None:
            return None
        test, field = (self.space.spaces[name] for name in pair)
        return ComplexOperator(block, (field, test), self._paired)

    # --- essential conditions --------------------------------------------------------------------

    @names_checked
    def constrained(self, dofs: ArrayLike) -> ComplexOperator:
        """Copy of the operator with rows and columns of some dofs replaced by the identity's.

        ``dofs`` (k,) are positions in a complex vector; see `Operator.constrained`.
        """
        return self._of(self.real.constrained(pair_positions(positions(dofs, self.space.size))))

    @names_checked
    def eliminated(self, rows: ArrayLike = (), columns: ArrayLike = ()) -> ComplexOperator:
        """Copy of the operator with some rows and columns zero.

        ``rows`` (k,) and ``columns`` (m,) are positions in complex vectors; see
        `Operator.eliminated`.
        """
        out = pair_positions(positions(rows, self.test_space.size))
        into = pair_positions(positions(columns, self.space.size))
        return self._of(self.real.eliminated(out, into))

    @property
    def unconstrained(self) -> ComplexOperator:
        """Copy of the operator without its essential conditions."""
        return self._of(self.real.unconstrained)

    @property
    def constrained_dofs(self) -> NDArray[np.int64]:
        """Flat positions (k,) of the constrained rows, ascending. The array is read-only."""
        return read_only(self.real.constrained_dofs[::2] // 2)

    @names_checked
    def rhs(self, b: NDArray[Any], values: NDArray[Any] | complex = 0.0) -> NDArray[Any]:
        """Right-hand side of the problem with prescribed values; see `Operator.rhs`.

        Parameters
        ----------
        b : (size,) or (size, nvec) complex array
        values : (size,) complex array or number

        Raises
        ------
        OperatorError, VectorError
            See `Operator.rhs`.
        """
        pairs = self._load_pairs(b)
        number = number_of(values)
        if number is not None or isinstance(values, complex | np.complexfloating):
            values = values if number is None else number
            values = self._arrays.full(self.space.size, values, self.dtype)
        given = self._contiguous(values, "values", self.space).view(self.real.dtype)
        imposed = given if given.any() else 0.0
        return from_pairs(self.real.rhs(pairs, imposed))

    def _load_pairs(self, b: NDArray[Any]) -> NDArray[Any]:
        """Check and convert a load (size,), or many as columns."""
        if getattr(b, "ndim", 1) != 2 or callable(b):
            return as_pairs(self._contiguous(b, "b", self.test_space))
        loads = self.test_space.memory.factor(b, "b").T
        checked_loads = (self._contiguous(load, "b", self.test_space) for load in loads)
        zero = self.test_space.zeros(self.dtype)  # so that no load at all has a size
        return as_pairs(self._arrays.stack((zero, *checked_loads), axis=1)[:, 1:].copy())

    # --- other -----------------------------------------------------------------------------------

    @property
    def coefficients(self) -> frozenset[str]:
        """Names of the coefficients that `update` accepts."""
        return self.real.coefficients

    def update(self, **coefficients: Any) -> ComplexOperator:
        """Copy of the operator with new values of some coefficients; see `Operator.update`.

        Raises
        ------
        OperatorError
            See `Operator.update`. Also if a value is complex where the first one was real.
        """
        new = {name: self._updated(name, value) for name, value in coefficients.items()}
        return self._of(self.real.update(**new))

    def _updated(self, name: str, value: Any) -> Any:
        if name not in self.coefficients:
            return value  # the real operator names the error
        real, is_complex = paired(name, value, self.space.mesh, self.space.comm)
        if name in self._paired:
            return real if is_complex else paired(name, value, self.space.mesh, None)[0]
        if is_complex:
            raise OperatorError(
                f"{name} is complex, and was real when the operator was made: make a new operator"
            )
        return real

    def diagonal(self) -> NDArray[Any]:
        """Compute the complex diagonal (size,); see `Operator.diagonal`."""
        result = self.real.diagonal()[::2].astype(self.dtype)
        if not self.hermitian:
            result += 1j * self._imaginary.diagonal()[::2]
        return result

    @property
    def _imaginary(self) -> Operator:
        """Real operator of -i A, whose diagonal has the imaginary part of that of A."""
        terms = []
        for factor, term in self.real.summands:
            turned = Operator.of_form(times_minus_i(term.source), self.real.dtype)
            sign = 1.0 if term.original is None else -1.0  # i A^H is -(i A)^H
            terms += [(sign * factor * a, part) for a, part in turned.summands]
        held = self.real.constraints
        return Operator(terms, Constraints(held.rows, held.columns, symmetric=held.symmetric))

    @checked(OperatorError)
    def assemble(self) -> csr_array:
        """Assemble the matrix (the rank's rows) in compressed rows, with the essential conditions.

        Raises
        ------
        OperatorError
            If the matrix does not fit into memory. The message gives the memory needed.
        """
        return of_complex_rows(self.real.assemble())

    def cost(self) -> Cost:
        """Count operations and bytes of one application; see `Operator.cost`."""
        return self.real.cost()

    def _repr_html_(self) -> str:
        rows, columns = self.shape
        facts = [
            ("forms", self.real._names),
            ("shape", f"{rows:,} x {columns:,}, {self.dtype}"),
            ("Hermitian", "yes" if self.hermitian else "not known to be"),
            ("constrained dofs", f"{len(self.constrained_dofs):,}"),
            ("from", repr(self.space)),
        ]
        return html.table("ComplexOperator", facts)

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        held = self.real.constraints
        constraints = f", {len(held.rows) // 2} constrained" if held else ""
        return f"ComplexOperator({self.real._names}: {size}, {self.dtype}{constraints})"


def of_complex_rows(matrix: csr_array) -> csr_array:
    """Complex matrix (m, n) of a matrix (2 m, 2 n) that multiplies pairs of real numbers."""
    pairs = matrix[::2].tocsr()  # rows of the real parts: (a, -b) for a + i b
    row = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    kind = np.result_type(pairs.dtype, np.complex64)
    values = np.where(pairs.indices % 2, -1j, 1.0).astype(kind) * pairs.data
    shape = pairs.shape[0], pairs.shape[1] // 2
    result = csr_array((values, (row, pairs.indices // 2)), shape=shape)
    result.sum_duplicates()
    return result


def as_pairs(x: NDArray[Any]) -> NDArray[Any]:
    """Real numbers of complex vectors: (size,) -> view (2 size,), or (size, k) -> (2 size, k)."""
    real = np.finfo(x.dtype).dtype
    if x.ndim == 1:
        return x.view(real)
    pairs = x.view(real).reshape(*x.shape, 2).swapaxes(1, 2)
    return pairs.reshape(2 * len(x), x.shape[1])


def from_pairs(x: NDArray[Any]) -> NDArray[Any]:
    """Complex vectors of real ones. The inverse of `as_pairs`."""
    kind = np.result_type(x.dtype, np.complex64)
    if x.ndim == 1:
        return x.view(kind)
    n, k = len(x) // 2, x.shape[1]
    pairs = x.reshape(n, 2, k).swapaxes(1, 2).copy()
    result: NDArray[Any] = pairs.view(kind).reshape(n, k)
    return result


def pair_positions(dofs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions (2k,) in a vector of pairs of complex dofs (k,)."""
    return np.add.outer(2 * dofs, np.arange(2)).ravel()


def times_minus_i(form: Integral) -> Integral:
    """Real form of -i times the complex form of a real form."""
    traced = form.qfunction.trace
    tests = {
        name: Argument(_turned(test.values), _turned(test.derivatives))
        for name, test in traced.tests.items()
    }
    return replace(form, traced=LinearQFunction(replace(traced, tests=tests)))


def _turned(parts: Objects) -> Objects:
    """Real and imaginary parts (2 ncomp, ...), in turns, of numbers times -i."""
    out = np.empty_like(parts)
    out[::2], out[1::2] = parts[1::2], -parts[::2]
    return out
