"""Reading of Gmsh's files: femops checks a file, then Gmsh reads it in another process.

Gmsh runs in another process, because a damaged file may make it crash, print, or request endless
memory. Gmsh also keeps global state and catches signals. The file is checked first, because Gmsh
would run any other file as a script.
"""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import MissingExtraError
from femops.io.gmsh import process as gmsh_process
from femops.io.gmsh.periodic import Link, read_links
from femops_meshes import MeshFileError, MeshFormatError

MAGIC = b"$MeshFormat"
"""First bytes of a file of Gmsh's versions 2 and 4."""

_HEADER = re.compile(rb"\$MeshFormat\s+(\d{1,4}(?:\.\d{1,4})?) +([01]) +(\d{1,2})\s")
_VERSIONS = ("2", "2.1", "2.2", "4.1")
_ENDS = (b"$EndNodes", b"$EndElements")
_LINE = 80  # bytes at the end of a file that contain its last line
_SECONDS, _SECONDS_PER_BYTE = 60.0, 1e-5
_BYTES, _BYTES_PER_BYTE = 8 << 30, 200
_FIX = "it is damaged, or made by a program that Gmsh does not understand: write it again"


@final
@dataclass(frozen=True)
class Kind:
    """Type of element: its dimension, degree, number of nodes, and Gmsh's word for its shape."""

    dim: int
    degree: int
    size: int
    shape: str


@final
@dataclass(frozen=True, eq=False)
class Side:
    """Elements of one type on an entity of a periodic mesh. The entity has dimension 0 to 2.

    Attributes
    ----------
    dim, entity
        Dimension and Gmsh's number of the entity.
    kind
        Type number.
    nodes
        Shape (n, k): numbers of the elements' nodes.
    """

    dim: int
    entity: int
    kind: int
    nodes: NDArray[np.int64]


@final
@dataclass(frozen=True)
class GmshArrays:
    """Contents of a Gmsh file.

    Attributes
    ----------
    tags, positions
        Number (n,) and position (n, 3) of each node.
    blocks
        (nb, 3) int64: dimension, type and number of elements of each block.
    nodes
        Node numbers of all elements, in Gmsh's order, concatenated block by block.
    groups
        (ng, 2) int64: a block, and the tag of a physical group that has the block.
    names
        Names of physical groups by dimension and tag. Groups without a name are left out.
    kinds
        Meaning of each type number.
    links
        Pairs of nodes that a periodic mesh identifies.
    sides
        Nodes of a periodic mesh, by dimension and number of the entity with their elements.
    reference
        Positions (k, dim) of the nodes of each type in its reference element.
    """

    tags: NDArray[np.int64]
    positions: NDArray[np.float64]
    blocks: NDArray[np.int64]
    nodes: NDArray[np.int64]
    groups: NDArray[np.int64]
    names: dict[tuple[int, int], str]
    kinds: dict[int, Kind]
    links: list[Link]
    sides: list[Side]
    reference: dict[int, NDArray[np.float64]]

    def rows(self) -> list[NDArray[np.int64]]:
        """Nodes (n, k) of the elements of each block."""
        sizes = [self.kinds[kind].size for kind in self.blocks[:, 1].tolist()]
        return _rows(self.nodes, self.blocks[:, 2].tolist(), sizes)

    def side_nodes(self, dim: int, entity: int) -> NDArray[np.int64]:
        """Return the numbers (n,) of all nodes of a geometric entity's elements, ascending."""
        mine = [
            side.nodes.ravel() for side in self.sides if (side.dim, side.entity) == (dim, entity)
        ]
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *mine]))


def _rows(nodes: NDArray[np.int64], counts: list[int], sizes: list[int]) -> list[NDArray[np.int64]]:
    """Cut a flat array of nodes into arrays (count, size)."""
    shapes = [*zip(counts, sizes, strict=True)]
    return [part.reshape(*shape) for part, shape in zip(_cut(nodes, shapes), shapes, strict=True)]


def _cut(values: NDArray[Any], shapes: list[tuple[int, int]]) -> list[NDArray[Any]]:
    """Cut an array into consecutive parts of the given shapes."""
    stops = np.cumsum([0, *(a * b for a, b in shapes)]).tolist()
    return [values[start:stop] for start, stop in pairwise(stops)]


