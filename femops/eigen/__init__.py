"""Eigenvalues and eigenvectors of operators, computed for many vectors at once."""

from femops.eigen.chebyshev import chebyshev_subspace
from femops.eigen.eigenpairs import Eigenpairs, SubspaceState
from femops.eigen.lobpcg import lobpcg

__all__ = ["Eigenpairs", "SubspaceState", "chebyshev_subspace", "lobpcg"]
