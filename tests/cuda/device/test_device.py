"""The door to GPUs, as far as it goes without one."""

import copy
import json
import pickle
import sys
import threading
import weakref
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pytest

import femops
from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.cuda.compiler.cubins import Cubin
from femops_kernels.cuda.compiler.report import Report
from femops_kernels.cuda.device import cupy_device
from femops_kernels.cuda.device.cupy_device import CudaFunction, Multiprocessor, open_device
from femops_kernels.errors import DeviceError, KernelError, KernelValueError
from support.cuda import fake_cupy
from support.cuda.facts import FACTS
from support.cuda.fake_cupy import PLACES, CUDARuntimeError, FakeDevice, FakeStream, on, pinned
from support.garbage import collect

cupy = fake_cupy.cupy


def failing(status):
    def count():
        raise CUDARuntimeError(status)

    return count


def test_unknown_names_are_refused():
    for name in ("gpu", "cuda:", "cuda:-1", "cuda:one", "CUDA", ""):
        with pytest.raises(DeviceError, match=rf'called {name!r}: choose "cuda"'):
            open_device(name)


SAID = "\n=====\nFailed to import CuPy.\n\nOriginal error:\n  ImportError: libnone.so\n=====\n"
LACKS = r"imported \(Failed to import CuPy. Original error: ImportError: libnone.so\): pip"
BROKEN = {
    None: r'not installed: pip install "cupy-cuda13x\[ctk\]"',
    "import fastrlock_that_is_absent": r"can't be imported .*fastrlock_that_is_absent.*pip",
    f"raise ImportError({SAID!r})": LACKS,
}


@pytest.mark.parametrize(("code", "message"), BROKEN.items(), ids=["absent", "broken", "lacks"])
def test_without_a_cupy_that_can_be_imported(tmp_path, monkeypatch, code, message):
    if code is None:
        monkeypatch.setitem(sys.modules, "cupy", None)
    else:
        monkeypatch.delitem(sys.modules, "cupy", raising=False)
        (tmp_path / "cupy.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(femops.errors.DeviceError, match=message) as caught:
        open_device("cuda")
    assert isinstance(caught.value, KernelError)
    assert isinstance(caught.value, RuntimeError)


REASONS = [
    (35, None, "no NVIDIA driver on this machine"),
    (35, (12, 4), r'CuPy is too new: .* CUDA 12.4 and older: .*"cupy-cuda12x\[ctk\]"'),
    (100, (13, 0), "no GPU that CUDA can use: .*CUDA_VISIBLE_DEVICES"),
    (999, (13, 0), "CUDA can't be started: cudaError 999"),
]


@pytest.mark.parametrize(("status", "driver", "message"), REASONS)
def test_without_a_gpu(cupy, monkeypatch, status, driver, message):
    cupy.cuda.runtime.getDeviceCount = failing(status)
    monkeypatch.setattr(nvrtc, "driver_version", lambda: driver)
    with pytest.raises(DeviceError, match=message) as caught:
        open_device("cuda:1")
    assert "\n" not in str(caught.value)


def test_a_gpu_that_another_process_has_for_itself(cupy, monkeypatch):
    monkeypatch.setattr(FakeDevice, "use", lambda _: failing(46)())
    with pytest.raises(DeviceError, match="CUDA can't be started: cudaError 46"):
        open_device("cuda:1")


def test_the_real_cupy_says_what_is_missing():
    """Also where CuPy is installed and there is no driver, as in CI."""
    found = cupy_device.describe()
    if found["devices"]:
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError) as caught:
        open_device("cuda")
    assert str(caught.value) == found["missing"]
    assert "install" in found["missing"] or "GPU" in found["missing"]


def names(thing, above=""):
    """Names of a namespace, those below it included."""
    for name, value in vars(thing).items():
        yield above + name
        if isinstance(value, SimpleNamespace):
            yield from names(value, f"{above}{name}.")


def test_the_real_cupy_has_what_the_fake_one_has(cupy, monkeypatch):
    fake = [name for name in names(cupy) if not name.startswith("_") and name != "attributes"]
    assert "cuda.driver.funcSetAttribute" in fake
    monkeypatch.undo()
    real = pytest.importorskip("cupy")
    for name in fake:
        assert attrgetter(name)(real) is not None, name
    assert real.cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8
    assert real.cuda.driver.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT == 9


def test_one_object_a_device(cupy):
    first = open_device("cuda")
    assert open_device("cuda:0") is first
    second = open_device("cuda:1")
    assert second is not first
    assert pickle.loads(pickle.dumps(second)) is copy.deepcopy(second) is second
    assert FakeDevice.current() == 1  # CuPy's
    assert (first.name, first.arch, first.processors) == ("NVIDIA H200", "sm_90", 132)
    assert (first.shared_bytes, first.xp, first.bus) == (232448, cupy, "0000:00:00.0")
    assert repr(first) == "CudaDevice(NVIDIA H200, cuda:0, sm_90)"
    with pytest.raises(DeviceError, match='no GPU \'cuda:2\' here: choose "cuda:0", "cuda:1"'):
        open_device("cuda:2")


