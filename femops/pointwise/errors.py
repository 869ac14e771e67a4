"""Errors of tracing."""

from __future__ import annotations

from femops.errors import FemopsError


class TraceError(FemopsError, TypeError):
    """Error for a form's function that does an operation which symbols do not have."""


class NoAttributeError(TraceError, AttributeError):
    """Error for an attribute that a symbol does not have. ``hasattr`` returns False for it."""