def node_places(tags: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index (n,) in `tags` of each node number (n,). If a tag is repeated, the first index.

    Raises
    ------
    MeshFormatError
        A node number is not in `tags`.
    """
    known, first = np.unique(tags, return_index=True)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    unknown = numbers[known[places] != numbers] if len(known) else numbers.ravel()
    if len(unknown):
        raise MeshFormatError(
            f"{len(unknown)} node(s) of elements are not in the file, number {unknown[0]} the "
            "first: it is damaged, write it again"
        )
    return np.asarray(first[places])


def begins_like_gmsh(path: str | os.PathLike[str]) -> bool:
    """True if the file starts as Gmsh files do. False if it cannot be opened."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def read_arrays(path: str | os.PathLike[str]) -> GmshArrays:
    """Check a file, and let Gmsh read it.

    Raises
    ------
    MeshFileError
        The file cannot be read.
    MeshFormatError
        The file has another version, is truncated, or is refused by Gmsh.
    MissingExtraError
        Gmsh is not installed, or lacks a library of the system.
    """
    version, size, links = _checked_header(path)
    with tempfile.TemporaryDirectory(prefix="femops-gmsh-") as folder:
        # Under a name of our own: Gmsh would run `<name>.opt` beside the file as a script.
        source, target = Path(folder, "mesh.msh"), Path(folder, "mesh.npz")
        _link(Path(path), source)
        flags = (version.startswith("2"), bool(links))
        done = _run(path, source, target, size, flags)
        _check_end(path, done)
        with np.load(target, allow_pickle=False) as content:
            return _arrays(dict(content), links)


def _checked_header(path: str | os.PathLike[str]) -> tuple[str, int, list[Link]]:
    """Check that a file looks complete. Return its version, size in bytes, and periodic links."""
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            found = _HEADER.match(file.read(64))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                missing = [end.decode() for end in _ENDS if content.rfind(end) < 0]
                whole = content[-_LINE:].rstrip().splitlines()[-1:]
    except (OSError, ValueError) as error:
        raise MeshFileError(f"{path} can't be read ({error}): check path and rights") from error
    if not found:
        raise MeshFormatError(f"{path}: after $MeshFormat stand no version and file type: {_FIX}")
    version = found[1].decode()
    if version not in _VERSIONS:
        raise MeshFormatError(
            f"{path} is of Gmsh's version {version}; versions 2.2 and 4.1 are read: let Gmsh save "
            "it again with Mesh.MshFileVersion = 4.1"
        )
    if missing:
        raise MeshFormatError(f"{path} has no {missing[0]}: it is truncated, write it again")
    links = read_links(path, version, binary=found[2] == b"1", bytes_of_size=int(found[3]))
    if not whole or not whole[0].startswith(b"$End"):
        raise MeshFormatError(
            f"{path} does not end with a section's end: it is truncated, write it again"
        )
    return version, size, links


def _link(path: Path, source: Path) -> None:
    try:
        source.symlink_to(path.resolve())
    except OSError:  # Windows lets only some users do so
        source.write_bytes(path.read_bytes())


def _run(
    path: str | os.PathLike[str], source: Path, target: Path, size: int, flags: tuple[bool, bool]
) -> subprocess.CompletedProcess[str]:
    memory = _BYTES + _BYTES_PER_BYTE * size
    # -P: the folder of the program must not come before Python's own on the path of imports.
    program = [sys.executable, "-P", gmsh_process.__file__]
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    seconds = _SECONDS + _SECONDS_PER_BYTE * size
    try:
        return subprocess.run(
            [*program, str(source), str(target), str(memory), *map(str, flags)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env={**os.environ, **threads},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeshFormatError(f"{path}: Gmsh did not end in {seconds:.0f} s: {_FIX}") from error


def _check_end(path: str | os.PathLike[str], done: subprocess.CompletedProcess[str]) -> None:
    # the line "Error loading <our name>" tells no reason
    lines = [line.strip() for line in done.stdout.splitlines() if "loading '" not in line]
    said = next((line[:300] for line in lines if line), "it gives no reason")
    if done.returncode == gmsh_process.MISSING:
        raise MissingExtraError(_missing(said))
    if done.returncode == gmsh_process.REFUSED:
        reason = said.removeprefix("Error").strip(" :")
        raise MeshFormatError(f"{path}: Gmsh cannot read it ({reason}): {_FIX}")
    if done.returncode:
        raise MeshFormatError(
            f"{path}: Gmsh broke off while reading it (exit code {done.returncode}): {_FIX}"
        )


def _missing(said: str) -> str:
    if ".so" in said:
        return (
            f"Gmsh's files are read by the package gmsh, which lacks a library of the system "
            f"({said}): install it, on Debian and Ubuntu by apt install libglu1-mesa libxcursor1 "
            "libxft2 libxinerama1"
        )
    return f"Gmsh's files are read by the package gmsh ({said}): install it by pip install gmsh"


def _arrays(content: dict[str, Any], links: list[Link]) -> GmshArrays:
    numbers = content["kinds"].tolist()
    named = zip(numbers, content["kind_names"], strict=True)
    kinds = {n: Kind(dim, p, size, str(shape)) for (n, dim, p, size), shape in named}
    reference = _cut(content["references"], [(d, k) for _, d, _, k in numbers])
    heads = content.get("sides", np.zeros((0, 4), np.int64)).tolist()
    counts, sizes = [count for *_, count in heads], [kinds[kind].size for _, _, kind, _ in heads]
    rows = _rows(content.get("side_nodes", np.zeros(0, np.int64)), counts, sizes)
    return GmshArrays(
        tags=content["tags"],
        positions=content["positions"],
        blocks=content["blocks"],
        nodes=content["nodes"],
        groups=content["groups"],
        names={(int(dim), int(tag)): str(name) for dim, tag, name in content["names"] if name},
        kinds=kinds,
        links=links,
        sides=[
            Side(d, entity, kind, nodes)
            for (d, entity, kind, _), nodes in zip(heads, rows, strict=True)
        ],
        reference={
            n: where.reshape(k, d) for (n, d, _, k), where in zip(numbers, reference, strict=True)
        },
    )
