"""NGSolve's solve of Poisson's equation: BDDC with static condensation."""

from __future__ import annotations

from importlib.metadata import version
from time import perf_counter
from typing import Any

from femops.bench.problems import RTOL, bent


def solve(order: int, n: int) -> dict[str, Any]:
    """Solve Poisson's equation on n**3 bent hexahedra; see `interface.peer_solve`."""
    import ngsolve as ng
    from ngsolve.krylovspace import CGSolver
    from ngsolve.meshes import MakeStructured3DMesh

    ng.SetNumThreads(1)
    mesh = MakeStructured3DMesh(hexes=True, nx=n, ny=n, nz=n, mapping=bent)
    V = ng.H1(mesh, order=order, dirichlet=".*")
    u, v = V.TnT()
    load = ng.LinearForm(1 * v * ng.dx).Assemble()
    begin = perf_counter()
    form = ng.BilinearForm(ng.grad(u) * ng.grad(v) * ng.dx, condense=True)
    precondition = ng.Preconditioner(form, "bddc")
    form.Assemble()
    ready = perf_counter()
    right, found = load.vec.CreateVector(), ng.GridFunction(V)
    right.data = load.vec + form.harmonic_extension_trans * load.vec
    inverse = CGSolver(form.mat, precondition.mat, maxiter=10_000, tol=RTOL)
    found.vec.data = inverse * right
    found.vec.data += form.harmonic_extension * found.vec
    found.vec.data += form.inner_solve * right
    end = perf_counter()
    return {
        "label": f"ngsolve {version('ngsolve')} BDDC",
        "dofs": V.ndof,
        "iterations": inverse.iterations,
        "seconds_setup": ready - begin,
        "seconds_solve": end - ready,
        "integral": float(ng.Integrate(found, mesh)),
    }
