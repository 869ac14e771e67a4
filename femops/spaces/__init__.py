"""Finite element spaces, and what vectors of them are."""
