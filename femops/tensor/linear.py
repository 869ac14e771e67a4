"""Factorisations, solves and eigenvalues of the small matrices of a batch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, final

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from femops.errors import SingularError, TensorError
from femops.tensor.batch import Batch
from femops.tensor.gemm import Operand
from femops.tensor.known import KNOWN
from femops.tensor.memory import functions_of
from femops.tensor.places import Places, View, check_devices
from femops_common.arguments import checked
from femops_kernels.cpu.tensor.linear import LinearCall
from femops_kernels.cuda.device.arguments import Place
from femops_kernels.cuda.tensor import linear as there
from femops_kernels.device import Device

Array = NDArray[Any]
Triangle = tuple[bool, bool, bool, bool]

GENERAL: Triangle = (True, False, False, False)
"""Argument ``triangle`` for methods that have no triangle."""


@final
@dataclass(frozen=True, eq=False)
class Output:
    """Shape and layout of a method's result."""

    shape: tuple[int, int, int]  # (members, rows, columns)
    # operand whose shape and layout the result gets. By default the result is an array.
    like: Operand | None = None

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of an array for the result."""
        if self.like is None or isinstance(self.like, Batch):
            return self.shape
        return self.like.shape

    def finished(self, values: Any) -> Any:
        """Convert values to the layout of the result."""
        if not isinstance(self.like, Batch):
            return values
        made = self.empty(values.dtype, self.like.device)
        return made.assign(values.reshape(made.members, *made.shape))

    def empty(self, dtype: np.dtype[Any], device: Device | None) -> Any:
        """New memory for the result."""
        if isinstance(self.like, Batch):
            return Batch(self.like.shape, self.shape[0], dtype, self.like.layout, device)
        return functions_of(device).empty(self.array_shape, dtype)


_OF_MATRICES = frozenset({"lu", "cholesky", "eigenvalues"})
"""Methods without right-hand sides."""


def run(
    method: str, a: Operand, b: Operand | None = None, triangle: Triangle = GENERAL
) -> tuple[list[Any], NDArray[Any] | None]:
    """Run a method on matrices (members, n, n), and on right-hand sides if it has them."""
    key = _key_of(method, a, b, triangle)
    call: LinearCall | None = KNOWN.get(key)
    if call is not None:
        return call.run(*cast("tuple[Array, Array | None]", (a, b)))
    matrices = _square(a)
    right = None if method in _OF_MATRICES else _right_sides(matrices, cast(Operand, b))
    outputs = _outputs(method, a, b, matrices, right)
    device = matrices.device
    if matrices.empty:
        return [one and one.empty(matrices.dtype, device) for one in outputs], None
    if right is not None and right.empty:  # a column of zeros stands for none: it gives the status
        column = functions_of(device).zeros((*_whole(matrices)[:2], 1), matrices.dtype)
        status = run(method, a, column, triangle)[1]
        return [one and one.empty(matrices.dtype, device) for one in outputs], status
    if device is not None:
        return _run_on_device(method, (matrices, right), outputs, triangle, device)
    sources = matrices.read(), None if right is None else right.read()
    call = LinearCall(method, sources, (_array(outputs[0]), _array(outputs[1])), triangle)
    if key is not None:
        KNOWN.keep(key, call)
    made, status = call.run(*sources)
    pairs = zip(outputs, made, strict=True)
    return [one and one.finished(array) for one, array in pairs], status


def _array(output: Output | None) -> tuple[int, ...] | None:
    return None if output is None else output.array_shape


def _key_of(method: str, a: Any, b: Any, triangle: Triangle) -> Hashable | None:
    """Key with everything that determines a call except memory. None unless all are arrays."""
    if type(a) is not ndarray or not a.flags.aligned:
        return None
    if b is None:
        return method, triangle, a.shape, a.strides, a.dtype
    if type(b) is not ndarray or not b.flags.aligned:
        return None
    return method, triangle, a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype


def _outputs(
    method: str, a: Operand, b: Operand | None, matrices: View, right: View | None
) -> tuple[Output | None, Output | None]:
    """Shapes of a method's results, in the layouts of its operands."""
    members, n, _ = _whole(matrices)
    if method == "eigenvalues":
        return None, Output((members, n + 1, n))
    if right is not None:
        return None, Output(_whole(right), b)
    return Output((members, n, n), a), Output((members, n, 1)) if method == "lu" else None


