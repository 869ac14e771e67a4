"""Lagrangian hydrodynamics written straight from the equations: NumPy and SciPy alone.

Dobrev, Kolev, Rieben, SIAM J. Sci. Comput. 34(5), 2012, on a grid of boxes.  It shares no code with
the library: its own bases, quadrature and indices, sparse mass matrices, direct solves, numpy's
eigenvalues.  Dofs of the grid are lexicographic, x fastest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.polynomial import legendre
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Any]


@dataclass(frozen=True)
class Setup:
    """Initial state and physics of a problem; functions take positions (dim, n)."""

    density: Function
    gamma: Function
    velocity: Function
    energy: Function | float  # a number: the energy of a blast at the origin
    viscosity: bool = True
    vorticity: bool = False
    heating: Function | None = None
    gravity: float = 0.0


def _gauss(n: int) -> tuple[Array, Array]:
    x, w = legendre.leggauss(n)
    return (x + 1) / 2, w / 2


def _lobatto(p: int) -> Array:
    inner = legendre.Legendre.basis(p).deriv().roots().real if p > 1 else []
    return (np.concatenate([[-1.0], np.sort(inner), [1.0]]) + 1) / 2


def _lagrange(nodes: Array, x: Array) -> tuple[Array, Array]:
    """Values and derivatives (points, nodes)."""
    v = np.vander(2 * nodes - 1, increasing=True)
    t, n = 2 * x - 1, len(nodes)
    powers = np.vander(t, n, increasing=True)
    slopes = np.hstack([np.zeros((len(x), 1)), 2 * powers[:, :-1] * np.arange(1, n)])
    inverse = np.linalg.inv(v)
    return powers @ inverse, slopes @ inverse


def _bernstein(p: int, x: Array) -> Array:
    return np.array([math.comb(p, i) * x**i * (1 - x) ** (p - i) for i in range(p + 1)]).T


def _kron(parts: list[Array]) -> Array:
    """Tensor product, the first factor fastest."""
    return reduce(np.kron, parts[::-1])


class Reference:
    """The semi-discrete equations on a grid with the given grid lines in each direction."""

    def __init__(
        self, lines: list[Array], setup: Setup, k: int = 2, m: int = 1, cfl: float = 0.5
    ) -> None:
        self.setup, self.k, self.cfl, self.dim = setup, k, cfl, len(lines)
        dim, counts = self.dim, [len(a) - 1 for a in lines]
        order = 3 * k + m - 1
        points, weights = _gauss(order // 2 + 1)
        nodes = _lobatto(k)
        b, g = _lagrange(nodes, points)
        self.B = _kron([b] * dim)
        self.G = np.stack([_kron([g if i == d else b for i in range(dim)]) for d in range(dim)])
        self.E = _kron([_bernstein(m, points)] * dim)
        self.w = _kron([weights[:, None]] * dim)[:, 0]
        cells = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1)
        cells = cells.transpose(*range(dim)[::-1], dim).reshape(-1, dim)
        local = np.stack(np.meshgrid(*[np.arange(k + 1)] * dim, indexing="ij"), -1)
        local = local.transpose(*range(dim)[::-1], dim).reshape(-1, dim)
        shape = [k * n + 1 for n in counts]
        stride = np.cumprod([1, *shape[:-1]])
        self.dofs = (k * cells[:, None] + local) @ stride
        axes = [
            np.append((a[:-1, None] + np.diff(a)[:, None] * nodes[:-1]).ravel(), a[-1])
            for a in lines
        ]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), 0)
        self.x0 = grid.transpose(0, *range(1, dim + 1)[::-1]).reshape(dim, -1).T.copy()
        self.n = len(self.x0)
        self.wall = np.stack(
            [np.isin(self.x0[:, d], (a[0], a[-1])) for d, a in enumerate(lines)], 1
        )
        self._initial(lines, m)
        self._masses()

    def _initial(self, lines: list[Array], m: int) -> None:
        """Energy and density are interpolated at Gauss nodes, then Bernstein coefficients."""
        dim, setup, x0 = self.dim, self.setup, self.x0[self.dofs]
        gauss = _gauss(m + 1)[0]
        at = _kron([_lagrange(_lobatto(self.k), gauss)[0]] * dim)
        to_bernstein = np.linalg.inv(_kron([_bernstein(m, gauss)] * dim))
        flat = lambda a: a.reshape(-1, dim).T  # noqa: E731
        where = flat(np.einsum("qi,eic->eqc", at, x0))
        ne, nl = len(x0), (m + 1) ** dim

        def project(f: Function) -> Array:
            values = np.broadcast_to(f(where), where.shape[1:])
            return np.asarray(values.reshape(ne, nl) @ to_bernstein.T)

        J = np.einsum("dqi,eic->eqcd", self.G, x0)
        self.J0inv, det = np.linalg.inv(J), np.linalg.det(J)
        self.xq0 = flat(np.einsum("qi,eic->eqc", self.B, x0)).reshape(dim, ne, -1)
        self.volume = np.abs(det * self.w).sum()
        self.h0 = (self.volume / ne) ** (1 / dim) / self.k
        rho = project(setup.density)
        self.rho0detw = (rho @ self.E.T) * det * self.w
        exact = np.broadcast_to(setup.density(self.xq0.reshape(dim, -1)), det.size)
        self.mass0 = exact.reshape(det.shape) * det * self.w
        self.gamma = np.broadcast_to(setup.gamma(x0.mean(1).T), ne)[:, None]
        if callable(setup.energy):
            self.e0 = project(setup.energy)
        else:
            delta = _kron([((1 - gauss) ** m)[:, None]] * dim)[:, 0]
            first = int(np.argmin(np.abs(x0).sum((1, 2))))
            self.e0 = np.zeros((ne, nl))
            self.e0[first] = to_bernstein @ delta
            integral = ((self.e0 @ self.E.T) * det * self.w).sum()
            self.e0 *= setup.energy / 2**dim / integral
        v = np.zeros_like(self.x0) + np.asarray(setup.velocity(self.x0.T)).T
        self.v0 = np.where(self.wall, 0.0, v)

    def _masses(self) -> None:
        blocks = np.einsum("qi,qj,eq->eij", self.B, self.B, self.mass0)
        rows, cols = (
            np.broadcast_to(a, blocks.shape) for a in (self.dofs[:, :, None], self.dofs[:, None, :])
        )
        M = sp.csr_matrix((blocks.ravel(), (rows.ravel(), cols.ravel())), shape=(self.n,) * 2)
        self.M = M
        self.solves = []
        for d in range(self.dim):
            free = np.flatnonzero(~self.wall[:, d])
            self.solves.append((free, spla.factorized(M[free][:, free].tocsc())))
        self.Me = np.linalg.inv(np.einsum("qi,qj,eq->eij", self.E, self.E, self.mass0))

    def stress(self, x: Array, v: Array, e: Array) -> tuple[Array, float]:
        """Stress times the adjugate of J, times weights, (ne, q, dim, dim); the time step."""
        s, xe, ve = self.setup, x[self.dofs], v[self.dofs]
        J = np.einsum("dqi,eic->eqcd", self.G, xe)
        det, inv = np.linalg.det(J), np.linalg.inv(J)
        rho = self.rho0detw / det / self.w
        energy = np.maximum(e @ self.E.T, 0.0)
        pressure = (self.gamma - 1) * rho * energy
        sound = np.sqrt(self.gamma * (self.gamma - 1) * energy)
        sigma = -pressure[..., None, None] * np.eye(self.dim)
        coefficient = np.zeros_like(rho)
        if s.viscosity:
            L = np.einsum("dqi,eic->eqcd", self.G, ve) @ inv
            D = (L + L.swapaxes(-1, -2)) / 2
            values, vectors = np.linalg.eigh(D)
            stretched = J @ self.J0inv @ vectors[..., :, :1]
            h = self.h0 * np.linalg.norm(stretched[..., 0], axis=-1)
            mu, factor = values[..., 0], 1.0
            if s.vorticity:
                norm = np.linalg.norm(L, axis=(-2, -1))
                div = np.abs(np.trace(L, axis1=-2, axis2=-1))
                factor = np.where(norm > 0, div / np.where(norm > 0, norm, 1.0), 1.0)
            y = np.clip((mu - 1e-12) / 2e-12, 0.0, 1.0)
            coefficient = 2 * rho * h**2 * np.abs(mu)
            coefficient += 0.5 * rho * h * sound * factor * (1 - (3 - 2 * y) * y * y)
            sigma = sigma + coefficient[..., None, None] * D
        h_min = np.linalg.svd(J, compute_uv=False)[..., -1] / self.k
        rate = sound / h_min + 2.5 * coefficient / rho / h_min**2
        with np.errstate(divide="ignore"):
            step = 0.0 if det.min() < 0 else float(np.min(self.cfl / np.maximum(rate, 0.0)))
        return sigma @ inv.swapaxes(-1, -2) * (det * self.w)[..., None, None], step

    def acceleration(self, stress: Array) -> Array:
        """dv/dt = -M^-1 F 1."""
        force = np.zeros((self.n, self.dim))
        np.add.at(force, self.dofs, -np.einsum("eqcd,dqi->eic", stress, self.G))
        if self.setup.gravity:
            force[:, 1] -= self.setup.gravity * np.asarray(self.M.sum(1)).ravel()
        out = np.zeros_like(force)
        for d, (free, solve) in enumerate(self.solves):
            out[free, d] = solve(force[free, d])
        return out

    def heating(self, stress: Array, x: Array, v: Array) -> Array:
        """de/dt = M_E^-1 F^T v."""
        rate = np.einsum("eqcd,dqi,eic->eq", stress, self.G, v[self.dofs])
        if self.setup.heating is not None:
            xe = x[self.dofs]
            det = np.linalg.det(np.einsum("dqi,eic->eqcd", self.G, xe))
            xq = np.einsum("qi,eic->ceq", self.B, xe)
            rate = rate + self.setup.heating(xq) * det * self.w
        return np.einsum("eij,ej->ei", self.Me, rate @ self.E)

    def energy(self, v: Array, e: Array) -> float:
        """Total energy."""
        vq = np.einsum("qi,eic->eqc", self.B, v[self.dofs])
        return float((self.rho0detw * (e @ self.E.T + (vq**2).sum(-1) / 2)).sum())

    def rate(self, s: tuple[Array, ...]) -> tuple[tuple[Array, ...], float]:
        x, v, e = s
        stress, step = self.stress(x, v, e)
        return (v, self.acceleration(stress), self.heating(stress, x, v)), step

    def rk4(self, s: tuple[Array, ...], dt: float) -> tuple[tuple[Array, ...], float, float]:
        """The step of Runge and Kutta; estimates of the first stage, and least of the others."""
        k1, d1 = self.rate(s)
        k2, d2 = self.rate(_add(s, dt / 2, k1))
        k3, d3 = self.rate(_add(s, dt / 2, k2))
        k4, d4 = self.rate(_add(s, dt, k3))
        total = tuple(a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
        return _add(s, dt / 6, total), d1, min(d2, d3, d4)

    def rk2avg(self, s: tuple[Array, ...], dt: float) -> tuple[tuple[Array, ...], float, float]:
        """Midpoint steps with averaged velocities, which conserve the energy."""
        x, v, e = now = s
        estimates = []
        for part in (0.5, 1.0):
            stress, step = self.stress(*now)
            estimates.append(step)
            a = self.acceleration(stress)
            mean = v + 0.5 * dt * a
            rate = (mean, a, self.heating(stress, now[0], mean))
            now = _add((x, v, e), part * dt, rate)
        return now, estimates[0], estimates[1]

    def run(self, t_final: float, method: str = "rk4", max_steps: int = 10**9) -> dict[str, float]:
        """Steps, the last step's size and the norm of the energy."""
        s = (self.x0, self.v0, self.e0)
        t, dt, steps, last, repeated = 0.0, self.stress(*s)[1], 0, False, False
        while not last and steps < max_steps:
            if t + dt >= t_final:
                dt, last = t_final - t, True
            new, first, later = getattr(self, method)(s, dt)
            # the first stage counts only where its stress is computed anew: in a repeated step
            estimate = min(first if repeated else np.inf, later, self.stress(*new)[1])
            repeated = estimate < dt
            if repeated:
                dt, last = 0.85 * dt, False
                continue
            s, t, steps = new, t + dt, steps + 1
            dt = 1.02 * dt if estimate > 1.25 * dt else dt
        norm = float(np.linalg.norm(s[2]))
        return {"steps": steps, "t": t, "dt": dt, "e_norm": norm, "energy": self.energy(*s[1:])}


def _add(s: tuple[Array, ...], factor: float, rate: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(a + factor * b for a, b in zip(s, rate, strict=True))


def refined(line: list[float], levels: int) -> Array:
    """Grid lines with each interval halved some times."""
    a = np.asarray(line, dtype=float)
    for _ in range(levels):
        a = np.insert(a, np.arange(1, len(a)), (a[1:] + a[:-1]) / 2)
    return a
