"""The adaptive loop: rates on problems with known solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from adapt import nist
from femops.errors import MeshError, OperatorError


def rate(case: Any, order: int, estimate: Any, dofs: int, mark: float = 0.7) -> tuple[Any, Any]:
    """Slope of the error over the last cycles, in logarithms, and effectivities."""
    rows = []
    cycles = femops.adapt.loop(
        case.problem(order),
        case.mesh,
        estimate=estimate,
        mark=mark,
        max_dofs=dofs,
        max_cycles=40,
        exact=case.error,
    )
    for _, _, found in cycles:
        rows.append((found.space.size, found.total / found.effectivity, found.effectivity))
    sizes, errors, effectivity = np.array(rows[-5:]).T
    return np.polyfit(np.log(sizes), np.log(errors), 1)[0], effectivity


@pytest.mark.parametrize(
    "order", [1, 2, *(pytest.param(p, marks=pytest.mark.exhaustive) for p in (3, 4))]
)
def test_corner(order: int) -> None:
    """The L-shape: |e| ~ N**(-p / 2), where uniform meshes have N**(-1 / 3)."""
    slope, effectivity = rate(nist.corner(), order, "residual", 600 + 300 * order)
    assert slope < -0.9 * order / 2.0
    low = (0.9, 0.9, 0.7, 0.5)[order - 1]  # where the least elements have most of the error
    assert low < effectivity[-1] < 1.4
    uniform = []
    for n in (2, 4):
        case = nist.corner()
        _, _, found = next(
            femops.adapt.loop(case.problem(order), case.mesh.refine(n - 1), exact=case.error)
        )
        uniform.append((found.space.size, found.total / found.effectivity))
    (n0, e0), (n1, e1) = uniform
    assert -0.4 < np.log(e1 / e0) / np.log(n1 / n0) < -0.25


def by_slopes(equation: Any, u: Any) -> Any:
    """The residual, measured by gradients: with convection the energy of an element may fall."""
    return femops.adapt.residual(equation, u, norm=femops.diffusion(equation[0].space))


QUICK = {
    "peak": (nist.peak, 2, 1800, "recovered", 1.0),
    "front": (nist.wave_front, 2, 1800, "residual", 1.0),
    "slit": (lambda: nist.corner(4), 2, 1200, "residual", 1.0),
    "crack": (nist.crack, 2, 2500, "recovered", 1.0),
}
EXHAUSTIVE = {
    "analytic": (nist.analytic, 3000, "residual", 1.0),
    "corner": (nist.corner, 3000, "residual", 1.0),
    "second crack": (lambda: nist.crack(2), 3000, "residual", 1.0),
    "layer": (nist.layer, 3500, by_slopes, 1.0),
    "oscillatory": (nist.oscillatory, 4000, "residual", 1.0),
    "front": (nist.wave_front, 4000, "recovered", 1.0),
    "inner line": (nist.inner_line, 3000, "residual", 1.0),
    "difficulties": (nist.difficulties, 8000, "residual", 1.0),
}


@pytest.mark.parametrize("name", QUICK)
def test_problems_of_nist(name: str) -> None:
    """|e| ~ N**(-p / 2)."""
    make, order, dofs, estimate, part = QUICK[name]
    slope, effectivity = rate(make(), order, estimate, dofs)
    assert slope < -0.85 * part * order / 2.0
    norm = 0.5 if name == "crack" else 0.85  # the energy of strains is less than that of slopes
    assert norm < effectivity[-1] < 1.3


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_more_problems_of_nist(name: str, order: int) -> None:
    make, dofs, estimate, part = EXHAUSTIVE[name]
    slope, _ = rate(make(), order, estimate, dofs)
    assert slope < -0.85 * part * order / 2.0


def test_a_singular_side_is_limited_by_square_elements() -> None:
    """x**0.6 has N**(-0.1) with elements that are halved in all directions, whatever the order."""
    slope, _ = rate(nist.boundary_line(), 2, "residual", 1500)
    assert -0.13 < slope < -0.08


def test_interfaces_that_cross() -> None:
    """Kellogg's: the error falls by the power 0.1 of the least element, and much slower else."""
    case = nist.interfaces()
    cycles = femops.adapt.loop(
        case.problem(2), case.mesh, estimate="residual", mark=0.7, max_cycles=12, exact=case.error
    )
    errors = [found.total / found.effectivity for _, _, found in cycles]
    assert len(errors) == 12
    assert errors[-1] < 0.6 * errors[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", [2, 3])
def test_battery(order: int) -> None:
    """Halves of squares follow layers badly, but better than a uniform mesh does."""
    problem = nist.battery_problem(order)

    def error(V: Any, u: Any) -> float:
        return float(np.sqrt(nist.BATTERY - problem(V.mesh)[1](V) @ u))

    def cycles(mesh: Any, **limits: Any) -> Any:
        run = femops.adapt.loop(problem, mesh, estimate="residual", mark=0.8, exact=error, **limits)
        *_, (_, _, found) = run
        return found.space.size, found.total / found.effectivity, found.effectivity

    many, uniform, _ = cycles(nist.battery().refine(3), max_cycles=1)
    few, least, effectivity = cycles(nist.battery().refine(1), max_dofs=2000 * order)
    assert few < 0.6 * many
    assert least < 0.7 * uniform
    assert 1.0 < effectivity < 10.0


def fichera(x: Any) -> Any:
    return (x**2).sum(axis=0) ** 0.25


def fichera_problem(order: int) -> Any:
    def made(mesh: Any) -> Any:
        V = femops.H1(mesh, order)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        load = lambda W: femops.load(W, lambda x: -0.75 * (x**2).sum(axis=0) ** -0.75)  # noqa: E731
        return A, load, lambda W: W.interpolate(fichera)

    return made


def test_fichera_corner() -> None:
    """-Delta u = -3/4 r**(-3/2) in the cube without an octant: |e| ~ N**(-p / 3)."""

    def error(V: Any, u: Any) -> float:
        slope = lambda x: 0.5 * x * (x**2).sum(axis=0) ** -0.75  # noqa: E731
        return femops.h1_seminorm_error(V, u, slope, quadrature=8)

    rows = []
    cycles = femops.adapt.loop(
        fichera_problem(2), femops.l_shape(2, dim=3), mark=0.6, max_dofs=3000, exact=error
    )
    for _, _, found in cycles:
        rows.append((found.space.size, found.total / found.effectivity, found.effectivity))
    sizes, errors, effectivity = np.array(rows).T
    assert np.polyfit(np.log(sizes[-4:]), np.log(errors[-4:]), 1)[0] < -0.9 * 2.0 / 3.0
    assert 0.7 < effectivity[-1] < 1.5


def simple(mesh: Any) -> Any:
    V = femops.H1(mesh, 2)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, 1.0))


