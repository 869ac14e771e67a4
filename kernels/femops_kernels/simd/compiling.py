"""Compilation of kernels: functions that only compiled code calls, and entry points.

Numba would optimise every function by itself, generate its machine code, and then optimise it again
in each caller. Here an inner function is put into the module of the entry point without being
optimised. Then the module is optimised.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

from llvmlite import binding
from numba import cfunc, njit
from numba.core import typed_passes, untyped_passes
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase, Flags, compile_extra
from numba.core.compiler_machinery import PassManager
from numba.core.registry import cpu_target
from numba.extending import intrinsic

_PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.IRLegalization,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)


@final
class _Whole(JITCodeLibrary):
    """Code of an entry point and of all functions that it calls, optimised twice."""

    def _optimize_final_module(self) -> None:
        # numba does this once; done twice, small kernels are 1 to 3 % faster. Without loops being
        # vectorised the first time, sweeps take up to 1.3 times as long, and compiling no less.
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)
        super()._optimize_final_module()


class _Pipeline(CompilerBase, ABC):
    """Compiler with only the numba passes that kernels need.

    It has no passes for closures, parallel loops or array expressions.
    """

    @property
    @abstractmethod
    def library(self) -> type[JITCodeLibrary]:
        """The class that keeps the code of an entry point."""

    def define_pipelines(self) -> list[Any]:
        state = self.state
        if state.library is None:
            state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
        passes = PassManager("kernel")
        for one in _PASSES:
            passes.add_pass(one, one._name)
        passes.finalize()
        return [passes]


@final
class _Thorough(_Pipeline):
    """Compiler for loops over elements and vectors, whose code is optimised twice."""

    library = _Whole


@final
class _Quick(_Pipeline):
    """Compiler for functions that decide and call others, whose code is optimised once."""

    library = JITCodeLibrary


@final
class Part(CodeLibrary):
    """Code of one inner function and its callees. It is linked into entry points."""

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.calls: dict[CodeLibrary, None] = {}
        self._module: Any = None

    def add_ir_module(self, ir_module: Any) -> None:
        for function in ir_module.functions:
            if not function.is_declaration:
                function.linkage = "linkonce_odr"  # as numba links a library that is called
        self._module = binding.parse_assembly(str(ir_module))
        self._module.verify()

    def add_linking_library(self, library: Any) -> None:
        library._ensure_finalized()
        self.calls[library] = None

    def finalize(self) -> None:
        self._finalized = True

    def link_into(self, library: Any) -> None:
        for part in (self, *self.calls):
            library.add_linking_library(part)

    def _get_module_for_linking(self) -> Any:
        return self._module

    def get_function(self, name: str) -> Any:
        return self._module.get_function(name)

    def get_llvm_str(self) -> str:
        return str(self._module)

    def get_asm_str(self) -> str:
        return ""


def inner(function: Callable[..., Any]) -> Any:
    """Decorator of functions that only compiled code calls."""

    def typer(typingctx: Any, *args: Any) -> Any:
        part, result = compiled_part(typingctx, function, args)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            part.link_into(context.active_code_library)
            # nothing in a kernel raises
            _, value = context.call_internal_no_propagate(builder, result.fndesc, sig, args)
            return value

        return result.signature, codegen

    made = as_intrinsic(typer, function)
    made.inner_function = function
    return made


def carrying(function: Callable[..., Any]) -> Any:
    """Decorator of `inner` functions that carry variables through loops: they are not traced."""
    made = inner(function)
    made.inner_function = None
    return made


def compiled_part(typingctx: Any, function: Callable[..., Any], args: Any) -> tuple[Part, Any]:
    """Compile a function for argument types. Return the code to link, and numba's result."""
    context = cpu_target.target_context
    part = Part(context.codegen(), function.__name__)
    flags = Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    result = compile_extra(typingctx, context, function, args, None, flags, {}, part, _Quick)
    part.finalize()
    return part, result


def as_intrinsic(
    typer: Callable[..., Any], function: Callable[..., Any], first: tuple[str, ...] = ()
) -> Any:
    """Make an intrinsic with the name and the parameters of a function.

    The names in ``first`` replace the function's first parameters.
    """
    own = list(inspect.signature(function).parameters.values())
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in ("typingctx", *first)
    ]
    typer.__signature__ = inspect.Signature([*parameters, *own[len(first) :]])
    typer.__name__ = function.__name__
    return intrinsic(typer)


def inlined(made: Any) -> Any:
    """Return the Python function behind an `inner` function, or None if it is not traced."""
    return getattr(made, "inner_function", None)


def entry(signature: str, *, thorough: bool = True) -> Any:
    """Decorator of entry points, which are called by their address.

    If ``thorough`` is False, code is optimised once. This suffices if callees do the work.
    """
    pipeline = _Thorough if thorough else _Quick
    return cfunc(signature, cache=True, error_model="numpy", pipeline_class=pipeline)


def function(signature: str) -> Any:
    """Decorator of entry points that Python calls, too. A call by address would cost more."""
    return njit(signature, cache=True, nogil=True, error_model="numpy", pipeline_class=_Quick)


def address_of_function(made: Any) -> int:
    """Address by which compiled code calls a result of `function`."""
    (result,) = made.overloads.values()
    address: int = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    return address


__all__ = ["carrying", "entry", "function", "inner"]
