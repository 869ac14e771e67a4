"""Numbering and halo over MPI: ranks agree with the space on the whole mesh."""

import numpy as np
import pytest

import femops
from femops.parallel.halo import Halo
from femops.parallel.numbering import h1_rank_numbering
from femops_meshes import part_of, partition


@pytest.mark.parallel(1, 2, 3, 4)
@pytest.mark.parametrize("name", ["ball.mesh", "disc.mesh", "periodic.mesh"])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_of_a_rank_are_those_of_the_whole(comm, name, dtype):
    mesh, order = femops.read_mesh(femops.sample(name)), 3
    shares = partition(mesh, comm.size)
    part = part_of(mesh, shares, comm.rank)
    numbering = h1_rank_numbering(part, order, comm)
    space = femops.H1(mesh, order)
    serial = space.restriction.indices[part.elements]
    np.testing.assert_array_equal(numbering.whole[numbering.indices], serial)

    halo = Halo(numbering, comm)
    totals = comm.sum(np.array([halo.messages, halo.numbers]))
    assert tuple(totals.tolist()) == shares.exchange(order)
    whole = np.random.default_rng(0).integers(-50, 50, (space.ndofs, 2)).astype(dtype)
    first, end = numbering.offsets[comm.rank : comm.rank + 2]
    ghosts = halo.forward(whole[first:end])
    np.testing.assert_array_equal(ghosts, whole[numbering.ghosts])
    sums = whole[first:end].copy()
    halo.reverse_add(ghosts, sums)
    touching = comm.sum(np.bincount(numbering.whole, minlength=space.ndofs))
    np.testing.assert_array_equal(sums, whole[first:end] * touching[first:end, np.newaxis])
