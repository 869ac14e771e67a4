"""The host as a device: kernels compute what they should, and what is wrong with them shows."""

from __future__ import annotations

import numpy as np
import pytest

from femops_kernels.errors import DeviceError
from support.cuda import host_device as host_device_fixture
from support.cuda.host_device import HostDevice
from support.cuda.toys import THREADS, expected, neighbours

device = host_device_fixture.device


def entries(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal(count)


def test_blocks_and_barriers(device: HostDevice) -> None:
    for count in (1, THREADS, 3 * THREADS - 5, 700):
        x = entries(count)
        y, total = neighbours(device, x)
        np.testing.assert_array_equal(y, expected(x))
        whole = np.zeros(-(-count // THREADS) * THREADS)
        whole[:count] = x
        assert total == pytest.approx(2 * whole.sum(), abs=1e-12 * abs(x).sum())


@pytest.mark.parametrize("fault", ["barrier", "unset"])
def test_numbers_that_are_not_set_yet_show(device: HostDevice, fault: str) -> None:
    """Without any sanitizer: there are none in shared memory, and threads change their order."""
    x = entries(2 * THREADS)
    y, _ = neighbours(device, x, fault)
    unset = np.isnan(y.reshape(2, THREADS))
    if fault == "unset":
        assert [np.flatnonzero(row).tolist() for row in unset] == [[6, 8], [6, 8]]
    else:  # every thread reads too early but the last one: in the next block that is the first
        assert [np.flatnonzero(~row).tolist() for row in unset] == [[THREADS - 1], [0]]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("early", "barrier in line 15 not reached by all threads of block 0: some have ended"),
        ("lines", "not reached by all threads of block 0: some are at another one"),
        ("shared", "block 0 writes beside its 256 bytes of shared memory"),
    ],
)
def test_what_is_found(device: HostDevice, fault: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        neighbours(device, entries(100), fault)
    x = entries(100)
    np.testing.assert_array_equal(neighbours(device, x)[0], expected(x))  # and nothing is left
