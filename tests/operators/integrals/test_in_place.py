"""Arrays, vectors and variables that coefficients were read from are overwritten in place.

An operator keeps what they were when it was made, or last updated: at every level, in its matrix,
diagonal, transposes, sums and multiples, whenever these are asked for.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops.operators.integrals.state import Sampled
from support.cases.levels import LEVELS
from support.oracles.naive import Array

Live = dict[str, Array]

MESH = femops.box((3, 2), mapping=lambda x: x + 0.1 * np.sin(3 * x[::-1]))
V = femops.H1(MESH, 2)
LINEAR = femops.H1(MESH, 1)
WINDS = femops.H1(MESH, 1, ncomp=2)
ELEMENTS = femops.L2(MESH, 0)
FLOW = femops.Product(u=femops.H1(MESH, 2, ncomp=2), p=LINEAR)
SIDES = femops.geometry.BoundaryGeometry(MESH, V.quadrature())
POINTS = (MESH.num_elements, V.quadrature().q1d ** 2)


# --- operators, and what they read ----------------------------------------------------------------


@final
@dataclass(frozen=True)
class Case:
    """An operator whose coefficients read arrays, `coefficients`; a state, too, is an array."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    coefficients: Callable[[Live], dict[str, Any]]
    make: Callable[[Live, dict[str, Any]], Any]
    stays: tuple[str, ...] = ()  # what `update` does not read again

    def operator(self, live: Live) -> Any:
        return self.make(live, self.coefficients(live))

    def matrix(self, live: Live) -> Array:
        """What the operator is, of arrays that nobody changes."""
        result: Array = self.operator(copy.deepcopy(live)).assemble().toarray()
        return result

    def __str__(self) -> str:
        return self.name


def field(space: Any, vector: Array) -> femops.GridFunction:
    return femops.GridFunction(space, vector)


def linear(c: Array) -> Callable[[Array], Array]:
    return lambda x: c[0] + c[1] * x[0]


def transport(u: Any, r: Any, b: Any, K: Any, s: Any) -> Any:
    return {"value": s[0] * r * u + b @ u.grad, "grad": K @ u.grad + u.value * s}


def robin(u: Any, x: Any, n: Any, a: Any, g: Any) -> Any:
    return {"value": (a + g * (1 + n[0])) * u}


def stokes(u: Any, p: Any, mu: Any, q: Any, e: Any) -> Any:
    stress = mu * u.grad + q * u.sym_grad - p * np.eye(2)
    return {"u": {"grad": stress}, "p": {"value": -u.div - e[0] * p}}


def reaction(u: Any, k: Any, m: Any) -> Any:
    return {"value": m * u**3, "grad": k * (1 + u**2) * u.grad}


def bent(c: Array) -> Callable[[Array], Any]:
    """A tensor that is not symmetric, with a constant in it."""
    return lambda x: [[2 + c[0] * x[0], 0.3], [-0.2 * c[1], 2 + c[1] * x[1]]]


def normal(c: Array) -> Callable[[Array, Array], Array]:
    return lambda x, n: c[0] + c[1] * n[1] ** 2


CASES = [
    Case(
        "array",
        {"a": POINTS},
        lambda live: {"rho": live["a"]},
        lambda _, given: femops.mass(V, **given, quadrature=V.quadrature()),
    ),
    Case(
        "field",
        {"f": LINEAR.shape},
        lambda live: {"rho": field(LINEAR, live["f"])},
        lambda _, given: femops.mass(V, **given),
    ),
    Case(
        "elements",
        {"f": ELEMENTS.shape},
        lambda live: {"kappa": field(ELEMENTS, live["f"])},
        lambda _, given: femops.diffusion(V, **given),
    ),
    Case(
        "closure",
        {"c": (2,)},
        lambda live: {"kappa": linear(live["c"])},
        lambda _, given: femops.diffusion(V, **given),
    ),
    Case(
        "all",
        {"a": POINTS, "f": WINDS.shape, "c": (2,), "s": (2,)},
        lambda live: {
            "r": live["a"],
            "b": field(WINDS, live["f"]),
            "K": bent(live["c"]),
            "s": live["s"],
        },
        lambda _, given: femops.form(transport, V, **given, quadrature=V.quadrature()),
    ),
    Case(
        "boundary",
        {"a": (SIDES.num_elements, SIDES.num_points), "c": (2,)},
        lambda live: {"a": live["a"], "g": normal(live["c"])},
        lambda _, given: femops.form(robin, V, **given, boundary=True, quadrature=V.quadrature()),
    ),
    Case(
        "product",
        {"f": LINEAR.shape, "c": (2,), "e": (1,)},
        lambda live: {"mu": field(LINEAR, live["f"]), "q": linear(live["c"]), "e": live["e"]},
        lambda _, given: femops.form(stokes, FLOW, **given),
    ),
    Case(
        "jacobian",
        {"f": LINEAR.shape, "c": (2,), "u": V.shape},
        lambda live: {"k": field(LINEAR, live["f"]), "m": linear(live["c"])},
        lambda live, given: femops.residual(reaction, V, **given).jacobian(live["u"]),
        stays=("u",),
    ),
]


