"""Laws in CUDA C++: each block is a label, and the numbers of all blocks are variables."""

from __future__ import annotations

from typing import Any

from femops_kernels.laws.law import SIGNS, Block, Instruction, Law

_TYPES = {
    "f64": "double",
    "f32": "float",
    "i1": "bool",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
}
_INFIX = {"fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/", "and": "&", "or": "|", "xor": "^"}
_SIGNED = {"sdiv": "/", "srem": "%", "ashr": ">>"}
# the first four wrap around: signed ones would be undefined
_UNSIGNED = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "shl": "<<",
    "udiv": "/",
    "urem": "%",
    "lshr": ">>",
}
_OF_ONE = {
    "fneg": "-{0}",
    "freeze": "{0}",
    "frem": "fmod({0}, {1})",
    **dict.fromkeys(("fptosi", "fpext", "fptrunc"), "({kind}){0}"),
    **dict.fromkeys(("sitofp", "sext"), "({kind}){signed}"),
    **dict.fromkeys(("zext", "uitofp", "trunc"), "({kind}){unsigned}"),
    "fptoui": "({kind})(unsigned long long){0}",
}
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_CHOICES = {"smin": ("<", ""), "smax": (">", ""), "umin": ("<", "u"), "umax": (">", "u")}
_CLASSES = (
    "{0} != {0}",
    "{0} != {0}",
    "{0} < -{max}",
    "{0} <= -{min} && {0} >= -{max}",
    "{0} < 0 && {0} > -{min}",
    "{0} == 0 && copysign(1.0, (double){0}) < 0",
    "{0} == 0 && copysign(1.0, (double){0}) > 0",
    "{0} > 0 && {0} < {min}",
    "{0} >= {min} && {0} <= {max}",
    "{0} > {max}",
)
"""Tests of ``llvm.is.fpclass``, by bit."""
_WIDER = (("signed char", 8), ("short", 16), ("int", 32), ("long long", 64))


def function(law: Law) -> str:
    """Definition of a function ``law(double, ..., double* results)``."""
    given = ", ".join(f"double {_name(f'%{k}')}" for k in range(law.inputs))
    known = [f"    {_type(kind)} {_name(name)};" for name, kind in _made(law)]
    known += [f"    {_type(kind)} {_name(name)}_next;" for name, kind in _choices(law)]
    lines = [
        f"__device__ __forceinline__ void {law.name}({given}, double* results)",
        "{",
        "    bool failed = false;",
        *known,
        *(f"    results[{k}] = 0.0;" for k in range(law.results)),
    ]
    for k, block in enumerate(law.blocks):
        lines.append(f"block{k}:;" if k else "    {}")
        lines += [f"    {_name(one.name)} = {_name(one.name)}_next;" for one in block.choices]
        lines += [f"    {statement}" for one in block.instructions for statement in _said(law, one)]
        lines += [f"    {statement}" for statement in _end(law, k, block)]
    lines += [
        "finished:",
        "    if (failed) {",
        *(f"        results[{k}] = 0.0 / 0.0;" for k in range(law.results)),
        "    }",
        "}",
        "",
    ]
    return "\n".join(lines)


def _made(law: Law) -> list[tuple[str, str]]:
    return [pair for block in law.blocks for pair in block.numbers()]


def _choices(law: Law) -> list[tuple[str, str]]:
    return [(one.name, one.kind) for block in law.blocks for one in block.choices]


def _type(kind: str) -> str:
    """Type for numbers of a kind. An integer of a width that C++ has not is in a wider one."""
    if kind in _TYPES:
        return _TYPES[kind]
    return next((name for name, bits in _WIDER if int(kind[1:]) < bits), "__int128")


def _unsigned(kind: str, number: str) -> str:
    """Text of an integer as an unsigned one."""
    if kind == "i1":
        return f"(bool){number}"
    text = f"(unsigned {_type(kind).removeprefix('signed ')}){number}"
    return text if kind in _TYPES else f"({text} & {_bits(kind)})"


def _bits(kind: str) -> str:
    return f"(((unsigned {_type(kind).removeprefix('signed ')})1 << {kind[1:]}) - 1)"


def _cut(kind: str, number: str) -> str:
    """Text of a number that is cut to a kind, with the sign of its highest bit."""
    if kind in _TYPES or kind[0] == "f":
        return f"({_type(kind)})({number})"
    wide, left = _type(kind), f"(sizeof({_type(kind)}) * 8 - {kind[1:]})"
    return f"({wide})((unsigned {wide.removeprefix('signed ')})({number}) << {left}) >> {left}"


def _name(name: str) -> str:
    return "v" + name[1:].replace(".", "_")


def _operand(one: Any, kind: str) -> str:
    """Text of a number, or of a constant of a kind."""
    if isinstance(one, str):
        return _name(one)
    if kind == "i1":
        return "true" if one else "false"
    if kind[0] == "i":
        if int(one) == -(2**63):  # it has no literal
            return f"({_type(kind)})(-{2**63 - 1}ll - 1)"
        if abs(int(one)) >= 2**63:
            high, low = divmod(int(one), 2**62)
            return f"(({_type(kind)})({high}ll) * {2**62}ll + {low}ll)"
        return f"({_type(kind)})({int(one)}ll)"
    number = float(one)
    if number != number:
        return f"({_TYPES[kind]})(0.0 / 0.0)"
    if number in (float("inf"), float("-inf")):
        return f"({_TYPES[kind]})({'-' * (number < 0)}1.0 / 0.0)"
    return f"({_TYPES[kind]})({number!r})"


