"""When operators can be added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from femops.errors import OperatorError
from femops.spaces.devices import device_of

if TYPE_CHECKING:
    from femops.operators.operator import Operator


def check_sum(a: Operator, b: Operator) -> None:
    """Refuse a sum of operators on different spaces, of other types, conditions or levels.

    Raises
    ------
    OperatorError
    SpaceError
        They are not on one device.
    """
    device_of((a.space, b.space))
    same = a.space is b.space and a.test_space is b.test_space
    if not same or a.dtype != b.dtype:
        raise OperatorError(
            f"operators on different spaces or types can't be added: {a!r} and {b!r}"
        )
    if not a.held.same(b.held):
        raise OperatorError(
            "operators with different constraints can't be added: write (A + B).constrained(dofs)"
        )
    if a.asked != b.asked:
        raise OperatorError(
            f"operators of levels {a.asked!r} and {b.asked!r} can't be added: "
            f"write A + B.at_level({a.asked!r})"
        )
