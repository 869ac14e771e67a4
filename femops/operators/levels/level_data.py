"""Data that an operator stores at each level, what they cost, and launches that apply them.

=============  =====================================================  =======================
level          stored data                                            one application
=============  =====================================================  =======================
full           the matrix, compressed rows                            product by rows
element        dense element matrices                                 products by element
partial        D at the quadrature points, or in each element if      sum factorisation
               all are affine; if D is diagonal, 1-D matrices
matrix-free    the modes of the elements' geometry                    sum factorisation
=============  =====================================================  =======================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, final

from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.operators.assembly.csr import assemble_csr, split
from femops.operators.assembly.distributed_csr import rank_matrix
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.execution.backend import Backend, Step, TermWork
from femops.operators.execution.host import backend_of
from femops.operators.execution.ranks import compiled_steps
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.constraints import FREE, Constraints
from femops.operators.integrals.term import Sum, Term
from femops.pointwise.linear import Pair
from femops.pointwise.sides import base_name
from femops_common import html
from femops_kernels.compiled import ONE, CompiledOperator, Panels


@final
@dataclass(frozen=True)
class Cost:
    """Cost of one application of an operator, and of making the operator. Costs can be added.

    Attributes
    ----------
    flops : int
        Floating-point operations of the emitted contractions and of the q-functions. A fused
        multiply-add counts as two.
    bytes_moved : int
        Least memory traffic, in bytes: stored data, indices and x are read once, y is written.
    stored_bytes : int
        Bytes that the operator stores for its applications. Its copies of coefficients are not
        counted, because applications do not read them.
    shared_bytes : int
        Bytes that all operators on its spaces share: the indices of the element restriction, and
        the geometry that kernels read.
    assembly_flops : int
        Floating-point operations that compute the stored data. Functions of x are not counted.
    data_flops : int
        The part of these operations that computes D at quadrature points or in elements.
    """

    flops: int = 0
    bytes_moved: int = 0
    stored_bytes: int = 0
    shared_bytes: int = 0
    assembly_flops: int = 0
    data_flops: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def _repr_html_(self) -> str:
        rows = [
            ("operations of a product", f"{self.flops:,}"),
            ("bytes that a product moves", f"{self.bytes_moved:,}"),
            ("bytes stored", f"{self.stored_bytes:,}"),
            ("bytes shared with other operators", f"{self.shared_bytes:,}"),
            ("operations of the setup", f"{self.assembly_flops:,}"),
            ("of these for D at points", f"{self.data_flops:,}"),
        ]
        return html.table("Cost", rows)


_CACHED = (
    "fused",
    "_groups",
    "work",
    "matrices",
    "_parts",
    "_rows",
    "_stored",
    "_by_element",
    "_blocks",
)


class LevelData(ABC):
    """Data of an operator at a level, for a sum of terms with essential conditions."""

    summands: Sum
    constraints: Constraints
    level: str  # level of assembly

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or another process, without cached data."""
        return {k: v for k, v in self.__dict__.items() if k not in _CACHED}

    @property
    def kept(self) -> Sum:
        """The summands with q-functions for the level."""
        return self.summands

    @property
    def stored(self) -> LevelData:
        """Data of the level in use: the chosen level's for "auto", else the object itself."""
        return self

    @property
    def as_stored(self) -> Sum:
        """Summands whose numbers at points are rounded as kernels read them."""
        return self.summands

    @abstractmethod
    def steps(self, panels: Panels = ONE) -> list[Step]:
        """Launches with factors that apply the data, compiled or read from the cache."""

    def compile_ahead(self) -> None:
        """Start to compile the kernels of an application, on the host if a core is idle."""
        self.backend.compile_ahead(self.works, self.summands.first.spaces[0].comm.size)

    def works(self) -> list[TermWork]:
        """Terms whose kernels can be compiled in advance, and their work."""
        return []

    @property
    def backend(self) -> Backend:
        """Backend of the machine that the operator runs on."""
        return backend_of(self.summands.first.spaces[0])

    def compiled(self, panels: Panels = ONE) -> CompiledOperator:
        """Compile the operator. Collective if ranks share dofs."""
        dtype, steps = self.summands.first.dtype, self.steps(panels)
        return compiled_steps(self.backend, steps, self.sides, self.constraints, dtype, panels)

    @property
    def sides(self) -> tuple[Arguments, Arguments]:
        """All fields and test functions of the operator."""
        trial, test = self.summands.first.spaces
        return Arguments.of(trial), Arguments.of(test)

    @abstractmethod
    def cost(self) -> Cost:
        """Cost without the traffic of the vectors, which sums of operators read once."""

    def _data_flops(self) -> int:
        """Operations that compute D, at the quadrature points or in elements."""
        return sum(t.source.data_flops(t.qdata_split) for t in self._terms())

    def _terms(self) -> list[Term]:
        return [term for _, term in self.summands]

    def _matrix_flops(self) -> int:
        """Operations that compute D and the element matrices."""
        blocks = (block for t in self._terms() for block in t.blocks())
        each = (t.domain.num_elements * ElementAssembly(t).flops() for t in blocks)
        return self._data_flops() + sum(each)

    @abstractmethod
    def moved_bytes(self) -> int:
        """``bytes_moved`` of `cost`. No data at points are computed for this number on a device."""

    @abstractmethod
    def with_constraints(self, constraints: Constraints) -> LevelData:
        """Copy of the data with other essential conditions. Arrays are shared if they can be."""

    def lift(self, g: NDArray[Any]) -> NDArray[Any]:
        """Apply the unconstrained operator to ``g`` (size,), zero in unconstrained columns.

        Constrained rows of the result are undefined.
        """
        first = self.summands.first
        test = first.spaces[1]
        result: NDArray[Any] = test.memory.xp.empty(test.size, g.dtype)
        self.with_constraints(FREE).compiled().apply(g, result)
        return result

    def matrix(self) -> csr_array:
        """Assemble the matrix with the essential conditions. On many ranks, this rank's rows."""
        if self.summands.first.spaces[0].distributed is not None:
            return rank_matrix(self.as_stored, self.constraints)
        whole = assemble_csr(self.as_stored)
        return split(whole, self.constraints, self.summands.first.dtype)[0]


