"""Operations on fields: norms, integrals, values at points."""
