"""The least time of a contraction: operations and bytes are counted, rates measured and kept."""

import json

import numpy as np
import pytest

from femops.errors import TensorError
from femops.tensor import Batch, limit, model
from femops_kernels.cuda.rates import Rates
from femops_kernels.errors import UnwritableError
from support.cuda.host_device import host_device

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


def test_limits_of_a_device_are_measured_once(tmp_path, monkeypatch):
    device, asked = host_device(), []
    monkeypatch.setattr(model.kernel_cache, "cache_folder", lambda: tmp_path)
    rates = Rates(4e12, 5e12, 1.0, 6e13, 1.0)
    monkeypatch.setattr(model.Rates, "of", lambda device: asked.append(device) or rates)
    A = Batch((16, 16), 1000, device=device)
    nbytes = 1000 * 16**2 * 8
    for _ in range(2):
        model.measured_on.cache_clear()
        least = limit("ik,kj->ij", A, A)
        assert (least.flops, least.read, least.written) == (2 * 16**3 * 1e3, 2 * nbytes, nbytes)
        assert least.seconds == pytest.approx(2 * nbytes / 4e12 + nbytes / 5e12)
        assert (least.bound, least.peak) == ("memory", pytest.approx(6e4))
    assert asked == [device]
    assert limit("ij->", A).seconds == pytest.approx(nbytes / 5e12, rel=0.01)
    single = Batch((256, 256), 10, "float32", device=device)
    least = limit("ik,kj->ij", single, single)
    assert (least.bound, least.peak) == ("arithmetic", pytest.approx(1.2e5))
    with pytest.raises(TensorError, match="copy them to one"):
        limit("ik,kj->ij", A, np.ones((1000, 16, 16)))
    model.measured_on.cache_clear()


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The numbers of threads that rates were measured for, with an empty folder for them."""
    found = []
    monkeypatch.setattr(model.kernel_cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(model, "_measure", lambda threads: found.append(threads) or RATES)
    yield found
    model.measured.cache_clear()


def measured_by_a_new_process():
    model.measured.cache_clear()
    return model.measured(3)


def test_rates_are_measured_once(asked, tmp_path):
    assert measured_by_a_new_process() == measured_by_a_new_process() == RATES
    assert asked == [3]
    (tmp_path / "limits.json").write_text("{damaged")
    assert measured_by_a_new_process() == RATES
    assert asked == [3, 3]


@pytest.mark.parametrize("wrong", ["7", "a", None, 0.0, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["peak", "bandwidth"])
def test_rates_that_no_machine_has_are_measured_again(asked, tmp_path, kind, wrong):
    measured_by_a_new_process()
    table = tmp_path / "limits.json"
    known = json.loads(table.read_text())
    (row,) = known.values()
    if kind == "peak":
        row["peak"] = wrong
    else:
        row["bandwidth"][0][0] = wrong
    table.write_text(json.dumps(known))
    assert measured_by_a_new_process() == RATES
    assert asked == [3, 3]


def test_rates_that_a_full_disk_does_not_take_are_not_measured_again(asked, tmp_path, monkeypatch):
    refused = [UnwritableError("no space")]

    def write(path, content):
        if refused:
            raise refused.pop()
        path.write_bytes(content)

    monkeypatch.setattr(model.kernel_cache, "write_whole", write)
    monkeypatch.setattr(model.kernel_cache, "_refusals", [])
    assert measured_by_a_new_process() == RATES
    model.measured.cache_clear()
    assert asked == [3]
    assert (tmp_path / "limits.json").exists()
