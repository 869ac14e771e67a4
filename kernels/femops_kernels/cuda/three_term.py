"""Three-term recurrences of many vectors on a device."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text
from femops_kernels.device import Device


@cache
def _kernel(kind: str) -> tuple[Layout, str]:
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
    layout, text = _kernel(old.dtype.name)
    more, factors = (None, None) if extra is None else extra
    vectors = {"product": product, "extra": more, "factors": factors, "scales": scales}
    vectors |= {"current": current, "old": old}
    assert all(one is None or one.flags.c_contiguous for one in vectors.values())
    count, numbers = old.size, dict(zip("abc", coefficients, strict=True))
    packed = layout.pack(device, count=count, width=old.shape[1], **vectors, **numbers)
    device.function(text).launch(-(-count // SIMPLE_THREADS), SIMPLE_THREADS, 0, packed)
