"""Draw the documentation's pictures: ``python docs/draw.py`` writes docs/images/*.svg."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
INK, SOFT, FIRST, SECOND, FILL = "#1f2933", "#9aa5b1", "#c2410c", "#1d4ed8", "#eef2f7"
STYLE = "font-family='DejaVu Sans, Helvetica, Arial, sans-serif'"
Point = tuple[float, float]


def text(at: Point, words: str, size: float = 12, color: str = INK, anchor: str = "middle") -> str:
    """Words centred on a point."""
    return (
        f"<text x='{at[0]:.1f}' y='{at[1] + size * 0.35:.1f}' font-size='{size}' fill='{color}' "
        f"text-anchor='{anchor}'>{escape(words)}</text>"
    )


def line(a: Point, b: Point, color: str = INK, width: float = 1.2, extra: str = "") -> str:
    """Return a straight line."""
    return (
        f"<line x1='{a[0]:.1f}' y1='{a[1]:.1f}' x2='{b[0]:.1f}' y2='{b[1]:.1f}' "
        f"stroke='{color}' stroke-width='{width}' {extra}/>"
    )


def arrow(a: Point, b: Point, color: str = INK, width: float = 1.6) -> str:
    """Return a line with a head at b."""
    (x, y), (dx, dy) = b, (b[0] - a[0], b[1] - a[1])
    length = max((dx**2 + dy**2) ** 0.5, 1e-9)
    ux, uy = 7 * dx / length, 7 * dy / length
    corners = [(x, y), (x - ux - uy / 2, y - uy + ux / 2), (x - ux + uy / 2, y - uy - ux / 2)]
    head = " ".join(f"{cx:.1f},{cy:.1f}" for cx, cy in corners)
    return (
        line(a, (x - ux / 2, y - uy / 2), color, width)
        + f"<polygon points='{head}' fill='{color}'/>"
    )


def dot(at: Point, label: str, radius: float = 10) -> str:
    """Return a labelled node."""
    circle = f"<circle cx='{at[0]:.1f}' cy='{at[1]:.1f}' r='{radius}' fill='white' stroke='{INK}'/>"
    return circle + text(at, label, 10)


def box(x: float, y: float, w: float, h: float, fill: str = FILL) -> str:
    """Return a rectangle with round corners."""
    return f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='6' fill='{fill}' stroke='{INK}'/>"


def square(x: float, y: float, size: float, color: str) -> str:
    """Return a square whose lower left corner is (x, y)."""
    place = f"x='{x}' y='{y - size}' width='{size}' height='{size}'"
    return f"<rect {place} fill='{FILL}' stroke='{color}'/>"


def svg(name: str, width: int, height: int, parts: list[str]) -> None:
    """Write the picture."""
    body = "\n".join(parts)
    (IMAGES / name).write_text(
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' {STYLE}>\n"
        f"<rect width='{width}' height='{height}' fill='white'/>\n{body}\n</svg>\n"
    )


def cube(x: float, y: float, size: float) -> dict[tuple[int, int, int], Point]:
    """Corners of a cube seen from the front, right and above, by (i1, i2, i3)."""
    return {
        (i, j, k): (x + size * (i + 0.45 * j), y - size * (0.95 * k + 0.32 * j))
        for i in (0, 1)
        for j in (0, 1)
        for k in (0, 1)
    }


def cube_edges(corner: dict[tuple[int, int, int], Point]) -> list[str]:
    """Edges of the cube, the hidden ones dashed."""
    parts = []
    for a, at in corner.items():
        for d in range(3):
            b = tuple(1 if e == d else a[e] for e in range(3))
            if a[d] == 0:
                hidden = (0, 1, 0) in (a, b)
                parts.append(line(at, corner[b], SOFT if hidden else INK))
    return parts


def axes(at: Point, three: bool) -> list[str]:
    """Return small coordinate axes."""
    x, y = at
    parts = [arrow(at, (x + 34, y), FIRST), text((x + 42, y), "x", 12, FIRST)]
    if three:
        parts += [arrow(at, (x + 18, y - 13), SECOND), text((x + 26, y - 17), "y", 12, SECOND)]
        parts += [arrow(at, (x, y - 34)), text((x, y - 43), "z")]
    else:
        parts += [arrow(at, (x, y - 34), SECOND), text((x, y - 43), "y", 12, SECOND)]
    return parts


def local_nodes() -> list[str]:
    """Numbers of the local nodes of a quadrilateral (p = 2) and the corners of a hexahedron."""
    parts = [
        text((95, 22), "local nodes, p = 2", 13),
        text((300, 22), "corners of a hexahedron", 13),
    ]
    spot = {(i, j): (40.0 + 55 * i, 165.0 - 55 * j) for i in range(3) for j in range(3)}
    for k in range(3):
        parts += [line(spot[0, k], spot[2, k], SOFT), line(spot[k, 0], spot[k, 2], SOFT)]
    parts += [dot(at, str(i + 3 * j)) for (i, j), at in spot.items()]
    corner = cube(245, 170, 90)
    parts += cube_edges(corner)
    parts += [dot(at, str(i + 2 * j + 4 * k)) for (i, j, k), at in corner.items()]
    return [*parts, *axes((30, 235), False), *axes((245, 235), True)]


def entity_codes() -> list[str]:
    """Ternary codes of the entities of a quadrilateral and of the faces of a hexahedron."""
    parts = [text((500, 22), "entity codes", 13), text((690, 22), "face codes", 13)]
    x, y, size = 450.0, 165.0, 110.0
    parts.append(square(x, y, size, INK))
    for t1 in range(3):
        for t2 in range(3):
            at = (x + t1 * size / 2, y - t2 * size / 2)
            color = INK if (t1, t2) == (1, 1) else FIRST if 1 in (t1, t2) else SECOND
            parts.append(
                f"<circle cx='{at[0]}' cy='{at[1]}' r='11' fill='white' stroke='{color}'/>"
            )
            parts.append(text(at, str(t1 + 3 * t2), 11, color))
    corner = cube(640, 170, 90)
    parts += cube_edges(corner)
    middle = {}
    for d in range(3):
        for side in (0, 1):
            four = [at for c, at in corner.items() if c[d] == side]
            center = (sum(a for a, _ in four) / 4, sum(b for _, b in four) / 4)
            middle[13 + (2 * side - 1) * 3**d] = center
    hidden = (4, 12, 16)
    for code, at in middle.items():
        parts.append(text(at, str(code), 13, SOFT if code in hidden else FIRST))
    words = "t = t1 + 3 t2 + 9 t3; 0 low end, 1 interior, 2 high end"
    return [*parts, text((620, 222), words, 12)]


def orientations() -> list[str]:
    """The eight orientations: where the element's two directions point in the face's own frame."""
    parts = [
        text(
            (400, 282),
            "orientations of a quadrilateral: the element's first (red) and second (blue) "
            "direction in the face's own frame",
            13,
        )
    ]
    for o in range(8):
        flip1, flip2, swap = o & 1, o >> 1 & 1, o >> 2
        x, y, size = 30.0 + 95 * o, 370.0, 58.0
        parts.append(square(x, y, size, SOFT))
        # Without a swap the element's first direction is the face's first; with it, the second.
        along = [(1, 0), (0, 1)] if not swap else [(0, 1), (1, 0)]
        flips = [flip1, flip2]
        origin = [0.0, 0.0]
        for direction, flip in zip(along, flips, strict=True):
            origin[0] += direction[0] * flip
            origin[1] += direction[1] * flip
        inset = 10.0
        start = tuple(inset + c * (size - 2 * inset) for c in origin)
        for direction, flip, color in zip(along, flips, (FIRST, SECOND), strict=True):
            sign = -1 if flip else 1
            reach = (size - 2 * inset) * 0.95
            a = (x + start[0], y - start[1])
            b = (a[0] + sign * reach * direction[0], a[1] - sign * reach * direction[1])
            parts.append(arrow(a, b, color))
        parts.append(text((x + size / 2, y + 15), str(o), 13))
    note = "bit 0: first direction flipped, bit 1: second flipped, bit 2: swapped after the flips"
    return [*parts, text((400, 412), note, 12)]


def conventions() -> None:
    """Draw the picture of docs/conventions.md."""
    svg("conventions.svg", 800, 430, [*local_nodes(), *entity_codes(), *orientations()])


STEPS = [
    ("t_vec", "true dofs", "P", "prolongation", "identity on one rank"),
    ("l_vec", "dofs of a rank", "E", "restriction", "femops.spaces.restriction"),
    ("e_vec", "dofs of elements", "B", "1-D matrices", "femops.basis"),
    ("q_vec", "quadrature points", "D", "physics", "femops.forms, femops.pointwise"),
]


def architecture() -> None:
    """Draw the picture of docs/architecture.md: the way of a vector through an operator."""
    parts = [text((400, 24), "y = Pᵀ Eᵀ Bᵀ D B E P x", 17)]
    for k, (name, meaning, letter, what, where) in enumerate(STEPS):
        x = 20 + 200 * k
        parts += [
            box(x, 60, 110, 50),
            text((x + 55, 78), name, 15),
            text((x + 55, 97), meaning, 11),
        ]
        parts += [box(x, 190, 110, 50), text((x + 55, 215), name, 15)]
        if k < 3:
            parts += [arrow((x + 114, 85), (x + 196, 85)), text((x + 155, 72), letter, 15, FIRST)]
            parts += [
                arrow((x + 196, 215), (x + 114, 215)),
                text((x + 155, 202), letter + "ᵀ", 15, FIRST),
            ]
            parts += [text((x + 155, 102), what, 10.5)]
        else:
            parts += [arrow((x + 55, 114), (x + 55, 186)), text((x + 72, 142), letter, 15, FIRST)]
            parts += [text((x + 66, 162), what, 10.5, anchor="start")]
        parts.append(text((x + 70, 272), f"{letter}: {where}", 10.5))
    place = "x='212' y='44' width='582' height='210' rx='10'"
    parts.append(f"<rect {place} fill='none' stroke='{FIRST}' stroke-dasharray='6 4'/>")
    parts.append(
        text((410, 142), "one compiled sweep: chunks of elements over threads,", 12, FIRST)
    )
    parts.append(
        text(
            (410, 160), "batches of elements in SIMD lanes; no e_vec or q_vec is stored", 12, FIRST
        )
    )
    svg("architecture.svg", 810, 292, parts)


CARD = 300, 240
"""Width and height of a card: the ratio of the pictures that examples draw."""


def grid(at: Point, shape: tuple[int, int], size: float, filled: set[tuple[int, int]]) -> list[str]:
    """Cells by column and row from the upper left corner; those of `filled` are coloured."""
    parts = []
    for i in range(shape[0]):
        for j in range(shape[1]):
            x, y = at[0] + size * i, at[1] + size * j
            fill = FIRST if (i, j) in filled else FILL
            where = f"x='{x:.1f}' y='{y:.1f}' width='{size}' height='{size}'"
            parts.append(f"<rect {where} fill='{fill}' stroke='white' stroke-width='1.5'/>")
    return parts


def convolution() -> list[str]:
    """Return an image with a window of 3 x 3, and the number that follows from it."""
    window = {(2 + i, 1 + j) for i in range(3) for j in range(3)}
    return [
        *grid((20, 60), (8, 8), 17, window),
        arrow((162, 128), (184, 128)),
        *grid((192, 77), (6, 6), 15, {(2, 1)}),
        text((88, 40), "image", 16),
        text((237, 40), "feature", 16),
    ]


def petsc_krylov() -> list[str]:
    """Return an operator without a matrix and a sparse matrix, which both enter PETSc."""
    band = {(i, j) for i in range(8) for j in range(8) if abs(i - j) in (0, 1, 3)}
    return [
        box(20, 50, 110, 90),
        text((75, 86), "A x", 20),
        text((75, 114), "no matrix", 14),
        *grid((188, 50), (8, 8), 11, band),
        text((75, 34), "operator", 16),
        text((232, 34), "low order", 16),
        box(85, 185, 130, 38, "white"),
        text((150, 204), "PETSc", 17),
        arrow((75, 144), (125, 182)),
        arrow((232, 144), (175, 182)),
    ]


def numba_krylov() -> list[str]:
    """Return a loop of compiled code that calls an operator."""
    return [
        box(25, 45, 125, 160),
        text((87, 75), "@njit", 18),
        text((87, 115), "r, u, x", 17),
        text((87, 155), "BiCGStab(l)", 16),
        box(205, 85, 75, 80),
        text((242, 125), "A x", 20),
        arrow((152, 105), (202, 105)),
        arrow((203, 145), (153, 145)),
    ]


def poisson_multigrid() -> list[str]:
    """Return a V-cycle: orders are halved, then the mesh is coarsened."""
    levels = ["order 4", "order 2", "order 1", "coarser"]
    down = [(25.0 + 33 * k, 40.0 + 50 * k) for k in range(4)]
    up = [(300 - x, y) for x, y in down]
    parts = [line(a, b, width=2) for way in (down, up) for a, b in pairwise(way)]
    parts += [line(down[-1], up[-1], width=2)]
    for place in (*down, *up):
        parts.append(f"<circle cx='{place[0]}' cy='{place[1]}' r='7' fill='{FIRST}'/>")
    heights = (40, 90, 140, 215)
    return [*parts, *(text((150, y), words, 15) for words, y in zip(levels, heights, strict=True))]


def scaling_mpi() -> list[str]:
    """Return a mesh that four ranks share."""
    parts = []
    for rank, fill in enumerate((FILL, "#fde3d3", "#d6e4ff", "#d7f0dd")):
        x, y = 70 + 84 * (rank % 2), 36 + 84 * (rank // 2)
        for k in range(16):
            place = f"x='{x + 19 * (k % 4)}' y='{y + 19 * (k // 4)}' width='19' height='19'"
            parts.append(f"<rect {place} fill='{fill}' stroke='{SOFT}'/>")
        parts.append(text((x + 38, y + 38), f"rank {rank}", 15))
    return parts


def tile_update() -> list[str]:
    """Return a tile whose first row and column change the rest."""
    edges = {(0, j) for j in range(1, 9)} | {(i, 0) for i in range(1, 8)}
    return [
        *grid((78, 50), (8, 9), 18, edges),
        text((150, 30), "A(m, n) -= A(m, 0) A(0, n)", 15),
        text((160, 140), "A(m, n)", 15),
    ]


def cards() -> None:
    """Draw the cards of the gallery for examples that draw no picture."""
    for draw in (convolution, petsc_krylov, poisson_multigrid, scaling_mpi, tile_update):
        svg(f"gallery_{draw.__name__}.svg", *CARD, draw())


if __name__ == "__main__":
    conventions()
    architecture()
    cards()
