"""Launches run again under sanitizers: planted faults are found, and only these."""

from __future__ import annotations

import numpy as np
import pytest

from femops_kernels.errors import DeviceError
from support.cuda.host_device import HostDevice, host_device
from support.cuda.launches import ADDRESS, THREAD, Launch, SanitizerError, replay, require
from support.cuda.toys import FAULTS, expected, neighbours

COUNT = 3 * 32 - 5


def recorded(fault: str) -> Launch:
    """A launch with a fault, from a device that does not look for any."""
    x = np.random.default_rng(3).standard_normal(COUNT)
    device: HostDevice = host_device()
    with device.recording() as launches:
        try:
            neighbours(device, x, fault)
        except DeviceError:
            assert fault in ("early", "lines", "shared")
    return launches[0]


@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
def test_a_kernel_without_faults_passes(sanitizer: str) -> None:
    require(sanitizer)
    launch = recorded("none")
    x, y, total = replay(launch, sanitizer)
    np.testing.assert_array_equal(x, launch.arrays[0])
    np.testing.assert_array_equal(y, expected(x))
    assert total == pytest.approx(2 * x.sum())


FOUND = [
    ("barrier", THREAD, "data race"),
    ("blocks", THREAD, "data race"),
    ("shared", ADDRESS, "heap-buffer-overflow"),
    ("array", ADDRESS, "heap-buffer-overflow"),
    ("shift", ADDRESS, "shift exponent 121 is too large"),
    *(("early", sanitizer, "some have ended") for sanitizer in (ADDRESS, THREAD)),
    *(("lines", sanitizer, "some are at another one") for sanitizer in (ADDRESS, THREAD)),
]


@pytest.mark.parametrize(("fault", "sanitizer", "message"), FOUND)
def test_planted_faults_are_found(fault: str, sanitizer: str, message: str) -> None:
    require(sanitizer)
    with pytest.raises(SanitizerError, match=message):
        replay(recorded(fault), sanitizer)


def test_every_fault_is_tried() -> None:
    # what is not set spreads to the results: see test_host.py
    assert {"none", "unset", *(fault for fault, _, _ in FOUND)} == set(FAULTS)