def _end(law: Law, k: int, block: Block) -> list[str]:
    if block.end[0] == "end":
        status = block.end[1]
        failed = f"failed = failed || {_operand(status, 'i32')} != 0;" if status != 0 else ""
        return [failed, "goto finished;"]
    if block.end[0] == "jump":
        return _way(law, k, block.end[1])
    condition = _operand(block.end[1], "i1")
    first, second = (" ".join(_way(law, k, one)) for one in block.end[2:])
    return [f"if ({condition}) {{ {first} }} else {{ {second} }}"]


def _way(law: Law, origin: int, target: int) -> list[str]:
    """Statements that give the choices of a block their numbers, and go there."""
    given = [
        f"{_name(one.name)}_next = {_operand(dict(one.values)[origin], one.kind)};"
        for one in law.blocks[target].choices
    ]
    return [*given, f"goto block{target};"]


def _said(law: Law, one: Instruction) -> list[str]:
    if one.operation == "result":
        value = _operand(one.operands[0], one.kind)
        return [f"results[{one.detail}] = (double){value};"]
    name, kind = _name(one.name), _type(one.kind)
    if one.operation == "table":
        entries = ", ".join(_operand(x, one.kind) for x in one.operands[1])
        size = int(one.kind[1:]) // 8
        count = len(one.operands[1])
        place = f"{_operand(one.operands[0], 'i64')} / {size}"
        outside = f"{_operand(one.operands[0], 'i64')} < 0 || {place} >= {count}"
        return [
            f"{{ const {kind} table[{count}] = {{{entries}}};",
            f"if ({outside}) failed = true; else {name} = table[{place}]; }}",
        ]
    if one.operation == "bitcast":
        source = law.kinds[one.operands[0]]
        kept = f"const {_TYPES[source]} bits = {_operand(one.operands[0], source)};"
        return [f"{{ {kept} memcpy(&{name}, &bits, sizeof {name}); }}"]
    return [f"{name} = {_expression(law, one, kind)};"]


def _expression(law: Law, one: Instruction, kind: str) -> str:
    operation = one.operation
    source = next((law.kinds[x] for x in one.operands if x in law.kinds), one.kind)
    if operation == "select":
        condition, *sides = one.operands
        a, b = (_operand(side, one.kind) for side in sides)
        return f"{_operand(condition, 'i1')} ? {a} : {b}"
    given = [_operand(x, source) for x in one.operands]
    unsigned = [_unsigned(source, x) if source[0] == "i" else x for x in given]
    sign = (_INFIX | _SIGNED | _UNSIGNED).get(operation)
    if sign is not None:
        a, b = unsigned if operation in _UNSIGNED else given
        return _cut(one.kind, f"{a} {sign} {b}")
    match operation:
        case "fcmp":
            return _compared(one.detail, *given)
        case "icmp":
            a, b = unsigned if one.detail[0] == "u" else given
            return f"{a} {SIGNS[one.detail.lstrip('us')]} {b}"
        case "class":
            return _of_class(one.detail, given[0], source)
        case "call":
            return _call(one.detail, given, unsigned)
    if one.kind == "i1" and operation == "trunc":
        return f"({unsigned[0]} & 1) != 0"
    if operation == "trunc":
        return _cut(one.kind, unsigned[0])
    signed = f"-(int){given[0]}" if source == "i1" else given[0]
    names = {"unsigned": unsigned[0], "signed": f"({signed})", "kind": kind}
    return _OF_ONE[operation].format(given[0], given[-1], **names)


def _of_class(tests: int, number: str, kind: str) -> str:
    most, least = "1.7976931348623157e308", "2.2250738585072014e-308"
    if kind == "f32":
        most, least = "3.4028234663852886e38", "1.1754943508222875e-38"
    wanted = (test for bit, test in enumerate(_CLASSES) if tests >> bit & 1)
    found = [f"({test.format(number, max=most, min=least)})" for test in wanted]
    return " || ".join(found) or "false"


def _call(name: str, given: list[str], unsigned: list[str]) -> str:
    if name in _CHOICES:
        sign, letter = _CHOICES[name]
        a, b = unsigned if letter else given
        return f"{a} {sign} {b} ? {given[0]} : {given[1]}"
    if name == "abs":
        return f"{given[0]} < 0 ? -{given[0]} : {given[0]}"
    if name in ("minimum", "maximum"):  # NaN is passed on
        sign = "<" if name == "minimum" else ">"
        a, b = given
        return f"{a} {sign} {b} || {a} != {a} ? {a} : {b}"
    return f"{name}({', '.join(given)})"


def _compared(predicate: str, a: str, b: str) -> str:
    if predicate in ("ord", "uno"):
        both = f"{a} == {a} && {b} == {b}"
        return both if predicate == "ord" else f"!({both})"
    if predicate == "one":
        return f"{a} < {b} || {a} > {b}"
    if predicate == "ueq":
        return f"!({a} < {b} || {a} > {b})"
    if predicate[0] == "o" or predicate == "une":
        return f"{a} {SIGNS[predicate[1:]]} {b}"
    return f"!({a} {SIGNS[_OPPOSITE[predicate[1:]]]} {b})"
