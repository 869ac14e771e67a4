"""Source of kernels with statements that write code.

A function of a kernel is Python, and means what Python means. Before it runs, its conditions and
loops are replaced by those of ``control.py``, and ``min``, ``sqrt`` and the like by functions that
take traced numbers. Refused are ``break``, ``continue``, ``else`` of loops and a ``return`` in a
loop. Lists and other objects of Python are constants: a statement changes them once, when the code
is written. The variable of a loop of the kernel has no value after the loop.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import Any, final

from femops_kernels.errors import KernelError
from femops_kernels.simd import control, values

DECORATORS = "inner", "decision", "traced", "shared", "entry", "function"
"""Names of decorators. Functions with one of these decorators are replaced."""

_FUNCTIONS = {
    "min": values.least,
    "max": values.greatest,
    "sqrt": values.root,
    "abs": values.magnitude,
    "int": values.integer,
    "float": values.real,
}
_PREFIX = "_written_"

NAMES: dict[str, Any] = {_PREFIX + name: made for name, made in _FUNCTIONS.items()} | {
    f"{_PREFIX}{name}": getattr(control, name)
    for name in (
        "UNDEFINED",
        "If",
        "For",
        "While",
        "choose",
        "both",
        "either",
        "negated",
        "identical",
    )
}
"""Further globals of replaced functions."""


def rewritten(text: str, path: str) -> ast.Module:
    """Parse the source of a kernel, and replace its functions."""
    tree = ast.parse(text, path)
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and _decorators(node) & {*DECORATORS}:
            _replace(node, own)
            ast.fix_missing_locations(node)
    return tree


def _decorators(function: ast.FunctionDef) -> set[str]:
    called = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return {one.id for one in called if isinstance(one, ast.Name)}


def _replace(function: ast.FunctionDef, own: set[str]) -> None:
    body, given = function.body, function.args
    if given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg:
        raise KernelError(f"{function.name}: functions of kernels have plain arguments")
    if any(_returns(statement) for statement in body):
        result = ast.Name(f"{_PREFIX}result", ast.Load())
        body = [*_one_return(body, function), ast.Return(result)]
    parameters = {one.arg for one in given.args}
    uses = _Uses()
    writer = _Writer(function.name, uses, own | parameters | {*uses.targets(body)})
    body = [made for statement in body for made in writer.statement(statement)]
    names = [name for name in writer.variables if name not in parameters]
    if names:
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names]
        body.insert(0, ast.Assign(targets, ast.Name(f"{_PREFIX}UNDEFINED", ast.Load())))
    function.body = body


def _returns(statement: ast.stmt) -> bool:
    """True if a statement is a return, or has one."""
    if isinstance(statement, ast.If):
        return any(map(_returns, [*statement.body, *statement.orelse]))
    if isinstance(statement, ast.For | ast.While):
        return any(map(_returns, statement.body))
    return isinstance(statement, ast.Return)


def _one_return(body: list[ast.stmt], function: ast.FunctionDef) -> list[ast.stmt]:
    """Set a result instead of returning. What follows a condition with a return becomes a branch.

    The result is None where a function ends without a return.
    """
    result: list[ast.expr] = [ast.Name(f"{_PREFIX}result", ast.Store())]
    done: list[ast.stmt] = []
    for k, statement in enumerate(body):
        if isinstance(statement, ast.Return):
            value = statement.value or ast.Constant(None)
            return [*done, ast.copy_location(ast.Assign(result, value), statement)]
        if not _returns(statement):
            done.append(statement)
            continue
        if not isinstance(statement, ast.If):
            raise KernelError(f"{function.name}: a function of a kernel can't return in a loop")
        rest = body[k + 1 :]
        first = _one_return([*statement.body, *rest], function)
        second = _one_return([*statement.orelse, *deepcopy(rest)], function)
        return [*done, ast.copy_location(ast.If(statement.test, first, second), statement)]
    return [*done, ast.Assign(result, ast.Constant(None))]


# --- variables ------------------------------------------------------------------------------------


@final
class _Uses:
    """Variables that the statements of one function set and read."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[dict[str, None], set[str]]] = {}
        self._kept: list[ast.stmt] = []  # a statement in the list keeps its id

    def of(self, statement: ast.stmt) -> tuple[dict[str, None], set[str]]:
        """Names that a statement sets, in order, and names that it reads.

        Variables of comprehensions are read, not set.
        """
        known = self._known.get(id(statement))
        if known is None:
            known = self._known[id(statement)] = {}, set()
            self._kept.append(statement)
            self._look(statement, *known)
        return known

    def _look(self, node: ast.AST, sets: dict[str, None], reads: set[str]) -> None:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                reads.add(node.id)
            elif node.id != "_":
                sets[node.id] = None
            return
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            sets = {}
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            reads.add(node.target.id)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                inner = self.of(child)
                sets |= inner[0]
                reads |= inner[1]
            else:
                self._look(child, sets, reads)

    def targets(self, statements: list[ast.stmt]) -> list[str]:
        """Names that statements set."""
        return list(dict.fromkeys(name for one in statements for name in self.of(one)[0]))

    def first(self, statements: list[ast.stmt], name: str) -> str:
        """First use of a variable by statements: "read", "set", or "" if there may be none."""
        for statement in statements:
            sets, reads = self.of(statement)
            if name not in sets and name not in reads:
                continue
            if isinstance(statement, ast.If):
                ways = [self.first(body, name) for body in (statement.body, statement.orelse)]
                used = "read" if "read" in ways else ways[0] if ways[0] == ways[1] else ""
                used = "read" if self._expression_reads(statement.test, name) else used
            elif isinstance(statement, ast.For | ast.While):
                head = statement.iter if isinstance(statement, ast.For) else statement.test
                own = isinstance(statement, ast.For) and self._sets(statement.target, name)
                inside = not own and self.first(statement.body, name) == "read"
                used = "read" if inside or self._expression_reads(head, name) else ""
            else:
                used = "read" if name in reads else "set"
            if used:
                return used
        return ""

    def _sets(self, target: ast.expr, name: str) -> bool:
        sets: dict[str, None] = {}
        self._look(target, sets, set())
        return name in sets

    def _expression_reads(self, node: ast.expr, name: str) -> bool:
        reads: set[str] = set()
        self._look(node, {}, reads)
        return name in reads


