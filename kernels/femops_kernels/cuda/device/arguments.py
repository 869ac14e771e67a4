"""Arguments of a kernel: one structure with the same layout in Python and in C++."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops_kernels.device import Device
from femops_kernels.errors import KernelValueError

_NUMBERS: dict[str, type[np.generic]] = {
    "int": np.int32,
    "unsigned char": np.uint8,
    "unsigned": np.uint32,
    "long long": np.int64,
    "float": np.float32,
    "double": np.float64,
}


@final
@dataclass(frozen=True, eq=False)
class Place:
    """Address in an array of any strides. The kernel itself knows the strides."""

    array: Any  # array of a device.  Complex numbers are pairs of real ones.
    offset: int = 0  # bytes from the array's first entry


@final
class Layout:
    """Layout of the structure ``Arguments`` that holds a kernel's arguments.

    Examples
    --------
    >>> layout = Layout({"x": "const T*", "count": "int"}, np.float64)
    >>> layout.dtype.itemsize
    16
    """

    def __init__(self, fields: Mapping[str, str], real: DTypeLike) -> None:
        self._numbers = _NUMBERS | {"T": np.dtype(real).type}
        self._types = {name: " ".join(kind.split()) for name, kind in fields.items()}
        if not fields:
            raise KernelValueError("a kernel without arguments: give it at least one")
        self._pointed = {name: self._number(name) for name in fields}
        self._pointers = frozenset(name for name, kind in self._types.items() if "*" in kind)
        self.dtype = np.dtype(
            [
                (name, np.uint64 if name in self._pointers else self._pointed[name])
                for name in fields
            ],
            align=True,
        )
        self.text = self._definition()

    def _number(self, name: str) -> np.dtype[Any]:
        kind = self._types[name]
        number = kind.removesuffix("*").rstrip() if kind.endswith("*") else kind
        number = number.removeprefix("const ") if kind.endswith("*") else number
        if number not in self._numbers:
            raise KernelValueError(
                f"argument {name} is of type {kind!r}: choose one of "
                f"{', '.join(self._numbers)} or a pointer to it"
            )
        return np.dtype(self._numbers[number])

    def _definition(self) -> str:
        lines = [f"    {kind} {name};" for name, kind in self._types.items()]
        # sizes and alignments fix the offsets; CUDA 12 has no offsetof without headers
        kinds = {kind: self.dtype[name] for name, kind in self._types.items()}
        check = [f"sizeof(Arguments) == {self.dtype.itemsize}"]
        for kind, number in kinds.items():
            check.append(f"sizeof({kind}) == {number.itemsize}")
            check.append(f"alignof({kind}) == {number.alignment}")
        checked = f'static_assert({" && ".join(check)}, "the layout that Python fills in");'
        return "\n".join(["struct Arguments {", *lines, "};", checked, ""])

    def pack(self, device: Device, **values: Any) -> NDArray[Any]:
        """Pack all arguments for a launch into one structure."""
        missing = [name for name in self._types if name not in values]
        if missing:
            raise KernelValueError(f"arguments {', '.join(missing)} are missing: give a value")
        packed = np.zeros((), self.dtype)
        self.set(packed, device, **values)
        return packed

    def set(self, packed: NDArray[Any], device: Device, **values: Any) -> None:
        """Replace some arguments in the structure ``packed``, a shape () array; see `pack`."""
        for name, value in values.items():
            if name not in self._types:
                known = ", ".join(self._types)
                raise KernelValueError(f"there is no argument {name}: choose one of {known}")
            if name in self._pointers:
                packed[name] = 0 if value is None else self._address(device, name, value)
            else:
                packed[name] = self._value(name, value)

    def _address(self, device: Device, name: str, array: Any, *, apart: bool = False) -> int:
        if isinstance(array, Place):
            return self._address(device, name, array.array, apart=True) + array.offset
        if not device.owns(array):
            raise KernelValueError(
                f"argument {name} has type {type(array).__name__}: "
                f"give an array of {device.name}, as device.upload makes it"
            )
        kind = np.finfo(array.dtype).dtype if array.dtype.kind == "c" else array.dtype
        if (kind if apart else array.dtype) != self._pointed[name]:
            raise KernelValueError(
                f"argument {name} has numbers of type {array.dtype}, "
                f"the kernel takes {self._pointed[name]}: convert them"
            )
        if not (apart or array.flags.c_contiguous):
            raise KernelValueError(f"argument {name} is not contiguous: copy it")
        return device.address(array)

    def _value(self, name: str, value: Any) -> Any:
        number = self._pointed[name]
        if number.kind == "f":
            return number.type(value)
        limits = np.iinfo(number)
        if value != int(value) or not limits.min <= value <= limits.max:
            raise KernelValueError(
                f"argument {name} is {value!r}: "
                f"give a whole number from {limits.min} to {limits.max}"
            )
        return int(value)


def copied(packed: NDArray[Any]) -> NDArray[Any]:
    """Copy a structure of arguments, a shape () array. NumPy's own copy, by field, is slower."""
    return packed.view(f"V{packed.nbytes}").copy().view(packed.dtype)
