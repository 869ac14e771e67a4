"""Bounds of a spectrum by a few steps of Lanczos' method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from femops.eigen.pencil import AnyOperator, Array, Pencil
from femops.errors import SolverError
from femops.fields.reproducible import random_draws

Map = Callable[[Array], Array]

_MASS_STEPS = 12
_MARGIN = 1e3  # round-off of Lanczos' method, over the precision
_NOT_POSITIVE = "M is found not to be positive definite"


def spectrum(
    A: AnyOperator, inverse: Map, pencil: Pencil, steps: int, seed: int
) -> tuple[float, float, float]:
    """Estimate the ends of B A's spectrum by Lanczos' method, with an upper bound. Collective.

    Vectors are real. So the spectrum is that of A's real part if A is complex.
    """
    space, free, sums = A.space, pencil.free, pencil.sums
    real = np.finfo(A.dtype).dtype
    v = space.memory.put(random_draws(space, seed)().astype(real)) * pencil.deviations
    v = v if pencil.weights is None else v * pencil.weights
    z = inverse(v)
    alphas: list[float] = []
    betas: list[float] = []
    beta = _norm(sums.dot(v, z))
    before = space.memory.xp.zeros_like(v)
    for _ in range(steps):
        v, z = v / beta, z / beta
        given = space.memory.xp.ascontiguousarray(z).astype(A.dtype, copy=False)
        w = A.apply(given).real - (betas[-1] if betas else 0.0) * before
        w = w * free
        alphas.append(sums.dot(w, z))
        w = w - alphas[-1] * v
        before, v, z = v, w, inverse(w)
        beta = _norm(sums.dot(v, z))
        betas.append(beta)
        if not np.isfinite(beta):
            raise SolverError("products of A are not finite: look at its coefficients")
        if space.comm.max(int(beta == 0.0 and bool(w.any()))):
            raise SolverError("squares of the numbers of A or M are too small: scale A or M")
        if beta <= 1e-8 * max(map(abs, [*alphas, *betas])):
            break
    ritz = eigvalsh_tridiagonal(np.array(alphas), np.array(betas[:-1]))
    return float(ritz[0]), float(ritz[-1]), float(ritz[-1]) + betas[-1]


def spectrum_of_mass(pencil: Pencil) -> tuple[float, float, float]:
    """Estimate the ends of the spectrum of a full mass, times its lumped inverse. Collective.

    Raise if an eigenvalue is found to be negative, beyond round-off.
    """
    mass, scales = pencil.mass, pencil.scales
    assert mass is not None
    steps = min(_MASS_STEPS, pencil.count)
    low, high, bound = spectrum(mass, lambda w: w * scales, pencil, steps, 1)
    if low < -_MARGIN * float(np.finfo(mass.dtype).eps) * high:
        raise SolverError(_NOT_POSITIVE)
    return low, high, bound


def _norm(square: float) -> float:
    if square < 0.0:
        raise SolverError(_NOT_POSITIVE)
    return float(np.sqrt(square))
