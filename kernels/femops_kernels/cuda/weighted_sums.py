"""Weighted sums and three-term recurrences of vectors on a device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_kernels.compiled import DType, WeightedSum
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text
from femops_kernels.device import Device

_FIRST = [(f"a{k}", f"f{k}") for k in range(2)]  # names of the vectors and weights of a sum
_SECOND = [(f"b{k}", f"g{k}") for k in range(8)]


@cache
def _kernel(dtype: DType) -> tuple[Layout, NDArray[Any], str]:
    """Arguments, arguments without a vector, and text of the kernel for vectors of a type."""
    vectors, weights = zip(*_FIRST, *_SECOND, strict=True)
    fields = {"first": "T*", "second": "T*", "count": "long long", "share": "T"}
    fields |= dict.fromkeys(("mean", *vectors), "const T*") | dict.fromkeys(weights, "T")
    layout = Layout(fields, dtype)
    return layout, np.zeros((), layout.dtype), simple_text(layout, dtype, "weighted_sums")


def set_sums(device: Device, sums: Sequence[WeightedSum]) -> None:
    """Set one or two vectors to weighted sums, one after the other, in one launch."""
    *before, (out, terms, mean) = sums
    assert len(before) <= 1
    layout, empty, text = _kernel(out.dtype)
    given: dict[str, Any] = {"second": out, "count": out.size}
    if mean is not None:
        given["share"], given["mean"] = mean
    for first, first_terms, none in before:
        assert none is None
        given |= {"first": first} | _given(_FIRST, first_terms)
    given |= _given(_SECOND, terms)
    packed = copied(empty)
    layout.set(packed, device, **given)
    device.function(text).launch(-(-out.size // SIMPLE_THREADS), SIMPLE_THREADS, 0, packed)


def _given(names: Sequence[tuple[str, str]], terms: Sequence[tuple[float, Any]]) -> dict[str, Any]:
    """Arguments for the terms of a sum."""
    assert 0 < len(terms) <= len(names)
    given: dict[str, Any] = {}
    for (vector_name, weight_name), (weight, vector) in zip(names, terms, strict=False):
        given |= {vector_name: vector, weight_name: weight}
    return given


@cache
def _step_kernel(kind: str) -> tuple[Layout, str]:
    """Arguments and text of the kernel for vectors of a type."""
    names = ("product", "extra", "factors", "scales", "current")
    vectors = dict.fromkeys(names, "const T*") | {"old": "T*"}
    numbers = {"a": "T", "b": "T", "c": "T", "count": "long long", "width": "long long"}
    layout = Layout(vectors | numbers, np.dtype(kind))
    return layout, simple_text(layout, np.dtype(kind), "three_term")


def step(
    device: Device,
    old: Any,
    product: Any,
    current: Any,
    coefficients: tuple[float, float, float],
    scales: Any = None,
    extra: tuple[Any, Any] | None = None,
) -> None:
    """Set old = scales (a product + factors extra) + b current + c old, in one launch."""
    layout, text = _step_kernel(old.dtype.name)
    more, factors = (None, None) if extra is None else extra
    vectors = {"product": product, "extra": more, "factors": factors, "scales": scales}
    vectors |= {"current": current, "old": old}
    assert all(one is None or one.flags.c_contiguous for one in vectors.values())
    count, numbers = old.size, dict(zip("abc", coefficients, strict=True))
    packed = layout.pack(device, count=count, width=old.shape[1], **vectors, **numbers)
    device.function(text).launch(-(-count // SIMPLE_THREADS), SIMPLE_THREADS, 0, packed)