def test_ends_and_reports() -> None:
    mesh = femops.l_shape()
    found = [*femops.adapt.loop(simple, mesh, tol=0.02)]
    totals = [one.total for _, _, one in found]
    assert totals[-1] <= 0.02 < totals[-2]
    first, last = found[0][2], found[-1][2]
    assert last.marked.size == 0
    assert first.marked.size > 0
    assert first.effectivity is None
    text = repr(first)
    assert text.startswith("Estimate(cycle 0: 65 dofs, 12 elements, ")
    assert "\n" not in text
    assert "elements marked" in text
    assert first.error is None
    sizes = [one.space.size for _, _, one in femops.adapt.loop(simple, mesh, max_dofs=200)]
    assert sizes[-1] >= 200 > sizes[-2]
    assert len([*femops.adapt.loop(simple, mesh, max_cycles=3)]) == 3
    every = femops.adapt.loop(simple, mesh, max_cycles=2, mark=lambda eta: np.arange(len(eta)))
    assert [one.num_elements for one, _, _ in every] == [12, 48]


def test_each_cycle_begins_with_the_last_solution() -> None:
    """A solution that the space has is found in no iteration on the second mesh."""

    def problem(mesh: Any) -> Any:
        V = femops.H1(mesh, 2)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        return A, lambda W: W.zeros(), lambda W: W.interpolate(lambda x: x[0] * x[1])

    cycles = femops.adapt.loop(
        problem, femops.box((3, 3)), max_cycles=2, mark=lambda _: [0], rtol=1e-8
    )
    (_, _, first), (_, _, second) = cycles
    assert first.iterations > 0 == second.iterations


