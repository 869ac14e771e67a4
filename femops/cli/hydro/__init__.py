"""``femops hydro``: options, runs, what they write, and the reference runs."""
