"""The least time of a contraction: operations and bytes are counted, rates measured and kept."""

import numpy as np
import pytest

from femops.tensor import limit, model

RATES = {"peak": 100.0, "bandwidth": [[40.0, 20.0, 10.0]] * 7}


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(model, "measured", lambda threads: RATES)


def test_operations_and_bytes(known):
    A = np.ones((1000, 16, 16))
    least = limit("ik,kj->ij", A, A, beta=1.0)
    assert (least.flops, least.read, least.written) == (2 * 16**3 * 1e3, 3 * A.nbytes, A.nbytes)
    assert (least.bandwidth, least.bound) == (20.0, "memory")
    assert least.gflops == pytest.approx(16 * 20.0 / 16)  # n W / 16
    B, D = np.ones((5, 3)), np.ones((1000, 5, 5))
    least = limit("ki,lj,kl->ij", B, B, D)
    assert least.flops == 1000 * 2 * (5 * 5 * 3 + 5 * 3 * 3)
    assert least.read == 2 * B.nbytes + D.nbytes
    single = limit("ik,kj->ij", *[np.ones((10, 64, 64), np.complex64)] * 2)
    assert (single.peak, single.flops, single.bound) == (200.0, 10 * 8 * 64**3, "arithmetic")


def test_rates_are_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FEMOPS_CACHE", str(tmp_path))
    monkeypatch.setattr(model.kernel_cache, "cache_folder", lambda: tmp_path)
    asked = []
    monkeypatch.setattr(model, "_measure", lambda threads: asked.append(threads) or RATES)
    for _ in range(2):
        model.measured.cache_clear()
        assert model.measured(3) == RATES
    (tmp_path / "limits.json").write_text("{damaged")
    model.measured.cache_clear()
    assert model.measured(3) == RATES
    model.measured.cache_clear()
    assert asked == [3, 3]
