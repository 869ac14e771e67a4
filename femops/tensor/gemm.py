"""Products of the matrices of a batch."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from femops.errors import TensorError
from femops.tensor.batch import Batch
from femops.tensor.calls import found, remember
from femops.tensor.lowering import Number, Term, contract_pair
from femops.tensor.memory import functions_of, is_array
from femops.tensor.places import View, check_devices
from femops_common.arguments import checked

Array = NDArray[Any]
Operand = Array | Batch


def gemm(
    a: NDArray[Any] | Batch,
    b: NDArray[Any] | Batch,
    out: NDArray[Any] | Batch | None = None,
    *,
    alpha: Number = 1.0,
    beta: Number = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Operand:
    """Products ``out = alpha a b + beta out`` of all matrices of a batch.

    Parameters
    ----------
    a : (members, m, k) array or Batch
        Left factors, or one matrix (m, k) for all members.  Numbers are float64, float32,
        complex128 or complex64. Strides may be any. Arrays and batches on a GPU are multiplied on
        the GPU.
    b : (members, k, n) array or Batch
        Right factors, or one matrix (k, n) for all members.
    out : (members, m, n) array or Batch, optional
        Output. By default a new array. If an operand is a batch, a new batch in the layout of the
        first batch operand, or `Strided` if that layout does not fit; see `Batch.layout_for`.
    alpha, beta : number
        Factors, complex only for complex matrices.  If beta is zero, ``out`` is not read.
    transpose_a, transpose_b : bool
        Whether to transpose a, whose shape is then (members, k, m), or b, then (members, n, k).

    Returns
    -------
    array or Batch
        ``out``, or the new output.

    Raises
    ------
    TensorError
        If shapes, types or numbers of members do not fit, or the output is missing, can't be
        written, or overlaps an operand.

    Examples
    --------
    >>> import numpy as np
    >>> import femops
    >>> A, B = np.ones((1000, 3, 4)), np.ones((1000, 4, 2))
    >>> femops.tensor.gemm(A, B)[7]
    array([[4., 4.],
           [4., 4.],
           [4., 4.]])
    """
    words = transpose_a, type(transpose_a), transpose_b, type(transpose_b)
    key = key_of(words, a, b, out, alpha, beta)
    call = found(key)
    if call is not None:
        made: Operand = np.empty(call.shape, call.dtype) if out is None else out
        if call.run(*arrays_of(a, b, made)):
            return made
    target, terms = _multiply(a, b, out, alpha, beta, transpose_a, transpose_b)
    if key is not None:
        remember(key, arrays_of(a, b, target), terms, (alpha, beta))
    return target


@checked(TensorError)
def _multiply(
    a: NDArray[Any] | Batch,
    b: NDArray[Any] | Batch,
    out: NDArray[Any] | Batch | None,
    alpha: Number,
    beta: Number,
    transpose_a: bool,
    transpose_b: bool,
) -> tuple[Operand, tuple[Term, Term, Term]]:
    """Compute `gemm`. Return the output, and operands and output as terms."""
    letters = "ki" if transpose_a else "ik", "jk" if transpose_b else "kj"
    first, second = Term(as_view(a, 2, "a"), letters[0]), Term(as_view(b, 2, "b"), letters[1])
    m, n = product_shape(first, second)
    if out is None and beta != 0:
        raise TensorError(f"beta is {beta} without out: give the output that is added to")
    target = new_output((m, n), (a, b), (first, second)) if out is None else out
    result = Term(output_view(target, (m, n), (first, second)), "ij")
    contract_pair(result, first, second, alpha, beta)
    return target, (first, second, result)


def key_of(
    words: Hashable, a: Any, b: Any, out: Any, alpha: Number, beta: Number
) -> Hashable | None:
    """Key of a call with two operands. None unless all are NumPy arrays, or all are batches."""
    if type(a) is ndarray and type(b) is ndarray and (out is None or type(out) is ndarray):
        return (
            words, a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype,
            None if out is None else (out.shape, out.strides, out.dtype),
            alpha, type(alpha), beta, type(beta),
        )  # fmt: skip
    if type(a) is Batch and type(b) is Batch and type(out) is Batch:
        layouts = a.view.layout, b.view.layout, out.view.layout
        return words, layouts, alpha, type(alpha), beta, type(beta)
    return None


def arrays_of(a: Any, b: Any, out: Any) -> tuple[Array, Array, Array]:
    """Arrays with the memory of operands and output, for a call with a key."""
    if type(out) is ndarray:
        return a, b, out
    return a.view.array, b.view.array, out.view.array


def product_shape(a: Term, b: Term) -> tuple[int, int]:
    """Rows and columns of a product, after a check that a has as many columns as b has rows."""
    m, k = _sizes(a, "ik")
    terms, n = _sizes(b, "kj")
    if k != terms:
        turned = ", transposed as asked" if (a.letters, b.letters) != ("ik", "kj") else ""
        raise TensorError(
            f"a has {k} columns and b {terms} rows: shapes are {_shown(a)} and {_shown(b)}{turned}"
        )
    return m, n


def _sizes(term: Term, letters: str) -> tuple[int, ...]:
    return tuple(term.view.places.shape[term.letters.index(letter)] for letter in letters)


def _shown(term: Term) -> str:
    return "x".join(map(str, term.view.places.shape))


def as_view(operand: Operand, ndim: int, name: str) -> View:
    """View of an operand: a batch, an array (members, ...), or one tensor for all members.

    Raises
    ------
    TensorError
        If the operand is no array, or has another number of dimensions.
    """
    if isinstance(operand, Batch):
        view = operand.view
        if len(view.places.shape) != ndim:
            raise TensorError(
                f"{name} is a batch of shape {view.places.shape}: give {ndim} indices"
            )
        return view
    if not is_array(operand):
        raise TensorError(
            f"{name} is {type(operand).__name__}: give a NumPy array, one of a device, or a "
            "femops.tensor.Batch"
        )
    if operand.ndim not in (ndim, ndim + 1):
        raise TensorError(
            f"{name} has shape {operand.shape}: give {ndim + 1} dimensions, members first, or "
            f"{ndim} for one tensor that all members share"
        )
    return View.of_array(operand, shared=operand.ndim == ndim)


def new_output(
    shape: tuple[int, ...], operands: tuple[Operand, ...], terms: tuple[Term, ...]
) -> Operand:
    """New output of a contraction: a batch if an operand is a batch, else an array."""
    counts = [term.view.members for term in terms if not term.view.shared]
    kind, device = terms[0].view.dtype, terms[0].view.device
    for one in operands:
        if isinstance(one, Batch):
            members = counts[0] if counts else 1
            return Batch(shape, members, kind, one.layout_for(shape), device)
    batched = any(
        not isinstance(one, Batch) and one.ndim > len(term.letters)
        for one, term in zip(operands, terms, strict=True)
    )
    members = counts[0] if counts else 1
    made: Array = functions_of(device).empty((members, *shape) if batched else shape, kind)
    return made


def output_view(out: Operand, shape: tuple[int, ...], terms: tuple[Term, ...]) -> View:
    """View of an output, after a check that it fits, is writable, and overlaps no operand."""
    view = as_view(out, len(shape), "out")
    if view.places.shape != shape:
        raise TensorError(f"out has matrices of shape {view.places.shape}: give {shape}")
    view.check_writable()
    check_devices(view, *[term.view for term in terms])
    if any(view.overlaps(term.view) for term in terms):
        raise TensorError("out overlaps an operand: give memory of its own")
    return view