def _run_on_device(
    method: str,
    operands: tuple[View, View | None],
    outputs: tuple[Output | None, Output | None],
    triangle: Triangle,
    device: Device,
) -> tuple[list[Any], NDArray[Any] | None]:
    n, members, dtype = operands[0].places.shape[0], operands[0].members, operands[0].dtype
    if n > there.MOST_ROWS:
        raise TensorError(
            f"matrices of {n} rows on {device.name}, where at most {there.MOST_ROWS} are worked "
            "on: copy them to 'cpu'"
        )
    made = [None if one is None else one.empty(dtype, device) for one in outputs]
    written = [_written(one, array) for one, array in zip(outputs, made, strict=True)]
    views: dict[str, View | None] = dict(zip(("first", "second"), operands, strict=True))
    views |= dict(zip(("first_out", "second_out"), written, strict=True))
    others = [None if one is None else _device_matrices(one) for one in (operands[1], *written)]
    matrices = there.Matrices(_device_matrices(operands[0]), *others)
    given = {name: one for name, one in views.items() if one is not None}
    places = {k: Place(one.array, one.start * dtype.itemsize) for k, one in given.items()}
    steps = {k: one.stride for k, one in given.items()}
    kernel = there.linear_kernel(method, dtype.name, matrices, triangle, device)
    status: NDArray[Any] = device.download(kernel.run(places, steps, members))
    for array, view in zip(made, written, strict=True):
        if isinstance(array, Batch) and view is not None and view.array is not array.view.array:
            array.assign(view.array.reshape(members, *array.shape))
    return made, status if status.any() else None


def _written(output: Output | None, made: Any) -> View | None:
    """View of an output as matrices, or of a new buffer if the output has no strides."""
    if output is None:
        return None
    view: View = made.view if isinstance(made, Batch) else View.of_array(made)
    if view.places.strides is None:
        between = functions_of(view.device).empty(output.shape, view.dtype)
        return View.of_array(between)
    return _by_columns(view)


def _square(a: Operand) -> View:
    """View of an operand as matrices (members, n, n). Raise if its shape differs."""
    view = _entries(a)
    shape = view.places.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise TensorError(f"matrices of shape {_shown(view)}: give (members, n, n)")
    return view


def _entries(one: Operand) -> View:
    """View of an operand with strides, copied if needed. On the host, members are separate."""
    view = one.view if isinstance(one, Batch) else View.of_array(one)
    if view.places.strides is None or (view.device is None and view.lanes > 1):
        return View.of_array(view.read())
    return view


def _right_sides(matrices: View, b: Operand) -> View:
    """View of right-hand sides as (members, n, k). Raise if they do not fit the matrices."""
    view = _entries(b)
    check_devices(matrices, view)
    shape, n = view.places.shape, matrices.places.shape[0]
    fits = len(shape) in (1, 2) and shape[0] == n and view.members == matrices.members
    if not fits:
        raise TensorError(
            f"right sides of shape {_shown(view)} for matrices {_shown(matrices)}: give "
            "(members, n) or (members, n, k)"
        )
    if view.dtype != matrices.dtype:
        raise TensorError(
            f"right sides of {view.dtype} for matrices of {matrices.dtype}: convert them"
        )
    return _by_columns(view)


def _shown(view: View) -> tuple[int, ...]:
    return (view.members, *view.places.shape)


def _whole(view: View) -> tuple[int, int, int]:
    rows, columns = view.places.shape
    return view.members, rows, columns


def _by_columns(view: View) -> View:
    """View of vectors as matrices with one column. Matrices are not changed."""
    if view.places.strides is None or len(view.places.shape) == 2:
        return view
    places = Places((*view.places.shape, 1), (*view.places.strides, 0))
    if view.flat:
        return replace(view, places=places)
    return replace(view, places=places, array=view.array[:, :, np.newaxis])


def _device_matrices(view: View) -> there.DeviceMatrices:
    (rows, columns), (row, column) = view.places.shape, view.places.strides or (0, 0)
    return there.DeviceMatrices(rows, columns, row, column, view.lanes)


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
        "'result' has the results of the other matrices",
        failed,
        result,
    )
