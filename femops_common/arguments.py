"""Checks of the arguments of public functions against their annotations, and of free memory.

The decorator `checked` takes the error to raise. At the first call it reads the allowed values of
each argument from its annotation: classes, numbers, texts, functions, choices (`Literal`),
containers, and unions of these. The annotation includes ranges, as in `Degree`. Functions
themselves check arguments with a general annotation such as ArrayLike.
"""

from __future__ import annotations

import math
import os
import re
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, wraps
from inspect import Parameter, signature, unwrap
from numbers import Complex, Real
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    Unpack,
    cast,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

from femops_common.hints import too_many, unknown

Target = TypeVar("Target", bound=Callable[..., Any])

_LONGEST = 60  # characters of a value in a message
_FEW = 3  # entries of a tuple in a message
_WORD = 2**63


@final
class ArgumentError(TypeError):
    """A call with an unknown argument, or with too many arguments by position.

    Functions of all packages raise it in place of Python's own TypeError, which has no advice.
    """


@final
@dataclass(frozen=True)
class Kind:
    """Set of allowed values of an argument."""

    holds: Callable[[Any], bool]  # Returns True for an allowed value
    cure: str  # description of allowed values, for messages

    def __repr__(self) -> str:
        return self.cure  # `help` shows it in signatures


def whole_numbers(least: int = -_WORD, most: int = _WORD - 1) -> Kind:
    """Whole numbers of Python or NumPy, from ``least`` to ``most``, both included."""

    def holds(value: Any) -> bool:
        number = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return number and least <= value <= most

    if most < _WORD - 1:
        return Kind(holds, f"a whole number from {least} to {most}")
    return Kind(holds, "a whole number" + f" >= {least}" * (least > -_WORD))


def real_numbers(least: float = -np.inf, most: float = np.inf) -> Kind:
    """Finite numbers of Python or NumPy, from ``least`` to ``most``, both included."""

    def holds(value: Any) -> bool:
        number = number_of(value)
        return number is not None and math.isfinite(number) and least <= number <= most

    if most < np.inf:
        return Kind(holds, f"a number from {least:g} to {most:g}")
    return Kind(holds, "a finite number" + f" >= {least:g}" * (least > -np.inf))


_PLAIN: dict[Any, Kind] = {
    None: Kind(lambda value: value is None, "None"),
    type(None): Kind(lambda value: value is None, "None"),
    bool: Kind(lambda value: isinstance(value, bool | np.bool_), "True or False"),
    int: whole_numbers(),
    float: real_numbers(),
    complex: Kind(
        lambda value: isinstance(value, complex | np.complexfloating) and bool(np.isfinite(value)),
        "a complex number",
    ),
    str: Kind(lambda value: isinstance(value, str), "a text"),
    os.PathLike: Kind(lambda value: isinstance(value, os.PathLike), "a path"),
    Mapping: Kind(lambda value: isinstance(value, Mapping), "a dict"),
    dict: Kind(lambda value: isinstance(value, dict), "a dict"),
    Callable: Kind(callable, "a function"),
}


Degree = Annotated[int, whole_numbers(1, 64)]
"""Polynomial degree. Above 64 round-off grows, and kernels take minutes to compile."""

Count = Annotated[int, whole_numbers(0)]
NotNegative = Annotated[float, real_numbers(0.0)]
Fraction = Annotated[float, real_numbers(0.0, 1.0)]


def checked(error: type[Exception], **others: type[Exception]) -> Callable[[Target], Target]:
    """Check names and values of the arguments of a function, method or class at each call.

    Parameters
    ----------
    error : class
        Error for a value that the annotation does not allow. Its message has the name of the
        argument, its value, and the allowed values.
    **others : class
        Errors of single arguments, by the names of the arguments.

    Raises
    ------
    ArgumentError
        At a call of the decorated function with an unknown name, or with too many arguments by
        position. The message suggests the argument that the caller may mean.
    """

    def refuse(name: str, value: Any, kind: Kind) -> None:
        raise others.get(name, error)(refusal(name, value, kind.cure))

    def decorate(target: Target) -> Target:
        if isinstance(target, type):
            target.__init__ = _guarded(target.__init__, refuse)  # type: ignore[misc]
            return target
        return cast(Target, _guarded(target, refuse))

    return decorate