def arrays(case: Case, rng: np.random.Generator) -> Live:
    return {name: rng.uniform(0.5, 1.5, shape) for name, shape in case.shapes.items()}


def overwrite(live: Live, rng: np.random.Generator) -> None:
    for array in live.values():
        array[...] = rng.uniform(2.0, 4.0, array.shape)


# --- what an operator must be ---------------------------------------------------------------------


def look(A: Any, matrix: Array, what: str) -> None:
    """One part of an operator."""
    size = np.abs(matrix).sum(axis=1).max()
    x = np.random.default_rng(1).uniform(-1.0, 1.0, len(matrix))
    if what == "apply":
        close(A @ x, matrix @ x, size)
    elif what == "transpose":
        close(A.T @ x, matrix.T @ x, size)
    elif what == "diagonal":
        close(A.diagonal(), matrix.diagonal(), size)
    elif what == "jacobi":
        close(femops.jacobi(A).inverse * matrix.diagonal(), np.ones(len(x)), 1.0)
    elif what == "assemble":
        close(A.assemble().toarray(), matrix, size)
    else:
        close(A.at_level(what) @ x, matrix @ x, size)


def close(found: Any, expected: Array, size: float) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-12 * size)


PARTS = ("apply", "transpose", "diagonal", "assemble", *LEVELS)
HELD = np.array([1, 4, 5])


def derived(A: Any) -> Any:
    """A sum with the transpose, a multiple, conditions."""
    dofs = HELD.copy()
    B = (0.5 * A + A.T).constrained(dofs)
    dofs[:] = 0  # nor are these read again
    return B


def derived_matrix(matrix: Array) -> Array:
    found = 0.5 * matrix + matrix.T
    found[HELD], found[:, HELD] = 0.0, 0.0
    found[HELD, HELD] = 1.0
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_read_again(case: Case, level: str) -> None:
    """All parts of operators, first asked for after the arrays have changed; then updated."""
    rng = np.random.default_rng(7)
    live = arrays(case, rng)
    made = copy.deepcopy(live)
    A = case.operator(live).at_level(level)
    B, matrix = derived(A), case.matrix(made)
    overwrite(live, rng)
    kept = {name: made[name] for name in case.stays}
    renewed = case.matrix(copy.deepcopy(live) | kept)
    A2, B2 = (operator.update(**case.coefficients(live)) for operator in (A, B))
    overwrite(live, rng)
    for part in PARTS:
        look(A, matrix, part)
        look(A2, renewed, part)
        look(B, derived_matrix(matrix), part)
        look(B2, derived_matrix(renewed), part)
    if derived_matrix(renewed).diagonal().all():  # not where there are boundary integrals alone
        look(B2, derived_matrix(renewed), "jacobi")


# --- tests ----------------------------------------------------------------------------------------


def test_read_only_arrays_have_writeable_views() -> None:
    values, one = np.ones(POINTS), V.interpolate(1.0)
    behind, locked = values[:], values.view()
    locked.flags.writeable = values.flags.writeable = False
    for array in (values, locked):
        A = femops.mass(V, array, quadrature=V.quadrature())
        expected = A @ one
        behind[:] = 5.0
        for level in LEVELS:
            np.testing.assert_allclose(A.at_level(level) @ one, expected, rtol=1e-12)
        behind[:] = 1.0


def test_a_nonlinear_form_reads_when_it_is_made() -> None:
    """Its coefficients and the variables of its function, before the first residual."""
    live = {"f": LINEAR.interpolate(1.0), "c": np.array([1.0, 0.5]), "s": np.array([2.0])}

    def make(live: Live) -> femops.Residual:
        def function(u: Any, k: Any, m: Any) -> Any:
            return {"value": live["s"][0] * m * u**3, "grad": k * u.grad}

        k, m = field(LINEAR, live["f"]), linear(live["c"])
        return femops.residual(function, V, k=k, m=m)

    u = V.interpolate(lambda x: 1 + x[0] * x[1])
    F, fresh = make(live), make(copy.deepcopy(live))
    residual, product = fresh.residual(u), fresh.jacobian(u) @ u
    overwrite(live, np.random.default_rng(3))
    held = V.boundary_dofs()
    np.testing.assert_array_equal(F.residual(u), residual)
    np.testing.assert_array_equal(F.jacobian(u) @ u, product)
    constrained = F.constrained(held).residual(u)
    residual[held] = 0.0
    np.testing.assert_array_equal(constrained, residual)
    np.testing.assert_array_equal(
        F.constrained(held).jacobian(u) @ u, fresh.constrained(held).jacobian(u) @ u
    )


