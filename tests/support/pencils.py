"""Eigenvalue problems, and solutions held against dense algebra."""

import numpy as np
import pytest
from scipy.linalg import eigh

import femops
from femops.eigen import chebyshev_subspace


def dense(A, M):
    """Eigenvalues of the free dofs."""
    free = np.setdiff1d(np.arange(A.space.size), A.constrained_dofs)
    if M is None:
        M = np.eye(A.space.size)
    elif isinstance(M, np.ndarray):
        M = np.diag(M.reshape(-1))
    else:
        M = M.unconstrained.assemble().toarray()
    part = np.ix_(free, free)
    return eigh(A.assemble().toarray()[part], M[part], eigvals_only=True)


def check(A, M, k, tol=1e-6, solver=chebyshev_subspace, **options):
    """Solve, and compare with dense algebra; the residuals are computed here once more."""
    expected = dense(A, M)[:k]
    found = solver(A, M, k, tol=tol, **options)
    size = np.abs(expected).max()
    assert found.converged
    assert found.tolerance == pytest.approx(tol * size, rel=1e-3)
    # one residual's square over a gap, or the residual where there is none
    assert np.abs(found.values - expected).max() <= 0.01 * tol * size
    assert (np.diff(found.values) >= 0).all()
    x = found.vectors.columns()
    assert not x[A.constrained_dofs].any()
    weights = M if isinstance(M, np.ndarray) else np.ones(A.space.size)
    if isinstance(M, np.ndarray) or M is None:
        massed = weights.reshape(-1, 1) * x
    else:
        massed = M.unconstrained @ x
        weights = M.unconstrained @ weights
    assert np.abs(x.T @ massed - np.eye(k)).max() < 1e-10
    left = A @ x - massed * found.values
    left[A.constrained_dofs] = 0.0
    norms = np.sqrt((left**2 / np.where(weights > 0, weights, 1.0).reshape(-1, 1)).sum(axis=0))
    assert (norms <= 1.001 * found.tolerance).all()
    assert norms == pytest.approx(found.residuals, rel=0.01, abs=1e-3 * found.tolerance)
    return found


def masses(V):
    """Return a full, a lumped and no mass of a space."""
    rule = femops.basis.lobatto(V.order + 1)
    return femops.mass(V), femops.mass(V, quadrature=rule).diagonal(), None
