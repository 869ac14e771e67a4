"""Random forms: programs in text, with the spaces, coefficients and points they are made for.

An example is made from one number.  Each expression is evaluated while it is put together, by the
numbers of tests/support/oracles/running_error.py, so that arguments lie where functions are defined
and large and small numbers meet on purpose, not by accident.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

import femops
from support.oracles.dense_forms import DenseForm, Matrix, PointField, Points, Side, faces_of
from support.oracles.running_error import FEMOPS, NUMPY, Num, Unsure, nums

Array = np.ndarray[Any, Any]


# --- meshes and spaces ----------------------------------------------------------------------------


def _bend(x: Array) -> Array:
    y = x.copy()
    for d in range(len(x)):
        y[d] += 0.06 * np.sin(2.0 * x[d - 1] + d) + 0.05 * x[d] * x[d - 1]
    return y


def _shear(x: Array) -> Array:
    return (np.diag([1.5, 0.8, 1.1][: len(x)]) + 0.3 * np.triu(np.ones((len(x),) * 2), 1)) @ x


@cache
def mesh_of(dim: int, kind: str) -> femops.Mesh:
    """A mesh of one to four elements."""
    shape = {1: (3,), 2: (2, 1), 3: (2, 1, 1)}[dim]
    if kind == "single":
        mesh = femops.box((1,) * dim, mapping=_bend)
    elif kind == "box":
        mesh = femops.box(shape)
    elif kind == "sheared":
        mesh = femops.box(shape, mapping=_shear)
    elif kind == "multilinear":
        mesh = femops.box(shape, mapping=_bend)
    else:
        mesh = femops.box(shape, order=2, mapping=_bend)
    return mesh.with_attributes(1 + np.arange(mesh.num_elements) % 2)


KINDS = ("single", "box", "box", "sheared", "multilinear", "curved")


def side_of(space: Any, family: str, order: int) -> Side:
    """The plain arrays of a space."""
    indices = np.asarray(space.restriction.indices)
    return Side(indices, space.ncomp, family, order, int(indices.max()) + 1)


# --- expressions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expr:
    """Text, and what it is at the points: a Num; how it was made, to write it differently."""

    text: str
    value: Any
    op: str = "leaf"
    args: tuple[Any, ...] = ()

    @property
    def largest(self) -> float:
        return float(np.abs(self.value.v).max())

    @property
    def least(self) -> float:
        return float(np.abs(self.value.v).min())

    @property
    def plain(self) -> bool:
        """Whether Python computes it, not the form: nothing but literals."""
        return not re.search(r"\b[a-z]+\d*(\b\[|\b(?![.(]))", self.text)

    @property
    def positive(self) -> bool:
        return bool(np.all(self.value.v > 1000 * self.value.e) and np.all(self.value.v > 0))


_BINARY = ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "&", "|", "^")
_NAMESPACE = {"np": NUMPY, "femops": FEMOPS}


def _text(op: str, texts: list[str]) -> str:
    if op in _BINARY:
        return f"({texts[0]} {op} {texts[1]})"
    if op == "**":
        return f"({texts[0]}) ** {texts[1]}"
    if op in ("neg", "~"):
        return f"({'-' if op == 'neg' else '~'}{texts[0]})"
    return f"{op}({', '.join(texts)})"


def make(op: str, *args: Expr) -> Expr:
    """An operation on expressions."""
    values = {f"a{k}": a.value for k, a in enumerate(args)}
    value = eval(_text(op, list(values)), _NAMESPACE | values)
    if not isinstance(value, Num):
        value = Num(float(value), 0.0, isinstance(value, bool | np.bool_))
    if not np.all(np.isfinite(value.v)):
        raise Unsure("not finite")
    text = _text(op, [a.text for a in args])
    return Expr(f"({text})" if op == "**" else text, value, op, args)


def literal(number: float) -> Expr:
    """A number in the text."""
    text = repr(number)
    return Expr(f"({text})" if number < 0 else text, Num(float(number)))


@dataclass
class Coefficient:
    """What femops is given, and the same at the points."""

    given: Any
    value: Any
    text: str


@dataclass
class Maker:
    """Makes expressions at given points.

    Parameters
    ----------
    rng : numpy.random.Generator
    points : Points
    attributes : space of coefficients' fields
    """

    rng: np.random.Generator
    points: Points
    uses: set[str] = field(default_factory=set)
    coefficients: dict[str, Coefficient] = field(default_factory=dict)
    atoms: list[Expr] = field(default_factory=list)
    wild: bool = True
    place_only: bool = False

    # --- numbers ---------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, wild: bool | None = None) -> float:
        """A number of order one, or anything over 40 orders of magnitude."""
        size = float(np.round(self.rng.uniform(1, 9.9), int(self.rng.integers(0, 4))))
        power = 0
        if (self.wild if wild is None else wild) and self.chance(0.35):
            power = int(self.rng.integers(-20, 20))
        elif self.chance(0.5):
            power = -1
        sign = -1.0 if self.chance(0.25) else 1.0
        return sign * float(f"{size}e{power}")

    def literal(self) -> Expr:
        if self.chance(0.2):
            return literal(int(self.rng.integers(-3, 8)) or 2)
        return literal(self.number())

    def scale(self, e: Expr) -> Expr:
        """The expression brought to order one by a factor."""
        if not 0.2 <= e.largest <= 4.0 and e.largest > 0:
            factor = float(f"{1 / e.largest:.2g}")
            return make("*", *self.swap(literal(factor), e))
        return e

    def swap(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        return (a, b) if self.chance(0.5) else (b, a)

    # --- coefficients ----------------------------------------------------------------------------

    def coefficient(self, shape: tuple[int, ...], values: Any = None) -> str:
        """Name of a new coefficient, of any kind."""
        kinds = ["constant", "constant", "points", "function", "field", "attribute"]
        if values is not None:
            kinds = ["constant"] * 3 + ["points"]
        if len(shape) > 1:
            kinds = ["constant", "constant", "points", "function"]
        kind = self.pick(*kinds)
        if shape[:2] == (len(self.points.cells), self.points.per_cell):
            kind = "function"  # a constant of this shape would be taken for numbers at points
            if values is not None:
                raise Unsure("an array that may be meant either way")
        name = f"{'abcdgkmrst'[len(self.coefficients) % 10]}{len(self.coefficients)}"
        self.coefficients[name] = getattr(self, f"_{kind}")(shape, values)
        return name

    def _array(self, shape: tuple[int, ...]) -> Any:
        if not shape:
            return self.number()
        scale = 10.0 ** int(self.rng.integers(-20, 20)) if self.chance(0.15) else 1.0
        each = self.chance(0.3)
        out = np.array([self.number(each) for _ in range(int(np.prod(shape)))]).reshape(shape)
        return out * (1.0 if each else scale)

    def _constant(self, shape: tuple[int, ...], values: Any) -> Coefficient:
        value = self._array(shape) if values is None else values
        if shape and self.chance(0.15):
            return Coefficient(
                value.tolist(), _exact(value), f"constant, a list {value.tolist()!r}"
            )
        if not shape and values is None and self.chance(0.2):
            value = int(self.rng.integers(1, 5))
        return Coefficient(value, _exact(value), f"constant {value!r}")

    def _points(self, shape: tuple[int, ...], values: Any) -> Coefficient:
        start = self._array(shape) if values is None else values
        cells = len(self.points.cells)
        along = self.rng.uniform(0.5, 1.5, (cells, self.points.per_cell))
        array = along.reshape(*along.shape, *(1,) * len(shape)) * np.asarray(start)
        columns = array.reshape(-1, *shape)
        value = nums(np.moveaxis(columns, 0, -1))
        return Coefficient(array, value, f"at points, array {array.shape}, about {start!r}")

    def _function(self, shape: tuple[int, ...], values: Any) -> Coefficient:
        inner = Maker(self.rng, self.points, wild=self.wild, place_only=True)
        entries = np.empty(shape, dtype=object)
        for index in np.ndindex(shape):
            entries[index] = inner.scalar(2)
        if shape:
            text = repr([[e.text for e in row] if len(shape) > 1 else row.text for row in entries])
            text = text.replace("'", "")
        else:
            text = entries[()].text
        value = np.empty(shape, dtype=object)
        for index in np.ndindex(shape):
            value[index] = entries[index].value
        text = f"lambda {'x, n' if 'n[' in text else 'x'}: {text}"
        given = eval(text, {"np": np})
        return Coefficient(given, value if shape else value[()], text)

    def _field(self, shape: tuple[int, ...], values: Any) -> Coefficient:
        order = int(self.rng.integers(1, 3))
        ncomp = shape[0] if shape else 1
        if shape and ncomp == 1:
            return self._constant(shape, values)
        family, make = self.pick(("gll", femops.H1), ("gauss", femops.L2))
        space = make(self.points.mesh, order, ncomp=ncomp)
        vector = np.round(self.rng.uniform(0.5, 2.0, space.shape), 3) * self.number()
        side = side_of(space, family, order)
        value = self.points.at_points(family, order, side.element_values(vector))[0]
        text = f"field on {make.__name__}(order={order}, ncomp={ncomp}): {vector.ravel().tolist()}"
        return Coefficient(femops.GridFunction(space, vector), value if shape else value[0], text)

    def _attribute(self, shape: tuple[int, ...], values: Any) -> Coefficient:
        if shape == (1,):
            return self._constant(shape, values)
        table = {k: self._array(shape) for k in set(self.points.mesh.element_attributes.tolist())}
        attributes = [self.points.mesh.element_attributes[c.element] for c in self.points.cells]
        columns = np.repeat([table[int(k)] for k in attributes], self.points.per_cell, axis=0)
        given = femops.by_attribute(self.points.mesh, table)
        return Coefficient(given, nums(np.moveaxis(columns, 0, -1)), f"by attribute {table!r}")

    # --- static scalars --------------------------------------------------------------------------

    def leaf(self) -> Expr:
        kind = self.rng.random()
        if self.place_only:
            return self.place() if kind < 0.6 else self.literal()
        if self.atoms and kind < 0.45:
            return self.pick(*self.atoms)
        if kind < 0.6:
            return self.place()
        if kind < 0.7:
            return self.literal()
        if kind < 0.8:
            return self.compensated()
        if self.coefficients and kind < 0.88:
            return self.known()
        shape = self.pick((), (), (2,), (self.points.dim,))
        return self.entry(self.coefficient(shape))

    def place(self) -> Expr:
        name = self.pick("x", "n") if self.points.boundary else "x"
        i = int(self.rng.integers(self.points.dim))
        self.uses.add(name)
        value = {"x": lambda: self.points.x, "n": lambda: self.points.normal}[name]()[i]
        return Expr(f"{name}[{i}]", value)

    def known(self) -> Expr:
        return self.entry(self.pick(*self.coefficients))

    def entry(self, name: str) -> Expr:
        value = self.coefficients[name].value
        if isinstance(value, Num):
            return Expr(name, value)
        index = tuple(int(self.rng.integers(n)) for n in value.shape)
        return Expr(f"{name}[{', '.join(map(str, index))}]", value[index])

    def compensated(self) -> Expr:
        """A large or small coefficient times a literal that makes it of order one."""
        power = int(self.rng.integers(10, 20)) * self.pick(-1, 1)
        size = float(f"{self.rng.uniform(1, 9.9):.2g}e{power}")
        name = self.coefficient((), size)
        other = literal(float(f"{self.rng.uniform(1, 9.9):.2g}e{-power}"))
        a, b = Expr(name, self.coefficients[name].value), other
        return make("*", *self.swap(a, -1 * b if isinstance(b, float) else b))

    def scalar(self, depth: int) -> Expr:
        """A random expression; one of the leaves where it can't be had."""
        if depth <= 0 or self.chance(0.12):
            return self.leaf()
        for _ in range(6):
            try:
                return self._operation(depth)
            except Unsure:
                continue
        return self.leaf()

    def _operation(self, depth: int) -> Expr:
        kind = self.rng.random()
        if kind < 0.42:
            op = self.pick("+", "-", "*")
            return make(op, self.scalar(depth - 1), self.scalar(depth - 1))
        if kind < 0.52:
            return make("/", self.scalar(depth - 1), self.nonzero(depth - 1))
        if kind < 0.62:
            return self.powers(depth)
        if kind < 0.80:
            return self.function(depth)
        if kind < 0.86:
            return self.rewritten(self.scalar(depth - 1))
        if self.place_only:
            return make("neg", self.scalar(depth - 1))
        if kind < 0.89:
            return self.guarded(depth)
        if kind < 0.92:
            a, b = self.scalar(depth - 1), self.scalar(depth - 1)
            return make(self.pick("femops.minimum", "np.maximum", "femops.maximum"), a, b)
        if kind < 0.95:
            return make(
                "femops.where", self.condition(1), self.scalar(depth - 1), self.scalar(depth - 1)
            )
        if kind < 0.98:
            return make("*", *self.swap(self.condition(1), self.scalar(depth - 1)))
        e = self.scalar(depth - 1)
        return make(
            "neg" if e.value.truth else self.pick("np.abs", "np.sign", "np.square", "neg"), e
        )

    def guarded(self, depth: int) -> Expr:
        """A function where it is defined, by a condition; elsewhere it is no number."""
        a = self.scalar(depth - 1)
        if a.value.truth or a.largest == 0 or a.plain:
            return a
        middle = literal(float(f"{float(np.median(a.value.v)) * self.rng.uniform(0.8, 1.2):.3g}"))
        condition, other = make(">", a, middle), self.leaf()
        name = self.pick("np.sqrt", "np.log")
        text = f"femops.where({condition.text}, {name}({a.text} - {middle.text}), {other.text})"
        inner = eval(f"{name}(a)", _NAMESPACE | {"a": a.value - middle.value})
        value = FEMOPS.where(condition.value, inner, other.value)
        if not np.all(np.isfinite(value.v)):
            raise Unsure("not finite")
        return Expr(text, value)

    def nonzero(self, depth: int) -> Expr:
        """An expression that stays away from zero."""
        e = self.scalar(depth)
        if e.largest > 0 and e.least > 1e-2 * e.largest:
            return e
        e = self.scale(e)
        return make("+", *self.swap(literal(1.5), make("*", e, e)))

    def above_zero(self, depth: int) -> Expr:
        e = self.scalar(depth)
        if e.positive and e.least > 1e-2 * e.largest:
            return e
        if e.value.truth:
            return make("+", e, literal(0.5))
        return make("+", make(self.pick("abs", "np.abs"), self.scale(e)), literal(0.75))

    def powers(self, depth: int) -> Expr:
        kind = self.rng.random()
        if kind < 0.5:
            return make("**", self.scalar(depth - 1), literal(int(self.rng.integers(0, 5))))
        if kind < 0.65:
            return make("**", self.nonzero(depth - 1), literal(-int(self.rng.integers(1, 4))))
        if kind < 0.72:
            return make("**", self.scale(self.nonzero(depth - 1)), literal(self.pick(7, 16, 17)))
        base = self.above_zero(depth - 1)
        if kind < 0.9:
            return make("**", base, literal(self.pick(0.5, 1.5, -0.5, 2.7, 1 / 3, 2.0)))
        if kind < 0.93:
            return make("**", literal(self.pick(2, 2.5, 0.3)), self.scale(self.scalar(depth - 1)))
        return make("**", self.scale(base), self.scale(self.scalar(depth - 1)))

    def function(self, depth: int) -> Expr:
        name = self.pick(
            *("sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh"),
            *("arctan", "arctan2", "abs"),
        )
        if name in ("sqrt", "log"):
            return make(f"np.{name}", self.above_zero(depth - 1))
        if name == "arctan2":
            if self.place_only:
                return make("np.arctan2", self.scalar(depth - 1), self.above_zero(depth - 1))
            return make("np.arctan2", self.scale(self.scalar(depth - 1)), self.nonzero(depth - 1))
        e = self.scalar(depth - 1)
        if e.value.truth:
            e = make("*", e, literal(1.5))
        if name not in ("abs", "arctan") and e.largest > 3.0:
            e = self.scale(e)
        if name == "tan":
            e = make("*", literal(0.3), e)
        return make(f"np.{name}", e)

    def condition(self, depth: int) -> Expr:
        """A comparison, or several joined."""
        if depth > 0 and self.chance(0.35):
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            names = ("&", "|", "*", "+", "^", "~", "!=", "np.logical_and", "np.logical_or")
            op = self.pick(*names, "np.logical_not")
            return make(op, a) if op in ("~", "np.logical_not") else make(op, a, b)
        for _ in range(8):
            try:
                a = self.scalar(1)
                middle = float(f"{float(np.median(a.value.v)) * self.rng.uniform(0.8, 1.2):.3g}")
                b = literal(middle) if self.chance(0.6) else self.scalar(0)
                compare = self.pick("<", "<=", ">", ">=", "<", ">", "==", "!=", "np.not_equal")
                made = make(compare, *self.swap(a, b))
            except Unsure:
                continue
            if made.text.count("[") + sum(map(made.text.count, self.coefficients)):
                return made
        name = self.coefficient((), 1.5)
        return make(">", Expr(name, self.coefficients[name].value), literal(0.0))

    # --- the same, written differently -----------------------------------------------------------

    def rewritten(self, e: Expr) -> Expr:
        """An expression that is mathematically the same."""
        try:
            if e.value.truth:
                return e
            return self._rewritten(e)
        except Unsure:
            return e

    def _rewritten(self, e: Expr) -> Expr:
        args = tuple(
            self.rewritten(a) if isinstance(a, Expr) and self.chance(0.5) else a for a in e.args
        )
        if e.op in ("+", "*", "femops.minimum", "femops.maximum") and self.chance(0.6):
            args = args[::-1]
        if e.op == "*" and args[1].op in ("+", "-") and self.chance(0.7):
            one, two = args[1].args
            if not (one.value.truth or two.value.truth):
                return make(args[1].op, make("*", args[0], one), make("*", two, args[0]))
        if e.op == "-" and self.chance(0.5):
            return make("neg", make("-", args[1], args[0]))
        if e.op == "/" and self.chance(0.5):
            return make("*", args[0], make("/", literal(1.0), args[1]))
        if e.op == "**" and e.args[1].text == "2":
            return make("*", args[0], args[0])
        if e.op != "leaf":
            return make(e.op, *args)
        kind = self.rng.random()
        if kind < 0.25:
            other = self.scalar(0)
            return make("-", make("+", e, other), other)
        if kind < 0.4:
            return make("/", make("+", e, e), literal(2.0))
        return e

    # --- matrices --------------------------------------------------------------------------------

    def matrix(self, n: int, m: int | None = None) -> str:
        """Text of an (n, m) array, square if m is None."""
        if m is not None and m != n:
            return f"np.array([{', '.join(self.vector_text(m, 1) for _ in range(n))}])"
        kinds = ["coefficient", "entries", "symmetric", "skew", "alike", "opposite", "near", "near"]
        kind = self.pick(*kinds, "scaled", "transposed", "inverse", "sum", "outer", "constant")
        made = str(getattr(self, f"_m_{kind}")(n))
        if self.chance(0.1):
            made = self.pick(f"({made} @ np.eye({n}))", f"np.stack([*{made}])", f"({made}.T).T")
        return made

    def vector(self, n: int) -> str:
        """Text of an (n,) array."""
        kind = self.rng.random()
        if kind < 0.4:
            return f"np.array({self.vector_text(n, 1)})"
        if kind < 0.65:
            return self.coefficient((n,))
        matrix = self.matrix(n)
        return str(
            self.pick(
                f"{matrix}[{int(self.rng.integers(n))}]",
                f"{matrix}[:, {int(self.rng.integers(n))}]",
                f"({matrix} @ {self.coefficient((n,))})",
                f"({self.scalar(1).text} * {self.coefficient((n,))})",
                f"(np.trace({matrix}) * {self.coefficient((n,))})",
            )
        )

    def vector_text(self, n: int, depth: int) -> str:
        return f"[{', '.join(self.scalar(depth).text for _ in range(n))}]"

    def _rows(self, entries: Any) -> str:
        return f"np.array([{', '.join('[' + ', '.join(row) + ']' for row in entries)}])"

    def _m_coefficient(self, n: int) -> str:
        return self.coefficient((n, n))

    def _m_entries(self, n: int) -> str:
        return self._rows([[self.scalar(2).text for _ in range(n)] for _ in range(n)])

    def _pairs(self, n: int, off: Callable[[Expr], str], on: Any = None) -> str:
        rows = [[""] * n for _ in range(n)]
        shared = self.scalar(1)
        for i in range(n):
            rows[i][i] = (shared if on is None and self.chance(0.5) else on or self.scalar(1)).text
            for j in range(i):
                e = self.compensated() if self.chance(0.3) else self.scalar(2)
                rows[i][j], rows[j][i] = e.text, off(e)
        return self._rows(rows)

    def _m_symmetric(self, n: int) -> str:
        return self._pairs(n, lambda e: e.text)

    def _m_skew(self, n: int) -> str:
        zero = literal(0.0) if self.chance(0.3) else None
        return self._pairs(n, lambda e: f"(-{e.text})", zero)

    def _m_alike(self, n: int) -> str:
        return self._pairs(n, lambda e: self.rewritten(e).text)

    def _m_opposite(self, n: int) -> str:
        return self._pairs(n, lambda e: f"(-{self.rewritten(e).text})")

    def _m_near(self, n: int) -> str:
        """A tensor that is nearly symmetric, or nearly diagonal: not quite."""
        a = np.array([self.number(False) for _ in range(n * n)]).reshape(n, n)
        tiny = 10.0 ** -int(self.rng.integers(3, 17))
        a = (a + a.T) / 2 if self.chance(0.5) else np.diag(np.diag(a))
        for i in range(n):
            for j in range(i):
                a[i, j], a[j, i] = a[i, j] + tiny, a[j, i] + self.pick(-1, 0, 0.5) * tiny
        return self.coefficient((n, n), a * 10.0 ** int(self.rng.integers(-12, 12)))

    def _m_scaled(self, n: int) -> str:
        return f"({self.scalar(2).text} * {self.matrix(n)})"

    def _m_transposed(self, n: int) -> str:
        inner = self.matrix(n)
        return self.pick(f"{inner}.T", f"femops.sym({inner})", f"(0.5 * ({inner} - {inner}.T))")

    def _m_inverse(self, n: int) -> str:
        a = np.eye(n) * 2 + self.rng.uniform(-0.5, 0.5, (n, n)).round(2)
        a = (a + a.T) / 2 if self.chance(0.5) else a
        factor = 10.0 ** int(self.rng.integers(-15, 15)) if self.chance(0.3) else 1.0
        name = self.coefficient((n, n), a * factor)
        return self.pick(f"femops.inv({name})", f"(femops.inv({name}) * femops.det({name}))")

    def _m_sum(self, n: int) -> str:
        return f"({self.matrix(n)} {self.pick('+', '-', '@')} {self.matrix(n)})"

    def _m_outer(self, n: int) -> str:
        a, b = self.vector_text(n, 1), self.vector_text(n, 1)
        a, b = f"np.array({a})", f"np.array({a if self.chance(0.5) else b})"
        return f"np.outer({a}, {b})"

    def _m_constant(self, n: int) -> str:
        if self.chance(0.5):
            return f"({self.scalar(1).text} * np.eye({n}))"
        if self.chance(0.3):
            return f"np.diag({self.vector_text(n, 2)})"
        rows = [[repr(self.number()) for _ in range(n)] for _ in range(n)]
        return self._rows(rows)


