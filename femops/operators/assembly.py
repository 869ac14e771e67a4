"""Full assembly: element matrices summed into compressed rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array

from femops.abstract_space import Space
from femops.errors import OperatorError
from femops.operators.held import Held
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


def assemble_csr(terms: Sequence[tuple[float, Term]], held: Held) -> csr_array:
    """Sum of the terms as a matrix, with the essential conditions in it.

    Raises
    ------
    OperatorError
        If the element matrices would not fit into memory.
    """
    first = terms[0][1]
    shape = (first.test.size, first.trial.size)
    local = _local_size(first.test) * _local_size(first.trial)
    ne = first.trial.mesh.num_elements
    kind = np.int32 if max(shape) < 2**31 else np.int64
    # row, column and value of every entry, and the sum beside them
    needed = 2 * ne * local * (2 * np.dtype(kind).itemsize + 8)
    free = available_bytes()
    if needed > free:
        raise OperatorError(
            f"the matrix needs {needed / 2**30:.1f} GiB to assemble and {free / 2**30:.1f} GiB are "
            "free: apply the operator instead, or take a smaller mesh or order"
        )
    step = max(1, _BLOCK // local)
    blocks = [(s, min(s + step, ne)) for s in range(0, ne, step)]
    parts = [_block(terms, start, stop, kind) for start, stop in blocks]
    rows, columns, values = (np.concatenate([p[k] for p in parts]) for k in range(3))
    total = csr_array(coo_array((values, (rows, columns)), shape=shape).tocsr())
    if held:
        total = _hold(total, held)
    total.eliminate_zeros()
    return total.astype(first.dtype)


def _hold(matrix: csr_array, held: Held) -> csr_array:
    """Clear rows and columns, and put the identity on the diagonal."""
    keep_rows, keep_columns = (np.ones(n) for n in matrix.shape)
    keep_rows[held.rows] = 0.0
    keep_columns[held.columns] = 0.0
    result = diags_array(keep_rows) @ matrix @ diags_array(keep_columns)
    if held.identity:
        result = result + held.identity * diags_array(1.0 - keep_rows)
    return csr_array(result)


def _local_size(space: Space) -> int:
    return int(space.p1d**space.dim * space.ncomp)


def _block(
    terms: Sequence[tuple[float, Term]], start: int, stop: int, kind: Any
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
    first = terms[0][1]
    matrices = sum(factor * term.element_matrices(start, stop) for factor, term in terms)
    rows, columns = (_flat_dofs(s, start, stop, kind) for s in (first.test, first.trial))
    shape = (stop - start, rows.shape[1], columns.shape[1])
    return (
        np.broadcast_to(rows[:, :, np.newaxis], shape).ravel(),
        np.broadcast_to(columns[:, np.newaxis, :], shape).ravel(),
        np.asarray(matrices).ravel(),
    )


def _flat_dofs(space: Space, start: int, stop: int, kind: Any) -> NDArray[Any]:
    """Flat positions of the dofs of elements, (n, nodes * ncomp)."""
    nodes = space.restriction.indices[start:stop]
    flat = nodes[:, :, np.newaxis] * space.ncomp + np.arange(space.ncomp)
    return flat.reshape(stop - start, -1).astype(kind)
