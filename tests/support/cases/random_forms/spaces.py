"""Meshes of one to four elements, and spaces as plain arrays."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import femops
from support.oracles.dense_forms import Side

Array = np.ndarray[Any, Any]


def _bend(x: Array) -> Array:
    y = x.copy()
    for d in range(len(x)):
        y[d] += 0.06 * np.sin(2.0 * x[d - 1] + d) + 0.05 * x[d] * x[d - 1]
    return y


def _shear(x: Array) -> Array:
    return (np.diag([1.5, 0.8, 1.1][: len(x)]) + 0.3 * np.triu(np.ones((len(x),) * 2), 1)) @ x


@cache
def mesh_of(dim: int, kind: str) -> femops.Mesh:
    """A mesh of one to four elements."""
    shape = {1: (3,), 2: (2, 1), 3: (2, 1, 1)}[dim]
    if kind == "single":
        mesh = femops.box((1,) * dim, mapping=_bend)
    elif kind == "box":
        mesh = femops.box(shape)
    elif kind == "sheared":
        mesh = femops.box(shape, mapping=_shear)
    elif kind == "multilinear":
        mesh = femops.box(shape, mapping=_bend)
    else:
        mesh = femops.box(shape, order=2, mapping=_bend)
    return mesh.with_attributes(1 + np.arange(mesh.num_elements) % 2)


KINDS = ("single", "box", "box", "sheared", "multilinear", "curved")


def side_of(space: Any, family: str, order: int) -> Side:
    """The plain arrays of a space."""
    indices = np.asarray(space.restriction.indices)
    return Side(indices, space.ncomp, family, order, int(indices.max()) + 1)
