"""Steps of three-term recurrences: on the host, by NumPy and on a device, beside one formula."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import femops
from support.cuda.guarded import guarded_device


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("width", [1, 5, 16])
def test_a_step_is_what_its_formula_says(dtype: str, place: str, width: int) -> None:
    device = guarded_device() if place == "device" else None
    memory = femops.H1(femops.box((1,)), 1, device=device).memory
    rng, rows = np.random.default_rng(width), 333

    def random(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, shape)).astype(dtype)

    for with_current, with_scales, with_extra, c in product((0, 1), (0, 1), (0, 1), (0.0, -0.7)):
        old, given, current, more = (random(rows, width) for _ in range(4))
        scales, factors = random(rows), random(width)
        terms = [1.5 * given, factors * more * with_extra]
        terms = [each * (scales[:, np.newaxis] if with_scales else 1.0) for each in terms]
        terms += [0.3 * current * with_current, c * old]
        panel = memory.panels((rows, width), np.dtype(dtype))
        panel[...] = memory.put(old if c else np.full_like(old, np.nan))  # it is not read then
        memory.three_term(
            panel,
            memory.put(given),
            memory.put(current) if with_current else None,
            (1.5, 0.3, c),
            memory.put(scales) if with_scales else None,
            (memory.put(more), memory.put(factors)) if with_extra else None,
        )
        bound = 8 * np.finfo(dtype).eps * np.abs(terms).sum(axis=0)
        assert (np.abs(memory.get(panel) - np.sum(terms, axis=0)) <= bound).all()
