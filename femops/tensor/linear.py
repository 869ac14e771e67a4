"""Factorisations, solves and eigenvalues of the small matrices of a batch."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from femops.errors import SingularError, TensorError
from femops.tensor.batch import Batch
from femops.tensor.gemm import Operand
from femops.tensor.methods import run
from femops_meshes.arguments import checked

Array = NDArray[Any]


@checked(TensorError)
def cholesky(a: NDArray[Any] | Batch) -> Operand:
    """Cholesky factors L of symmetric or Hermitian positive definite matrices, A = L L^H.

    Parameters
    ----------
    a : (members, n, n) array or Batch
        Matrices of any type of numbers.  The lower triangle is read.

    Returns
    -------
    (members, n, n) array or Batch
        L, with zeros above the diagonal.

    Raises
    ------
    SingularError
        If some matrices are not positive definite, or not finite. The error's ``members`` are the
        numbers of these matrices. Its ``result`` has the factors of the other matrices.
    TensorError
        If the matrices are not square, or have another type.

    Examples
    --------
    >>> import numpy as np
    >>> import femops
    >>> A = np.tile(np.array([[4.0, 2.0], [2.0, 5.0]]), (1000, 1, 1))
    >>> femops.tensor.cholesky(A)[0]
    array([[2., 0.],
           [1., 2.]])
    """
    (result, _), status = run("cholesky", a)
    _check(status, result, "not positive definite or not finite")
    return cast(Operand, result)


@checked(TensorError)
def lu(a: NDArray[Any] | Batch) -> tuple[Operand, NDArray[np.int64]]:
    """LU factors with exchanged rows, A[p] = L U.

    Parameters
    ----------
    a : (members, n, n) array or Batch
        Matrices of any type of numbers.

    Returns
    -------
    factors : (members, n, n) array or Batch
        U, and below its diagonal L, whose diagonal is one.
    p : (members, n) int64
        Row i of L U is row ``p[i]`` of A.

    Raises
    ------
    SingularError
        If some matrices are singular, or not finite.  The error's ``members`` are the numbers of
        these matrices. Its ``result`` has the factors of the other matrices.
    TensorError
        If the matrices are not square, or have another type.
    """
    (factors, order), status = run("lu", a)
    result = factors, order[:, :, 0].real.astype(np.int64)
    _check(status, result, "singular or not finite")
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
        Matrices of any type of numbers.
    b : (members, n, k) array or Batch, or (members, n) array
        Right-hand sides.
    assume : str
        "positive" for symmetric or Hermitian positive definite matrices.  Then only the lower
        triangle is read.

    Returns
    -------
    array or Batch
        X, of the shape of b.

    Raises
    ------
    SingularError
        If some matrices are singular, not positive definite, or not finite.  The error's
        ``members`` are the numbers of these matrices.  Its ``result`` has the solutions of the
        other matrices.
    TensorError
        If shapes or types do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import femops
    >>> A = np.tile(np.array([[0.0, 2.0], [1.0, 1.0]]), (1000, 1, 1))
    >>> femops.tensor.solve(A, np.ones((1000, 2)))[0]
    array([0.5, 0.5])
    """
    (_, solution), status = run("lu solve" if assume == "general" else "cholesky solve", a, b)
    what = "singular" if assume == "general" else "not positive definite"
    _check(status, solution, f"{what} or not finite")
    return cast(Operand, solution)


@checked(TensorError)
def solve_triangular(
    t: NDArray[Any] | Batch,
    b: NDArray[Any] | Batch,
    *,
    lower: bool = True,
    transpose: bool = False,
    unit_diagonal: bool = False,
    conjugate: bool = False,
) -> Operand:
    """Solutions X of T X = B with triangular matrices T.

    Parameters
    ----------
    t : (members, n, n) array or Batch
        Matrices of any type of numbers.  The other triangle is not read.
    b : (members, n, k) array or Batch, or (members, n) array
        Right-hand sides.
    lower : bool
        True if T is the lower triangle, False for the upper one.
    transpose : bool
        True to solve T^T X = B instead.
    unit_diagonal : bool
        True to take all diagonal entries as one. Then the diagonal is not read.
    conjugate : bool
        True to take the complex conjugate of T.  With ``transpose`` this solves T^H X = B.

    Returns
    -------
    array or Batch
        X, of the shape of b.

    Raises
    ------
    SingularError
        If some triangles have zeros on the diagonal, or are not finite.  The error's ``members``
        are the numbers of these matrices.  Its ``result`` has the solutions of the other matrices.
    TensorError
        If shapes or types do not fit.
    """
    triangle = lower, transpose, unit_diagonal, conjugate
    (_, solution), status = run("triangle", t, b, triangle)
    _check(status, solution, "singular or not finite")
    return cast(Operand, solution)


@checked(TensorError)
def eigh(a: NDArray[Any] | Batch) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices, by Jacobi's rotations.

    Parameters
    ----------
    a : (members, n, n) array or Batch
        Matrices of any type of numbers.  The lower triangle is read.  Imaginary parts of the
        diagonal are ignored.

    Returns
    -------
    values : (members, n) array
        Real eigenvalues in ascending order.
    vectors : (members, n, n) array
        Eigenvectors as columns.

    Raises
    ------
    SingularError
        If some matrices are not finite.  The error's ``members`` are the numbers of these matrices.
        Its ``result`` has the values and vectors of the other matrices.
    TensorError
        If the matrices are not square, or have another type.

    Notes
    -----
    Golub and Van Loan, Matrix Computations, section 8.5.  Rotations go through a matrix row by row.
    """
    (_, pairs), status = run("eigenvalues", a)
    result = pairs[:, -1].real, pairs[:, :-1]
    _check(status, result, "not finite")
    return result


def _check(status: NDArray[Any] | None, result: Any, what: str) -> None:
    if status is None:
        return
    failed = np.flatnonzero(status)
    shown = ", ".join(map(str, failed[:5])) + (", ..." if len(failed) > 5 else "")
    raise SingularError(
        f"{len(failed)} of {len(status)} matrices are {what} (members {shown}): the error's "
        "'result' has those of the others",
        failed,
        result,
    )
