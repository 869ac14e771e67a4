"""Operators: sums of partially assembled terms with essential conditions, applied by sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from femops.abstract_space import Space
from femops.errors import OperatorError, VectorError
from femops.operators.assembly import assemble_csr
from femops.operators.term import Term, fused
from femops_kernels.sweep import Terms


@final
@dataclass(frozen=True)
class Cost:
    """What one application of an operator costs.

    Attributes
    ----------
    flops : int
        Floating-point operations (an FMA is two), contractions as emitted and pointwise steps as
        counted.
    bytes_moved : int
        Least traffic with memory, bytes: stored data and indices read once, x read, y written.
    stored_bytes : int
        Bytes kept between applications, vectors not counted.
    """

    flops: int
    bytes_moved: int
    stored_bytes: int


@final
class Operator(LinearOperator):  # type: ignore[misc]  # SciPy has no types
    """A finite element operator that is applied, not built.

    It is a SciPy ``LinearOperator`` on flat vectors (size,), and takes l_vecs (ndofs, ncomp) as
    well.  Operators come from forms (`femops.mass`, `femops.diffusion`) and from arithmetic:
    ``A + B``, ``A - B``, ``2 * A``, ``-A``, ``A.T``, ``A.constrained(dofs)``.  Terms on one
    quadrature rule are fused into one kernel.

    Attributes
    ----------
    space : Space
        Trial and test space.
    shape : (size, size)
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    """

    def __init__(
        self,
        terms: Sequence[tuple[float, Term]],
        constrained: NDArray[np.int64],
        identity: float = 0.0,
    ) -> None:
        self._summands = tuple(terms)
        self._constrained = constrained
        self._identity = identity
        self.space: Space = terms[0][1].space
        super().__init__(terms[0][1].dtype, (self.space.size, self.space.size))

    @staticmethod
    def of_term(term: Term) -> Operator:
        """Operator of a single term."""
        return Operator([(1.0, term)], np.zeros(0, dtype=np.int64))

    # --- application -----------------------------------------------------------------------------

    @cached_property
    def _fused(self) -> list[tuple[float, Term]]:
        """The summands, those on one quadrature rule made one."""
        groups: list[list[tuple[float, Term]]] = []
        for factor, term in self._summands:
            group = next((g for g in groups if g[0][1].fusible(term)), None)
            if group is None:
                groups.append([(factor, term)])
            else:
                group.append((factor, term))
        return [group[0] if len(group) == 1 else (1.0, fused(group)) for group in groups]

    @cached_property
    def terms(self) -> Terms:
        """The compiled sweeps; compiled, or read from the cache, at the first use."""
        sweeps = []
        for k, (alpha, term) in enumerate(self._fused):
            # the sum has one identity on its constrained rows, which the first sweep writes
            keep = self._identity / alpha if k == 0 else 0.0
            sweeps.append((alpha, term.sweep(self._constrained, keep)))
        return Terms(sweeps)

    def apply(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Compute A x, without allocating anything if ``out`` is given.

        Parameters
        ----------
        x : l_vec or flat vector
            C-contiguous, of the operator's type.
        out : array like x, optional
            Overwritten by the result; must not overlap x.

        Returns
        -------
        array of the shape of x

        Raises
        ------
        VectorError
            A vector of another length, type or memory layout, or an ``out`` that overlaps x.
        """
        self._check(x, "x")
        if out is None:
            out = np.empty_like(x)
        else:
            self._check(out, "out")
            if np.may_share_memory(x, out):
                raise VectorError("out overlaps x: give another array")
            if not out.flags.writeable:
                raise VectorError("out is read-only: give an array that can be written")
        self.terms.apply(x, out)
        return out

    def _check(self, vector: Any, what: str) -> None:
        self.space.check_vector(vector, what)
        if vector.dtype != self.dtype:
            raise VectorError(
                f"{what} has type {vector.dtype}, the operator {self.dtype}: "
                f"convert it by .astype({self.dtype})"
            )
        if not vector.flags.c_contiguous:
            raise VectorError(f"{what} is not C-contiguous: pass numpy.ascontiguousarray({what})")

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        if not np.can_cast(x.dtype, self.dtype, "same_kind"):
            raise VectorError(
                f"x has type {x.dtype}, the operator {self.dtype}: give a real vector"
            )
        flat = np.ascontiguousarray(x, dtype=self.dtype).reshape(-1)
        return self.apply(flat)

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._matvec(x)

    def __matmul__(self, x: Any) -> Any:
        if isinstance(x, np.ndarray) and x.shape == self.space.shape:
            return self._matvec(x).reshape(x.shape)
        return super().__matmul__(x)

    # --- algebra ---------------------------------------------------------------------------------

    def _adjoint(self) -> Operator:
        for _, term in self._summands:
            if not term.program.symmetric:
                raise OperatorError(
                    f"the term {term.name} is not symmetric: its transpose is not built"
                )
        return self

    _transpose = _adjoint

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Operator):
            return super().__add__(other)
        if other.space is not self.space or other.dtype != self.dtype:
            raise OperatorError(
                f"operators on different spaces or types can't be added: {self!r} and {other!r}"
            )
        if not np.array_equal(self._constrained, other._constrained):
            raise OperatorError(
                "operators with different constraints can't be added: "
                "write (A + B).constrained(dofs)"
            )
        return Operator(
            self._summands + other._summands, self._constrained, self._identity + other._identity
        )

    def __mul__(self, factor: Any) -> Any:
        if not isinstance(factor, bool) and isinstance(factor, Real):
            scale = float(factor)
            if not np.isfinite(scale) or scale == 0.0:
                raise OperatorError(
                    f"an operator times {scale}: give a finite number other than zero"
                )
            scaled = [(scale * a, term) for a, term in self._summands]
            return Operator(scaled, self._constrained, scale * self._identity)
        return super().__mul__(factor)

    def __rmul__(self, factor: Any) -> Any:
        if isinstance(factor, Real):
            return self * factor
        return super().__rmul__(factor)

    def __neg__(self) -> Operator:
        return self * -1.0  # type: ignore[no-any-return]

    def __sub__(self, other: Any) -> Any:
        return self + -other

    # --- essential conditions --------------------------------------------------------------------

    def constrained(self, dofs: ArrayLike) -> Operator:
        """The operator with rows and columns of some dofs replaced by those of the identity.

        Parameters
        ----------
        dofs : (k,) integers
            Flat positions, as `Space.boundary_dofs` gives them.  Dofs constrained already stay so.

        Returns
        -------
        Operator

        Raises
        ------
        OperatorError
            Positions that are no whole numbers or outside the vector.
        """
        positions = np.asarray(dofs)
        if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
            raise OperatorError(
                f"dofs have shape {positions.shape} and type {positions.dtype}: "
                "give a list of whole numbers, as V.boundary_dofs() does"
            )
        size = self.space.size
        if positions.size and (positions.min() < 0 or positions.max() >= size):
            raise OperatorError(
                f"dofs run from {positions.min()} to {positions.max()}: "
                f"the vector has {size} entries"
            )
        union = np.union1d(self._constrained, positions.astype(np.int64))
        return Operator(self._summands, union, self._identity or 1.0)

    @property
    def unconstrained(self) -> Operator:
        """The operator without its essential conditions."""
        return Operator(self._summands, np.zeros(0, dtype=np.int64))

    @property
    def constrained_dofs(self) -> NDArray[np.int64]:
        """Flat positions of the constrained dofs, ascending."""
        return self._constrained

    def rhs(self, b: NDArray[Any], values: NDArray[Any] | float = 0.0) -> NDArray[Any]:
        """Right-hand side that belongs to given values at the constrained dofs.

        Parameters
        ----------
        b : l_vec or flat vector
            Load vector of the unconstrained problem.
        values : l_vec, flat vector or number
            Its entries at the constrained dofs are imposed; the others are not looked at.

        Returns
        -------
        array of the shape of b
            ``b - A g`` at the free dofs (g is zero there), ``g`` at the constrained ones (times
            what the constrained rows hold, 1 unless the operator was scaled).

        Raises
        ------
        VectorError
            See `apply`.
        """
        self._check(b, "b")
        g = np.zeros(self.space.size, dtype=self.dtype)
        if isinstance(values, np.ndarray):
            self._check(values, "values")
            g[self._constrained] = values.reshape(-1)[self._constrained]
        else:
            g[self._constrained] = values
        result: NDArray[Any] = b.reshape(-1) - self.unconstrained.apply(g)
        result[self._constrained] = self._identity * g[self._constrained]
        return result.reshape(b.shape)

    # --- what it holds ---------------------------------------------------------------------------

    def diagonal(self) -> NDArray[Any]:
        """Diagonal, in the shape of an l_vec, by sum factorisation (squared 1-D matrices)."""
        total = sum(factor * term.diagonal() for factor, term in self._summands)
        values = np.asarray(total)
        values[self._constrained] = self._identity
        return values.reshape(self.space.shape).astype(self.dtype, copy=False)

    def assemble(self) -> csr_array:
        """The matrix, in compressed rows, with the essential conditions in it.

        Raises
        ------
        OperatorError
            If it would not fit into memory; the message says how much it needs.
        """
        return assemble_csr(self._summands, self._constrained, self._identity)

    def cost(self) -> Cost:
        """Operations, traffic and storage of one application."""
        flops = moved = stored = 0
        ne = self.space.mesh.num_elements
        for (_, term), sweep in zip(self._fused, self.terms.sweeps, strict=True):
            points = term.quadrature.q1d**self.space.dim
            flops += ne * (sweep.kernel.contraction_flops() + points * term.program.flops)
            moved += sweep.qdata.nbytes + sweep.plan.indices.nbytes
            stored += sweep.stored_bytes
        moved += 2 * self.space.size * self.dtype.itemsize
        return Cost(flops, moved, stored)

    def __repr__(self) -> str:
        names = " + ".join(
            term.name if factor == 1.0 else f"{factor:g} {term.name}"
            for factor, term in self._summands
        )
        held = f", {len(self._constrained)} constrained" if len(self._constrained) else ""
        n = self.space.size
        return f"Operator({names}: {n} x {n}, {self.dtype}{held})"
