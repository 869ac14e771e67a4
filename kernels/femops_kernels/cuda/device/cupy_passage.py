"""Copies by CuPy between a GPU and memory of the host that messages are sent from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

from femops_kernels.cuda.device.device import Passage

if TYPE_CHECKING:
    from femops_kernels.cuda.device.cupy_device import CudaDevice


@final
class CudaPassage(Passage):
    """Copies in a stream of their own, or none.

    Parameters
    ----------
    device : CudaDevice
    size, dtype, direct
        See `Device.passage`.
    """

    def __init__(
        self, device: CudaDevice, size: int, dtype: np.dtype[Any], *, direct: bool
    ) -> None:
        self._device, self._cuda, self._direct = device, device.xp.cuda, direct
        with device.current:
            self.there: Any = device.xp.zeros(size, dtype)
            self.here: Any = self.there
            self._stream = self._cuda.Stream(non_blocking=True)
            # of the stream in which kernels run, and of that of the copies
            self._launched, self._copied = (self._cuda.Event(disable_timing=True) for _ in range(2))
            if not direct:
                memory = self._cuda.alloc_pinned_memory(max(1, size * dtype.itemsize))
                self.here = np.frombuffer(memory, dtype, size)
                self.here[:] = 0

    def depart(self) -> None:
        """See `Passage.depart`."""
        with self._device.current:
            self._launched.record(self._cuda.get_current_stream())
            self._stream.wait_event(self._launched)
            if not self._direct and self.here.size:
                to = self.here.ctypes.data, self.here.nbytes
                self.there.data.copy_to_host_async(*to, self._stream)
            self._copied.record(self._stream)

    def wait(self) -> None:
        """See `Passage.wait`."""
        self._copied.synchronize()

    def enter(self) -> None:
        """See `Passage.enter`."""
        if self._direct or not self.here.size:
            return
        with self._device.current:
            source = self.here.ctypes.data, self.here.nbytes
            self.there.data.copy_from_host_async(*source, self._stream)
            self._copied.record(self._stream)
            self._cuda.get_current_stream().wait_event(self._copied)
