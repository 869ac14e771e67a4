"""Names of attributes: of regions and of pieces of the boundary."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_common.arguments import array_of, as_list, call_with_arrays, check_takes, shown
from femops_meshes.errors import MeshArgumentError

Names = Mapping[str, tuple[int, ...]]
"""Ascending attributes of each name. Several names may share an attribute."""


Predicate = Callable[[NDArray[np.float64]], Any]
"""Function of positions (dim, n) that returns n booleans."""

Named = int | Iterable[int] | Predicate
"""Attributes that a name stands for, or a predicate of elements or faces."""


Chosen = ArrayLike | Callable[[NDArray[np.float64]], Any]
"""Elements that a user chooses: numbers, a mask, or a predicate of their middles."""

Parts = int | str | Iterable[int | str] | None
"""Attributes or names of parts."""


def named_parts(
    names: Mapping[str, Named],
    attributes: NDArray[np.int32],
    centers: Callable[[], NDArray[np.float64]],
    unlisted: Callable[[], NDArray[np.float64]] | None = None,
) -> tuple[NDArray[np.int32], Names]:
    """Return attributes (n,) and names, where names may stand for predicates.

    Numbers in `names` are attributes before predicates divide them: one for each combination.
    """
    numbered = {name: one for name, one in names.items() if not callable(one)}
    known = checked_names(numbered, attributes)
    rules = {name: one for name, one in names.items() if callable(one)}
    if not rules:
        return attributes, known
    if unlisted is not None:
        _check_listed(rules, unlisted().T)
    x = centers().T
    chosen = np.array([_chosen(name, rule, x) for name, rule in rules.items()])
    parts, where = np.unique(np.vstack([attributes, chosen]), axis=1, return_inverse=True)
    old, chosen = parts[0].astype(np.int64), parts[1:] != 0
    new, last = old.copy(), int(old.max())
    for part in range(len(old)):
        undivided = np.count_nonzero(old == old[part]) == 1
        if chosen[:, part].any() and not undivided:
            last = new[part] = last + 1
    if last > np.iinfo(np.int32).max:
        raise MeshArgumentError(
            f"attribute {old.max()} is the largest there can be, and parts need others: give the "
            "mesh smaller attributes"
        )
    found = {name: new[np.isin(old, known[name])] for name in known}
    found |= {name: new[mine] for name, mine in zip(rules, chosen, strict=True)}
    changed = new[where.ravel()].astype(np.int32)
    return changed, checked_names({name: found[name].tolist() for name in names}, changed)


def _check_listed(rules: Mapping[str, Predicate], x: NDArray[np.float64]) -> None:
    """Raise if a predicate is true at the middle x (dim, m) of a face that is not listed."""
    for name, rule in rules.items() if x.size else ():
        count = int(where_true(f"the predicate of {name!r}", rule, x).sum())
        if count:
            raise MeshArgumentError(
                f"the predicate of {name!r} is true at the middle of {count} outer faces that are "
                "no boundary faces of the mesh, so that conditions would miss them: make the mesh "
                "by Mesh.from_arrays without boundary=, which takes all outer faces"
            )


def _chosen(name: str, rule: Predicate, x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Evaluate a predicate at positions x (dim, n). Raise if it is true nowhere."""
    chosen = where_true(f"the predicate of {name!r}", rule, x)
    if not chosen.any():
        raise MeshArgumentError(
            f"the predicate of {name!r} is true at the middle of no element or face: correct it, "
            "or give it a tolerance, as abs(x[0] - 1) < 1e-9"
        )
    return chosen


def where_true(what: str, rule: Predicate, x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Evaluate a predicate at positions x (dim, n), and return n booleans."""
    check_takes(rule, (x,), lambda why: MeshArgumentError(f"{what} takes x: {why}"))
    result = call_with_arrays(
        rule,
        (x,),
        lambda _: MeshArgumentError(
            f"{what} is called with all positions at once, x of shape (dim, n): write & and | "
            "between comparisons in parentheses, and numpy's functions"
        ),
    )
    chosen = np.asarray(result)
    if chosen.dtype != np.bool_ or chosen.shape != x.shape[1:]:
        raise MeshArgumentError(
            f"{what} returned shape {chosen.shape} and type {chosen.dtype} for "
            f"positions of shape {x.shape}: return {x.shape[1]} booleans, as x[0] < 1e-9"
        )
    return chosen


def checked_names(names: Mapping[str, int | Iterable[int]], attributes: ArrayLike) -> Names:
    """Check names of attributes, and return a copy with ascending numbers for each name."""
    known = set(np.unique(attributes).tolist())
    result = {}
    for name, numbers in names.items():
        given = list(numbers) if isinstance(numbers, Iterable) else [numbers]
        listed = bool(given) and all(map(np.isscalar, given)) and known.issuperset(given)
        if not isinstance(name, str) or not name or not listed:
            listing = ", ".join(map(str, sorted(known))) or "none"
            raise MeshArgumentError(
                f"name {name!r} stands for {shown((*given,))}: take a text that is not empty and "
                f"attributes of the mesh, which has {listing}"
            )
        result[name] = tuple(int(number) for number in sorted({*given}))
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


def chosen_elements(
    mesh: Any, elements: Chosen | None, attributes: Parts, known: list[int] | None = None
) -> NDArray[np.bool_]:
    """Mask (ne,) of the elements that a user chose; see `Mesh.refined`.

    ``known`` are the attributes of a whole mesh of which this is a part.
    """
    count = mesh.num_elements
    chosen = np.full(count, elements is None and attributes is None)
    if attributes is not None:
        numbers = with_numbers(attributes, mesh.element_names) or []
        known = np.unique(mesh.element_attributes).tolist() if known is None else known
        unknown = [one for one in numbers if one not in known]
        if unknown:
            raise MeshArgumentError(
                f"the mesh has no element attribute {unknown[0]!r}: it has "
                f"{listing(np.array(known), mesh.element_names)}"
            )
        chosen |= np.isin(mesh.element_attributes, [int(one) for one in numbers])
    if elements is None:
        return chosen
    if callable(elements):
        elements = where_true(
            "the predicate of elements", elements, mesh.element_centers().T.copy()
        )
    given = array_of(elements, "elements", MeshArgumentError).copy()
    if given.dtype == np.bool_:
        if given.shape != (count,):
            raise MeshArgumentError(
                f"the mask has shape {given.shape}: give one flag for each of {count} elements"
            )
        return np.asarray(chosen | given)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        every = "" if given.ndim else "; mesh.refine(times) splits all elements"
        raise MeshArgumentError(
            f"elements have shape {given.shape} and type {given.dtype}: give numbers (n,), a mask "
            f"({count},) or a predicate of x{every}"
        )
    if given.size and (given.min() < 0 or given.max() >= count):
        raise MeshArgumentError(
            f"elements run from {given.min()} to {given.max()}: the mesh has elements 0 to "
            f"{count - 1}"
        )
    chosen[given.astype(np.int64)] = True
    return chosen
