"""Elliptic problems with exact solutions of W. F. Mitchell (2010).

*A Collection of 2D Elliptic Problems for Testing Adaptive Algorithms*, NISTIR 7668. The battery,
number 5, has no exact solution, but an energy that finer meshes approach. Sources are given in weak
form, by the exact flux, so solutions that are too singular for a source in L2 need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import femops
from femops_meshes.coordinates.mapping import positions

Array = NDArray[np.float64]
Function = Callable[[Array], Any]
PI = np.pi


@dataclass(frozen=True)
class Case:
    """A problem: a mesh, the exact solution, its gradient, and the equation."""

    mesh: femops.Mesh
    exact: Function  # x (dim, n) -> (n,) or (2, n)
    gradient: Function  # -> (dim, n) or (2, dim, n)
    equation: str = "poisson"
    parameter: float = 1.0

    def problem(self, order: int) -> Callable[[femops.Mesh], Any]:
        """The problem of `femops.adapt.loop`."""

        def made(mesh: femops.Mesh) -> Any:
            F, held = EQUATIONS[self.equation](self, mesh, order)
            return F.constrained(held), self.values

        return made

    def values(self, V: Any) -> Array:
        """The exact solution at the nodes, seen from inside the elements: it may have cuts."""
        nodes = positions(V.mesh.coordinates, V.element.nodes)
        middle = nodes.mean(axis=1, keepdims=True)
        x = (middle + (1.0 - 1e-13) * (nodes - middle)).reshape(-1, 2).T
        found = np.asarray(self.exact(x), dtype=np.float64).reshape(-1, x.shape[1]).T
        shape = nodes.shape[:2] + (() if V.ncomp == 1 else (V.ncomp,))
        return np.ascontiguousarray(V.restriction.assigned(found.reshape(shape))).reshape(-1)

    def error(self, V: Any, u: Array) -> float:
        """Norm of the error that is measured: that of the flux, or of the gradient."""
        if self.equation == "interfaces":
            G = V.gradient(u, V.order + 6) - self._at_points(V)
            rule = V.quadrature(V.order + 6)
            from femops.geometry.jacobians import Geometry

            w = np.concatenate([block.weighted_det for block in Geometry(V.mesh, rule)])
            kappa = np.where(V.mesh.element_attributes == 2, self.parameter, 1.0)
            return float(np.sqrt((kappa[:, None] * w * (G**2).sum(axis=2)).sum()))
        return femops.h1_seminorm_error(V, u, self.gradient, quadrature=V.order + 6)

    def _at_points(self, V: Any) -> Array:
        x = positions(V.mesh.coordinates, V.quadrature(V.order + 6).points)
        return np.moveaxis(np.asarray(self.gradient(x.reshape(-1, 2).T)), 0, -1).reshape(x.shape)


def _poisson(case: Case, mesh: femops.Mesh, order: int) -> Any:
    V = femops.H1(mesh, order)
    F = femops.residual(lambda u, g: {"grad": u.grad - g}, V, g=case.gradient)
    return F, V.boundary_dofs()


def _interfaces(case: Case, mesh: femops.Mesh, order: int) -> Any:
    V = femops.H1(mesh, order)
    kappa = femops.by_attribute(mesh, {1: 1.0, 2: case.parameter})
    F = femops.residual(lambda u, kappa: {"grad": kappa * u.grad}, V, kappa=kappa)
    return F, V.boundary_dofs()


def _convection(case: Case, mesh: femops.Mesh, order: int) -> Any:
    V = femops.H1(mesh, order)

    def flow(u: Any, g: Any, eps: float) -> Any:
        d = u.grad - g
        return {"grad": eps * d, "value": 2.0 * d[0] + d[1]}

    return femops.residual(flow, V, g=case.gradient, eps=case.parameter), V.boundary_dofs()


def _oscillation(case: Case, mesh: femops.Mesh, order: int) -> Any:
    V, a = femops.H1(mesh, order), case.parameter
    well = lambda x: (a + np.hypot(*x)) ** -4.0  # noqa: E731
    F = femops.residual(
        lambda u, g, q, exact: {"grad": u.grad - g, "value": -q * (u - exact)},
        V,
        g=case.gradient,
        q=well,
        exact=case.exact,
        symmetric=True,
    )
    return F, V.boundary_dofs()


def _elasticity(case: Case, mesh: femops.Mesh, order: int) -> Any:
    V = femops.H1(mesh, order, ncomp=2)
    nu = case.parameter
    mu, lam = 0.5 / (1 + nu), nu / ((1 + nu) * (1 - 2 * nu))

    def stress(u: Any, g: Any) -> Any:
        e = (u.grad - g + (u.grad - g).T) / 2.0
        return {"grad": 2.0 * mu * e + lam * (e[0, 0] + e[1, 1]) * np.eye(2)}

    F = femops.residual(stress, V, g=case.gradient)
    return F, V.boundary_dofs(lambda x: np.maximum(*np.abs(x)) > 1 - 1e-9)


EQUATIONS = {
    "poisson": _poisson,
    "interfaces": _interfaces,
    "convection": _convection,
    "oscillation": _oscillation,
    "elasticity": _elasticity,
}


def polar(x: Array) -> tuple[Array, Array]:
    """Distance from the origin, and angle in [0, 2 pi)."""
    angle = np.arctan2(x[1], x[0])
    return np.maximum(np.hypot(*x), 1e-300), np.where(angle < 0.0, angle + 2.0 * PI, angle)


def slopes(power: float, r: Array, t: Array, f: Array, df: Array) -> Array:
    """Gradient of r**power f(t)."""
    along, around = power * f, df
    return r ** (power - 1.0) * np.stack(
        [along * np.cos(t) - around * np.sin(t), along * np.sin(t) + around * np.cos(t)]
    )


def square(n: int, low: float = 0.0, high: float = 1.0) -> femops.Mesh:
    """Mesh of a square."""
    return femops.box((n, n), (low, low), (high, high))


def notch(n: int, quarters: int) -> femops.Mesh:
    """Mesh of (-1, 1)^2 without the quadrants above a number of quarters: 4 leave a slit."""
    whole = square(2 * n, -1.0, 1.0)
    middle = whole.element_centers()
    angle = polar(middle.T)[1]
    keep = angle < quarters * PI / 2.0
    x = whole.coordinates[keep]
    keys = np.round(x.reshape(-1, 2) * n).astype(np.int64)
    below = (middle[keep, 1] < 0.0).repeat(4) & (keys[:, 1] == 0) & (keys[:, 0] > 0)
    vertices, elements = np.unique(np.column_stack([keys, below]), axis=0, return_inverse=True)
    return femops.Mesh.from_arrays(vertices[:, :2] / n, elements.reshape(-1, 4))


def analytic() -> Case:
    """1: a polynomial of degree 40."""
    p = 10

    def f(s: Array) -> Array:
        return (4.0 * s * (1.0 - s)) ** p

    def df(s: Array) -> Array:
        return p * (4.0 * s * (1.0 - s)) ** (p - 1) * (4.0 - 8.0 * s)

    return Case(
        square(4),
        lambda x: f(x[0]) * f(x[1]),
        lambda x: np.stack([df(x[0]) * f(x[1]), f(x[0]) * df(x[1])]),
    )


def corner(quarters: int = 3) -> Case:
    """2: a corner that looks inward; 4 quarters are a slit."""
    a = 2.0 / quarters

    def exact(x: Array) -> Array:
        r, t = polar(x)
        return r**a * np.sin(a * t)

    def gradient(x: Array) -> Array:
        r, t = polar(x)
        return slopes(a, r, t, np.sin(a * t), a * np.cos(a * t))

    return Case(notch(2, quarters), exact, gradient)


def crack(mode: int = 1) -> Case:
    """3: plane strain around a crack."""
    power, q = {1: (0.5444837367825, 0.5430755788367), 2: (0.9085291898461, -0.2189232362488)}[mode]
    nu = 0.3
    k, g2 = 3.0 - 4.0 * nu, 1.0 / (1.0 + nu)

    def parts(t: Array) -> tuple[Array, Array, Array, Array]:
        a, b = power, power - 2.0
        c, s = (k - q * (power + 1.0)), (k + q * (power + 1.0))
        return (
            (c * np.cos(a * t) - power * np.cos(b * t)) / g2,
            (-c * a * np.sin(a * t) + power * b * np.sin(b * t)) / g2,
            (s * np.sin(a * t) + power * np.sin(b * t)) / g2,
            (s * a * np.cos(a * t) + power * b * np.cos(b * t)) / g2,
        )

    def exact(x: Array) -> Array:
        r, t = polar(x)
        u, _, v, _ = parts(t)
        return r**power * np.stack([u, v])

    def gradient(x: Array) -> Array:
        r, t = polar(x)
        u, du, v, dv = parts(t)
        return np.stack([slopes(power, r, t, u, du), slopes(power, r, t, v, dv)])

    return Case(notch(2, 4), exact, gradient, "elasticity", nu)


def peak(a: float = 1000.0, at: tuple[float, float] = (0.5, 0.5)) -> Case:
    """4: an exponential peak."""

    def exact(x: Array) -> Array:
        return np.exp(-a * ((x[0] - at[0]) ** 2 + (x[1] - at[1]) ** 2))

    def gradient(x: Array) -> Array:
        return -2.0 * a * np.stack([x[0] - at[0], x[1] - at[1]]) * exact(x)

    return Case(square(4), exact, gradient)


def layer(eps: float = 1e-1) -> Case:
    """6: a boundary layer of convection and diffusion."""

    def parts(x: Array) -> tuple[Array, Array, Array, Array]:
        e = [np.exp(-(1.0 - s) / eps) for s in x]
        return 1.0 - e[0], 1.0 - e[1], -e[0] / eps, -e[1] / eps

    def exact(x: Array) -> Array:
        a, b, _, _ = parts(x)
        return a * b * np.cos(PI * (x[0] + x[1]))

    def gradient(x: Array) -> Array:
        a, b, da, db = parts(x)
        c, s = np.cos(PI * (x[0] + x[1])), -PI * np.sin(PI * (x[0] + x[1]))
        return np.stack([da * b * c + a * b * s, a * db * c + a * b * s])

    return Case(square(4, -1.0, 1.0), exact, gradient, "convection", eps)


def boundary_line(a: float = 0.6) -> Case:
    """7: a singularity along a side."""

    def gradient(x: Array) -> Array:
        return np.stack([a * np.maximum(x[0], 1e-300) ** (a - 1.0), 0.0 * x[0]])

    return Case(square(2), lambda x: np.maximum(x[0], 0.0) ** a, gradient)


def oscillatory(n: float = 2.0) -> Case:
    """8: oscillations that become shorter towards a corner."""
    a = 1.0 / (n * PI)

    def gradient(x: Array) -> Array:
        r = np.maximum(np.hypot(*x), 1e-300)
        return -np.cos(1.0 / (a + r)) / (a + r) ** 2 * x / r

    return Case(square(4), lambda x: np.sin(1.0 / (a + np.hypot(*x))), gradient, "oscillation", a)


def wave_front(a: float = 20.0, x0: float = -0.05, y0: float = -0.05, r0: float = 0.7) -> Case:
    """9: a circular front. (50, 0.5, 0.5, 0.25) has its centre inside, and is singular there."""

    def apart(x: Array) -> Array:
        return np.maximum(np.hypot(x[0] - x0, x[1] - y0), 1e-300)

    def gradient(x: Array) -> Array:
        r = apart(x)
        return a / (1.0 + a**2 * (r - r0) ** 2) / r * np.stack([x[0] - x0, x[1] - y0])

    return Case(square(4), lambda x: np.arctan(a * (apart(x) - r0)), gradient)


def inner_line(a: float = 2.5, b: float = 0.0) -> Case:
    """10: a singularity along a line, with the slope b."""

    def past(x: Array) -> Array:
        return np.maximum(x[0] - b * (x[1] + 1.0), 0.0)

    def gradient(x: Array) -> Array:
        s = a * np.where(past(x) > 0.0, np.maximum(past(x), 1e-300) ** (a - 1.0), 0.0)
        return np.stack([s, -PI / 2 * np.sin(PI * x[1] / 2) - b * s])

    return Case(square(4, -1.0, 1.0), lambda x: np.cos(PI * x[1] / 2) + past(x) ** a, gradient)


def interfaces() -> Case:
    """11: Kellogg's, where four quadrants meet."""
    tau, rho, sigma = 0.1, PI / 4.0, -14.92256510455152

    def parts(x: Array) -> tuple[Array, Array, Array, Array]:
        r, t = polar(x)
        where = [t <= PI / 2, t <= PI, t <= 1.5 * PI]
        factor = np.select(
            where,
            [np.cos((PI / 2 - sigma) * tau), np.cos(rho * tau), np.cos(sigma * tau)],
            np.cos((PI / 2 - rho) * tau),
        )
        phase = np.select(
            where, [t - PI / 2 + rho, t - PI + sigma, t - PI - rho], t - 1.5 * PI - sigma
        )
        return r, t, factor * np.cos(phase * tau), -tau * factor * np.sin(phase * tau)

    def exact(x: Array) -> Array:
        r, _, f, _ = parts(x)
        return r**tau * f

    def gradient(x: Array) -> Array:
        return slopes(tau, *parts(x))

    mesh = square(4, -1.0, 1.0)
    middle = mesh.element_centers()
    mesh = mesh.with_attributes(np.where(middle[:, 0] * middle[:, 1] > 0.0, 2, 1))
    return Case(mesh, exact, gradient, "interfaces", 161.4476387975881)


