"""Compilation of a GPU's kernels ahead of need, by threads on idle cores."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, final

from femops_kernels.device import Device

_MOST = min(16, os.cpu_count() or 1)  # threads
_IDLE_SECONDS = 0.5  # time after which a thread without work ends


@final
class Compilers:
    """Threads that compile kernels into the cache on disk, at most one for each core and 16.

    NVRTC runs beside Python.  A thread of the program that needs a kernel which is being compiled
    waits for it.
    """

    def __init__(self) -> None:
        self._waiting, self._asked = SimpleQueue[Callable[[], object] | None](), set[object]()
        self._lock, self._threads = threading.Lock(), set[threading.Thread]()
        atexit.register(self._end)

    def later(self, key: object, compile_kernel: Callable[[], object]) -> None:
        """Let a thread compile a kernel, once. Its errors are dropped."""
        with self._lock:
            if key in self._asked:
                return
            self._asked.add(key)
            self._waiting.put(compile_kernel)
            if len(self._threads) < _MOST:
                thread = threading.Thread(target=self._work, daemon=True)
                self._threads.add(thread)
                thread.start()

    def _work(self) -> None:
        while True:
            try:
                compile_kernel = self._waiting.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._threads.discard(threading.current_thread())
                        return
                continue
            if compile_kernel is None:
                return
            with suppress(Exception):  # raised again where the kernel is needed
                compile_kernel()

    def _end(self) -> None:
        """Drop kernels that wait. Kernels that are being compiled are finished.

        The libraries of the compiler must not be taken down while it runs.
        """
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()
        threads = list(self._threads)
        for _ in threads:
            self._waiting.put(None)
        for thread in threads:
            thread.join()


@final
class Ahead:
    """Stands for a device while kernels are made only to be compiled: `function` does not wait."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def function(self, source: str) -> Any:
        """Let another thread compile a kernel. Assume that the kernel spills no registers."""
        self._device.compile_later(source)
        return SimpleNamespace(registers=0, local_bytes=0)
