"""What an operator keeps at each level of assembly, and the compiled work that applies it.

=============  =====================================================  =======================
level          what is kept                                           one application
=============  =====================================================  =======================
full           the matrix, compressed rows                            product by rows
element        dense element matrices                                 products by element
decomposed     dense bases B (one for all elements) and D             B, D, transpose of B
partial        D at the quadrature points, or in each element if      sum factorisation
               all are affine
none           the modes of the elements' geometry                    sum factorisation
=============  =====================================================  =======================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.errors import OperatorError
from femops.operators.assembly import (
    Summands,
    assemble_csr,
    csr_bytes,
    domains,
    element_bytes,
    require_memory,
    split,
)
from femops.operators.element_matrices import ElementAssembly
from femops.operators.fusion import fused
from femops.operators.held import FREE, Held
from femops.operators.term import Term
from femops_kernels.dense import DecomposedKernel, ElementKernel
from femops_kernels.kernel import Kernel
from femops_kernels.rows import RowProduct
from femops_kernels.sweep import Data, Launch, Terms, aligned_array, store_interleaved

LEVELS = ("full", "element", "decomposed", "partial", "none")
CHOICES = (*LEVELS, "auto")
"""What a user may ask for; "auto" is the fastest of the levels, by measurement."""

_CACHED = ("fused", "matrices", "_parts")

Launches = list[tuple[float, Launch]]


class Storage(ABC):
    """What an operator keeps: a sum of terms with essential conditions, at some level.

    Attributes
    ----------
    summands : sequence of (float, Term)
    held : Held
    level : str
        What is kept.
    """

    summands: Summands
    held: Held
    level: str

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or another process needs: the rest is computed again there."""
        return {k: v for k, v in self.__dict__.items() if k not in _CACHED}

    @property
    def kept(self) -> Summands:
        """The summands, cut for the level."""
        return self.summands

    @abstractmethod
    def launches(self) -> Launches:
        """The compiled work and its factors; compiled, or read from the cache."""

    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations of one application."""

    @abstractmethod
    def assembly_flops(self, method: str) -> int:
        """Floating-point operations to compute what is kept."""

    def data_flops(self) -> int:
        """Of D, at the quadrature points or in elements."""
        return sum(t.source.data_flops(t.cut) for t in self._terms() if t.source is not None)

    def _terms(self) -> list[Term]:
        return [term for _, term in self.summands]

    def _matrix_flops(self, method: str) -> int:
        """Of D and the element matrices."""
        each = (t.trial.mesh.num_elements * ElementAssembly(t).flops(method) for t in self._terms())
        return self.data_flops() + sum(each)

    @abstractmethod
    def moved_bytes(self) -> int:
        """Bytes of stored data and indices that one application reads."""

    @abstractmethod
    def stored_bytes(self) -> int:
        """Bytes kept between applications, of the arrays as they are."""

    @abstractmethod
    def shared_bytes(self) -> int:
        """Bytes of plans and geometry, kept for all operators on the spaces."""

    @abstractmethod
    def holding(self, held: Held) -> Storage:
        """The same terms under other essential conditions, sharing what can be shared."""

    def lift(self, g: NDArray[Any]) -> NDArray[Any]:
        """What values at held columns, zero elsewhere, contribute to the other rows."""
        result = np.empty(self.summands[0][1].test.size, g.dtype)
        Terms(self.holding(FREE).launches()).apply(g, result)
        return result

    def matrix(self, method: str) -> csr_array:
        """The matrix, with the essential conditions in it."""
        whole = assemble_csr(self.summands, method)
        return split(whole, self.held, self.summands[0][1].dtype)[0]


def make_storage(level: str, summands: Summands, held: Held) -> Storage:
    """Storage of one of `LEVELS`; nothing is allocated or compiled yet.

    All terms are integrals over the same elements, unless the level is "full".

    Raises
    ------
    OperatorError
        A level that would not fit into memory.
    """
    first = summands[0][1]
    if level == "full":
        require_memory(csr_bytes(summands), "level='full'")
        return Rows(summands, held)
    if level == "element":
        require_memory(element_bytes(first), "level='element'")
        return Elements(summands, held)
    return Points(summands, held, level)


def check_level(level: str) -> None:
    """Check the name of a level that a user asks for."""
    if level not in CHOICES:
        raise OperatorError(f"level {level!r}: choose one of {', '.join(CHOICES)}")


def base_level(level: str) -> str:
    """The level for which terms are cut until one is chosen."""
    return "partial" if level == "auto" else level


@final
@dataclass(frozen=True, eq=False)
class Points(Storage):
    """What the pointwise step is given, applied by sum factorisation or by dense bases.

    Attributes
    ----------
    summands, held
        See `Storage`.
    level : {"decomposed", "partial", "none"}
    """

    summands: Summands
    held: Held
    level: str

    @property
    def dense(self) -> bool:
        """Whether bases are dense, not factorised."""
        return self.level == "decomposed"

    @cached_property
    def fused(self) -> list[tuple[float, Term]]:
        """The summands, those on one quadrature rule made one."""
        groups: list[list[tuple[float, Term]]] = []
        for factor, term in self.summands:
            group = next((g for g in groups if g[0][1].fusible(term)), None)
            if group is None:
                groups.append([(factor, term)])
            else:
                group.append((factor, term))
        return [group[0] if len(group) == 1 else (1.0, fused(group)) for group in groups]

    def launches(self) -> Launches:
        """One sweep for each quadrature rule."""
        sweeps: Launches = []
        for k, (alpha, term) in enumerate(self.fused):
            # the sum has one identity on its constrained rows, which the first sweep writes
            keep = self.held.identity / alpha if k == 0 else 0.0
            bases = term.dense_bases() if self.dense else ()
            sweep = term.sweep(self._kernel(term), self.held, keep, term.data, bases)
            sweeps.append((alpha, sweep))
        return sweeps

    def _kernel(self, term: Term) -> Kernel | DecomposedKernel:
        return term.dense_kernel() if self.dense else term.factorised_kernel()

    def flops(self) -> int:
        """Of contractions as emitted and pointwise steps as counted."""
        total = 0
        for _, term in self.fused:
            points = term.quadrature.q1d**term.trial.dim
            each = self._kernel(term).contraction_flops() + points * term.program.flops
            total += term.trial.mesh.num_elements * each
        return total

    def assembly_flops(self, method: str) -> int:  # noqa: ARG002  (no element matrices)
        """Of D, and of dense bases by Kronecker products."""
        total = self.data_flops()
        for _, term in self.fused if self.dense else ():
            q1d, program = term.quadrature.q1d, term.program
            sides = [(term.trial.p1d, program.slots_in), (term.test.p1d, program.slots_out)]
            for p1d, slots in sides[:1] if sides[0] == sides[1] else sides:
                total += len(slots) * sum((q1d * p1d) ** k for k in range(2, term.trial.dim + 1))
        return total

    def _data_bytes(self, term: Term) -> int:
        bases = term.dense_bases() if self.dense else ()
        return int(term.data.nbytes + sum({id(b): b.nbytes for b in bases}.values()))

    def moved_bytes(self) -> int:
        """Of data, dense bases, geometry and indices."""
        return sum(
            self._data_bytes(term) + int(term.data.modes.nbytes) + term.index_bytes
            for _, term in self.fused
        )

    def stored_bytes(self) -> int:
        """Of data and dense bases."""
        return sum(self._data_bytes(term) for _, term in self.fused)

    def shared_bytes(self) -> int:
        """Of geometry and plans."""
        modes = {id(t.data.modes): int(t.data.modes.nbytes) for _, t in self.fused}
        plans = max(term.plan_bytes for _, term in self.fused)
        return sum(modes.values()) + plans

    def holding(self, held: Held) -> Points:
        """With the same data."""
        new = replace(self, held=held)
        _share(self, new, "fused")
        return new


@final
@dataclass(frozen=True, eq=False)
class Elements(Storage):
    """Dense element matrices.

    Attributes
    ----------
    summands, held
        See `Storage`.
    """

    summands: Summands
    held: Held
    level: str = "element"

    @cached_property
    def matrices(self) -> NDArray[Any]:
        """Of the sum, (nbatch, rows, columns, width), component after component."""
        first = self.summands[0][1]
        width, ne = first.width, first.trial.mesh.num_elements
        shape = ElementAssembly(first).shape
        out = aligned_array((-(-ne // width), *shape, width), first.dtype)
        assemblies = [(factor, ElementAssembly(term)) for factor, term in self.summands]
        smallest = min((a for _, a in assemblies), key=lambda a: a.step)
        for start, stop in smallest.blocks():
            total = sum(factor * a.matrices(start, stop) for factor, a in assemblies)
            store_interleaved(out, np.asarray(total), start)
        return out

    def _kernel(self) -> ElementKernel:
        term = self.summands[0][1]
        return ElementKernel(term.trial.dim, *term.sides(), term.dtype, term.width)

    def launches(self) -> Launches:
        """One sweep for the whole sum."""
        term, held = self.summands[0][1], self.held
        data = Data(self.matrices)
        return [(1.0, term.sweep(self._kernel(), held, held.identity, data))]

    def flops(self) -> int:
        """Of the products."""
        return self.summands[0][1].trial.mesh.num_elements * self._kernel().contraction_flops()

    def assembly_flops(self, method: str) -> int:
        """Of D and the matrices."""
        return self._matrix_flops(method)

    def moved_bytes(self) -> int:
        """Of matrices and indices."""
        return int(self.matrices.nbytes + self.summands[0][1].index_bytes)

    def stored_bytes(self) -> int:
        """Of the matrices."""
        return int(self.matrices.nbytes)

    def shared_bytes(self) -> int:
        """Of the plans."""
        return self.summands[0][1].plan_bytes

    def holding(self, held: Held) -> Elements:
        """With the same matrices."""
        new = replace(self, held=held)
        _share(self, new, "matrices")
        return new


@final
@dataclass(frozen=True, eq=False)
class Rows(Storage):
    """The matrix in compressed rows, with the essential conditions in it.

    Attributes
    ----------
    summands, held
        See `Storage`.
    """

    summands: Summands
    held: Held
    level: str = "full"

    @cached_property
    def _parts(self) -> tuple[csr_array, csr_array]:
        """The matrix, and the columns that were taken out of it."""
        kept, removed = split(assemble_csr(self.summands), self.held, self.summands[0][1].dtype)
        # what the compiled product takes; SciPy wants one type for both, see `matrix`
        kept.indptr = kept.indptr.astype(np.int64)
        kept.indices = kept.indices.astype(np.int32, copy=False)
        return kept, removed

    def launches(self) -> Launches:
        """One product by rows."""
        kept, width = self._parts[0], self.summands[0][1].width
        return [(1.0, RowProduct(kept.indptr, kept.indices, kept.data, width))]

    def flops(self) -> int:
        """Of the products; the matrix has no zeros stored."""
        kept = self._parts[0]
        return int(2 * kept.nnz - np.count_nonzero(np.diff(kept.indptr)))

    def assembly_flops(self, method: str) -> int:
        """Of D, the element matrices, and one addition for each of their entries."""
        sums = 0
        for (_, first), *_ in domains(self.summands):
            rows, columns = ElementAssembly(first).shape
            sums += first.trial.mesh.num_elements * rows * columns
        return self._matrix_flops(method) + sums

    def moved_bytes(self) -> int:
        """Of the matrix."""
        return _csr_bytes(self._parts[0])

    def stored_bytes(self) -> int:
        """Of the matrix and the columns taken out."""
        return _csr_bytes(self._parts[0]) + bool(self.held) * _csr_bytes(self._parts[1])

    def shared_bytes(self) -> int:
        """None."""
        return 0

    def holding(self, held: Held) -> Rows:
        """With another matrix."""
        return replace(self, held=held)

    def lift(self, g: NDArray[Any]) -> NDArray[Any]:
        """By the columns taken out."""
        return np.asarray(self._parts[1] @ g)

    def matrix(self, method: str) -> csr_array:
        """A copy of the matrix kept, or one assembled by the other method."""
        if method != "near-optimal":
            return Storage.matrix(self, method)
        kept = self._parts[0]
        kind = np.int32 if kept.nnz < 2**31 else np.int64
        indices = kept.indices.astype(kind), kept.indptr.astype(kind)
        return csr_array((kept.data.copy(), *indices), shape=kept.shape)


def _csr_bytes(matrix: csr_array) -> int:
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)


def _share(old: Storage, new: Storage, name: str) -> None:
    """Hand on a cached attribute where it has been computed."""
    if name in old.__dict__:
        new.__dict__[name] = old.__dict__[name]
