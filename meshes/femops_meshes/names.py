"""Names of attributes: of regions and of pieces of the boundary."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_meshes.arguments import as_list
from femops_meshes.errors import MeshArgumentError

Names = Mapping[str, tuple[int, ...]]
"""Ascending attributes of each name. Several names may share an attribute."""


def checked_names(names: Mapping[str, int | Iterable[int]], attributes: ArrayLike) -> Names:
    """Check names of attributes, and return a copy with ascending numbers for each name.

    Parameters
    ----------
    names
        One number or several for each name.
    attributes
        Shape (n,): the attributes of the mesh. A name may stand only for these.

    Raises
    ------
    MeshArgumentError
        If a name is no text or stands for no attribute of the mesh.
    """
    known = set(np.unique(attributes).tolist())
    result = {}
    for name, numbers in names.items():
        group = sorted(set(numbers if isinstance(numbers, Iterable) else [numbers]))
        if not isinstance(name, str) or not name or not group or not known.issuperset(group):
            listing = ", ".join(map(str, sorted(known))) or "none"
            raise MeshArgumentError(
                f"name {name!r} stands for {group}: take a text that is not empty and attributes "
                f"of the mesh, which has {listing}"
            )
        result[name] = tuple(int(number) for number in group)
    return result


def names_of(names: Names, attributes: ArrayLike) -> Names:
    """Drop numbers that are not among the attributes (n,) of a mesh, and names without numbers."""
    there = set(np.unique(attributes).tolist())
    left = {name: tuple(n for n in numbers if n in there) for name, numbers in names.items()}
    return {name: numbers for name, numbers in left.items() if numbers}


def with_numbers(
    wanted: int | str | Iterable[int | str] | None, names: Names
) -> list[int | str] | None:
    """Replace each known name by its numbers. Other entries and None are not changed."""
    if wanted is None:
        return None
    items = as_list(wanted)
    result: list[int | str] = []
    for item in items:
        result += names.get(item, (item,)) if isinstance(item, str) else (item,)
    return result


def listing(attributes: NDArray[np.int32], names: Names) -> str:
    """Describe the attributes (n,) and their names: ``{1, 2}, inlet = 1``."""
    text = "{" + ", ".join(str(number) for number in np.unique(attributes)) + "}"
    for name, group in names.items():
        text += f", {name} = " + " + ".join(map(str, group))
    return text
