"""Teams of threads of several sizes, for checks that results have the same bits."""

from collections.abc import Iterator

from femops_kernels.cpu import machine


def each_team(*counts: int) -> Iterator[int]:
    """Yield each number of threads while it is in use. The number before is restored at the end."""
    before = machine.get_threads()
    try:
        for count in counts:
            machine.set_threads(count)
            yield count
    finally:
        machine.set_threads(before)
