"""CEED's bake-off problems, and their meshes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D, gauss, lobatto
from femops.errors import OperatorError
from femops.forms import diffusion, mass
from femops.operators import Operator
from femops.operators.levels.dispatch import CHOICES
from femops.parallel import Communicator, DistributedMesh, Serial, distribute
from femops.parallel import box as box_of_ranks
from femops.spaces.h1_l2 import H1
from femops_meshes import Mesh, box

Progress = Callable[[str], None]
"""Called with a line of text about the next step."""

FORMS = {"mass": mass, "diffusion": diffusion}


@final
@dataclass(frozen=True)
class Problem:
    """One of CEED's bake-off problems."""

    name: str
    form: str
    ncomp: int  # components of the field
    # True if the quadrature points are the p + 1 Gauss-Lobatto nodes, else p + 2 Gauss points
    collocated: bool = False

    def rule(self, order: int) -> Quadrature1D:
        """The quadrature rule for a polynomial degree."""
        return lobatto(order + 1) if self.collocated else gauss(order + 2)

    def operator(self, V: H1, level: str = "partial") -> Operator:
        """Operator of the problem on a space with ``ncomp`` components."""
        return FORMS[self.form](V, quadrature=self.rule(V.order), level=level)


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("bp1", "mass", 1),
        Problem("bp2", "mass", 3),
        Problem("bp3", "diffusion", 1),
        Problem("bp4", "diffusion", 3),
        Problem("bp5", "diffusion", 1, collocated=True),
        Problem("bp6", "diffusion", 3, collocated=True),
    )
}
"""CEED's BP1 to BP6: scalar and vector mass and diffusion, diffusion also collocated."""

MESHES = ("cartesian", "multilinear", "curved")

REPRODUCIBLE = "-reproducible"
"""Suffix for the name of a mesh on which results have the same bits with any lane width."""

FOOTPRINTS = {"ram": 1.8e6, "cache": 0.12e6}
"""Numbers of dofs whose data are larger than caches, and fit into caches."""


RTOL = 1e-9
"""Relative residual of measured solves."""

MOST_ORDER = 32
"""Highest order. Kernels unroll lines of points, and take long to compile at higher orders."""

MOST_DOFS = 1e12
"""Largest number of dofs, beyond the memory of any single process."""


def default_dofs(footprint: str, order: int) -> float:
    """Approximate number of dofs for a footprint.

    Out of cache it is an eighth at p = 1 and half at p = 2, where a mesh has more elements to set
    up and each dof moves several times the bytes.
    """
    part = {1: 1 / 8, 2: 1 / 2}.get(order, 1.0) if footprint == "ram" else 1.0
    return part * FOOTPRINTS[footprint]


def choose(
    what: str,
    given: Collection[str] | None,
    known: Iterable[str],
    *,
    error: type[Exception] = OperatorError,
    none: bool = False,
    where: str = "",
) -> None:
    """Raise if ``given`` has a name that is not in ``known``. None has no names."""
    if given is not None and not given and not none:
        raise error(f"nothing to measure: give at least one {what}")
    for name in given or ():
        if name not in known:
            raise error(f"{what} {name!r}{where}: choose one of {', '.join(known)}")


def check_asked(
    *,
    problems: Collection[str] | None = None,
    meshes: Collection[str] | None = None,
    footprints: Collection[str] | None = None,
    levels: Collection[str] | None = None,
    orders: Sequence[int] = (1,),
    dofs: Iterable[float] = (),
    rounds: int = 1,
) -> None:
    """Check the choice of cases to be measured."""
    choose("problem", problems, PROBLEMS)
    choose("mesh", meshes, MESHES)
    choose("footprint", footprints, FOOTPRINTS)
    choose("level", levels, CHOICES)
    if not orders or not 1 <= min(orders) <= max(orders) <= MOST_ORDER:
        raise OperatorError(
            f"orders are {list(orders)}: give at least one, all from 1 to {MOST_ORDER}"
        )
    for many in dofs:
        if not 1 <= many <= MOST_DOFS:
            raise OperatorError(f"{many:g} dofs: give a number from 1 to {MOST_DOFS:g}")
    if rounds < 1:
        raise OperatorError("nothing to measure: give at least one round")


def bend(x: NDArray[np.float64]) -> NDArray[Any]:
    """Map positions (3, n) of the unit cube smoothly, so that no element stays affine."""
    a, b, c = np.sin(np.pi * x)
    shift = 0.06 * np.stack([b * c * (1 + x[0]), a * c * (1 + x[1]), a * b * (1 + x[2])])
    return x + shift + 0.03 * np.stack([x[1] * x[2], x[0] * x[2], x[0] * x[1]])


def bent(x: float, y: float, z: float) -> tuple[float, ...]:
    """Image of one point under `bend`."""
    return tuple(float(c) for c in bend(np.array([x, y, z])))


def per_direction(order: int, nodes: float) -> int:
    """Elements in each direction of a cube with about ``nodes`` nodes."""
    return max(1, round((float(np.cbrt(nodes)) - 1.0) / order))


@lru_cache(maxsize=len(MESHES))  # problems of one order follow each other and share a mesh
def _mesh(kind: str, n: int) -> Mesh:
    mapping = None if kind == "cartesian" else bend
    return box((n, n, n), mapping=mapping, order=2 if kind == "curved" else 1)


def make_mesh(kind: str, order: int, nodes: float) -> Mesh:
    """Make a box of hexahedra on which a space of this order has about ``nodes`` nodes."""
    check_asked(meshes=(kind,))
    return _mesh(kind, per_direction(order, nodes))


def shared_mesh(kind: str, counts: tuple[int, int, int], comm: Communicator) -> DistributedMesh:
    """Make a box of a kind with ``counts`` elements; each rank makes its part. Collective."""
    mapping = None if kind == "cartesian" else bend
    return box_of_ranks(counts, mapping=mapping, order=2 if kind == "curved" else 1, comm=comm)


@lru_cache(maxsize=2 * len(MESHES))
def _space(kind: str, n: int, order: int, ncomp: int) -> H1:
    plain = kind.removesuffix(REPRODUCIBLE)
    mesh = _mesh(plain, n)
    return H1(
        mesh if kind == plain else distribute(mesh, Serial(), reproducible=True), order, ncomp
    )


def make_space(problem: Problem, kind: str, order: int, dofs: float) -> H1:
    """Make the space of a problem with about ``dofs`` dofs, all components together.

    See `make_mesh` for the kinds, to which `REPRODUCIBLE` may be appended.
    """
    check_asked(meshes=(kind.removesuffix(REPRODUCIBLE),))
    return _space(kind, per_direction(order, dofs / problem.ncomp), order, problem.ncomp)
