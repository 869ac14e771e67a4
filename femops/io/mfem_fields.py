"""Fields as files of MFEM's grid functions (.gf), for GLVis and programs of MFEM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from femops.errors import FileError
from femops.io.atomic import checked_path, fill, replacing
from femops.spaces.base import GridFunction, Space
from femops.spaces.h1_l2 import H1
from femops.spaces.product import Product
from femops_meshes import mfem_h1_dofs

_COLLECTIONS = {
    ("H1", "gll"): "H1",
    ("H1", "bernstein"): "H1Pos",
    ("L2", "gauss"): "L2",
    ("L2", "gll"): "L2_T1",
    ("L2", "bernstein"): "L2_T2",
}
"""Names that MFEM's finite element collections have in files."""


def save_mfem_field(path: Any, owner: Any, fields: Mapping[str, Any]) -> Path:
    """Write one field as a grid function of MFEM, for `femops.save`."""
    target = checked_path(path, ".gf")
    if len(fields) != 1:
        raise FileError(
            f"'{target}' holds one field, {len(fields)} were given: save each in a file of its own"
        )
    ((name, given),) = fields.items()
    space = owner.spaces.get(name) if isinstance(owner, Product) else owner
    if isinstance(given, GridFunction):
        space, given = given.space, given.vector
    if not isinstance(space, Space):
        raise FileError(
            f"{name} needs a space: write femops.save('{target}', V, {name}={name}), or give a "
            "GridFunction"
        )
    if space.comm.size > 1:
        raise FileError(
            f"'{target}' is for one process, there are {space.comm.size} ranks: take .vtu or .pvtu"
        )
    if space.mixed:
        raise FileError(
            f"'{target}' cannot hold fields on {cast(Any, space.mesh).plural}: save to .vtu"
        )
    u = np.asarray(space.memory.get(space.check_vector(given, name)))
    if (_kind(space), space.families) not in _COLLECTIONS:
        raise FileError(
            f"MFEM has for {_kind(space)} no basis {space.families!r}: interpolate the field to "
            f"femops.L2(mesh, {space.order}) and save that"
        )
    with replacing(target) as temporary:
        fill(temporary, _text(space, u))
    return target


def _kind(space: Space) -> str:
    return type(space).__name__  # other spaces number their dofs in other ways than MFEM's


def _text(space: Space, u: Any) -> str:
    """Text of the file: the space, then the components of each node in the order of MFEM."""
    if space.mesh.conforming or not isinstance(space, H1):
        in_file = np.empty((space.ndofs, space.ncomp))
        in_file[space.file_dofs()] = u.reshape(space.ndofs, space.ncomp)
    else:  # MFEM's files have values of hanging nodes too
        numbers = mfem_h1_dofs(space.mesh, space.order)
        in_file = np.empty((numbers.max() + 1, space.ncomp))
        e_vec = space.restriction.gather(space.l_vec(u))
        in_file[numbers] = e_vec.reshape(*numbers.shape, space.ncomp)
    collection = f"{_COLLECTIONS[_kind(space), space.basis.family]}_{space.dim}D_P{space.order}"
    head = f"FiniteElementSpace\nFiniteElementCollection: {collection}\n"
    head += f"VDim: {space.ncomp}\nOrdering: 1\n\n"
    return head + "".join(" ".join(map(repr, row)) + "\n" for row in in_file.tolist())
