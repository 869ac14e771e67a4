"""Levels of assembly that are refused: unknown ones, and what does not fit into memory."""

import tracemalloc

import numpy as np
import pytest

import femops
from femops.operators.assembly import csr as assembly
from support import fixtures
from support.cases.levels import LEVELS, divergence

problem = fixtures.problem


def test_an_unknown_level_is_refused(problem):
    for ask in (
        lambda: femops.mass(problem.space, level="matrix"),
        lambda: femops.form(divergence, problem.space, level="nothing"),
        lambda: problem.mass.at_level("Full"),
        lambda: problem.mass.at_level("decomposed"),
    ):
        with pytest.raises(
            femops.errors.OperatorError, match="full, element, partial, matrix-free, auto"
        ):
            ask()


def test_operators_of_two_levels_are_not_added(problem):
    with pytest.raises(femops.errors.OperatorError, match=r"at_level\('partial'\)"):
        problem.mass + problem.diffusion.at_level("element")


@pytest.mark.parametrize("level", ["full", "element"])
def test_what_does_not_fit_is_refused_before_it_is_allocated(problem, level, monkeypatch):
    monkeypatch.setattr(assembly, "available_memory", lambda: 50_000)
    tracemalloc.start()
    for ask in (
        lambda: femops.diffusion(problem.space, level=level),
        lambda: problem.diffusion.at_level(level),
    ):
        with pytest.raises(femops.errors.OperatorError, match=r"level=.* needs 0\.0 GiB"):
            ask()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000
    monkeypatch.undo()
    rows = problem.mesh.num_elements * 16 * 16
    needed = assembly.element_bytes(problem.diffusion._summands[0][1])
    kept = problem.diffusion.at_level("element").cost().stored_bytes
    assert rows * 8 <= needed <= kept


def test_a_coefficient_is_checked_at_every_level(problem):
    for level in LEVELS:
        with pytest.raises(femops.errors.OperatorError, match="finite"):
            femops.mass(problem.space, np.inf, level=level)
