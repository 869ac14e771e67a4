"""Factors, solves and eigenvalues of the small matrices of a batch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from femops.errors import SingularError, TensorError
from femops.tensor.batch import Batch
from femops.tensor.gemm import Operand
from femops.tensor.places import View
from femops_kernels.cpu.tensor.linear import LinearKernel, Matrices, Members
from femops_meshes.arguments import checked

Array = NDArray[Any]


@checked(TensorError)
def cholesky(a: NDArray[Any] | Batch) -> Operand:
    """Cholesky factors L of symmetric positive definite matrices, A = L L^T.

    Parameters
    ----------
    a : (members, n, n) array or Batch
        float64 or float32.  The lower triangle is read.

    Returns
    -------
    (members, n, n) array or Batch
        Zero above the diagonal.

    Raises
    ------
    SingularError
        Some matrices are not positive definite: ``members`` names them, ``result`` has the
        factors of the others.
    TensorError
        No square matrices, or of another type.

    Examples
    --------
    >>> import numpy as np
    >>> import femops
    >>> A = np.tile(np.array([[4.0, 2.0], [2.0, 5.0]]), (1000, 1, 1))
    >>> femops.tensor.cholesky(A)[0]
    array([[2., 0.],
           [1., 2.]])
    """
    matrices = _square(a)
    factors = np.empty_like(matrices, order="C")
    status = _run("cholesky", matrices, None, factors, None)
    result = _like(a, factors)
    _check(status, result, "not positive definite")
    return result


@checked(TensorError)
def lu(a: NDArray[Any] | Batch) -> tuple[Operand, NDArray[np.int64]]:
    """LU factors with exchanged rows, A[p] = L U.

    Parameters
    ----------
    a : (members, n, n) array or Batch
        float64 or float32.

    Returns
    -------
    factors : (members, n, n) array or Batch
        U, and below its diagonal L, whose diagonal is one.
    p : (members, n) int64
        The row of A that came to each place.

    Raises
    ------
    SingularError
        Some matrices are singular: ``members`` names them, ``result`` has this for the others.
    TensorError
        No square matrices, or of another type.
    """
    matrices = _square(a)
    factors = np.empty_like(matrices, order="C")
    order = np.empty((len(factors), factors.shape[1], 1), factors.dtype)
    status = _run("lu", matrices, None, factors, order)
    result = _like(a, factors), order[:, :, 0].astype(np.int64)
    _check(status, result, "singular")
    return result


@checked(TensorError)
def solve(
    a: NDArray[Any] | Batch,
    b: NDArray[Any] | Batch,
    *,
    assume: Literal["general", "positive"] = "general",
) -> Operand:
    """Solutions X of A X = B.

    Parameters
    ----------
    a : (members, n, n) array or Batch
        float64 or float32.
    b : (members, n, k) array or Batch, or (members, n) array
        Right sides.
    assume : str
        "positive": symmetric positive definite matrices, of which the lower triangle is read.

    Returns
    -------
    array or Batch
        X, of the shape of b.

    Raises
    ------
    SingularError
        Some matrices are singular, or not positive definite: ``members`` names them, ``result``
        has the solutions of the others.
    TensorError
        Shapes or types that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import femops
    >>> A = np.tile(np.array([[0.0, 2.0], [1.0, 1.0]]), (1000, 1, 1))
    >>> femops.tensor.solve(A, np.ones((1000, 2)))[0]
    array([0.5, 0.5])
    """
    matrices, right = _square(a), _right_sides(a, b)
    method = "lu solve" if assume == "general" else "cholesky solve"
    result = np.empty_like(right, order="C")
    status = _run(method, matrices, right, None, result)
    solution = _like(b, result)
    _check(status, solution, "singular" if assume == "general" else "not positive definite")
    return solution


@checked(TensorError)
def solve_triangular(
    t: NDArray[Any] | Batch,
    b: NDArray[Any] | Batch,
    *,
    lower: bool = True,
    transpose: bool = False,
    unit_diagonal: bool = False,
) -> Operand:
    """Solutions X of T X = B, of which T is a triangle.

    Parameters
    ----------
    t : (members, n, n) array or Batch
        float64 or float32.  The other triangle is not read.
    b : (members, n, k) array or Batch, or (members, n) array
        Right sides.
    lower : bool
        The triangle.
    transpose : bool
        Solve T^T X = B instead.
    unit_diagonal : bool
        Take the diagonal as one; it is not read.

    Returns
    -------
    array or Batch
        X, of the shape of b.

    Raises
    ------
    SingularError
        Some diagonals have zeros: ``members`` names them, ``result`` has the others' solutions.
    TensorError
        Shapes or types that do not fit.
    """
    matrices, right = _square(t), _right_sides(t, b)
    result = np.empty_like(right, order="C")
    triangle = lower, transpose, unit_diagonal
    status = _run("triangle", matrices, right, None, result, triangle)
    solution = _like(b, result)
    _check(status, solution, "singular")
    return solution


@checked(TensorError)
def eigh(a: NDArray[Any] | Batch) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of symmetric matrices, by Jacobi's rotations.

    Parameters
    ----------
    a : (members, n, n) array or Batch
        float64 or float32.  The lower triangle is read.

    Returns
    -------
    values : (members, n) array
        Ascending.
    vectors : (members, n, n) array
        Columns.

    Raises
    ------
    SingularError
        Some matrices have numbers that are not finite: ``members`` names them, ``result`` has this
        for the others.
    TensorError
        No square matrices, or of another type.

    Notes
    -----
    Golub and Van Loan, Matrix Computations, section 8.5; rotations go through a matrix row by row.
    """
    matrices = _square(a)
    members, n, _ = matrices.shape
    found = np.empty((members, n + 1, n), matrices.dtype)
    status = _run("eigenvalues", matrices, None, None, found)
    result = found[:, n], found[:, :n]
    _check(status, result, "not finite")
    return result


