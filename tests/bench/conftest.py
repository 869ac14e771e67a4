"""What tests of benchmarks share."""

from functools import partial

import pytest

from femops.bench import machine
from femops_kernels.cpu.limits import Limits


@pytest.fixture(scope="package", autouse=True)
def small_limits():
    """Limits measured on a few megabytes: what they are is not tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "Limits", partial(Limits, nbytes=2**22))
        yield
