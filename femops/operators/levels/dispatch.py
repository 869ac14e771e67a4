"""Data of a sum of integrals at a level: one storage, or one for each domain or block.

Elements and boundary faces have separate sweeps.  The sweep over the elements comes first, because
sweeps over faces only add to the result.  On a product, a sweep reads and writes all fields at
once. Levels with matrices have one sweep for each block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.operators.assembly.csr import domains, flat, level_bytes, require_memory
from femops.operators.assembly.distributed_csr import Columns, assembled_rows, split_rows
from femops.operators.execution.backend import Step
from femops.operators.execution.choice import backend_of
from femops.operators.execution.ranks import forward_of
from femops.operators.integrals.constraints import FREE, Constraints
from femops.operators.integrals.kernel_term import KernelTerm
from femops.operators.integrals.term import Sum
from femops.operators.levels.cost import Cost
from femops.operators.levels.level_data import LevelData, block_steps, blocks_of, same_terms
from femops.operators.levels.matrices import CompressedRows, Elements, Rows, placed_csr
from femops.operators.levels.points import Points
from femops_kernels.codegen.specialize import Parts
from femops_kernels.compiled import ONE, Panels
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.kernels.separable import SeparableKernel
from femops_kernels.cpu.rows import GatheredVector, RowProduct


@final
@dataclass(frozen=True, eq=False)
class RankRows(CompressedRows):
    """Data of the level "full": the matrix rows of the dofs that this rank owns."""

    @cached_property
    def _rows(self) -> tuple[csr_array, csr_array, Columns]:
        """The matrix, the constrained columns removed from it, and the dofs of its columns."""
        matrix, columns = assembled_rows(self.summands)
        kept, removed = split_rows(matrix, columns, self.constraints, self.summands.first.dtype)
        return placed_csr(kept), removed, columns

    @property
    def _parts(self) -> tuple[csr_array, csr_array]:
        return self._rows[:2]

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """A single step: the product with the rows."""
        kept, _, columns = self._rows
        term = self.summands.first
        nvec = panels.nvec
        given, gathered = (kept.indptr, kept.indices, kept.data, term.row_width), None
        if columns.space.comm.max(columns.halo.ghosts):
            joined = placed_array((len(columns.whole) * nvec,), term.dtype)
            forward = forward_of(columns.space, columns.halo, term.dtype, nvec)
            gathered = GatheredVector(forward, columns.low * nvec, joined)
        return [Step(1.0, RowProduct(*given, gathered, nvec), *self.sides, True)]

    def moved_bytes(self) -> int:
        """See `LevelData.moved_bytes`: the matrix, and the copy of the vector with its ghosts."""
        kept, _, columns = self._rows
        return int(super().moved_bytes() + 2 * kept.dtype.itemsize * len(columns.whole))

    def lift(self, g: NDArray[Any]) -> NDArray[Any]:
        """See `LevelData.lift`. Multiplies by the removed columns."""
        _, removed, columns = self._rows
        return np.asarray(removed @ columns.forward(g))


JOINT = ("partial", "matrix-free")
"""Levels at which one sweep reads and writes all fields of a product."""


def level_data_of(
    level: str, summands: Sum, constraints: Constraints, before: LevelData | None = None
) -> LevelData:
    """Make the data object of a sum at a level. Nothing is allocated or compiled yet.

    Blocks with the same terms as a block of ``before`` are shared with it.
    """
    first = summands.first
    backend = backend_of(first.spaces[0])
    backend.check_level(level)
    if first.fields.on_product and (level not in JOINT or separable(level, summands)):
        return Blocks.of(level, summands, constraints, before)
    groups = domains(summands if level in JOINT else flat(summands))
    if level == "full" or (len(groups) == 1 and first.domain.covers):
        return _storage_of(level, summands, constraints)
    parts = {
        k: _storage_of(level, group, _share_of(constraints, first=k == 0))
        for k, group in enumerate(groups)
    }
    return Domains(summands, constraints, level, parts)


def separable(level: str, summands: Sum) -> bool:
    """True if each block of a sum on a product has a separable kernel. Collective.

    Kernels of 1-D matrices take less time than a sweep over all fields at the quadrature points.
    """
    space, plain = summands.first.spaces[0], True
    for _, term in summands:
        numbers = term.qfunction.numbers
        plain &= term.domain.covers and not (numbers.point or numbers.mapped)
    if plain and backend_of(space).separates:
        blocks = (Points(terms, FREE, level) for terms in blocks_of(summands).values())
        plain = all(isinstance(k, SeparableKernel) for block in blocks for k, _ in block.work)
    else:
        plain = False
    return not space.comm.max(int(not plain))


def _storage_of(level: str, summands: Sum, constraints: Constraints) -> LevelData:
    """Data object of integrals over the same elements, or over any domains at level "full"."""
    needed = level_bytes(level, summands)
    if needed:
        require_memory(needed, f"level={level!r}")
    if level == "full":
        alone = summands.first.spaces[0].distributed is None
        return Rows(summands, constraints) if alone else RankRows(summands, constraints)
    return (
        Elements(summands, constraints)
        if level == "element"
        else Points(summands, constraints, level)
    )


def _share_of(constraints: Constraints, *, first: bool) -> Constraints:
    """Constraints of one part of a sum. Only the first part writes constrained rows."""
    return constraints if first else replace(constraints, identity=0.0)


@dataclass(frozen=True, eq=False)
class Composite(LevelData, ABC):
    """Data of a sum in several parts: of domains of integration, or of blocks of a product."""

    summands: Sum
    constraints: Constraints
    level: str
    parts: Mapping[Any, LevelData]

    @property
    def as_stored(self) -> Sum:
        """See `LevelData.as_stored`, part by part."""
        return Sum(summand for part in self.parts.values() for summand in part.as_stored)

    def kernel_parts(self) -> list[Parts]:
        return [found for part in self.parts.values() for found in part.kernel_parts()]

    def kernel_terms(self) -> list[KernelTerm]:
        return [term for part in self.parts.values() for term in part.kernel_terms()]

    def cost(self) -> Cost:
        each = sum((part.cost() for part in self.parts.values()), Cost())
        return replace(each, bytes_moved=self.moved_bytes())

    def moved_bytes(self) -> int:
        return sum(part.moved_bytes() for part in self.parts.values())

    @abstractmethod
    def _constraints_of(self, constraints: Constraints, key: Any) -> Constraints:
        """Constraints of a part, if the sum has ``constraints``."""

    def with_constraints(self, constraints: Constraints) -> Self:
        parts = {
            key: part.with_constraints(self._constraints_of(constraints, key))
            for key, part in self.parts.items()
        }
        return replace(self, constraints=constraints, parts=parts)


@final
@dataclass(frozen=True, eq=False)
class Domains(Composite):
    """Data of a sum over several domains of integration, or over boundary faces alone.

    ``parts`` has the data of each domain by its number. The domain of elements, if any, is the
    first: sweeps over faces only add.
    """

    def _constraints_of(self, constraints: Constraints, key: Any) -> Constraints:
        return _share_of(constraints, first=key == 0)

    def steps(self, panels: Panels = ONE) -> list[Step]:
        return [step for part in self.parts.values() for step in part.steps(panels)]


@final
@dataclass(frozen=True, eq=False)
class Blocks(Composite):
    """Data of a sum on a product of spaces. ``parts`` has blocks by test function and field."""

    @staticmethod
    def of(
        level: str, summands: Sum, constraints: Constraints, before: LevelData | None = None
    ) -> Blocks:
        """Make the data object of a sum at a level; see `level_data_of`."""
        groups = blocks_of(summands)
        needed = sum(level_bytes(level, terms) for terms in groups.values())
        if needed:
            require_memory(needed, f"level={level!r}")
        product = summands.first.spaces[0]
        parts = {}
        for pair, terms in groups.items():
            old = before.parts.get(pair) if isinstance(before, Blocks) else None
            parts[pair] = (
                old
                if old is not None and same_terms(old.summands, terms)
                else level_data_of(level, terms, constraints.of_block(product, *pair))
            )
        return Blocks(summands, constraints, level, parts)

    def _constraints_of(self, constraints: Constraints, key: Any) -> Constraints:
        return constraints.of_block(self.summands.first.spaces[0], *key)

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """See `LevelData.steps`. Each block works on its parts of the vectors."""
        return block_steps(self.parts, self.sides, self.constraints, panels)

    def moved_bytes(self) -> int:
        """See `LevelData.moved_bytes`. Each block reads and writes its parts of the vectors."""
        first, (fields, tests) = self.summands.first, self.sides
        again = sum(fields.spaces[f].size + tests.spaces[t].size for t, f in self.parts)
        again -= sum(space.size for space in first.spaces)
        return super().moved_bytes() + int(again) * first.dtype.itemsize