# --- statements and expressions -------------------------------------------------------------------


@final
class _Writer(ast.NodeTransformer):
    """Replaces the statements and expressions of one function."""

    def __init__(self, function: str, uses: _Uses, own: set[str]) -> None:
        self._function, self._count, self._uses, self._own = function, 0, uses, own
        self.variables: dict[str, None] = {}

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """The statements that replace one."""
        if isinstance(node, ast.Break | ast.Continue):
            raise KernelError(f"{self._function}: a loop of a kernel can't be left early")
        if isinstance(node, ast.For | ast.While) and node.orelse:
            raise KernelError(f"{self._function}: a loop of a kernel has no else")
        if isinstance(node, ast.If):
            made = self._if(node)
        elif isinstance(node, ast.While):
            made = self._while(node)
        elif isinstance(node, ast.For):
            made = self._for(node)
        else:
            made = [self.visit(node)]
        return [one if hasattr(one, "lineno") else ast.copy_location(one, node) for one in made]

    def _body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [made for each in statements for made in self.statement(each)]

    def _names(self, statements: list[ast.stmt]) -> list[str]:
        """Variables that statements set."""
        found = self._uses.targets(statements)
        self.variables |= dict.fromkeys(found)
        return found

    def _fresh(self, body: list[ast.stmt], names: list[str]) -> ast.expr:
        """Flags of a loop's variables: True if no pass reads the value of an earlier pass."""
        flags = (self._uses.first(body, name) != "read" for name in names)
        return ast.Tuple([ast.Constant(flag) for flag in flags], ast.Load())

    def _new(self) -> str:
        self._count += 1
        return f"{_PREFIX}{self._count}"

    def _if(self, node: ast.If) -> list[ast.stmt]:
        made, names = self._new(), self._names([*node.body, *node.orelse])
        begin = _set(made, _call("If", self.visit(node.test), _tuple(names)))
        taken = f"{made}_taken"
        branch = ast.If(ast.Name(taken, ast.Load()), self._body(node.body), self._body(node.orelse))
        target = ast.Name(taken, ast.Store())
        return [begin, *_around(made, names, target, [branch])]

    def _while(self, node: ast.While) -> list[ast.stmt]:
        made, names = self._new(), self._names(node.body)
        fresh = self._fresh([ast.Expr(node.test), *node.body], names)
        begin = _set(made, _call("While", _tuple(names), fresh))
        test = ast.Expr(_method(made, "test", self.visit(node.test)))
        target = ast.Name("_", ast.Store())
        return [begin, *_around(made, names, target, [test, *self._body(node.body)])]

    def _for(self, node: ast.For) -> list[ast.stmt]:
        if not _is_call(node.iter, "range"):
            node.iter, node.body = self.visit(node.iter), self._body(node.body)
            return [node]
        assert isinstance(node.iter, ast.Call)
        made, index = self._new(), node.target
        if not isinstance(index, ast.Name):
            raise KernelError(f"{self._function}: a loop over a range has one variable")
        own = ast.copy_location(ast.Assign([index], ast.Name(f"{made}_index", ast.Load())), node)
        node.body = [own, *node.body]
        names = self._names(node.body)
        bounds = ast.Tuple([self.visit(bound) for bound in node.iter.args], ast.Load())
        begin = _set(made, _call("For", bounds, _tuple(names), self._fresh(node.body, names)))
        target, body = ast.Name(f"{made}_index", ast.Store()), self._body(node.body)
        loop = _around(made, names, target, body)
        last = ast.Name(index.id, ast.Load())
        return [begin, *loop, _set(index.id, _method(made, "last", last))]

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        later = [_later(self.visit(one)) for one in (node.body, node.orelse)]
        return _call("choose", self.visit(node.test), *later)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        name = "both" if isinstance(node.op, ast.And) else "either"
        *firsts, last = [self.visit(one) for one in node.values]
        for first in reversed(firsts):
            last = _call(name, first, _later(last))
        return last  # type: ignore[no-any-return]

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return _call("negated", operand)
        return ast.UnaryOp(node.op, operand)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [self.visit(one) for one in (node.left, *node.comparators)]
        names = [f"{self._new()}_{k}" for k in range(len(sides) - 2)]
        middle = [ast.Name(name, ast.Load()) for name in names]
        lefts, rights = [sides[0], *middle], [*middle, sides[-1]]
        pairs = zip(lefts, node.ops, rights, strict=True)
        parts = [_comparison(left, op, right) for left, op, right in pairs]
        last = parts.pop()
        for part, name, side in zip(
            reversed(parts), reversed(names), reversed(sides[1:-1]), strict=True
        ):
            last = _named(name, side, _call("both", part, _later(last)))
        return last

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if isinstance(node.func, ast.Name) and name in _FUNCTIONS and name not in self._own:
            node.func.id = _PREFIX + node.func.id
        return node


