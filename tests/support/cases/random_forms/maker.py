"""Random scalar expressions, and the coefficients in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import femops
from support.cases.random_forms.expressions import NAMESPACE, Expr, literal, make
from support.cases.random_forms.spaces import side_of
from support.oracles.form_names import FEMOPS
from support.oracles.points import Points
from support.oracles.running_error import Num, Unsure, nums, stored


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
        value = _given(columns)
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
        return Coefficient(given, _given(columns), f"by attribute {table!r}")

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
        names = ["x", "n"] if self.points.boundary else ["x"]
        name = self.pick(*names, *["h"] * (self.points.boundary and not self.place_only))
        self.uses.add(name)
        if name == "h":
            return Expr(name, self.points.extent)
        i = int(self.rng.integers(self.points.dim))
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
            a, b = self.scalar(depth - 1), self.scalar(depth - 1)
            if self.atoms and self.chance(0.5):  # derivatives choose between numbers
                a = self.pick(*self.atoms)
                b = make(self.pick("/", "*"), a, literal(self.number(False)))
            return make("femops.where", self.condition(1), *self.swap(a, b))
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
        inner = eval(f"{name}(a)", NAMESPACE | {"a": a.value - middle.value})
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


def _given(columns: Any) -> Any:
    """Numbers at the points, (n, *shape), as Num."""
    rows = np.moveaxis(columns, 0, -1)
    return nums(rows, stored(rows))


def _exact(value: Any) -> Any:
    """A constant as Num."""
    array = np.asarray(value, float)
    if not array.ndim:
        return Num(float(array), stored(array))
    return nums(array[..., None], stored(array)[..., None])
