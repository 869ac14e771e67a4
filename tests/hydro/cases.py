"""Problems as the reference has them, written once more."""

import numpy as np

from tests.hydro.reference import Setup

PI = np.pi


def _still(x):
    return np.zeros_like(x)


def _vortices(x):
    u, v = np.sin(PI * x[0]) * np.cos(PI * x[1]), np.cos(PI * x[0]) * np.sin(PI * x[1])
    if len(x) == 2:
        return u, -v
    return u * np.cos(PI * x[2]), -v * np.cos(PI * x[2]), 0 * u


def _vortex_energy(x):
    c = [np.cos(2 * PI * a) for a in x]
    if len(x) == 2:
        return (1 + (c[0] + c[1]) / 4) * 1.5
    return (100 + ((c[2] + 2) * (c[0] + c[1]) - 2) / 16) * 1.5


def _vortex_heat(x):
    c1, c3 = ([np.cos(k * PI * a) for a in x] for k in (1, 3))
    return 3 / 8 * PI * (c3[0] * c1[1] - c1[0] * c3[1])


def vortices(dim):
    """Taylor and Green's."""
    heat = _vortex_heat if dim == 2 else None
    five_thirds = lambda x: 5 / 3  # noqa: E731
    return Setup(lambda x: 1.0, five_thirds, _vortices, _vortex_energy, False, heating=heat)


def tube():
    """Sod's."""

    def density(x):
        return np.where(x[0] < 0.5, 1.0, 0.1)

    def energy(x):
        return np.where(x[0] < 0.5, 1.0, 0.1) / density(x) / 0.4

    return Setup(density, lambda x: 1.4, _still, energy)


def blast(energy):
    """Sedov's."""
    return Setup(lambda x: 1.0, lambda x: 1.4, _still, energy)


def three_states():
    """The triple point."""

    def density(x):
        return np.where((x[0] > 1) & (x[1] > 1.5), 0.125, 1.0)

    def gamma(x):
        return np.where((x[0] > 1) & (x[1] <= 1.5), 1.4, 1.5)

    def energy(x):
        return np.where(x[0] > 1, 0.1, 1.0) / density(x) / (gamma(x) - 1)

    return Setup(density, gamma, _still, energy)


def two_layers():
    """Rayleigh and Taylor's."""

    def density(x):
        return np.where(x[1] >= 0, 2.0, 1.0)

    def velocity(x):
        return 0 * x[0], 0.02 * np.exp(-2 * PI * x[1] ** 2) * np.cos(2 * PI * x[0])

    def energy(x):
        return (6 - density(x) * x[1]) * 1.5 / density(x)

    return Setup(density, lambda x: 5 / 3, velocity, energy, vorticity=True, gravity=1.0)