def _exact(value: Any) -> Any:
    """A constant as Num, exact."""
    array = np.asarray(value, float)
    return nums(array[..., None]) if array.ndim else Num(float(array))


# --- forms that are linear in their fields --------------------------------------------------------


@dataclass
class Fields:
    """Texts that are linear in fields: name -> components."""

    maker: Maker
    fields: dict[str, int]

    def atoms(self) -> list[str]:
        """All scalars that fields offer."""
        dim, out = self.maker.points.dim, []
        for name, ncomp in self.fields.items():
            out += [name, f"{name}.value"] if ncomp == 1 else [f"{name}[{c}]" for c in range(ncomp)]
            if self.maker.points.boundary:
                continue
            if ncomp == 1:
                out += [f"{name}.grad[{d}]" for d in range(dim)]
            else:
                out += [f"{name}.grad[{c}, {d}]" for c in range(ncomp) for d in range(dim)]
            if ncomp == dim:
                out += [f"{name}.div", f"{name}.sym_grad[0, {dim - 1}]"]
        return out

    def scalar(self, depth: int) -> str:
        """A scalar that is linear in the fields."""
        m = self.maker
        atoms = self.atoms()
        if depth <= 0 or m.chance(0.1):
            return m.pick(*atoms)
        inner = self.scalar(depth - 1)
        kind = m.rng.random()
        if kind < 0.3:
            return m.pick(f"({m.scalar(2).text} * {inner})", f"({inner} * {m.scalar(2).text})")
        if kind < 0.4:
            return f"({inner} / {m.nonzero(1).text})"
        if kind < 0.72:
            return f"({inner} {m.pick('+', '-')} {self.scalar(depth - 1)})"
        if kind < 0.78:
            return f"(-{inner})"
        if kind < 0.86:
            other = self.scalar(depth - 1) if m.chance(0.7) else "0.0"
            return f"femops.where({m.condition(1).text}, {inner}, {other})"
        if kind < 0.92:
            c = m.condition(1).text
            return m.pick(f"({c} * {inner})", f"({inner} * {c})")
        a = m.scalar(2)
        return f"(({a.text} - {m.rewritten(a).text}) * {inner} + {m.pick(*atoms)})"

    def value(self, n: int) -> str:
        """What multiplies a test function of n components."""
        m = self.maker
        if n == 1:
            return self.scalar(3)
        same = [name for name, ncomp in self.fields.items() if ncomp == n]
        kind = m.rng.random()
        if same and kind < 0.6:
            name = m.pick(*same)
            inner = m.pick(name, f"{name}.value")
            if m.chance(0.2):
                return f"({m.scalar(2).text} * {inner})"
            return f"({m.matrix(n)} @ {inner})"
        if same and kind < 0.7 and not m.points.boundary:
            name = m.pick(*same)
            if m.chance(0.3):
                return f"({m.scalar(1).text} * {name}.grad[:, {int(m.rng.integers(m.points.dim))}])"
            return f"({name}.grad @ {m.vector(m.points.dim)})"
        if self.fields and kind < 0.8:
            scalars = [name for name, ncomp in self.fields.items() if ncomp == 1]
            name = m.pick(*(scalars or self.fields))
            if scalars:
                return f"({name} * {m.vector(n)})"
            dot = m.vector(self.fields[name])
            return f"({m.pick(f'({name} @ {dot})', f'np.dot({dot}, {name})')} * {m.vector(n)})"
        return f"np.array([{', '.join(self.scalar(2) for _ in range(n))}])"

    def grad(self, n: int) -> str:
        """What multiplies the gradient of a test function of n components."""
        m, dim = self.maker, self.maker.points.dim
        same = [name for name, ncomp in self.fields.items() if ncomp == n]
        kind = m.rng.random()
        if same and kind < 0.7:
            name = m.pick(*same)
            return self._tensors(name, n)
        if n == 1:
            return f"np.array([{', '.join(self.scalar(2) for _ in range(dim))}])"
        rows = ", ".join(f"[{', '.join(self.scalar(1) for _ in range(dim))}]" for _ in range(n))
        return f"np.array([{rows}])"

    def _tensors(self, name: str, n: int) -> str:
        m, dim = self.maker, self.maker.points.dim
        grad = f"{name}.grad"
        choices = [lambda: f"({m.scalar(2).text} * {grad})", lambda: f"({grad} @ {m.matrix(dim)})"]
        if n == 1:
            choices += [lambda: f"({m.matrix(dim)} @ {grad})"] * 3
            choices += [lambda: f"({name} * {m.vector(dim)})"]
            choices += [lambda: f"(({m.vector(dim)} @ {grad}) * {m.vector(dim)})"]
        else:
            choices += [lambda: f"({m.matrix(n)} @ {grad})"] * 2
            choices += [lambda: f"np.outer({name}, {m.vector(dim)})"]
            choices += [lambda: f"np.outer({m.vector(n)}, {grad}[{int(m.rng.integers(n))}])"]
        if n == dim and n > 1:
            choices += [
                lambda: (
                    f"({m.scalar(1).text} * {name}.div * np.eye({dim})"
                    f" + {m.scalar(1).text} * {name}.sym_grad)"
                ),
                lambda: f"({m.scalar(1).text} * {grad}.T + {m.scalar(1).text} * {grad})",
                lambda: f"femops.sym({m.matrix(dim)} @ {grad})",
                lambda: f"({name}.div * {m.matrix(dim)})",
                lambda: f"(femops.inner({m.matrix(dim)}, {grad}) * {m.matrix(dim)})",
            ]
        return str(m.pick(*choices)())


