"""Checks of the numeric options of eigensolvers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from femops.errors import SolverError


def check_numbers(numbers: Mapping[str, Any], free: int) -> None:
    """Raise if an eigensolver's option is no number or out of range, with ``free`` free dofs."""
    for name, least in {"k": 1, "guard": 0, "maxiter": 1, "max_products": 1, "seed": 0}.items():
        value = numbers[name]
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        optional = name in {"guard", "max_products"} and value is None
        if not (whole and value >= least) and not optional:
            raise SolverError(f"{name} = {value!r}: give a whole number >= {least}")
    if not free:
        raise SolverError("no dof is free: constrain fewer dofs")
    if numbers["k"] > free:
        raise SolverError(f"k = {numbers['k']}, but only {free} dofs are free: give at most {free}")
    tol = numbers["tol"]
    real = isinstance(tol, int | float | np.integer | np.floating) and not isinstance(tol, bool)
    if not (real and 0.0 < tol < np.inf):
        raise SolverError(f"tol = {tol!r}: give a number > 0")
