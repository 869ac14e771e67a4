"""Levels of assembly: the data that an operator stores."""
