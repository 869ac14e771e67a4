"""scikit-fem's operators and solves: assembled matrices, and conjugate gradients with PyAMG."""

from __future__ import annotations

from importlib.metadata import version
from itertools import count
from typing import Any

import numpy as np

from femops.bench.peers.interface import PeerOperator, first_function, second_function, solved
from femops.bench.problems import RTOL, Problem, bend
from femops.bench.timing import stopwatch
from femops.spaces.h1_l2 import H1


def operator(problem: Problem, kind: str, space: H1) -> PeerOperator:
    """Mass or diffusion as SciPy's compressed rows, in scikit-fem's order of dofs."""
    n = round(space.mesh.num_elements ** (1.0 / space.dim))
    degree = 2 * problem.rule(space.order).q1d - 1
    basis = _basis(n, space.order, degree, bent=kind != "cartesian")
    matrix = _matrix(problem.form, basis)
    x, v = (f(basis.doflocs, space.order) for f in (first_function, second_function))
    label = f"scikit-fem {version('scikit-fem')} assembled matrix"
    return PeerOperator(label, lambda: matrix @ x, x, v, "full")


def _basis(n: int, order: int, degree: int, *, bent: bool) -> Any:
    """Make a basis of order 1 or 2 on n**3 hexahedra in the unit cube, or bent as in femops."""
    import skfem

    mesh = skfem.MeshHex.init_tensor(*[np.linspace(0.0, 1.0, n + 1)] * 3)
    if bent:
        mesh = skfem.MeshHex(bend(mesh.p), mesh.t)
    element = skfem.ElementHex1() if order == 1 else skfem.ElementHex2()
    return skfem.Basis(mesh, element, intorder=degree)


def _matrix(form: str, basis: Any) -> Any:
    from skfem.models import laplace, mass

    return (mass if form == "mass" else laplace).assemble(basis)


def solve(order: int, n: int) -> dict[str, Any]:
    """Solve Poisson's equation on n**3 bent hexahedra; see `interface.peer_solve`."""
    import skfem
    from pyamg import smoothed_aggregation_solver
    from scipy.sparse.linalg import cg
    from skfem.models import unit_load

    basis = _basis(n, order, 2 * order + 3, bent=True)
    load = unit_load.assemble(basis)
    lap = stopwatch()
    A = _matrix("diffusion", basis)
    kept, b, x, inside = skfem.condense(A, load, D=basis.get_dofs())
    precondition = smoothed_aggregation_solver(kept.tocsr()).aspreconditioner()
    setup, steps = lap(), count()
    x[inside], _ = cg(kept, b, rtol=RTOL, M=precondition, callback=lambda _: next(steps))
    seconds = setup, lap()
    label = f"scikit-fem {version('scikit-fem')} PyAMG"
    return solved(label, int(basis.N), next(steps), *seconds, float(load @ x))