def _square(a: Operand) -> Array:
    """Entries (members, n, n) of a type that is solved."""
    values = _entries(a)
    if values.ndim != 3 or values.shape[1] != values.shape[2] or not values.shape[1]:
        raise TensorError(f"matrices of shape {values.shape}: give (members, n, n)")
    if values.dtype.name not in ("float64", "float32"):
        raise TensorError(f"matrices of {values.dtype}: convert them to float64 or float32")
    return values


def _entries(one: Operand) -> Array:
    if isinstance(one, Batch):
        return one.numpy()
    View.of_array(one)
    return one


def _right_sides(a: Operand, b: Operand) -> Array:
    """Right sides (members, n, k)."""
    matrices, values = _entries(a), _entries(b)
    if values.ndim not in (2, 3) or values.shape[:2] != matrices.shape[:2] or 0 in values.shape[1:]:
        raise TensorError(
            f"right sides of shape {values.shape} for matrices {matrices.shape}: give (members, n) "
            "or (members, n, k)"
        )
    if values.dtype != matrices.dtype:
        raise TensorError(
            f"right sides of {values.dtype} for matrices of {matrices.dtype}: convert them"
        )
    return values if values.ndim == 3 else values[:, :, np.newaxis]


def _like(one: Operand, values: Array) -> Operand:
    if not isinstance(one, Batch):
        return values.reshape(one.shape)
    values = values.reshape(len(values), *one.shape)
    return Batch(values.shape[1:], len(values), values.dtype, one.layout).assign(values)


def _run(
    method: str,
    first: Array,
    second: Array | None,
    first_out: Array | None,
    second_out: Array | None,
    triangle: tuple[bool, bool, bool] = (True, False, False),
) -> NDArray[np.float64]:
    """Run a method on operands; those that it does not take, or does not write, are None."""
    if not len(first):
        return np.zeros(0)
    other = next((one for one in (second, second_out) if one is not None), first[:, :1, :1])
    matrices = [Matrices(*one.shape[1:], *one.strides[1:]) for one in (first, other)]
    kernel = LinearKernel(method, first.dtype.name, matrices[0], matrices[1], triangle)
    return kernel.run(
        (_members(first), _members(second)), (_members(first_out), _members(second_out)), len(first)
    )


def _members(one: Array | None) -> Members:
    return Members(0, 0) if one is None else Members(one.ctypes.data, one.strides[0])


def _check(status: NDArray[np.float64], result: Any, what: str) -> None:
    failed = np.flatnonzero(status)
    if not len(failed):
        return
    shown = ", ".join(map(str, failed[:5])) + (", ..." if len(failed) > 5 else "")
    raise SingularError(
        f"{len(failed)} of {len(status)} matrices are {what} (members {shown}): the error's "
        "'result' has those of the others",
        failed,
        result,
    )
