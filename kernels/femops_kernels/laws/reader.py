"""Laws from the text of LLVM that another compiler wrote, such as Numba's."""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, final

import llvmlite.binding as llvm

from femops_kernels.errors import KernelError
from femops_kernels.laws.law import Block, Choice, Instruction, Law, Operand

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
# Numba's names of functions of the C library.
_OF_NUMBA = {"numba_gamma": "tgamma", "numba_lgamma": "lgamma"}
_PLAIN = (
    *("fadd", "fsub", "fmul", "fdiv", "fneg", "frem"),
    *("add", "sub", "mul", "sdiv", "udiv", "srem", "urem"),
    *("shl", "lshr", "ashr", "and", "or", "xor"),
    *("fptosi", "fptoui", "sitofp", "uitofp", "fpext", "fptrunc", "zext", "sext", "trunc"),
    *("bitcast", "select", "freeze"),
)
_EXPANDED = re.compile(r"@llvm\.(u(?:add|sub)\.with\.overflow|usub\.sat|[su]cmp\.i\d+)\.(i\d+)\(")
_MOVED = re.compile(  # the address of a constant, and an offset
    r"getelementptr (?:\w+ )*\((double|float|i8|i16|i32|i64), "
    r"ptr @(?:\"(.*?)\"|([^\s,]+)), i64 (-?\d+)\)"
)
_RESULT, _ERROR = "result", "error"
_FORMATS = {"f64": "d", "f32": "f", "i64": "q", "i32": "i", "i16": "h", "i8": "b"}
_SIZES = {"double": 8, "float": 4, "i64": 8, "i32": 4, "i16": 2, "i8": 1}
_KINDS = {"double": "f64", "float": "f32"}


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


def read(title: str, text: str, name: str, inputs: int, results: Sequence[tuple[int, str]]) -> Law:
    """Law from a function of a module.

    The function has the arguments ``(results, error, *inputs)``, as Numba's have, and returns a
    status, which is not zero if it failed. The first argument is the address of the results;
    ``results`` are the bytes where each begins, and its kind.
    """
    return _Reader(title, inlined(text, name), inputs, results).law()


