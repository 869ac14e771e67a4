"""Data of a sum of integrals at a level: one storage, or one for each domain or block.

Elements and boundary faces have separate sweeps.  The sweep over the elements comes first, because
sweeps over faces only add to the result.  On a product, a sweep reads and writes all fields at
once. Levels with matrices have one sweep for each block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import final

from femops.operators.assembly.csr import Summands, domains, flat, level_bytes, require_memory
from femops.operators.execution.backend import Step
from femops.operators.execution.choice import backend_of
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.constraints import FREE, Constraints
from femops.operators.integrals.kernel_term import KernelTerm
from femops.operators.levels.distributed_rows import RankRows
from femops.operators.levels.level_data import LevelData, block_steps, blocks_of, same_terms
from femops.operators.levels.matrices import Elements, Rows
from femops.operators.levels.points import Points
from femops.pointwise.linear import Pair
from femops_kernels.codegen.specialize import Parts
from femops_kernels.compiled import ONE, Panels
from femops_kernels.cpu.kernels.separable import SeparableKernel

JOINT = ("partial", "matrix-free")
"""Levels at which one sweep reads and writes all fields of a product."""


def level_data_of(
    level: str, summands: Summands, constraints: Constraints, before: LevelData | None = None
) -> LevelData:
    """Make the data object of a sum at a level. Nothing is allocated or compiled yet.

    Blocks with the same terms as a block of ``before`` are shared with it.

    Raises
    ------
    OperatorError
        If the level does not fit into memory.
    """
    first = summands[0][1]
    backend = backend_of(first.spaces[0])
    backend.check_level(level)
    if first.fields.on_product and (level not in JOINT or separable(level, summands)):
        return Blocks.of(level, summands, constraints, before)
    groups = domains(summands if level in JOINT else flat(summands))
    if level == "full" or (len(groups) == 1 and first.domain.covers):
        return _storage_of(level, summands, constraints)
    parts = tuple(
        _storage_of(level, group, _share_of(constraints, first=k == 0))
        for k, group in enumerate(groups)
    )
    return Domains(summands, constraints, level, parts)


def separable(level: str, summands: Summands) -> bool:
    """True if each block of a sum on a product has a separable kernel. Collective.

    Kernels of 1-D matrices take less time than a sweep over all fields at the quadrature points.
    """
    space, plain = summands[0][1].spaces[0], True
    for _, term in summands:
        numbers = term.qfunction.numbers
        plain &= term.domain.covers and not (numbers.point or numbers.mapped)
    if plain and backend_of(space).separates:
        blocks = (Points(terms, FREE, level) for terms in blocks_of(summands).values())
        plain = all(isinstance(k, SeparableKernel) for block in blocks for k, _ in block.work)
    else:
        plain = False
    return not space.comm.max(int(not plain))


def _storage_of(level: str, summands: Summands, constraints: Constraints) -> LevelData:
    """Data object of integrals over the same elements, or over any domains at level "full"."""
    needed = level_bytes(level, summands)
    if needed:
        require_memory(needed, f"level={level!r}")
    if level == "full":
        alone = summands[0][1].spaces[0].distributed is None
        return Rows(summands, constraints) if alone else RankRows(summands, constraints)
    return (
        Elements(summands, constraints)
        if level == "element"
        else Points(summands, constraints, level)
    )


def _share_of(constraints: Constraints, *, first: bool) -> Constraints:
    """Constraints of one part of a sum. Only the first part writes constrained rows."""
    return constraints if first else replace(constraints, identity=0.0)


@final
@dataclass(frozen=True, eq=False)
class Domains(LevelData):
    """Data of a sum over several domains of integration, or over boundary faces alone.

    Attributes
    ----------
    summands, constraints, level
        See `LevelData`.
    parts : tuple of LevelData
        Data of each domain. The domain of elements, if any, comes first.
    """

    summands: Summands
    constraints: Constraints
    level: str
    parts: tuple[LevelData, ...]

    @property
    def as_stored(self) -> Summands:
        """See `LevelData.as_stored`."""
        return [summand for part in self.parts for summand in part.as_stored]

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """Steps of all parts. Steps over elements come first, because steps over faces only add."""
        return [step for part in self.parts for step in part.steps(panels)]

    def kernel_parts(self) -> list[Parts]:
        """Parts of the kernels of all domains."""
        return [found for part in self.parts for found in part.kernel_parts()]

    def kernel_terms(self) -> list[KernelTerm]:
        """Terms of all domains."""
        return [term for part in self.parts for term in part.kernel_terms()]

    def flops(self) -> int:
        """Operations of all parts."""
        return sum(part.flops() for part in self.parts)

    def assembly_flops(self) -> int:
        """Operations that assemble the matrices of all parts."""
        return sum(part.assembly_flops() for part in self.parts)

    def moved_bytes(self) -> int:
        """Bytes that all parts move."""
        return sum(part.moved_bytes() for part in self.parts)

    def stored_bytes(self) -> int:
        """Bytes that all parts store."""
        return sum(part.stored_bytes() for part in self.parts)

    def shared_bytes(self) -> int:
        """Bytes that all parts share with other operators."""
        return sum(part.shared_bytes() for part in self.parts)

    def with_constraints(self, constraints: Constraints) -> Domains:
        """Copy of the data with other constraints."""
        parts = (
            part.with_constraints(_share_of(constraints, first=k == 0))
            for k, part in enumerate(self.parts)
        )
        return replace(self, constraints=constraints, parts=tuple(parts))


@final
@dataclass(frozen=True, eq=False)
class Blocks(LevelData):
    """Data of a sum on a product of spaces, block by block.

    Attributes
    ----------
    summands, constraints, level
        See `LevelData`.
    parts : dict of LevelData
        Data of each block by test function and field.
    """

    summands: Summands
    constraints: Constraints
    level: str
    parts: Mapping[Pair, LevelData]

    @staticmethod
    def of(
        level: str, summands: Summands, constraints: Constraints, before: LevelData | None = None
    ) -> Blocks:
        """Make the data object of a sum at a level; see `level_data_of`.

        Raises
        ------
        OperatorError
            If the level would not fit into memory.
        """
        groups = blocks_of(summands)
        needed = sum(level_bytes(level, terms) for terms in groups.values())
        if needed:
            require_memory(needed, f"level={level!r}")
        product = summands[0][1].spaces[0]
        parts = {}
        for pair, terms in groups.items():
            old = before.parts.get(pair) if isinstance(before, Blocks) else None
            parts[pair] = (
                old
                if old is not None and same_terms(old.summands, terms)
                else level_data_of(level, terms, constraints.of_block(product, *pair))
            )
        return Blocks(summands, constraints, level, parts)

    @property
    def as_stored(self) -> Summands:
        """See `LevelData.as_stored`. Terms of blocks, block by block."""
        return [summand for part in self.parts.values() for summand in part.as_stored]

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """Steps of all blocks, each on its parts of the vectors."""
        return block_steps(self.parts, self.sides, self.constraints, panels)

    def kernel_parts(self) -> list[Parts]:
        """Parts of the kernels of all blocks."""
        return [found for part in self.parts.values() for found in part.kernel_parts()]

    def kernel_terms(self) -> list[KernelTerm]:
        """Terms of all blocks."""
        return [term for part in self.parts.values() for term in part.kernel_terms()]

    def flops(self) -> int:
        """Operations of all parts."""
        return sum(part.flops() for part in self.parts.values())

    def assembly_flops(self) -> int:
        """Operations that assemble the matrices of all parts."""
        return sum(part.assembly_flops() for part in self.parts.values())

    def data_flops(self) -> int:
        """Operations that compute D of all parts."""
        return sum(part.data_flops() for part in self.parts.values())

    def moved_bytes(self) -> int:
        """Bytes that all blocks move, with their parts of the vectors.

        The vectors themselves are subtracted, because the caller counts them.
        """
        first = self.summands[0][1]
        pieces = (side.spaces[name].size for side, name in self._pieces())
        vectors = sum(pieces) - int(sum(space.size for space in first.spaces))
        return vectors * first.dtype.itemsize + sum(p.moved_bytes() for p in self.parts.values())

    def _pieces(self) -> Iterator[tuple[Arguments, str]]:
        fields, tests = self.sides
        for test, field in self.parts:
            yield fields, field
            yield tests, test

    def stored_bytes(self) -> int:
        """Bytes that all parts store."""
        return sum(part.stored_bytes() for part in self.parts.values())

    def shared_bytes(self) -> int:
        """Bytes that all parts share with other operators."""
        return sum(part.shared_bytes() for part in self.parts.values())

    def with_constraints(self, constraints: Constraints) -> Blocks:
        """Copy of the data with other constraints."""
        product = self.summands[0][1].spaces[0]
        parts = {
            pair: part.with_constraints(constraints.of_block(product, *pair))
            for pair, part in self.parts.items()
        }
        return replace(self, constraints=constraints, parts=parts)
