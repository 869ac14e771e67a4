"""Small tensors by the million: layouts, batches, contractions and linear algebra.

This package does not depend on finite elements. The first axis of an array counts the members of a
batch.

>>> import numpy as np
>>> import femops
>>> A, B = np.ones((10_000, 8, 8)), np.ones((10_000, 8, 8))
>>> float(femops.tensor.gemm(A, B)[0, 0, 0])
8.0
"""

from femops.tensor.batch import Batch
from femops.tensor.einsum import einsum
from femops.tensor.gemm import gemm
from femops.tensor.group import Group, group_gemm
from femops.tensor.indexed import Index
from femops.tensor.layouts import Interleaved, Layout, Mapped, Strided, Tiled
from femops.tensor.linear import cholesky, eigh, lu, solve, solve_triangular
from femops.tensor.model import Limit, limit

__all__ = [
    "Batch",
    "Group",
    "Index",
    "Interleaved",
    "Layout",
    "Limit",
    "Mapped",
    "Strided",
    "Tiled",
    "cholesky",
    "eigh",
    "einsum",
    "gemm",
    "group_gemm",
    "limit",
    "lu",
    "solve",
    "solve_triangular",
]