# --- examples -------------------------------------------------------------------------------------


@dataclass
class Example:
    """A random form: its text, spaces, and what femops and the reference are given."""

    seed: int
    kind: str
    text: str
    names: list[str]
    points: Points
    spaces: dict[str, Any]
    sides: dict[str, Side]
    test: Any
    test_side: Side | None
    coefficients: dict[str, Coefficient]
    where: str
    boundary: Any = None
    state: Any = None
    exact: Any = None
    dense_form: Any = None
    residual: Any = None
    update: tuple[str, Coefficient, Matrix] | None = None

    @property
    def described(self) -> str:
        """What a failure prints."""
        lines = [f"seed {self.seed}: {self.kind} on {self.where}", self.text]
        lines += [f"  {name}: {c.text}" for name, c in self.coefficients.items()]
        if self.update is not None:
            lines.append(f"  update {self.update[0]}: {self.update[1].text}")
        if self.state is not None:
            lines.append(f"  state: {self.state.ravel().tolist()}")
        return "\n".join(lines)

    def function(self, namespace: dict[str, Any]) -> Any:
        """The form's function with these names; its text can be looked up in messages."""
        file = f"<random form {self.seed}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
        found = dict(namespace)
        exec(compile(self.text, file, "exec"), found)
        return found["form"]

    @cached_property
    def matrix(self) -> Matrix:
        """The whole dense matrix."""
        return whole(self.exact, self.sides)

    @property
    def given(self) -> dict[str, Any]:
        return {name: c.given for name, c in self.coefficients.items()}

    def dense(self) -> DenseForm:
        tests = self.sides if self.kind == "product" else {"v": self.test_side or self.sides["u"]}
        values = {name: c.value for name, c in self.coefficients.items()}
        wants = {"x", "n"} & set(self.names)
        return DenseForm(self.function(_NAMESPACE), self.points, self.sides, tests, values, wants)

    def operator(self, level: str) -> Any:
        """The operator of femops."""
        function = self.function({"np": np, "femops": femops})
        more = dict(quadrature=self.points.q1d, **self.given)
        if self.kind == "nonlinear":
            return femops.nonlinear_form(function, self.spaces["u"], **more)
        if self.kind == "product":
            return femops.form(function, femops.Product(**self.spaces), level=level, **more)
        if self.boundary is not None:
            more["boundary"] = self.boundary
        return femops.form(function, self.spaces["u"], self.test, level=level, **more)


