"""Laws from the text of LLVM that another compiler wrote, such as Numba's."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any, final

import llvmlite.binding as llvm

from femops_kernels.errors import KernelError
from femops_kernels.laws.law import WHOLE, Block, Choice, Instruction, Law, Operand

# Functions of the C library that a law may call, and how many numbers they take.
LIBRARY = {
    **dict.fromkeys(
        (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "fabs"),
            *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
            *("asinh", "acosh", "atanh", "erf", "erfc", "tgamma", "lgamma"),
            *("floor", "ceil", "trunc", "rint", "round", "nearbyint"),
        ),
        1,
    ),
    **dict.fromkeys(("pow", "atan2", "hypot", "fmod", "copysign", "fmin", "fmax"), 2),
    "fma": 3,
}
# LLVM's names of functions that have other names, or none, in the C library.
_INTRINSICS = {
    **{name: name for name in LIBRARY},
    "minnum": "fmin",
    "maxnum": "fmax",
    "fmuladd": "fma",
    "roundeven": "nearbyint",
    **{name: name for name in ("minimum", "maximum")},
    **{name: name for name in ("smin", "smax", "umin", "umax", "abs")},
}
_PLAIN = (
    *("fadd", "fsub", "fmul", "fdiv", "fneg", "frem"),
    *("add", "sub", "mul", "sdiv", "udiv", "srem", "urem"),
    *("shl", "lshr", "ashr", "and", "or", "xor"),
    *("fptosi", "fptoui", "sitofp", "uitofp", "fpext", "fptrunc", "zext", "sext", "trunc"),
    *("bitcast", "select", "freeze"),
)
_RESULT, _ERROR = "result", "error"
_FORMATS = {"f64": "d", "f32": "f", "i64": "q", "i32": "i", "i8": "b"}
_SIZES = {"double": 8, "float": 4, "i64": 8, "i32": 4, "i8": 1}
_KINDS = {"double": "f64", "float": "f32", **{name: name for name in WHOLE}}


def inlined(text: str, name: str) -> Any:
    """Function of a module, with the functions that it calls written into it."""
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    target = llvm.Target.from_default_triple().create_target_machine(opt=2)
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(target, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_lower_switch_pass()
    passes.add_instruction_namer_pass()
    passes.run(module, builder)
    return module.get_function(name)


def read(title: str, text: str, name: str, inputs: int, results: Sequence[int]) -> Law:
    """Law from a function of a module.

    The function has the arguments ``(results, error, *inputs)``, as Numba's have, and returns a
    status, which is not zero if it failed. The first argument is the address of the results;
    ``results`` are the bytes where each begins.
    """
    return _Reader(title, inlined(text, name), inputs, results).law()


@final
class _Reader:
    """Reads a function."""

    def __init__(self, title: str, function: Any, inputs: int, results: Sequence[int]) -> None:
        self.title, self.inputs = title, inputs
        self.places: dict[Operand, int] = {offset: k for k, offset in enumerate(results)}
        self.blocks = list(function.blocks)
        arguments = list(function.arguments)
        self.names: dict[str, str] = {}
        # what each address belongs to, and its offset in bytes
        self.addresses: dict[str, tuple[str, Operand]] = {
            arguments[0].name: (_RESULT, 0),
            arguments[1].name: (_ERROR, 0),
        }
        for k, argument in enumerate(arguments[2:]):
            self.names[argument.name] = f"%{k}"
        self.text = str(function.module)
        self.structs: dict[str, dict[tuple[int, ...], tuple[str, Operand]]] = {}

    def failed(self, why: str) -> KernelError:
        """The error that a law cannot be read."""
        return KernelError(f"{self.title} cannot be part of a kernel: {why}")

    def law(self) -> Law:
        """The law."""
        self.number = {str(block.name): k for k, block in enumerate(self.blocks)}
        for block in self.blocks:
            for one in block.instructions:
                if _KINDS.get(str(one.type)):
                    self.names[str(one.name)] = f"%{len(self.names)}"
        self._find_addresses()
        found = [self._block(block) for block in self.blocks]
        return Law(self.title, self.inputs, len(self.places), tuple(found))

    def _kind(self, value: Any) -> str:
        kind = _KINDS.get(str(value.type))
        if kind is None:
            raise self.failed(f"it has a number of the type {value.type}")
        return kind

    def _operand(self, value: Any) -> Operand:
        if value.value_kind.name in ("undef_value", "poison_value"):
            return 0.0 if self._kind(value)[0] == "f" else 0
        if value.is_constant:
            kind = self._kind(value)
            if kind[0] == "f":
                return float(value.get_constant_value(round_fp=True))
            number = int(value.get_constant_value(signed_int=True))
            return number & 1 if kind == "i1" else number
        key = str(value.name)
        if key not in self.names:
            raise self.failed("it uses memory: let it take and return numbers")
        return self.names[key]

    def _block(self, block: Any) -> Block:
        choices: list[Choice] = []
        made: list[Instruction] = []
        end = None
        for one in block.instructions:
            match one.opcode:
                case "phi":
                    choices.append(self._choice(one))
                case "br" | "ret" | "unreachable":
                    end = self._end(one)
                case "getelementptr":
                    made += self.offsets[str(one.name)]
                case "insertvalue":
                    self._insert(one)
                case "store":
                    made += self._stored(*one.operands)
                case _:
                    found = self._instruction(one)
                    made += [found] if found else []
        assert end is not None  # LLVM checks it
        return Block(tuple(choices), tuple(made), end)

    def _choice(self, one: Any) -> Choice:
        blocks = [self.number[str(block.name)] for block in one.incoming_blocks]
        values = [self._operand(value) for value in one.operands]
        return Choice(
            self.names[str(one.name)], self._kind(one), tuple(zip(blocks, values, strict=True))
        )

    def _end(self, one: Any) -> tuple[Any, ...]:
        operands = list(one.operands)
        if one.opcode == "unreachable":
            return ("end", 1)
        if one.opcode == "ret":
            return ("end", self._operand(operands[0]))
        blocks = [self.number[str(block.name)] for block in operands[len(operands) > 1 :]]
        if len(blocks) == 1:
            return ("jump", blocks[0])
        return ("branch", self._operand(operands[0]), blocks[1], blocks[0])

    def _instruction(self, one: Any) -> Instruction | None:
        operands, name = list(one.operands), one.opcode
        if name in _PLAIN:
            return self._made(one, name, operands)
        if name in ("fcmp", "icmp"):
            predicate = re.search(rf"{name} (?:\w+ )*?(\w+) (?:double|float|i\d+) ", str(one))
            assert predicate is not None
            return self._made(one, name, operands, predicate.group(1))
        if name == "load":
            return self._loaded(one, operands[0])
        if name == "call":
            return self._called(one, operands)
        raise self.failed(f"LLVM's operation {name} is none of numbers at a point")

    def _made(
        self, one: Any, operation: str, operands: list[Any], detail: Any = None
    ) -> Instruction:
        numbers = tuple(self._operand(value) for value in operands)
        return Instruction(self.names[str(one.name)], operation, self._kind(one), numbers, detail)

    def _insert(self, one: Any) -> None:
        """Note a struct of numbers, by the indices of its parts."""
        struct, value = one.operands
        found = re.search(r"((?:, \d+)+)(?:, !.*)?$", str(one))
        assert found is not None
        index = tuple(int(k) for k in found.group(1).split(", ")[1:])
        before = self.structs.get(str(struct.name), {})
        if not before and struct.value_kind.name not in ("undef_value", "poison_value"):
            raise self.failed("its branches return tuples: return once, at the end")
        self.structs[str(one.name)] = {**before, index: (self._kind(value), self._operand(value))}

    def _stored(self, value: Any, place: Any) -> list[Instruction]:
        base, offset = self._address(place)
        if base == _ERROR:
            return []
        struct = self.structs.get(str(value.name))
        if struct is not None and (base, offset) == (_RESULT, 0):
            parts = enumerate(struct[index] for index in sorted(struct))
            return [Instruction("", "result", kind, (one,), k) for k, (kind, one) in parts]
        k = self.places.get(offset) if base == _RESULT else None
        if k is None:
            raise self.failed("it writes to memory: let it return numbers")
        return [Instruction("", "result", self._kind(value), (self._operand(value),), k)]

    def _called(self, one: Any, operands: list[Any]) -> Instruction | None:
        *given, function = operands
        name = str(function.name)
        if name.startswith(("llvm.lifetime", "llvm.assume", "llvm.experimental.noalias")):
            return None
        if name.startswith("llvm.is.fpclass"):
            return self._made(one, "class", given[:1], given[1].get_constant_value())
        plain = name.removeprefix("llvm.").split(".")[0] if name.startswith("llvm.") else name
        known = _INTRINSICS if name.startswith("llvm.") else LIBRARY
        if plain not in known:
            raise self.failed(f"it calls {name}")
        if name.startswith("llvm.abs"):
            given = given[:1]
        found = _INTRINSICS[plain] if known is _INTRINSICS else plain
        return self._made(one, "call", given, found)

    # --- addresses --------------------------------------------------------------------------------

    def _address(self, value: Any) -> tuple[str, Operand]:
        """Owner of an address, and its offset in bytes."""
        if value.value_kind.name == "global_variable":
            return str(value.name), 0
        found = None if value.is_constant else self.addresses.get(str(value.name))
        if found is None:
            raise self.failed("it uses memory: let it take and return numbers")
        return found

    def _find_addresses(self) -> None:
        """Find addresses that are others and an offset, whose instructions are kept."""
        self.offsets: dict[str, list[Instruction]] = {}
        left = [
            one
            for block in self.blocks
            for one in block.instructions
            if one.opcode == "getelementptr"
        ]
        while left:  # blocks come in any order
            ready = [one for one in left if self._known(next(one.operands))]
            if not ready:
                raise self.failed("it uses memory: let it take and return numbers")
            for one in ready:
                self._move(one)
            left = [one for one in left if str(one.name) not in self.offsets]

    def _known(self, address: Any) -> bool:
        return address.value_kind.name == "global_variable" or str(address.name) in self.addresses

    def _move(self, one: Any) -> None:
        """Note an address that is another one and an offset."""
        operands = list(one.operands)
        made = self.offsets[str(one.name)] = []
        size = _SIZES.get(re.search(r"getelementptr (?:\w+ )*?(\w+), ptr", str(one)).group(1))  # type: ignore[union-attr]
        if size is None or len(operands) != 2:
            raise self.failed("it uses memory: let it take and return numbers")
        base, offset = self._address(operands[0])
        step = self._operand(operands[1])
        if not isinstance(step, str):
            step *= size
        elif size > 1:
            step = self._new(made, "mul", step, size)
        if not isinstance(offset, str) and not isinstance(step, str):
            offset = offset + step
        elif offset == 0:
            offset = step
        else:
            offset = self._new(made, "add", offset, step)
        self.addresses[str(one.name)] = base, offset

    def _new(self, made: list[Instruction], operation: str, a: Operand, b: Operand) -> str:
        """Add an operation on offsets."""
        name = f"%{len(self.names)}"
        self.names[f"offset {name}"] = name
        made.append(Instruction(name, operation, "i64", (a, b)))
        return name

    def _loaded(self, one: Any, place: Any) -> Instruction:
        base, offset = self._address(place)
        kind = self._kind(one)
        if base in (_RESULT, _ERROR) or kind not in _FORMATS:
            raise self.failed("it uses memory: let it take and return numbers")
        data = self._constants(base)
        entries = [one for (one,) in struct.iter_unpack(f"<{_FORMATS[kind]}", data)]
        return Instruction(self.names[str(one.name)], "table", kind, (offset, tuple(entries)))

    def _constants(self, name: str) -> bytes:
        """Bytes of an array of constants."""
        found = re.search(
            rf'^@"?{re.escape(name)}"? = .*constant \[(\d+) x i8\] (zeroinitializer|c"(.*?)")',
            self.text,
            re.MULTILINE,
        )
        if found is None:
            raise self.failed("it uses an array that may change")
        if found.group(3) is None:
            return bytes(int(found.group(1)))
        data = re.sub(  # a backslash is two of them
            rb"\\(\\|[0-9A-F]{2})",
            lambda one: b"\\" if one.group(1) == b"\\" else bytes([int(one.group(1), 16)]),
            found.group(3).encode(),
        )
        if len(data) != int(found.group(1)):
            raise self.failed("it uses an array whose text in LLVM is unknown")
        return data
