"""MFEM's INLINE meshes: files with the numbers of elements of a box and the lengths of its sides.

The order of the elements and the attributes are the same as in MFEM, so that vectors of MFEM on
the mesh can be read.
"""

import math

import numpy as np
from numpy.typing import NDArray

from femops_meshes.errors import MeshArgumentError
from femops_meshes.formats.scanner import Scanner, shorten
from femops_meshes.generators.grids import Grid
from femops_meshes.mesh import Mesh
from femops_meshes.refinement import check_fits

Ints = NDArray[np.int64]
Vector = tuple[int, int, int]
_Run = tuple[Vector, Vector, int]

_MOST = 2**18
"""Most elements of a mesh: a file of 60 bytes may ask for any number, and each takes time."""

_HEADER = "MFEM INLINE mesh v1.0"
_DIMENSIONS = {"segment": 1, "quad": 2, "hex": 3}
_OTHERS = ("tri", "tet", "wedge", "pyramid")
_COUNTS, _SIZES = ("nx", "ny", "nz"), ("sx", "sy", "sz")
_ATTRIBUTES = {1: (1, 2), 2: (4, 2, 1, 3), 3: (5, 3, 2, 4, 1, 6)}
"""Boundary attributes at the low and high end of each direction."""


def begins_inline(scanner: Scanner) -> bool:
    """True if the text that follows is an INLINE mesh."""
    return scanner.peek().startswith("MFEM INLINE")