@final
class _Reader:
    """Reads a function."""

    def __init__(
        self, title: str, function: Any, inputs: int, results: Sequence[tuple[int, str]]
    ) -> None:
        self.title, self.inputs, self.results = title, inputs, results
        self.places: dict[Operand, int] = {offset: k for k, (offset, _) in enumerate(results)}
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
                if _kind_of(one):
                    self.names[str(one.name)] = f"%{len(self.names)}"
        self._find_addresses()
        found = [self._block(block) for block in self.blocks]
        return Law(self.title, self.inputs, len(self.places), tuple(found))

    def _kind(self, value: Any) -> str:
        kind = _kind_of(value)
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
                case "phi" if str(one.name) in self.addresses:
                    choices.append(self._choice_of_place(one))
                # of errors: Numba writes their addresses to a place that is not read
                case "phi" | "select" if str(one.type) == "ptr":
                    pass
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
                case "call" if "@llvm.memset." in str(one):
                    made += self._filled(*list(one.operands)[:3])
                case "call" if several := _EXPANDED.search(str(one)):
                    made += self._expanded(one, *several.groups())
                case "extractvalue":
                    made.append(self._extracted(one))
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

    def _choice_of_place(self, one: Any) -> Choice:
        """Choice of a place in a table, with which a loop goes through it."""
        table, offset = self.addresses[str(one.name)]
        places = [self._address(value) for value in one.operands]
        if any(base != table for base, _ in places):
            raise self.failed("it chooses between tables: read both, and choose a number")
        blocks = [self.number[str(block.name)] for block in one.incoming_blocks]
        found = zip(blocks, (place for _, place in places), strict=True)
        return Choice(str(offset), "i64", tuple(found))

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
            if predicate is None:
                raise self.failed(f"it compares numbers of the type {operands[0].type}")
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
        inner = {index + k: part for k, part in self._parts(value).items()}
        self.structs[str(one.name)] = self._parts(struct) | inner

    def _extracted(self, one: Any) -> Instruction:
        index = tuple(int(k) for k in re.findall(r", (\d+)", str(one)))
        found = self._parts(next(one.operands)).get(index)
        if found is None:
            raise self.failed("its branches return tuples: return once, at the end")
        return Instruction(self.names[str(one.name)], "freeze", self._kind(one), found[1:])

    def _expanded(self, one: Any, name: str, kind: str) -> list[Instruction]:
        """Write an operation of LLVM on integers by several others."""
        a, b = (self._operand(x) for x in list(one.operands)[:2])
        made: list[Instruction] = []

        def new(operation: str, kind: str, *operands: Operand, detail: Any = None) -> str:
            made.append(Instruction(self._named(), operation, kind, operands, detail))
            return made[-1].name

        def last(operation: str, *operands: Operand) -> None:
            made.append(Instruction(self.names[str(one.name)], operation, kind, operands))

        if name.endswith("with.overflow"):
            value = new(name[1:4], kind, a, b)
            pair = (value, a) if name[1:4] == "add" else (a, b)
            over = new("icmp", "i1", *pair, detail="ult")
            self.structs[str(one.name)] = {(0,): (kind, value), (1,): ("i1", over)}
        elif name == "usub.sat":
            less = new("icmp", "i1", a, b, detail="ult")
            last("select", less, 0, new("sub", kind, a, b))
        else:  # scmp, ucmp: -1, 0 or 1
            kind = self._kind(one)
            less, more = (new("icmp", "i1", a, b, detail=name[0] + sign) for sign in ("lt", "gt"))
            last("or", new("sext", kind, less), new("zext", kind, more))
        return made

    def _parts(self, value: Any) -> dict[tuple[int, ...], tuple[str, Operand]]:
        """Kinds and numbers of a struct by their indices; of a number itself, by none."""
        if str(value.type)[0] not in "{[":
            return {(): (self._kind(value), self._operand(value))}
        if value.is_constant or value.value_kind.name in ("undef_value", "poison_value"):
            return _constant_parts(str(value))
        found = self.structs.get(str(value.name))
        if found is None:
            raise self.failed("its branches return tuples: return once, at the end")
        return found

    def _stored(self, value: Any, place: Any) -> list[Instruction]:
        base, offset = self._address(place)
        if base == _ERROR:
            return []
        if str(value.type)[0] in "{[" and (base, offset) == (_RESULT, 0):
            struct = self._parts(value)
            parts = enumerate(struct[index] for index in sorted(struct))
            return [Instruction("", "result", kind, (one,), k) for k, (kind, one) in parts]
        k = self.places.get(offset) if base == _RESULT else None
        if k is None:
            raise self.failed("it writes to memory: let it return numbers")
        return [Instruction("", "result", self._kind(value), (self._operand(value),), k)]

    def _filled(self, place: Any, byte: Any, count: Any) -> list[Instruction]:
        """Results that are one constant, and whose bytes LLVM fills with one value."""
        base, begin = self._address(place)
        if (
            base != _RESULT
            or isinstance(begin, str)
            or not (byte.is_constant and count.is_constant)
        ):
            raise self.failed("it writes to memory: let it return numbers")
        value = int(byte.get_constant_value(signed_int=False)).to_bytes(1, "little")
        end = int(begin) + int(count.get_constant_value())
        return [
            Instruction("", "result", kind, struct.unpack(f"<{_FORMATS[kind]}", value * size), k)
            for k, (offset, kind) in enumerate(self.results)
            if begin <= offset < end
            for size in (int(kind[1:]) // 8,)
        ]

    def _called(self, one: Any, operands: list[Any]) -> Instruction | None:
        *given, function = operands
        name = str(function.name)
        if name.startswith(("llvm.lifetime", "llvm.assume", "llvm.experimental.noalias")):
            return None
        if name.startswith("llvm.is.fpclass"):
            return self._made(one, "class", given[:1], given[1].get_constant_value())
        if name.startswith("llvm."):
            plain = name.removeprefix("llvm.").split(".")[0]
        else:
            plain = name.removesuffix("f") if str(one.type) == "float" else name
            plain = _OF_NUMBA.get(plain, plain)
        if plain not in (_INTRINSICS if name.startswith("llvm.") else LIBRARY):
            raise self.failed(f"it calls {name}")
        if name.startswith("llvm.abs"):
            given = given[:1]
        called = _INTRINSICS[plain] if name.startswith("llvm.") else plain
        return self._made(one, "call", given, called)

    # --- addresses --------------------------------------------------------------------------------

    def _address(self, value: Any) -> tuple[str, Operand]:
        """Owner of an address, and its offset in bytes."""
        if value.value_kind.name == "global_variable":
            return str(value.name), 0
        if moved := _MOVED.search(str(value)) if value.is_constant else None:
            name, size, count = moved.group(2) or moved.group(3), moved.group(1), moved.group(4)
            return name, _SIZES[size] * int(count)
        found = None if value.is_constant else self.addresses.get(str(value.name))
        if found is None:
            raise self.failed("it uses memory: let it take and return numbers")
        return found

    def _find_addresses(self) -> None:
        """Find addresses that are others and an offset, whose instructions are kept."""
        self.offsets: dict[str, list[Instruction]] = {}
        instructions = [one for block in self.blocks for one in block.instructions]
        left = [one for one in instructions if one.opcode == "getelementptr"]
        chosen = [one for one in instructions if one.opcode == "phi" and str(one.type) == "ptr"]
        while left or chosen:  # blocks come in any order
            ready = [one for one in left if self._known(next(one.operands))]
            tables = [(one, name) for one in chosen if (name := self._table_of(one))]
            if not ready and not tables:
                break
            for one in ready:
                self._move(one)
            for one, name in tables:
                self.addresses[str(one.name)] = name, self._named()
            left = [one for one in left if str(one.name) not in self.offsets]
            chosen = [one for one in chosen if str(one.name) not in self.addresses]
        if left:
            raise self.failed("it uses memory: let it take and return numbers")

    def _table_of(self, one: Any) -> str | None:
        """Table to which a chosen address belongs; None if none is known yet."""
        for value in one.operands:
            moved = value.is_constant and _MOVED.search(str(value))
            named = value.value_kind.name == "global_variable" or moved
            if named or str(value.name) in self.addresses:
                base = self._address(value)[0]
                return base if self._constant_array(base) else None
        return None

    def _known(self, address: Any) -> bool:
        return address.is_constant or str(address.name) in self.addresses

    def _move(self, one: Any) -> None:
        """Note an address that is another one and an offset."""
        operands = list(one.operands)
        made = self.offsets[str(one.name)] = []
        # LLVM 20 writes [n x T] with an index 0 in front, where later ones write T
        element = re.search(r"getelementptr (?:\w+ )*?(?:\[\d+ x (\w+)\]|(\w+)), ptr", str(one))
        kind = (element.group(1) or element.group(2)) if element else ""
        first, last = str(operands[1]), operands[-1]
        plain = len(operands) == (3 if element and element.group(1) else 2)
        if kind not in _SIZES or not plain or (len(operands) == 3 and first != "i64 0"):
            raise self.failed("it uses memory: let it take and return numbers")
        size = _SIZES[kind]
        base, offset = self._address(operands[0])
        step = self._operand(last)
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
        name = self._named()
        made.append(Instruction(name, operation, "i64", (a, b)))
        return name

    def _named(self) -> str:
        """Name for a number that the function has not."""
        name = f"%{len(self.names)}"
        self.names[f"new {name}"] = name
        return name

    def _loaded(self, one: Any, place: Any) -> Instruction:
        base, offset = self._address(place)
        kind = self._kind(one)
        if base in (_RESULT, _ERROR) or kind not in _FORMATS:
            raise self.failed("it uses memory: let it take and return numbers")
        data = self._constants(base)
        entries = [one for (one,) in struct.iter_unpack(f"<{_FORMATS[kind]}", data)]
        return Instruction(self.names[str(one.name)], "table", kind, (offset, tuple(entries)))

    def _constant_array(self, name: str) -> re.Match[str] | None:
        return re.search(
            rf'^@"?{re.escape(name)}"? = .*constant \[(\d+) x (\w+)\] '
            r'(?:(zeroinitializer)|c"(.*?)"|\[(.*?)\])',
            self.text,
            re.MULTILINE,
        )

    def _constants(self, name: str) -> bytes:
        """Bytes of an array of constants."""
        found = self._constant_array(name)
        if found is None or found.group(2) not in _SIZES:
            raise self.failed("it uses an array that may change")
        count, kind, zero, text, entries = found.groups()
        if zero:
            return bytes(int(count) * _SIZES[kind])
        if text is not None:
            return _bytes(text)
        # LLVM writes such arrays itself, for functions with a branch for each of some integers
        numbers = [_number(one.split()[1]) for one in entries.split(", ")]
        return struct.pack(f"<{count}{_FORMATS[_KINDS.get(kind, kind)]}", *numbers)


def _kind_of(value: Any) -> str | None:
    """Kind of a number; None if it is none."""
    name = str(value.type)
    return name if re.fullmatch(r"i\d+", name) else _KINDS.get(name)


def _constant_parts(text: str) -> dict[tuple[int, ...], tuple[str, Operand]]:
    """Kinds and numbers of a constant struct or array by their indices; undefined ones are zero."""
    tokens = deque(re.findall(r"[{}\[\]]|[^\s{}\[\],]+", text))

    def sort() -> Any:
        """Read a type: its kind, or those of its parts."""
        first = tokens.popleft()
        if first == "[":
            count, _ = tokens.popleft(), tokens.popleft()
            found = [sort()] * int(count)
        elif first == "{":
            found = []
            while tokens[0] != "}":
                found.append(sort())
        else:
            return _KINDS.get(first, first)
        tokens.popleft()
        return found

    def put(kind: Any, place: tuple[int, ...]) -> None:
        """Read a value of a type."""
        if tokens[0] in ("{", "["):
            tokens.popleft()
            for k in range(len(kind)):
                put(sort(), (*place, k))
            tokens.popleft()
            return
        value = tokens.popleft()
        if value.startswith('c"'):
            parts.update({(*place, k): (kind[0], x) for k, x in enumerate(_bytes(value[2:-1]))})
            return
        for index in _indices(kind, place):
            leaf = kind
            for k in index[len(place) :]:
                leaf = leaf[k]
            parts[index] = leaf, _number(value)

    parts: dict[tuple[int, ...], tuple[str, Operand]] = {}
    put(sort(), ())
    return parts


_ZEROS = ("undef", "poison", "zeroinitializer", "false")


def _indices(kind: Any, place: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Indices of the numbers of a type."""
    if isinstance(kind, str):
        yield place
    else:
        for k, one in enumerate(kind):
            yield from _indices(one, (*place, k))


def _bytes(text: str) -> bytes:
    """Convert a text of LLVM, in which some bytes have a backslash and two digits, to bytes."""

    def plain(escaped: re.Match[bytes]) -> bytes:
        digits = escaped.group(1)
        return digits if digits == b"\\" else bytes([int(digits, 16)])

    return re.sub(rb"\\(\\|[0-9A-F]{2})", plain, text.encode())


def _number(text: str) -> float:
    """Number as LLVM writes it; of one whose digits would not do, the bits."""
    if text.startswith("0x"):
        return float(struct.unpack(">d", bytes.fromhex(text[2:]))[0])
    if text in _ZEROS or text == "true":
        return int(text == "true")
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
