"""How matrices are assembled: of elements, in compressed rows, their diagonals."""