def test_coarsening_and_own_estimates() -> None:
    """Elements that were refined in a wrong place come back."""
    mesh = femops.box((4, 4)).refined(lambda x: x[0] < 0.5)
    own = lambda equation, u: (  # noqa: E731
        1e-6 + (equation[0].space.mesh.element_centers()[:, 0] > 0.75)
    )
    cycles = femops.adapt.loop(simple, mesh, estimate=own, mark=0.5, coarsen=0.01, max_cycles=2)
    _, (after, _, _) = cycles
    assert after.forest.level[after.element_centers()[:, 0] < 0.2].max() == 0
    assert after.forest.level[after.element_centers()[:, 0] > 0.8].max() == 1


def test_the_loop_ends_at_the_highest_level() -> None:
    def problem(mesh: Any) -> Any:
        V = femops.H1(mesh, 1)
        return femops.mass(V), V.zeros()

    cycles = femops.adapt.loop(
        problem,
        femops.box((1, 1, 1)),
        estimate=lambda equation, u: np.ones(equation[0].space.mesh.num_elements),
        mark=lambda eta: [0],
    )
    levels = [0 if mesh.forest is None else mesh.forest.depth for mesh, _, _ in cycles]
    assert levels[2:] == [*range(2, 21)]


def test_nonlinear_problem() -> None:
    def problem(mesh: Any) -> Any:
        V = femops.H1(mesh, 2)
        F = femops.residual(lambda u: {"grad": (1.0 + u**2) * u.grad, "value": -5.0}, V)
        return F.constrained(V.boundary_dofs()), V.zeros()

    cycles = [*femops.adapt.loop(problem, femops.l_shape(), max_cycles=3, estimate="residual")]
    totals = [found.total for _, _, found in cycles]
    assert totals[-1] < 0.8 * totals[0]
    goal = lambda V: femops.functional(lambda u: u**2, V)  # noqa: E731
    cycles = [*femops.adapt.loop(problem, femops.l_shape(), max_cycles=3, goal=goal)]
    values = [goal(found.space)(u) + found.error for _, u, found in cycles]
    assert abs(values[2] - values[1]) < 0.5 * abs(values[1] - values[0]) + 1e-6


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: [*femops.adapt.loop(lambda m: 3, femops.box((2,)))], "returned 3"),
        (
            lambda: [*femops.adapt.loop(lambda m: simple(femops.box((3, 3))), femops.box((2, 2)))],
            "form on 9 elements",
        ),
        (lambda: femops.adapt.loop(simple, femops.box((2, 2)), estimate="best"), "estimate"),
        (
            lambda: femops.adapt.loop(simple, femops.box((2, 2)), goal=3.0),
            "goal is 3.0: give a function",
        ),
        (
            lambda: [*femops.adapt.loop(simple, femops.box((2, 2)), estimate="residual")],
            "function of the space",
        ),
    ],
)
def test_bad_problems(call: Any, words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        call()


def poisson(mesh: Any) -> Any:
    V = femops.H1(mesh, order=2)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, 1.0))


BAD_FUNCTIONS = [
    ({"mark": lambda _: [10**6]}, "elements run from 1000000"),
    ({"mark": lambda _: [-1]}, "elements run from -1"),
    ({"mark": lambda _: np.ones(3, dtype=bool)}, "the mask has shape"),
    ({"mark": lambda _: [0.5]}, "give numbers"),
    ({"mark": lambda _: "first"}, "give numbers"),
    ({"mark": lambda _: None}, "give numbers"),
    ({"estimate": lambda _, u: np.ones(len(u) + 1)}, "numbers: return one"),
    ({"estimate": lambda _, u: np.ones((len(u), 2))}, "eta has shape"),
    ({"estimate": lambda *_: "large"}, "eta"),
    ({"estimate": lambda *_: np.full(16, np.nan)}, "not finite"),
]


@pytest.mark.parametrize(("options", "message"), BAD_FUNCTIONS)
def test_results_of_users_functions_are_checked(options: Any, message: str) -> None:
    with pytest.raises((OperatorError, MeshError), match=message):
        [*femops.adapt.loop(poisson, femops.box((4, 4)), max_cycles=2, **options)]


@pytest.mark.parametrize("bad", [None, [[1], [2, 3]], "all", [0.5]])
def test_bad_elements_to_change(bad: Any) -> None:
    mesh = femops.box((2, 2))
    for elements in ({"refine": bad}, {"coarsen": bad}):
        with pytest.raises(MeshError):
            femops.adapt.change(mesh, **elements)
