"""Messages for errors in a user's function: the line, and code to write instead."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from femops.errors import TraceError
from femops_common.hints import did_you_mean

_FEMOPS = Path(__file__).parent.parent
_NUMPY = Path(np.__file__).parent
_LONGEST_CONSTANT = 9  # entries of a tensor; longer vectors may be those of a space
_LONGEST_LABEL = 80  # characters of a lambda's line
_OF_FIELDS = {"value", "grad", "div", "sym_grad"}
_ARRAYS = (
    "an array of numbers has no place for symbols, and numpy.interp takes none: write "
    "np.array([[a, b], [c, d]]), np.zeros(shape, dtype=object) or femops.interp"
)
_SYMBOL = re.compile(r"'(Node|FieldSymbol)' object|object of type '(Node|FieldSymbol)'")


def line_of(error: BaseException) -> str:
    """File, number and text of the innermost line of user code in an error's traceback."""
    found, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        path = Path(file)  # femops' own forms count as a user's functions
        own = path.is_relative_to(_FEMOPS) and not path.is_relative_to(_FEMOPS / "forms")
        if not own and not path.is_relative_to(_NUMPY):
            found = _place(file, step.tb_lineno)
        step = step.tb_next
    return found


def definition(function: Callable[..., Any]) -> str:
    """File, number and text of the first line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else _place(code.co_filename, code.co_firstlineno)


def label_of(function: Callable[..., Any]) -> str:
    """Name of a function, without underscores around it. A lambda has its source line instead."""
    name = str(getattr(function, "__name__", type(function).__name__)).strip("_")
    if name != "<lambda>":
        return name
    code = inspect.unwrap(function).__code__
    text = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    if len(text) > _LONGEST_LABEL:
        text = f"{text[: _LONGEST_LABEL - 4]} ..."
    return f"`{text}`" if text else name


def _place(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return f"{Path(file).name}, line {line}, `{text}`: " if text else f"line {line}: "


def vector_hint(shapes: Iterable[tuple[int, ...]]) -> str:
    """Advice if an array of a form is so long that it may be the vector of a field."""
    long = any(
        isinstance(shape, tuple) and len(shape) == 1 and shape[0] > _LONGEST_CONSTANT
        for shape in shapes
    )
    return "; is it a vector of a space? Give femops.GridFunction(space, vector)" if long else ""


def explain(error: BaseException) -> str:
    """Explanation of an error that Python or NumPy raised on symbols, for a message."""
    text = str(error)
    if "has no callable" in text:
        name = text.split("no callable", 1)[1].split(maxsplit=1)[0]
        return (
            f"numpy.{name} has no meaning for symbols: "
            "use + - * / **, sqrt, exp, log, sin, cos, tan, tanh and the like"
        )
    if "array element with a sequence" in text and isinstance(error.__cause__, TraceError):
        asked = str(error.__cause__)  # NumPy asked a symbol for its truth or its value
        return asked if "where" in asked else _ARRAYS
    if "condlist" in text:
        return "numpy.select and piecewise do not take symbols: write femops.where(condition, a, b)"
    if "Cannot cast ufunc" in text or "from dtype('O')" in text:
        return (
            "numpy.linalg and numpy.interp do not take symbols: use femops.det, femops.inv, "
            "femops.inner, femops.interp"
        )
    if "jax" in text:
        return "JAX's functions do not take symbols: use NumPy's; femops.jax differentiates forms"
    if "read-only" in text:
        return "a form cannot overwrite its arguments: make a new array, such as 2 * u.grad"
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        if isinstance(error.obj, np.ndarray) and error.name in _OF_FIELDS:
            return (
                f"{text}: only a field has .{error.name}, a coefficient stands for its value "
                "alone; V.gradient(u), at the points, may be another coefficient"
            )
        names = [name for name in dir(error.obj) if not name.startswith("_")]
        text += did_you_mean(error.name, names)
    if _SYMBOL.search(text):
        return (
            f"{_SYMBOL.sub('a symbol', text)}: it stands for a number, so use arithmetic and "
            "NumPy's functions"
        )
    return f"{type(error).__name__}: {text}"
