"""Full assembly: element matrices summed into compressed rows."""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array

from femops.errors import OperatorError
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.integrals.coefficients import check_values
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.term import Sum, Term
from femops_common.arguments import available_memory
from femops_kernels.cpu.in_order import in_order

Ints = NDArray[np.int64]
Cells = Callable[[Sum], tuple[NDArray[np.float64], Ints, Ints]]
"""Function from integrals over the same elements to their matrices, see `element_cells`."""


def flat(summands: Sum) -> Sum:
    """Replace each term over faces between elements by its blocks, which have one side each."""
    return Sum(
        (factor, part)
        for factor, term in summands
        for part in (term.blocks() if term.fields.two_sided else [term])
    )


def domains(terms: Sum) -> list[Sum]:
    """Group terms by domain and spaces, integrals over elements before integrals over faces."""
    groups: dict[tuple[int, ...], list[tuple[float, Term]]] = {}
    for factor, term in sorted(terms, key=lambda item: not item[1].domain.on_elements):
        key = id(term.domain), id(term.trial), id(term.test)
        groups.setdefault(key, []).append((factor, term))
    return [*map(Sum, groups.values())]


def require_memory(
    needed: int, what: str, cure: str = "level='partial', a smaller mesh or order"
) -> None:
    """Check that ``needed`` bytes of memory are available before ``what`` is allocated."""
    free = available_memory()
    if needed > free:
        raise OperatorError(
            f"{what} needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free: take "
            f"{cure}"
        )


def _local_shape(term: Term) -> tuple[int, int]:
    rows, columns = (s.element.size * s.ncomp for s in (term.test, term.trial))
    return int(rows), int(columns)


def element_bytes(term: Term) -> int:
    """Bytes of a term's element matrices, stored in lanes."""
    rows, columns = _local_shape(term)
    batches = -(-term.domain.num_elements // term.width)
    return int(batches * term.width * rows * columns * term.dtype.itemsize)


def csr_bytes(summands: Sum) -> int:
    """Bytes needed to assemble a matrix: the sum over its domains of integration."""
    return sum(_csr_bytes(group.first) for group in domains(summands))


def _csr_bytes(term: Term) -> int:
    rows, columns = _local_shape(term)
    kind = _index_type(term)
    # row, column and value of every entry, and the compressed rows beside them
    entry = 3 * np.dtype(kind).itemsize + 16
    return int(term.domain.num_elements * rows * columns * entry)


def _index_type(term: Term) -> Any:
    return np.int32 if max(term.test.size, term.trial.size) < 2**31 else np.int64


def element_cells(summands: Sum) -> tuple[NDArray[np.float64], Ints, Ints]:
    """Element matrices of integrals over the same elements, and their places.

    Shapes: `values` (ne, m, n), `rows`, `columns` (ne, m).
    """
    first = summands.first
    values = _element_matrices(summands)
    for space, axis in ((first.test, 2), (first.trial, 1)):
        if space.volume.signed:
            values = values * np.expand_dims(space.pattern_signs(), axis)
    return values, first.test.pattern(), first.trial.pattern()


def assemble_csr(summands: Sum, cells: Cells = element_cells) -> csr_array:
    """Assemble the sum of the terms as a float64 matrix, without essential conditions."""
    summands = flat(summands)
    if cells is element_cells:
        require_memory(csr_bytes(summands), "the matrix")
    parts = [
        summed_matrices(*cells(group), (group.first.test.size, group.first.trial.size))
        for group in domains(summands)
    ]
    return functools.reduce(operator.add, parts)


def summed_matrices(
    values: NDArray[np.float64], rows: Ints, columns: Ints, shape: tuple[int, int]
) -> csr_array:
    """Sum element matrices into a matrix in compressed rows, with sorted indices.

    The matrix is R^T E: rows of E are those of the element matrices, and R has the row of each.
    SciPy's product sums a row in the order of the elements. Only R is transposed, which has an
    entry for n of E.

    Shapes: `values` (ne, m, n), `rows`, `columns` (ne, m).
    """
    ne, m, n = values.shape
    kind: Any = np.int32 if max(values.size, *shape) < 2**31 else np.int64
    at = np.repeat(columns.astype(kind), m, axis=0).reshape(-1)
    starts = np.arange(0, values.size + 1, n, dtype=kind)
    entries = csr_array((values.reshape(-1), at, starts), shape=(ne * m, shape[1]))
    ones, each = np.ones(ne * m, values.dtype), np.arange(ne * m + 1, dtype=kind)
    rows_of = csc_array((ones, rows.astype(kind).reshape(-1), each), shape=(shape[0], ne * m))
    matrix = csr_array(rows_of.tocsr() @ entries)
    matrix.sort_indices()
    return matrix


def element_entries(
    summands: Sum, cells: Cells = element_cells
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
    """Rows, columns and values (n,) of the entries of all element matrices, element by element."""
    kind = _index_type(summands.first)
    values, row, column = cells(summands)
    rows, columns = (np.empty(values.shape, kind) for _ in range(2))
    rows[...] = row[:, :, np.newaxis]
    columns[...] = column[:, np.newaxis, :]
    return rows.reshape(-1), columns.reshape(-1), values.reshape(-1)


def _element_matrices(summands: Sum) -> NDArray[np.float64]:
    first = summands.first
    values = np.zeros((first.domain.num_elements, *_local_shape(first)))
    add_element_matrices(values, summands)
    return values


def add_element_matrices(out: NDArray[Any], summands: Sum) -> None:
    """Add the sum of the terms' element matrices to ``out`` (ne, rows, columns)."""
    for factor, term in summands:
        assembly = ElementAssembly(term)
        add = partial(_add_matrices, out, factor, assembly)
        deque(in_order(add, assembly.blocks()), maxlen=0)


def _add_matrices(
    out: NDArray[Any], factor: float, assembly: ElementAssembly, ends: tuple[int, int]
) -> None:
    matrices = assembly.matrices(*ends)
    matrices *= factor
    out[slice(*ends)] += matrices


def split(
    matrix: csr_array, constraints: Constraints, dtype: np.dtype[Any]
) -> tuple[csr_array, csr_array]:
    """Split a matrix into the part with essential conditions and the removed columns."""
    keep_rows, keep_columns = (np.ones(n) for n in matrix.shape)
    keep_rows[constraints.rows] = 0.0
    keep_columns[constraints.columns] = 0.0
    rows = diags_array(keep_rows) @ matrix
    kept = rows @ diags_array(keep_columns)
    if constraints.identity:
        kept = kept + constraints.identity * diags_array(1.0 - keep_rows)
    removed = csr_array(rows @ diags_array(1.0 - keep_columns))
    for part in (kept, removed):
        part.eliminate_zeros()
        check_values("entries of the matrix", part.data, dtype)
    return csr_array(kept).astype(dtype), removed.astype(dtype)
