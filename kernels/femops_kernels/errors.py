"""Errors of the kernel package."""

from __future__ import annotations


class KernelError(Exception):
    """Base class of the errors of femops_kernels."""


class KernelValueError(KernelError, ValueError):
    """A size, type or array that a kernel can't take."""


class CacheError(KernelError, OSError):
    """No folder for compiled kernels can be written, or other users can write its files."""


class UnwritableError(CacheError):
    """The system refuses to write a file of the cache, for instance because the disk is full."""


class CompileError(KernelError, RuntimeError):
    """The compiler refuses a kernel."""


class DeviceError(KernelError, RuntimeError):
    """A device or its software is missing, or the device failed."""


class CacheWarning(UserWarning):
    """A damaged file of the cache was removed, or a temporary folder replaces the cache folder."""
