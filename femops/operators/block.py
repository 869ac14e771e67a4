"""Operators on products of spaces: blocks, each an operator between two of the spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import block_array, csr_array

from femops.errors import OperatorError
from femops.operators.assembly.element_matrices import check_method
from femops.operators.constraints import FREE, Constraints, read_only
from femops.operators.execution.choice import backend_of
from femops.operators.execution.ranks import Operand, distributed
from femops.operators.integrals.bilinear import Made
from femops.operators.levels.cost import Cost
from femops.operators.matrix_free import MatrixFree
from femops.operators.operator import Operator
from femops.pointwise.blocks import Pair
from femops.spaces.product import Product
from femops.spaces.restriction import positions
from femops_kernels.compiled import ONE, CompiledOperator, Launch, Panels
from femops_meshes.arguments import checked, names_checked, number_of, shown


@final
class BlockOperator(MatrixFree):
    """An operator on a product of spaces that is applied, not built.

    It is a SciPy ``LinearOperator`` on the vectors of the product, made by `femops.form` of a
    function of several fields.  ``A["u", "p"]`` is the block with the test function of u and the
    field p, an `Operator`, or None where the form has nothing.  Arithmetic is that of operators:
    ``A + B``, ``2 * A``, ``A.T``, ``A.constrained(dofs)``.

    Attributes
    ----------
    space, test_space : Product
        The same.
    shape : (space.size, space.size)
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    symmetric : bool
        Whether the operator is known to equal its transpose.
    """

    def __init__(
        self,
        product: Product,
        blocks: Mapping[Pair, Operator],
        symmetric: bool,
        dtype: np.dtype[Any],
        constraints: Constraints = FREE,
    ) -> None:
        self.space: Product = product
        self.test_space: Product = product
        self.constraints = constraints
        self._symmetric = symmetric
        self._blocks = {
            pair: _with_constraints(blocks[pair], self._local(*pair))
            for pair in ((test, field) for test in product.names for field in product.names)
            if pair in blocks
        }
        super().__init__(dtype, (product.size, product.size))

    # --- blocks ----------------------------------------------------------------------------------

    def __getitem__(self, pair: Pair) -> Operator | None:
        """The block of a test function and a field, by name; None where it is zero.

        In a constrained operator, diagonal blocks are constrained, the others eliminated; a block
        that is None has no identity.
        """
        names = self.space.names
        texts = isinstance(pair, tuple) and all(isinstance(name, str) for name in pair)
        if not (texts and len(pair) == 2 and set(pair) <= set(names)):
            raise OperatorError(
                f"no block {shown(pair)}: give the names of a test function and of a field, both "
                f"of {', '.join(names)}"
            )
        return self._blocks.get(pair)

    def _local(self, test: str, field: str) -> Constraints:
        """The essential conditions of a block."""
        rows, columns = (_within(self.constraints.rows, self.space.slice(n)) for n in (test, field))
        if test == field:
            return Constraints(rows, columns, self.constraints.identity)
        return Constraints(rows, columns, symmetric=not self.constraints.identity)

    def _bare(self) -> list[str]:
        """Names of the spaces whose rows no block writes: they need an identity, or zeros."""
        return [
            name
            for name in self.space.names
            if (name, name) not in self._blocks
            and (self._local(name, name) or all(test != name for test, _ in self._blocks))
        ]

    def _with(
        self, change: Callable[[Operator], Operator], constraints: Constraints | None = None
    ) -> BlockOperator:
        blocks = {pair: change(block) for pair, block in self._blocks.items()}
        constraints = self.constraints if constraints is None else constraints
        return BlockOperator(self.space, blocks, self._symmetric, self.dtype, constraints)

    # --- application -----------------------------------------------------------------------------

    @cached_property
    def compiled(self) -> CompiledOperator:
        """The compiled work of all blocks; compiled, or read from the cache, at the first use."""
        return self._compiled_for(ONE)

    def _compiled_for(self, panels: Panels) -> CompiledOperator:
        offsets, names = self.space.offsets, self.space.names
        itemsize = self.dtype.itemsize * panels.nvec
        places: list[tuple[int, int, bool]] = []
        pairs: list[tuple[int, int]] = []
        work: list[tuple[float, Launch]] = []
        backend = backend_of(self.space)
        rows = [(pair, block.launches(panels)) for pair, block in self._blocks.items()]
        for name in self._bare():  # what stands in a diagonal block that the form does not have
            size, constraints = self.space.spaces[name].size, self._local(name, name).rows
            given = size, constraints, self.constraints.identity, self.dtype
            identity = backend.identity(*given, panels)
            rows.append(((name, name), [(1.0, identity)]))
        begun: set[str] = set()
        for (test, field), launches in rows:
            for alpha, launch in launches:
                at = offsets[field] * itemsize, offsets[test] * itemsize
                work.append((alpha, launch))
                places.append((*at, test in begun))
                pairs.append((names.index(field), names.index(test)))
                begun.add(test)
        local = backend.operator(work, places)
        ends = [
            Operand(self.space.spaces[name], self._local(name, name).rows, offsets[name])
            for name in names
        ]
        return distributed(backend, local, ends, ends, pairs, self.dtype, panels.nvec)

    @property
    def _lanes(self) -> int:
        return max((block._lanes for block in self._blocks.values()), default=1)

    @property
    def _ordered(self) -> bool:
        return any(space.reproducible for space in self.space.spaces.values())

    @property
    def _at_once(self) -> bool:
        return False

    # --- algebra ---------------------------------------------------------------------------------

    @property
    def symmetric(self) -> bool:
        """True if the operator is known to equal its transpose."""
        return self._symmetric

    @cached_property
    def _transposed(self) -> BlockOperator:
        if self._symmetric:
            return self
        blocks = {(field, test): block.T for (test, field), block in self._blocks.items()}
        return BlockOperator(self.space, blocks, False, self.dtype, self.constraints)

    def _adjoint(self) -> BlockOperator:
        return self._transposed

    _transpose = _adjoint

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, BlockOperator):
            return super().__add__(other)
        if other.space is not self.space or other.dtype != self.dtype:
            raise OperatorError(
                f"operators on different products or types can't be added: {self!r} and {other!r}"
            )
        if not self.constraints.same(other.constraints):
            raise OperatorError(
                "operators with different constraints can't be added: "
                "write (A + B).constrained(dofs)"
            )
        blocks = dict(self._blocks)
        for pair, block in other._blocks.items():
            blocks[pair] = blocks[pair] + block if pair in blocks else block
        constraints = replace(
            self.constraints, identity=self.constraints.identity + other.constraints.identity
        )
        symmetric = self._symmetric and other._symmetric
        return BlockOperator(self.space, blocks, symmetric, self.dtype, constraints)

    def _scaled(self, factor: float) -> BlockOperator:
        constraints = self.constraints.scaled(factor, self.dtype)
        return self._with(lambda block: block * factor, constraints)

    # --- essential conditions --------------------------------------------------------------------

    @names_checked
    def constrained(self, dofs: ArrayLike) -> BlockOperator:
        """The operator with rows and columns of some dofs replaced by those of the identity.

        That is for solves. To SciPy's eigensolvers each of these dofs would be an eigenvector of
        eigenvalue 1. `femops.eigen` leaves the dofs out.

        Parameters
        ----------
        dofs : (k,) integers
            Positions in vectors of the product, see `Product.positions`.  Dofs constrained already
            stay so.

        Returns
        -------
        BlockOperator

        Raises
        ------
        OperatorError
            Positions that are no whole numbers or outside the vector.
        """
        constraints = self.constraints.constrained(positions(dofs, self.space.size))
        return self._with(lambda block: block, constraints)

    @property
    def unconstrained(self) -> BlockOperator:
        """The operator without its essential conditions."""
        return self._with(lambda block: block, FREE)

    @property
    def constrained_dofs(self) -> NDArray[np.int64]:
        """Positions of the constrained rows, ascending; read-only."""
        return read_only(self.constraints.rows)

    @names_checked
    def rhs(self, b: NDArray[Any], values: NDArray[Any] | float = 0.0) -> NDArray[Any]:
        """Right-hand side that belongs to given values at the constrained dofs.

        Parameters
        ----------
        b : (size,) array
            Load vector of the unconstrained problem.
        values : (size,) array or number
            Its entries at the constrained dofs are imposed; the others are not looked at.

        Returns
        -------
        (size,) array
            As `Operator.rhs`.

        Raises
        ------
        OperatorError, VectorError
            As `Operator.rhs`.
        """
        b = self._check(b, "b", self.space)
        given: dict[str, Any] = dict.fromkeys(self.space.names, values)
        if number_of(values) is None:
            values = self._check(values, "values", self.space)
            given = dict(zip(self.space.names, self.space.split(values), strict=True))
        self.constraints.check_imposed(values, self.space.comm)
        result = b.copy()
        for (test, field), block in self._blocks.items():
            part = result[self.space.slice(test)]
            part[:] = block._lifted(part, given[field])
        rows = self.space.memory.put(self.constraints.rows)
        imposed = self._arrays.broadcast_to(self._arrays.asarray(values), self.space.shape)
        result[rows] = self.constraints.identity * imposed[rows]
        return result

    # --- coefficients, levels --------------------------------------------------------------------

    def update(self, **coefficients: Any) -> BlockOperator:
        """The operator with other values of some coefficients; see `Operator.update`.

        Parameters
        ----------
        **coefficients
            By name, for every block that has them.

        Returns
        -------
        BlockOperator

        Raises
        ------
        OperatorError
            A coefficient that no block has, or one of another shape.
        """
        has = frozenset[str]().union(*(block.coefficients for block in self._blocks.values()))
        unknown = sorted(coefficients.keys() - has)
        if unknown:
            raise OperatorError(
                f"no block of {self!r} has a coefficient {unknown[0]!r}: "
                f"they have {', '.join(sorted(has)) or 'none'}"
            )

        made: Made = {}

        def updated(block: Operator) -> Operator:
            mine = {n: v for n, v in coefficients.items() if n in block.coefficients}
            return block._updated(mine, made) if mine else block

        return self._with(updated)

    @property
    def level(self) -> str:
        """Levels of the blocks, see `Operator.at_level`; joined by commas where they differ."""
        return ", ".join(sorted({block.level for block in self._blocks.values()}))

    @checked(OperatorError)
    def at_level(self, level: str) -> BlockOperator:
        """The operator, its blocks keeping something else; see `Operator.at_level`."""
        return self._with(lambda block: block.at_level(level))

    # --- what it holds ---------------------------------------------------------------------------

    def diagonal(self) -> NDArray[Any]:
        """Diagonal, (size,); zero where the form has no diagonal block."""
        result = self.space.zeros(self.dtype)
        for name in self.space.names:
            block = self._blocks.get((name, name))
            if block is not None:
                result[self.space.slice(name)] = block.diagonal()
        result[self.space.memory.put(self.constraints.rows)] = self.constraints.identity
        return result

    @checked(OperatorError)
    def assemble(self, method: str = "near-optimal") -> csr_array:
        """The matrix, in compressed rows, with the essential conditions in it.

        Parameters
        ----------
        method : {"near-optimal", "naive"}
            See `Operator.assemble`.

        Raises
        ------
        OperatorError
            If it would not fit into memory; the message says how much it needs.
        """
        check_method(method)
        names = self.space.names
        parts = [[self._matrix(test, field, method) for field in names] for test in names]
        return csr_array(block_array(parts, format="csr"))

    def _matrix(self, test: str, field: str, method: str) -> csr_array | None:
        block = self._blocks.get((test, field))
        if block is not None:
            return block.assemble(method)
        if test != field:
            return None
        rows, n = self._local(test, field).rows, self.space.spaces[test].size
        values = np.full(len(rows), self.constraints.identity, self.dtype)
        return csr_array((values, (rows, rows)), shape=(n, n))

    @names_checked
    def cost(self, method: str = "near-optimal") -> Cost:
        """Operations and traffic of one application, storage, operations of the assembly.

        Sums over the blocks, each of which reads its part of x and writes its part of the result;
        ``method`` as for `Operator.cost`.
        """
        costs = [block.cost(method) for block in self._blocks.values()]
        return Cost(**{f.name: sum(getattr(c, f.name) for c in costs) for f in fields(Cost)})

    def __repr__(self) -> str:
        spaces = ", ".join(f"{name}={space.size}" for name, space in self.space.spaces.items())
        blocks = " ".join(f"[{test}, {field}]" for test, field in self._blocks)
        constraints = f", {self.constraints}" if self.constraints else ""
        asked = ", ".join(sorted({block.asked for block in self._blocks.values()}))
        level = "" if asked == "partial" else f", {asked}"
        return f"BlockOperator({spaces}: blocks {blocks}, {self.dtype}{level}{constraints})"


def _with_constraints(block: Operator, constraints: Constraints) -> Operator:
    """A block under essential conditions; the block itself if it has them already."""
    same = (
        block.constraints.same(constraints) and block.constraints.identity == constraints.identity
    )
    # all ranks compute anew, or none
    return block._with_constraints(constraints) if block.space.comm.max(int(not same)) else block


def _within(dofs: NDArray[np.int64], part: slice) -> NDArray[np.int64]:
    """Those of the ascending positions in a part of a vector, counted from its beginning."""
    first, last = np.searchsorted(dofs, [part.start, part.stop])
    local: NDArray[np.int64] = dofs[first:last] - part.start
    return local
