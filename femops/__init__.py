"""Matrix-free high-order finite element operators."""
