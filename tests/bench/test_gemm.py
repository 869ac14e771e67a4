"""The benchmark of small products: rows, their limit, a picture."""

import pytest

from femops.bench.drawing import draw
from femops.bench.tensor.products import Products, run_gemm
from femops.bench.tensor.search import search_products
from femops.errors import TensorError
from femops_kernels.cpu.tensor.contraction import Contraction, ContractionKernel, Variant
from femops_kernels.tuning import database


def test_rows_stand_beside_a_limit(tmp_path):
    products = Products((3, 5), (100,))
    result = run_gemm(products, rounds=1, seconds=0)
    ours = [row for row in result["rows"] if row["implementation"] == "femops"]
    assert {(row["n"], row["layout"]) for row in ours} == {
        (n, layout) for n in (3, 5) for layout in products.layouts
    }
    assert all(row["limit_gflops"] > 0 and row["gflops"] > 0 for row in result["rows"])
    assert all(row["over_best_peer"] > 0 for row in ours)
    assert {row["implementation"] for row in result["rows"]} >= {"femops", "numpy"}
    assert draw(tmp_path / "gemm.png", "gemm", result["rows"]).stat().st_size > 0


def test_what_cannot_be_measured_is_refused():
    for wrong in (
        *({"dtypes": ("float16",)}, {"layouts": ("sparse",)}),
        *({"sizes": (0,)}, {"members": ()}),
    ):
        with pytest.raises(TensorError):
            run_gemm(Products(**({"members": (9,)} | wrong)))


def test_a_search_keeps_the_best_for_later_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "users_table", lambda: tmp_path / "tuning.json")
    result = search_products(Products((3,), (50,), layouts=("contiguous",)), rounds=1)
    rows = result["rows"]
    (best,) = [row for row in rows if row["chosen"]]
    assert len({(row["rows"], row["vectors"], row["ahead"]) for row in rows}) == len(rows) > 1
    steps = range(0, 9, 3)
    square = Contraction("float64", steps, range(3), steps, range(3), steps, range(3))
    again = ContractionKernel(square, True).variant
    assert again == Variant(best["rows"], best["vectors"], best["ahead"])
    assert draw(tmp_path / "search.png", "search", rows).stat().st_size > 0
