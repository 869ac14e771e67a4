"""Section $Periodic of a Gmsh file, which identifies nodes.

femops reads the section, because Gmsh drops it in two cases: if the sides are in no physical group,
and in files of version 2, where Gmsh renumbers entities while it reads groups.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes import MeshFileError, MeshFormatError

Ints = NDArray[np.int64]

_START, _END = re.compile(rb"^\$Periodic[ \t]*\r?\n", re.M), re.compile(rb"^\$EndPeriodic", re.M)
_MATRIX = 16  # numbers of an affine map in version 2


@final
@dataclass(frozen=True)
class Link:
    """Side of a periodic mesh that is the image of another side.

    Attributes
    ----------
    dim
        Dimension of the sides.
    entities
        Gmsh's numbers of the side and of the other side.
    affine
        Shape (4, 4): map from the other side to the side. None if the file has no map.
    nodes
        Shape (n, 2) int64: numbers of two nodes to glue, the side's node first. Empty if Gmsh
        meshed the two sides independently, as it does for transfinite sides.
    """

    dim: int
    entities: tuple[int, int]
    affine: NDArray[np.float64] | None
    nodes: Ints


def read_links(
    path: str | os.PathLike[str], version: str, *, binary: bool, bytes_of_size: int
) -> list[Link]:
    """Read all links of a file.

    Parameters
    ----------
    path
        The file.
    version
        Version of the format, "2..." or "4.1".
    binary, bytes_of_size
        Values from the file's header.

    Raises
    ------
    MeshFileError
        If the file cannot be read.
    MeshFormatError
        If the section is damaged.
    """
    try:
        with (
            Path(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            starts = [found.end() for found in _START.finditer(content)]
            ends = [found.start() for found in _END.finditer(content)]
            if len(starts) != len(ends) or any(a > b for a, b in zip(starts, ends, strict=True)):
                raise ValueError("it does not begin or does not end")
            sections = [content[a:b] for a, b in zip(starts, ends, strict=True)]
        old = version.startswith("2")
        links: list[Link] = []
        for section in sections:
            # version 2 writes it as text in binary files too
            text = old or not binary
            links += _of_text(section, old=old) if text else _of_bytes(section, bytes_of_size)
    except OSError as error:
        raise MeshFileError(f"{path} can't be read ({error}): check path and rights") from error
    except (ValueError, IndexError) as error:
        raise MeshFormatError(
            f"{path}: its section $Periodic is damaged ({str(error)[:80]}): let Gmsh write it again"
        ) from error
    return links


def _of_text(section: bytes, *, old: bool) -> Iterator[Link]:
    words = section.split()
    place = 1
    for _ in range(int(words[0])):
        head, place = [int(word) for word in words[place : place + 3]], place + 3
        terms = 0
        if not old:
            terms, place = _count(words[place], words), place + 1
        elif words[place] == b"Affine":
            terms, place = _MATRIX, place + 1
        affine = np.array([float(word) for word in words[place : place + terms]])
        place += terms
        count, place = _count(words[place], words), place + 1
        nodes = np.array([int(word) for word in words[place : place + 2 * count]], dtype=np.int64)
        yield _link(head, affine, nodes, count)
        place += 2 * count
    if place != len(words):
        raise ValueError("its count is wrong")


def _count(word: bytes, words: list[bytes]) -> int:
    count = int(word)
    if not 0 <= count <= len(words):
        raise ValueError(f"there can't be {count} numbers")
    return count


def _link(head: list[int], affine: NDArray[np.float64], nodes: Ints, count: int) -> Link:
    if len(nodes) != 2 * count or not 0 <= head[0] <= 3:
        raise ValueError("it is truncated, or names no dimension")
    known = len(affine) == _MATRIX and bool(np.isfinite(affine).all())
    matrix = affine.reshape(4, 4) if known else None
    return Link(head[0], (head[1], head[2]), matrix, nodes.reshape(-1, 2))


def _of_bytes(section: bytes, bytes_of_size: int) -> Iterator[Link]:
    if bytes_of_size != 8:
        raise ValueError(f"its numbers have {bytes_of_size} bytes, those of 8 are read")
    place = 0

    def take(kind: str, count: int) -> NDArray[Any]:
        nonlocal place
        if not 0 <= count <= len(section):
            raise ValueError(f"there can't be {count} numbers")
        # with another machine's byte order counts are absurd, and are refused
        numbers = np.frombuffer(section, dtype=kind, count=count, offset=place)
        place += numbers.nbytes
        return numbers

    for _ in range(int(take("<i8", 1)[0])):
        head = take("<i4", 3).tolist()
        affine = take("<f8", int(take("<i8", 1)[0])).astype(np.float64)
        count = int(take("<i8", 1)[0])
        yield _link(head, affine, take("<i8", 2 * count).astype(np.int64), count)
    if section[place:].strip():
        raise ValueError("its count is wrong")
