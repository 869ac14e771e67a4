"""Forms on several fields: traced once, one operator for each block."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace

from numpy.typing import DTypeLike

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.operators.block import BlockOperator
from femops.operators.integrals.bilinear import BilinearForm
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.number_types import float_type
from femops.operators.levels.level_data import check_level
from femops.operators.operator import Operator
from femops.pointwise.blocks import BlockQFunctions, Pair, linear_blocks
from femops.pointwise.errors import TraceError
from femops.pointwise.trace import FormFunction, name_of, trace
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
    shapes = whole.coefficient_shapes()
    components = {name: space.ncomp for name, space in product.spaces.items()}
    split = linear_blocks(trace(function, product.dim, components, components, shapes))
    forms = forms_of(whole, split, product)
    blocks = {
        pair: Operator.of_form(form, kind, lanes, level, data_dtype) for pair, form in forms.items()
    }
    return BlockOperator(product, blocks, split.symmetric, kind)


def forms_of(
    whole: BilinearForm, split: BlockQFunctions, product: Product
) -> dict[Pair, BilinearForm]:
    """The forms of the blocks of a form that is linear in the fields of a product.

    Parameters
    ----------
    whole : BilinearForm
        It has the function, the quadrature rule and all coefficients, which are read.
    split : BlockQFunctions
    product : Product
    """
    forms = {}
    for (test, field), step in split.steps.items():
        used = set(step.used())
        given = {name: value for name, value in whole.coefficients.items() if name in used}
        trial, target = product.spaces[field], product.spaces[test]
        forms[test, field] = replace(
            whole, trial=trial, test=target, coefficients=given, traced=step
        )
    return forms


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
