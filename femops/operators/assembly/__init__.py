"""Assembly: element matrices, matrices in compressed rows, and diagonals."""
