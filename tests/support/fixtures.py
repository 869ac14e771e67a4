"""Fixtures that several modules have: ``device = fixtures.device`` makes one a module's own."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from femops.bench import machine
from femops_kernels.codegen import cache
from femops_kernels.cpu.limits import Limits
from femops_kernels.cpu.machine import max_threads, set_threads
from support.cases.kernels import Problem


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own for compiled kernels."""
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def shared_folder(tmp_path: Path, comm: Any) -> Path:
    """The same on all ranks."""
    return comm.broadcast(tmp_path)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread for many small products: several would wait for each other in each of them."""
    set_threads(1)
    yield
    set_threads(max_threads())


@pytest.fixture(scope="module")
def problem() -> Problem:
    """A turned, curved mesh, and the oracle."""
    return Problem()


@pytest.fixture(scope="package", autouse=True)
def small_limits() -> Iterator[None]:
    """Limits measured on a few megabytes: what they are is not tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "Limits", partial(Limits, nbytes=2**22))
        yield
