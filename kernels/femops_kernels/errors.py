"""Errors of the kernel package."""

from __future__ import annotations


class KernelError(Exception):
    """Anything that femops_kernels refuses."""


class KernelValueError(KernelError, ValueError):
    """A size, type or array that a kernel can't take."""


class CacheError(KernelError, OSError):
    """No folder for compiled kernels can be written, or others can write what is there."""


class UnwritableError(CacheError):
    """The system refuses to write a file of the cache, for instance because the disk is full."""


class CompileError(KernelError, RuntimeError):
    """A kernel that the compiler refuses."""


class DeviceError(KernelError, RuntimeError):
    """A device or its software is missing, or the device failed."""


class CacheWarning(UserWarning):
    """A damaged cache entry was thrown away, or the cache folder had to be replaced."""