@final
@dataclass(frozen=True)
class _Arguments:
    """Arguments of a function, with the `Kind` of each; None if any value is allowed."""

    # arguments that may be given by position, in their order
    by_place: list[tuple[str, Kind | None]]
    by_name: dict[str, Kind | None]  # arguments that may be given by name
    rest: Kind | None  # kind of the values of ``**names``
    # any_count and any_names: whether the function has ``*places`` and ``**names``
    any_count: bool
    any_names: bool


def names_checked(target: Target) -> Target:
    """Check the names of the arguments of a function at each call, but not their values."""
    return cast(Target, _guarded(target, None))


def _guarded(
    function: Callable[..., Any], refuse: Callable[[str, Any, Kind], None] | None
) -> Callable[..., Any]:
    taken = cache(lambda: _arguments_of(function))

    @wraps(function)
    def guarded(*given: Any, **named: Any) -> Any:
        its = taken()
        if len(given) > len(its.by_place) and not its.any_count:
            places = [name for name, _ in its.by_place]
            raise ArgumentError(too_many(function, len(given), places, its.by_name, its.any_names))
        if not its.any_names and not named.keys() <= its.by_name.keys():
            wrong = next(name for name in named if name not in its.by_name)
            raise ArgumentError(unknown(function, wrong, its.by_name))
        if refuse is None:
            return function(*given, **named)
        for (name, kind), value in zip(its.by_place, given, strict=False):
            if kind is not None and not kind.holds(value):
                refuse(name, value, kind)
        for name, value in named.items():
            kind = its.by_name.get(name, its.rest)
            if kind is not None and not kind.holds(value):
                refuse(name, value, kind)
        return function(*given, **named)

    return guarded


def refusal(name: str, value: Any, cure: str) -> str:
    """Return the message with an argument's value and its allowed values, in one line.

    The class of the value may add advice, its attribute ``_aside``.
    """
    aside = getattr(type(value), "_aside", "")
    return f"{name} is {shown(value)}: give {cure}" + f"; {aside}" * bool(aside)


def shown(value: Any) -> str:
    """Text for a value in a message: the value if it is short, else its type."""
    if isinstance(value, tuple) and len(value) <= _FEW:
        return f"({', '.join(map(shown, value))})"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        if isinstance(value, int) and not -_WORD <= value < _WORD:
            return "a number of more than 64 bits"
        text = repr(value)
        if len(text) < _LONGEST and text.isprintable():
            return text
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return type_name(type(value))


def type_name(kind: type) -> str:
    """Return the name of a type with its article, as "a list" and "an H1"."""
    name = kind.__name__
    spelled = re.match(r"[A-Z](?![a-z])", name)  # H1, CSR: said letter by letter
    vowels = "AEFHILMNORSX" if spelled else "AEIOUaeiou"
    return f"{'an' if name[:1] in vowels or name == 'ndarray' else 'a'} {name}"


def _arguments_of(function: Callable[..., Any]) -> _Arguments:
    """Read the arguments of a function from its signature and annotations."""
    # the type of the result may be of a package that is not installed
    given = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    bare = types.SimpleNamespace(__annotations__=given)
    hints = get_type_hints(bare, unwrap(function).__globals__, include_extras=True)
    by_place, rest, any_count, any_names = [], None, False, False
    by_name: dict[str, Kind | None] = {}
    for name, parameter in signature(function).parameters.items():
        hint = hints.get(name, Any)
        if parameter.kind is Parameter.VAR_KEYWORD:
            if get_origin(hint) is Unpack:
                options = get_type_hints(get_args(hint)[0], include_extras=True)
                by_name |= {option: kind_of(each) for option, each in options.items()}
            else:
                rest, any_names = kind_of(hint), True
            continue
        kind = kind_of(hint)
        any_count = any_count or parameter.kind is Parameter.VAR_POSITIONAL
        if parameter.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}:
            by_place.append((name, kind))
        if parameter.kind in {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}:
            by_name[name] = kind
    return _Arguments(by_place, by_name, rest, any_count, any_names)


