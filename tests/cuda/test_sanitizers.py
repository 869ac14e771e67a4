"""Launches run again under sanitizers: planted faults are found, and nothing where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from cuda.host_device import HostDevice, host_device
from cuda.launches import ADDRESS, THREAD, Launch, SanitizerError, missing, replay
from cuda.toys import FAULTS, expected, neighbours
from femops_kernels.errors import DeviceError

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


@pytest.fixture(params=[ADDRESS, THREAD])
def sanitizer(request: pytest.FixtureRequest) -> str:
    host_device()
    reason = missing(request.param)
    if reason is not None:
        pytest.skip(reason)
    return str(request.param)


def test_a_kernel_without_faults_passes(sanitizer: str) -> None:
    launch = recorded("none")
    x, y, total = replay(launch, sanitizer)
    np.testing.assert_array_equal(x, launch.arrays[0])
    np.testing.assert_array_equal(y, expected(x))
    assert total == pytest.approx(2 * x.sum())


FOUND = {
    "barrier": {THREAD: "data race"},
    "blocks": {THREAD: "data race"},
    "shared": {ADDRESS: "heap-buffer-overflow"},
    "array": {ADDRESS: "heap-buffer-overflow"},
    "shift": {ADDRESS: "shift exponent 121 is too large"},
    "early": dict.fromkeys((ADDRESS, THREAD), "some have ended"),
    "lines": dict.fromkeys((ADDRESS, THREAD), "some are at another one"),
    "unset": {},  # what is not set spreads to the results: see test_host.py
}


@pytest.mark.parametrize("fault", FOUND)
def test_planted_faults_are_found(fault: str, sanitizer: str) -> None:
    message = FOUND[fault].get(sanitizer)
    if message is None:
        assert len(replay(recorded(fault), sanitizer)) == 3  # it is the other's to find
        return
    with pytest.raises(SanitizerError, match=message):
        replay(recorded(fault), sanitizer)


def test_every_fault_is_tried() -> None:
    assert {"none", *FOUND} == set(FAULTS)
