"""Gmsh files made for tests: written by hand, and turned into each kind of file by Gmsh itself."""

import atexit
import functools
import json
import os
import select
import subprocess
import sys

import numpy as np
import pytest

from femops_meshes.coordinates.mapping import gauss_lobatto, lagrange_matrix

TYPES = {
    1: {1: 1, 2: 8, 3: 26, 4: 27, 5: 28, 6: 62, 7: 63, 8: 64, 9: 65, 10: 66},
    2: {1: 3, 2: 10, 3: 36, 4: 37, 5: 38, 6: 47, 7: 48, 8: 49, 9: 50, 10: 51},
    3: {1: 5, 2: 12, 3: 92, 4: 93, 5: 94, 6: 95, 7: 96, 8: 97, 9: 98},
}
KINDS = [(2.2, 0), (2.2, 1), (4.1, 0), (4.1, 1)]

_NODES = """
import gmsh, json
gmsh.initialize(readConfigFiles=False)
types = json.loads({types!r})
print(json.dumps([[int(d), int(p), list(gmsh.model.mesh.getElementProperties(t)[4])]
                  for d, row in types.items() for p, t in row.items()]))
"""

_CONVERT = """
import gmsh
gmsh.initialize(readConfigFiles=False)
gmsh.option.setNumber("General.Terminal", 0)
gmsh.open({source!r})
gmsh.option.setNumber("Mesh.SaveAll", {save_all})
gmsh.option.setNumber("Mesh.MshFileVersion", {version})
gmsh.option.setNumber("Mesh.Binary", {binary})
gmsh.write({target!r})
"""


PERIODIC_BOX = """
occ = gmsh.model.occ
occ.addBox(0, 0, 0, *size) if dim == 3 else occ.addRectangle(0, 0, 0, *size[:2])
occ.synchronize()
def side(d, high):
    low, up = [-1e-6] * 3, [s + 1e-6 for s in size]
    (low if high else up)[d] = size[d] - 1e-6 if high else 1e-6
    return [tag for _, tag in gmsh.model.getEntitiesInBoundingBox(*low, *up, dim - 1)]
for d in pairs:
    affine = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    affine[4 * d + 3] = size[d]
    gmsh.model.mesh.setPeriodic(dim - 1, side(d, True), side(d, False), affine)
"""
"""A box of `dim`, `size` whose sides are glued in the directions `pairs`, in Gmsh's own words."""


@functools.cache
def _import_error():
    code = [sys.executable, "-c", "import gmsh"]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[-1] if done.returncode else ""


def need_gmsh():
    """Skip where Gmsh is not installed, or cannot be loaded."""
    if _import_error():
        pytest.skip(f"gmsh cannot be imported: {_import_error()}")


_FORKS = """
import json, os, sys, traceback
import gmsh, numpy
for line in sys.stdin:
    code, words = json.loads(line)
    output, child = os.pipe(), os.fork()
    if child == 0:
        for stream, target in enumerate((os.open(os.devnull, os.O_RDONLY), output[1], output[1])):
            os.dup2(target, stream)
        sys.argv, status = ["", *words], 0
        try:
            exec(code, {"__name__": "__main__"})
        except SystemExit as stop:
            status = stop.code
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        os._exit(status)
    os.close(output[1])
    with open(output[0], errors="replace") as printed:
        text = printed.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text]), flush=True)
"""


@functools.cache
def _forks():
    """A process that has loaded Gmsh, which takes most of the time, and forks for each program."""
    command = [sys.executable, "-c", _FORKS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
    atexit.register(process.communicate)
    return process


def _forked(code, words=(), timeout=60.0):
    """Run a program with Gmsh; its exit code, and what it printed."""
    process = _forks()
    process.stdin.write(json.dumps([code, words]) + "\n")
    process.stdin.flush()
    if not select.select([process.stdout], [], [], timeout)[0]:
        _forks.cache_clear()
        os.killpg(process.pid, 9)
        process.communicate()
        raise subprocess.TimeoutExpired("gmsh", timeout)
    return json.loads(process.stdout.readline())


def run(code):
    need_gmsh()
    status, text = _forked(code)
    assert status == 0, text
    return text


@functools.cache
def reference_nodes():
    """Gmsh's own reference positions, in [0, 1], by dimension and degree."""
    table = json.loads(run(_NODES.format(types=json.dumps(TYPES))))
    return {(d, p): (np.array(x).reshape(-1, d) + 1) / 2 for d, p, x in table}


def convert(source, target, version, binary, save_all=0):
    """Let Gmsh read a file and write it in another version."""
    run(
        _CONVERT.format(
            source=str(source),
            target=str(target),
            version=version,
            binary=binary,
            save_all=save_all,
        )
    )
    return target


def document(nodes, elements, names=()):
    """Text of a file of version 2.2: positions (n, 3), and (type, physical, entity, nodes...)."""
    lines = ["$MeshFormat", "2.2 0 8", "$EndMeshFormat"]
    if names:
        lines += ["$PhysicalNames", str(len(names))]
        lines += [f'{dim} {tag} "{name}"' for dim, tag, name in names]
        lines += ["$EndPhysicalNames"]
    lines += ["$Nodes", str(len(nodes))]
    lines += [f"{k} " + " ".join(map(repr, x)) for k, x in enumerate(np.asarray(nodes).tolist(), 1)]
    lines += ["$EndNodes", "$Elements", str(len(elements))]
    for k, (kind, physical, entity, *numbers) in enumerate(elements, 1):
        lines.append(f"{k} {kind} 2 {physical} {entity} " + " ".join(map(str, numbers)))
    return "\n".join([*lines, "$EndElements", ""])


def of_mesh(mesh, degree, names=()):
    """Text of a file that holds a mesh, with nodes where Gmsh says its reference nodes are."""
    x = reference_nodes()[mesh.dim, degree]
    gll = gauss_lobatto(mesh.order + 1)[0]
    shapes = np.ones((len(x), 1))
    for d in range(mesh.dim):  # x fastest
        line = lagrange_matrix(gll, x[:, d])
        shapes = (line[:, :, None] * shapes[:, None, :]).reshape(len(x), -1)
    where = np.zeros((mesh.num_elements, len(x), 3))
    where[..., : mesh.dim] = np.einsum("ij,ejd->eid", shapes, mesh.coordinates)
    keys = np.round(where.reshape(-1, 3), 9) + 0.0
    _, first, numbers = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    nodes = where.reshape(-1, 3)[first]
    rows = numbers.reshape(mesh.num_elements, -1) + 1
    corner = {1: [0, 1], 2: [0, 1, 3, 2], 3: [0, 1, 3, 2, 4, 5, 7, 6]}
    vertex = np.zeros(mesh.num_vertices, dtype=int)
    vertex[mesh.elements] = rows[:, : 2**mesh.dim][:, corner[mesh.dim]]
    sides = vertex[mesh.boundary]
    if mesh.dim > 1:
        sides = sides[:, corner[mesh.dim - 1]]
    flat = {1: 15, 2: 1, 3: 3}[mesh.dim]
    elements = [(flat, a, a, *s) for a, s in zip(mesh.boundary_attributes, sides, strict=True)]
    kind = TYPES[mesh.dim][degree]
    elements += [(kind, a, a, *r) for a, r in zip(mesh.element_attributes, rows, strict=True)]
    return document(nodes, elements, names)