def difficulties() -> Case:
    """12: a corner, a front, a peak and a boundary layer."""
    all_of = [
        corner(3),
        wave_front(200.0, 0.0, -0.75, 0.75),
        peak(1000.0, (np.sqrt(5.0) / 4.0, -0.25)),
    ]
    eps = 0.01

    def exact(x: Array) -> Array:
        return sum(one.exact(x) for one in all_of) + np.exp(-(1.0 + x[1]) / eps)

    def gradient(x: Array) -> Array:
        total = sum(one.gradient(x) for one in all_of)
        return total + np.stack([0.0 * x[0], -np.exp(-(1.0 + x[1]) / eps) / eps])

    return Case(notch(2, 3), exact, gradient)


def battery() -> femops.Mesh:
    """5: five materials, of which the third hardly conducts upwards; attributes are its numbers."""
    x, y = [0.0, 6.1, 6.5, 8.0, 8.4], [0.0, 0.8, 1.6, 3.6, 18.8, 21.2, 23.2, 24.0]
    mesh = femops.box(
        (4, 7),
        upper=(4, 7),
        mapping=lambda at: (np.interp(at[0], range(5), x), np.interp(at[1], range(8), y)),
    )
    rows = ["1111", "5451", "2451", "3451", "2451", "5551", "1111"]  # from below
    across, up = mesh.element_centers().T
    i, j = np.searchsorted(x, across) - 1, np.searchsorted(y, up) - 1
    return mesh.with_attributes(np.array([[*map(int, row)] for row in rows])[j, i])


BATTERY = 18035.797
"""Twice the energy that the heat of the battery has: orders 5 and 6 agree to 0.003 on a grid that
is graded towards all interfaces, of 138,000 and 198,000 dofs."""


def battery_problem(order: int) -> Callable[[femops.Mesh], Any]:
    """The battery for `femops.adapt.loop`, of heat that leaves through three sides."""
    kappa = {1: (25.0, 25.0), 2: (7.0, 0.8), 3: (5.0, 1e-4), 4: (0.2, 0.2), 5: (0.05, 0.05)}
    sides = {2: (2.0, 2.0), 3: (3.0, 1.0), 4: (1.0, 3.0)}  # attribute: c and g of q n + c u = g

    def load(W: Any) -> Array:
        b = femops.load(W, femops.by_attribute(W.mesh, {2: 1.0, 3: 1.0}, default=0.0))
        return b + sum(femops.boundary_load(W, g, side) for side, (_, g) in sides.items())

    def made(mesh: femops.Mesh) -> Any:
        V = femops.H1(mesh, order)
        A = femops.diffusion(V, femops.by_attribute(mesh, kappa))
        for side, (c, _) in sides.items():
            A = A + femops.boundary_mass(V, c, side)
        return A, load

    return made
