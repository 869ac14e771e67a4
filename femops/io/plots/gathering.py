"""Gathering of distributed meshes and fields in one process that draws them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import SpaceError
from femops.parallel.comm import check
from femops.parallel.mesh import DistributedMesh
from femops.parallel.scattering import gathered_mesh
from femops.spaces.h1_l2 import L2, Space
from femops.spaces.vectors import as_doubled, has_complex

Floats = NDArray[np.float64]


def shared(what: Any) -> DistributedMesh | None:
    """Return the mesh, or the mesh of a space, if several ranks share it; else None."""
    mesh = what.distributed if isinstance(what, Space) else what
    return mesh if isinstance(mesh, DistributedMesh) and mesh.comm.size > 1 else None


def gathered(mesh: DistributedMesh, what: Any, u: Any) -> tuple[Any, Any] | None:
    """Gather the global mesh, or a space on it, and the field on rank 0. Collective.

    Other ranks get None. On rank 0 the field is in an L2 space with the same basis.
    """
    part, comm, space = mesh.part, mesh.comm, None
    if u is not None:
        if not isinstance(what, Space):
            raise SpaceError("a picture was asked of a field with a mesh: give the field's space")
        space = what
    tables = [np.zeros((one.mesh.num_elements, 0)) for one in part.parts]
    if space is not None:
        both = space.doubled if has_complex(u) else space
        with check(comm):
            u = as_doubled(space, u) if has_complex(u) else space.check_vector(u, "u")
        l_vec = both.l_vec(u)
        found = [one.restriction.gather(l_vec) for one in both.parts]
        tables = [_rows(each).astype(np.float64) for each in found]
    whole = gathered_mesh(part, comm)
    rows = []
    for one, table in zip(part.parts, tables, strict=True):
        sent = [comm.exchange({0: np.ascontiguousarray(each)}) for each in (one.elements, table)]
        if whole is not None:
            numbers, e_vec = (np.concatenate([*each.values()]) for each in sent)
            rows.append(e_vec[np.argsort(numbers)].reshape(-1))
    if whole is None:
        return None
    if space is None:
        return whole, None
    target = L2(whole, space.order, ncomp=space.ncomp, family=space.family)
    vector = np.concatenate(rows)
    return target, vector.view(np.complex128) if len(vector) > target.size else vector


def _rows(tables: NDArray[Any]) -> NDArray[Any]:
    """Reshape tables (ne, ...) to one row per element, also for ne = 0."""
    return tables.reshape(len(tables), math.prod(tables.shape[1:]))
