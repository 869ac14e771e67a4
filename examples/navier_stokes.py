"""Flow around a cylinder (DFG benchmark 2D-1): drag and lift from one residual.

The benchmark of Schaefer and Turek (1996) at Reynolds number 20: a channel of length 2.2 and height
0.41, with a cylinder of radius 0.05 at (0.2, 0.2).  Taylor-Hood elements on a mesh with curved
sides; Newton's method on velocity and pressure together.  Drag and lift come in two ways: from the
stress on the cylinder, a functional over the boundary, and from the reactions, the residual at the
dofs where the cylinder holds the fluid, which converges twice as fast.
"""

from pathlib import Path

import numpy as np

import femops

ORDER = 4
VISCOSITY = 1e-3
CENTRE, RADIUS, LENGTH, HEIGHT = np.array([0.2, 0.2]), 0.05, 2.2, 0.41
# Forces are given in units of density * mean inflow**2 * diameter / 2.
UNIT = 0.5 * 0.2**2 * 2 * RADIUS
DRAG, LIFT = 5.57953523384, 0.010618948146  # Nabh (1998)
SECTORS = 8


LEVELS = [0.0, 0.15, 0.45, 1.0]  # of the rings, from the cylinder to the square around it
COLUMNS = [HEIGHT, 0.6, 0.85, 1.15, 1.5, 1.85, LENGTH]
ROWS = [0.0, CENTRE[1], HEIGHT]
NAMES = {"cylinder": 1, "walls": 2, "inflow": 3, "outflow": 4}


def ring(sector, level):
    """Vertex of the rings."""
    return level * SECTORS + sector % SECTORS


def grid(column, row):
    """Vertex of the columns. Column 0 is the right side of the square."""
    if column == 0:
        return ring(row + SECTORS - 1, len(LEVELS) - 1)
    return SECTORS * len(LEVELS) + len(ROWS) * (column - 1) + row


def rings(along, across):
    """Corners and nodes of the elements between the cylinder and the square around it."""
    square = np.array([[1, 0], [1, 1], [0, 1], [-1, 1], [-1, 0], [-1, -1], [0, -1], [1, -1]])
    square = np.where(square < 0, 0.0, np.where(square > 0, HEIGHT, CENTRE))
    for k in range(SECTORS):
        angle = 2 * np.pi * (k + across) / SECTORS
        inner = CENTRE + RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        outer = square[k] + across[:, None] * (square[(k + 1) % SECTORS] - square[k])
        for level in range(len(LEVELS) - 1):
            low, high = LEVELS[level : level + 2]
            place = (low + along * (high - low))[:, None]
            corners = [ring(k + i, level + j) for i in range(2) for j in range(2)]
            yield corners, (1 - place) * inner + place * outer


def columns(along, across):
    """Corners and nodes of the elements behind the square."""
    for i in range(len(COLUMNS) - 1):
        for j in range(len(ROWS) - 1):
            x = COLUMNS[i] + along * (COLUMNS[i + 1] - COLUMNS[i])
            y = ROWS[j] + across * (ROWS[j + 1] - ROWS[j])
            corners = [grid(i + a, j + b) for b in range(2) for a in range(2)]
            yield corners, np.stack([x, y], axis=1)


def sides():
    """Corners and names of the pieces of the boundary."""
    last, end, top = len(LEVELS) - 1, len(COLUMNS) - 1, len(ROWS) - 1
    for k in range(SECTORS):
        yield [ring(k + 1, 0), ring(k, 0)], "cylinder"
    for k in (1, 2, 3, 4, 5, 6):
        yield [ring(k, last), ring(k + 1, last)], "inflow" if k in (3, 4) else "walls"
    for i in range(end):
        yield [grid(i, 0), grid(i + 1, 0)], "walls"
        yield [grid(i + 1, top), grid(i, top)], "walls"
    for j in range(top):
        yield [grid(end, j), grid(end, j + 1)], "outflow"


def channel(degree=4):
    """Mesh of the channel, curved at the cylinder."""
    points = femops.basis.lobatto(degree + 1).points
    along, across = (a.ravel() for a in np.meshgrid(points, points))
    elements = [*rings(along, across), *columns(along, across)]
    pieces = [*sides()]
    mesh = femops.Mesh.from_arrays(
        None,
        [corners for corners, _ in elements],
        coordinates=np.array([nodes for _, nodes in elements]),
        boundary=[corners for corners, _ in pieces],
        boundary_attributes=[NAMES[name] for _, name in pieces],
    )
    return mesh.with_names(boundary=NAMES)


def momentum(u, p, nu):
    """Steady flow: convection, viscous stress and pressure; the divergence is tested by q."""
    return {
        "u": {"value": u.grad @ u.value, "grad": nu * u.grad - p * np.eye(2)},
        "p": {"value": u.div},
    }


def inflow(x):
    """Parabola of mean 0.2."""
    return np.stack([1.2 * x[1] * (HEIGHT - x[1]) / HEIGHT**2, 0 * x[1]])


def force(component):
    """The fluid's force on the cylinder along x or y: n points out of the fluid."""

    def traction(u, p, n, nu):
        return -((nu * (u.grad + u.grad.T) - p * np.eye(2)) @ n)[component]

    return traction


def solve(refinements):
    """Velocity and pressure, and drag and lift from stress and from reactions."""
    mesh = channel().refine(refinements)
    W = femops.Product(u=femops.H1(mesh, ORDER, ncomp=2), p=femops.H1(mesh, ORDER - 1))
    V = W.spaces["u"]
    R = femops.residual(momentum, W, nu=VISCOSITY)
    held = V.boundary_dofs(["cylinder", "walls", "inflow"])
    start, at_inflow = V.zeros(), V.boundary_dofs("inflow")
    start[at_inflow] = V.interpolate(inflow)[at_inflow]
    guess = W.join(u=start, p=W.spaces["p"].zeros())
    x, info = femops.newton(R.constrained(W.positions(u=held)), guess, preconditioner="auto")
    assert info.converged
    stresses = [
        femops.functional(force(k), W, boundary="cylinder", nu=VISCOSITY)(x) / UNIT
        for k in range(2)
    ]
    reactions = W.split(R.residual(x))[0]
    around = [V.boundary_dofs("cylinder", components=k) for k in range(2)]
    return W, x, stresses, [-reactions[dofs].sum() / UNIT for dofs in around]


def main():
    """Solve on two meshes and compare with the published values."""
    for refinements in (0, 1):
        W, x, stresses, reactions = solve(refinements)
        for way, (drag, lift) in (("stress", stresses), ("reactions", reactions)):
            print(f"{W.size:6} unknowns, {way:9}: drag {drag:.6f}, lift {lift:.7f}")
    print(f"published: drag {DRAG:.6f}, lift {LIFT:.7f}")
    assert abs(reactions[0] - DRAG) < 1e-3
    assert abs(reactions[1] - LIFT) < 1e-4
    try:
        Path("out").mkdir(exist_ok=True)
        print(
            femops.io.picture(
                "out/navier_stokes.png", W.spaces["u"], W.split(x)[0], name="velocity"
            )
        )
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
