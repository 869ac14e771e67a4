"""Factors, solves and eigenvalues of the small matrices of a batch."""

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
        Of any type of numbers.  The lower triangle is read.

    Returns
    -------
    (members, n, n) array or Batch
        Zero above the diagonal.

    Raises
    ------
    SingularError
        Some matrices are not positive definite, or have entries that are not finite: ``members``
        names them, ``result`` has the factors of the others.
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
    (result, _), status = run("cholesky", a)
    _check(status, result, "not positive definite or not finite")
    return cast(Operand, result)


@checked(TensorError)
def lu(a: NDArray[Any] | Batch) -> tuple[Operand, NDArray[np.int64]]:
    """LU factors with exchanged rows, A[p] = L U.

    Parameters
    ----------
    a : (members, n, n) array or Batch
        Of any type of numbers.

    Returns
    -------
    factors : (members, n, n) array or Batch
        U, and below its diagonal L, whose diagonal is one.
    p : (members, n) int64
        The row of A that came to each place.

    Raises
    ------
    SingularError
        Some matrices are singular, or have entries that are not finite: ``members`` names them,
        ``result`` has the factors of the others.
    TensorError
        No square matrices, or of another type.
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
        Of any type of numbers.
    b : (members, n, k) array or Batch, or (members, n) array
        Right sides.
    assume : str
        "positive": symmetric or Hermitian positive definite matrices, of which the lower triangle
        is read.

    Returns
    -------
    array or Batch
        X, of the shape of b.

    Raises
    ------
    SingularError
        Some matrices are singular, not positive definite, or have entries that are not finite:
        ``members`` names them, ``result`` has the solutions of the others.
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
    """Solutions X of T X = B, of which T is a triangle.

    Parameters
    ----------
    t : (members, n, n) array or Batch
        Of any type of numbers.  The other triangle is not read.
    b : (members, n, k) array or Batch, or (members, n) array
        Right sides.
    lower : bool
        The triangle.
    transpose : bool
        Solve T^T X = B instead.
    unit_diagonal : bool
        Take the diagonal as one; it is not read.
    conjugate : bool
        Take the complex conjugate of T: with ``transpose``, solve T^H X = B.

    Returns
    -------
    array or Batch
        X, of the shape of b.

    Raises
    ------
    SingularError
        Some triangles have zeros on the diagonal, or entries that are not finite: ``members`` names
        them, ``result`` has the solutions of the others.
    TensorError
        Shapes or types that do not fit.
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
        Of any type of numbers.  The lower triangle is read, and of its diagonal the real parts.

    Returns
    -------
    values : (members, n) array
        Ascending, and real.
    vectors : (members, n, n) array
        Columns.

    Raises
    ------
    SingularError
        Some matrices have entries that are not finite: ``members`` names them, ``result`` has the
        values and vectors of the others.
    TensorError
        No square matrices, or of another type.

    Notes
    -----
    Golub and Van Loan, Matrix Computations, section 8.5; rotations go through a matrix row by row.
    """
    (_, found), status = run("eigenvalues", a)
    result = found[:, -1].real, found[:, :-1]
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
