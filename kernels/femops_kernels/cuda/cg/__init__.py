"""Conjugate gradients on a device."""
