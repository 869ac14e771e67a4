"""What is done with fields: norms, integrals, values at points."""