def test_a_process_takes_its_gpu(cupy):
    devices = [cupy_device.take_device(place) for place in range(3)]
    assert devices[0] is devices[2]
    assert [device.bus for device in devices] == [f"0000:0{k}:00.0" for k in (0, 1, 0)]
    assert FakeDevice.current() == 0


def test_each_thread_that_asks_for_functions_uses_the_device(cupy):
    """What they make, and what they work on, is there; threads begin on the first GPU."""
    device, seen = open_device("cuda:1"), []

    def work():
        seen.append(FakeDevice.current())
        assert device.xp is cupy
        seen.append(FakeDevice.current())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0, 1]


def test_arrays_go_to_the_device_and_back(cupy):
    device = open_device("cuda:1")
    host = np.arange(6.0).reshape(2, 3)
    there = device.upload(host)
    assert device.owns(there)
    assert not device.owns(host)
    assert not open_device("cuda:0").owns(there)  # which is the current one from now on
    assert device.address(there) == 4096
    host[0, 0] = 7
    assert device.download(there)[0, 0] == 0
    device.synchronize()
    assert device.current.waited
    device.clear(there)
    assert not device.download(there).any()


def test_a_download_does_not_wait(cupy):
    device = open_device("cuda")
    there = device.upload(np.arange(6.0).reshape(2, 3))
    first = device.download_later(there)
    there += 1.0
    second = device.download_later(there)
    assert np.array_equal(second(), np.arange(1.0, 7.0).reshape(2, 3))
    assert np.array_equal(first(), np.arange(6.0).reshape(2, 3))


def test_copies_in_a_stream_are_not_waited_for(cupy):
    device = open_device("cuda:1")
    stream, values = FakeStream(non_blocking=True), np.arange(6.0).reshape(2, 3)
    open_device("cuda:0")
    there = device.upload(values, stream)
    values += 1.0  # the copy is of what there was
    assert there.tolist() == np.full((2, 3), 7.0).tolist()
    device._flying[-1][0].synchronize()
    assert there.tolist() == (values - 1.0).tolist()
    here = device.download(there, stream)
    assert type(here) is np.ndarray
    assert here.tolist() != there.tolist()
    assert stream.waited_for is not None  # what was launched before
    device._flying[-1][0].synchronize()
    assert here.tolist() == there.tolist()


def test_memory_is_kept_until_its_copy_is_done(cupy, monkeypatch):
    """CuPy gives it to others as soon as nobody has it."""

    class Memory(bytearray):
        """What can be seen to be gone."""

    given = []

    def kept(size):
        memory = Memory(pinned(size))
        given.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(cupy.cuda, "alloc_pinned_memory", kept)
    device = open_device("cuda")
    there = device.upload(np.arange(3.0))
    device.download_later(there)  # and nobody waits
    collect()
    assert given[0]() is not None
    device._flying[0][0].synchronize()
    device.download_later(there)()
    collect()
    assert given[0]() is None


def test_work_is_captured_once_and_replayed(cupy):
    device, done = open_device("cuda:1"), []
    again = device.repeatable(lambda: done.append(FakeDevice.current()))
    assert done == [1]
    open_device("cuda:0")
    for _ in range(3):
        again()
    assert done == [1]
    assert FakeStream.launched == [1, 1, 1]

    def failing():
        raise KeyError

    with pytest.raises(KeyError):
        device.repeatable(failing)


def of_others(address, **attributes):
    """An array of another library, at an address."""
    memory = on(PLACES.get(address, 0), np.zeros(3))
    return SimpleNamespace(memory=memory, **attributes)


def by_interface(address):
    return of_others(address, __cuda_array_interface__={"data": (address, False)})


def test_arrays_of_other_libraries_are_adopted(cupy):
    device = open_device("cuda")
    own = device.upload(np.zeros(3))
    assert device.adopt(own) is own
    by_dlpack = of_others(0x100, __dlpack_device__=lambda: (2, 0))
    for other in (by_interface(0x100), by_interface(0), by_dlpack):  # 0: it has no entries
        assert device.adopt(other) is other.memory
    # of two ways the one is taken that orders streams: the interface of PyTorch does not
    both = by_interface(0x100)
    both.__dlpack_device__ = lambda: (2, 0)
    cupy.asarray = None
    assert device.adopt(both) is both.memory


