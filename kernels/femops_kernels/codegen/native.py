"""Machine code of kernels: written by their functions, optimised by LLVM, and loaded."""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import re
import threading
from collections.abc import Mapping
from functools import cache
from inspect import isfunction
from types import CodeType, SimpleNamespace
from typing import Any, final

import llvmlite.binding as llvm
from llvmlite import ir

from femops_kernels.simd.compiling import Entry, written_entry
from femops_kernels.simd.rewriting import NAMES, rewritten
from femops_kernels.simd.values import WORD, begin_writing, end_writing

SKELETON = "# <skeleton {}>"
"""Line of a kernel's source, behind which stands the text of a skeleton."""

_SKELETONS = re.compile(SKELETON.format("(.*)"))

_NUMBERS = int, float, bool
_CACHE_LINE = 64  # bytes
_ROOM = 1 << 25  # bytes, more than a kernel takes
_SMALL = 40  # instructions of a function that is put into each function that calls it
_writing = threading.Lock()  # one module is written at a time
_SYSTEM = ctypes.pythonapi


@final
class CompiledKernel(SimpleNamespace):
    """A loaded kernel. Its attributes are its constants, and the functions that Python calls."""

    addresses: Mapping[str, int]  # addresses of entry points by name

    def __getattr__(self, name: str) -> Any:  # for type checkers: attributes are the kernel's own
        raise AttributeError(f"the kernel has no {name}")


# --- compilation ----------------------------------------------------------------------------------


def compiled(name: str, text: str, path: str, known: Mapping[str, Any] | None = None) -> bytes:
    """Compile the source of a kernel. Return the content of its compiled file."""
    _check_memory()
    names = {**(known or {}), "__name__": name, "__file__": path, **NAMES}
    own, *shared = _SKELETONS.split(text)
    skeletons = map(_python_of_skeleton, shared[::2], shared[1::2])
    for source in (_python(own, path), *skeletons):
        exec(source, names)
    functions = [*dict.fromkeys(value for value in names.values() if _is_entry(value))]
    with _writing:
        text = str(_module(name, functions))
    code = _optimised(text, names.get("ALL_PASSES", False))
    head = {
        "entries": [vars(one.entry) for one in functions],
        "constants": {k: v for k, v in names.items() if k[0].isupper() and isinstance(v, _NUMBERS)},
        "sum": hashlib.sha256(code).hexdigest(),
    }
    return json.dumps(head).encode() + b"\n" + code


def _check_memory() -> None:
    """Raise a `MemoryError` if the system has no room for a kernel. LLVM would end the process."""
    try:
        mmap.mmap(-1, _ROOM).close()
    except OSError as error:
        raise MemoryError("there is no memory left to compile or load a kernel") from error


def _python(text: str, path: str) -> CodeType:
    return compile(rewritten(text, path), path, "exec", dont_inherit=True)


@cache
def _python_of_skeleton(name: str, text: str) -> CodeType:
    """Kept, as rewriting takes as long as all else that Python does for a kernel."""
    return _python(text, f"<skeleton {name}>")


def _is_entry(value: Any) -> bool:
    return isfunction(value) and isinstance(getattr(value, "entry", None), Entry)


def _module(name: str, functions: list[Any]) -> ir.Module:
    """Write entry points. Those that Python calls get a function that takes objects of Python."""
    here = begin_writing(name)
    try:
        here.module.triple = llvm.get_process_triple()
        here.module.data_layout = str(_machine().target_data)
        for function in functions:
            written_entry(function)
            if function.entry.called:
                _called_by_python(here.module, here.module.globals[f"{name}.{function.__name__}"])
        for function, count in here.calls.items():
            if count == 1 or sum(len(block.instructions) for block in function.blocks) <= _SMALL:
                function.attributes.add("alwaysinline")
        for function in here.module.functions:
            if function.blocks:  # lane vectors on the stack would lie across cache lines
                function.attributes.add("nounwind")
                function.attributes.alignstack = _CACHE_LINE
        return here.module
    finally:
        end_writing()


@cache
def _machine() -> Any:
    """LLVM's code generator for this processor, which compiles."""
    return _new_machine()


def _new_machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


def _optimised(text: str, all_passes: bool) -> bytes:
    """Machine code of a module's text.

    LLVM's third level and its passes over modules take a third of the time. They run where the
    skeleton says ``ALL_PASSES``: where LLVM makes vectors of loops over numbers, or where measured.
    """
    module, machine = llvm.parse_assembly(text), _machine()
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3 if all_passes else 2)
    options.loop_vectorization, options.slp_vectorization = all_passes, False
    builder = llvm.create_pass_builder(machine, options)
    # LLVM would optimise a function before it puts it into the only function that calls it, which
    # takes twice the time: loops in loops are functions in functions here
    first = llvm.create_new_module_pass_manager()
    first.add_always_inliner_pass()
    first.run(module, builder)
    if all_passes:
        builder.getModulePassManager().run(module, builder)
    else:
        passes = builder.getFunctionPassManager()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
    return bytes(machine.emit_object(module))


