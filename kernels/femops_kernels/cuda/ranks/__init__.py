"""Devices of many ranks."""
