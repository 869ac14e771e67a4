"""Hints for calls that a function does not take: the argument that was probably meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

_MEANT: dict[str, tuple[str, ...]] = {
    "abstol": ("atol",),
    "components": ("ncomp",),
    "degree": ("order",),
    "density": ("rho",),
    "dim": ("ncomp",),
    "eps": ("rtol",),
    "file": ("path",),
    "filename": ("path",),
    "divergence": ("div",),
    "gradient": ("grad",),
    "guess": ("x0", "u0"),
    "k": ("kappa",),
    "lambda_": ("lam",),
    "levels": ("times", "refine"),
    "lmbda": ("lam",),
    "max_iter": ("maxiter",),
    "maxit": ("maxiter",),
    "n": ("counts",),
    "p": ("order",),
    "prec": ("M", "preconditioner"),
    "preconditioner": ("M",),
    "refinements": ("refine",),
    "reltol": ("rtol",),
    "shape": ("counts",),
    "tol": ("rtol",),
    "tolerance": ("rtol",),
    "vdim": ("ncomp",),
}
"""Names that other libraries have for an argument, and the names here."""

_LAME = (
    "give Lame's parameters, lam = E nu / ((1 + nu) (1 - 2 nu)) and mu = E / (2 (1 + nu)), of "
    "Young's modulus E and Poisson's ratio nu"
)
_YOUNG = frozenset({"E", "nu", "young", "poisson"})


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """End of a message about an unknown name: the most similar of the known ones, if any is.

    >>> did_you_mean("multigird", ["jacobi", "multigrid"])
    ': did you mean multigrid?'
    >>> did_you_mean("x", ["jacobi", "multigrid"])
    ''
    """
    names = list(names)
    known = [one for one in _MEANT.get(name, ()) if one in names]
    similar = known or get_close_matches(name, names, n=1) or _but_for_case(name, names)
    return f": did you mean {similar[0]}?" if similar else ""


def unknown(function: Callable[..., Any], name: str, names: Iterable[str]) -> str:
    """Say that a function has no such argument, and which of its names may be meant."""
    names = [one for one in names if one not in {"self", "cls"}]
    hint = did_you_mean(name, names)
    if name in _YOUNG and {"lam", "mu"} <= set(names):
        hint = f": {_LAME}"
    text = f"{_shown(function)}() got an unexpected keyword argument {name!r}"
    return text + (hint or f": it takes {', '.join(names) or 'none'}")


def too_many(
    function: Callable[..., Any],
    count: int,
    places: Sequence[str],
    names: Iterable[str],
    others: bool,
) -> str:
    """Say that so many arguments by position are too many, and which to give by name.

    Parameters
    ----------
    function : callable
    count : int
    places, names : iterable of str
        Arguments by position, and by name.
    others : bool
        Whether it takes other names.
    """
    named = [f"{name}=..." for name in names if name not in places]
    if places[:1] == ["self"]:
        places, count = places[1:], count - 1
    text = f"{_shown(function)}() takes {len(places)} arguments by position"
    text += f" ({', '.join(places)})" * bool(places) + f", not {count}"
    if others and not named:
        return f"{text}: give the others by name, as u=u"
    return text + (f": give the others by name, as {', '.join(named[:3])}" if named else "")


def _but_for_case(name: str, names: Iterable[str]) -> list[str]:
    return [one for one in names if one.lower() == name.lower()]


def _shown(function: Callable[..., Any]) -> str:
    """Name of a function; that of the class if it makes an object of it."""
    name: str = function.__qualname__
    return name.removesuffix(".__init__")
