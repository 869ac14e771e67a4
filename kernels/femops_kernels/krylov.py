"""Conjugate gradients on the sum of sweeps: launching the compiled iteration."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.specialize import specialize
from femops_kernels.sweep import LAUNCH, Terms

CONVERGED, BREAKDOWN = 1, 2


@final
class ConjugateGradients:
    """State of one solve; see ``skeletons/cg.py``.

    Parameters
    ----------
    terms : Terms
        The operator, symmetric and positive definite.
    b, x : (n,) arrays
        Right-hand side and first guess, of the kernels' type.
    inverse : (n,) array or None
        Entries of a diagonal preconditioner.
    """

    def __init__(
        self, terms: Terms, b: NDArray[Any], x: NDArray[Any], inverse: NDArray[Any] | None
    ) -> None:
        self._terms, self._b = terms, b
        self._use_inverse = inverse is not None
        self._inverse = b if inverse is None else inverse
        self._vectors = np.zeros((4, len(b)), dtype=b.dtype)
        self._vectors[0] = x
        self._state = np.array([-1.0, 0.0, 0.0, 0.0])
        self._parallel = terms.parallel()
        self._module = specialize(
            ("driver", "cg"), {"PARALLEL": self._parallel, "REAL": b.dtype.name}
        )
        self._partial = np.zeros((2, -(-len(b) // self._module.BLOCK)))

    def advance(self, tolerance: float, limit: int, steps: int) -> None:
        """Iterate until the residual's norm is at most ``tolerance``.

        At most ``steps`` iterations are added, and ``limit`` done in all.
        """
        terms = self._terms
        with LAUNCH:
            self._module.iterate(
                *terms.addresses,
                terms.work(self._parallel),
                terms.work_bytes,
                self._vectors,
                self._b,
                self._inverse,
                self._use_inverse,
                self._partial,
                self._state,
                tolerance,
                limit,
                steps,
            )

    @property
    def x(self) -> NDArray[Any]:
        """The iterate, a view."""
        iterate: NDArray[Any] = self._vectors[0]
        return iterate

    @property
    def iterations(self) -> int:
        """Iterations done."""
        return max(0, int(self._state[0]))

    @property
    def residual(self) -> float:
        """Euclidean norm of the (recursive) residual."""
        return float(self._state[2])

    @property
    def status(self) -> int:
        """0 while running, else ``CONVERGED`` or ``BREAKDOWN``."""
        return int(self._state[3])
