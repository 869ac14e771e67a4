"""Section $Periodic of a Gmsh file, which identifies nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.io.gmsh.sections import Cursor, Text
from femops_meshes.checks import LARGEST

Ints = NDArray[np.int64]

_MATRIX = 16  # numbers of an affine map


@final
@dataclass(frozen=True)
class Link:
    """Side of a periodic mesh that is the image of another side."""

    dim: int  # dimension of the sides
    entities: tuple[int, int]  # gmsh's numbers of the side and of the other side
    # shape (4, 4): map from the other side to the side. None if the file has no sane one.
    affine: NDArray[np.float64] | None
    # shape (n, 2) int64: numbers of two nodes to glue, the side's node first. Empty if Gmsh
    # meshed the two sides independently, as it does for transfinite sides.
    nodes: Ints


def old_links(text: Text) -> list[Link]:
    """Read all links of version 2."""
    (count,) = text.row("n")
    links = []
    for _ in range(text.checked_count(count)):
        head = text.row("iii")
        affine = np.zeros(0)
        if text.starts_with(b"Affine"):
            affine = text.as_floats(text.rows(1)[0][1:])
        (pairs,) = text.row("n")
        links.append(_link(text, head, affine, text.whole_table("n", pairs, 2)))
    text.end()
    return links


def new_links(cursor: Cursor) -> list[Link]:
    """Read all links of version 4.1."""
    (count,) = cursor.row("n")
    links = []
    for _ in range(cursor.checked_count(count)):
        head = cursor.row("iii")
        cursor.begin_row()
        affine = cursor.floats(int(cursor.whole("n", 1)[0]))
        cursor.end_row()
        (pairs,) = cursor.row("n")
        links.append(_link(cursor, head, affine, cursor.whole_table("n", pairs, 2)))
    cursor.end()
    return links


def _link(cursor: Cursor, head: list[int], affine: NDArray[np.float64], nodes: Ints) -> Link:
    if not 0 <= head[0] <= 2 or len(affine) not in (0, _MATRIX):
        raise cursor.fail(f"a link of dimension {head[0]} with {len(affine)} numbers of a map")
    known = len(affine) == _MATRIX and bool((np.abs(affine) <= LARGEST).all())  # NaN is not
    return Link(head[0], (head[1], head[2]), affine.reshape(4, 4) if known else None, nodes)
