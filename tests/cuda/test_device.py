"""The door to GPUs, as far as it goes without one, and the arguments of kernels."""

import copy
import ctypes
import gc
import json
import pickle
import subprocess
import sys
import threading
import weakref
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import femops
from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.cuda.compiler.cubins import Cubin
from femops_kernels.cuda.compiler.report import Report
from femops_kernels.cuda.device import cupy_device
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.cupy_device import CudaFunction, open_device
from femops_kernels.cuda.device.residency import Multiprocessor
from femops_kernels.errors import DeviceError, KernelError, KernelValueError
from support.cuda.facts import FACTS


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"cudaError {status}")
        self.status = status


class CUDADriverError(RuntimeError):
    pass


class FakeArray(np.ndarray):
    """An array "on a GPU": NumPy's, with CuPy's attributes."""

    device = SimpleNamespace(id=0)
    data = SimpleNamespace(ptr=4096)

    def set(self, values, stream):
        assert stream.within  # whose memory it is
        FakeEvent.pending.append((self, values))

    def get(self, stream=None, out=None, blocking=True):
        if blocking:
            return np.array(self)
        assert type(out) is np.ndarray
        assert (out.dtype, out.shape) == (self.dtype, self.shape)
        FakeEvent.pending.append((out, np.array(self)))
        return out

    def fill(self, value):
        assert FakeDevice.current() == self.device.id  # by a stream of the current device
        super().fill(value)


class FakeDevice:
    """CuPy's Device, a context manager: each thread has a current one of its own, at first 0."""

    threads = threading.local()

    def __init__(self, ordinal):
        self.id = ordinal

    @staticmethod
    def current():
        return getattr(FakeDevice.threads, "ordinal", 0)

    def use(self):
        FakeDevice.threads.ordinal = self.id

    def __enter__(self):
        before = getattr(FakeDevice.threads, "before", [])
        FakeDevice.threads.before = [*before, FakeDevice.current()]
        self.use()

    def __exit__(self, *_):
        FakeDevice.threads.ordinal = FakeDevice.threads.before.pop()

    def synchronize(self):
        self.waited = True


class FakeStream:
    """CuPy's Stream: what is done while one captures is a graph; `launched` is on which device."""

    launched: ClassVar[list[int]] = []

    def __init__(self, non_blocking):
        assert non_blocking  # others can't capture beside the default stream
        self.within = self.capturing = False
        self.device_id = FakeDevice.current()

    def __enter__(self):
        assert self.device_id == FakeDevice.current()
        self.within = True

    def __exit__(self, *_):
        assert not self.capturing
        self.within = False

    def wait_event(self, event):
        self.waited_for = event

    def record(self, event):
        event.record()

    def begin_capture(self):
        assert self.within
        self.capturing = True

    def end_capture(self):
        self.capturing = False
        return SimpleNamespace(launch=lambda: FakeStream.launched.append(FakeDevice.current()))


class FakeEvent:
    """CuPy's Event: what is copied before it is there when it has been waited for."""

    pending: ClassVar[list[tuple[np.ndarray, np.ndarray]]] = []

    def __init__(self, disable_timing):
        assert disable_timing

    def record(self):
        self.copies, self.done = FakeEvent.pending[:], False
        FakeEvent.pending.clear()

    def synchronize(self):
        self.done = True
        for out, values in self.copies:
            out[:] = values


class FakeModule:
    """CuPy's Module: loads no cubin of another architecture; its function notes its launches."""

    ptr = 99

    def load(self, code):
        assert type(code) is bytes
        if code == b"other":
            raise CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU")

    def get_function(self, name):
        assert name == "entry"
        self.launches = []
        return self

    def __call__(self, grid, block, args, shared_mem):
        assert type(grid) is type(block) is tuple
        (structure,) = args
        assert type(structure) is np.ndarray
        assert structure.size == 1
        assert not structure.dtype.names, "CuPy asks for the address, NumPy lists all fields"
        if block[0] > 1024:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE")
        given = ctypes.string_at(structure.__array_interface__["data"][0], structure.nbytes)
        self.launches.append((grid, block, given, shared_mem, FakeDevice.current()))