def kind_of(hint: Any) -> Kind | None:
    """Return the `Kind` of an annotation; None if the annotation is too general to check."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((part for part in parts if isinstance(part, Kind)), kind_of(parts[0]))
    if origin in {Union, types.UnionType}:
        return _any_of(parts)
    if origin is Literal:
        options = ", ".join(map(repr, parts[:-1]))
        return Kind(
            lambda value: isinstance(value, str) and value in parts,
            f"{options} or {parts[-1]!r}" if options else repr(parts[-1]),
        )
    plain = _PLAIN.get(origin or hint)
    if plain is not None:
        return plain
    if isinstance(origin, type) and issubclass(origin, Iterable) and origin is not np.ndarray:
        return Kind(_is_sequence, "a list")
    vague = hint in {Any, object} or getattr(hint, "_is_protocol", False)
    if isinstance(hint, type) and not vague:
        cure = getattr(hint, "_given_as", f"a {hint.__name__}")
        return Kind(lambda value: isinstance(value, hint), cure)
    return None


def _any_of(parts: tuple[Any, ...]) -> Kind | None:
    kinds = [kind_of(part) for part in parts]
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None
    cures = list(dict.fromkeys(kind.cure for kind in known))
    cure = " or ".join([", ".join(cures[:-1]), cures[-1]]) if len(cures) > 1 else cures[0]
    return Kind(lambda value: any(kind.holds(value) for kind in known), cure)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


# --- what annotations do not say ------------------------------------------------------------------


def array_of(
    values: Any, name: str, error: type[Exception], dtype: type | None = None
) -> NDArray[Any]:
    """Convert values to an array of the same shape, without a copy if they are an array.

    See `plain_numbers` for fractions.
    """
    refuse_masked(values, name, error)
    try:
        return plain_numbers(np.asarray(values, dtype=dtype))
    except (ValueError, TypeError, OverflowError) as reason:
        raise error(
            f"{name} can't be made an array of numbers ({reason}): give rows of equal length"
        ) from reason


def plain_numbers(array: NDArray[Any]) -> NDArray[Any]:
    """Convert an array of fractions, or of integers of more than 64 bits, to floating point.

    All other arrays are returned unchanged, and also numbers beyond the range of float64.
    """
    if array.dtype == object and array.size:
        for kind, dtype in ((Real, np.float64), (Complex, np.complex128)):
            if all(isinstance(entry, kind) for entry in array.flat):
                with suppress(OverflowError):
                    return array.astype(dtype)
    return array


def refuse_masked(values: Any, name: str, error: type[Exception]) -> None:
    """Raise if an array has masked entries, whose numbers would be read."""
    if hasattr(values, "mask") and np.ma.is_masked(values):
        raise error(f"{name} has masked entries, which would be read: fill them, as by .filled(0)")


def numbers_of(values: Any, name: str, error: type[Exception]) -> NDArray[np.float64]:
    """Convert values to a float64 array of the same shape. A float64 array is not copied."""
    array = array_of(values, name, error)
    if array.dtype.kind not in "biuf":
        raise error(
            f"{name} can't be made an array of numbers (it has {array.dtype}): give real numbers"
        )
    return array.astype(np.float64, copy=False)


def number_of(value: Any) -> float | None:
    """Convert a real number to float, infinity if it is too large. None for all other values."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_list(values: Any) -> list[Any]:
    """Return the entries of a list, set or array as a list; a text or number as its only entry."""
    if isinstance(values, str):
        return [values]
    try:
        return list(values)
    except TypeError:
        return [values]


def dtype_of(dtype: Any) -> np.dtype[Any] | None:
    """Convert to a NumPy dtype; None if there is no such type."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        return None
    return found


def call_with_arrays(
    function: Callable[..., Any], given: tuple[Any, ...], say: Callable[[Exception], Exception]
) -> Any:
    """Call a user's function of arrays and return its result."""
    try:
        return function(*given)
    except (TypeError, ValueError) as error:
        messages = ("truth value of an array", "converted to Python scalar")
        if not any(message in str(error) for message in messages):
            raise
        raise say(error) from error


def check_takes(
    function: Callable[..., Any], given: tuple[Any, ...], say: Callable[[str], Exception]
) -> None:
    """Raise if the signature of a user's function is known and does not take these arguments."""
    try:
        signature(function).bind(*given)
    except TypeError as mismatch:
        raise say(str(mismatch)) from mismatch
    except ValueError:
        pass  # a builtin that does not tell its arguments


_SMALL = 2**26


def available_memory() -> int:
    """Bytes available without swapping. If the system does not tell, the size of the memory."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**47  # the addresses of a process


def check_memory(needed: int, what: str, remedy: str, error: type[Exception]) -> None:
    """Raise if fewer than ``needed`` bytes are available.

    Callers count only arrays that must exist at once, so a refused request could not succeed.
    """
    if needed < _SMALL:  # the system is not asked for every small array
        return
    available = available_memory()
    if needed > available:
        raise error(
            f"{what} needs at least {needed / 2**30:.3g} GiB of memory, and "
            f"{available / 2**30:.3g} GiB are available: {remedy}"
        )
