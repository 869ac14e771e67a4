"""``femops bench``: a command for each benchmark."""