PLACES = {0x100: 0, 0x200: 1, 0x300: -2}
"""Of addresses the device; CUDA says so of memory that it does not know."""


def on(ordinal, array):
    """An array on a device."""
    there = array.view(FakeArray)
    there.device = SimpleNamespace(id=ordinal)
    return there


def asarray(array):
    """As CuPy's, which copies what lies on another device than the current one."""
    memory, here = array.memory, FakeDevice.current()
    return memory if memory.device.id == here else on(here, memory.copy())


def pinned(size):
    """As CuPy's, which gives more than was asked for, and what stood there before."""
    return bytearray(b"\1" * max(512, 1 << (size - 1).bit_length()))


@pytest.fixture
def cupy(monkeypatch):
    """A module that stands for CuPy on a machine with two GPUs."""
    fake = ModuleType("cupy")
    fake.ndarray = FakeArray
    fake.array = lambda array, order: on(FakeDevice.current(), np.array(array, order=order))
    fake.empty = lambda shape, dtype: on(FakeDevice.current(), np.full(shape, 7, dtype))
    fake.asarray = asarray
    fake.from_dlpack = lambda array: array.memory
    fake.attributes = []
    fake.cuda = SimpleNamespace(
        Device=FakeDevice,
        runtime=SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=lambda: 2,
            getDevice=FakeDevice.current,
            getDeviceProperties=lambda ordinal: FACTS,
            deviceGetPCIBusId=lambda ordinal: f"0000:{ordinal:02d}:00.0",
            pointerGetAttributes=lambda address: SimpleNamespace(device=PLACES[address]),
        ),
        driver=SimpleNamespace(
            CUDADriverError=CUDADriverError,
            funcSetAttribute=lambda *asked: fake.attributes.append(asked),
        ),
        function=SimpleNamespace(Module=FakeModule),
        Stream=FakeStream,
        Event=FakeEvent,
        alloc_pinned_memory=pinned,
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(cupy_device, "_devices", {})
    monkeypatch.setattr(FakeDevice, "threads", threading.local())
    return fake


def failing(status):
    def count():
        raise CUDARuntimeError(status)

    return count


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:one", "CUDA", ""])
def test_unknown_names_are_refused(name):
    with pytest.raises(DeviceError, match=rf'called {name!r}: choose "cuda"'):
        open_device(name)


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r'not installed: pip install "cupy-cuda13x\[ctk\]"'):
        open_device("cuda")
    with pytest.raises(femops.DeviceError):
        open_device("cuda")
    assert issubclass(femops.DeviceError, KernelError)
    assert issubclass(femops.DeviceError, RuntimeError)


def test_with_a_cupy_that_is_broken(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    (tmp_path / "cupy.py").write_text("import fastrlock_that_is_absent")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeviceError, match=r"can't be imported .*fastrlock_that_is_absent.*pip"):
        open_device("cuda")


