"""Sums of integrals over different domains: the elements, and faces of the boundary.

Each domain is swept by itself.  Terms over boundary faces only add to the result, so that over the
elements comes first, or, where there is none, a start that sets the result to zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from femops.operators.assembly.csr import Summands, domains, level_bytes, require_memory
from femops.operators.constraints import Constraints
from femops.operators.execution.backend import Launches
from femops.operators.execution.choice import backend_of
from femops.operators.levels.distributed_rows import RankRows
from femops.operators.levels.level_data import LevelData
from femops.operators.levels.matrices import Elements, Rows
from femops.operators.levels.points import Points
from femops_kernels.codegen.specialize import Parts
from femops_kernels.compiled import ONE, Launch, Panels


def level_data_of(level: str, summands: Summands, constraints: Constraints) -> LevelData:
    """Storage of a sum at one of the levels; nothing is allocated or compiled yet.

    Raises
    ------
    OperatorError
        A level that would not fit into memory.
    """
    backend_of(summands[0][1].spaces[0]).check_level(level)
    groups = domains(summands)
    if level == "full" or (len(groups) == 1 and not summands[0][1].on_boundary):
        return _storage_of(level, summands, constraints)
    parts = tuple(
        _storage_of(level, group, _share_of(constraints, first=k == 0))
        for k, group in enumerate(groups)
    )
    return Domains(summands, constraints, level, parts)


def _storage_of(level: str, summands: Summands, constraints: Constraints) -> LevelData:
    """Storage of integrals over the same elements, unless the level is "full"."""
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
    """Constraints of one part of a sum: the first part has the identity on constrained rows."""
    return constraints if first else replace(constraints, identity=0.0)


@final
@dataclass(frozen=True, eq=False)
class Domains(LevelData):
    """The storages of several domains of integration, or of boundary faces alone.

    Attributes
    ----------
    summands, constraints, level
        See `LevelData`.
    parts : tuple of LevelData
        Data of each domain, that of the elements first, if there is one.
    """

    summands: Summands
    constraints: Constraints
    level: str
    parts: tuple[LevelData, ...]

    @property
    def as_stored(self) -> Summands:
        """See `LevelData.as_stored`."""
        return [summand for part in self.parts for summand in part.as_stored]

    def launches(self, panels: Panels = ONE) -> Launches:
        """Those of the parts, after one that writes the whole result."""
        parts, begin = self.parts, list[tuple[float, Launch]]()
        first = parts[0].summands[0][1]
        if first.on_boundary:
            parts = (
                parts[0].with_constraints(_share_of(self.constraints, first=False)),
                *parts[1:],
            )
            rows, keep = self.constraints.rows, self.constraints.identity
            begin = [(1.0, self.backend.start(first, rows, keep, panels))]
        return [*begin, *(launch for part in parts for launch in part.launches(panels))]

    def kernel_parts(self) -> list[Parts]:
        """Those of all parts."""
        return [found for part in self.parts for found in part.kernel_parts()]

    def flops(self) -> int:
        """Operations of all parts."""
        return sum(part.flops() for part in self.parts)

    def assembly_flops(self, method: str) -> int:
        """Operations that assemble the matrices of all parts."""
        return sum(part.assembly_flops(method) for part in self.parts)

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
        """Return the same data with other constraints."""
        parts = (
            part.with_constraints(_share_of(constraints, first=k == 0))
            for k, part in enumerate(self.parts)
        )
        return replace(self, constraints=constraints, parts=tuple(parts))
