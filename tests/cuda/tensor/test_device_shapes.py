"""Launch shapes of products on a device: all that may be chosen, the search, its database."""

import numpy as np
import pytest

from femops.bench.drawing import draw
from femops.bench.tensor.products import Products
from femops.bench.tensor.search import search_products
from femops.bench.timing import Fastest
from femops.tensor import Batch, Interleaved, Strided, gemm
from femops.tensor.known import KNOWN
from femops.tensor.lowering import Term, launches_on_device
from femops_kernels.cuda.tensor.shapes import settings_of
from femops_kernels.errors import KernelValueError
from femops_kernels.tuning import database
from support.cuda.host_device import host_device


@pytest.fixture
def device(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "users_table", lambda: tmp_path / "tuning.json")
    KNOWN.clear()
    yield host_device()
    KNOWN.clear()


def launched(device, sizes, dtype, layout, members):
    """Operands, their product, the kernel and its launches."""
    rng = np.random.default_rng(0)
    m, n, k = sizes
    numbers = [rng.standard_normal((members, *one)).astype(dtype) for one in ((m, k), (k, n))]
    a, b = (Batch.wrap(one).copy(layout).to(device) for one in numbers)
    c = Batch((m, n), members, dtype, layout, device)
    terms = Term(a.view, "ik"), Term(b.view, "kj"), Term(c.view, "ij")
    return c, numbers[0] @ numbers[1], *launches_on_device(terms, members, False, device)


PRODUCTS = [
    ((5, 3, 4), "float64", Strided()),
    ((2, 7, 3), "float32", Interleaved(8)),
    ((6, 6, 2), "complex128", Strided("F")),
]


@pytest.mark.parametrize(("sizes", "dtype", "layout"), PRODUCTS)
def test_every_shape_multiplies(device, sizes, dtype, layout):
    c, expected, kernel, launches = launched(device, sizes, dtype, layout, 70)
    shapes = kernel.variants()
    assert len(set(shapes)) == len(shapes) > 3
    assert kernel.shape == shapes[0]
    eps = 50 * np.finfo(dtype).eps
    for shape in shapes[:: max(1, len(shapes) // 4)]:
        c.assign(np.nan)
        for places, batches in launches:
            kernel.reshaped(shape).run(places, batches, (1.0, 0.0), (0.0, 0.0))
        assert np.abs(c.numpy() - expected).max() <= eps * np.abs(expected).max(), shape


def test_what_a_search_finds_is_taken_later(device, tmp_path, monkeypatch):
    products = Products((4,), (50,))
    wanted = {}

    def last(timed, rounds):
        """The last candidate is the fastest, whatever the time; all but the ends are not run."""
        first, *_, best = timed
        seconds = {
            shape: [run() if shape in (first, best) else 1.0] for shape, run in timed.items()
        }
        assert min(seconds.values()) > [0.0]
        wanted[len(wanted)] = best
        return Fastest(best, 1.5, len(timed), seconds)

    monkeypatch.setattr("femops.bench.tensor.search.fastest", last)
    result = search_products(products, 1, place=device, seconds=0.0)
    rows = result["rows"]
    assert result["device"] == device.name
    assert {row["layout"] for row in rows} == set(products.layouts)
    assert sum(row["chosen"] for row in rows) == 2
    assert all(row["gflops"] > 0 for row in rows)
    assert draw(tmp_path / "search.png", "search", rows[:3]).stat().st_size > 0
    _, _, kernel, _ = launched(device, (4, 4, 4), "float64", Strided(), 9)
    assert kernel.shape == wanted[0] != kernel.variants()[0]
    a, b = (np.random.default_rng(s).standard_normal((9, 4, 4)) for s in (0, 1))
    x, y = (Batch.wrap(one).to(device) for one in (a, b))
    assert np.allclose(gemm(x, y).numpy(), a @ b)
    _, _, other, _ = launched(device, (4, 4, 3), "float64", Strided(), 9)
    assert other.shape == other.variants()[0]


def test_a_shape_that_does_not_fit_is_not_taken(device):
    _, _, kernel, _ = launched(device, (4, 4, 4), "float64", Strided(), 9)
    wrong = settings_of(kernel.variants()[0]) | {"members": 4096}
    database.record({kernel.tuning_key(): wrong})
    KNOWN.clear()
    _, _, again, _ = launched(device, (4, 4, 4), "float64", Strided(), 9)
    assert again.shape == again.variants()[0]


def test_a_search_needs_a_device():
    with pytest.raises(KernelValueError, match="give 'cuda'"):
        search_products(Products((4,), (50,)), place="cpu")
