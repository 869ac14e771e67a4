"""Checks of the arguments of `femops.io.save_state` and `femops.io.load_state`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from femops.errors import CheckpointError, SpaceError
from femops.parallel.collective_checks import check_same
from femops.parallel.comm import Communicator, Serial
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.restriction import Vector
from femops.spaces.vectors import any_vector, has_complex
from femops_meshes.arguments import type_name


def ranks(given: object) -> Communicator:
    """Return the communicator of the first space or pair (space, vector)."""
    for entry in given.values() if isinstance(given, Mapping) else ():
        space = entry[0] if isinstance(entry, tuple | list) and entry else entry
        if isinstance(space, Space):
            return space.comm
    return Serial()


def checked_names(given: object, what: str) -> list[str]:
    """Check names, and return them in ascending order, which is the same on all ranks."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        got = list(given) if isinstance(given, Mapping) else type(given).__name__
        raise CheckpointError(f"{what} are {got}: give a dict, and texts for names")
    return sorted(given)


def checked_vectors(vectors: Any, comm: Communicator) -> dict[str, tuple[Space, Vector]]:
    """Check the vectors. Return the pairs (space, vector) by ascending names."""
    names = checked_names(vectors, "vectors")
    if not names:
        raise CheckpointError('there are no vectors to save: give {"u": (V, u)}, for instance')
    found = {}
    for name in names:
        pair = vectors[name]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise CheckpointError(
                f"{name!r} is {type_name(type(pair))}: give its space with it, (V, u)"
            )
        space, vector = pair
        check_space(space, name, comm)
        checked = any_vector if has_complex(vector) else type(space).check_vector
        found[name] = space, checked(space, vector, name)
    return found


def check_space(space: object, name: str, comm: Communicator) -> None:
    """Raise unless ``space`` is an H1 or L2 space on the ranks ``comm``."""
    if not isinstance(space, H1 | L2):
        raise SpaceError(
            f"the space of {name!r} is {type_name(type(space))}: give an H1 or L2 space; of a "
            "product, each of its spaces with its part of the vector"
        )
    if space.comm is not comm and max(space.comm.size, comm.size) > 1:
        raise SpaceError(
            f"the space of {name!r} is on a mesh of other ranks, {space.comm} instead of {comm}: "
            "make all meshes with the same communicator"
        )


def checked_values(values: Any) -> dict[str, Any]:
    """Check values. Return them by ascending names, in the types that JSON returns."""
    names = checked_names(values, "values")
    try:
        plain = {name: _plain(values[name], name) for name in names}
        json.dumps(plain)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:  # of too many digits, or that hold themselves
        raise CheckpointError(f"values cannot be written as JSON: {error}") from error
    return plain


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(entry, name) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry, name) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise CheckpointError(
        f"value {name!r} has {type_name(type(value))} in it: give numbers, texts, None, lists, and "
        "dicts by texts; of an array its .tolist()"
    )


def check_same_facts(comm: Communicator, path: Path, facts: Mapping[str, object]) -> None:
    """Raise if paths, names or values differ between ranks. Collective."""
    for some in ({"path": str(path), "names": list(facts)}, facts):
        check_same(comm, "the checkpoint", some, error=CheckpointError)
