"""Every kernel against the naive oracle, over a pairwise cover of all that varies.

``make exhaustive`` runs the full product of degree, dimension, lanes, type, form and mesh.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any, final

import numpy as np
import pytest

from femops_kernels.cpu.machine import max_threads, set_threads
from support.cases import kernels as kernel_cases
from support.cases.kernels import (
    FACTORS,
    PAIRWISE,
    Case,
    cover,
    make_matrices,
    make_operator,
    make_space,
)
from support.oracles.naive import Matrices


@final
class Built:
    """A case with its space, its operator, and the oracle's matrices."""

    def __init__(self, case: Case) -> None:
        self.case, self.space = case, make_space(case)
        self.operator = make_operator(case, self.space)
        self.matrices: Matrices = make_matrices(case, self.space)
        self.u = kernel_cases.random_vector(self.space, case.dtype)
        self.v = kernel_cases.random_vector(self.space, case.dtype, seed=12)


@pytest.fixture(scope="module", params=cover(), ids=str)
def built(request: pytest.FixtureRequest) -> Built:
    return Built(request.param)


def test_the_cover_holds_every_pair_that_makes_sense() -> None:
    met = set().union(*(PAIRWISE.pairs(vars(case)) for case in cover()))
    assert PAIRWISE.feasible <= met
    assert len(PAIRWISE.feasible) > 650
    assert len(cover()) <= 70


@pytest.mark.sample(4)
def test_apply_is_the_oracles(built: Built) -> None:
    result = built.operator.apply(built.u)
    assert result.dtype == built.case.dtype
    assert result.shape == built.u.shape
    assert built.matrices.error(result, built.u) < built.case.tolerance


@pytest.mark.sample(4)
def test_the_bits_are_the_same_for_any_number_of_threads(built: Built) -> None:
    check_threads(built.operator, built.u)


def check_threads(operator: Any, u: Any) -> None:
    before = max_threads()
    assert before >= 3, "tests/conftest.py must allow three threads"
    results = []
    for threads in (1, 2, 3):
        set_threads(threads)
        results.append(operator.apply(u))
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


def test_it_is_symmetric_and_its_own_adjoint(built: Built) -> None:
    check_symmetry(built)


def check_symmetry(built: Built) -> None:
    u, v = built.u.ravel().astype(float), built.v.ravel().astype(float)
    forward = v @ built.operator.apply(built.u).ravel().astype(float)
    backward = u @ built.operator.T.apply(built.v).ravel().astype(float)
    # sums of round-off: the bilinear form of |A| bounds both
    scale = np.abs(v) @ (abs(built.matrices.assembled()) @ np.abs(u))
    assert abs(forward - backward) < built.case.tolerance * scale


@pytest.mark.sample(4)
def test_diagonal_is_the_oracles(built: Built) -> None:
    expected = built.matrices.diagonal()
    got = built.operator.diagonal()
    assert got.shape == built.space.shape
    assert got.dtype == built.case.dtype
    error = np.abs(got.ravel() - expected).max() / np.abs(expected).max()
    assert error < built.case.tolerance


@pytest.mark.sample(4)
def test_assembled_matrix_is_the_oracles(built: Built) -> None:
    expected = built.matrices.assembled()
    got = built.operator.assemble()
    assert got.dtype == built.case.dtype
    assert np.linalg.norm((got - expected).data) < built.case.tolerance * np.linalg.norm(
        expected.data
    )


FULL = list(
    itertools.product(
        FACTORS["dim"], FACTORS["p"], FACTORS["form"], FACTORS["dtype"], FACTORS["lanes"]
    )
)


@lru_cache(maxsize=24)
def oracle_of(case: Case) -> tuple[Any, Matrices]:
    """Space and oracle of a case with float64 and 8 lanes, which it does not depend on."""
    space = make_space(case)
    return space, make_matrices(case, space)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dim", "p", "form", "dtype", "lanes"), FULL)
def test_full_product(dim: int, p: int, form: str, dtype: str, lanes: int) -> None:
    for case in kernel_cases.product(p, dim, lanes, dtype, form):
        plain = Case(**{**vars(case), "lanes": 8, "dtype": "float64"})
        space, matrices = oracle_of(plain)
        operator = make_operator(case, space)
        u = kernel_cases.random_vector(space, dtype)
        assert matrices.error(operator.apply(u), u) < case.tolerance, str(case)
        check_threads(operator, u)