def _space(m: Maker, mesh: Any, ncomp: int, continuous: bool) -> tuple[Any, Side]:
    order = int(m.rng.integers(1, min(m.points.q1d, 4)))
    if continuous or m.chance(0.75):
        return (space := femops.H1(mesh, order, ncomp=ncomp)), side_of(space, "gll", order)
    return (space := femops.L2(mesh, order, ncomp=ncomp)), side_of(space, "gauss", order)


def _components(m: Maker) -> int:
    return int(m.pick(1, 1, m.points.dim, m.points.dim, 2, 3 if m.points.dim < 3 else 2))


def example(seed: int) -> Example:
    """The example of a number."""
    rng = np.random.default_rng([20, seed])
    while True:
        try:
            return _attempt(seed, rng)
        except Unsure:
            continue


def _attempt(seed: int, rng: np.random.Generator) -> Example:
    kind = str(rng.choice(["one", "one", "pair", "product", "boundary", "nonlinear"]))
    dim = int(rng.choice([1, 2, 2, 2, 3]))
    mesh_kind = str(rng.choice(KINDS))
    mesh = mesh_of(dim, mesh_kind)
    boundary, faces = None, None
    if kind == "boundary":
        boundary = "all"
        if mesh_kind == "box" and rng.random() < 0.5:  # attributes of a box: 1 is the low end of x
            boundary = int(rng.integers(1, 2 * dim + 1))
            faces = [f for f in faces_of(mesh) if (2 * f[1] + f[2] + 1) == boundary]
    points = Points(
        mesh,
        int(rng.integers(2, 5 if dim < 3 and rng.random() < 0.2 else 4)),
        kind == "boundary",
        faces,
    )
    m = Maker(rng, points, wild=kind != "nonlinear")
    if kind == "nonlinear":
        return _nonlinear(seed, m, mesh, mesh_kind)
    names = {"product": ["u", "p", "q"][: 2 + int(rng.random() < 0.2)]}.get(kind, ["u"])
    spaces, sides = {}, {}
    for name in names:
        spaces[name], sides[name] = _space(m, mesh, _components(m), kind == "boundary")
    test = test_side = None
    if kind == "pair" or (kind == "boundary" and m.chance(0.3)):
        test, test_side = _space(m, mesh, _components(m), kind == "boundary")
    fields = Fields(m, {name: side.ncomp for name, side in sides.items()})

    def part(n: int) -> str:
        parts = []
        if m.points.boundary or m.chance(0.6):
            parts.append(f'"value": {fields.value(n)}')
        if not m.points.boundary and (not parts or m.chance(0.5)):
            parts.append(f'"grad": {fields.grad(n)}')
        return "{" + ", ".join(parts) + "}"

    if kind == "product":
        body = "{" + ", ".join(f'"{k}": {part(s.ncomp)}' for k, s in sides.items()) + "}"
    else:
        body = part((test_side or sides["u"]).ncomp)
    return _example(
        seed, kind, body, m, spaces, sides, test, test_side, f"{dim}-D {mesh_kind}", boundary
    )