def read_inline(scanner: Scanner) -> Mesh:
    """Make the mesh that an INLINE file describes."""
    header = scanner.read("the first line")
    if header != _HEADER:
        raise scanner.fail(f'"{shorten(header)}": the version that is read is "{_HEADER}"')
    fields = _fields(scanner)
    dim = _dimension(scanner, fields)
    counts = tuple(_count(scanner, fields, name) for name in _COUNTS[:dim])
    sizes = tuple(_size(scanner, fields, name) for name in _SIZES[:dim])
    try:
        grid = Grid.checked(counts, 0.0, sizes, periodic=False)
        number = math.prod(counts)
        if number > _MOST:
            raise MeshArgumentError(
                f"an INLINE mesh of {number} elements takes minutes to read, at most {_MOST} are "
                "read: halve nx, ny and nz, and refine, as by femops.read_mesh(path, refine=1)"
            )
        check_fits((number, 2**dim, dim), f"making {number} elements", "take fewer")
    except MeshArgumentError as error:
        raise MeshArgumentError(f"{scanner.name}: {error}") from error.__cause__
    cells = mfem_order(counts)
    mesh = Mesh.assemble(grid.elements(cells), grid.coordinates(cells, 1), grid.num_vertices)
    codes = mesh.topology.boundary_faces[:, 1]
    attributes = np.zeros(len(codes), dtype=np.int64)
    for side, attribute in enumerate(_ATTRIBUTES[dim]):
        attributes[codes // 3 ** (side // 2) % 3 == 2 * (side % 2)] = attribute
    return mesh.with_attributes(boundary=attributes)


def _fields(scanner: Scanner) -> dict[str, str]:
    """Read all lines "name = value"."""
    fields: dict[str, str] = {}
    while scanner.peek():
        line = scanner.read("")
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or name not in ("type", *_COUNTS, *_SIZES):
            raise scanner.fail(
                f'"{shorten(line)}": an INLINE mesh has lines "type = hex", "nx = 4" (elements, '
                'also ny and nz) and "sx = 1.0" (length, also sy and sz) only'
            )
        if name in fields:
            raise scanner.fail(f'"{shorten(line)}": this is the second line for {name}, keep one')
        fields[name] = value.partition("#")[0].strip()
    return fields


def _dimension(scanner: Scanner, fields: dict[str, str]) -> int:
    kind = fields.get("type", "")
    if kind in _OTHERS:
        raise scanner.fail(
            f'an INLINE mesh of type "{kind}": supported are segments, squares and cubes alone, '
            'that is the types "segment", "quad" and "hex"'
        )
    if kind not in _DIMENSIONS:
        raise scanner.fail(
            f'the type of an INLINE mesh is "segment", "quad" or "hex", got "{shorten(kind)}": '
            'write a line as "type = hex"'
        )
    return _DIMENSIONS[kind]


def _value(scanner: Scanner, fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise scanner.fail(
            f'an INLINE mesh of type "{fields["type"]}" needs "{name} = ...": the file has none'
        )
    return fields[name]


def _count(scanner: Scanner, fields: dict[str, str], name: str) -> int:
    return scanner.integer(_value(scanner, fields, name), name, 1)


def _size(scanner: Scanner, fields: dict[str, str], name: str) -> float:
    size = scanner.number(_value(scanner, fields, name), name)
    if size <= 0:
        raise scanner.fail(f"{name} is a length, it must be positive, got {size}")
    return size


def mfem_order(counts: tuple[int, ...]) -> Ints:
    """Cells (n, dim) of a grid in the order that MFEM gives them.

    Notes
    -----
    MFEM follows the generalized Hilbert curve of J. Cerveny (github.com/jakubcerveny/gilbert,
    BSD-2-Clause), whose longest direction comes first.
    """
    dim = len(counts)
    axes: list[Vector] = [(counts[0], 0, 0), (0, (*counts, 1)[1], 0), (0, 0, (*counts, 1, 1)[2])]
    lead = int(np.argmax(counts))
    leading = [axes[lead], *(axes[d] for d in range(dim) if d != lead)]
    runs: list[_Run] = []
    todo: list[tuple[Vector, ...]] = [((0, 0, 0), *leading)]
    while todo:
        block = todo.pop()
        run = _row(*block)
        if run is None:
            todo += reversed(_split_flat(*block) if dim == 2 else _split(*block))
        else:
            runs.append(run)
    starts, steps, lengths = (np.array(column) for column in zip(*runs, strict=True))
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    cells = np.repeat(starts, lengths, axis=0)
    cells += within[:, None] * np.repeat(steps, lengths, axis=0)
    return np.ascontiguousarray(cells[:, :dim])


def _row(at: Vector, *axes: Vector) -> _Run | None:
    """Start, step and length of a block with one row of cells; None for other blocks."""
    lengths = [abs(sum(axis)) for axis in axes]
    for along, length in zip(axes, lengths, strict=True):
        if sum(lengths) == length + len(axes) - 1:
            return at, _unit(along), length
    return None


def _split_flat(at: Vector, a: Vector, b: Vector) -> list[tuple[Vector, ...]]:
    """Split the block at `at` along a, b into smaller blocks, in the order along the curve."""
    if 2 * abs(sum(a)) > 3 * abs(sum(b)):
        a2 = _even_half(a)
        return [(at, a2, b), (_add(at, a2), _add(a, a2, -1), b)]
    a2, b2 = _half(a), _even_half(b)
    ra, rb = _add(a, a2, -1), _add(b, b2, -1)
    end = _add(_add(at, _add(a, _unit(a), -1)), _add(b2, _unit(b), -1))
    return [(at, b2, a2), (_add(at, b2), a, rb), (end, _minus(b2), _minus(ra))]


def _split(at: Vector, a: Vector, b: Vector, c: Vector) -> list[tuple[Vector, ...]]:
    """Split the block at `at` along a, b, c into smaller blocks, in the order along the curve."""
    w, h, d = (abs(sum(v)) for v in (a, b, c))
    a2, b2, c2 = (_even_half(v) for v in (a, b, c))
    ra, rb, rc = (_add(v, v2, -1) for v, v2 in ((a, a2), (b, b2), (c, c2)))
    end_a, end_c = _add(a, _unit(a), -1), _add(c, _unit(c), -1)
    last_b2, last_c2 = _add(b2, _unit(b), -1), _add(c2, _unit(c), -1)
    if 2 * w > 3 * h and 2 * w > 3 * d:
        return [(at, a2, b, c), (_add(at, a2), ra, b, c)]
    if 3 * h > 4 * d:
        top = _add(_add(at, end_a), last_b2)
        return [(at, b2, c, a2), (_add(at, b2), a, rb, c), (top, _minus(b2), c, _minus(ra))]
    if 3 * d > 4 * h:
        top = _add(_add(at, end_a), last_c2)
        return [(at, c2, a2, b), (_add(at, c2), a, b, rc), (top, _minus(c2), _minus(ra), b)]
    return [
        (at, b2, c2, a2),
        (_add(at, b2), c, a2, rb),
        (_add(_add(at, last_b2), end_c), a, _minus(b2), _minus(rc)),
        (_add(_add(_add(at, end_a), b2), end_c), _minus(c), _minus(ra), rb),
        (_add(_add(at, end_a), last_b2), _minus(b2), c2, _minus(ra)),
    ]


def _unit(v: Vector) -> Vector:
    return ((v[0] > 0) - (v[0] < 0), (v[1] > 0) - (v[1] < 0), (v[2] > 0) - (v[2] < 0))


def _add(v: Vector, w: Vector, times: int = 1) -> Vector:
    return (v[0] + times * w[0], v[1] + times * w[1], v[2] + times * w[2])


def _minus(v: Vector) -> Vector:
    return (-v[0], -v[1], -v[2])


def _half(v: Vector) -> Vector:
    """Half of an axis, rounded down."""
    return (int(v[0] / 2), int(v[1] / 2), int(v[2] / 2))


def _even_half(v: Vector) -> Vector:
    """About half of an axis: an even number of cells if the axis has more than two."""
    half = _half(v)
    return _add(half, _unit(v)) if abs(sum(half)) % 2 == 1 and abs(sum(v)) > 2 else half