# --- calls from Python ----------------------------------------------------------------------------

_OBJECT = ir.IntType(8).as_pointer()
_SUFFIX = ".python"
_API = {
    "PyLong_AsLongLong": ir.FunctionType(WORD, [_OBJECT]),
    "PyFloat_AsDouble": ir.FunctionType(ir.DoubleType(), [_OBJECT]),
    "PyErr_BadArgument": ir.FunctionType(ir.IntType(32), []),
    "PyErr_Occurred": ir.FunctionType(_OBJECT, []),
    "PyEval_SaveThread": ir.FunctionType(_OBJECT, []),
    "PyEval_RestoreThread": ir.FunctionType(ir.VoidType(), [_OBJECT]),
    "PyLong_FromLongLong": ir.FunctionType(_OBJECT, [WORD]),
}
"""Functions of Python's C interface, which compiled code calls."""


def _called_by_python(module: ir.Module, point: Any) -> None:
    """Write a function of Python's objects, which calls an entry point without Python's lock.

    It is a ``_PyCFunctionFast``: the arguments are the module, an array of objects, and their
    number. An entry point that returns nothing returns the integer 0 to Python.
    """
    api = {}
    for name, kind in _API.items():
        api[name] = module.globals.get(name) or ir.Function(module, kind, name)
    sort = ir.FunctionType(_OBJECT, [_OBJECT, _OBJECT.as_pointer(), WORD])
    outer = ir.Function(module, sort, point.name + _SUFFIX)
    builder = ir.IRBuilder(outer.append_basic_block("entry"))
    nothing, values = ir.Constant(_OBJECT, None), []
    wrong = builder.icmp_unsigned("!=", outer.args[2], WORD(len(point.args)))
    with builder.if_then(wrong, likely=False):
        builder.call(api["PyErr_BadArgument"], [])
        builder.ret(nothing)
    for k, argument in enumerate(point.args):
        given = builder.load(builder.gep(outer.args[1], [WORD(k)]))
        real = argument.type != WORD
        value = builder.call(api["PyFloat_AsDouble" if real else "PyLong_AsLongLong"], [given])
        one = ir.Constant(argument.type, -1)
        odd = (
            builder.fcmp_ordered("==", value, one)
            if real
            else builder.icmp_signed("==", value, one)
        )
        with builder.if_then(odd, likely=False):  # a number, or an error
            error = builder.call(api["PyErr_Occurred"], [])
            with builder.if_then(builder.icmp_unsigned("!=", error, nothing), likely=False):
                builder.ret(nothing)
        values.append(value)
    state = builder.call(api["PyEval_SaveThread"], [])
    result = builder.call(point, values)
    builder.call(api["PyEval_RestoreThread"], [state])
    number = result if point.function_type.return_type == WORD else WORD(0)
    builder.ret(builder.call(api["PyLong_FromLongLong"], [number]))


class _Method(ctypes.Structure):
    """``PyMethodDef`` of Python's C interface."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x0080
_FLOAT_USED = ctypes.c_int(1)  # its value means nothing
_kept: list[Any] = []  # code and methods that are used by address


def _callable(name: str, address: int) -> Any:
    """Function of Python that calls a function of `_called_by_python`."""
    method = _Method(name.encode(), address, _FASTCALL, None)
    _kept.append(method)
    make = _SYSTEM.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.POINTER(_Method), ctypes.c_void_p, ctypes.c_void_p]
    return make(ctypes.byref(method), None, None)


# --- loading --------------------------------------------------------------------------------------


@cache
def _announce() -> None:
    """Give LLVM the addresses of the functions in `_API`, on Windows also of two symbols more."""
    symbols = {name: getattr(_SYSTEM, name) for name in _API}
    if os.name == "nt":
        windows: Any = ctypes  # type checkers do not know Windows' names
        symbols["__chkstk"] = windows.WinDLL("ntdll")["__chkstk"]  # for large frames
        symbols["_fltused"] = ctypes.byref(_FLOAT_USED)  # code with real numbers refers to it
    for name, symbol in symbols.items():
        llvm.add_symbol(name, ctypes.cast(symbol, ctypes.c_void_p).value or 0)


def loaded(name: str, content: bytes) -> CompiledKernel:
    """Load a kernel from the content of its compiled file."""
    head, code = content.split(b"\n", 1)
    known = json.loads(head)
    _check_memory()
    if known["sum"] != hashlib.sha256(code).hexdigest():
        raise ValueError("the compiled file has other code")  # LLVM would end the process
    _announce()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _kept.append(engine)
    addresses, functions = {}, {}
    for each in known["entries"]:
        symbol = f"{name}.{each['name']}"
        addresses[each["name"]] = engine.get_function_address(symbol)
        if not addresses[each["name"]]:
            raise ValueError(f"the compiled file has no {symbol}")
        if each["called"]:
            place = engine.get_function_address(symbol + _SUFFIX)
            functions[each["name"]] = _callable(each["name"], place)
    return CompiledKernel(addresses=addresses, **known["constants"], **functions)
