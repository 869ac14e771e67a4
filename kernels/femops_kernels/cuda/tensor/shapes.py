"""Launch shapes of contractions, from the tuning database or a model of registers and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import final

from femops_kernels.cuda.tensor.contraction import DeviceContraction
from femops_kernels.tuning import database
from femops_kernels.tuning.database import TuningKey

_REGISTERS, _OVERHEAD = 184, 40  # registers of a thread for numbers, and for addresses
_FILE, _MOST_THREADS = 65536, 2048  # registers and threads of a multiprocessor
_BUSY = 512  # threads of a multiprocessor that hide its latencies
_BLOCK_SHARED = 48 * 1024  # bytes of shared memory that a block has without a request
_ALL_SHARED = 160 * 1024  # bytes of shared memory of a multiprocessor on most architectures
_LOAD = 4  # multiply-adds in the time of a load from shared memory or a cache
_ROUNDS = 8  # blocks of the result that a thread works on one after the other
_THREADS, _MOST_BLOCKS = 128, 32  # preferred threads of a block; most blocks of a multiprocessor
_WORTH, _MOST_VARIANTS = 2.0, 24  # shapes to try: largest cost over the least, and number


@final
@dataclass(frozen=True)
class ProductShape:
    """Launch shape of a contraction."""

    # rows and columns: size of the block of the result in the registers of a thread
    rows: int
    columns: int
    members: int  # number of products that a thread block works on
    threads_each: int  # number of threads of a product
    staged: str  # letters of "abc" for the operands that go through shared memory
    shared_bytes: int  # bytes of shared memory of a thread block

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.members * self.threads_each

    def chunks(self, contraction: DeviceContraction) -> int:
        """Number of thread blocks that share the same members, more than 1 for large results."""
        rows, columns = self.blocks(contraction)
        return 1 if self.staged else -(-rows * columns // (_ROUNDS * self.threads_each))

    def blocks(self, contraction: DeviceContraction) -> tuple[int, int]:
        """Number of blocks of the result along its rows and along its columns."""
        rows, columns, _ = contraction.sizes
        return -(-rows // self.rows), -(-columns // self.columns)


def variants(contraction: DeviceContraction, shared_bytes: int) -> list[ProductShape]:
    """Launch shapes that tuning tries, by ascending cost in the model.

    A thread block uses at most ``shared_bytes`` of shared memory.
    """
    shapes = dict.fromkeys(_candidates(contraction, min(shared_bytes, _BLOCK_SHARED)))
    costs = {shape: _cost(contraction, shape) for shape in shapes}
    order = sorted(costs, key=lambda shape: (costs[shape], abs(shape.threads - _THREADS)))
    return [shape for shape in order if costs[shape] <= _WORTH * costs[order[0]]][:_MOST_VARIANTS]


def choose(
    contraction: DeviceContraction, shared_bytes: int, key: TuningKey | None = None
) -> ProductShape:
    """Launch shape of the tuning database for a key, if it fits, else the model's choice."""
    found = {} if key is None else database.find(key)
    for shape in _candidates(contraction, min(shared_bytes, _BLOCK_SHARED)) if found else ():
        if settings_of(shape) == found:
            return shape
    return variants(contraction, shared_bytes)[0]


def settings_of(shape: ProductShape) -> dict[str, int | str]:
    """Settings of a shape for the tuning database."""
    names = ("rows", "columns", "members", "threads_each")
    return {name: getattr(shape, name) for name in names}


def _candidates(contraction: DeviceContraction, shared_bytes: int) -> Iterator[ProductShape]:
    staged = _staged(contraction, shared_bytes)
    images = contraction.images
    each = contraction.itemsize * sum(images[name].pitch for name in staged)
    for rows, columns in _tiles(contraction):
        blocks = -(-contraction.sizes[0] // rows) * -(-contraction.sizes[1] // columns)
        if not staged:
            threads_each = min(blocks, _THREADS // 32)
            members = _THREADS // threads_each // 32 * 32
            yield ProductShape(rows, columns, members, threads_each, "", 0)
            continue
        for members in (1, 2, 4, 8, 16, 32, 64, 128):
            if members * each <= shared_bytes:
                threads_each = min(blocks, max(1, 2 * _THREADS // members))
                nbytes = members * each
                yield ProductShape(rows, columns, members, threads_each, staged, nbytes)


def _staged(contraction: DeviceContraction, shared_bytes: int) -> str:
    """Letters of the operands to stage: as many as fit in shared memory for one member."""
    sizes = {name: image.pitch * contraction.itemsize for name, image in contraction.images.items()}
    while sum(sizes.values()) > shared_bytes:
        del sizes[max(sizes, key=lambda name: sizes[name])]
    return "".join(sizes)


def _tiles(contraction: DeviceContraction) -> Iterator[tuple[int, int]]:
    """Sizes (rows, columns) of blocks that fit in registers and cut the result most evenly."""
    for rows in _cuts(contraction.sizes[0]):
        for columns in _cuts(contraction.sizes[1]):
            if rows == columns == 1 or _registers(contraction, rows, columns) <= _REGISTERS:
                yield rows, columns


def _cuts(size: int) -> list[int]:
    return sorted({-(-size // blocks) for blocks in range(1, size + 1)})


def _registers(contraction: DeviceContraction, rows: int, columns: int) -> int:
    return contraction.itemsize // 4 * (rows * columns + rows + columns)


def _cost(contraction: DeviceContraction, shape: ProductShape) -> float:
    """Estimated cost of a product: multiply-adds and loads, times a factor for idle threads."""
    rows, columns = shape.blocks(contraction)
    parts, terms = contraction.parts, contraction.sizes[2]
    tiles = rows * columns * terms
    work = tiles * shape.rows * shape.columns * parts**2
    loads = tiles * (shape.rows + shape.columns) * parts
    turns = ceil(rows * columns / shape.threads_each) * shape.threads_each / (rows * columns)
    registers = _registers(contraction, shape.rows, shape.columns) + _OVERHEAD
    warps = ceil(shape.threads / 32) * 32
    room = min(_MOST_BLOCKS, _ALL_SHARED // max(1, shape.shared_bytes))
    threads = min(room, _FILE // (registers * warps), _MOST_THREADS // warps) * shape.threads
    if threads == 0:
        return inf
    idle = turns * warps / shape.threads
    return (work + _LOAD * loads) * idle * max(1.0, _BUSY / threads)
