"""Operations of the expression graph, and the NumPy functions that represent them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np

# Functions of the C library that have the same names in NumPy and in Python's ``math``.
_ELEMENTARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan"),
    *("sinh", "cosh", "tanh"),
)
# Functions of one number of the C library.
FUNCTIONS = (*_ELEMENTARY, "arcsin", "arccos", "arctan")
UNARY = ("neg", "sqrt", "fabs", *FUNCTIONS)
BINARY = ("add", "sub", "mul", "div", "pow", "minimum", "maximum", "arctan2", "hypot")
# A law at a point, and one of its results.
LAW, RESULT = "law", "result"
# Operations that call the C library for every slot of a lane, and others that take as long.
LIBRARY = (*FUNCTIONS, "arctan2", "hypot", "pow", RESULT)
# Division by the determinant of an element's map. Kernels have it, forms do not.
BY_DETERMINANT = "by_determinant"
# Operations that may return infinity or NaN for ordinary finite arguments.
FAILING = (
    *("div", BY_DETERMINANT, "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("tan", "sinh", "cosh", "arcsin", "arccos", "hypot", "pow", RESULT),
)
# Conditions: true or false, and as numbers 1 or 0.
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
LOGICAL = ("and", "or", "xor", "not")

# Operation for each function of NumPy. If the graph lacks the operation, it is built from others.
UFUNCS = {
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.true_divide: "div",
    np.power: "pow",
    np.float_power: "pow",
    np.minimum: "minimum",
    np.maximum: "maximum",
    np.fmin: "fmin",
    np.fmax: "fmax",
    np.arctan2: "arctan2",
    np.hypot: "hypot",
    np.less: "lt",
    np.less_equal: "le",
    np.greater: "gt",
    np.greater_equal: "ge",
    np.equal: "eq",
    np.not_equal: "ne",
    np.negative: "neg",
    np.absolute: "fabs",
    np.fabs: "fabs",
    np.sqrt: "sqrt",
    **{getattr(np, name): name for name in FUNCTIONS},
    np.positive: "pos",
    np.square: "square",
    np.sign: "sign",
    np.logical_and: "and",
    np.logical_or: "or",
    np.logical_xor: "xor",
    np.logical_not: "not",
    np.bitwise_and: "&",
    np.bitwise_or: "|",
    np.bitwise_xor: "^",
    np.invert: "~",
}
# Python's bitwise operators, which only take conditions.
BITWISE = {"&": "and", "|": "or", "^": "xor", "~": "not"}
# Operations on Python's numbers. They raise an error if the result is not a number.
ON_NUMBERS: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    BY_DETERMINANT: operator.truediv,
    "pow": math.pow,
    "minimum": min,
    "maximum": max,
    "arctan2": math.atan2,
    "hypot": math.hypot,
    "arcsin": math.asin,
    "arccos": math.acos,
    "arctan": math.atan,
    "neg": operator.neg,
    **{name: getattr(math, name) for name in ("sqrt", "fabs", *_ELEMENTARY)},
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
