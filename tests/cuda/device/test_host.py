"""The host as a device: kernels compute what they should, and what is wrong with them shows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.errors import DeviceError
from support.cuda import host_device as host_device_fixture
from support.cuda.host_device import HostDevice

device = host_device_fixture.device

THREADS = 32
LAYOUT = Layout({"x": "const T*", "y": "T*", "sum": "T*", "n": "int", "fault": "int"}, np.float64)
FAULTS = ("none", "barrier", "unset", "shared", "early", "lines")
"""What can go wrong: a barrier is missing, a number in shared memory is not set, an entry after
shared memory is written, threads end before a barrier, or are at different ones."""

BODY = """
enum { NONE, BARRIER, UNSET, SHARED, EARLY, LINES };
ENTRY(32, 2, Arguments) {
    T* shared = reinterpret_cast<T*>(dynamic_shared());
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (a.fault != UNSET || t != 7) shared[t] = i < a.n ? a.x[i] : T(0);
    if (a.fault == SHARED && t == 0) shared[blockDim.x] = 1;
    if (a.fault == EARLY && t == 3) return;
    if (a.fault == LINES && t == 3) {
        __syncthreads();
    } else if (a.fault != BARRIER) {
        __syncthreads();
    }
    const T sum = shared[(t + 1) % blockDim.x] + shared[(t + blockDim.x - 1) % blockDim.x];
    if (i < a.n) a.y[i] = sum;
    atomicAdd(a.sum, sum);
}
"""


def entries(count: int) -> NDArray[np.float64]:
    return np.random.default_rng(count).standard_normal(count)


def neighbours(
    device: HostDevice, x: NDArray[np.float64], fault: str = "none"
) -> tuple[NDArray[np.float64], float]:
    """Of each entry of x the sum of those beside it in its block; and the sum of these."""
    y, total = np.full_like(x, np.nan), np.zeros(1)
    packed = LAYOUT.pack(device, x=x, y=y, sum=total, n=len(x), fault=FAULTS.index(fault))
    function = device.function(f"using T = double;\n{LAYOUT.text}{BODY}")
    function.launch(-(-len(x) // THREADS), THREADS, 8 * THREADS, packed)
    return y, float(total[0])


def test_blocks_and_barriers(device: HostDevice) -> None:
    for count in (1, THREADS, 3 * THREADS - 5, 700):
        x, whole = entries(count), np.zeros(-(-count // THREADS) * THREADS)
        whole[:count] = x
        rows = whole.reshape(-1, THREADS)
        y, total = neighbours(device, x)
        expected = np.roll(rows, 1, axis=1) + np.roll(rows, -1, axis=1)
        np.testing.assert_array_equal(y, expected.ravel()[:count])
        assert total == pytest.approx(2 * x.sum(), abs=1e-12 * abs(x).sum())


def test_numbers_that_are_not_set_yet_show(device: HostDevice) -> None:
    """Without any sanitizer: there are none in shared memory, and threads change their order."""
    x = entries(2 * THREADS)
    unset = np.isnan(neighbours(device, x, "unset")[0].reshape(2, THREADS))
    assert [np.flatnonzero(row).tolist() for row in unset] == [[6, 8], [6, 8]]
    # every thread reads too early but the last one: in the next block that is the first
    unset = np.isnan(neighbours(device, x, "barrier")[0].reshape(2, THREADS))
    assert [np.flatnonzero(~row).tolist() for row in unset] == [[THREADS - 1], [0]]


def test_what_is_found(device: HostDevice) -> None:
    x = entries(100)
    sound, _ = neighbours(device, x)
    for fault, message in {
        "early": r"barrier in line \d+ not reached by all threads of block 0: some have ended",
        "lines": "not reached by all threads of block 0: some are at another one",
        "shared": "block 0 writes beside its 256 bytes of shared memory",
    }.items():
        with pytest.raises(DeviceError, match=message):
            neighbours(device, x, fault)
        np.testing.assert_array_equal(neighbours(device, x)[0], sound)  # and nothing is left