def test_copies_keep_what_was_read() -> None:
    """Of coefficients, and of variables of the form's own function."""
    c, s = np.array([1.0, 0.5]), np.array([2.0])
    A = femops.form(lambda u, k: {"value": s[0] * k * u}, V, k=linear(c))
    one, expected = V.interpolate(1.0), A.assemble().toarray()
    twins = copy.deepcopy(A), copy.copy(A)
    c[:], s[:] = 9.0, 7.0
    for twin in twins:
        for level in LEVELS:
            np.testing.assert_allclose(twin.at_level(level) @ one, expected @ one, rtol=1e-12)
        np.testing.assert_allclose(twin.assemble().toarray(), expected, rtol=1e-14)
    np.testing.assert_allclose(twins[0].update(k=0.5) @ one, femops.mass(V) @ one, rtol=1e-12)


@pytest.mark.parametrize(
    ("coefficient", "numbers"),
    [
        (lambda x: 1 + x[0], 1),
        (lambda _: 2.0, 0),
        (lambda x: (1 + x[0], 3.0), 1),
        (lambda x: [[2 + x[0], 0.1 * x[1]], [0.1 * x[1], 2.0]], 2),
        (lambda x: [[2 + x[0], 0.1 * x[1]], [0.2 * x[1], 2.0]], 3),
        (np.ones((*POINTS, 2, 2)) * np.eye(2) * np.arange(1, POINTS[1] + 1)[:, None, None], 2),
    ],
)
def test_what_is_kept_is_bounded(coefficient: Any, numbers: int) -> None:
    """One number a point for each component that varies, shared by all made of an operator."""
    A = femops.diffusion(V, coefficient, quadrature=V.quadrature())
    others = (A.at_level("full"), A.T, (2 * A).constrained([0]), A + A)
    sources = {id(term.source) for B in (A, *others) for _, term in B._summands}
    kept = A._summands[0][1].source.coefficients["kappa"].value  # type: ignore[union-attr]
    assert len(sources) == 1
    sizes = {id(part): part.nbytes for part in kept.parts if part.ndim}
    assert sum(sizes.values()) == numbers * 8 * math.prod(POINTS)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_values_are_put_together_block_by_block(data: st.DataObject) -> None:
    """Components that begin to vary, or to differ from the opposite one, in any block."""
    geometry = femops.geometry.Geometry(femops.box((6,)), femops.basis.gauss(2))
    shape = data.draw(st.sampled_from([(), (2,), (2, 2), (2, 3)]))
    few = st.sampled_from([0.0, -0.0, 1.0])
    size = 12 * math.prod(shape)
    values = np.array(data.draw(st.lists(few, min_size=size, max_size=size))).reshape(6, 2, *shape)
    flat = data.draw(st.integers(0, 6))
    values[:flat] = 1.0
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, 5)))), 6]
    blocks = [(a, values[a:b]) for a, b in itertools.pairwise(cuts)]
    kept = Sampled.of(geometry, shape, blocks, np.float32)
    for a, b in itertools.pairwise(cuts):
        found = kept.at(geometry.block(a, b))
        assert found.dtype == np.float64
        assert found.tobytes() == values[a:b].tobytes()


def test_held_dofs_are_no_ones_else() -> None:
    A = femops.mass(V).constrained(V.boundary_dofs())
    F = femops.residual(reaction, V, k=1.0, m=1.0).constrained([0])
    S = femops.form(stokes, FLOW, mu=1.0, q=0.0, e=np.ones(1)).constrained([0])
    for operator in (A, F, S):
        with pytest.raises(ValueError, match="read-only"):
            operator.constrained_dofs[:] = 0


def test_shapes_must_not_change_from_element_to_element() -> None:
    def either(x: Array) -> Any:
        return [1.0, 2.0] if x.shape[1] > POINTS[1] + 1 else 1.0

    with pytest.raises(femops.errors.OperatorError, match="kappa depends on which points"):
        femops.diffusion(V, either)
