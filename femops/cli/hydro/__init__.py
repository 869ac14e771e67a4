"""Command ``femops hydro``: options, runs, their files, and the reference runs."""
