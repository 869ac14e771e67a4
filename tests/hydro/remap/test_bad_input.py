"""Arguments that make no sense: one error each, which says what to give."""

from __future__ import annotations

import pytest

import femops
from femops.errors import GeometryError, HydroError, SolverError, SpaceError
from femops.hydro.remap import (
    Advection,
    advection_mesh,
    advection_problem,
    verify_advection,
)
from femops_meshes import MeshGeometryError
from tests.hydro.remap.cases import Step, Swirl, Wave

LINE, SQUARE = femops.box((8,), periodic=True), femops.box((4, 4), periodic=True)

WRONG = {
    "problem": (lambda: advection_problem(3), "there is no problem 3 of advection: choose one of"),
    "mesh": (lambda: advection_mesh("a"), "there is no mesh 'a': give one of periodic-square"),
    "run": (lambda: verify_advection(3), "there is no run 3 of Remhos here"),
    "dimension": (
        lambda: Advection(advection_problem(5), LINE, 2, 1.0, 0.1),
        "problem 5 exists in dimension 2, the mesh has 1",
    ),
    "hanging nodes": (
        lambda: Advection(Wave(), SQUARE.refined([0]), 2, 1.0, 0.1),
        "the remap has no locally refined meshes yet: smaller elements",
    ),
    "given": (lambda: Advection(5, SQUARE, 2, 1.0, 0.1), "problem is 5: give"),
    "order": (lambda: Advection(Wave(), SQUARE, 0, 1.0, 0.1), "order is 0: give a whole number"),
    "end": (lambda: Advection(Wave(), SQUARE, 1, -1.0, 0.1), "t_final is -1.0: give a number"),
    "step": (lambda: Advection(Wave(), SQUARE, 1, 1.0, 0.0), "dt is 0.0: give a number above 0"),
    "ho": (lambda: Advection(Wave(), SQUARE, 2, 1.0, 0.1, ho=2), "ho is 2: the methods here"),
    "lo": (lambda: Advection(Wave(), SQUARE, 2, 1.0, 0.1, lo=5), "lo is 5: the methods here"),
    "fct": (lambda: Advection(Wave(), SQUARE, 2, 1.0, 0.1, fct=1), "fct is 1: the methods here"),
    "subcells": (lambda: Advection(Wave(), SQUARE, 1, 1.0, 0.1), "lo 4 needs subcells"),
    "no low": (lambda: Advection(Wave(), SQUARE, 2, 1.0, 0.1, lo=0), "fct 2 limits ho by lo"),
    "two": (lambda: Advection(Wave(), SQUARE, 2, 1.0, 0.1, fct=0), "without fct give one of ho"),
    "long": (
        lambda: Advection(Step(), LINE, 2, 1.0, 0.05, ho=3).run(),
        r"a step of 0.05 makes new extremes: here the limit is 0.0[0-4]",
    ),
    "alone": (
        lambda: Advection(Wave(), femops.box((1, 1)), 2, 1.0, 0.1),
        "no faces between elements",
    ),
    "unstable": (
        lambda: Advection(Wave(), LINE, 3, 40.0, 0.1, ho=3, lo=0, fct=0).run(),
        "the limit of stability is about",
    ),
    "far": (
        lambda: Advection(Swirl(), femops.box((4, 4)), 2, 3.0, 0.02).run(),
        "the mesh tangles at t = .*: .* inverted, first number .*; move it less far",
    ),
}


def test_one_error():
    for call, message in WRONG.values():
        with pytest.raises((HydroError, SpaceError, SolverError), match=message):
            call()


def test_a_function_on_a_tangled_mesh():
    run = Advection(Swirl(), femops.box((4, 4)), 2, 0.3, 0.02)
    found = run.run()
    found.nodes[0] = found.nodes[0][..., ::-1]
    with pytest.raises((GeometryError, MeshGeometryError), match="inverted"):
        run.function(found)
