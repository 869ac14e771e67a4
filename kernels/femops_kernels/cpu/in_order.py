"""NumPy's work on blocks of elements, on several Python threads.

NumPy gives the interpreter's lock back while it works on an array, so threads work at the same time
if blocks are large.  Each block is computed as on one thread, so results have the same bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Self, TypeVar, final, overload

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")

# Fewest blocks for which threads are started: to start one takes as long as a small block.
_FEWEST = 8
# Most threads: more would wait for the interpreter, and work far ahead, which takes memory.
_MOST = 8


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield ``work(item)`` for each item, in the order of the items.

    The caller's thread and others work ahead by a few items, if there are many.  An error is raised
    at its place.
    """
    source = iter(items)
    few = deque(islice(source, _FEWEST))
    if len(few) < _FEWEST:
        yield from map(work, few)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    from femops_kernels.cpu import machine  # imports the compiler

    helpers = min(machine.get_threads(), _MOST) - 1
    rest = chain((few.popleft() for _ in range(len(few))), source)  # nothing is kept
    if helpers < 1:
        yield from map(work, rest)
        return
    pool = ThreadPoolExecutor(helpers, initializer=machine.set_threads, initargs=(1,))
    found = deque["Future[Result]"]()
    try:
        for item in islice(rest, 2 * helpers):
            found.append(pool.submit(copy_context().run, work, item))
        while found:
            if not found[0].done() and (some := [*islice(rest, 1)]):
                mine = Future[Result]()
                _settle(mine, work, some[0])
                found.append(mine)
                continue
            for item in islice(rest, 1):  # replaces the item that is taken
                found.append(pool.submit(copy_context().run, work, item))
            yield found.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _settle(future: Future[Any], work: Callable[[Any], Any], item: Any) -> None:
    """Compute the result of a future here."""
    try:
        future.set_result(work(item))
    except Exception as error:  # noqa: BLE001  (raised again at its place)
        future.set_exception(error)


@final
class computed_once(cached_property[Result]):
    """`functools.cached_property` that does not hold a lock while it computes.

    In Python 3.11 all objects of a class share the lock of a property, so threads would wait for
    each other.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Result: ...

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        """Return the value, and compute it at the first use."""
        if instance is None:
            return self
        assert self.attrname is not None
        value = instance.__dict__[self.attrname] = self.func(instance)
        return value
