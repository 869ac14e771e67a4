"""Operators: sums of terms with essential conditions, at one level of assembly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import product
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.sparse import block_array, csr_array

from femops.errors import OperatorError, VectorError
from femops.operators.execution.backend import Step
from femops.operators.execution.host import backend_of
from femops.operators.integrals.constraints import FREE, Constraints, product_of_factors, read_only
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.ranges import in_range
from femops.operators.integrals.term import Sum, Term, updated
from femops.operators.levels.auto import Auto
from femops.operators.levels.dispatch import Blocks, check_level, level_data_of
from femops.operators.levels.level_data import Cost, LevelData, same_terms
from femops.operators.matrix_free import MatrixFree, check_sum
from femops.pointwise.linear import Pair
from femops.pointwise.sides import base_name
from femops.spaces.product import Product
from femops.spaces.restriction import positions
from femops_common import html
from femops_common.arguments import checked, names_checked, number_of, shown
from femops_kernels.compiled import ONE, CompiledOperator, Panels


@final
class Operator(MatrixFree):
    """Finite element operator that is applied without being assembled.

    It is a SciPy ``LinearOperator``.  Operators come from forms (`femops.mass`) and from
    arithmetic: ``A + B``, ``2 * A``, ``A.T``, ``A.constrained(dofs)``.  Terms on one quadrature
    rule are fused into one kernel.

    On a product of spaces the operator consists of blocks: ``A["u", "p"]`` has the test function
    of u and the field p.

    Attributes
    ----------
    space : Space or Product
        Trial space: the space of the vectors to which the operator is applied.
    test_space : Space or Product
        Space of the results. For a square operator it is ``space``.
    shape : (test_space.size, space.size)
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    asked : str
        The requested level, which may be "auto"; see `at_level`.
    constraints : Constraints
        Essential conditions.
    """

    def __init__(
        self,
        terms: Sequence[tuple[float, Term]],
        constraints: Constraints = FREE,
        level: str = "partial",
        level_data: LevelData | None = None,
    ) -> None:
        self._summands = Sum(terms)
        self.constraints = constraints
        self.asked = level
        make = Auto if level == "auto" else partial(level_data_of, level)
        self._level_data = make(self._summands, constraints) if level_data is None else level_data
        self.space, self.test_space = self._summands.first.spaces
        super().__init__(self._summands.first.dtype, (self.test_space.size, self.space.size))

    @staticmethod
    def of_form(
        form: Integral,
        dtype: DTypeLike = np.float64,
        lanes: int | None = None,
        level: str = "partial",
        data_dtype: DTypeLike | None = None,
    ) -> Operator:
        """Make the operator of a single form."""
        base = check_level(level)
        space = form.fields.whole
        if not form.state.spaces:
            form = replace(form, state=backend_of(space).state({}, {}), traced=form.qfunction)
        term = in_range(Term.make(form, dtype, lanes, base, data_dtype))
        backend_of(space).compile_shared(term)
        return Operator([(1.0, term.ready_everywhere(level))], FREE, level)

    def compile_ahead(self) -> None:
        """Start to compile the kernels of an application, if a core is idle."""
        self._level_data.compile_ahead()

    @property
    def summands(self) -> Sum:
        """The terms, with their factors."""
        return self._summands

    @property
    def level(self) -> str:
        """Level of the operator. If "auto" was requested, the level that the first use chooses."""
        return self._level_data.level

    @checked(OperatorError)
    def at_level(self, level: str) -> Operator:
        """Copy of the operator that stores the data of another level.

        Parameters
        ----------
        level : {"full", "element", "partial", "matrix-free", "auto"}
            ``full`` stores the matrix in compressed rows, ``element`` dense element matrices.
            ``partial`` stores data at the quadrature points, or per element if all elements are
            affine. ``matrix-free`` stores only coefficients that vary. Each application computes
            the geometry. ``auto`` measures the levels on some elements at first use, and takes the
            fastest. The ``data_dtype`` of the forms does not change. In this type ``partial`` and
            ``matrix-free`` store their numbers at points. ``matrix-free`` stores only coefficients
            that vary there, ``full`` and ``element`` store nothing. In float32 the relative error
            of each number is at most 6e-8. The error of A x is at most 6e-8 of the product of
            absolute values. Products with one vector and with many, the diagonal and the matrix use
            the same rounded numbers.

        Raises
        ------
        OperatorError
            If the level is unknown, or does not fit into memory. The message gives the memory
            needed.
        """
        base = check_level(level)
        if level == self.asked:
            return self
        terms = [(factor, in_range(term.at_level(base))) for factor, term in self._summands]
        return Operator(terms, self.constraints, level)

    # --- blocks ----------------------------------------------------------------------------------

    def __getitem__(self, pair: Pair) -> Operator | None:
        """Block of the operator for a test function and a field, by name. None if it is zero.

        In a constrained operator, diagonal blocks are constrained, and other blocks are eliminated.
        A diagonal block that is None does not have its part of the identity.
        """
        space = self.space
        if not isinstance(space, Product):
            raise OperatorError(f"{self!r} is no operator on a product: it has no blocks")
        texts = isinstance(pair, tuple) and all(isinstance(name, str) for name in pair)
        if not (texts and len(pair) == 2 and set(pair) <= set(space.names)):
            raise OperatorError(
                f"no block {shown(pair)}: give the names of a test function and of a field, both "
                f"of {', '.join(space.names)}"
            )
        if pair not in self.pairs:
            return None
        if pair not in self._views:
            local = self.constraints.of_block(space, *pair)
            stored = self._level_data.stored
            known = stored.parts.get(pair) if isinstance(stored, Blocks) else None
            self._views[pair] = Operator(self._of_block(pair), local, self.level, known)
        return self._views[pair]

    def _of_block(self, pair: Pair) -> Sum:
        """Terms of an operator block, given by test function and field, in the level's form."""
        terms = self._level_data.kept
        blocks = ((a, term.block(*at), at) for a, term in terms for at in term.pairs)
        return Sum((a, block) for a, block, at in blocks if tuple(map(base_name, at)) == pair)

    @cached_property
    def _views(self) -> dict[Pair, Operator]:
        return {}

    @property
    def pairs(self) -> list[Pair]:
        """Test function and field of each block of an operator on a product, row by row."""
        names = self.space.names if isinstance(self.space, Product) else ()
        found = {tuple(map(base_name, pair)) for _, term in self._summands for pair in term.pairs}
        return [pair for pair in product(names, names) if pair in found]

    # --- application -----------------------------------------------------------------------------

    @cached_property
    def compiled(self) -> CompiledOperator:
        """Compiled operator. It is made, or read from the cache, at first use."""
        return self._level_data.compiled()

    @property
    def _lanes(self) -> int:
        return max(term.width for _, term in self._summands)

    @property
    def _ordered(self) -> bool:
        return bool(self.test_space.reproducible)

    @property
    def _at_once(self) -> bool:
        alone = self.space.comm.size == 1 and not isinstance(self.space, Product)
        return alone and self.level != "full"

    def _compiled_for(self, panels: Panels) -> CompiledOperator:
        return self._level_data.compiled(panels)

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """Launches of the operator, with factors."""
        return self._level_data.steps(panels)

    # --- algebra ---------------------------------------------------------------------------------

    @property
    def symmetric(self) -> bool:
        """True if the operator is known to equal its transpose. Else False."""
        square = self.space is self.test_space and self.constraints.symmetric
        return square and all(term.symmetric for _, term in self._summands)

    @cached_property
    def _transposed(self) -> Operator:
        summands, constraints = self._level_data.kept, self.constraints
        terms = [(factor, term.transposed()) for factor, term in summands]
        same = all(t is s for (_, t), (_, s) in zip(terms, summands, strict=True))
        if same and constraints.symmetric:
            return self
        turned = replace(constraints, rows=constraints.columns, columns=constraints.rows)
        return Operator(terms, turned, self.level)

    def _adjoint(self) -> Operator:
        return self._transposed

    _transpose = _adjoint

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Operator):
            return super().__add__(other)
        check_sum(self, other)
        constraints = self.constraints.plus(other.constraints)
        return Operator(self._summands + other._summands, constraints, self.asked)

    def _scaled(self, factor: float) -> Operator:
        scaled = [(product_of_factors(factor, a, self.dtype), term) for a, term in self._summands]
        return Operator(scaled, self.constraints.scaled(factor, self.dtype), self.asked)

    # --- essential conditions --------------------------------------------------------------------

    @names_checked
    def constrained(self, dofs: ArrayLike) -> Operator:
        """Copy of the operator with rows and columns of some dofs replaced by the identity's.

        Use this copy for solves. For SciPy's eigensolvers use `eliminated` instead, because each
        constrained dof adds an eigenvector with the eigenvalue 1. `femops.eigen` leaves such dofs
        out.

        Parameters
        ----------
        dofs : (k,) integers
            Flat positions, as `Space.boundary_dofs` returns them. Earlier constraints remain.

        Returns
        -------
        Operator

        Raises
        ------
        OperatorError
            A position is no whole number or is outside the vector, the operator maps between two
            spaces, or some of its rows or columns are eliminated.
        """
        if self.space is not self.test_space:
            raise OperatorError(
                "an operator between two spaces has no identity: use eliminated(rows, columns)"
            )
        return self._with_constraints(
            self.constraints.constrained(positions(dofs, self.space.size))
        )

    @names_checked
    def eliminated(self, rows: ArrayLike = (), columns: ArrayLike = ()) -> Operator:
        """Copy of the operator with some rows and columns replaced by zero.

        Parameters
        ----------
        rows, columns : (k,) integers
            Flat positions in vectors of the test and of the trial space.

        Returns
        -------
        Operator

        Raises
        ------
        OperatorError
            A position is no whole number or is outside the vector, or the operator is constrained.
        """
        if self.constraints.identity:
            raise OperatorError("the operator is constrained: eliminate first, or not at all")
        out = np.union1d(self.constraints.rows, positions(rows, self.test_space.size))
        into = np.union1d(self.constraints.columns, positions(columns, self.space.size))
        differ = self.space.comm.max(int(not np.array_equal(out, into)))
        return self._with_constraints(Constraints(out, into, symmetric=not differ))

    @property
    def unconstrained(self) -> Operator:
        """Copy of the operator without its essential conditions."""
        return self._with_constraints(FREE)

    def _with_constraints(self, constraints: Constraints) -> Operator:
        return Operator(
            self._summands, constraints, self.asked, self._level_data.with_constraints(constraints)
        )

    @property
    def constrained_dofs(self) -> NDArray[np.int64]:
        """Flat positions (k,) of the constrained rows, ascending. The array is read-only."""
        return read_only(self.constraints.rows)

    @property
    def coefficients(self) -> frozenset[str]:
        """Names of the coefficients that `update` accepts."""
        forms = [term.source for _, term in self._summands]
        return frozenset(name for form in forms if form is not None for name in form.coefficients)

    def update(self, **coefficients: Any) -> Operator:
        """Copy of the operator with new values of some coefficients.

        The call copies arrays and vectors and evaluates functions, as for a new operator. Later
        changes of them do not change the operator. Kernels are compiled only if a coefficient
        changes between constant and variable, or if a tensor on boxes stops to be diagonal. The
        level does not change. An operator of level "auto" keeps the chosen level.

        Parameters
        ----------
        **coefficients
            New values by name. They replace coefficients of that name in all terms.

        Returns
        -------
        Operator

        Raises
        ------
        OperatorError
            If no term has a coefficient of this name, or the new value has another shape.
        """
        level = self.level
        new = updated(self._level_data.kept, coefficients, level, {})
        terms = new.map(in_range)
        data = level_data_of(level, terms, self.constraints, self._level_data.stored)
        twin = Operator(terms, self.constraints, level, data)
        for pair, view in self._views.items():
            if same_terms(view.summands, twin._of_block(pair)):
                twin._views[pair] = view
        return twin

    @names_checked
    def rhs(self, b: NDArray[Any], values: NDArray[Any] | float = 0.0) -> NDArray[Any]:
        """Right-hand side of the problem with prescribed values at the constrained dofs.

        Parameters
        ----------
        b : (size,) or (size, nvec) array
            Load vector of the unconstrained problem, or many as columns.
        values : (size,) array or number
            Prescribed values. Only entries at constrained dofs are used.

        Returns
        -------
        array of the shape of b
            ``b - A g`` at the free dofs, where g has the prescribed values at the constrained dofs
            and is zero elsewhere. At the constrained dofs, ``g`` times the diagonal of the
            constrained rows. The diagonal is 1 unless the operator was scaled.

        Raises
        ------
        OperatorError
            If values are prescribed but no dof is constrained.
        VectorError
            See `apply`. Also if numbers are not finite, or b and values seem to be exchanged: b has
            entries at constrained dofs alone, where they do not count, and values has entries at
            other dofs, where they do not count either.
        """
        if getattr(b, "ndim", 1) == 2 and not callable(b):  # as operators are
            return self._many_rhs(self.space.memory.factor(b, "b"), values)
        if number_of(values) is None:
            values = self._contiguous(values, "values", self.space)
        self.constraints.check_imposed(values, self.space.comm)
        b, xp = self._contiguous(b, "b", self.test_space), self._arrays
        held, memory = self.constraints, self.space.memory
        rows, columns = held.rows_in(memory), held.columns_in(memory)
        g = xp.zeros(self.space.size, dtype=self.dtype)
        g[columns] = xp.broadcast_to(xp.asarray(values), g.shape)[columns]
        finite, useful, idle = self._facts(b, values, g[columns])
        found = np.array([not finite, number_of(values) != 0.0, useful, idle], dtype=np.int64)
        wrong, lifted, useful, idle = self.space.comm.max(found).tolist()
        if wrong:
            raise VectorError("the load or an imposed value is not finite: correct b or values")
        if idle > useful:
            raise VectorError(
                "b is zero but for constrained dofs, where its entries do not count, and values "
                "has entries at other dofs: the arguments are A.rhs(b, values), with "
                "b = V.zeros() if there is no load"
            )
        # without values A g is zero
        result: NDArray[Any] = b - self._level_data.lift(g) if lifted else b.copy()
        result[rows] = held.identity * g[rows] if held.identity else 0.0
        return result

    def _facts(self, b: NDArray[Any], values: Any, imposed: NDArray[Any]) -> list[bool]:
        """True if numbers are finite; if b has entries that count; if b and values have others."""
        xp, memory = self._arrays, self.space.memory
        finite = xp.isfinite(imposed).all() & xp.isfinite(b).all()
        if number_of(values) is not None or not self.constraints.identity:
            return [bool(finite), True, False]
        rows, count = self.constraints.rows_in(memory), xp.count_nonzero
        at_rows, more = count(b[rows]), count(values) > count(values[rows])
        facts = finite, count(b) > at_rows, (at_rows > 0) & more
        found: list[bool] = memory.get(xp.stack(facts)).tolist()  # a device sends them at once
        return found

    def _many_rhs(self, B: NDArray[Any], values: Any) -> NDArray[Any]:
        """Right-hand sides (size, nvec) for loads with the same prescribed values."""
        one = self.rhs(self.test_space.zeros(self.dtype), values)
        checked = (self._contiguous(B[:, j], "b", self.test_space) for j in range(B.shape[1]))
        loads = self._arrays.stack((one, *checked), axis=1)[:, 1:]
        result: NDArray[Any] = loads + one[:, np.newaxis]
        if not self._arrays.isfinite(result).all():
            raise VectorError("the load is not finite: correct B or values")
        rows = self.constraints.rows_in(self.space.memory)
        result[rows] = one[rows][:, np.newaxis]
        return result

    def diagonal(self) -> NDArray[Any]:
        """Compute the diagonal (size,) by sum factorisation with squared 1-D matrices.

        For vectors of a device, the device computes the diagonal in the operator's type.
        """
        if self.space is not self.test_space:
            raise OperatorError("an operator between two spaces has no diagonal")
        constraints, memory = self.constraints, self.space.memory
        if isinstance(self.space, Product):
            values = self.space.zeros(self.dtype)
            for name in self.space.names:
                block = self[name, name]
                if block is not None:
                    values[self.space.slice(name)] = block.diagonal()
        else:
            stored = self._level_data.as_stored
            values = self._level_data.backend.diagonal(stored, lambda: self.compiled)
        if len(constraints.columns):  # eliminated columns need not be eliminated rows
            values[constraints.columns_in(memory)] = 0.0
        if len(constraints.rows):
            values[constraints.rows_in(memory)] = constraints.identity
        return values

    @checked(OperatorError)
    def assemble(self) -> csr_array:
        """Assemble the matrix (the rank's rows) in compressed rows, with the essential conditions.

        Sum factorisation forms the element matrices, (1a)-(2c) of the tensor report.

        Raises
        ------
        OperatorError
            If the matrix does not fit into memory. The message gives the memory needed.
        """
        if not isinstance(self.space, Product):
            return self._level_data.matrix()
        names = self.space.names
        parts = [[self._matrix(test, field) for field in names] for test in names]
        return csr_array(block_array(parts, format="csr"))

    def _matrix(self, test: str, field: str) -> csr_array | None:
        """Assemble the matrix of a block. None for an off-diagonal block that is zero."""
        block = self[test, field]
        if block is not None:
            return block.assemble()
        if test != field:
            return None
        local, space = self.constraints.of_block(self.space, test, field), self.space.spaces[test]
        values = np.full(len(local.rows), local.identity, self.dtype)
        at = local.rows, local.rows + space.first_dof * space.ncomp
        return csr_array((values, at), shape=(space.size, space.global_size))

    @checked(OperatorError)
    def cost(self) -> Cost:
        """Count operations and bytes of one application, and the cost of assembly and storage."""
        vectors = sum(self.shape) * self.dtype.itemsize
        return self._level_data.cost() + Cost(bytes_moved=vectors)

    def __repr__(self) -> str:
        constraints = f", {self.constraints}" if self.constraints else ""
        level = "" if self.asked == "partial" else f", {self.asked}"
        size = " x ".join(map(str, self.shape))
        if isinstance(self.space, Product):
            size = ", ".join(f"{name}={space.size}" for name, space in self.space.spaces.items())
            size += ", blocks " + " ".join(f"[{test}, {field}]" for test, field in self.pairs)
        return f"Operator({self._names}: {size}, {self.dtype}{level}{constraints})"

    def _repr_html_(self) -> str:
        rows, columns = self.shape
        facts = [
            ("forms", self._names),
            ("shape", f"{rows:,} x {columns:,}, {self.dtype}"),
            ("constrained dofs", f"{len(self.constraints.rows):,}"),
            ("level", self.asked),
            ("from", repr(self.space)),
        ]
        if self.test_space is not self.space:
            facts.append(("to", repr(self.test_space)))
        if isinstance(self.space, Product):
            facts.append(("blocks", " ".join(f"[{test}, {field}]" for test, field in self.pairs)))
        return html.table("Operator", facts)

    @property
    def _names(self) -> str:
        """Names of the forms with factors, as a sum."""
        return " + ".join(term.written(factor) for factor, term in self._summands)
