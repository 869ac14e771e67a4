"""Loads, stores and products of lane vectors of real or complex numbers.

A lane vector of complex numbers has real and imaginary parts in turns, as they are in memory. Its
product by a complex number is two products by real ones: the parts are put together when the sum
is complete.
"""

from __future__ import annotations

from typing import Any, final

from llvmlite import ir

from femops_kernels.simd.lanes import Lane, multiply_add, splat
from femops_kernels.simd.values import WORD, as_real, build, declared

_NARROW = ir.IntType(32)


@final
class Access:
    """Emits loads, stores and products of lane vectors. A number has ``parts`` real numbers."""

    def __init__(self, lane: Lane, parts: int) -> None:
        self.lane, self.parts = lane, parts
        self.vector, self.real, self.size = lane.llvm, lane.real.llvm, lane.itemsize

    def zero(self) -> Any:
        """Lane vector of zeros."""
        return splat(self.lane, 0.0)

    def _pointer(self, base: Any, offset: Any, kind: Any, part: int = 0) -> Any:
        """Address of a part of a number."""
        at = build().mul(offset, WORD(self.size * self.parts))
        moved = build().gep(base, [build().add(at, WORD(part * self.size))])
        return build().bitcast(moved, kind.as_pointer())

    # --- memory --------------------------------------------------------------------------------

    def lanes_at(self, base: Any, k: Any) -> Any:
        """Lane vector number ``k`` from an address on."""
        pointer = build().gep(base, [build().mul(k, WORD(self.size * self.lane.width))])
        return build().load(build().bitcast(pointer, self.vector.as_pointer()), align=self.size)

    def store_lanes(self, base: Any, k: Any, value: Any) -> None:
        """Store lane vector number ``k``."""
        pointer = build().gep(base, [build().mul(k, WORD(self.size * self.lane.width))])
        build().store(value, build().bitcast(pointer, self.vector.as_pointer()), align=self.size)

    def read(
        self, base: Any, where: list[Any], lanes: bool, runs: bool, written: bool = False
    ) -> Any:
        """Lane vector of some numbers: members of a batch, a run in memory, or one by one."""
        if lanes or (runs and len(where) * self.parts == self.lane.width):
            pointer = self._pointer(base, where[0], self.vector)
            return build().load(pointer, align=self.size)
        if runs and written:
            return self.read_run(base, where[0], len(where) * self.parts)
        if runs:
            return self._masked_load(base, where)
        value = ir.Constant(self.vector, [ir.Constant(self.real, 0.0)] * self.lane.width)
        for slot, at in enumerate(where):
            for part in range(self.parts):
                number = build().load(self._pointer(base, at, self.real, part))
                place = _NARROW(slot * self.parts + part)
                value = build().insert_element(value, number, place)
        return value

    def write(self, base: Any, where: list[Any], lanes: bool, runs: bool, value: Any) -> None:
        """Store a lane vector to the places from which `read` loads it."""
        if lanes or (runs and len(where) * self.parts == self.lane.width):
            pointer = self._pointer(base, where[0], self.vector)
            build().store(value, pointer, align=self.size)
        elif runs:
            self.write_run(base, where[0], value, len(where) * self.parts)
        else:
            for slot, at in enumerate(where):
                for part in range(self.parts):
                    number = build().extract_element(value, _NARROW(slot * self.parts + part))
                    build().store(number, self._pointer(base, at, self.real, part))

    def _mask(self, count: int) -> tuple[Any, Any]:
        kind = ir.VectorType(ir.IntType(1), self.lane.width)
        return kind, ir.Constant(kind, [int(k < count * self.parts) for k in range(kind.count)])

    def _masked_load(self, base: Any, where: list[Any]) -> Any:
        kind, mask = self._mask(len(where))
        pointer = self._pointer(base, where[0], self.vector)
        sort = ir.FunctionType(self.vector, [pointer.type, _NARROW, kind, self.vector])
        function = declared(sort, f"llvm.masked.load.{self.lane.suffix}.p0")
        return build().call(function, [pointer, _NARROW(self.size), mask, self.zero()])

    def _pieces(self, count: int) -> list[tuple[int, int]]:
        """First slot and number of slots of the parts of a vector. Numbers are powers of two."""
        pieces, first = [], 0
        for size in (16, 8, 4, 2, 1):
            if count & size:
                pieces.append((first, size))
                first += size
        return pieces

    def _piece(self, base: Any, at: Any, first: int, size: int) -> tuple[Any, Any]:
        kind = ir.VectorType(self.real, size)
        start = build().mul(at, WORD(self.size * self.parts))
        moved = build().gep(base, [build().add(start, WORD(first * self.size))])
        return build().bitcast(moved, kind.as_pointer()), kind

    def read_run(self, base: Any, at: Any, count: int) -> Any:
        """Load the first slots of a lane vector in parts whose sizes are powers of two.

        The processor forwards a store to a later load of the same part. It does not forward masked
        stores: a load waits until they are in the cache.
        """
        value = self.zero()
        for first, size in self._pieces(count):
            pointer, _ = self._piece(base, at, first, size)
            loaded = build().load(pointer, align=self.size)
            slots = [k if k < size else size for k in range(self.lane.width)]
            undefined = ir.Constant(loaded.type, ir.Undefined)
            wide = self.picked(loaded, undefined, slots)
            inside = range(first, first + size)
            picks = [
                self.lane.width + k - first if k in inside else k for k in range(self.lane.width)
            ]
            value = self.picked(value, wide, picks)
        return value

    def write_run(self, base: Any, at: Any, value: Any, count: int) -> None:
        """Store the first slots of a lane vector."""
        for first, size in self._pieces(count):
            pointer, _ = self._piece(base, at, first, size)
            part = self.picked(value, value, list(range(first, first + size)))
            build().store(part, pointer, align=self.size)

    def flat(self, values: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """Pack the first slots of several lane vectors into as few lane vectors as possible.

        ``values`` and the result are pairs: a lane vector, and the number of its slots in use.
        """
        slots = [(k, slot) for k, (_, count) in enumerate(values) for slot in range(count)]
        width, found = self.lane.width, []
        for begin in range(0, len(slots), width):
            chosen = slots[begin : begin + width]
            sources = list(dict.fromkeys(k for k, _ in chosen))
            value = ir.Constant(self.vector, ir.Undefined)
            for source in sources:
                picks = list(range(width))
                for place, (k, slot) in enumerate(chosen):
                    if k == source:
                        picks[place] = width + slot
                value = self.picked(value, values[source][0], picks)
            found.append((value, len(chosen)))
        return found

    # --- numbers -------------------------------------------------------------------------------

    def fill(self, base: Any, at: Any) -> Any:
        """Lane vector that repeats one number."""
        parts = [
            build().load(self._pointer(base, at, self.real, part)) for part in range(self.parts)
        ]
        value = splat(self.lane, parts[0])
        if self.parts == 1:
            return value
        return self.picked(value, splat(self.lane, parts[1]), self._turns(True))

    def factors(self, base: Any, at: Any, lanes: bool) -> list[Any]:
        """Real factors of a number of a (or of members' numbers), each as a lane vector."""
        if lanes:
            value = self.read(base, [at], True, True)
            if self.parts == 1:
                return [value]
            return [
                self.picked(value, value, [k - k % 2 + part for k in range(self.lane.width)])
                for part in range(2)
            ]
        return [
            splat(self.lane, build().load(self._pointer(base, at, self.real, p)))
            for p in range(self.parts)
        ]

    def multiply_add(self, factor: Any, value: Any, total: Any) -> Any:
        """Product, plus a total if there is one."""
        return multiply_add(self.lane, factor, value, total)

    def joined(self, totals: list[Any]) -> Any:
        """Join products with real and with imaginary parts to complex numbers.

        The only total of a real sum is returned unchanged.
        """
        if self.parts == 1:
            return totals[0]
        signs = [ir.Constant(self.real, -1.0), ir.Constant(self.real, 1.0)]
        sign = ir.Constant(self.vector, signs * (self.lane.width // 2))
        swapped = [k + 1 - 2 * (k % 2) for k in range(self.lane.width)]
        return self.multiply_add(sign, self.picked(totals[1], totals[1], swapped), totals[0])

    def scaled(self, factor: tuple[Any, Any], value: Any) -> Any:
        """Numbers times a number, which is a pair of numbers of the kernel."""
        reals = [as_real(self.lane.real, part) for part in factor[: self.parts]]
        return self.joined([self.multiply_add(splat(self.lane, r), value, None) for r in reals])

    def _turns(self, both: bool) -> list[int]:
        return [k + (k % 2) * self.lane.width * both for k in range(self.lane.width)]

    def picked(self, first: Any, second: Any, slots: list[int]) -> Any:
        """Lane vector of numbers of two lane vectors. Slots of the second follow the first's."""
        mask = ir.Constant(ir.VectorType(_NARROW, len(slots)), [_NARROW(k) for k in slots])
        return build().shuffle_vector(first, second, mask)
