"""The host as a device: kernels compute what they should, and what is wrong with them shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from femops_kernels.errors import DeviceError
from support.cuda import host_device as host_device_fixture
from support.cuda.host_device import HostDevice
from support.cuda.toys import THREADS, expected, neighbours

device = host_device_fixture.device


def entries(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal(count)


@pytest.mark.parametrize("count", [1, THREADS, 3 * THREADS - 5, 700])
def test_blocks_and_barriers(device: HostDevice, count: int) -> None:
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


def arguments_of(device: HostDevice, **arrays: Any) -> np.ndarray:
    kinds = [(name, np.uint64) for name in arrays]
    packed = np.zeros((), np.dtype(kinds, align=True))
    for name, array in arrays.items():
        packed[name] = device.address(array)
    return packed


ATOMIC = """\
struct Arguments { double* d; float* f; int* i; unsigned* u; };
ENTRY(64, 1, Arguments) {
    atomicAdd(a.d, 0.5);
    atomicAdd(a.f, 2.0f);
    atomicAdd(a.i, -1);
    if (atomicAdd(a.u, 1u) == 0) atomicAdd(a.u + 1, gridDim.x);
}
"""


def test_atomics(device: HostDevice) -> None:
    kinds = {"d": np.float64, "f": np.float32, "i": np.int32, "u": np.uint32}
    arrays = {name: np.zeros(2, kind) for name, kind in kinds.items()}
    device.function(ATOMIC).launch(5, 64, 0, arguments_of(device, **arrays))
    assert {name: a.tolist() for name, a in arrays.items()} == {
        "d": [160.0, 0.0],
        "f": [640.0, 0.0],
        "i": [-320, 0],
        "u": [320, 5],
    }


MATHS = """\
struct Arguments { const T* x; T* y; };
template <typename R> R only(R value) { static_assert(sizeof(R) == sizeof(T)); return value; }
__constant__ T table[2] = {T(2), T(0.5)};
__device__ __forceinline__ T half(T x) { return x * table[1]; }
ENTRY(1, 1, Arguments) {
    const T x = __ldg(a.x), z = __ldcs(a.x + 1);
    T* __restrict__ y = a.y;
    *y++ = only(sqrt(x)); *y++ = only(exp(x)); *y++ = only(log(x)); *y++ = only(sin(x));
    *y++ = only(cos(x)); *y++ = only(tan(x)); *y++ = only(tanh(x)); *y++ = only(sinh(x));
    *y++ = only(cosh(x)); *y++ = only(atan(x)); *y++ = only(fabs(z)); *y++ = only(pow(x, z));
    *y++ = only(atan2(z, x)); *y++ = only(fmin(x, z)); *y++ = only(fmax(x, z)); *y++ = half(x);
    const Pack<T> pack = load_pack(a.x);
    for (T value : pack.v) *y++ = value;
}
"""


@pytest.mark.parametrize(("kind", "dtype"), [("double", np.float64), ("float", np.float32)])
def test_functions(device: HostDevice, kind: str, dtype: Any) -> None:
    x, y = np.array([0.7, -1.3, 4.0, 5.0], dtype), np.zeros(20, dtype)
    function = device.function(f"using T = {kind};\n{MATHS}")
    function.launch(1, 1, 0, arguments_of(device, x=x, y=y))
    a, b = x[:2]
    ones = (np.sqrt, np.exp, np.log, np.sin, np.cos, np.tan, np.tanh, np.sinh, np.cosh, np.arctan)
    values = [*(f(a) for f in ones), -b, a**b, np.arctan2(b, a), b, a, a / 2]
    values += list(x[: 16 // x.itemsize])
    np.testing.assert_allclose(y[: len(values)], values, rtol=4 * np.finfo(dtype).eps)
    assert not y[len(values) :].any()
    with pytest.raises(DeviceError, match=r"load_pack of 0x.*, which is no multiple of 16"):
        function.launch(1, 1, 0, arguments_of(device, x=x[1:], y=y))


def test_launches_are_repeated_and_nothing_else(device: HostDevice) -> None:
    x, turns = entries(40), []

    def work() -> None:
        turns.append(1)
        device.clear(x)

    again = device.repeatable(work)
    assert x.any()
    for _ in range(2):
        x[:] = 1.0
        again()
        assert not x.any()
    assert turns == [1]
    with pytest.raises(AssertionError, match="copies arrays"):
        device.repeatable(lambda: np.copyto(x, device.download(x)))
