"""Contractions in Einstein's notation, for all members of a batch."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from femops.errors import TensorError
from femops.tensor.batch import Batch
from femops.tensor.calls import found, remember
from femops.tensor.gemm import Operand, arrays_of, as_view, key_of, new_output, output_view
from femops.tensor.known import KNOWN
from femops.tensor.lowering import Number, Term, sizes_of
from femops.tensor.memory import functions_of, is_array, located
from femops.tensor.pairs import contract, steps_of
from femops_common.arguments import checked


def einsum(
    subscripts: str,
    *operands: Operand,
    batch: int = 0,
    out: NDArray[Any] | Batch | None = None,
    alpha: Number = 1.0,
    beta: Number = 0.0,
) -> Operand:
    """Contraction ``out = alpha (sum of products) + beta out`` for all members of a batch.

    Subscripts have no letter for the member. An operand with one dimension more than letters is a
    batch. An operand with as many dimensions as letters is one tensor for all members. Several
    operands are contracted in pairs, in the order with the fewest operations (`numpy.einsum_path`).

    Parameters
    ----------
    subscripts : str
        As in `numpy.einsum`: ``"ki,kjl->ijl"``. Without ``->`` the result has those indices that
        occur once, in alphabetical order.
    *operands : arrays or Batches
        Tensors of the same number type. With the letters ``ki`` a tensor has the shape (k, i), and
        a batch has the shape (members, k, i) if ``batch`` is 0.
    batch : int
        Axis of the arrays that counts the members.
    out : array or Batch, optional
        Output. By default a new output, as for `gemm`.
    alpha, beta : number
        Factors.  If beta is zero, ``out`` is not read.

    Returns
    -------
    array or Batch
        ``out``, or the new output.

    Raises
    ------
    TensorError
        If indices are unknown, repeated in the result, or differ in size; see also `gemm`.

    Examples
    --------
    >>> import numpy as np
    >>> import femops
    >>> B, V = np.ones((3, 2)), np.ones((10_000, 2, 2))
    >>> femops.tensor.einsum("ki,ij->kj", B, V).shape  # B is one matrix for all members
    (10000, 3, 2)
    """
    if len(operands) > 2 and type(batch) is int and batch == 0:
        return _of_several(subscripts, operands, out, alpha, beta)
    key = None
    if len(operands) == 2 and (out is not None or (type(batch) is int and batch == 0)):
        a, b = operands
        key = key_of((subscripts, batch, type(batch)), a, b, out, alpha, beta)
        call = found(key)
        if call is not None:
            made: Operand = np.empty(call.shape, call.dtype) if out is None else out
            if call.run(*arrays_of(a, b, made)):
                return made
    made, terms = _contract(subscripts, *operands, batch=batch, out=out, alpha=alpha, beta=beta)
    if key is not None:
        remember(key, arrays_of(a, b, made), terms, (alpha, beta))
    return made


def _of_several(
    subscripts: str,
    operands: tuple[Operand, ...],
    out: Operand | None,
    alpha: Number,
    beta: Number,
) -> Operand:
    """Contract more than two operands. If the key is known, call `einsum` for each pair."""
    key = _key_of_several(subscripts, operands, out)
    steps: tuple[tuple[int, int, str], ...] | None = KNOWN.get(key)
    if key is None or steps is None:
        made, terms = _contract(subscripts, *operands, batch=0, out=out, alpha=alpha, beta=beta)
        if key is not None:
            KNOWN.keep(key, _steps(terms))
        return cast(Operand, made)
    made = list(operands)
    for a, b, words in steps[:-1]:
        made.append(einsum(words, made[a], made[b]))
    a, b, words = steps[-1]
    return einsum(words, made[a], made[b], out=out, alpha=alpha, beta=beta)


def _key_of_several(
    subscripts: str, operands: tuple[Operand, ...], out: Operand | None
) -> Hashable | None:
    """Key with everything that determines the order of a contraction.

    None if an operand is no NumPy array, or if ``out`` may overlap an operand and must be checked.
    """
    key: list[Hashable] = [subscripts]
    for one in operands:
        if type(one) is not ndarray:
            return None
        if out is not None and (type(out) is not ndarray or np.may_share_memory(one, out)):
            return None
        key.append((one.shape, one.dtype))
    return tuple(key)


def _steps(terms: tuple[Term, ...]) -> tuple[tuple[int, int, str], ...]:
    """Steps of a contraction: numbers of two operands or earlier products, and subscripts."""
    words, steps = [term.letters for term in terms[:-1]], []
    for a, b, letters in steps_of(tuple(term.named for term in terms[:-1]), terms[-1].letters):
        steps.append((a, b, f"{words[a]},{words[b]}->{letters}"))
        words.append(letters)
    return tuple(steps)


@checked(TensorError)
def _contract(
    subscripts: str,
    *operands: Operand,
    batch: int,
    out: NDArray[Any] | Batch | None,
    alpha: Number,
    beta: Number,
) -> tuple[Any, tuple[Term, ...]]:
    """Compute `einsum`. Return the output, and all operands and the output as terms."""
    words, result = parsed(subscripts, len(operands))
    moved = tuple(
        _members_first(one, word, batch) for one, word in zip(operands, words, strict=True)
    )
    terms = terms_of(moved, words)
    sizes = sizes_of(term.named for term in terms)
    shape = tuple(sizes[letter] for letter in result)
    if out is None and beta != 0:
        raise TensorError(f"beta is {beta} without out: give the output that is added to")
    made = new_output(shape, moved, terms) if out is None else out
    target = _members_first(made, result, 0 if out is None else batch)
    written = Term(output_view(target, shape, terms), result)
    contract(written, terms, alpha, beta)
    if out is not None:
        target = out
    elif not isinstance(target, Batch) and target.ndim > len(result):
        target = _moved(target, 0, batch)
    return target, (*terms, written)


def terms_of(operands: tuple[Operand, ...], words: tuple[str, ...]) -> tuple[Term, ...]:
    """Operands as terms with letters. The first dimension of an array counts members.

    Raises
    ------
    TensorError
        If dimensions do not fit the letters.
    """
    terms = []
    for k, (one, word) in enumerate(zip(operands, words, strict=True)):
        terms.append(Term(as_view(one, len(word), f"operand {k}"), word))
    return tuple(terms)


def _members_first(one: Operand, word: str, batch: int) -> Operand:
    if batch == 0 or not is_array(one) or isinstance(one, Batch) or one.ndim != len(word) + 1:
        return one
    if not -one.ndim <= batch < one.ndim:
        raise TensorError(f"batch is {batch}: an array of shape {one.shape} has no such dimension")
    return _moved(one, batch, 0)


def _moved(array: NDArray[Any], axis: int, to: int) -> NDArray[Any]:
    array, device = located(array)
    moved: NDArray[Any] = functions_of(device).moveaxis(array, axis, to)
    return moved


def parsed(subscripts: str, count: int) -> tuple[tuple[str, ...], str]:
    """Letters of each operand and of the result.

    Raises
    ------
    TensorError
        If the subscripts are invalid.
    """
    if not isinstance(subscripts, str):
        raise TensorError(f"subscripts are {type(subscripts).__name__}: give a text as 'ij,jk->ik'")
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    words = tuple(left.split(","))
    if not all((word + right).isascii() and (word + right or "a").isalpha() for word in words):
        raise TensorError(f"{subscripts!r}: give letters, as 'ij,jk->ik'; a batch has none")
    if len(words) != count:
        raise TensorError(f"{subscripts!r} names {len(words)} operands, and {count} are given")
    if not arrow:
        right = "".join(sorted(x for x in set(left) - {","} if left.count(x) == 1))
    repeated = [x for x in right if right.count(x) > 1]
    unknown = [x for x in right if x not in left]
    if repeated or unknown:
        what = "twice in the result" if repeated else "in no operand"
        raise TensorError(f"{subscripts!r}: index {(repeated or unknown)[0]} is {what}")
    return words, right
