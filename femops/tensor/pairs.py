"""Contractions of several operands, in pairs."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from femops.errors import TensorError
from femops.tensor.lowering import Number, Term, contract_pair
from femops.tensor.memory import functions_of
from femops.tensor.places import View


def sizes_of(terms: tuple[Term, ...]) -> dict[str, int]:
    """Size of each index.

    Raises
    ------
    TensorError
        It is another in another operand.
    """
    sizes: dict[str, int] = {}
    for term in terms:
        for letter, size in zip(term.letters, term.view.places.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise TensorError(
                    f"index {letter} is {sizes[letter]} long in one operand and {size} in another"
                )
    return sizes


def path_of(terms: tuple[Term, ...], result: str) -> tuple[tuple[int, ...], ...]:
    """Pairs of operands, in the order in which they are contracted; one alone has none."""
    return _order(tuple(term.letters for term in terms), result, _shapes(terms))


def contract(
    result: Term, terms: tuple[Term, ...], alpha: Number = 1.0, beta: Number = 0.0
) -> None:
    """Set result = alpha (sum of products of the terms) + beta result, in pairs."""
    if len(terms) == 1:
        contract_pair(result, terms[0], _one(terms[0].view), alpha, beta)
        return
    steps = steps_of(tuple(term.letters for term in terms), result.letters, _shapes(terms))
    made = list(terms)
    for a, b, letters in steps[:-1]:
        made.append(_intermediate(made[a], made[b], letters))
    a, b, _ = steps[-1]
    contract_pair(result, made[a], made[b], alpha, beta)


@lru_cache(maxsize=512)
def steps_of(
    words: tuple[str, ...], result: str, shapes: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, int, str], ...]:
    """Pairs of several operands and the letters of their product, the last of them the result's.

    A product is counted on as one more operand.
    """
    letters, left, steps = list(words), list(range(len(words))), []
    for pair in _order(words, result, shapes):
        chosen = [left.pop(k) for k in sorted(pair, reverse=True)]
        while len(chosen) > 1:
            b, a = chosen.pop(), chosen.pop()
            kept = result + "".join(letters[k] for k in (*left, *chosen))
            both = dict.fromkeys(letters[a] + letters[b])
            steps.append((a, b, "".join(x for x in both if x in kept)))
            chosen.append(len(letters))
            letters.append(steps[-1][2])
        left += chosen
    return (*steps[:-1], (*steps[-1][:2], result))


def _shapes(terms: tuple[Term, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(term.view.places.shape for term in terms)


@lru_cache(maxsize=512)
def _order(
    words: tuple[str, ...], result: str, shapes: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], ...]:
    """Pairs of operands, in the order in which they are contracted."""
    if len(words) == 1:
        return ()
    if len(words) == 2:
        return ((0, 1),)
    likenesses = [np.broadcast_to(np.float64(0.0), shape) for shape in shapes]
    how = "optimal" if len(words) <= 8 else "greedy"
    path, _ = np.einsum_path(f"{','.join(words)}->{result}", *likenesses, optimize=(how, 2**62))
    return tuple(path[1:])


def _one(like: View) -> Term:
    """A tensor without indices, which is 1."""
    ones = functions_of(like.device).ones((), like.dtype)
    return Term(View.of_array(ones, shared=True), "")


def _intermediate(a: Term, b: Term, letters: str) -> Term:
    """Product of two operands, with the indices that are needed later."""
    sizes = sizes_of((a, b))
    shape = tuple(sizes[x] for x in letters)
    batched = [one.view for one in (a, b) if not one.view.shared]
    kind, device = a.view.dtype, a.view.device
    empty = functions_of(device).empty
    if not batched:
        made = View.of_array(empty(shape, kind), shared=True)
    elif batched[0].lanes == 1:
        made = View.of_array(empty((batched[0].members, *shape), kind))
    else:
        made = View.grouped(shape, kind, batched[0].lanes, batched[0].members, device)
    contract_pair(Term(made, letters), a, b)
    return Term(made, letters)
