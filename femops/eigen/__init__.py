"""Eigenvalues and eigenvectors of operators, computed for many vectors at once."""

from femops.eigen.chebyshev import chebyshev_subspace
from femops.eigen.eigenpairs import Eigenpairs, SubspaceState

__all__ = ["Eigenpairs", "SubspaceState", "chebyshev_subspace"]
