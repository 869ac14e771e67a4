"""The exact solution of the command line's problem is one."""

import numpy as np
import pytest

import femops
from femops.cli.manufactured import Manufactured
from femops.errors import SpaceError


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_gradient_and_source_belong_to_the_solution(dim):
    problem = Manufactured.on(femops.box((3,) * dim, upper=[2.0, 1.0, 0.5][:dim]))
    x = np.random.default_rng(3).uniform(size=(dim, 20))
    h = 1e-4
    steps = h * np.eye(dim)[:, :, None]
    up, here, down = ([problem.exact(x + sign * step) for step in steps] for sign in (1, 0, -1))
    slopes = [(a - b) / (2 * h) for a, b in zip(up, down, strict=True)]
    np.testing.assert_allclose(problem.gradient(x), slopes, atol=1e-5)
    bends = [(a - 2 * m + b) / h**2 for a, m, b in zip(up, here, down, strict=True)]
    np.testing.assert_allclose(problem.source(x), -sum(bends), atol=1e-4)


def test_it_is_periodic_where_the_mesh_is():
    torus = femops.box((3, 4), upper=(2.0, 1.0), periodic=True)
    problem = Manufactured.on(torus)
    problem.check_periodic(femops.H1(torus, 3))
    assert femops.integrate(femops.H1(torus, 6), problem.exact) == pytest.approx(0, abs=1e-6)


def test_other_periods_are_refused():
    slanted = femops.box((3, 3), periodic=True, mapping=lambda x: [x[0] + 0.3 * x[1], x[1]])
    with pytest.raises(SpaceError, match="do not lie along the axes"):
        Manufactured.on(slanted).check_periodic(femops.H1(slanted, 2))
