"""Skeletons of laws."""
