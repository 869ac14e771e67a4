"""Search for the fastest variant of the kernels of small products.

On a GPU variants are launch shapes. The best variants go to the database of tuned settings, which
later runs read (tensor report, section 6.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, final

import numpy as np

from femops.bench.machine import using
from femops.bench.problems import Progress
from femops.bench.tensor.products import ProductCase, Products, layout_of
from femops.bench.timing import Fastest, batch_times, call_seconds, fastest, medians
from femops.tensor import Batch
from femops.tensor.known import KNOWN
from femops.tensor.lowering import Term, launches_on_device
from femops.tensor.memory import DeviceName, find_device
from femops_kernels.cpu import machine
from femops_kernels.cpu.tensor.contraction import Contraction, ContractionKernel, Variant
from femops_kernels.cuda.tensor.shapes import ProductShape, settings_of
from femops_kernels.device import Device
from femops_kernels.errors import KernelValueError
from femops_kernels.simd.tensor.offsets import offsets
from femops_kernels.tuning import database

_ONE, _NONE = (1.0, 0.0), (0.0, 0.0)  # alpha and beta

AnyVariant = TypeVar("AnyVariant", Variant, ProductShape)


@final
@dataclass(frozen=True)
class ProductSearch(Generic[AnyVariant]):
    """Variants of a kernel for square matrices, which take turns."""

    case: ProductCase  # the case, with one layout
    key: database.TuningKey  # key of the settings in the database
    # variants that the model does not rule out, the model's choice first
    candidates: Sequence[AnyVariant]
    # function of a variant that returns its settings in the form of the database
    settings: Callable[[AnyVariant], database.Settings]
    # function of a variant that returns the seconds of a call
    run_once: Callable[[AnyVariant], float]

    def run(self, rounds: int) -> tuple[database.Settings, Fastest[AnyVariant]]:
        """Time all variants in turns. Return the settings of the best, and the result."""
        found = fastest({one: partial(self.run_once, one) for one in self.candidates}, rounds)
        return self.settings(found.best), found

    def rows(self, found: Fastest[AnyVariant]) -> list[dict[str, Any]]:
        """The median speed of each variant that was measured."""
        (layout,) = self.case.layouts
        return [
            {"n": self.case.n, "layout": layout, "variant": number}
            | {name: getattr(one, name) for name in self.settings(one)}
            | {"gflops": self.case.flops / median * 1e-9, "chosen": one == found.best}
            for number, (one, median) in enumerate(medians(found.seconds).items(), 1)
        ]


def search_products(
    products: Products,
    rounds: int = 5,
    progress: Progress = lambda _: None,
    place: DeviceName = None,
    seconds: float = 0.01,
) -> dict[str, Any]:
    """Time all variants of kernels, and keep the best of each case and layout."""
    products.check()
    device = find_device(place)
    if place is not None and device is None:
        raise KernelValueError(f"no launch shapes on {place!r}: give 'cuda'")
    rows, best = list[dict[str, Any]](), dict[database.TuningKey, database.Settings]()
    for search in _searches(products.cases(), device, seconds):
        progress(f"{search.case.name}: {len(search.candidates)} variants")
        best[search.key], found = search.run(rounds)
        rows += search.rows(found)
    table = database.record(best)
    KNOWN.clear()  # kernels made from now on have the shapes found
    facts = {"machine": machine.describe(), "device": device and device.name}
    return facts | {"rows": rows, "table": str(table)}


def _searches(
    cases: Sequence[ProductCase], device: Device | None, seconds: float
) -> Iterator[ProductSearch[Any]]:
    for case in cases:
        if device is None:
            yield search_on_host(case.n, case.members, case.dtype)
        else:
            for layout in case.layouts:
                yield _search_on_device(device, replace(case, layouts=(layout,)), seconds)


def square(n: int, dtype: str) -> Contraction:
    """Contraction for the product of two square matrices in row-major order."""
    steps, ones = offsets(range(0, n * n, n)), range(n)
    return Contraction(dtype, steps, ones, steps, ones, steps, ones)


def search_on_host(n: int, members: int, dtype: str = "float64") -> ProductSearch[Variant]:
    """Prepare the search for the fastest variant of C += A B on one core."""
    case, kernel = ProductCase(n, members, dtype, ("contiguous",)), _kernel(n, dtype)
    a, b = case.operands()
    c, step = np.zeros_like(a), a.strides[0]
    calls: dict[Variant, Callable[[], object]] = {}

    def run_once(variant: Variant) -> float:
        if variant not in calls:
            tried = _kernel(n, dtype)
            with database.trying(tried.tuning_key(), _settings(variant)):
                assert tried.variant == variant
            addresses = a.ctypes.data, b.ctypes.data, c.ctypes.data
            given = addresses, (step, step, step, 0, 0, 0), (members, 1)
            calls[variant] = partial(tried.run, *given, _ONE, _ONE)
            calls[variant]()
        with using(1):
            return call_seconds(calls[variant])

    return ProductSearch(case, kernel.tuning_key(), kernel.candidates(), _settings, run_once)


def _kernel(n: int, dtype: str) -> ContractionKernel:
    return ContractionKernel(square(n, dtype), True)


def _settings(variant: Variant) -> database.Settings:
    """Settings of a variant in the form of the database, whose numbers begin with 1."""
    return {"rows": variant.rows, "vectors": variant.vectors, "ahead": variant.ahead + 1}


def _search_on_device(
    device: Device, case: ProductCase, seconds: float
) -> ProductSearch[ProductShape]:
    """Make the search among launch shapes of C = A B."""
    (layout,), shape = case.layouts, (case.n, case.n)
    form = layout_of(layout, on_device=True)
    a, b, c = (Batch(shape, case.members, case.dtype, form, device) for _ in range(3))
    for one in (a, b):
        one.assign(0.5)
    terms = Term(a.view, "ik"), Term(b.view, "kj"), Term(c.view, "ij")
    kernel, launches = launches_on_device(terms, case.members, False, device)

    def run_once(shape: ProductShape) -> float:
        tried = kernel.reshaped(shape)

        def call() -> None:
            for places, batches in launches:
                tried.run(places, batches, _ONE, _NONE)

        return batch_times(device, call, seconds).median

    return ProductSearch(case, kernel.tuning_key(), kernel.variants(), settings_of, run_once)
