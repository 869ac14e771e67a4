"""What is tried: meshes, spaces, forms and covers of their combinations."""
