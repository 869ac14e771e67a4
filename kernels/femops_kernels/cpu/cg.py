"""Conjugate gradients on the sum of sweeps: launching the compiled iteration."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import Solve, block_edges
from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.merged import MergedPass, owned_pieces, tail_length
from femops_kernels.cpu.sweep import LAUNCH, Terms


@final
class ConjugateGradients(Solve):
    """State of one solve; see ``skeletons/cg.py``.

    Parameters
    ----------
    terms : Terms
        The operator, symmetric and positive definite.
    b, x : (n,) arrays
        Right-hand side and first guess, of the kernels' type.
    inverse : (n,) array or None
        Entries of a diagonal preconditioner.
    merged : bool
        Update vectors inside the operator's sweep, see ``skeletons/cg_merged.py``; only for a
        mergeable operator.
    """

    def __init__(
        self,
        terms: Terms,
        b: NDArray[Any],
        x: NDArray[Any],
        inverse: NDArray[Any] | None,
        merged: bool = False,
    ) -> None:
        self._terms, self._b, self.merged = terms, b, merged
        self._use_inverse = inverse is not None
        self._inverse = b if inverse is None else inverse
        tail = tail_length(terms) if merged else 0
        pieces = owned_pieces(terms) if merged else None
        self._vectors = placed_array((4, len(b) + tail), b.dtype, pieces, axis=1)
        self.x[:] = x
        self._state = np.array([-1.0, 0.0, 0.0, 0.0])
        skeletons = ("driver", "cg_vectors", "cg", *["cg_merged"][: int(merged)])
        self._module = specialize(skeletons, {"REAL": b.dtype.name})
        self._edges = block_edges(len(b))
        self._partial = np.zeros((2, len(self._edges) - 1))
        self._pass = MergedPass(terms, self._vectors, len(b), inverse) if merged else None

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """See `Solve.advance`."""
        with LAUNCH:
            work = self._terms.workplace()
            if self._state[0] < 0.0 or not self._pass:
                self._iterate(work, tolerance, limit, 0 if self._pass else steps)
            if self._pass and self.status == 0:
                self._iterate_merged(self._pass, work, tolerance, limit, steps, show)

    def _iterate(
        self, work: tuple[int, int, int], tolerance: float, limit: int, steps: int
    ) -> None:
        self._module.iterate(
            *self._terms.addresses,
            *work,
            self._vectors,
            self._b,
            self._inverse,
            self._use_inverse,
            self._edges,
            self._partial,
            self._state,
            tolerance,
            limit,
            steps,
        )

    def _iterate_merged(
        self,
        one: MergedPass,
        work: tuple[int, int, int],
        tolerance: float,
        limit: int,
        steps: int,
        show: bool,
    ) -> None:
        self._module.iterate_merged(
            one.rows.ctypes.data,
            one.alphas.ctypes.data,
            len(one.rows),
            *work,
            self._vectors,
            self._inverse,
            self._use_inverse,
            self._edges,
            self._partial,
            self._state,
            one.todo,
            one.sums,
            one.scale,
            tolerance,
            limit,
            steps,
            show,
        )
