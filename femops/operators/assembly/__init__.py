"""Assembly of matrices: of elements, in compressed rows, and their diagonals."""
