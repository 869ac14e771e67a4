"""Operators and solves of NVIDIA Warp's ``warp.fem`` on the CPU: assembled matrices.

The integrals are compiled by Warp at the first run, which takes about a minute. Warp keeps them on
disk.
"""

from importlib.metadata import version
from typing import Any, final

import numpy as np
import warp as wp
import warp.fem as fem
from warp.optim.linear import cg, preconditioner
from warp.sparse import bsr_mv

from femops.bench.peers.interface import PeerOperator, first_function, second_function, solved
from femops.bench.problems import RTOL, Problem, bend
from femops.bench.timing import stopwatch
from femops.spaces.h1_l2 import H1

# Corners of a hexahedron: around the bottom, then around the top.
_CORNERS = ((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1))


@fem.integrand  # type: ignore[untyped-decorator]
def mass(s: fem.Sample, u: fem.Field, v: fem.Field):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Return u v. Warp compiles this function."""
    return u(s) * v(s)


@fem.integrand  # type: ignore[untyped-decorator]
def diffusion(s: fem.Sample, u: fem.Field, v: fem.Field):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Return grad u . grad v. Warp compiles this function."""
    return wp.dot(fem.grad(u, s), fem.grad(v, s))


@fem.integrand  # type: ignore[untyped-decorator]
def load(s: fem.Sample, v: fem.Field):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Return v, for a load of one. Warp compiles this function."""
    return v(s)


def operator(problem: Problem, kind: str, space: H1) -> PeerOperator:
    """Mass or diffusion as a matrix of Warp, in Warp's order of dofs."""
    n = round(space.mesh.num_elements ** (1.0 / space.dim))
    q1d = problem.rule(space.order).q1d
    parts = _Parts(n, space.order, q1d, bent=kind != "cartesian")
    matrix = parts.integrated(mass if problem.form == "mass" else diffusion, "u", "v")
    positions = parts.space.node_positions().numpy().T
    x, v = (f(positions, space.order) for f in (first_function, second_function))
    vectors = wp.array(x, dtype=wp.float64), wp.zeros(len(x), dtype=wp.float64)
    x, y = (vector.numpy() for vector in vectors)  # views

    def apply() -> Any:
        bsr_mv(matrix, *vectors, alpha=1.0, beta=0.0)
        return y

    label = f"warp {version('warp-lang')} CPU, assembled matrix"
    return PeerOperator(label, apply, x, v, "full", (parts,))


@final
class _Parts:
    """Space of Warp on n**3 hexahedra in the unit cube, or bent as in femops, with a rule."""

    def __init__(self, n: int, order: int, q1d: int, *, bent: bool) -> None:
        grid = np.linspace(0.0, 1.0, n + 1)
        z, y, x = np.meshgrid(grid, grid, grid, indexing="ij")
        positions = np.stack([x, y, z]).reshape(3, -1)
        first = np.arange((n + 1) ** 3).reshape((n + 1,) * 3)[:-1, :-1, :-1].reshape(-1)
        offsets = [(c * (n + 1) + b) * (n + 1) + a for a, b, c in _CORNERS]
        elements = (first[:, None] + np.array(offsets)).astype(np.int32)
        placed = np.ascontiguousarray((bend(positions) if bent else positions).T)
        mesh = fem.Hexmesh(wp.array(elements, dtype=int), wp.array(placed, dtype=wp.vec3d))
        self.mesh = mesh
        self.space = fem.make_polynomial_space(mesh, degree=order, dtype=wp.float64)
        family = fem.Polynomial.GAUSS_LEGENDRE
        self.rule = fem.RegularQuadrature(fem.Cells(mesh), 2 * q1d - 1, family)

    def fields(self, domain: Any) -> dict[str, Any]:
        """Trial and test functions on a domain."""
        made = {"u": fem.make_trial, "v": fem.make_test}
        return {name: make(self.space, domain=domain) for name, make in made.items()}

    def integrated(self, integrand: Any, *names: str) -> Any:
        """Assemble the vector or the matrix of an integrand of the fields with these names."""
        fields = self.fields(self.rule.domain)
        given = {"quadrature": self.rule, "fields": {name: fields[name] for name in names}}
        return fem.integrate(integrand, **given, output_dtype=wp.float64)

    def boundary(self) -> Any:
        """Return the projector on the dofs of the boundary."""
        fields = self.fields(fem.BoundarySides(self.mesh))
        projector = fem.integrate(mass, fields=fields, assembly="nodal")
        fem.normalize_dirichlet_projector(projector)
        return projector


def solve(order: int, n: int) -> dict[str, Any]:
    """Solve Poisson's equation on n**3 bent hexahedra; see `interface.peer_solve`.

    The preconditioner is the diagonal. An earlier solve on eight elements compiles all kernels.
    """
    _solved(order, 2)
    return _solved(order, n)


def _solved(order: int, n: int) -> dict[str, Any]:
    parts = _Parts(n, order, order + 2, bent=True)
    right, projector = parts.integrated(load, "v"), parts.boundary()
    given = right.numpy().copy()
    x = wp.zeros_like(right)
    lap = stopwatch()
    matrix = parts.integrated(diffusion, "u", "v")
    fem.project_linear_system(matrix, right, projector, wp.zeros_like(right))
    precondition = preconditioner(matrix, "diag")
    setup = lap()
    iterations, *_ = cg(matrix, right, x, tol=RTOL, maxiter=10_000, M=precondition, check_every=1)
    seconds = setup, lap()
    label = f"warp {version('warp-lang')} CPU, Jacobi"
    return solved(label, len(given), int(iterations), *seconds, float(given @ x.numpy()))
