"""What is right, by loops that share no code with the library."""
