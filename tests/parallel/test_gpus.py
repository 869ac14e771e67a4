"""Which GPU is whose, and whether MPI takes memory of GPUs: without either."""

import ctypes.util
import mmap
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from femops.errors import CommunicatorError
from femops.parallel import Serial, gpus, launch
from femops.parallel.cores import Node
from femops_kernels.cuda.device import cupy_device
from femops_kernels.device import Device
from support.simulated_ranks import on_ranks


class Named(Device):
    """A device that is only told from others."""

    xp, arch, processors, shared_bytes = np, "none", 1, 0

    def __init__(self, name):
        self.name, self.bus = name, f"0000:0{name[-1]}:00.0"

    function = upload = download = owns = adopt = address = staging_buffer = synchronize = None


@pytest.fixture
def taken(monkeypatch):
    """Where processes are that take a device, of which the machine has two."""
    places = []

    def take(place):
        places.append(place)
        return Named(f"cuda:{place % 2}")

    Named.__abstractmethods__ = frozenset()
    monkeypatch.setattr(cupy_device, "take_device", take)
    monkeypatch.setattr(cupy_device, "open_device", Named)
    return places


def on_nodes(each):
    """A program on four ranks, as many of them on a node; the name of each one's device."""

    def program(comm):
        first = comm.rank // each * each
        comm.node = Node(first, 1, 1, comm.rank - first)
        device = gpus.rank_device("cuda", comm)
        assert gpus.rank_device("cuda", comm) is device
        return device.name

    return on_ranks(4, program)[0]


def test_each_rank_of_a_node_has_a_gpu(taken, recwarn):
    """Ranks that share one are told of that once."""
    four = ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert on_nodes(2) == four
    assert sorted(taken) == [0, 0, 1, 1]
    assert not recwarn.list
    taken.clear()
    assert on_nodes(4) == four
    assert sorted(taken) == [0, 1, 2, 3]
    (warning,) = recwarn.list
    assert "4 ranks have 2 GPUs, up to 2 ranks share one" in str(warning.message)


def test_a_device_that_is_named_is_taken_as_it_is(taken):
    names, _ = on_ranks(2, lambda comm: gpus.rank_device("cuda:1", comm).name)
    assert names == ["cuda:1", "cuda:1"]
    assert gpus.rank_device("cuda", Serial()).name == "cuda"
    assert taken == []


# --- memory of GPUs -------------------------------------------------------------------------------


@pytest.fixture
def mpi(monkeypatch):
    """An MPI that says of itself what a test has it say."""

    class Info(dict):
        Get = dict.get
        Free = dict.clear

    said = {}
    world = SimpleNamespace(Get_info=lambda: Info(said))
    monkeypatch.setattr(launch, "mpi", lambda: SimpleNamespace(COMM_WORLD=world))
    monkeypatch.setattr(gpus, "_libraries", list)
    monkeypatch.delenv(gpus.CUDA_AWARE, raising=False)
    gpus._is_cuda_aware.cache_clear()
    yield said
    gpus._is_cuda_aware.cache_clear()


MANY = SimpleNamespace(size=2)


@pytest.mark.parametrize(
    ("kinds", "takes"),
    [
        (None, False),
        ("mpi,system", False),
        ("mpi,system,cuda", True),
        ("system,cuda:device,mpi", True),
        ("rocm,cudalike", False),
    ],
)
def test_mpi_says_which_memory_it_takes(mpi, kinds, takes):
    if kinds is not None:
        mpi["mpi_memory_alloc_kinds"] = kinds
    assert gpus.takes_device_memory(MANY) == takes


@pytest.mark.parametrize("answer", [0, 1, None])
def test_the_library_is_asked(mpi, monkeypatch, answer):
    """One that knows nothing of it, too."""
    known = SimpleNamespace(MPIX_Query_cuda_support=lambda: answer)
    paths = ["/lib/libmpi.so.40"] if answer is not None else [ctypes.util.find_library("c"), "/no"]
    monkeypatch.setattr(gpus, "_libraries", lambda: paths)
    if answer is not None:
        monkeypatch.setattr(gpus.ctypes, "CDLL", {paths[0]: known}.__getitem__)
    assert gpus.takes_device_memory(MANY) == bool(answer)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no /proc")
@pytest.mark.parallel(2)
def test_the_library_that_is_loaded_is_found(comm):
    assert comm.size == 2
    assert all(Path(path).is_file() for path in gpus._libraries())
    assert gpus._libraries()


@pytest.mark.parametrize(("value", "takes"), [("0", False), ("1", True)])
def test_the_environment_overrides_it(mpi, monkeypatch, value, takes):
    mpi["mpi_memory_alloc_kinds"] = "cuda" if value == "0" else "system"
    monkeypatch.setenv(gpus.CUDA_AWARE, value)
    assert gpus.takes_device_memory(MANY) == takes


def test_other_values_are_refused(mpi, monkeypatch):
    monkeypatch.setenv(gpus.CUDA_AWARE, "yes")
    with pytest.raises(CommunicatorError, match="FEMOPS_CUDA_AWARE_MPI is 'yes': give 1 if"):
        gpus.takes_device_memory(MANY)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_libraries_are_found_beside_a_file_whose_name_is_no_text(tmp_path):
    for name in (b"libmpi\xff.so", b"\xe9\x85.dat"):
        path = tmp_path / os.fsdecode(name)
        with path.open("wb+") as file:
            file.write(bytes(4096))
            file.flush()
            mapped = mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ)
        assert (str(path) in gpus._libraries()) == name.startswith(b"lib")
        mapped.close()
