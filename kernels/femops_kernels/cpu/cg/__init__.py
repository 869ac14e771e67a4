"""Conjugate gradients on the host, compiled as a whole."""
