"""Forms on several fields: traced once, one operator for each block."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.operators.block import BlockOperator
from femops.operators.integrals.bilinear import BilinearForm
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.number_types import float_type
from femops.operators.levels.level_data import check_level
from femops.operators.operator import Operator
from femops.pointwise.blocks import linear_blocks
from femops.pointwise.errors import TraceError
from femops.pointwise.trace import FormFunction, Trace, name_of, trace
from femops.spaces.product import Product


def block_operator(
    function: FormFunction,
    product: Product,
    quadrature: Quadrature1D,
    coefficients: Mapping[str, FormCoefficient],
    dtype: DTypeLike,
    lanes: int | None,
    level: str,
    data_dtype: DTypeLike | None = None,
) -> BlockOperator:
    """Operator of a form on the fields of a product.

    Parameters
    ----------
    function, product, dtype, lanes, level, data_dtype
        See `femops.form`.
    quadrature : Quadrature1D
        For all blocks.
    coefficients : dict of FormCoefficient

    Raises
    ------
    TraceError
        A function that can't be traced, or is not linear in all fields together.
    OperatorError
        A level or type that does not exist; coefficients of a wrong shape.
    """
    check_level(level)
    kind = float_type(dtype)
    check_fields(function, product, coefficients)
    first = product.spaces[product.names[0]]
    whole = BilinearForm(function, first, first, quadrature, coefficients)
    shapes, coefficients = whole.coefficient_shapes(), whole.coefficients  # read once for all
    components = {name: space.ncomp for name, space in product.spaces.items()}
    traced = trace(function, product.dim, components, components, shapes)
    options = kind, lanes, level, data_dtype
    return blocks_of(function, traced, product, quadrature, coefficients, options)


def blocks_of(
    function: FormFunction,
    traced: Trace,
    product: Product,
    quadrature: Quadrature1D,
    coefficients: Mapping[str, FormCoefficient],
    options: tuple[np.dtype[Any], int | None, str, DTypeLike | None],
) -> BlockOperator:
    """Operator of a traced form that is linear in the fields of a product.

    Parameters
    ----------
    function : callable
        For its name.
    traced : Trace
    product, quadrature, coefficients
        See `block_operator`; the coefficients are read.
    options : (dtype, lanes, level, data_dtype)

    Raises
    ------
    TraceError
        See `block_operator`.
    """
    split, blocks = linear_blocks(traced), {}
    for (test, field), step in split.steps.items():
        used = {name: coefficients[name] for name in step.used() if name in coefficients}
        spaces = product.spaces[field], product.spaces[test]
        form = BilinearForm(function, *spaces, quadrature, used, traced=step)
        blocks[test, field] = Operator.of_form(form, *options)
    return BlockOperator(product, blocks, split.symmetric, options[0])


def check_fields(
    function: FormFunction, product: Product, coefficients: Mapping[str, FormCoefficient]
) -> None:
    """Check that fields cannot be mistaken for each other, or for coefficients."""
    names = product.names
    clash = [name for name in coefficients if name in names]
    if clash:
        raise OperatorError(
            f"{clash[0]!r} is a field of {product!r} and a coefficient: rename one of them"
        )
    taken = tuple(inspect.signature(function).parameters)
    if taken[: len(names)] != names:
        raise TraceError(
            f"{name_of(function)}({', '.join(taken)}) must take the fields first, in the order of "
            f"{product!r}: {', '.join(names)}"
        )
