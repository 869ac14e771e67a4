"""Measurements of many vectors: which methods there are for how many."""

from __future__ import annotations

import pytest

from femops.bench.multivector import METHODS, run_multivector
from femops.errors import OperatorError
from femops_kernels.cpu import machine

SLOTS = machine.lane_width()


def test_fewer_vectors_than_lanes_have_slots() -> None:
    """A note says why a method has no row."""
    few = SLOTS - 1, SLOTS
    result = run_multivector(orders=(1,), vectors=few, cells=1, rounds=1, seconds=0.0)
    methods = {count: set() for count in few}
    for row in result["rows"]:
        methods[row["nvec"]].add(row["method"])
    assert methods == {SLOTS - 1: {"one by one"}, SLOTS: set(METHODS)}
    assert any(f"fewer than {SLOTS} vectors" in note for note in result["notes"])


@pytest.mark.parametrize("mesh", ["cartesian", "multilinear"])
def test_multiply_adds_are_known_on_boxes_too(mesh: str) -> None:
    result = run_multivector(("helmholtz",), (mesh,), ("columns",), (2,), (SLOTS,), cells=8)
    (row,) = result["rows"]
    assert 0 < row["fraction_of_fma_peak"] < 2


def test_nothing_to_measure() -> None:
    with pytest.raises(OperatorError, match=f"{SLOTS - 1} vectors at most: give {SLOTS} or more"):
        run_multivector(vectors=(1, SLOTS - 1), methods=("columns", "panels"))