def test_with_a_cupy_that_lacks_libraries(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    said = "\n=====\nFailed to import CuPy.\n\nOriginal error:\n  ImportError: libnone.so\n=====\n"
    (tmp_path / "cupy.py").write_text(f"raise ImportError({said!r})")
    monkeypatch.syspath_prepend(tmp_path)
    message = r"imported \(Failed to import CuPy. Original error: ImportError: libnone.so\): pip"
    with pytest.raises(DeviceError, match=message):
        open_device("cuda")


def test_a_gpu_that_another_process_has_for_itself(cupy, monkeypatch):
    monkeypatch.setattr(FakeDevice, "use", lambda _: failing(46)())
    with pytest.raises(DeviceError, match="CUDA can't be started: cudaError 46"):
        open_device("cuda:1")


@pytest.mark.parametrize(
    ("status", "driver", "message"),
    [
        (35, None, "no NVIDIA driver on this machine"),
        (35, (12, 4), r'CuPy is too new: .* CUDA 12.4 and older: .*"cupy-cuda12x\[ctk\]"'),
        (100, (13, 0), "no GPU that CUDA can use: .*CUDA_VISIBLE_DEVICES"),
        (999, (13, 0), "CUDA can't be started: cudaError 999"),
    ],
)
def test_without_a_gpu(cupy, monkeypatch, status, driver, message):
    cupy.cuda.runtime.getDeviceCount = failing(status)
    monkeypatch.setattr(nvrtc, "driver_version", lambda: driver)
    with pytest.raises(DeviceError, match=message) as caught:
        open_device("cuda:1")
    assert "\n" not in str(caught.value)


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
    assert [name for name in fake if not hasattr_at(real, name)] == []
    assert real.cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8
    assert real.cuda.driver.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT == 9


def hasattr_at(thing, path):
    for name in path.split("."):
        thing = getattr(thing, name, None)
    return thing is not None


def test_one_object_a_device(cupy):
    first = open_device("cuda")
    assert open_device("cuda:0") is first
    assert open_device("cuda:1") is not first
    assert FakeDevice.current() == 1  # CuPy's
    assert (first.name, first.arch, first.processors) == ("NVIDIA H200", "sm_90", 132)
    assert (first.shared_bytes, first.xp, first.bus) == (232448, cupy, "0000:00:00.0")
    assert repr(first) == "CudaDevice(NVIDIA H200, cuda:0, sm_90)"
    with pytest.raises(DeviceError, match='no GPU \'cuda:2\' here: choose "cuda:0", "cuda:1"'):
        open_device("cuda:2")


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


def test_copies_and_pickles_are_the_device_itself(cupy):
    device = open_device("cuda:1")
    assert pickle.loads(pickle.dumps(device)) is device
    assert copy.deepcopy(device) is device


def test_arrays_go_to_the_device_and_back(cupy):
    device = open_device("cuda")
    host = np.arange(6.0).reshape(2, 3)
    there = device.upload(host)
    assert device.owns(there)
    assert not device.owns(host)
    assert not open_device("cuda:1").owns(there)
    assert device.address(there) == 4096
    host[0, 0] = 7
    assert device.download(there)[0, 0] == 0
    device.synchronize()
    assert device.current.waited


def test_arrays_are_cleared_by_their_own_device(cupy):
    device = open_device("cuda:1")
    there = device.upload(np.ones(3))
    open_device("cuda:0")
    device.clear(there)
    assert device.download(there).tolist() == [0.0] * 3


def test_a_download_does_not_wait(cupy):
    device = open_device("cuda")
    there = device.upload(np.arange(6.0).reshape(2, 3))
    first = device.download_later(there)
    there += 1.0
    second = device.download_later(there)
    np.testing.assert_array_equal(second(), np.arange(1.0, 7.0).reshape(2, 3))
    np.testing.assert_array_equal(first(), np.arange(6.0).reshape(2, 3))


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
    gc.collect()
    assert given[0]() is not None
    device._flying[0][0].synchronize()
    device.download_later(there)()
    gc.collect()
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
    for other in (by_interface(0x100), by_interface(0)):  # the latter has no entries
        assert device.adopt(other) is other.memory
    by_dlpack = of_others(0x100, __dlpack_device__=lambda: (2, 0))
    assert device.adopt(by_dlpack) is by_dlpack.memory


def test_of_two_ways_the_one_is_taken_that_waits(cupy):
    """DLPack orders streams; PyTorch's other interface says nothing of what is under way."""
    other = by_interface(0x100)
    other.__dlpack_device__ = lambda: (2, 0)
    cupy.asarray = None
    assert open_device("cuda").adopt(other) is other.memory


@pytest.mark.parametrize(("name", "there"), [("cuda:1", 0), ("cuda:0", 1)])
def test_arrays_elsewhere_are_not_adopted(cupy, name, there):
    device = open_device(name)
    elsewhere = f"lies on cuda:{there}, it is needed on {name}"
    address = {place: address for address, place in PLACES.items()}[there]
    with pytest.raises(KernelValueError, match=elsewhere):
        device.adopt(by_interface(address))  # and not copied
    with pytest.raises(KernelValueError, match=elsewhere):
        device.adopt(of_others(address, __dlpack_device__=lambda: (2, there)))
    with pytest.raises(KernelValueError, match=r"Namespace can't be used .* the host's memory"):
        device.adopt(by_interface(0x300))
    with pytest.raises(KernelValueError, match=r"ndarray can't be used .* the host's memory"):
        device.adopt(np.zeros(3))
    with pytest.raises(KernelValueError, match=r"a list can't be used .* neither"):
        device.adopt([1.0])


def loaded(device, code=b"cubin"):
    return CudaFunction(device, Cubin(code, Report(40, 8, 0, 0, 360), "kernel.cu"))


def test_launches(cupy):
    device = open_device("cuda:1")
    function, packed = loaded(device), np.array((0.1, 7), "f8,i4")
    assert (function.registers, function.local_bytes) == (40, 8)
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


@pytest.mark.parametrize(("threads", "registers", "shared", "blocks"), NEEDS)
def test_shared_memory_for_as_many_blocks_as_there_are_registers_for(
    threads, registers, shared, blocks
):
    multiprocessor = Multiprocessor.of(FACTS)
    assert multiprocessor.room(threads, registers) == blocks
    percent = multiprocessor.carveout(threads, registers, shared)
    needed, one = blocks * (shared + 1024), 233472 / 100
    assert (percent - 1) * one < needed <= percent * one


def test_blocks_that_shared_memory_does_not_suffice_for():
    multiprocessor = Multiprocessor.of(FACTS)
    assert multiprocessor.carveout(128, 64, 60_000) == 100
    assert multiprocessor.carveout(1024, 255, 200_000) == 87  # a block is there in any case


def test_launches_that_fail_say_what_was_asked_for(cupy):
    device = open_device("cuda")
    with pytest.raises(DeviceError, match=r"can't load kernel.cu: .*NO_BINARY.*pip install"):
        loaded(device, b"other")
    with pytest.raises(DeviceError, match=r"40 registers.* 2 blocks of 2048 threads with 64 bytes"):
        loaded(device).launch(2, 2048, 64, np.zeros((), "f8,i4"))


class HostDevice:
    """As much of a Device as arguments need, on NumPy's arrays."""

    name = "host"

    def owns(self, array):
        return isinstance(array, np.ndarray)

    def address(self, array):
        return array.ctypes.data


FIELDS = {"count": "int", "x": "const T*", "factor": "T", "first": "const  int *", "y": "T*"}


def test_the_layout_is_that_of_c():
    """As ctypes, which knows the platform's rules, lays it out."""
    layout = Layout(FIELDS | {"much": "long long", "few": "unsigned", "f": "float"}, np.float32)

    class Arguments(ctypes.Structure):
        _fields_ = (
            ("count", ctypes.c_int),
            ("x", ctypes.c_void_p),
            ("factor", ctypes.c_float),
            ("first", ctypes.c_void_p),
            ("y", ctypes.c_void_p),
            ("much", ctypes.c_longlong),
            ("few", ctypes.c_uint),
            ("f", ctypes.c_float),
        )

    x, y, first = np.zeros(2, np.float32), np.ones(3, np.float32), np.arange(4, dtype=np.int32)
    values = {"count": -5, "x": x, "factor": 0.1, "first": first, "y": None}
    packed = layout.pack(HostDevice(), **values, much=2**40, few=2**32 - 1, f=2.5)
    assert (packed.shape, packed.nbytes) == ((), ctypes.sizeof(Arguments))
    read = Arguments.from_buffer_copy(packed.tobytes())
    assert (read.count, read.x, read.first, read.y) == (-5, x.ctypes.data, first.ctypes.data, None)
    assert (read.factor, read.much, read.few, read.f) == (np.float32(0.1), 2**40, 2**32 - 1, 2.5)
    layout.set(packed, HostDevice(), y=y, count=6)
    read = Arguments.from_buffer_copy(packed.tobytes())
    assert (read.count, read.x, read.y) == (6, x.ctypes.data, y.ctypes.data)


def test_copies_of_arguments():
    layout = Layout(FIELDS, np.float64)
    packed = layout.pack(HostDevice(), count=3, x=None, factor=0.5, first=None, y=None)
    copy = copied(packed)
    assert (copy.dtype, copy.shape, copy.tobytes()) == (layout.dtype, (), packed.tobytes())
    copy["count"] = 4
    assert packed["count"] == 3


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_the_compiler_agrees_with_the_layout(real):
    try:
        arch = nvrtc.archs()[-1]
    except DeviceError as error:
        pytest.skip(str(error))
    name = np.dtype(real).name.replace("float32", "float").replace("float64", "double")
    text = f"using T = {name};\n{Layout(FIELDS, real).text}"
    assert "const T* x;" in text
    nvrtc.compile_cubin(text, arch)
    with pytest.raises(KernelError, match="static assertion failed"):
        nvrtc.compile_cubin(text.replace("    int count;\n", "    double count[2];\n"), arch)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": "half*"}, "argument x is of type 'half\\*': choose one of int, "),
        ({"x": "T**"}, "argument x is of type"),
        ({"x": "const T"}, "argument x is of type"),
        ({}, "a kernel without arguments"),
    ],
)
def test_bad_layouts_are_refused(fields, message):
    with pytest.raises(KernelValueError, match=message):
        Layout(fields, np.float64)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"z": 1}, "no argument z: choose one of count, x"),
        ({"x": [1.0]}, "argument x is a list: give an array of host"),
        ({"x": np.zeros(3, np.float32)}, "numbers of type float32, the kernel takes float64"),
        ({"x": np.zeros((3, 4))[:, ::2]}, "argument x is not contiguous"),
        ({"count": 2**31}, "argument count is 2147483648: give a whole number from"),
        ({"count": 1.5}, "argument count is 1.5"),
    ],
)
def test_bad_arguments_are_refused(values, message):
    layout = Layout(FIELDS, np.float64)
    with pytest.raises(KernelValueError, match=message):
        layout.set(np.zeros((), layout.dtype), HostDevice(), **values)


