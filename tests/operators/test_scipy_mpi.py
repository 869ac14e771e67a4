"""Operators that several ranks hold, in the hands of SciPy."""

import functools

import numpy as np
import pytest
from scipy.sparse.linalg import cg

import femops
from femops.errors import OperatorError


def of_one_space(mesh):
    return femops.diffusion(femops.H1(mesh, 2, ncomp=2))


def of_a_product(mesh):
    W = femops.Product(u=femops.H1(mesh, 2), p=femops.H1(mesh, 1))
    return femops.form(lambda u, p: {"u": {"grad": u.grad}, "p": {"value": p.value}}, W)


@pytest.mark.parallel(1, 2)
@pytest.mark.parametrize("make", [of_one_space, of_a_product])
def test_scipys_solvers_are_refused_where_ranks_share_the_vectors(comm, make):
    """Their inner products are of what one rank has."""
    A = make(femops.box((3, 2), comm=comm))
    x, X = np.ones(A.shape[0]), np.ones((A.shape[0], 2))
    solve = functools.partial(cg, A, x, maxiter=1)
    uses = [solve, *(functools.partial(call, x) for call in (A.T.matvec, A.rmatvec, A.dot))]
    uses += [functools.partial(call, X) for call in (A.matmat, A.rmatmat)]
    for use in uses:
        if comm.size == 1:
            use()
            continue
        with pytest.raises(OperatorError, match=r"2 ranks hold .*femops\.cg, .* or by PETSc"):
            use()
