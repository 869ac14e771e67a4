"""Options of forms, stated once: their types, their defaults, and what they mean."""

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
from femops_meshes.arguments import checked

Form = TypeVar("Form", bound=Callable[..., Any])


class NonlinearOptions(TypedDict, total=False):
    """Options of residuals; `Options` says what they mean."""

    quadrature: int | Quadrature1D | None
    dtype: DTypeLike
    lanes: int | None


@final
class FormOptions(NonlinearOptions, total=False):
    """Options of bilinear forms; `Options` says what they mean."""

    data_dtype: DTypeLike | None
    level: str


@final
@dataclass(frozen=True)
class Options:
    """Options of a form, with the defaults of those that are not given.

    Attributes
    ----------
    quadrature : int or Quadrature1D, optional
        Points per direction (Gauss), or a rule; p + 2 Gauss points if omitted, for the larger order
        of two spaces.
    dtype : dtype
        float64 or float32: type of the vectors, the stored data and the arithmetic.
    lanes : int, optional
        SIMD slots; what the machine has if omitted. A GPU has none.
    data_dtype : dtype, optional
        Type of the numbers stored at quadrature points (levels partial and matrix-free,
        where they store such): float32 in an operator of float64 halves them; see
        `Operator.at_level`.
    level : {"full", "element", "partial", "matrix-free", "auto"}
        What is kept; see `Operator.at_level`.
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
    A coefficient of another shape or with values that are not finite; spaces of other numbers of
    components or on different meshes{level}.
SpaceError, GeometryError
    Too few quadrature points; inverted elements.
"""
"""Sections of the docstring of a built-in form after its options."""

_LEVEL = "; an unknown level, or one that would not\n    fit into memory"


def built_in(kind: type) -> Callable[[Form], Form]:
    """Check the arguments of a built-in form, and complete its signature and docstring.

    Its last parameters are ``**options``; see `with_options`. What follows says what all such forms
    return and raise.
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
    """Spell out the options of a form in its signature and docstring, as help() shows them.

    In the source they are ``**options: Unpack[kind]``, which editors and type checkers read, and an
    entry of the docstring. A form that has them as parameters of its own keeps these.
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
            # cleaned: Python indents docstrings until 3.12
            every, own = (cleandoc(one) + "\n" for one in (Options.__doc__, form.__doc__))
            entries = re.findall(r"^\w+ : .*\n(?: {4}.*\n)+", every, re.MULTILINE)
            mine = [entry for entry in entries if entry.split()[0] in kind.__annotations__]
            form.__doc__ = re.sub(r"\*\*options\n.*\n", lambda _: "".join(mine), own)
        return form

    return spelled_out
