"""MFEM's operators and solves by partial assembly, through its Python package."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.bench.peers.interface import PeerOperator, first_function, second_function, solved
from femops.bench.problems import RTOL, Problem, bent
from femops.bench.timing import stopwatch
from femops.spaces.h1_l2 import H1


def operator(problem: Problem, kind: str, space: H1) -> PeerOperator:
    """Mass or diffusion by partial assembly, dofs in MFEM's order."""
    import mfem.ser as mfem

    n = round(space.mesh.num_elements ** (1.0 / space.dim))
    mesh = _mesh(mfem, n, bend=kind != "cartesian")
    collection = mfem.H1_FECollection(space.order, space.dim)
    dofs = mfem.FiniteElementSpace(mesh, collection)
    mass = problem.form == "mass"
    one = mfem.ConstantCoefficient(1.0)
    integrator = (mfem.MassIntegrator if mass else mfem.DiffusionIntegrator)(one)
    degree = 2 * problem.rule(space.order).q1d - 1
    integrator.SetIntRule(mfem.IntRules.Get(mfem.Geometry.CUBE, degree))
    form = mfem.BilinearForm(dofs)
    form.SetAssemblyLevel(mfem.AssemblyLevel_PARTIAL)
    form.AddDomainIntegrator(integrator)
    form.Assemble()
    vectors = [mfem.Vector(dofs.GetTrueVSize()) for _ in range(2)]
    x, y = (vector.GetDataArray() for vector in vectors)
    positions = _positions(mesh, space)
    x[:] = first_function(positions, space.order)

    def apply() -> Any:
        form.Mult(*vectors)
        return y

    label = f"mfem {version('mfem')} partial assembly (PyPI build, no AVX)"
    alive = mesh, collection, dofs, one, integrator
    return PeerOperator(label, apply, x, second_function(positions, space.order), alive=alive)


def _mesh(mfem: Any, n: int, *, bend: bool) -> Any:
    """Make n**3 hexahedra in the unit cube, or bend them as femops' benchmark does."""
    mesh = mfem.Mesh.MakeCartesian3D(n, n, n, mfem.Element.HEXAHEDRON, 1.0, 1.0, 1.0)
    for k in range(mesh.GetNV() if bend else 0):
        vertex = mesh.GetVertexArray(k)
        vertex[:] = bent(*vertex.tolist())
    return mesh


def _positions(mesh: Any, space: H1) -> NDArray[np.float64]:
    """Positions (3, ndofs) of the dofs: nodes of a copy of the mesh with the space's order."""
    copy = type(mesh)(mesh)
    copy.SetCurvature(space.order, False, space.dim, 0)  # all x, then all y, then all z
    return np.array(copy.GetNodes().GetDataArray()).reshape(space.dim, -1)


def solve(order: int, n: int) -> dict[str, Any]:
    """Solve Poisson's equation on n**3 bent hexahedra; see `interface.peer_solve`.

    MFEM's serial package has two preconditioners for partial assembly: the diagonal, and
    Gauss-Seidel of the low-order matrix. The result is that of the faster one.
    """
    import mfem.ser as mfem

    mesh = _mesh(mfem, n, bend=True)
    collection = mfem.H1_FECollection(order, 3)
    space, one = mfem.FiniteElementSpace(mesh, collection), mfem.ConstantCoefficient(1.0)
    ends = mfem.intArray()
    space.GetEssentialTrueDofs(mfem.intArray([1] * mesh.bdr_attributes.Max()), ends)
    load = mfem.LinearForm(space)
    load.AddDomainIntegrator(mfem.DomainLFIntegrator(one))
    load.Assemble()
    solves = [_solved(mfem, space, one, load, ends, kind) for kind in ("jacobi", "low order")]
    return min(solves, key=lambda row: float(row["seconds_setup"] + row["seconds_solve"]))


def _solved(mfem: Any, space: Any, one: Any, load: Any, ends: Any, kind: str) -> dict[str, Any]:
    x, right, solution = mfem.GridFunction(space), mfem.Vector(), mfem.Vector()
    x.Assign(0.0)
    lap = stopwatch()
    form = mfem.BilinearForm(space)
    form.SetAssemblyLevel(mfem.AssemblyLevel_PARTIAL)
    form.AddDomainIntegrator(mfem.DiffusionIntegrator(one))
    form.Assemble()
    operator = mfem.OperatorHandle()
    form.FormLinearSystem(ends, x, load, operator, solution, right)
    make = mfem.OperatorJacobiSmoother if kind == "jacobi" else mfem.LORGSSmoother
    precondition = make(form, ends)
    setup = lap()
    method = mfem.CGSolver()
    method.SetRelTol(RTOL)
    method.SetMaxIter(10_000)
    method.SetPrintLevel(-1)
    method.SetOperator(operator.Ptr())
    method.SetPreconditioner(precondition)
    method.Mult(right, solution)
    seconds = setup, lap()
    form.RecoverFEMSolution(solution, load, x)
    label = f"mfem {version('mfem')} partial assembly, {kind}"
    return solved(label, space.GetTrueVSize(), method.GetNumIterations(), *seconds, float(load(x)))
