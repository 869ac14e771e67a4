"""The benchmark of conjugate gradients; how fast anything is is not tested."""

import numpy as np
import pytest

from femops.bench.drawing import draw
from femops.bench.solvers.cg import run_cg
from femops.errors import OperatorError
from femops_kernels.cpu.machine import lane_width

QUICK = {"rounds": 1, "seconds": 0.0}


@pytest.fixture(scope="module")
def result():
    return run_cg((2,), 500, 1, meshes=("cartesian", "curved"), level="partial", **QUICK)


def test_a_row_for_each_mesh(result, tmp_path):
    assert [row["mesh"] for row in result["rows"]] == ["cartesian", "curved"]
    assert result["notes"] == []
    assert result["limits"][0]["threads"] == result["machine"]["threads"] == 1
    for row in result["rows"]:
        facts = row["problem"], row["order"], row["level"], row["threads"]
        assert facts == ("bp1", 2, "partial", 1)
        assert row["ratio"] == row["seconds_apart"] / row["seconds_merged"]
        assert row["seconds_saved"] == row["seconds_apart"] - row["seconds_merged"]
        assert row["dofs_per_second"] == row["dofs"] / row["seconds_merged"]
        assert min(row["seconds_apart"], row["seconds_merged"], row["seconds_operator"]) > 0
    path = draw(tmp_path / "cg.png", "cg", result["rows"])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_bytes_by_hand(result):
    """Of 13 passes over a vector 7 are left; 64 numbers and 27 indices of two bytes an element."""
    row = result["rows"][1]
    elements = round((row["dofs"] ** (1 / 3) - 1) / 2) ** 3
    width = lane_width(np.dtype("float64"), None)
    rest = -(-elements // width) * width * (64 * 8 + 27 * 2)
    vector = 8 * row["dofs"]
    assert row["ratio_by_bytes"] == pytest.approx((rest + 13 * vector) / (rest + 7 * vector))
    triad = result["limits"][0]["triad_gbytes_per_second"] * 1e9
    assert row["seconds_saved_by_bytes"] == pytest.approx(6 * vector / triad)


def test_a_matrix_has_nothing_to_merge(tmp_path):
    result = run_cg((1,), 100, 1, meshes=("cartesian",), level="full", **QUICK)
    assert result["rows"] == []
    assert result["notes"] == ["cartesian, order 1: nothing to merge at the level full"]
    with pytest.raises(OperatorError, match="nothing was measured"):
        draw(tmp_path / "none.png", "cg", result["rows"])


def test_bad_input():
    for changed in (
        *({"orders": ()}, {"dofs": 0.5}, {"meshes": ("round",)}),
        *({"level": "high"}, {"rounds": 0}),
    ):
        with pytest.raises(OperatorError):
            run_cg(**({"orders": (1,), "dofs": 100} | changed))
