"""Contractions of several operands, pair by pair."""

from __future__ import annotations

import numpy as np

from femops.tensor.known import remembered
from femops.tensor.lowering import Number, Term, contract_pair, sizes_of
from femops.tensor.memory import functions_of
from femops.tensor.places import View


def contract(
    result: Term, terms: tuple[Term, ...], alpha: Number = 1.0, beta: Number = 0.0
) -> None:
    """Set result = alpha (sum of products of the terms) + beta result, pair by pair."""
    if len(terms) == 1:
        contract_pair(result, terms[0], _one(terms[0].view), alpha, beta)
        return
    steps = steps_of(tuple(term.named for term in terms), result.letters)
    made = list(terms)
    for a, b, letters in steps[:-1]:
        made.append(_intermediate(made[a], made[b], letters))
    a, b, _ = steps[-1]
    contract_pair(result, made[a], made[b], alpha, beta)


@remembered
def steps_of(
    operands: tuple[tuple[str, tuple[int, ...]], ...], result: str
) -> tuple[tuple[int, int, str], ...]:
    """Order in which to contract operands in pairs, with the fewest operations.

    An operand is given by its letters and shape. A step has the numbers of two operands and the
    letters of their product. The product becomes one more operand. The last step has the letters of
    the result. A single operand has no steps.
    """
    letters, left, steps = [word for word, _ in operands], list(range(len(operands))), []
    likenesses = [np.broadcast_to(np.float64(0.0), shape) for _, shape in operands]
    how = "optimal" if len(operands) <= 8 else "greedy"
    path, _ = np.einsum_path(f"{','.join(letters)}->{result}", *likenesses, optimize=(how, 2**62))
    for pair in path[1:]:
        chosen = [left.pop(k) for k in sorted(pair, reverse=True)]
        while len(chosen) > 1:
            b, a = chosen.pop(), chosen.pop()
            kept = result + "".join(letters[k] for k in (*left, *chosen))
            both = dict.fromkeys(letters[a] + letters[b])
            steps.append((a, b, "".join(x for x in both if x in kept)))
            chosen.append(len(letters))
            letters.append(steps[-1][2])
        left += chosen
    return (*steps[:-1], (*steps[-1][:2], result)) if steps else ()


def _one(like: View) -> Term:
    """Tensor without indices and with the value 1, shared by all members."""
    ones = functions_of(like.device).ones((), like.dtype)
    return Term(View.of_array(ones, shared=True), "")


def _intermediate(a: Term, b: Term, letters: str) -> Term:
    """Compute the product of two operands, with the indices ``letters``."""
    sizes = sizes_of((a.named, b.named))
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
