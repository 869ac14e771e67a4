"""Evaluation of maps for a sequence of arrays with batch axes in front, for JAX and PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np

from femops.adjoint.maps import Map, OperatorMap, Vector
from femops.adjoint.solve_map import SolveMap
from femops.errors import OperatorError
from femops_kernels.exclusive import Reentrant

Mask = tuple[bool, ...]

_ALONE = Reentrant()
"""Held during a call, because other libraries call from threads of their own."""


@final
@dataclass(frozen=True)
class Call:
    """Evaluation of a map, or of its derivative, for arrays in a fixed order: the operands.

    The operands of "value" are the map's inputs. A derivative is taken at its first operands, the
    residuals: all inputs, then the result if the map needs it. In "jvp" a tangent for each name
    follows, in "vjp" one cotangent. A linear map has no residuals, and its value is its "jvp".
    """

    map: Map
    kind: Literal["value", "jvp", "vjp"]
    # inputs that have tangents in "jvp". Inputs by which "vjp" differentiates, with a result for
    # each.
    names: tuple[str, ...] = ()
    # a mask for each batch axis, first axis first: whether each operand has the axis. Every
    # result has all batch axes.
    mapped: tuple[Mask, ...] = ()

    @staticmethod
    def of(function: Map) -> Call:
        """Return the call that evaluates a map."""
        if function.linear:
            return Call(function, "jvp", (*function.inputs,))
        return Call(function, "value")

    @property
    def num_residuals(self) -> int:
        """Number of operands in which the call is not linear. They come first."""
        if self.kind == "value":
            return len(self.map.inputs)
        return 0 if self.map.linear else len(self.map.inputs) + int(self.map.needs_result)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the results without batch axes."""
        return [self.map.inputs[n] for n in self.names] if self.kind == "vjp" else [self.map.shape]

    def batch(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Lengths of the batch axes, from the shapes of the operands."""
        left, found = [list(shape) for shape in shapes], list[int]()
        for mask in self.mapped:
            lengths = [shape.pop(0) for shape, has in zip(left, mask, strict=True) if has]
            found.append(lengths[0])
        return tuple(found)

    # --- derivatives -----------------------------------------------------------------------------

    def along(self, names: Sequence[str]) -> Call:
        """Return the call for the derivative of a value along changes of the named inputs."""
        where = [[*self.map.inputs].index(name) for name in names]
        result = (True,) * int(self.map.needs_result)
        mapped = [(*mask, *result, *(mask[k] for k in where)) for mask in self.mapped]
        return Call(self.map, "jvp", tuple(names), tuple(mapped))

    def transposed(self, names: Sequence[str]) -> Call:
        """Return the call for the transpose of the derivative by the named inputs.

        Its results have all batch axes. Sum a result over the `extra_axes` of its input.
        """
        count, result = self.num_residuals, (True,) * int(self.map.needs_result)
        residual = [m + result if self.kind == "value" else m[:count] for m in self.mapped]
        pulls = self.kind != "vjp"
        ends = 1 if pulls else len(names)
        mapped = tuple((*mask, *(True,) * ends) for mask in residual)
        return Call(self.map, "vjp" if pulls else "jvp", tuple(names), mapped)

    def extra_axes(self, operand: int) -> tuple[int, ...]:
        """Batch axes that an operand does not have."""
        return tuple(k for k, mask in enumerate(self.mapped) if not mask[operand])

    def batched(self, mask: Mask) -> Call:
        """Call with one more batch axis. It is the first axis of the operands that have it."""
        return replace(self, mapped=(mask, *self.mapped))

    def refuse_second(self) -> None:
        """Raise an error: a call that is a derivative is not differentiated again."""
        raise OperatorError(
            f"second derivatives of {type(self.map).__name__} are not computed: "
            "femops.gradient(...).hessian_product has them"
        )

    # --- evaluation ------------------------------------------------------------------------------

    def __call__(self, *operands: Any) -> list[Vector]:
        """Evaluate. Operands and results are arrays of the map's memory."""
        with _ALONE:
            return self._evaluated(operands)

    def _evaluated(self, operands: Sequence[Any]) -> list[Vector]:
        function, xp = self.map, self.map.space.memory.xp
        if not self.mapped:
            return self._once(operands)
        batch = self.batch([np.shape(x) for x in operands])
        if 0 in batch:
            return [xp.zeros((*batch, *shape), dtype=function.dtype) for shape in self.shapes]
        if isinstance(function, OperatorMap):
            return [self._columns(function, operands[0])]
        if isinstance(function, SolveMap) and self._of_loads:
            return [self._solutions(function, operands)]
        mask, rest = self.mapped[0], replace(self, mapped=self.mapped[1:])
        rows = [
            rest._evaluated([x[k] if has else x for x, has in zip(operands, mask, strict=True)])
            for k in range(batch[0])
        ]
        columns = zip(*rows, strict=True)
        return [(np if isinstance(c[0], np.ndarray) else xp).stack(c) for c in columns]

    def _columns(self, product: OperatorMap, operand: Any) -> Vector:
        """Multiply the operator by all vectors of a batch at once."""
        array = product.space.memory.factor(operand, "u")
        result = product.batched(
            array.reshape(-1, array.shape[-1]).T, transposed=self.kind == "vjp"
        )
        rows: Vector = product.space.memory.xp.ascontiguousarray(result.T)
        return rows.reshape(*array.shape[:-1], -1)

    @property
    def _of_loads(self) -> bool:
        """True if the call is the value of a map for a batch of its first input alone."""
        return self.kind == "value" and all(m[0] and not any(m[1:]) for m in self.mapped)

    def _solutions(self, solve: SolveMap, operands: Sequence[Any]) -> Vector:
        """Solutions for all loads of a batch at once."""
        loads = solve.space.memory.factor(operands[0], "load")
        values = dict(zip(list(solve.inputs)[1:], operands[1:], strict=True))
        result = solve.of_loads(values, loads.reshape(-1, loads.shape[-1]).T)
        rows: Vector = solve.space.memory.xp.ascontiguousarray(result.T)
        return rows.reshape(loads.shape)

    def _once(self, operands: Sequence[Any]) -> list[Vector]:
        function, count = self.map, self.num_residuals
        values = dict(zip(function.inputs, operands[:count], strict=False))
        if self.kind == "value":
            return [function(values)]
        given = operands[count - 1] if count > len(function.inputs) else None
        linear = operands[count:]
        if self.kind == "jvp":
            return [function.jvp(values, dict(zip(self.names, linear, strict=True)), given)]
        found = function.vjp(values, linear[0], self.names, given)
        return [found[name] for name in self.names]
