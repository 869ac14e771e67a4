"""Data of a sum of integrals at a level: one storage, or one for each domain or block.

Elements and boundary faces have separate sweeps.  The sweep over the elements comes first, because
sweeps over faces only add to the result.  On a product, a sweep reads and writes all fields at
once. Levels with matrices have one sweep for each block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, final

from femops.errors import OperatorError
from femops.operators.assembly.csr import domains, flat, require_memory
from femops.operators.execution.backend import Step, TermWork
from femops.operators.execution.host import backend_of
from femops.operators.integrals.constraints import FREE, Constraints
from femops.operators.integrals.term import Sum
from femops.operators.levels.level_data import (
    Cost,
    LevelData,
    Storage,
    block_steps,
    blocks_of,
    same_terms,
)
from femops.operators.levels.matrices import Elements, Rows
from femops.operators.levels.points import Points
from femops_common.arguments import shown
from femops_kernels.compiled import ONE, Panels
from femops_kernels.spec import SeparableSpec

KINDS: dict[str, type[Storage]] = {
    "full": Rows,
    "element": Elements,
    "partial": Points,
    "matrix-free": Points,
}
"""The levels, and the class of the data of each: all that is to be told of a new level."""

LEVELS = tuple(KINDS)
CHOICES = (*LEVELS, "auto")
"""Levels that a user may ask for. "auto" chooses the fastest by measurement."""


def check_level(level: str) -> str:
    """Check the level that a user asks for. Return that of the terms: "auto" chooses later."""
    if not isinstance(level, str) or level not in CHOICES:
        raise OperatorError(f"level {shown(level)}: choose one of {', '.join(CHOICES)}")
    return "partial" if level == "auto" else level


def level_data_of(
    level: str, summands: Sum, constraints: Constraints, before: LevelData | None = None
) -> LevelData:
    """Make the data object of a sum at a level. Nothing is allocated or compiled yet.

    Blocks with the same terms as a block of ``before`` are shared with it.
    """
    first, kind = summands.first, KINDS[level]
    backend_of(first.spaces[0]).check_level(level)
    if first.fields.on_product and (not kind.joint or separable(level, summands)):
        return Blocks.of(level, summands, constraints, before)
    groups = domains(summands if kind.joint else flat(summands))
    if kind.whole or (len(groups) == 1 and first.domain.covers):
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
        plain &= term.domain.on_elements and not (numbers.point or numbers.mapped)
    if plain and backend_of(space).separates:
        blocks = (Points(terms, FREE, level) for terms in blocks_of(summands).values())
        plain = all(isinstance(spec, SeparableSpec) for block in blocks for spec, _ in block.work)
    else:
        plain = False
    return not space.comm.max(int(not plain))


def _storage_of(level: str, summands: Sum, constraints: Constraints) -> LevelData:
    """Data object of integrals over the same elements, or over any if the level has all in one."""
    needed = KINDS[level].setup_bytes(summands)
    if needed:
        require_memory(needed, f"level={level!r}")
    return KINDS[level].of(summands, constraints, level)


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

    def works(self) -> list[TermWork]:
        return [found for part in self.parts.values() for found in part.works()]

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
    """Data of a sum over several domains of integration, or over faces alone.

    ``parts`` has the data of each domain by its number. Sweeps over faces add to the result, so
    the domain of elements, if there is one, is the first.
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
        needed = sum(KINDS[level].setup_bytes(terms) for terms in groups.values())
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