def _comparison(left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.expr:
    if isinstance(op, ast.Is):
        return _call("identical", left, right)
    if isinstance(op, ast.IsNot):
        return _call("negated", _call("identical", left, right))
    return ast.Compare(left, [op], [right])


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(_PREFIX + name, ast.Load()), list(arguments), [])


def _method(made: str, name: str, *arguments: ast.expr) -> ast.Call:
    method = ast.Attribute(ast.Name(made, ast.Load()), name, ast.Load())
    return ast.Call(method, list(arguments), [])


def _tuple(names: list[str], context: type[ast.expr_context] = ast.Load) -> ast.Tuple:
    return ast.Tuple([ast.Name(name, context()) for name in names], context())


def _set(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _later(value: ast.expr) -> ast.Lambda:
    nothing = ast.arguments([], [], None, [], [], None, [])
    return ast.Lambda(nothing, value)


def _named(name: str, value: ast.expr, used: ast.expr) -> ast.expr:
    """An expression that uses a value by a name: the value is computed once."""
    given = ast.arguments([], [ast.arg(name)], None, [], [], None, [])
    return ast.Call(ast.Lambda(given, used), [value], [])


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _around(made: str, names: list[str], target: ast.expr, body: list[ast.stmt]) -> list[ast.stmt]:
    """A loop over a condition or loop of the kernel, which hands the variables in and out."""
    enter = ast.Assign([_tuple(names, ast.Store)], _method(made, "enter"))
    leave = ast.Expr(_method(made, "leave", _tuple(names)))
    loop = ast.For(target, ast.Name(made, ast.Load()), [enter, *body, leave], [])
    return [loop, ast.Assign([_tuple(names, ast.Store)], _method(made, "after"))]
