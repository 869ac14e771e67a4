"""Work on many vectors at once: a slot of a lane is a vector."""
