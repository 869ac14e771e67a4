"""Time integrators: explicit methods. One of them conserves the energy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

from femops.errors import HydroError
from femops.hydro.lagrangian import Lagrangian
from femops.hydro.steps import AveragedStep, RungeKuttaStep, TimeStep


@final
@dataclass(frozen=True)
class Method:
    """Time integrator.

    Attributes
    ----------
    name : str
    stages : int
    step : callable
        ``step(equations)`` makes the `TimeStep` of the method.
    """

    name: str
    stages: int
    step: Callable[[Lagrangian], TimeStep]


def _explicit(
    rows: tuple[tuple[float, ...], ...], weights: tuple[float, ...]
) -> Callable[[Lagrangian], TimeStep]:
    """Return a function that makes the step of a Runge-Kutta method with this Butcher table."""
    return partial(RungeKuttaStep, rows=rows, weights=weights)


# Verner's method of order 6 with 8 stages, as MFEM has it.
_SIX = (
    (0.06,),
    (0.01923996296296296296296296296296296296296, 0.07669337037037037037037037037037037037037),
    (0.035975, 0.0, 0.107925),
    (
        1.318683415233148260919747276431735612861,
        0.0,
        -5.042058063628562225427761634715637693344,
        4.220674648395413964508014358283902080483,
    ),
    (
        -41.87259166432751461803757780644346812905,
        0.0,
        159.4325621631374917700365669070346830453,
        -122.1192135650100309202516203389242140663,
        5.531743066200053768252631238332999150076,
    ),
    (
        -54.43015693531650433250642051294142461271,
        0.0,
        207.0672513650184644273657173866509835987,
        -158.6108137845899991828742424365058599469,
        6.991816585950242321992597280791793907096,
        -0.01859723106220323397765171799549294623692,
    ),
    (
        -54.66374178728197680241215648050386959351,
        0.0,
        207.9528062553893734515824816699834244238,
        -159.2889574744995071508959805871426654216,
        7.018743740796944434698170760964252490817,
        -0.01833878590504572306472782005141738268361,
        -0.0005119484997882099077875432497245168395840,
    ),
)
_SIX_WEIGHTS = (
    0.03438957868357036009278820124728322386520,
    0.0,
    0.0,
    0.2582624555633503404659558098586120858767,
    0.4209371189673537150642551514069801967032,
    4.405396469669310170148836816197095664891,
    -176.4831190242986576151740942499002125029,
    172.3641334014150730294022582711902413315,
)

_LIST = (
    Method("euler", 1, _explicit((), (1.0,))),
    Method("rk2", 2, _explicit(((0.5,),), (0.0, 1.0))),
    Method("rk3", 3, _explicit(((1.0,), (0.25, 0.25)), (1.0 / 6.0, 1.0 / 6.0, 2.0 / 3.0))),
    Method(
        "rk4",
        4,
        _explicit(
            ((0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1.0 / 6.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 6.0)
        ),
    ),
    Method("rk6", 8, _explicit(_SIX, _SIX_WEIGHTS)),
    Method("rk2avg", 2, AveragedStep),
)

METHODS: dict[str, Method] = {method.name: method for method in _LIST}
"""The integrators by name."""


def method(name: str) -> Method:
    """Return an integrator by its name.

    Raises
    ------
    HydroError
        No integrator has this name.
    """
    if name not in METHODS:
        raise HydroError(f"there is no integrator {name!r}: {', '.join(METHODS)}")
    return METHODS[name]
