"""Program that converts a mesh file to plain arrays by Gmsh, in a separate process.

The program is started by its path and imports nothing of femops. If a damaged file crashes Gmsh's
C++ code, the parent process sees only the exit code and the output.
"""

from __future__ import annotations

import re
import sys
from typing import Any

MISSING, REFUSED = 3, 4
"""Exit codes: Gmsh cannot be imported; Gmsh does not accept the file. Standard output says why."""


def main(source: str, target: str, memory: int, by_element: bool, periodic: bool) -> int:
    """Read `source` and write its arrays to `target`, a file of ``numpy.savez``.

    Parameters
    ----------
    source, target : str
    memory : int
        Bytes of address space that this process may use.
    by_element : bool
        Whether tags belong to elements, as in version 2. Gmsh keeps these tags only if it reads
        them as entity numbers.
    periodic : bool
        Whether to write the nodes of each entity, by the number of the entity.
    """
    _limit(memory)
    import numpy as np

    try:
        import gmsh
    except (ImportError, OSError) as error:
        print(error)  # noqa: T201
        return MISSING
    gmsh.initialize(readConfigFiles=False, interruptible=False)
    gmsh.option.setNumber("General.Terminal", 0)
    gmsh.option.setNumber("General.AbortOnError", 2)
    gmsh.option.setNumber("Mesh.SwitchElementTags", int(by_element))
    gmsh.logger.start()
    try:
        gmsh.open(source)
        arrays = _arrays(gmsh, np, by_element)
        _check_count(gmsh, int(arrays["blocks"][:, 2].sum()))
        if periodic and by_element:
            gmsh.clear()
            gmsh.option.setNumber("Mesh.SwitchElementTags", 0)
            gmsh.open(source)
        arrays |= _sides(gmsh, np) if periodic else {}
        on_sides = arrays["sides"][:, 2].tolist() if periodic else []
        arrays |= _kinds(gmsh, np, {*arrays["blocks"][:, 1].tolist(), *on_sides})
    except Exception as error:  # noqa: BLE001  (Gmsh raises plain Exception)
        arrays = {}
        print(error)  # noqa: T201
    complaints = [line for line in gmsh.logger.get() if line.startswith("Error")]
    print("\n".join(complaints))  # noqa: T201
    if complaints or not arrays:
        return REFUSED
    np.savez(target, **arrays)
    return 0


def _limit(memory: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    if most == resource.RLIM_INFINITY or most > memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, most))


def _arrays(gmsh: Any, np: Any, by_element: bool) -> dict[str, Any]:
    """Arrays of nodes, of blocks of elements (dim, type, count) and their nodes, and of groups."""
    tags, positions, _ = gmsh.model.mesh.getNodes()
    blocks: list[tuple[int, int, int]] = []
    groups: list[tuple[int, int]] = []
    names: list[tuple[str, str, str]] = []
    nodes = [np.zeros(0, dtype=np.int64)]
    for dim, entity in gmsh.model.getEntities():
        if by_element:
            physical = [entity] if entity else []
        else:
            physical = gmsh.model.getPhysicalGroupsForEntity(dim, entity)
        for kind, elements, corners in zip(*gmsh.model.mesh.getElements(dim, entity), strict=True):
            groups += [(len(blocks), abs(int(tag))) for tag in physical]
            blocks.append((dim, int(kind), len(elements)))
            nodes.append(np.asarray(corners, dtype=np.int64))
        for tag in physical:
            name = gmsh.model.getPhysicalName(dim, tag) or gmsh.model.getPhysicalName(dim, abs(tag))
            names.append((str(dim), str(abs(int(tag))), name))
    return {
        "tags": np.asarray(tags, dtype=np.int64),
        "positions": np.asarray(positions, dtype=np.float64).reshape(-1, 3),
        "blocks": np.array(blocks, dtype=np.int64).reshape(-1, 3),
        "nodes": np.concatenate(nodes),
        "groups": np.array(groups, dtype=np.int64).reshape(-1, 2),
        "names": np.array(names, dtype=np.str_).reshape(-1, 3),
    }


def _sides(gmsh: Any, np: Any) -> dict[str, Any]:
    """Arrays of entities (dim, number, type, count of elements), and their elements' nodes."""
    sides: list[tuple[int, int, int, int]] = []
    nodes = [np.zeros(0, dtype=np.int64)]
    for dim, entity in gmsh.model.getEntities():
        for kind, elements, corners in zip(*gmsh.model.mesh.getElements(dim, entity), strict=True):
            if dim < 3:
                nodes.append(np.asarray(corners, dtype=np.int64))
                sides.append((dim, entity, int(kind), len(elements)))
    return {
        "sides": np.array(sides, dtype=np.int64).reshape(-1, 4),
        "side_nodes": np.concatenate(nodes),
    }


def _kinds(gmsh: Any, np: Any, numbers: set[int]) -> dict[str, Any]:
    """Arrays with the properties of types of elements, see `_kind`."""
    kinds = [_kind(gmsh, number) for number in sorted(numbers)]
    return {
        "kinds": np.array([kind[:4] for kind in kinds], dtype=np.int64).reshape(-1, 4),
        "kind_names": np.array([kind[4] for kind in kinds], dtype=np.str_),
        "references": np.concatenate([np.zeros(0), *(kind[5] for kind in kinds)]),
    }


def _check_count(gmsh: Any, got: int) -> None:
    """Raise if Gmsh left out elements. It reads one type per entity, without a warning."""
    found = (re.fullmatch(r"Info: (\d+) elements?", line) for line in gmsh.logger.get())
    counted = [int(match[1]) for match in found if match]
    if counted and counted[-1] != got:
        raise ValueError(
            f"{counted[-1] - got} of {counted[-1]} elements stand in an entity or group with "
            "elements of another degree or shape; the same is needed for all"
        )


def _kind(gmsh: Any, kind: int) -> tuple[int, int, int, int, str, list[float]]:
    """Number, dimension, degree, number of nodes, Gmsh's word and positions of nodes of a type."""
    name, dim, degree, count, nodes, _ = gmsh.model.mesh.getElementProperties(kind)
    return kind, dim, degree, count, name.split()[0], list(nodes)[: dim * count]


if __name__ == "__main__":
    flags = [word == "True" for word in sys.argv[4:6]]
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *flags))
