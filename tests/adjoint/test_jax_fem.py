"""Gradients beside those of JAX-FEM, on the same mesh with the same quadrature.

`python tests/adjoint/test_jax_fem.py LAW ORDER ELEMENTS RUNS` prints times and differences.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import femops

jax_fem = pytest.importorskip("jax_fem", reason="JAX-FEM is missing: pip install jax-fem")
pytest.importorskip("petsc4py", reason="petsc4py is missing, which JAX-FEM imports")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax_fem.basis import basix, get_elements  # noqa: E402
from jax_fem.generate_mesh import Mesh  # noqa: E402
from jax_fem.problem import Problem  # noqa: E402
from jax_fem.solver import ad_wrapper  # noqa: E402

TRACTION = np.array([0.05, 0.15, -0.1])
ELEMENT = {1: "HEX8", 2: "HEX27"}
CLAMPED, PULLED = 1, 2  # the ends x = 0 and x = 1
Solve = Callable[[], Any]  # returns the value, and a function: back(1.0)[0] is the gradient


def linear(E: Any, G: Any, xp: Any) -> Any:
    """Energy density of linear elasticity with Poisson's ratio 0.3, from E and the gradient."""
    strain = 0.5 * (G + G.T)
    return E * (0.3 / 1.04 * xp.trace(G) ** 2 + 0.5 / 1.3 * (strain * strain).sum())


def neo_hookean(E: Any, G: Any, xp: Any) -> Any:
    """Energy density of the neo-Hookean body of JAX-FEM's examples."""
    F = np.eye(3) + G
    J = femops.det(F) if xp is np else xp.linalg.det(F)
    return E * (0.5 / 2.6 * (J ** (-2 / 3) * (F * F).sum() - 3.0) + 0.5 / 1.2 * (J - 1.0) ** 2)


def bent(x: Any) -> Any:
    """Position of a point of the cube in the body."""
    return x[0], x[1] * (1 + 0.3 * x[0]), x[2] + 0.1 * x[0] ** 2


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
        """Compliance of the linear body, stored energy of the other."""
        fe = self.fes[0]
        if self.law is linear:
            work = u[fe.cells[self.boundary_inds_list[0][:, 0]]] @ TRACTION
            N, measure = self.selected_face_shape_vals[0], self.nanson_scale[0][:, 0]
            return jnp.einsum("fq,fqn,fn->", measure, N, work)
        G = jnp.einsum("eni,eqnj->eqij", u[fe.cells], fe.shape_grads)
        density = jax.vmap(jax.vmap(lambda G, E: self.law(E, G, jnp), (0, None)))(G, E)
        return jnp.sum(fe.JxW * density)


def body_of_jax_fem(V: Any, law: Any) -> Any:
    """The same mesh, space and Gauss rule, with the same numbering of nodes and elements."""
    family, cell, _, _, degree, order = get_elements(ELEMENT[V.order])
    places = basix.create_element(family, cell, degree).points[order]
    lexicographic = np.rint(places * degree).astype(int) @ (degree + 1) ** np.arange(3)
    mesh = Mesh(V.dof_coordinates(), V.restriction.indices[:, lexicographic], ELEMENT[V.order])
    held = [[lambda x: jnp.isclose(x[0], 0.0)] * 3, [0, 1, 2], [lambda x: 0.0] * 3]
    ends = [lambda x: jnp.isclose(x[0], 1.0)]
    rule = {"ele_type": mesh.ele_type, "gauss_order": 2 * degree, "additional_info": (law,)}
    return Body(mesh, vec=3, dim=3, dirichlet_bc_info=held, location_fns=ends, **rule)


def by_jax_fem(V: Any, law: Any, E: Any) -> Solve:
    """Solve with JAX-FEM, by Newton's method with elimination."""
    body, elimination = body_of_jax_fem(V, law), {"umfpack_solver": {}}
    solve = ad_wrapper(body, {**elimination, "tol": 1e-13, "rel_tol": 1e-12}, elimination)
    return lambda: jax.vjp(lambda E: body.goal(E, solve(E)[0]), jnp.array(E))


def by_femops(V: Any, law: Any, E: Any) -> Solve:
    """Solve with femops, by Newton's method with multigrid."""
    rule, field = V.order + 1, femops.GridFunction(femops.L2(V.mesh, order=0), E)
    b = femops.boundary_load(V, TRACTION, PULLED, quadrature=rule)
    goal = energy = femops.functional(lambda u, E: law(E, u.grad, np), V, E=field, quadrature=rule)
    if law is linear:
        goal = femops.functional(lambda u: u.value @ TRACTION, V, boundary=PULLED, quadrature=rule)
    F = energy.derivative.constrained(V.boundary_dofs(CLAMPED))

    def solve() -> tuple[Any, Any]:
        M = femops.multigrid(F.jacobian(V.zeros()))
        u, info = femops.newton(F, V.zeros(), b, rtol=1e-12, preconditioner=M)
        assert info.converged
        kept = {"preconditioner": M, "rtol": 1e-12}
        return goal(u), lambda w: [w * femops.gradient(goal, F, u, "E", **kept)["E"]]

    return solve


def differences(law: Any, order: int, elements: int, runs: int = 1) -> Any:
    """Relative differences of value and gradient. Prints the least times of some runs."""
    mesh = femops.box((elements,) * 3).mapped(bent, order=order)
    V, E = femops.H1(mesh, order, ncomp=3), 5 + 5 * np.random.default_rng(1).random(elements**3)
    found = []
    for solve in by_femops(V, law, E), by_jax_fem(V, law, E):
        marks = []
        for _ in range(runs):
            start, (value, back), middle = perf_counter(), solve(), perf_counter()
            slopes, end = np.asarray(back(1.0)[0]), perf_counter()
            marks.append((middle - start, end - middle))
        print(f"{V.size} dofs: solve and gradient {np.min(marks, axis=0).round(3)} s")
        found.append((float(value), slopes))
    return [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(*found, strict=True)]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("law", [linear, neo_hookean])
def test_value_and_gradient(law: Any, order: int) -> None:
    assert max(differences(law, order, 3)) < 1e-10


if __name__ == "__main__":
    jax_fem.logger.setLevel("WARNING")
    print(differences(globals()[sys.argv[1]], *map(int, sys.argv[2:])))