def _nonlinear(seed: int, m: Maker, mesh: Any, mesh_kind: str) -> Example:
    ncomp = _components(m)
    space, side = _space(m, mesh, ncomp, continuous=False)
    state = np.round(m.rng.uniform(-1, 1, space.shape) + 0.3, 2)
    form = DenseForm(None, m.points, {"u": side}, {"u": side}, {})  # type: ignore[arg-type]
    u = PointField(*form.state(side, state))
    plain = Fields(m, {"u": ncomp})
    m.atoms = [Expr(text, _scalar(eval(text, {"u": u}))) for text in plain.atoms()]
    parts = []
    dim = m.points.dim
    if m.chance(0.7):
        entries = [m.scalar(3).text for _ in range(ncomp)]
        parts.append(
            f'"value": {entries[0] if ncomp == 1 else "np.array([" + ", ".join(entries) + "])"}'
        )
    if not parts or m.chance(0.5):
        if m.chance(0.5):
            parts.append(f'"grad": {m.scalar(2).text} * u.grad')
        else:
            rows = [[m.scalar(2).text for _ in range(dim)] for _ in range(ncomp)]
            one = "np.array([" + ", ".join(rows[0]) + "])"
            parts.append(f'"grad": {one if ncomp == 1 else m._rows(rows)}')
    body = "{" + ", ".join(parts) + "}"
    made = _example(
        seed,
        "nonlinear",
        body,
        m,
        {"u": space},
        {"u": side},
        None,
        None,
        f"{dim}-D {mesh_kind}",
        None,
    )
    made.state = state
    made.exact = {("u", "u"): made.dense_form.jacobian(state)["v", "u"]}
    made.residual = made.dense_form.residual(state)
    return made


