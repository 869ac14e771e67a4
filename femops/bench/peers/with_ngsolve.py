"""NGSolve's operators, and its solve of Poisson's equation: BDDC with static condensation."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Any

from femops.bench.peers.interface import PeerOperator, first_function, second_function, solved
from femops.bench.problems import RTOL, Problem, bent
from femops.bench.timing import call_seconds, stopwatch
from femops.spaces.h1_l2 import H1


def operator(problem: Problem, kind: str, space: H1) -> PeerOperator:
    """Mass or diffusion in NGSolve's hierarchical basis.

    The operator is the faster one of the assembled matrix and of ``nonassemble=True``, which
    computes element by element without a matrix.
    """
    import ngsolve as ng

    ng.SetNumThreads(1)
    n = round(space.mesh.num_elements ** (1.0 / space.dim))
    mesh = _mesh(n, bend=kind != "cartesian")
    V = ng.H1(mesh, order=space.order)
    fields = [ng.GridFunction(V) for _ in range(2)]
    for field, function in zip(fields, (first_function, second_function), strict=True):
        field.Set(function((ng.x, ng.y, ng.z), space.order))
    vectors = fields[0].vec, fields[0].vec.CreateVector()
    x, y = (vector.FV().NumPy() for vector in vectors)
    u, v = V.TnT()
    degree = 2 * problem.rule(space.order).q1d - 1
    dx = ng.dx(intrules={ng.HEX: ng.IntegrationRule(ng.HEX, degree)})
    integral = (u * v if problem.form == "mass" else ng.grad(u) * ng.grad(v)) * dx
    forms = {
        "assembled matrix": ng.BilinearForm(integral).Assemble(),
        "nonassemble": ng.BilinearForm(integral, nonassemble=True).Assemble(),
    }
    seconds = {}
    for name, form in forms.items():  # of the second product
        product = partial(form.mat.Mult, *vectors)
        product()
        seconds[name] = call_seconds(product)
    best = min(forms, key=seconds.__getitem__)

    def apply() -> Any:
        forms[best].mat.Mult(*vectors)
        return y

    label = f"ngsolve {version('ngsolve')} {best}"
    second = fields[1].vec.FV().NumPy()
    level = "full" if best == "assembled matrix" else "matrix-free"
    return PeerOperator(label, apply, x, second, level, (V, fields, mesh))


def _mesh(n: int, *, bend: bool) -> Any:
    """Make n**3 hexahedra in the unit cube, or bend them as femops' benchmark does."""
    from ngsolve.meshes import MakeStructured3DMesh

    mapping = bent if bend else None
    return MakeStructured3DMesh(hexes=True, nx=n, ny=n, nz=n, mapping=mapping)


def solve(order: int, n: int) -> dict[str, Any]:
    """Solve Poisson's equation on n**3 bent hexahedra; see `interface.peer_solve`."""
    import ngsolve as ng
    from ngsolve.krylovspace import CGSolver

    ng.SetNumThreads(1)
    mesh = _mesh(n, bend=True)
    V = ng.H1(mesh, order=order, dirichlet=".*")
    u, v = V.TnT()
    load = ng.LinearForm(1 * v * ng.dx).Assemble()
    lap = stopwatch()
    form = ng.BilinearForm(ng.grad(u) * ng.grad(v) * ng.dx, condense=True)
    precondition = ng.Preconditioner(form, "bddc")
    form.Assemble()
    setup = lap()
    right, found = load.vec.CreateVector(), ng.GridFunction(V)
    right.data = load.vec + form.harmonic_extension_trans * load.vec
    inverse = CGSolver(form.mat, precondition.mat, maxiter=10_000, tol=RTOL)
    found.vec.data = inverse * right
    found.vec.data += form.harmonic_extension * found.vec
    found.vec.data += form.inner_solve * right
    seconds = setup, lap()
    label, integral = f"ngsolve {version('ngsolve')} BDDC", float(ng.Integrate(found, mesh))
    return solved(label, V.ndof, inverse.iterations, *seconds, integral)