def test_arrays_are_adopted_with_their_device(cupy):
    other = by_interface(0x200)
    open_device("cuda:1")
    array, device = cupy_device.adopt(other)
    assert array is other.memory
    assert device is open_device("cuda:1")
    with pytest.raises(KernelValueError, match="a list can't be used"):
        cupy_device.adopt([1.0])


@pytest.mark.parametrize(("name", "there"), [("cuda:1", 0), ("cuda:0", 1)])
def test_arrays_elsewhere_are_not_adopted(cupy, name, there):
    elsewhere = f"lies on cuda:{there}, it is needed on {name}"
    address = {place: address for address, place in PLACES.items()}[there]
    for array, message in (
        (by_interface(address), elsewhere),  # and not copied
        (of_others(address, __dlpack_device__=lambda: (2, there)), elsewhere),
        (by_interface(0x300), r"Namespace can't be used .* the host's memory"),
        (np.zeros(3), r"ndarray can't be used .* the host's memory"),
        ([1.0], r"a list can't be used .* neither"),
    ):
        with pytest.raises(KernelValueError, match=message):
            open_device(name).adopt(array)


def loaded(device, code=b"cubin"):
    return CudaFunction(device, Cubin(code, Report(40, 8, 0, 0, 360), "kernel.cu"))


def test_launches(cupy):
    device = open_device("cuda:1")
    function, packed = loaded(device), np.array((0.1, 7), "f8,i4")
    assert (function.registers, function.local_bytes) == (40, 8)
    assert (function.resident(128, 8000), function.resident(128, 30_000)) == (12, 7)
    function.launch(0, 128, 0, packed)
    for shared in (1024, 48 * 1024, 60_000, 50_000, 70_000):
        function.launch(3, 128, shared, packed)
    launches = function._kernel.launches
    assert [launch[3] for launch in launches] == [1024, 49152, 60_000, 50_000, 70_000]
    assert all(launch[:2] == ((3,), (128,)) for launch in launches)
    assert all(launch[2] == packed.tobytes() and launch[4] == 1 for launch in launches)
    most = [asked for asked in cupy.attributes if asked[1] == 8]
    assert most == [(99, 8, 60_000), (99, 8, 70_000)]  # asked for only when it grows
    shares = [percent for _, asked, percent in cupy.attributes if asked == 9]
    assert shares == [11, 100]  # of 12 blocks, which there are registers for; then all there is
    cupy.attributes.clear()
    function.launch(3, 128, 70_000, packed)
    function.launch(3, 128, 0, packed)
    assert not cupy.attributes


NEEDS = [
    *[(128, 134, 18176, 3), (128, 116, 18176, 4), (128, 96, 9728, 5), (81, 168, 11664, 4)],
    *[(256, 48, 4096, 5), (1024, 32, 40_000, 2), (32, 16, 1000, 32), (128, 255, 70_000, 2)],
]


def test_shared_memory_for_as_many_blocks_as_there_are_registers_for():
    multiprocessor, one = Multiprocessor.of(FACTS), 233472 / 100
    for threads, registers, shared, blocks in NEEDS:
        assert multiprocessor.room(threads, registers) == blocks
        assert multiprocessor.resident(threads, registers, shared) == blocks
        percent = multiprocessor.carveout(threads, registers, shared)
        assert (percent - 1) * one < blocks * (shared + 1024) <= percent * one


def test_blocks_that_shared_memory_does_not_suffice_for():
    multiprocessor = Multiprocessor.of(FACTS)
    assert (multiprocessor.room(128, 64), multiprocessor.resident(128, 64, 60_000)) == (8, 3)
    assert multiprocessor.carveout(128, 64, 60_000) == 100
    assert multiprocessor.carveout(1024, 255, 200_000) == 87  # a block is there in any case


def test_launches_that_fail_say_what_was_asked_for(cupy):
    device = open_device("cuda")
    with pytest.raises(DeviceError, match=r"can't load kernel.cu: .*NO_BINARY.*pip install"):
        loaded(device, b"other")
    with pytest.raises(DeviceError, match=r"40 registers.* 2 blocks of 2048 threads with 64 bytes"):
        loaded(device).launch(2, 2048, 64, np.zeros((), "f8,i4"))


def test_info_tells_of_gpus(cupy, capsys):
    from femops.cli import info

    info.info(json=True)
    facts = json.loads(capsys.readouterr().out)["gpu"]
    assert facts["missing"] is None
    h200 = {"name": "NVIDIA H200", "arch": "sm_90", "processors": 132}
    assert facts["devices"][1] == h200 | {"memory_bytes": 150_000_000_000}
    info.info(json=False)
    out = capsys.readouterr().out
    assert "cuda:1  NVIDIA H200, sm_90, 132 multiprocessors, 150 GB" in out
