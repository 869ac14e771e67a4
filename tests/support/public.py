"""What femops offers: names of the package, and of the modules that are its public face."""

from __future__ import annotations

from typing import Any

import femops


def offered() -> dict[str, Any]:
    """Return functions and classes by their names, without errors and modules."""
    found = {name: getattr(femops, name) for name in femops.__all__}
    for module in (femops.io, femops.geometry):
        found |= {name: getattr(module, name) for name in module.__all__}
    rules = femops.basis
    found |= {"Basis1D": rules.Basis1D, "Quadrature1D": rules.Quadrature1D}
    found |= {"gauss": rules.gauss, "lobatto": rules.lobatto, "einsum": femops.tensor.einsum}
    found |= {"ElementRestriction": femops.spaces.restriction.ElementRestriction}
    return {name: value for name, value in found.items() if callable(value)}