def test_missing_arguments_are_refused():
    with pytest.raises(KernelValueError, match="arguments factor, y are missing"):
        Layout(FIELDS, np.float64).pack(HostDevice(), count=1, x=None, first=None)


def test_info_tells_of_gpus(cupy, capsys):
    from femops.cli import info

    info.info(json=True)
    facts = json.loads(capsys.readouterr().out)["gpu"]
    assert facts["missing"] is None
    assert facts["devices"][1] == {
        "name": "NVIDIA H200",
        "arch": "sm_90",
        "processors": 132,
        "memory_bytes": 150_000_000_000,
    }
    info.info(json=False)
    out = capsys.readouterr().out
    assert "cuda:1  NVIDIA H200, sm_90, 132 multiprocessors, 150 GB" in out


def test_importing_femops_loads_nothing_of_it():
    code = "import sys, femops, femops_kernels.cpu.plan; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not [name for name in loaded if name.startswith("femops_kernels.cuda")]
    assert not {name.split(".")[0] for name in loaded} & {"cupy", "cuda", "nvidia"}


def test_kernels_run_on_a_gpu():
    """Where there is one: a whole way through the door."""
    if not cupy_device.describe()["devices"]:
        pytest.skip("there is no GPU")
    device = open_device("cuda")
    layout = Layout({"x": "const T*", "y": "T*", "count": "int"}, np.float64)
    body = """
    ENTRY(128, 1, Arguments) {
        double* shared = reinterpret_cast<double*>(dynamic_shared());
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        shared[threadIdx.x + 8000] = i < a.count ? a.x[i] : 0.0;
        __syncthreads();
        if (i < a.count) atomicAdd(a.y + i, 2.0 * shared[threadIdx.x + 8000]);
    }
    """
    function = device.function("using T = double;\n" + layout.text + body)
    x, y = device.upload(np.arange(1000.0)), device.upload(np.ones(1000))
    function.launch(8, 128, 8 * 8200, layout.pack(device, x=x, y=y, count=1000))
    assert np.array_equal(device.download(y), 1 + 2 * np.arange(1000.0))
