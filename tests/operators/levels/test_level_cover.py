"""Every form at every level against the naive oracle, over a pairwise cover of all that varies.

The same bits for any number of threads, the transpose, and many vectors at once.

``make exhaustive`` runs the product of forms, levels, dimensions, degrees, meshes and sizes.
"""

import itertools

import numpy as np
import pytest

from femops.geometry.jacobians import ElementClass, LegendreGeometry, classify
from femops_kernels.cpu.machine import set_threads
from support.cases.kernels import make_mesh, random_vector
from support.cases.levels import FACTORS, LEVELS, PAIRWISE, build, cover, product


def test_the_cover_holds_every_pair_that_makes_sense():
    met = set().union(*(PAIRWISE.pairs(vars(case)) for case in cover()))
    assert PAIRWISE.feasible <= met
    assert len(PAIRWISE.feasible) > 650
    assert len(cover()) <= 130
    together = {(case.form, case.level) for case in cover()}
    assert len(together) == len(FACTORS["form"]) * len(LEVELS)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("size", ["one", "few", "many"])
def test_the_meshes_are_what_they_are_called(dim, size):
    expected = {"box": (True, 1), "sheared": (True, 1), "multilinear": (dim == 1, 1)}
    expected |= {"curved": (False, 3)}
    for kind, facts in expected.items():
        modes = LegendreGeometry(make_mesh(kind, dim, size))
        assert (modes.affine, modes.degree) == facts
    for kind in ("periodic", "unstructured") if size != "one" else ():
        assert not LegendreGeometry(make_mesh(kind, dim, size)).affine
    if dim > 1:  # not one element is affine
        assert set(classify(make_mesh("multilinear", dim, size))) == {ElementClass.MULTILINEAR}


MANY = {case for k, case in enumerate(cover()) if k % 4 == 0 or case.level == "full"}
"""Cases that are tried on many vectors, too: a lane of float64, and some that begin inside it."""


def check(case):
    operator, dense = build(case)
    assert operator.level == case.level
    u = random_vector(operator.space, case.dtype)
    v = random_vector(operator.test_space, case.dtype, 12)
    result = operator.apply(u)
    assert result.dtype == case.dtype
    assert dense.error(result, u) < case.tolerance
    assert dense.T.error(operator.T.apply(v), v) < case.tolerance
    for threads in (1, 2, 3):
        set_threads(threads)
        assert operator.apply(u).tobytes() == result.tobytes()
    most = abs(dense.matrix).max()
    assert abs(operator.assemble() - dense.matrix).max() < case.tolerance * most
    if operator.space is operator.test_space:
        gap = operator.diagonal().ravel() - dense.matrix.diagonal()
        assert abs(gap).max() < case.tolerance * most
    if case in MANY:
        check_many(case, operator, dense)


def check_many(case, operator, dense):
    U = np.random.default_rng(11).standard_normal((operator.shape[1], 11)).astype(case.dtype)
    result = operator @ U
    assert result.dtype == case.dtype
    assert result.shape == (operator.shape[0], 11)
    assert all(dense.error(y, x) < case.tolerance for x, y in zip(U.T, result.T, strict=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", [case for case in cover() if case not in MANY], ids=str)
def test_many_vectors(case):
    check_many(case, *build(case))


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", cover(), ids=str)
def test_every_form_at_every_level_is_the_oracles(case):
    check(case)


FULL = [
    choice
    for choice in itertools.product(FACTORS["form"], LEVELS, FACTORS["dim"], [1, 2, 3, 4])
    if any(product(*choice))
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("form", "level", "dim", "p"), FULL)
def test_full_product(form, level, dim, p):
    for case in product(form, level, dim, p):
        check(case)