class Storage(LevelData, ABC):
    """Data of one level, for integrals over the same elements."""

    joint: ClassVar[bool] = False  # whether one sweep reads and writes all fields of a product
    whole: ClassVar[bool] = False  # whether one object has the integrals over all domains

    @classmethod
    @abstractmethod
    def of(cls, summands: Sum, constraints: Constraints, level: str) -> Storage:
        """Make the data. Nothing is allocated yet."""

    @staticmethod
    def setup_bytes(summands: Sum) -> int:  # noqa: ARG004
        """Bytes needed for the setup if they may exceed the available memory, else 0."""
        return 0

    @staticmethod
    @abstractmethod
    def least_work(summands: Sum, level: str, nvec: int) -> tuple[float, float]:
        """Least bytes moved and flops of one application. Nothing is compiled or assembled."""


def blocks_of(summands: Sum) -> dict[Pair, Sum]:
    """Terms of each operator block that is not zero, by test function and field, row by row."""
    names = summands.first.spaces[0].names
    found: dict[Pair, list[tuple[float, Term]]] = {
        (test, field): [] for test in names for field in names
    }
    for factor, term in summands:
        for test, field in term.pairs:
            pair = base_name(test), base_name(field)
            found[pair].append((factor, term.block(test, field)))
    return {pair: Sum(terms) for pair, terms in found.items() if terms}


def same_terms(one: Sum, other: Sum) -> bool:
    """True if two sums have the same terms with the same factors."""
    return len(one) == len(other) and all(
        a == b and s is t for (a, s), (b, t) in zip(one, other, strict=True)
    )


def block_steps(
    parts: Mapping[Pair, LevelData],
    sides: tuple[Arguments, Arguments],
    constraints: Constraints,
    panels: Panels,
) -> list[Step]:
    """Steps of the blocks of a sum on a product, each on its parts of the vectors."""
    fields, tests = sides
    found: list[Step] = []
    begun: set[str] = set()
    made = {pair: part.steps(panels) for pair, part in parts.items()}
    # only a block on the diagonal, over elements, has the identity on constrained rows
    whole = {t for (t, f), steps in made.items() if t == f and any(s.begins for s in steps)}
    for (test, field), steps in made.items():
        place = fields.origin(field), tests.origin(test)
        for step in steps:
            first = test not in begun and (test in whole or not constraints.identity)
            begins = step.begins and first
            ends = (
                replace(fields, spaces={field: step.fields.first}),
                replace(tests, spaces={test: step.tests.first}),
            )
            found.append(Step(step.alpha, step.launch, *ends, begins, place))
            begun.add(test)
    return found


def share(old: LevelData, new: LevelData, name: str) -> None:
    """Copy a cached attribute from old data to new data, if it has been computed."""
    if name in old.__dict__:
        new.__dict__[name] = old.__dict__[name]
