"""Vectors with which an eigensolver starts."""

from __future__ import annotations

import numpy as np

from femops.eigen.eigenpairs import SubspaceState
from femops.eigen.pencil import Pencil
from femops.errors import SolverError
from femops.fields.multivector import MultiVector
from femops.fields.reproducible import random_columns
from femops.parallel.comm import check, check_same
from femops_common.arguments import type_name

NEW_SEED = 2**32  # added to the seed: a state may have begun with random vectors of the same seed


def vectors_of_state(
    pencil: Pencil, state: SubspaceState, k: int, most: int, seed: int
) -> MultiVector:
    """Return a copy of a checked state's vectors, followed by random vectors. Collective.

    The result has more than k vectors, the number of eigenpairs wanted, if ``most`` allows it.
    """
    A = pencil.A
    with check(A.space.comm):  # a rank that raises alone would leave the others waiting
        if not isinstance(state, SubspaceState):
            raise SolverError(f"the state is {type_name(type(state))}: give result.state")
        X = state.vectors
        if X.space is not A.space or X.dtype != A.dtype or X.nvec < k:
            raise SolverError(
                f"the state has {X.nvec} vectors, {X.dtype}, of {X.space!r}; "
                f"{k} of {A.dtype} on {A.space!r} are asked for"
            )
    check_same(A.space.comm, "the state", {"number of vectors": X.nvec}, error=SolverError)
    taken = MultiVector.zeros(A.space, min(max(X.nvec, k + 1), most), X.dtype)
    given = min(X.nvec, most)
    taken[:given] = X if given == X.nvec else X[:given]
    taken.panels *= pencil.free[:, np.newaxis].astype(A.dtype)
    random_columns(taken, range(given, taken.nvec), seed + NEW_SEED, pencil.deviations)
    return taken


def basis_of_all(pencil: Pencil) -> MultiVector:
    """Return one vector for each free dof: the Ritz values of all are exact. Collective."""
    A, memory = pencil.A, pencil.A.space.memory
    mine = np.flatnonzero(memory.get(pencil.free))
    counts = np.concatenate([[0], A.space.comm.gather_all(np.array([len(mine)])).reshape(-1)])
    first = int(counts.cumsum()[A.space.comm.rank])
    X = MultiVector.zeros(A.space, pencil.count, A.dtype)
    scales = memory.get(pencil.deviations)
    for column, dof in enumerate(mine.tolist(), first):
        X.panels[column // X.width, dof, column % X.width] = scales[dof]
    return X


def number_of_vectors(k: int, guard: int | None) -> int:
    """Return k and the number of guard vectors, by default about a fifth of k."""
    return k + (max(4, k // 5) if guard is None else max(1, guard))
