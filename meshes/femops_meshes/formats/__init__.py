"""Mesh files: MFEM's, read and written."""
