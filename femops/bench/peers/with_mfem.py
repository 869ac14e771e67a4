"""MFEM's operators by partial assembly, of its Python package."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.peers.interface import PeerOperator, wave
from femops.bench.problems import Problem
from femops.spaces.h1_l2 import H1


@final
class MfemOperator(PeerOperator):
    """Mass or diffusion by partial assembly, dofs in MFEM's order."""

    def __init__(self, problem: Problem, space: H1) -> None:
        import mfem.ser as mfem

        self.label = f"mfem {version('mfem')} partial assembly (PyPI build, no AVX)"
        n = round(space.mesh.num_elements ** (1.0 / space.dim))
        mesh = mfem.Mesh.MakeCartesian3D(n, n, n, mfem.Element.HEXAHEDRON, 1.0, 1.0, 1.0)
        collection = mfem.H1_FECollection(space.order, space.dim)
        dofs = mfem.FiniteElementSpace(mesh, collection)
        mass = problem.form == "mass"
        kind = mfem.MassIntegrator if mass else mfem.DiffusionIntegrator
        one = mfem.ConstantCoefficient(1.0)
        integrator = kind(one)
        degree = 2 * problem.rule(space.order).q1d - 1
        integrator.SetIntRule(mfem.IntRules.Get(mfem.Geometry.CUBE, degree))
        form = mfem.BilinearForm(dofs)
        form.SetAssemblyLevel(mfem.AssemblyLevel_PARTIAL)
        form.AddDomainIntegrator(integrator)
        form.Assemble()
        size = dofs.GetTrueVSize()
        vectors = mfem.Vector(size), mfem.Vector(size)
        self.x, self.y = (vector.GetDataArray() for vector in vectors)
        self.x[:] = wave(_positions(mesh, space))
        self._form, self._vectors = form, vectors
        self._alive = mesh, collection, dofs, one, integrator

    def apply(self) -> None:
        """Set y = A x."""
        self._form.Mult(*self._vectors)


def _positions(mesh: Any, space: H1) -> NDArray[np.float64]:
    """Where the dofs are, (3, ndofs): nodes of a copy that is curved to the space's order."""
    copy = type(mesh)(mesh)
    copy.SetCurvature(space.order, False, space.dim, 0)  # all x, then all y, then all z
    return np.array(copy.GetNodes().GetDataArray()).reshape(space.dim, -1)
