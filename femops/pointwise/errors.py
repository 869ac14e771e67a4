"""Errors of tracing."""

from __future__ import annotations

from femops.errors import FemopsError


class TraceError(FemopsError, TypeError):
    """A form's function does something that has no meaning for symbols."""


class NoAttributeError(TraceError, AttributeError):
    """A symbol does not have an attribute; ``hasattr`` says so too."""
