"""Meshes and problems of the tests of remap."""

from __future__ import annotations

from typing import final

import numpy as np

import femops
from femops.hydro.remap import AdvectionProblem, Box
from femops.hydro.remap.flow import Transport
from femops.hydro.remap.matrices import Matrices
from femops.hydro.remap.neighbours import Elements
from femops.hydro.remap.tables import Tables

WIND = np.array([0.8, -0.5, 0.3])


def meshes() -> dict[str, femops.Mesh]:
    """A line, a disc with turned neighbours, a periodic square, and a ball with turned faces."""
    files = {name: femops.read_mesh(femops.sample(name)) for name in ("disc", "ball")}
    bent = femops.box((4, 4), periodic=True, mapping=_bend, order=2)
    return {"line": femops.box((5,), order=2), "periodic": bent} | files


def _bend(x: np.ndarray) -> np.ndarray:
    """Move points by a function of period 1."""
    return x + 0.05 * np.sin(2 * np.pi * x[::-1])


def transport(mesh: femops.Mesh, order: int) -> tuple[Tables, Matrices]:
    """Matrices of transport by a constant wind."""
    tables, wind = Tables(mesh.order, order, mesh.dim), WIND[: mesh.dim, np.newaxis]
    flow = Transport(mesh.coordinates, tables.lattice, lambda x: wind + 0.0 * x)
    return tables, Matrices(tables, flow, 0.0, Elements.of(mesh))


@final
class Wave(AdvectionProblem):
    """A sine moves round a periodic box of length 1 and returns at t = 1."""

    number, mesh = -1, ""
    dims, moves_mesh = (1, 2), False

    def velocity(self, box: Box, x: np.ndarray) -> np.ndarray:
        return np.ones_like(x)

    def initial(self, box: Box, x: np.ndarray) -> np.ndarray:
        return np.sin(2.0 * np.pi * x[0]) * np.cos(2.0 * np.pi * x[-1])


@final
class Step(AdvectionProblem):
    """A step from 0 to 1 and back moves round a periodic line of length 1."""

    number, mesh = -2, ""
    dims, moves_mesh = (1,), False

    def velocity(self, box: Box, x: np.ndarray) -> np.ndarray:
        return np.ones_like(x)

    def initial(self, box: Box, x: np.ndarray) -> np.ndarray:
        return ((x[0] > 0.3) & (x[0] < 0.6)).astype(np.float64)


@final
class Swirl(AdvectionProblem):
    """A vortex moves the mesh of a square under a polynomial of degree 2."""

    number, mesh = -3, ""
    dims, moves_mesh = (2,), True

    def velocity(self, box: Box, x: np.ndarray) -> np.ndarray:
        a = np.pi * x
        return np.array([np.sin(a[0]) * np.cos(a[1]), -np.cos(a[0]) * np.sin(a[1])])

    def initial(self, box: Box, x: np.ndarray) -> np.ndarray:
        return np.ones(x.shape[1])
