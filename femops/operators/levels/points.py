"""Data that an operator stores at the levels whose kernels call the q-function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import final

from femops.operators.execution.backend import Step, TermWork, Work
from femops.operators.execution.host import index_bytes, plan_bytes
from femops.operators.execution.specs import point_spec, separated
from femops.operators.integrals.constraints import FREE, Constraints
from femops.operators.integrals.fusion import fused
from femops.operators.integrals.term import AT_POINTS, KernelTerm, Sum, Term
from femops.operators.levels.level_data import Cost, Storage, block_steps, blocks_of, share
from femops.pointwise.linear import Pair
from femops_kernels.compiled import ONE, Launch, Panels
from femops_kernels.pointwise.qdata import Data
from femops_kernels.spec import SeparableSpec


@final
@dataclass(frozen=True, eq=False)
class Points(Storage):
    """Data of the levels "partial" and "matrix-free": stored inputs of the q-function."""

    summands: Sum
    constraints: Constraints
    level: str
    joint = True

    @classmethod
    def of(cls, summands: Sum, constraints: Constraints, level: str) -> Points:
        return cls(summands, constraints, level)

    @staticmethod
    def least_work(summands: Sum, level: str, nvec: int) -> tuple[float, float]:
        cost, term = Points(summands.at_level(level), FREE, level).cost(), summands.first
        vectors = sum(space.size for space in term.spaces) * term.dtype.itemsize * nvec
        return vectors + cost.bytes_moved, cost.flops * nvec

    @cached_property
    def fused(self) -> list[tuple[float, KernelTerm]]:
        """The summands, after fusion of summands with the same quadrature rule and spaces."""
        return [(1.0, fused(group)) if _is_fused(group) else group[0] for group in self._groups]

    @cached_property
    def _groups(self) -> list[Sum]:
        """Groups of summands that can be fused."""
        groups: list[list[tuple[float, Term]]] = []
        for factor, term in self.summands:
            group = next((g for g in groups if g[0][1].fusible(term)), None)
            if group is None:
                groups.append([(factor, term)])
            else:
                group.append((factor, term))
        return [*map(Sum, groups)]

    @property
    def as_stored(self) -> Sum:
        """See `LevelData.as_stored`. Fused terms are multiplied by factors and rounded again."""
        return Sum(
            (factor, term.in_sum(factor) if _is_fused(group) else term)
            for group in self._groups
            for factor, term in group
        )

    @cached_property
    def work(self) -> list[Work]:
        """Specification of the kernel, and data on the host, for each fused summand."""
        return [
            separated(t, [part for _, part in group]) or (point_spec(t), _whole(t, group))
            for (_, t), group in zip(self.fused, self._groups, strict=True)
        ]

    @cached_property
    def _blocks(self) -> dict[Pair, Points]:
        """Data of each block of a sum on a product, used for many vectors."""
        product, given = self.summands.first.spaces[0], self.constraints
        return {
            pair: Points(terms, given.of_block(product, *pair), self.level)
            for pair, terms in blocks_of(self.summands).items()
        }

    @cached_property
    def _stored(self) -> Points:
        """Copy of the data in which kernels read no geometry, used for many vectors.

        All numbers that depend on the geometry are stored at points. These numbers take less memory
        than a few vectors, and are read once for all vectors.
        """
        if not any(_mapped(term) for _, term in self.summands):
            return self
        return replace(self, summands=self.summands.map(kept_at_points), level="partial")

    def works(self) -> list[TermWork]:
        return [(term, partial(self._work, k)) for k, (_, term) in enumerate(self.fused)]

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """One sweep for each fused summand. For many vectors on a product, block by block."""
        first = self.summands.first.fields
        if panels != ONE and first.on_product and any(_mapped(t) for _, t in self._stored.summands):
            return block_steps(self._blocks, self.sides, self.constraints, panels)
        if panels != ONE:
            return self._stored.with_constraints(self.constraints).steps_of(panels)
        return self._launched(self.backend.launch)

    def steps_of(self, panels: Panels) -> list[Step]:
        """Steps for many vectors, from data whose kernels read no geometry."""
        return self._launched(partial(self.backend.launch_panels, panels=panels))

    def _launched(self, launch: Callable[..., Launch]) -> list[Step]:
        steps, given = [], self.constraints
        for k, ((alpha, term), (_, work)) in enumerate(zip(self.fused, self.works(), strict=True)):
            made = launch(term, given, self._keep(k), work)
            steps.append(Step(alpha, made, term.fields, term.tests, self._begins(k)))
        return steps

    def _begins(self, k: int) -> bool:
        """True if sweep k overwrites its test functions, because no earlier sweep writes them.

        Sweeps over faces never overwrite.
        """
        term = self.fused[k][1]
        before = {name for _, other in self.fused[:k] for name in other.tests.spaces}
        return term.domain.covers and before.isdisjoint(term.tests.spaces)

    def _work(self, k: int) -> Work:
        """See `work`, for fused summand k."""
        return self.work[k]

    def _keep(self, k: int) -> float:
        """Diagonal that sweep k writes in constrained rows. It is 0 if the sweep only adds."""
        return self.constraints.identity / self.fused[k][0] if self._begins(k) else 0.0

    def cost(self) -> Cost:
        """See `LevelData.cost`. Counts the emitted contractions, the q-functions and their data."""
        flops = 0
        for (_, term), (spec, _) in zip(self.fused, self.work, strict=True):
            each = spec.contraction_flops()
            if not isinstance(spec, SeparableSpec):
                each += term.trial.num_points(term.quadrature) * term.qfunction.flops
            flops += term.domain.num_elements * each
        modes = {id(data.modes): int(data.modes.nbytes) for _, data in self.work}
        setup = self._data_flops()
        return Cost(
            flops=flops,
            bytes_moved=self.moved_bytes(),
            stored_bytes=sum(stored for stored, _ in self._bytes),
            shared_bytes=sum(modes.values()) + max(plan_bytes(term) for _, term in self.fused),
            assembly_flops=setup,
            data_flops=setup,
        )

    @cached_property
    def _bytes(self) -> list[tuple[int, int]]:
        """Bytes of data without modes, and of modes, for each fused summand."""
        if any(t.looked_at for _, t in self.fused):  # the data are on the device, not on the host
            return [t.data_bytes for _, t in self.fused]
        return [(data.nbytes, int(data.modes.nbytes)) for _, data in self.work]

    def moved_bytes(self) -> int:
        """See `LevelData.moved_bytes`: data, geometry and indices."""
        return sum(map(sum, self._bytes)) + sum(index_bytes(term) for _, term in self.fused)

    def with_constraints(self, constraints: Constraints) -> Points:
        """Copy of the data with other constraints."""
        new = replace(self, constraints=constraints)
        share(self, new, "fused")
        share(self, new, "work")
        share(self, new, "_stored")
        return new


def _mapped(term: Term) -> bool:
    """True if the q-function reads Jacobians or positions computed by the kernel."""
    return term.qfunction.code.numbers.mapped


def kept_at_points(term: Term) -> Term:
    """Copy of the term at a level whose q-function reads no geometry.

    With ``data_dtype`` the copy rounds the same numbers as the term, but stores its own numbers in
    the type of the arithmetic.
    """
    partial = term.with_wide_data().at_level("partial")
    return (term.at_level(AT_POINTS) if _mapped(partial) else partial).ready("partial")


def _whole(term: KernelTerm, group: Sum) -> Data:
    """Data of a term on the host, also for a sum whose data a device computes."""
    return fused(group, whole=True).data if term.looked_at and _is_fused(group) else term.data


def _is_fused(group: Sum) -> bool:
    """True if factors multiply data. A sweep that is multiplied by zero could write no identity."""
    return len(group) > 1 or not group[0][0]
