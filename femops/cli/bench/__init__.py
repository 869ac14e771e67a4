"""Commands ``femops bench``, one for each benchmark."""
