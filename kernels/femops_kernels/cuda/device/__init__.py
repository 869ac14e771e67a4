"""Devices: memory, streams and launches."""
