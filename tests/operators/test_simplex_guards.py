"""What does not take triangles and tetrahedra yet refuses them by name at its door."""

import numpy as np
import pytest

import femops
import femops_meshes
from femops.errors import HydroError, OperatorError, SolverError, SpaceError
from femops.hydro.remap import Advection, advection_problem
from femops_meshes import MeshArgumentError
from support.simplex_meshes import SIMPLEX_MESHES


class Case:
    """Spaces and an equation on a mesh."""

    def __init__(self, mesh, folder):
        self.mesh, self.folder = mesh, folder
        self.V = femops.H1(mesh, 2)
        self.u = self.V.zeros()
        self.A = femops.diffusion(self.V) + femops.mass(self.V)
        self.equation = self.A, lambda V: femops.load(V, 1.0)
        self.J = femops.functional(lambda u: u**2, self.V)


def at_points(case):
    k = np.ones((case.mesh.num_elements, case.V.quadrature().count(case.mesh.dim)))
    A = femops.form(lambda u, k: {"grad": k * u.grad}, case.V, k=k)
    return femops.gradient(case.J, A.constrained(case.V.boundary_dofs()), case.u, "k")


def looped(case):
    def problem(mesh):
        V = femops.H1(mesh, 2)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        return A, lambda V: femops.load(V, 1.0)

    return [*femops.adapt.loop(problem, case.mesh, 1e-3)]


REFUSED = {
    "gas dynamics": (
        lambda c: femops.hydro.Lagrangian(femops.hydro.problem("sedov"), c.mesh),
        HydroError,
    ),
    "the remap": (lambda c: Advection(advection_problem(0), c.mesh, 2, 1.0, 0.1), HydroError),
    "a history": (lambda c: femops.History(c.V), OperatorError),
    "recovered": (lambda c: femops.adapt.recovered(c.A, c.u), OperatorError),
    "residual": (lambda c: femops.adapt.residual(c.equation, c.u), OperatorError),
    "goal": (lambda c: femops.adapt.goal(c.equation, c.u, c.J), OperatorError),
    "loop": (looped, OperatorError),
    "change": (lambda c: femops.adapt.change(c.mesh, [0]), MeshArgumentError),
    "transfer": (
        lambda c: femops.adapt.transfer(c.u, c.V, femops.H1(c.mesh.refine(), 2)),
        OperatorError,
    ),
    "refined": (lambda c: c.mesh.refined([0]), MeshArgumentError),
    "coarsened": (lambda c: c.mesh.coarsened([0]), MeshArgumentError),
    "scrambled": (lambda c: femops_meshes.scrambled(c.mesh, 0), MeshArgumentError),
    "low order": (lambda c: femops.low_order(c.A), SolverError),
    "lines": (lambda c: femops.multigrid(c.A, relaxation="lines"), SolverError),
    "patches": (lambda c: femops.multigrid(c.A, relaxation="patches"), SolverError),
    "elements": (lambda c: femops.multigrid(c.A, relaxation="elements"), SolverError),
    "values at points": (at_points, OperatorError),
    "MFEM's numbering": (lambda c: c.V.file_dofs(), MeshArgumentError),
    "MFEM's fields": (
        lambda c: femops.save(c.folder / "u.gf", c.V, u=c.u),
        MeshArgumentError,
    ),
    "nodes in a direction": (lambda c: c.V.p1d, SpaceError),
    "1-D functions": (lambda c: c.V.basis, SpaceError),
    "a grid of points": (
        lambda c: femops.mass(c.V, quadrature=femops.basis.gauss(4)),
        femops.errors.BasisError,
    ),
    "hermite": (lambda c: femops.L2(c.mesh, 2, family="hermite"), SpaceError),
}


@pytest.fixture(scope="module", params=["triangles", "curved triangles", "tetrahedra"])
def case(request, tmp_path_factory):
    return Case(SIMPLEX_MESHES[request.param](), tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_by_name(case, what):
    call, error = REFUSED[what]
    with pytest.raises(error, match=case.mesh.cell.plural) as found:
        call(case)
    assert type(found.value) is error


@pytest.mark.parametrize("name", ["curved triangles", "tetrahedra"])
def test_classes_and_blocks(name):
    """What takes them: classes of elements, and inverses of blocks."""
    mesh = SIMPLEX_MESHES[name]()
    kinds = femops.geometry.ElementClass
    due = kinds.AFFINE if mesh.order == 1 else kinds.CURVED
    assert (femops.geometry.classify(mesh) == due).all()
    assert (femops.geometry.classify(mesh.curved(4)) == due).all()
    L = femops.L2(mesh, 2)
    A = femops.mass(L)
    b = np.random.default_rng(0).standard_normal(L.size)
    np.testing.assert_allclose(A @ (femops.block_jacobi(A) @ b), b, atol=1e-11)
