"""Options of forms: types, defaults and documentation in one place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, cleandoc, signature
from typing import Any, TypedDict, TypeVar, final

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops_common.arguments import checked

Form = TypeVar("Form", bound=Callable[..., Any])


class NonlinearOptions(TypedDict, total=False):
    """Options of residuals, documented in `Options`."""

    quadrature: int | Quadrature1D | None
    dtype: DTypeLike
    lanes: int | None


@final
class FormOptions(NonlinearOptions, total=False):
    """Options of bilinear forms, documented in `Options`."""

    data_dtype: DTypeLike | None
    level: str


@final
@dataclass(frozen=True)
class Options:
    """Options of a form, with their default values.

    Attributes
    ----------
    quadrature : int or Quadrature1D, optional
        Gauss points per direction, or a rule. The default is p + 2 Gauss points, where p is the
        larger order of two spaces.
    dtype : dtype
        Type of the vectors, the stored data and the arithmetic: float64 or float32.
    lanes : int, optional
        Number of SIMD lanes. The default is that of the machine. A GPU has no lanes.
    data_dtype : dtype, optional
        Type of the numbers that levels partial and matrix-free store at quadrature points.
        float32 in an operator of float64 halves their memory; see `Operator.at_level`.
    level : {"full", "element", "partial", "matrix-free", "auto"}
        Level, which decides what the operator stores; see `Operator.at_level`.
    """

    quadrature: int | Quadrature1D | None = None
    dtype: DTypeLike = np.float64
    lanes: int | None = None
    data_dtype: DTypeLike | None = None
    level: str = "partial"


_RETURNS = """
Returns
-------
{result}

Raises
------
OperatorError
    If a coefficient has another shape or values that are not finite, or spaces have other numbers
    of components or are on different meshes{level}.
SpaceError, GeometryError
    If there are too few quadrature points, or elements are inverted.
"""
"""Sections of the docstring of a built-in form after its options."""

_LEVEL = ",\n    or the level is unknown or would not fit into memory"


def built_in(kind: type) -> Callable[[Form], Form]:
    """Decorate a built-in form: check its arguments, complete its signature and docstring.

    The last parameters are ``**options``; see `with_options`. The decorator adds the sections
    Returns and Raises, which are the same for all built-in forms.
    """

    def complete(form: Form) -> Form:
        if form.__doc__:
            level = _LEVEL if "level" in kind.__annotations__ else ""
            returns = _RETURNS.format(result=form.__annotations__["return"], level=level)
            own = cleandoc(form.__doc__) + "\n"
            form.__doc__ = re.sub(r"\*\*options\n.*\n", lambda found: found[0] + returns, own)
        return with_options(kind)(checked(OperatorError)(form))

    return complete


def with_options(kind: type) -> Callable[[Form], Form]:
    """Decorate a form: list its options in its signature and docstring, for ``help()``.

    In the source the options are ``**options: Unpack[kind]``, for editors and type checkers, and an
    entry of the docstring. Options that are parameters of the form are not changed.
    """

    def spelled_out(form: Form) -> Form:
        parameters = dict(signature(form).parameters)
        if parameters.pop("options", None):
            for name, written in kind.__annotations__.items():
                default, annotation = getattr(Options, name), written.__forward_arg__
                parameters[name] = Parameter(
                    name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation
                )
            shown = signature(form).replace(parameters=list(parameters.values()))
            form.__signature__ = shown  # type: ignore[attr-defined]
        if form.__doc__ and Options.__doc__:  # python -OO has none
            # Python up to 3.12 keeps the indentation of docstrings, so remove it
            every, own = (cleandoc(one) + "\n" for one in (Options.__doc__, form.__doc__))
            entries = re.findall(r"^\w+ : .*\n(?: {4}.*\n)+", every, re.MULTILINE)
            mine = [entry for entry in entries if entry.split()[0] in kind.__annotations__]
            form.__doc__ = re.sub(r"\*\*options\n.*\n", lambda _: "".join(mine), own)
        return form

    return spelled_out
