"""What partitions and parts ought to be: sets of vertex numbers, gone through one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations

import numpy as np

import femops
from femops_meshes import Mesh, scrambled


def bend(x):
    """A smooth one-to-one map of the unit cube."""
    return x + 0.05 * np.sin(3 * x[::-1] + 1)


def unlisted():
    """A mesh some of whose exterior faces are no boundary, and an interior face is."""
    box = femops.box((3, 2))
    faces = [entity for entity, touched in entities(box, 1).items() if len(touched) == 2]
    inner = sorted(faces[0])
    boundary = np.concatenate([np.array(box.boundary[:4]), [inner]])
    mesh = Mesh.from_arrays(
        None,
        np.array(box.elements),
        boundary=boundary,
        boundary_attributes=[3, 4, 5, 6, 9],
        coordinates=np.array(box.coordinates),
    )
    return mesh.with_names(boundary={"inlet": 3, "baffle": 9})


def coloured(mesh):
    """The same mesh, every element with an attribute of its own."""
    return mesh.with_attributes(np.arange(1, mesh.num_elements + 1))


MESHES = {
    "line": lambda: femops.box(7, order=2),
    "circle": lambda: femops.box(5, periodic=True),
    "square": lambda: coloured(scrambled(femops.box((5, 4), mapping=bend, order=3), 1)),
    "ring": lambda: femops.box((3, 4), periodic=(True, False)),
    "torus": lambda: scrambled(femops.box((4, 3), periodic=True), 5),
    "disc": lambda: coloured(femops.read_mesh(femops.sample("disc.mesh"))),
    "periodic file": lambda: femops.read_mesh(femops.sample("periodic.mesh")),
    "unlisted": unlisted,
    "cube": lambda: scrambled(femops.box((3, 2, 3), mapping=bend, order=2), 3),
    "fichera": lambda: femops.l_shape(2, 3),
    "ball": lambda: scrambled(femops.read_mesh(femops.sample("ball.mesh")), 2),
    "bricks": lambda: femops.box((3, 3, 4), periodic=(True, True, False)),
    "one": lambda: femops.box((1, 1, 1)),
}
"""Meshes of all dimensions, straight and curved, periodic, and read from files."""


def corners(dim, kind):
    """Local corners of the entities of a dimension, as tuples: those that agree in other bits."""
    found = []
    for fixed in combinations(range(dim), dim - kind):
        groups = defaultdict(list)
        for corner in range(2**dim):
            groups[tuple(corner >> d & 1 for d in fixed)].append(corner)
        found += groups.values()
    return found


def entities(mesh, kind):
    """{vertices of an entity: elements that have it}, as sets; a cell's are those of itself."""
    found = defaultdict(set)
    for e, row in enumerate(mesh.elements.tolist()):
        for local in corners(mesh.dim, kind):
            found[frozenset(row[c] for c in local)].add(e)
    return found


def figures(mesh, owner, size):
    """The figures of a partition, by name."""
    dim = mesh.dim
    touched, shared = np.zeros((size, dim + 1), int), np.zeros((size, dim), int)
    owned, total, total_shared = np.zeros((size, dim + 1), int), [], np.zeros(dim, int)
    near, copies = set(), defaultdict(lambda: [0] * dim)
    for kind in range(dim + 1):
        found = entities(mesh, kind)
        total.append(len(found))
        for elements in found.values():
            parts = sorted({int(owner[e]) for e in elements})
            touched[parts, kind] += 1
            owned[parts[0], kind] += 1
            if len(parts) > 1:
                shared[parts, kind] += 1
                total_shared[kind] += 1
                near |= set(combinations(parts, 2))
            for part in parts[1:]:
                copies[parts[0], part][kind] += 1
    ends = Counter(part for pair in near for part in pair)
    return {
        "touched": touched,
        "owned": owned,
        "shared": shared,
        "total": np.array(total),
        "total_shared": total_shared,
        "neighbours": np.array([ends[part] for part in range(size)]),
        "copies": np.array([[*pair, *copies[pair]] for pair in sorted(copies)], int).reshape(
            -1, dim + 2
        ),
    }
