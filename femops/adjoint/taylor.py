"""The Taylor test, which checks a gradient against its function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import Errors, OperatorError
from femops.pointwise.trace import explain
from femops_common.arguments import Count, checked, refusal, shown

_LARGEST = 1e100  # step whose square is a number


@checked(OperatorError)
def taylor(
    goal: Callable[[Any], float],
    point: Any,
    direction: Any,
    slope: Any,
    curvature: Any = None,
    *,
    step: float = 1e-2,
    halvings: Count = 4,
) -> NDArray[np.float64]:
    r"""Rates at which the remainder of a Taylor expansion vanishes.

    The remainder is :math:`|J(m + h d) - J(m) - h J' d\, (- h^2/2\, d^T J'' d)|`, for h, h/2, h/4
    and so on. If the gradient is right, the rates are 2, else 1. With a second derivative that is
    right as well, they are 3.

    Parameters
    ----------
    goal : callable
        Takes a point, and returns a number.
    point, direction : arrays, numbers, or dicts of these
        A dict has a value for each control, and the goal takes such a dict.
    slope : number
        The derivative along the direction, gradient times direction.
    curvature : number, optional
        The second derivative along the direction.
    step : float
        The largest h.
    halvings : int
        How often h is halved.

    Returns
    -------
    (halvings,) float64
        Rate of each halving. NaN or infinite where the remainder is zero.

    Raises
    ------
    OperatorError
        The goal or a derivative is not a finite number, the step is not positive, or the direction
        has another shape than the point or a name that the point lacks.

    Examples
    --------
    >>> import femops
    >>> rates = femops.adjoint.taylor(lambda x: x**3, 1.0, 1.0, slope=3.0)
    >>> bool(abs(rates - 2.0).max() < 0.02)
    True
    """
    if not 0.0 < float(step) <= _LARGEST:
        raise OperatorError(f"step is {shown(step)}: give a small positive number")
    sizes = float(step) * 0.5 ** np.arange(int(halvings) + 1)
    slope = _number(slope, "slope")
    bend = 0.0 if curvature is None else _number(curvature, "curvature")
    start, rest = _value(goal, point), []
    for h in sizes:
        expected = start + h * slope + 0.5 * h**2 * bend
        rest.append(abs(_value(goal, _at(point, direction, h)) - expected))
    with np.errstate(divide="ignore", invalid="ignore"):
        rates: NDArray[np.float64] = np.log2(np.array(rest[:-1]) / np.array(rest[1:]))
    return rates


def _at(point: Any, direction: Any, h: float) -> Any:
    if isinstance(point, dict) and isinstance(direction, dict):
        if unknown := [name for name in direction if name not in point]:
            raise OperatorError(
                f"the direction has {shown(unknown[0])}, the point has {', '.join(map(str, point))}"
            )
        return {name: _at(value, direction.get(name, 0.0), h) for name, value in point.items()}
    try:
        return point + h * direction
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise OperatorError(
            f"{shown(point)} and {shown(direction)} are no point and direction: give numbers, "
            "arrays of one shape, or a dict of them each"
        ) from error


def _number(value: Any, name: str) -> float:
    """Convert a number of Python, NumPy, JAX or PyTorch."""
    try:
        number = math.nan if isinstance(value, str) or np.iscomplexobj(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise OperatorError(refusal(name, value, "a finite number, gradient @ direction"))
    return number


def _value(goal: Callable[[Any], float], point: Any) -> float:
    try:
        number = float(goal(point))
    except Errors:
        raise
    except Exception as error:  # whatever a user's function may raise
        raise OperatorError(f"the goal gave no number: {explain(error)}") from error
    if not np.isfinite(number):
        raise OperatorError(f"the goal is {number}: begin at another point, or with a smaller step")
    return number
