"""Integrands: forms, coefficients, and the terms that operators add up."""
