"""Marking: the elements that are refined, from estimates of their errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.errors import OperatorError
from femops.parallel.comm import check, check_same, gathered
from femops.parallel.mesh import DistributedMesh, ranks_of
from femops.spaces.base import AnyMesh
from femops_common.arguments import Fraction, checked, numbers_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rule = Literal["bulk", "maximum"]


@checked(OperatorError)
def mark(
    eta: ArrayLike,
    *more: ArrayLike,
    fraction: Fraction = 0.5,
    rule: Rule = "bulk",
    mesh: AnyMesh | None = None,
) -> Ints:
    r"""Numbers of the elements with the largest estimates, for `Mesh.refined`.

    Parameters
    ----------
    eta : (ne,) numbers
        Estimate of the error in each element, not negative, as `recovered` and `residual` return.
    *more : (ne,) numbers
        Estimates of other fields on the same mesh. An element is marked if one of the estimates
        marks it.
    fraction : float
        Part of the sum of squares, or of the largest estimate.
    rule : {"bulk", "maximum"}
        ``"bulk"`` takes the fewest elements with :math:`\sum \eta_e^2 \ge fraction \sum \eta^2`
        over these elements (Doerfler, *A convergent adaptive algorithm for Poisson's equation*,
        1996, where the fraction is called :math:`\theta^2`). Of equal estimates the element with
        the lower number comes first. ``"maximum"`` takes all elements with
        :math:`\eta_e \ge fraction \max \eta`.
    mesh : DistributedMesh, optional
        Mesh that ranks share. Then estimates are those of this rank's elements, sums go over all
        ranks, and the numbers are this rank's own. Collective.

    Returns
    -------
    (k,) int64
        Ascending numbers of elements. Empty if all estimates are zero.

    Raises
    ------
    OperatorError
        If estimates are negative or not finite, or differ in length, or there is no element.

    Examples
    --------
    >>> import femops
    >>> femops.adapt.mark([0.1, 3.0, 2.0, 1.0], fraction=0.7).tolist()
    [1, 2]
    >>> femops.adapt.mark([0.1, 3.0, 2.0, 1.0], rule="maximum").tolist()
    [1, 2]
    """
    shared, comm = isinstance(mesh, DistributedMesh), ranks_of(mesh)
    with check(comm):
        found = [checked_estimates(one, least=0 if shared else 1) for one in (eta, *more)]
        lengths = sorted({len(one) for one in found})
        if mesh is not None:
            own = mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
            lengths = sorted({*lengths, own.num_elements})
        if len(lengths) > 1:
            raise OperatorError(
                f"estimates have lengths {lengths}: give one number for each element, in all arrays"
            )
    facts = {"number of arrays": len(found), "fraction": fraction, "rule": rule}
    check_same(comm, "what is marked", facts, error=OperatorError)
    choose = partial(_bulk if rule == "bulk" else _maximum, fraction=float(fraction))
    marked = [among_all(mesh, one, choose) for one in found]
    return np.unique(np.concatenate(marked))


def among_all(mesh: AnyMesh | None, eta: Floats, choose: Callable[[Floats], Ints]) -> Ints:
    """Those of this rank's elements that a function chooses from the estimates of all ranks."""
    if not isinstance(mesh, DistributedMesh):
        return choose(eta)
    numbers, values = gathered(mesh.comm, mesh.part.elements), gathered(mesh.comm, eta)
    whole = np.empty(len(values))
    whole[numbers] = values
    return np.flatnonzero(np.isin(mesh.part.elements, choose(whole)))


def least(eta: Floats, fraction: float) -> Ints:
    """Ascending numbers of the most elements whose squares have the sum fraction of all at most."""
    if not eta.any():
        return np.arange(len(eta))
    squares = (eta / eta.max()) ** 2
    order = np.argsort(squares, kind="stable")
    count = np.searchsorted(np.cumsum(squares[order]), fraction * squares.sum(), side="right")
    return np.sort(order[:count])


def _bulk(eta: Floats, fraction: float) -> Ints:
    """Fewest elements whose squares have a fraction of the sum of all squares."""
    if not eta.any():
        return np.zeros(0, dtype=np.int64)
    squares = (eta / eta.max()) ** 2
    order = np.argsort(-squares, kind="stable")
    sums = np.cumsum(squares[order])
    count = int(np.searchsorted(sums, fraction * sums[-1])) + 1
    return order[: min(count, np.count_nonzero(squares))]


def _maximum(eta: Floats, fraction: float) -> Ints:
    return np.flatnonzero((eta >= fraction * eta.max()) & (eta > 0.0))


def checked_estimates(values: Any, least: int) -> Floats:
    """Check a user's estimates, of which there must be at least ``least``."""
    eta = numbers_of(values, "eta", OperatorError)
    if eta.ndim != 1 or eta.size < least:
        raise OperatorError(
            f"eta has shape {eta.shape}: give an array with one estimate for each element"
        )
    bad = np.flatnonzero(~(np.isfinite(eta) & (eta >= 0.0)))
    if len(bad):
        raise OperatorError(
            f"{len(bad)} of {eta.size} estimates are negative or not finite, the first is "
            f"eta[{bad[0]}] = {eta[bad[0]]:.6g}: give errors, which are at least zero"
        )
    return eta
