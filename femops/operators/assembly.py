"""Full assembly: element matrices summed into compressed rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array

from femops.errors import OperatorError
from femops.operators.term import Term

# Numbers of element matrices that are formed at once.
_BLOCK = 4_000_000


def available_bytes() -> int:
    """Memory that can still be had, bytes; very large where the system does not tell."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 2**62


def assemble_csr(
    terms: Sequence[tuple[float, Term]], constrained: NDArray[np.int64], identity: float
) -> csr_array:
    """Sum of the terms as a matrix, with the essential conditions in it.

    Constrained rows and columns are ``identity`` times those of the identity.

    Raises
    ------
    OperatorError
        If the element matrices would not fit into memory.
    """
    space, dtype = terms[0][1].space, terms[0][1].dtype
    local = space.p1d**space.dim * space.ncomp
    ne = space.mesh.num_elements
    # row, column and value of every entry, and the sum beside them
    needed = 2 * ne * local**2 * (2 * np.dtype(_index_type(space.size)).itemsize + 8)
    free = available_bytes()
    if needed > free:
        raise OperatorError(
            f"the matrix needs {needed / 2**30:.1f} GiB to assemble and {free / 2**30:.1f} GiB are "
            "free: apply the operator instead, or take a smaller mesh or order"
        )
    total: csr_array | None = None
    step = max(1, _BLOCK // local**2)
    blocks = [(s, min(s + step, ne)) for s in range(0, ne, step)]
    parts = [_block(terms, start, stop) for start, stop in blocks]
    rows, columns, values = (np.concatenate([p[k] for p in parts]) for k in range(3))
    total = coo_array((values, (rows, columns)), shape=(space.size, space.size)).tocsr()
    if len(constrained):
        free_rows = np.ones(space.size)
        free_rows[constrained] = 0.0
        mask = diags_array(free_rows)
        total = csr_array(mask @ total @ mask + identity * diags_array(1.0 - free_rows))
    total.eliminate_zeros()
    return total.astype(dtype)


def _index_type(size: int) -> Any:
    return np.int32 if size < 2**31 else np.int64


def _block(
    terms: Sequence[tuple[float, Term]], start: int, stop: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
    space = terms[0][1].space
    matrices = sum(factor * term.element_matrices(start, stop) for factor, term in terms)
    nodes = space.restriction.indices[start:stop]
    flat = nodes[:, :, np.newaxis] * space.ncomp + np.arange(space.ncomp)
    flat = flat.reshape(stop - start, -1)
    n = flat.shape[1]
    dofs = flat.astype(_index_type(space.size))
    rows = np.broadcast_to(dofs[:, :, np.newaxis], (stop - start, n, n))
    columns = np.broadcast_to(dofs[:, np.newaxis, :], (stop - start, n, n))
    values = np.asarray(matrices).reshape(stop - start, n, n)
    return rows.ravel(), columns.ravel(), values.ravel()