def _scalar(value: Any) -> Num:
    found = getattr(value, "value", value)
    assert isinstance(found, Num)
    return found


def _example(
    seed: int,
    kind: str,
    body: str,
    m: Maker,
    spaces: Any,
    sides: Any,
    test: Any,
    test_side: Any,
    where: str,
    boundary: Any,
) -> Example:
    used = {n: c for n, c in m.coefficients.items() if re.search(rf"\b{n}\b", body)}
    names = sorted([*m.uses, *used])
    m.rng.shuffle(names)
    names = list(sides) + names
    text = f"def form({', '.join(names)}):\n    return {body}\n"
    where += f", {m.points.q1d} points, " + ", ".join(
        f"{k}: {type(s).__name__}({s.order}, ncomp={s.ncomp})"
        for k, s in [*spaces.items(), *([("v", test)] if test is not None else [])]
    )
    if boundary is not None:
        where += f", boundary={boundary!r}"
    made = Example(
        seed, kind, text, names, m.points, spaces, sides, test, test_side, used, where, boundary
    )
    made.dense_form = made.dense()
    if kind != "nonlinear":
        made.exact = made.dense_form.matrix()
        made.update = _other_values(made, m)
    return made


def _other_values(made: Example, m: Maker) -> tuple[str, Coefficient, Matrix] | None:
    """New values of one coefficient, and the matrix with them."""
    if not made.coefficients:
        return None
    name = m.pick(*made.coefficients)
    old = made.coefficients[name]
    flat = [float(np.mean(e.v)) for e in np.array(old.value, dtype=object).flat]
    shape = np.shape(old.value)
    values = np.array(flat).reshape(shape) * m.rng.uniform(0.7, 1.4, shape)
    if _is_symmetric(old.value):  # what is not makes another operator
        values = (values + values.T) / 2
    try:
        new = getattr(m, f"_{m.pick('constant', 'points')}")(
            shape, values if shape else float(values)
        )
        form = replace(
            made.dense_form, coefficients=made.dense_form.coefficients | {name: new.value}
        )
        found = whole(form.matrix(), made.sides)
        # one that a product has in no block is not known to it
        return None if np.array_equal(found.v, made.matrix.v) else (name, new, found)
    except Unsure:
        return None


def _is_symmetric(value: Any) -> bool:
    """Whether a coefficient is a matrix that is symmetric to the last bit."""
    shape = np.shape(value)
    return (
        len(shape) == 2
        and shape[0] == shape[1]
        and all(
            np.array_equal(value[i, j].v.astype(float), value[j, i].v.astype(float))
            for i, j in np.ndindex(shape)
        )
    )


def whole(blocks: dict[tuple[str, str], Matrix], sides: Mapping[str, Side]) -> Matrix:
    """One matrix of the blocks of test functions and fields."""
    if len(blocks) == 1:
        return next(iter(blocks.values()))
    rows = [[blocks[test, name] for name in sides] for test in sides]
    return Matrix(*(np.block([[getattr(m, k) for m in row] for row in rows]) for k in "ve"))
