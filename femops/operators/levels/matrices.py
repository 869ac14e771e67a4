"""Matrices that an operator stores at the levels "full" and "element"."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.operators.assembly.csr import (
    assemble_csr,
    csr_bytes,
    domains,
    element_bytes,
    flat,
    require_memory,
    split,
)
from femops.operators.assembly.distributed_csr import Columns, assembled_rows, split_rows
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.assembly.point_matrices import entry_numbers
from femops.operators.execution.backend import Step
from femops.operators.execution.host import index_bytes, plan_bytes
from femops.operators.execution.ranks import forward_of
from femops.operators.execution.specs import matrix_spec
from femops.operators.integrals.coefficients import check_values
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.term import Sum, Term
from femops.operators.levels.level_data import Cost, Storage, share
from femops.spaces.face_space import FaceSpace
from femops_kernels.compiled import ONE, Launch, Panels
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.rows import GatheredVector, RowProduct, placed_rows
from femops_kernels.pointwise.qdata import Data, store_interleaved


@final
@dataclass(frozen=True, eq=False)
class Elements(Storage):
    """Data of the level "element": dense element matrices."""

    summands: Sum
    constraints: Constraints
    level: str = "element"

    @classmethod
    def of(cls, summands: Sum, constraints: Constraints, level: str) -> Elements:
        return cls(summands, constraints, level)

    @staticmethod
    def setup_bytes(summands: Sum) -> int:
        return element_bytes(summands.first)

    @staticmethod
    def least_work(summands: Sum, level: str, nvec: int) -> tuple[float, float]:  # noqa: ARG004
        size = float(sum(element_bytes(block) for block in summands.first.blocks()))
        return size, 2 * size / summands.first.dtype.itemsize * nvec

    @cached_property
    def matrices(self) -> NDArray[Any]:
        """Element matrices of the sum, (nbatch, rows, columns, width), component by component."""
        first = self.summands.first
        nbatch = -(-first.domain.num_elements // first.width)
        shape = (nbatch, *ElementAssembly(first).shape, first.width)
        out = placed_array(shape, first.dtype, first.chunk_batches)
        assemblies = [(factor, ElementAssembly(term)) for factor, term in self.summands]
        smallest = min((a for _, a in assemblies), key=lambda a: a.step)
        for start, stop in smallest.blocks():
            total = sum(factor * a.matrices(start, stop) for factor, a in assemblies)
            check_values("entries of the matrix", np.asarray(total), first.dtype)
            store_interleaved(out, np.asarray(total), start)
        return out

    @cached_property
    def _by_element(self) -> NDArray[Any]:
        """Element matrices (ne, rows, columns) in the layout that BLAS reads."""
        ne = self.summands.first.domain.num_elements
        nbatch, rows, columns, width = self.matrices.shape
        require_memory(self.matrices.nbytes, "element matrices for many vectors")
        by_slot = np.moveaxis(self.matrices, -1, 1).reshape(nbatch * width, rows, columns)
        return np.ascontiguousarray(by_slot[:ne])

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """One sweep for the sum of all terms."""
        term = self.summands.first
        launch = self._launch(term, panels) if term.domain.num_elements else self.backend.idle()
        return [Step(1.0, launch, term.fields, term.tests, term.domain.covers)]

    def _launch(self, term: Term, panels: Panels) -> Launch:
        constraints, keep = self.constraints, self.constraints.identity
        if not term.domain.covers:  # a sweep over faces only adds
            keep = 0.0
        if panels != ONE:
            work = matrix_spec(term), Data(self._by_element)
            return self.backend.launch_panels(term, constraints, keep, lambda: work, panels)
        work = matrix_spec(term), Data(self._in_element_order())
        return self.backend.launch(term, constraints, keep, lambda: work)

    def _in_element_order(self) -> NDArray[Any]:
        """The matrices as sweeps read them: elements behind faces are not turned to the faces."""
        term, given = self.summands.first, self.matrices
        for axis, space in ((1, term.test), (2, term.trial)):
            if not isinstance(space, FaceSpace) or not space.has_end:
                continue
            nodes = space.turned_nodes()
            blocks = [nodes + c * nodes.shape[1] for c in range(space.ncomp)]
            each, width = np.concatenate(blocks, axis=1), given.shape[-1]
            each = np.concatenate([each, np.repeat(each[-1:], -len(each) % width, axis=0)])
            by_slot = np.moveaxis(each.reshape(len(given), width, -1), 1, 2)  # slots last, as given
            turned = np.empty_like(given)
            at = by_slot[:, :, np.newaxis] if axis == 1 else by_slot[:, np.newaxis]
            np.put_along_axis(turned, np.broadcast_to(at, given.shape), given, axis)
            given = turned
        return given

    def cost(self) -> Cost:
        """See `LevelData.cost`. Counts the products, and the matrices with their D."""
        term, stored = self.summands.first, int(self.matrices.nbytes)
        return Cost(
            flops=term.domain.num_elements * matrix_spec(term).contraction_flops(),
            bytes_moved=self.moved_bytes(),
            stored_bytes=stored,
            shared_bytes=plan_bytes(term, layered=False),
            assembly_flops=self._matrix_flops(),
            data_flops=self._data_flops(),
        )

    def moved_bytes(self) -> int:
        """See `LevelData.moved_bytes`: matrices and indices."""
        return int(self.matrices.nbytes + index_bytes(self.summands.first, layered=False))

    def with_constraints(self, constraints: Constraints) -> Elements:
        """Copy of the data with other constraints. The matrices are shared."""
        new = replace(self, constraints=constraints)
        share(self, new, "matrices")
        share(self, new, "_by_element")
        return new


@dataclass(frozen=True, eq=False)
class CompressedRows(Storage, ABC):
    """Data of the level "full": the matrix in compressed rows, with the essential conditions."""

    summands: Sum
    constraints: Constraints
    level: str = "full"
    whole = True

    @classmethod
    def of(cls, summands: Sum, constraints: Constraints, level: str) -> Storage:
        alone = summands.first.spaces[0].distributed is None
        return (Rows if alone else RankRows)(summands, constraints, level)

    @staticmethod
    def setup_bytes(summands: Sum) -> int:
        return csr_bytes(flat(summands))

    @staticmethod
    def least_work(summands: Sum, level: str, nvec: int) -> tuple[float, float]:  # noqa: ARG004
        blocks = summands.first.blocks()
        entries = sum(_least_entries(block) for block in blocks)
        return entries * (summands.first.dtype.itemsize + 4), 2 * entries * nvec

    @property
    @abstractmethod
    def _parts(self) -> tuple[csr_array, csr_array]:
        """The matrix, and the constrained columns removed from it."""

    def cost(self) -> Cost:
        """See `LevelData.cost`. The setup adds each entry of an element matrix once."""
        kept, removed = self._parts
        sums = 0
        for (_, first), *_ in domains(self.summands):
            rows, columns = ElementAssembly(first).shape
            sums += first.domain.num_elements * rows * columns
        return Cost(
            flops=int(2 * kept.nnz - np.count_nonzero(np.diff(kept.indptr))),  # no zeros stored
            bytes_moved=self.moved_bytes(),
            stored_bytes=csr_nbytes(kept) + bool(self.constraints) * csr_nbytes(removed),
            assembly_flops=self._matrix_flops() + sums,
            data_flops=self._data_flops(),
        )

    def moved_bytes(self) -> int:
        """See `LevelData.moved_bytes`: the matrix."""
        return csr_nbytes(self._parts[0])

    def with_constraints(self, constraints: Constraints) -> Self:
        """Copy of the data with other constraints. Its matrix is assembled again."""
        return replace(self, constraints=constraints)


@final
@dataclass(frozen=True, eq=False)
class Rows(CompressedRows):
    """Data of the level "full" in one process: all rows of the matrix."""

    @cached_property
    def _parts(self) -> tuple[csr_array, csr_array]:
        kept, removed = split(
            assemble_csr(self.summands), self.constraints, self.summands.first.dtype
        )
        return placed_csr(kept), removed

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """One product with the matrix."""
        kept, width = self._parts[0], self.summands.first.row_width
        given = kept.indptr, kept.indices, kept.data, width
        return [Step(1.0, RowProduct(*given, nvec=panels.nvec), *self.sides, True)]

    def lift(self, g: NDArray[Any]) -> NDArray[Any]:
        """See `LevelData.lift`. Multiplies by the removed columns."""
        return np.asarray(self._parts[1] @ g)

    def matrix(self) -> csr_array:
        """Copy of the stored matrix."""
        kept = self._parts[0]
        kind = np.int32 if kept.nnz < 2**31 else np.int64
        indices = kept.indices.astype(kind), kept.indptr.astype(kind)
        return csr_array((kept.data.copy(), *indices), shape=kept.shape)


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


def _least_entries(term: Term) -> float:
    """Estimate the entries of the matrix by those of a large Cartesian mesh with as many dofs."""
    columns = (term.trial.order + 1.0) ** term.trial.dim
    coupled = np.count_nonzero(entry_numbers(term).any(axis=(0, 2)))  # components, one by one
    return term.test.touched * columns * coupled


def placed_csr(matrix: csr_array) -> csr_array:
    """Copy of a matrix with arrays that the compiled product reads.

    Row starts are int64 and columns int32, and arrays lie near the threads that read them. SciPy
    needs one type for both kinds of indices, see `Rows.matrix`.
    """
    start, columns = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
    matrix.indptr, matrix.indices, matrix.data = placed_rows(start, columns, matrix.data)
    return matrix


def csr_nbytes(matrix: csr_array) -> int:
    """Bytes of the arrays of a matrix."""
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)
