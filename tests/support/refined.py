"""Locally refined meshes, and the dense reference of operators on them: P^T A P.

P leads from the dofs of a space to the nodal values of its elements. It is the restriction, which
the tests compare with the interpolation of polynomials. A is the operator on the space whose
elements share nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.linalg import block_diag

import femops
from femops.parallel import Communicator, DistributedMesh
from femops_meshes import Partition, part_of, partition
from support.cases.kernels import bend


def tree(name: str) -> Any:
    """A mesh with elements of three sizes, but for 3-D boxes, which have two."""
    if name == "cubes":
        return femops.box((2, 2, 2), order=2, mapping=bend).refined([0])
    if name == "random cubes":
        return random_tree(femops.box((2, 2, 2)), 0.1)
    if name == "disc":
        return femops.read_mesh(femops.sample("disc.mesh")).refined([0, 2]).refined([1, 5])
    if name == "periodic":
        return femops.box((3, 3), periodic=(True, True)).refined([0, 4]).refined([2, 7])
    if name == "line":
        return femops.box((4,)).refined([1]).refined([2])
    if name == "bent squares":
        return random_tree(femops.box((3, 3), order=2, mapping=bend), 0.25)
    assert name == "squares"
    return femops.box((3, 3)).refined([0, 4]).refined([2, 7])


REFINED: dict[int, Callable[[], Any]] = {
    2: lambda: femops.disc(1).refined(lambda x: x[0] > 0.2),
    3: lambda: femops.ball(1).refined(lambda x: x[0] > 0.2),
}
"""By dimension, curved meshes with elements of two sizes that see each other turned."""


def random_tree(mesh: Any, fraction: float, seed: int = 5) -> Any:
    """Mesh of which random elements are halved, twice."""
    rng = np.random.default_rng(seed)
    for _ in range(2):
        mesh = mesh.refined(rng.random(mesh.num_elements) < fraction)
    return mesh


def broken(V: Any) -> Any:
    """The space of the same functions on each element, without continuity."""
    return femops.L2(V.mesh, V.order, V.ncomp, family=V.family)


def prolongation(*spaces: Any) -> Any:
    """Matrix from the dofs of spaces to those of their broken spaces."""
    each = []
    for V in spaces:
        columns = [V.restriction.gather(one).reshape(-1) for one in np.eye(V.ndofs)]
        each.append(np.kron(np.stack(columns, axis=1), np.eye(V.ncomp)))
    return block_diag(*each)


def reference(make: Callable[[Any], Any], V: Any) -> Any:
    """Dense matrix of the operator that a function makes of a space."""
    P = prolongation(V)
    return P.T @ (make(broken(V)).assemble() @ P)


def errors(A: Any, matrix: Any, vectors: int = 3) -> dict[str, float]:
    """Largest errors of an operator's products, matrix and diagonal, relative to the matrix."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(matrix.shape[1]), rng.standard_normal(matrix.shape[0])
    X = rng.standard_normal((matrix.shape[1], vectors))
    rows, most = max(abs(matrix).sum(axis=k).max() for k in (0, 1)), abs(matrix).max()
    found = {
        "product": abs(A @ x - matrix @ x).max() / rows,
        "transpose": abs(A.T @ y - matrix.T @ y).max() / rows,
        "many": abs(A @ X - matrix @ X).max() / rows,
        "matrix": abs(A.assemble().toarray() - matrix).max() / most,
    }
    if matrix.shape[0] == matrix.shape[1]:
        found["diagonal"] = abs(A.diagonal() - matrix.diagonal()).max() / most
    return found


def transport(u: Any, x: Any) -> Any:
    """Not symmetric, with all entries."""
    return {"grad": u.grad * (1 + x[0]), "value": u * x[0] + u.grad[0]}


def stretching(u: Any, x: Any) -> Any:
    """Of several components."""
    return {"grad": u.grad * (1 + x[0]) + u.grad.T}


def through(u: Any, x: Any, n: Any) -> Any:
    """Over the boundary, with derivatives."""
    return {"value": u * (1 + x[0]) + u.grad @ n, "grad": u * n}


def penalised(u: Any, n: Any) -> Any:
    return {"jump": 3 * u.jump - 0.5 * u.mean.grad @ n, "mean": {"grad": -u.jump * n}}


def slopes(u: Any, n: Any) -> Any:
    return {"jump": {"grad": (u.jump.grad @ n) * n}}


def mixed(v: Any, p: Any) -> Any:
    """Of two fields."""
    return {"v": {"grad": v.grad, "value": p.grad}, "p": {"value": v.div + p, "grad": p.grad}}


def shared(mesh: Any, comm: Communicator) -> Iterator[DistributedMesh]:
    """The mesh shared out by the curve, and by chance with a rank that has no elements."""
    owner = np.random.default_rng(1).integers(comm.size, size=mesh.num_elements)
    owner[owner == 1] = 0
    for cut in (partition(mesh, comm.size), Partition.of(mesh, owner, comm.size)):
        yield DistributedMesh.of(comm, part_of(mesh, cut, comm.rank))
