"""Arguments that are wrong in ways that users meet: one error each, which says what to give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.basis import MOST_DEGREE

V = femops.H1(femops.box((2, 2)), 2)
A = femops.mass(V)
B = femops.load(V, 1.0)
F = femops.nonlinear_form(lambda u: {"value": u.value}, V)

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "order": (lambda: femops.H1(V.mesh, 500), "is 500: it must be at most 64"),
    "path": (lambda: femops.read_mesh(3), "path is 3: give the path"),  # type: ignore[call-overload]
    "refine": (
        lambda: femops.read_mesh(femops.sample("disc.mesh"), refine="a"),  # type: ignore[call-overload]
        "refine is 'a': give a whole number",
    ),
    "negative refine": (
        lambda: femops.read_mesh(femops.sample("disc.mesh"), refine=-1),
        "refine is -1: give a whole number",
    ),
    "tolerance": (lambda: femops.cg(A, B, rtol="a"), "rtol = 'a', .*: give numbers"),  # type: ignore[arg-type]
    "no tolerance": (lambda: femops.cg(A, B, atol=np.nan), "atol = nan: give numbers"),
    "of newton": (lambda: femops.newton(F, V.zeros(), rtol="a"), "rtol = 'a', .*: give numbers"),  # type: ignore[arg-type]
    "materials": (lambda: femops.by_attribute(V.mesh, [1, 2]), "values are a list: give a dict"),  # type: ignore[arg-type]
    "components": (lambda: femops.neo_hookean(V), "neo_hookean takes a space with ncomp=2"),
    "vector": (lambda: femops.elasticity(V, 1.0, 1.0), "elasticity takes a space with ncomp=2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(femops.Errors, match=message):
        call()


def test_what_is_just_right() -> None:
    assert femops.H1(V.mesh, MOST_DEGREE).ndofs == (2 * MOST_DEGREE + 1) ** 2
    for rtol in (1, 0.5, np.float32(1e-3), np.int64(0)):
        assert femops.cg(A, B, rtol=rtol, maxiter=3)[1].iterations <= 3
    assert femops.read_mesh(femops.sample("disc.mesh"), refine=np.int64(1)).num_elements > 4
