"""Dofs of the elements that have some attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.boundary import Attributes, chosen
from femops_meshes.names import with_numbers

Ints = NDArray[np.int64]


def dofs_of_elements(
    space: Any, attributes: Attributes, components: int | Iterable[int] | None
) -> Ints:
    """See `Space.element_dofs`. Collective."""
    local, whole = space.mesh, space.distributed
    names = local.element_names if whole is None else whole.element_names
    everywhere = local.element_attributes if whole is None else whole.whole_element_attributes
    have = [*names, *np.unique(everywhere).tolist()]
    asked = with_numbers(attributes, names)
    numbers = chosen(asked, have, "element attribute", "mesh", local.boundary_names, "faces")
    listed = np.isin(local.element_attributes, numbers)
    picked = chosen(components, list(range(space.ncomp)), "component", "space")
    nodes = np.unique(space.restriction.indices[listed])
    if space.halo is not None:  # elements of other ranks have nodes that this rank owns
        nodes = space.halo.marked(nodes)
    return np.asarray(np.add.outer(nodes * space.ncomp, picked).ravel())
