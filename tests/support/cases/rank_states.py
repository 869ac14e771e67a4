"""Spaces of checkpoints, and the vectors that ranks must have of one that is known serially."""

import numpy as np

from femops import H1, L2

SPACES = {
    "linear": lambda mesh: H1(mesh, 1),
    "cubic": lambda mesh: H1(mesh, 3, ncomp=2),
    "bernstein": lambda mesh: H1(mesh, 2, family="bernstein"),
    "constant": lambda mesh: L2(mesh, 0),
    "jumps": lambda mesh: L2(mesh, 2, ncomp=3, family="gll"),
    "hermite": lambda mesh: L2(mesh, 3, family="hermite"),
}


def bits(shape, dtype, seed=0):
    """A vector of any bits, as there are infinities, several nans and two zeros too."""
    kind = np.dtype(dtype)
    numbers = np.random.default_rng(seed).bytes(int(np.prod(shape)) * kind.itemsize)
    vector = np.frombuffer(numbers, dtype=kind).reshape(shape).copy()
    vector.flat[:4] = [np.inf, -0.0, 0.0, np.nan]
    return vector


def share(serial, space, vector):
    """What a rank must have of a vector of the serial space, by the dofs of its elements."""
    result = np.empty(space.shape, dtype=vector.dtype)
    mine = space.restriction.indices
    whole = serial.restriction.indices[space.distributed.part.elements]
    owned = mine < space.ndofs
    space.components(result)[mine[owned]] = serial.components(vector)[whole[owned]]
    return result


def same(got, expected):
    """The same bits."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()
