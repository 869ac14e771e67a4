"""Smooth fields with known derivatives, as exact solutions on any mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SpaceError
from femops.parallel import DistributedMesh
from femops.spaces.h1_l2 import H1, Space
from femops_meshes import Mesh, MixedMesh
from femops_meshes.coordinates.mapping import positions

Floats = NDArray[np.float64]
AnyMesh = Mesh | MixedMesh | DistributedMesh


@final
@dataclass(frozen=True)
class Waves:
    r"""Products of waves, :math:`\psi_s(x) = \prod_d \sin(k_d (x_d - a_d) + d + 1/2 + s)`.

    For any shift s, :math:`-\Delta \psi_s = |k|^2 \psi_s`. The same holds for all derivatives.
    """

    wave: Floats  # (dim,): wave numbers k, in 1 / length
    corner: Floats  # (dim,): lower corner a of the mesh

    @classmethod
    def on(cls, mesh: AnyMesh) -> Waves:
        """Make waves: one along the longest side of the mesh, or one per period.

        A periodic mesh gets one wave per period. Collective if ranks share the mesh.
        """
        lower, upper = bounding_box(mesh)
        longest = float((upper - lower).max())
        periods = _periods(mesh, 1e-8 * longest)
        return cls(2 * np.pi / np.where(np.isfinite(periods), periods, longest), lower)

    @property
    def square(self) -> float:
        """Square of the wave number, |k|^2."""
        return float(self.wave @ self.wave)

    def derivative(self, x: Floats, orders: tuple[int, ...], shift: float = 0.0) -> Floats:
        """Derivative of psi of the given orders along x, y, z: (dim, n) -> (n,)."""
        times = np.array(orders)[:, None]
        phases = self.wave[:, None] * (x - self.corner[:, None]) + shift
        # each derivative of a sine is the sine a quarter of a turn further
        phases += np.arange(len(orders))[:, None] + 0.5 + times * (np.pi / 2)
        return np.asarray(np.prod(self.wave[:, None] ** times * np.sin(phases), axis=0))


@final
@dataclass(frozen=True)
class Term:
    """Multiple of a derivative of a product of waves."""

    factor: float
    orders: tuple[int, ...]  # (dim,): order of the derivative in each direction
    shift: float = 0.0  # shift of the waves


@final
@dataclass(frozen=True)
class Field:
    """Field whose components are sums of terms. Methods take positions x (dim, n)."""

    waves: Waves
    components: tuple[tuple[Term, ...], ...]  # a single component means a scalar field

    @classmethod
    def scalar(cls, waves: Waves, shift: float = 0.0) -> Field:
        """Make a scalar field: a single product of waves."""
        return cls(waves, ((Term(1.0, (0,) * len(waves.wave), shift),),))

    @classmethod
    def vector(cls, waves: Waves, size: float) -> Field:
        """Make a vector field. Its components are products of waves with different shifts."""
        dim = len(waves.wave)
        return cls(waves, tuple((Term(size, (0,) * dim, 1.0 * i),) for i in range(dim)))

    @classmethod
    def solenoidal(cls, waves: Waves) -> Field:
        """Make a divergence-free curl: (psi_y, -psi_x) or (psi_y, chi_z - psi_x, -chi_y)."""
        size = 1.0 / float(waves.wave.max())
        if len(waves.wave) == 2:
            return cls(waves, ((Term(size, (0, 1)),), (Term(-size, (1, 0)),)))
        second = (Term(size, (0, 0, 1), 1.0), Term(-size, (1, 0, 0)))
        first, third = Term(size, (0, 1, 0)), Term(-size, (0, 1, 0), 1.0)
        return cls(waves, ((first,), second, (third,)))

    def exact(self, x: Floats) -> Floats:
        """Values of the field, (n,) or (ncomp, n)."""
        result = np.stack([self._sum(x, terms) for terms in self.components])
        return result[0] if len(result) == 1 else result

    def gradient(self, x: Floats) -> Floats:
        """Gradient of the field, (dim, n) or (ncomp, dim, n)."""
        dim = len(self.waves.wave)
        rows = [[self._sum(x, c, along) for along in range(dim)] for c in self.components]
        return np.array(rows[0] if len(rows) == 1 else rows)

    def _sum(self, x: Floats, terms: tuple[Term, ...], along: int | None = None) -> Floats:
        total = np.zeros(x.shape[1])
        for term in terms:
            orders = tuple(n + (d == along) for d, n in enumerate(term.orders))
            total += term.factor * self.waves.derivative(x, orders, term.shift)
        return total

    def minus_laplacian(self, x: Floats) -> Floats:
        """Minus the Laplacian of the field, (n,) or (ncomp, n)."""
        return np.asarray(self.waves.square * self.exact(x))

    def check_periodic(self, space: Space) -> None:
        """Raise if the waves differ between the positions of a node. Collective."""
        if space.distributed is None and space.mesh.continuous:
            return
        wave = Field.scalar(self.waves).exact
        worst = 0.0
        for x, shared in _at_elements(space, wave(space.dof_coordinates().T)):
            values = wave(np.moveaxis(x, -1, 0).reshape(space.dim, -1)).reshape(x.shape[:2])
            worst = max(worst, float(np.abs(shared[..., 0] - values).max(initial=0.0)))
        if space.comm.max(worst) > 1e-8:
            raise SpaceError(
                "this mesh is periodic, but its periods do not lie along the axes: no exact "
                "solution is known here, so its error cannot be reported; take another mesh"
            )


def bounding_box(mesh: AnyMesh) -> tuple[Floats, Floats]:
    """Smallest and largest coordinates (dim,) of all nodes of the global mesh. Collective."""
    if not isinstance(mesh, DistributedMesh):
        return mesh.bounding_box()
    lower, upper = mesh.mesh.bounding_box()
    return -mesh.comm.max(-lower), mesh.comm.max(upper)


def _periods(mesh: AnyMesh, least: float) -> Floats:
    """Smallest distance (dim,) above `least` between positions of a node; inf if there is none."""
    periods = np.full(mesh.dim, np.inf)
    # no file has a mesh of several shapes with glued sides
    if not isinstance(mesh, DistributedMesh) and (isinstance(mesh, MixedMesh) or mesh.continuous):
        return periods
    space = H1(mesh, (mesh.mesh if isinstance(mesh, DistributedMesh) else mesh).order)
    for d, along in enumerate(space.dof_coordinates().T.copy()):
        for x, values in _at_elements(space, along):
            jumps = np.abs(values[..., 0] - x[..., d])
            periods[d] = jumps[jumps > least].min(initial=periods[d])
    return -space.comm.max(-periods)


def _at_elements(space: Space, values: Floats) -> list[tuple[Floats, Floats]]:
    """Nodes (ne, n, dim) of each part's elements, and values (ne, n, ncomp) there. Collective.

    The ``values`` (ndofs,) are those of owned dofs.
    """
    local = np.asarray(space.l_vec(np.repeat(values, space.ncomp))).reshape(-1, space.ncomp)
    return [
        (
            positions(part.mesh.coordinates, part.element.nodes),
            part.restriction.entries(local),
        )
        for part in space.parts
    ]
