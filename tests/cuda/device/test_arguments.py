"""The arguments of kernels: a structure as C lays it out."""

import ctypes
import re

import numpy as np
import pytest

from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.errors import DeviceError, KernelError, KernelValueError


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


def test_bad_layouts_are_refused():
    for kind in ("half*", "T**", "const T"):
        with pytest.raises(KernelValueError, match=f"x is of type '{re.escape(kind)}': choose one"):
            Layout({"x": kind}, np.float64)
    with pytest.raises(KernelValueError, match="a kernel without arguments"):
        Layout({}, np.float64)


BAD = [
    ({"z": 1}, "no argument z: choose one of count, x"),
    ({"x": [1.0]}, "argument x has type list: give an array of host"),
    ({"x": np.zeros(3, np.float32)}, "numbers of type float32, the kernel takes float64"),
    ({"x": np.zeros((3, 4))[:, ::2]}, "argument x is not contiguous"),
    ({"count": 2**31}, "argument count is 2147483648: give a whole number from"),
    ({"count": 1.5}, "argument count is 1.5"),
]


@pytest.mark.parametrize(("values", "message"), BAD)
def test_bad_arguments_are_refused(values, message):
    layout = Layout(FIELDS, np.float64)
    with pytest.raises(KernelValueError, match=message):
        layout.set(np.zeros((), layout.dtype), HostDevice(), **values)


def test_missing_arguments_are_refused():
    with pytest.raises(KernelValueError, match="arguments factor, y are missing"):
        Layout(FIELDS, np.float64).pack(HostDevice(), count=1, x=None, first=None)
