"""Gradients beside those of JAX-FEM, on the same mesh with the same quadrature.

`python tests/adjoint/test_jax_fem.py LAW ORDER ELEMENTS SOLVER` prints times and differences.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import femops

jax_fem = pytest.importorskip("jax_fem", reason="JAX-FEM or petsc4py is missing")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax_fem.basis import basix, get_elements  # noqa: E402
from jax_fem.generate_mesh import Mesh  # noqa: E402
from jax_fem.problem import Problem  # noqa: E402
from jax_fem.solver import ad_wrapper  # noqa: E402

TRACTION = np.array([0.1, 0.3, -0.2])
ELEMENT = {1: "HEX8", 2: "HEX27"}
CLAMPED, PULLED = 1, 2  # the ends x = 0 and x = 1
Goal = Callable[[Any], float]


def linear(E: Any, G: Any, xp: Any) -> Any:
    """Energy density of linear elasticity with Poisson's ratio 0.3, from E and the gradient."""
    strain = 0.5 * (G + G.T)
    return E * (0.3 / 1.04 * xp.trace(G) ** 2 + 0.5 / 1.3 * (strain * strain).sum())


def neo_hookean(E: Any, G: Any, xp: Any) -> Any:
    """Energy density of the neo-Hookean body of JAX-FEM's examples."""
    F = np.eye(3) + G
    J = femops.det(F) if xp is np else xp.linalg.det(F)
    return E * (0.5 / 2.6 * (J ** (-2 / 3) * (F * F).sum() - 3.0) + 0.5 / 1.2 * (J - 1.0) ** 2)


class Body(Problem):  # type: ignore[misc]
    """A body of JAX-FEM that is pulled at one end."""

    def custom_init(self, law: Any) -> None:
        self.law = law

    def get_tensor_map(self) -> Any:
        return jax.grad(lambda G, E: self.law(E, G, jnp))

    def get_surface_maps(self) -> Any:
        return [lambda u, x: -TRACTION]

    def set_params(self, E: Any) -> None:
        self.internal_vars = [jnp.repeat(E[:, None], self.fes[0].num_quads, axis=1)]

    def goal(self, E: Any, u: Any) -> Any:
        """Compliance of the linear body, stored energy of another."""
        fe = self.fes[0]
        if self.law is linear:
            faces, N = self.boundary_inds_list[0], self.selected_face_shape_vals[0]
            at = jnp.einsum("fqn,fni->fqi", N, u[fe.cells[faces[:, 0]]])
            return jnp.sum(self.nanson_scale[0][:, 0] * (at @ TRACTION))
        G = jnp.einsum("eni,eqnj->eqij", u[fe.cells], fe.shape_grads)
        density = jax.vmap(jax.vmap(lambda G, E: self.law(E, G, jnp), (0, None)))(G, E)
        return jnp.sum(fe.JxW * density)


def body_of_jax_fem(V: Any, law: Any) -> Any:
    """The same mesh, space and Gauss rule, with the same numbers of nodes and elements."""
    family, cell, _, _, degree, order = get_elements(ELEMENT[V.order])
    places = basix.create_element(family, cell, degree).points[order]
    lexicographic = np.rint(places * degree).astype(int) @ (degree + 1) ** np.arange(3)
    mesh = Mesh(V.dof_coordinates(), V.restriction.indices[:, lexicographic], ELEMENT[V.order])
    held = [[lambda x: jnp.isclose(x[0], 0.0)] * 3, [0, 1, 2], [lambda x: 0.0] * 3]
    ends = [lambda x: jnp.isclose(x[0], 1.0)]
    rule = {"ele_type": mesh.ele_type, "gauss_order": 2 * degree, "additional_info": (law,)}
    return Body(mesh, vec=3, dim=3, dirichlet_bc_info=held, location_fns=ends, **rule)


def by_jax_fem(V: Any, law: Any, E: Any, solver: str = "umfpack_solver") -> Callable[[], Any]:
    """Value and gradient, and seconds of the solve and of the gradient, when called."""
    body, options = body_of_jax_fem(V, law), {solver: {}}
    solve = ad_wrapper(body, {**options, "tol": 1e-13, "rel_tol": 1e-12}, options)

    def run() -> Any:
        start = perf_counter()
        value, pull = jax.vjp(lambda E: body.goal(E, solve(E)[0]), jnp.array(E))
        middle = perf_counter()
        found = np.asarray(pull(1.0)[0])
        return float(value), found, middle - start, perf_counter() - middle

    return run


def by_femops(V: Any, law: Any, E: Any) -> Callable[[], Any]:
    """The same by femops."""
    rule, field = V.order + 1, femops.GridFunction(femops.L2(V.mesh, order=0), E)
    b = femops.boundary_load(V, TRACTION, PULLED, quadrature=rule)
    goal = energy = femops.functional(lambda u, E: law(E, u.grad, np), V, E=field, quadrature=rule)
    if law is linear:
        goal = femops.functional(lambda u: u.value @ TRACTION, V, boundary=PULLED, quadrature=rule)
    F = energy.derivative.constrained(V.boundary_dofs(CLAMPED))

    def run() -> Any:
        start = perf_counter()
        M = femops.multigrid(F.jacobian(V.zeros()))
        u, info = femops.newton(F, V.zeros(), b, rtol=1e-12, preconditioner=M)
        value, middle = goal(u), perf_counter()
        assert info.converged
        found = femops.gradient(goal, F, u, "E", preconditioner=M, rtol=1e-12)["E"]
        return value, found, middle - start, perf_counter() - middle

    return run


def problem(order: int, elements: int) -> tuple[Any, Any]:
    """A space on a bent box of hexahedra, and Young's modulus of each of them."""

    def bend(x: Any) -> Any:
        return x[0] + 0.1 * x[0] * (1 - x[0]) * x[1], x[1] * (1 + 0.3 * x[0]), x[2] + 0.1 * x[0] ** 2

    mesh = femops.box((elements,) * 3).mapped(bend, order=order)
    E = 5.0 + 5.0 * np.random.default_rng(1).random(mesh.num_elements)
    return femops.H1(mesh, order, ncomp=3), E


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("law", [linear, neo_hookean])
def test_value_and_gradient(law: Any, order: int) -> None:
    V, E = problem(order, 3)
    (value, found, *_), (expected, slopes, *_) = by_femops(V, law, E)(), by_jax_fem(V, law, E)()
    assert value == pytest.approx(expected, rel=1e-10)
    assert found == pytest.approx(slopes, rel=0.0, abs=1e-10 * abs(slopes).max())


def main(law: str, order: str, elements: str, solver: str) -> None:
    """Print differences, and least times of three runs after the first, which compiles."""
    jax_fem.logger.setLevel("WARNING")
    V, E = problem(int(order), int(elements))
    arguments = V, globals()[law], E
    mine, theirs = [
        sorted((run() for _ in range(4)), key=lambda run: run[2] + run[3])
        for run in (by_femops(*arguments), by_jax_fem(*arguments, solver))
    ]
    for name, runs in (("femops", mine), ("JAX-FEM", theirs)):
        solve, slope = (min(run[k] for run in runs) for k in (2, 3))
        print(f"{name}: {V.size} dofs, solve {solve:.3g} s, gradient {slope:.3g} s")
    (value, found, *_), (expected, slopes, *_) = mine[0], theirs[0]
    print(f"value {value / expected - 1:.1e}, ", end="")
    print(f"gradient {np.linalg.norm(found - slopes) / np.linalg.norm(slopes):.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
