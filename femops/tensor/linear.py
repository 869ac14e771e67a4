"""Factors, solves and eigenvalues of the small matrices of a batch."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from femops.errors import SingularError, TensorError
from femops.tensor.batch import Batch
from femops.tensor.gemm import Operand
from femops.tensor.methods import Output, by_columns, run
from femops.tensor.places import View, check_devices
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
    (result, _), status = run("cholesky", (matrices, None), (Output(_whole(matrices), a), None))
    _check(status, result, "not positive definite")
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
        Some matrices are singular: ``members`` names them, ``result`` has this for the others.
    TensorError
        No square matrices, or of another type.
    """
    matrices = _square(a)
    members, n, _ = _whole(matrices)
    outputs = Output((members, n, n), a), Output((members, n, 1))
    (factors, order), status = run("lu", (matrices, None), outputs)
    result = factors, order[:, :, 0].real.astype(np.int64)
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
    matrices = _square(a)
    right = _right_sides(matrices, b)
    method = "lu solve" if assume == "general" else "cholesky solve"
    (_, solution), status = run(method, (matrices, right), (None, Output(_whole(right), b)))
    _check(status, solution, "singular" if assume == "general" else "not positive definite")
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
        Some diagonals have zeros: ``members`` names them, ``result`` has the others' solutions.
    TensorError
        Shapes or types that do not fit.
    """
    matrices = _square(t)
    right = _right_sides(matrices, b)
    output, triangle = Output(_whole(right), b), (lower, transpose, unit_diagonal, conjugate)
    (_, solution), status = run("triangle", (matrices, right), (None, output), triangle)
    _check(status, solution, "singular")
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
        Some matrices have numbers that are not finite: ``members`` names them, ``result`` has this
        for the others.
    TensorError
        No square matrices, or of another type.

    Notes
    -----
    Golub and Van Loan, Matrix Computations, section 8.5; rotations go through a matrix row by row.
    """
    matrices = _square(a)
    members, n, _ = _whole(matrices)
    outputs = None, Output((members, n + 1, n))
    (_, found), status = run("eigenvalues", (matrices, None), outputs)
    result = found[:, n].real, found[:, :n]
    _check(status, result, "not finite")
    return result


def _square(a: Operand) -> View:
    """Matrices (members, n, n)."""
    view = _entries(a)
    shape = view.places.shape
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise TensorError(f"matrices of shape {_shown(view)}: give (members, n, n)")
    return view


def _entries(one: Operand) -> View:
    """View whose entries are strided, and on the host not in groups."""
    view = one.view if isinstance(one, Batch) else View.of_array(one)
    if view.places.strides is None or (view.device is None and view.lanes > 1):
        return View.of_array(view.read())
    return view


def _right_sides(matrices: View, b: Operand) -> View:
    """Right sides (members, n, k)."""
    view = _entries(b)
    check_devices(matrices, view)
    shape, n = view.places.shape, matrices.places.shape[0]
    fits = len(shape) in (1, 2) and shape[0] == n and view.members == matrices.members
    if not fits or 0 in shape:
        raise TensorError(
            f"right sides of shape {_shown(view)} for matrices {_shown(matrices)}: give "
            "(members, n) or (members, n, k)"
        )
    if view.dtype != matrices.dtype:
        raise TensorError(
            f"right sides of {view.dtype} for matrices of {matrices.dtype}: convert them"
        )
    return by_columns(view)


def _shown(view: View) -> tuple[int, ...]:
    return (view.members, *view.places.shape)


def _whole(view: View) -> tuple[int, int, int]:
    rows, columns = view.places.shape
    return view.members, rows, columns


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
