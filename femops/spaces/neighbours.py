"""Dofs of a rank's elements and of its ghost elements; see `femops.parallel.neighbours`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.numbering import Flips
from femops.parallel.halo import Halo
from femops.parallel.neighbours import neighbours
from femops.parallel.numbering import RankNumbering
from femops.spaces.base import Space
from femops.spaces.restriction import ElementRestriction
from femops_kernels.exclusive import Derived
from femops_meshes.coordinates.hanging import HangingNodes

Ints = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class TouchedDofs:
    """Dofs of elements or faces of a rank, some of which other ranks own."""

    restriction: ElementRestriction
    # global numbers of the dofs; None if the mesh is not distributed
    numbering: RankNumbering | None
    halo: Halo | None  # exchange with the ranks that own the ghosts; None if no rank has ghosts

    @staticmethod
    def of(
        space: Space,
        indices: Ints,
        ghosts: Ints,
        flipped: Flips = None,
        hanging: HangingNodes | None = None,
    ) -> TouchedDofs:
        """Number the dofs of elements or faces. Collective if ranks share the space.

        Shapes: `indices`, `flipped` (ne, n), `ghosts` (k,).
        """
        known, owned = space.numbering, space.restriction.owned
        if known is None:
            restriction = ElementRestriction(indices, owned, hanging=hanging)
            return TouchedDofs(restriction, None, None)
        used, places = np.unique(indices[indices >= owned], return_inverse=True)
        indices = indices.copy()
        indices[indices >= owned] = owned + places
        numbering = RankNumbering(known.rank, (), known.offsets, ghosts[used - owned])
        halo = Halo(numbering, space.comm)
        ndofs = owned + len(numbering.ghosts)
        restriction = ElementRestriction(indices, ndofs, owned, flipped, hanging)
        return TouchedDofs(restriction, numbering, halo if space.comm.max(halo.ghosts) else None)


_known = Derived[Space, TouchedDofs]()


def with_neighbours(space: Space) -> TouchedDofs:
    """Return the dofs of a rank's elements and of its ghost elements; else those of all elements.

    Collective at the first call for a space.
    """
    return _known.get(space, lambda: _made(space))


def _made(space: Space) -> TouchedDofs:
    if space.distributed is None or space.numbering is None:
        return TouchedDofs(space.restriction, None, None)
    near, owned, flipped = neighbours(space.distributed), space.ndofs, space.restriction.flipped
    numbers = near.with_ghosts(space.numbering.whole[space.restriction.indices])
    local = numbers - space.first_dof
    theirs = (local < 0) | (local >= owned)
    ghosts, places = np.unique(numbers[theirs], return_inverse=True)
    local[theirs] = owned + places
    if flipped is not None:
        flipped = near.with_ghosts(flipped)
    return TouchedDofs.of(space, local, ghosts, flipped)
