"""Finite element spaces and their vectors."""
