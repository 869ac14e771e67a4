"""One program on many ranks: what each holds of a mesh's dofs, and how they exchange it."""
