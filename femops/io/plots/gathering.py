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
    e_vec = np.zeros((part.mesh.num_elements, 0))
    if space is not None:
        both = space.doubled if has_complex(u) else space
        with check(comm):
            u = as_doubled(space, u) if has_complex(u) else space.check_vector(u, "u")
        found = both.restriction.gather(both.l_vec(u))
        e_vec = _rows(found).astype(np.float64)
    whole = gathered_mesh(part, comm)
    sent = [comm.exchange({0: np.ascontiguousarray(table)}) for table in (part.elements, e_vec)]
    if whole is None:
        return None
    numbers, e_vec = (np.concatenate([*table.values()]) for table in sent)
    order = np.argsort(numbers)
    if space is None:
        return whole, None
    target = L2(whole, space.order, ncomp=space.ncomp, family=space.family)
    vector = e_vec[order].reshape(-1)
    return target, vector.view(np.complex128) if len(vector) > target.size else vector


def _rows(tables: NDArray[Any]) -> NDArray[Any]:
    """Reshape tables (ne, ...) to one row per element, also for ne = 0."""
    return tables.reshape(len(tables), math.prod(tables.shape[1:]))
